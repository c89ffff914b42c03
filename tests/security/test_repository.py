"""A repository has files in the folder that a person opens: it must not run or read anything."""

import hashlib
import json
import sys
import tomllib
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


SERVER = {"command": "planted", "args": ["--run"]}


def read_own(repository: Path) -> str:
    """Return the user's configuration, empty if there is none."""
    path = repository.parent / "home" / "toolscout" / "toolscout.toml"
    return path.read_text() if path.exists() else ""


def run_init(*words: str) -> str:
    result = CliRunner().invoke(main, ["init", "--yes", "--no-test", *words])
    assert result.exit_code in (0, 3), result.output
    return result.output + result.stderr


@pytest.mark.parametrize("name", [".mcp.json", "toolscout.toml"])
def test_the_servers_of_a_repository_become_the_users_only_if_asked_for(
    name: str, repository: Path
):
    if name != "toolscout.toml":
        (repository / "toolscout.toml").unlink()
        (repository / name).write_text(json.dumps({"mcpServers": {"planted": SERVER}}))

    told = run_init()
    assert "planted" not in read_own(repository)
    assert "Add --project" in told

    run_init("--project")
    assert "servers.planted" in read_own(repository)


def test_the_users_servers_keep_their_names_before_those_of_a_repository(repository: Path):
    mine = {"mcpServers": {"planted": {"command": "mine"}}}
    (repository.parent / "home").mkdir()
    (repository.parent / "home" / ".cursor").mkdir()
    (repository.parent / "home" / ".cursor" / "mcp.json").write_text(json.dumps(mine))
    (repository / ".mcp.json").write_text(json.dumps({"mcpServers": {"planted": SERVER}}))

    run_init("--project")

    own = tomllib.loads(read_own(repository))
    assert own["servers"]["planted"]["command"] == "mine"


@pytest.mark.parametrize("link", [".mcp.json", ".cursor"])
def test_a_link_in_a_repository_does_not_let_init_write_elsewhere(link: str, repository: Path):
    (repository / "toolscout.toml").unlink()
    outside = repository.parent / "outside"
    outside.mkdir()
    (outside / "mcp.json").write_text(json.dumps({"mcpServers": {"planted": SERVER}}))
    target = outside if link == ".cursor" else outside / "mcp.json"
    (repository / link).symlink_to(target)
    before = (outside / "mcp.json").read_text()

    told = run_init("--project")

    assert (outside / "mcp.json").read_text() == before
    assert [path.name for path in outside.iterdir()] == ["mcp.json"]
    assert "leads out of this folder" in told


def plant_backup(repository: Path) -> Path:
    """Put a file of a client into a repository, with what looks like its backup."""
    (repository / "toolscout.toml").unlink()
    file = repository / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {}}))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    backup = repository / f".mcp.json.toolscout-{digest}.bak"
    backup.write_text(json.dumps({"mcpServers": {"planted": SERVER}}))
    return file


def test_undo_takes_no_backup_that_a_repository_brought(repository: Path):
    file = plant_backup(repository)

    told = run_init("--undo")

    assert "planted" not in file.read_text()
    assert "Add --project" in told


def test_undo_follows_no_link_that_looks_like_a_backup(repository: Path):
    file = plant_backup(repository)
    (backup,) = repository.glob("*.bak")
    backup.rename(repository.parent / "elsewhere")
    backup.symlink_to(repository.parent / "elsewhere")

    run_init("--undo", "--project")

    assert not file.is_symlink()
    assert "planted" not in file.read_text()


def test_undo_restores_the_file_of_a_project_if_asked_for(repository: Path):
    (repository / "toolscout.toml").unlink()
    file = repository / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"planted": SERVER}}))
    before = file.read_text()
    run_init("--project")
    assert file.read_text() != before

    run_init("--undo", "--project")

    assert file.read_text() == before
