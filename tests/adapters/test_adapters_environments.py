"""Every adapter has an environment, a lock, a test, an example and its row in the documents."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from adapters import environments as runner
from adapters.installers import uv_variables
from adapters.tables import (
    EXAMPLES,
    LOCKS,
    ROOT,
    environments,
    foreign_tests,
    list_adapters,
    list_excluded,
    needs_sdk,
    owner,
)
from toolscout import Mode

BY_MODULE = {entry.module: entry for entry in environments().values()}
_PIN = re.compile(r"[a-z0-9][a-z0-9._-]*(\[[a-z0-9,-]+\])?==[\w.+!]+( ; .+)?")


@pytest.mark.parametrize("module", list_adapters())
def test_an_adapter_has_all_that_belongs_to_it(module: str):
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    entry = BY_MODULE.get(module)

    assert entry is not None, f"{module} has no environment in environments.toml"
    assert entry.adapter, f"environments.toml says that {entry.name} has no adapter"
    assert entry.lock.exists(), f"run `environments.py lock {entry.name}`"
    assert entry.tests.exists(), f"{entry.tests.name} is missing"
    assert entry.examples, f"examples has no {module}_….py"
    assert f"| `{module}` |" in page, "run `environments.py test` and `environments.py docs`"


@pytest.mark.parametrize("module", list_adapters())
def test_an_adapter_is_type_checked_where_its_sdk_is_installed(module: str):
    entry = BY_MODULE[module]

    assert any(map(needs_sdk, entry.sources)), f"{module} never raises MissingExtra"
    assert set(entry.sources) < set(entry.files)


def test_every_lock_belongs_to_an_environment():
    assert {path.stem for path in LOCKS.glob("*.txt")} == set(environments())


@pytest.mark.parametrize("name", environments())
def test_a_lock_pins_every_core_dependency(name: str):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {_normalize(dependency) for dependency in project["dependencies"]}
    lines = environments()[name].lock.read_text(encoding="utf-8").splitlines()

    missing = needed - {_normalize(line) for line in lines}

    assert not missing, f"run `environments.py lock {name}`"


def _normalize(requirement: str) -> str:
    """Return the name of the package that a line of requirements asks for."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


@pytest.mark.parametrize("name", environments())
def test_a_lock_holds_exact_versions_and_names_no_place(name: str):
    for line in environments()[name].lock.read_text(encoding="utf-8").splitlines():
        assert _PIN.fullmatch(line), line


@pytest.mark.parametrize("name", environments())
def test_the_extras_of_an_environment_are_pinned_within_their_bounds(name: str):
    entry = environments()[name]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = entry.lock.read_text(encoding="utf-8")

    for extra in entry.extras:
        for wanted in project["optional-dependencies"][extra]:
            package = re.match(r"[\w.-]+", wanted)
            assert package is not None
            assert re.search(rf"^{package[0].lower()}(\[.*\])?==", locked, re.MULTILINE), wanted


def test_every_adapter_has_an_extra_with_its_name_and_an_upper_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    for entry in environments().values():
        if entry.adapter:
            for wanted in project["optional-dependencies"][entry.name]:
                assert re.fullmatch(r"[\w.-]+>=[\d.]+,<[\d.]+", wanted), wanted


def test_the_main_type_check_leaves_out_what_needs_an_sdk_and_nothing_else():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert project["tool"]["pyright"]["exclude"] == list_excluded()


def test_an_example_needs_an_sdk_or_an_endpoint_exactly_if_its_name_has_two_parts():
    for path in EXAMPLES.glob("*.py"):
        is_plain = path.stem.startswith("plain_")  # needs an endpoint, and no SDK
        assert (bool(owner(path)) or is_plain) == ("_" in path.stem), path.name


def test_an_example_belongs_to_the_longest_name():
    assert owner(Path("openai_agents.py")) == "openai-agents"
    assert owner(Path("openai_loop.py")) == "openai"
    assert owner(Path("agent.py")) == ""


@pytest.mark.processes
def test_the_main_environment_collects_no_test_of_an_sdk():
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "tests/adapters"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout

    files = {Path(line.partition("::")[0]).name for line in listed.splitlines() if "::" in line}
    assert "test_adapters_plain.py" in files
    assert files.isdisjoint(entry.tests.name for entry in environments().values())


def test_the_environment_of_an_sdk_collects_its_own_test_whether_the_sdk_is_there_or_not():
    for entry in environments().values():
        left_out = foreign_tests(entry.venv)

        assert entry.tests not in left_out
        assert len(left_out) == len(environments()) - 1


def test_uv_asks_where_pip_asks(tmp_path: Path):
    here, nowhere = tmp_path.as_uri(), (tmp_path / "nowhere").as_uri()
    config = (
        "global.index-url='https://example.org/simple'\n"
        f"global.extra-index-url='{here} {nowhere} https://example.com/simple'\n"
        f"global.find-links='{tmp_path} {tmp_path / 'nowhere'}'\n"
        "global.cert='/etc/some.crt'\n"
        ":env:.default-timeout='180'\n"
    )

    assert uv_variables(config) == {
        "UV_DEFAULT_INDEX": "https://example.org/simple",
        "UV_INDEX": f"{here} https://example.com/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": str(tmp_path),
        "SSL_CERT_FILE": "/etc/some.crt",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_uv_is_left_alone_where_pip_has_no_configuration():
    assert uv_variables("") == {}


def test_the_table_in_the_docs_comes_from_the_report():
    page = f"# Adapters\n\n{runner.BEGIN}\nold\n{runner.END}\n\nMore.\n"
    facts = {
        "environment": "some-sdk",
        "adapter": "some_sdk",
        "sdk": {"some-sdk": "1.2.3"},
        "python": "3.11.7",
        "mcp": None,
        "modes": ["native (openai-chat)"],
        "checks": ["async", "contract"],
        "passed": True,
    }

    assert runner.with_table(page, [facts]) == (
        f"# Adapters\n\n{runner.BEGIN}\n"
        "| Adapter | SDK | Mode | Python | mcp | Contract |\n|---|---|---|---|---|---|\n"
        "| `some_sdk` | some-sdk 1.2.3 | native (openai-chat) | 3.11.7 | none | async, contract |\n"
        f"{runner.END}\n\nMore.\n"
    )


def test_the_documents_call_modes_by_their_names():
    page = runner.PAGE.read_text(encoding="utf-8")
    table = page.partition(runner.BEGIN)[2].partition(runner.END)[0]
    cells = [line.split(" | ")[2] for line in table.strip().splitlines()[2:]]
    modes = {mode.partition(" ")[0] for cell in cells for mode in cell.split(", ")}

    assert modes - {"none"} == {str(mode) for mode in Mode}


def test_the_type_checker_sees_the_files_of_one_environment_with_its_packages():
    entry = environments()["openai"]

    settings = runner.checker_settings(entry)

    assert settings["include"] == [str(path) for path in entry.files]
    assert (settings["venvPath"], settings["venv"]) == (str(entry.venv.parent), "openai")
    assert settings["typeCheckingMode"] == "strict"


def test_an_unknown_environment_is_refused_with_those_that_exist(
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(SystemExit):
        runner.main(["test", "nothing"])

    assert "there is no environment 'nothing'; there are agent-framework" in capsys.readouterr().err
