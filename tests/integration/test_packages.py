"""The two packages as an index would get them: built, complete, small, and buildable again."""

import json
import re
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from serving import DEADLINE_SECONDS

ROOT = Path(__file__).parents[2]
MB = 1_000_000
FOLDERS = {"toolscout": ROOT, "toolscout-encoder": ROOT / "packages/toolscout-encoder"}
MOST_BYTES = {"toolscout": 15 * MB, "toolscout-encoder": 30 * MB}
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
URLS = ("Homepage", "Repository", "Documentation", "Changelog", "Issues")
PLACES = ("https://github.com/toolscout/toolscout", "https://toolscout.github.io/toolscout/")
every_package = pytest.mark.parametrize("name", FOLDERS)

_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel from the checkout, and one from the source package."""

    wheel: Path
    again: Path

    def read_metadata(self) -> Message:
        return BytesParser().parsebytes(read_member(self.wheel, "METADATA"))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    folder = tmp_path_factory.mktemp("packages")
    return {name: build_both(FOLDERS[name], folder / name) for name in FOLDERS}


def build_both(project: Path, folder: Path) -> Built:
    wheel = build(project, "wheel", folder / "first")
    with tarfile.open(build(project, "sdist", folder)) as file:
        file.extractall(folder, filter="data")
    [unpacked] = folder.glob("*/pyproject.toml")
    return Built(wheel, build(unpacked.parent, "wheel", folder / "again"))


def build(project: Path, kind: str, folder: Path) -> Path:
    # Without an environment of its own, which would be fetched.
    words = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    ran = subprocess.run(words, cwd=project, capture_output=True, timeout=DEADLINE_SECONDS)
    assert ran.returncode == 0, ran.stderr.decode()
    [made] = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def read_member(wheel: Path, name: str) -> bytes:
    with ZipFile(wheel) as file:
        [path] = [one for one in file.namelist() if one.endswith(f".dist-info/{name}")]
        return file.read(path)


def read_project(name: str) -> dict[str, Any]:
    text = (FOLDERS[name] / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]


@every_package
def test_a_source_package_builds_the_same_wheel_again(packages: dict[str, Built], name: str):
    built = packages[name]

    assert read_member(built.wheel, "RECORD") == read_member(built.again, "RECORD")


@every_package
def test_a_wheel_is_small_enough(packages: dict[str, Built], name: str):
    size = packages[name].wheel.stat().st_size

    sys.stdout.write(f"{packages[name].wheel.name}: {size / MB:.1f} MB\n")
    assert size < MOST_BYTES[name]


@every_package
def test_a_package_says_where_it_comes_from_and_where_it_runs(
    packages: dict[str, Built], name: str
):
    metadata = packages[name].read_metadata()

    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL", ()))
    assert set(urls) == set(URLS)
    assert all(url.startswith(PLACES) for url in urls.values())
    classifiers = metadata.get_all("Classifier", ())
    named = {one.rpartition(" ")[2] for one in classifiers if ":: 3." in one}
    assert named == set(VERSIONS)
    assert metadata["Requires-Python"] == f">={VERSIONS[0]}"
    assert "Operating System :: OS Independent" in classifiers
    assert any(one.startswith("Topic ::") for one in classifiers)
    assert metadata["Version"] == read_project(name)["version"]


@every_package
def test_a_package_contains_its_licences(packages: dict[str, Built], name: str):
    metadata = packages[name].read_metadata()

    assert metadata["License-Expression"] == "Apache-2.0"
    files = metadata.get_all("License-File", ())
    assert "LICENSE" in files
    for file in files:
        source = (FOLDERS[name] / file).read_bytes()
        assert read_member(packages[name].wheel, f"licenses/{file}") == source


@every_package
def test_a_package_is_typed_and_says_so(packages: dict[str, Built], name: str):
    with ZipFile(packages[name].wheel) as file:
        names = file.namelist()

    assert f"{name.replace('-', '_')}/py.typed" in names
    assert "Typing :: Typed" in packages[name].read_metadata().get_all("Classifier", ())


@every_package
def test_the_page_of_a_package_has_whole_addresses_only(packages: dict[str, Built], name: str):
    text = packages[name].read_metadata().get_payload()
    assert isinstance(text, str)

    links = _LINK.findall(text)

    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_the_extra_for_onnx_admits_the_encoder_of_this_repository():
    [needed] = [
        one
        for one in read_project("toolscout")["optional-dependencies"]["onnx"]
        if one.startswith("toolscout-encoder")
    ]
    version = read_project("toolscout-encoder")["version"]
    low, high = re.findall(r"[\d.]+", needed)

    assert as_numbers(low) <= as_numbers(version) < as_numbers(high)


def as_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@every_package
def test_every_file_that_is_not_code_has_a_row_with_its_source_and_licence(
    packages: dict[str, Built], name: str
):
    page = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    patterns = [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row[0])]
    with ZipFile(packages[name].wheel) as file:
        names = [one for one in file.namelist() if ".dist-info/" not in one]

    others = [one for one in names if not one.endswith(".py")]

    assert all(len(row) == 4 for row in rows)
    assert [one for one in others if not any(fnmatch(one, pattern) for pattern in patterns)] == []
    assert [one for one in patterns if not any(fnmatch(name, one) for name in others)] == []


def test_the_bill_of_materials_lists_what_is_installed(tmp_path: Path):
    file = tmp_path / "sbom.json"
    words = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject"]
    # `make sbom` validates, which takes half a minute.
    words += [str(ROOT / "pyproject.toml"), "--no-validate", "-o", str(file), sys.executable]
    subprocess.run(words, check=True, capture_output=True, timeout=DEADLINE_SECONDS)

    bill = json.loads(file.read_text(encoding="utf-8"))

    project = read_project("toolscout")
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "toolscout"
    assert bill["metadata"]["component"]["version"] == project["version"]
    listed = {normalize(one["name"]): one["version"] for one in bill["components"]}
    names = [one.partition(">")[0] for one in project["dependencies"]]
    assert len(names) >= 10
    assert {one: listed[normalize(one)] for one in names} == {one: version(one) for one in names}


def normalize(name: str) -> str:
    """Return the name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
