"""`toolscout` without a command: what it says depends on what is on the machine."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from toolscout.cli import COMMANDS, main
from toolscout.cli.init import ABOUT

MOST_LINES = 10
CURSOR = Path("home/.cursor/mcp.json")
CLAUDE = Path("home/.claude.json")
DAEMON: dict[str, Any] = {"pid": 4321, "stop_seconds": 5.0, "clients": [{}, {}]}


def first_steps() -> str:
    """Return what is printed, of which some things hold everywhere."""
    result = CliRunner().invoke(main, [])
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == ABOUT
    assert len(lines) <= MOST_LINES
    assert set(named(result.stdout)) <= set(COMMANDS)
    return result.stdout


def named(text: str) -> list[str]:
    return re.findall(r"^  toolscout (\w+)", text, re.MULTILINE)


def write_client(path: Path, servers: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


def write_own(home: Path) -> Path:
    """Configure one server."""
    file = home / "toolscout.toml"
    file.write_text("[servers.time]\ncommand = 'uvx'\nargs = ['mcp-server-time']\n")
    return file


@pytest.mark.usefixtures("home")
def test_a_machine_without_clients_is_told_to_try_it():
    text = first_steps()

    assert "No MCP client with servers was found here." in text
    assert named(text) == ["try", "search", "servers"]


def test_servers_of_clients_are_counted_and_init_is_next(home: Path):
    write_client(home / CURSOR, {"a": {"command": "one"}, "b": {"command": "two"}})
    write_client(home / CLAUDE, {"c": {"command": "three"}})

    text = first_steps()

    assert "3 servers of your MCP clients (Claude Code, Cursor) are not behind toolscout" in text
    assert named(text) == ["init", "init", "try"]
    assert "--dry-run" in text


def test_a_configuration_is_named_with_what_clients_have_beside_it(home: Path):
    file = write_own(home)
    own = {"toolscout": {"command": "toolscout", "args": ["serve"]}}
    write_client(home / CLAUDE, own)
    text = first_steps()
    assert f"Your configuration {file} has 1 server." in text
    assert named(text) == ["doctor", "search", "console"]

    write_client(home / CURSOR, {"a": {"command": "one"}})

    text = first_steps()
    assert "1 server of your MCP clients (Cursor) is not behind toolscout yet." in text
    assert named(text) == ["init", "doctor", "search", "console"]


def test_a_configuration_that_no_client_uses_is_to_be_connected(home: Path):
    write_own(home)

    text = first_steps()

    assert "No MCP client that toolscout knows starts `toolscout serve` yet." in text
    assert "claude mcp add --scope user toolscout -- toolscout serve" in text


def test_a_running_gateway_is_mentioned_with_its_clients(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    config = str(write_own(home))
    monkeypatch.setattr("toolscout.cli.init.list_daemons", lambda: [DAEMON | {"config": config}])

    text = first_steps()

    assert "Your gateway runs in the background, with 1 server for 2 clients." in text
    assert named(text) == ["status", "console", "search"]


def test_a_gateway_of_another_configuration_does_not_count(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    other = DAEMON | {"config": str(home / "other.toml")}
    monkeypatch.setattr("toolscout.cli.init.list_daemons", lambda: [other])

    assert "in the background" not in first_steps()


def test_a_configuration_that_cannot_be_read_leads_to_the_doctor(home: Path):
    (home / "toolscout.toml").write_text("[servers")

    text = first_steps()

    assert "cannot be read" in text
    assert named(text)[0] == "doctor"


@pytest.mark.usefixtures("home")
def test_what_uvx_has_only_tried_is_to_be_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "prefix", str(Path("cache/uv/archive-v0/abc")))

    assert "uv tool install 'toolscout[gateway]'" in first_steps()


@pytest.mark.usefixtures("home")
def test_without_the_gateway_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    def find_nothing(name: str) -> None:
        return None

    monkeypatch.setattr("toolscout.cli.init.find_spec", find_nothing)

    assert "pip install 'toolscout[gateway]'" in first_steps()


@pytest.mark.processes
def test_a_reader_that_goes_away_is_no_error(home: Path):
    """As with `toolscout | true`."""
    command = [sys.executable, "-m", "toolscout"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()

    assert errors == b""


def test_servers_that_a_client_starts_through_toolscout_are_not_counted(home: Path):
    write_client(home / CURSOR, {"toolscout": {"command": "toolscout", "args": ["serve"]}})

    assert "No MCP client with servers" in first_steps()


def test_the_same_server_in_both_places_is_not_counted_again(home: Path):
    write_own(home)
    write_client(home / CURSOR, {"time": {"command": "uvx", "args": ["mcp-server-time"]}})

    assert "not behind toolscout" not in first_steps()
