"""The workflows use what the Makefile and the packages say, and hold no secrets."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from documents import load_script
from foreign import lint_workflows, needs_actionlint

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
LABELS = {"macos-15", "ubuntu-24.04"}
"""The machines that workflows run on."""
STALE = "runner-label"
"""The one rule of actionlint that needs a list of its own, which is older than our machines."""
every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read_workflow(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@every_workflow
def test_a_workflow_makes_targets_that_exist(path: Path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE)
    lines = re.findall(r"run: make (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    made = [word for line in lines for word in line.split() if "=" not in word]

    assert made
    assert set(made) <= set(targets)
    # Otherwise `make` prefers any Python 3.11 of the machine.
    assert all("PYTHON=python" in line.split() for line in lines)


@every_workflow
def test_a_workflow_may_only_read_unless_a_job_says_more(path: Path):
    workflow = read_workflow(path)

    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in path.read_text(encoding="utf-8")
    for job in workflow["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 180


def test_all_versions_of_python_that_the_packages_name_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [re.search(r":: (3\.\d+)$", one) for one in project["classifiers"]]
    job = read_workflow(ROOT / ".github/workflows/test.yml")["jobs"]["test"]

    assert job["strategy"]["matrix"]["python"] == [found[1] for found in named if found]


def test_packages_are_published_without_a_password():
    jobs = read_workflow(ROOT / ".github/workflows/release.yml")["jobs"]

    [step] = [one for one in jobs["publish"]["steps"] if "pypi-publish" in one["uses"]]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"
    assert not {"password", "user"} & set(step["with"])


@pytest.mark.processes
@needs_actionlint
def test_actionlint_finds_nothing_in_the_workflows():
    """The package on PyPI fetches the program from elsewhere, so this is the one from npm."""
    assert [one for one in lint_workflows(WORKFLOWS) if one["kind"] != STALE] == []


@pytest.mark.processes
@needs_actionlint
def test_actionlint_finds_a_mistake(tmp_path: Path):
    wrong = tmp_path / "wrong.yml"
    text = WORKFLOWS[0].read_text(encoding="utf-8")
    wrong.write_text(text.replace("timeout-minutes:", "timeout-minuts:"), encoding="utf-8")

    assert [one["kind"] for one in lint_workflows([wrong])].count("syntax-check") > 0


@every_workflow
def test_a_workflow_runs_on_machines_that_exist(path: Path):
    assert {job["runs-on"] for job in read_workflow(path)["jobs"].values()} <= LABELS


def test_whatever_a_change_must_pass_is_also_run_by_a_workflow():
    made = " ".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)

    targets = ("test", "test-slow", "matrix", "release", "docs")
    assert all(re.search(rf"run: make .*\b{target}\b", made) for target in targets)


def test_only_the_main_branch_publishes_the_site():
    jobs = read_workflow(ROOT / ".github/workflows/docs.yml")["jobs"]

    assert jobs["publish"]["if"] == "github.ref == 'refs/heads/main'"
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write", "pages": "write"}
    [upload] = [one for one in jobs["build"]["steps"] if "pages-artifact" in one.get("uses", "")]
    assert (
        upload["with"]["path"] == load_script("build").BUILD.relative_to(ROOT).as_posix() + "/site"
    )
