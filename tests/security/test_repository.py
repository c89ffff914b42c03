"""A repository has files in the folder that a person opens: it must not run or read anything."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolscout.cli import main

NOTICE = "Not using ./toolscout.toml, which may come with a repository"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose configuration names a server that leaves a file behind when it runs."""
    for name in ("HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    folder = tmp_path / "repository"
    folder.mkdir()
    planted = f"open({json.dumps(str(folder / 'ran'))}, 'w')"
    command = f"command = {json.dumps(sys.executable)}\nargs = {json.dumps(['-c', planted])}\n"
    (folder / "toolscout.toml").write_text(f"[servers.planted]\n{command}")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    "words",
    [["serve"], ["servers", "test"], ["servers", "test", "planted"], ["call", "planted__x"]],
    ids=" ".join,
)
def test_the_configuration_of_a_repository_is_not_run_unasked(words: list[str], repository: Path):
    result = CliRunner().invoke(main, words)

    assert result.exit_code == 2
    assert NOTICE in result.stderr
    assert not (repository / "ran").exists()


def test_a_search_in_a_repository_does_not_use_its_configuration(repository: Path):
    result = CliRunner().invoke(main, ["search", "open a pull request"])

    assert result.exit_code == 0
    assert NOTICE in result.stderr
    assert "Using the demo catalogue" in result.stderr


def test_a_configuration_that_a_person_names_is_used(repository: Path):
    CliRunner().invoke(main, ["servers", "test", "--config", "toolscout.toml"])

    assert (repository / "ran").exists()
