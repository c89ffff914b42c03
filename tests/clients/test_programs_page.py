"""`docs/clients.md`: whoever follows it gets a client that starts toolscout, and nothing else."""

import json
import re
import shlex
from pathlib import Path

import pytest

from toolscout.clients.discovery import Machine, find_servers, list_known_files, starts_own
from toolscout.clients.programs import CLIENTS, Client
from toolscout.config.file import import_servers

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
START = ("uvx", "--from", "toolscout[gateway]", "toolscout", "serve")
COMMANDS = ["claude-code", "vscode", "codex", "gemini-cli", "copilot-cli"]
every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_section(client: Client) -> str:
    """Return the part of the page that is about a client."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")
    [found] = [part for part in parts if part.partition("\n")[0] == client.title]
    return found


@every_client
def test_the_entry_for_the_file_of_a_client_starts_toolscout(client: Client, tmp_path: Path):
    machine = Machine(home=tmp_path, platform="linux", env={}, cwd=tmp_path / "project")
    path = Path(client.files[0].format(**machine.find_places()))
    [text] = [text for kind, text in _BLOCK.findall(read_section(client)) if kind != "sh"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")

    [server] = import_servers(path).servers

    assert (server.name, server.command, *server.args) == ("toolscout", *START)
    # So that `toolscout init` does not put toolscout behind itself.
    assert find_servers(list_known_files(machine), machine).found == ()
    assert starts_own(server.command, server.url, server.args)


@every_client
def test_the_page_names_the_file_of_a_client(client: Client):
    [shown] = re.findall(r"^(?:Or in|In) `([^`]+)`:$", read_section(client), re.MULTILINE)

    assert Path(shown).name == Path(client.files[0]).name
    assert "{" not in shown


@every_client
def test_the_command_of_a_client_adds_the_same_entry(client: Client):
    lines = [text for kind, text in _BLOCK.findall(read_section(client)) if kind == "sh"]

    assert bool(lines) == (client.name in COMMANDS)
    for line in lines:
        words = shlex.split(line)
        if client.name == "vscode":
            entry = json.loads(words.pop())
            words += [entry["name"], entry["command"], *entry["args"]]
        assert tuple(words[-len(START) :]) == START
        assert "toolscout" in words[: -len(START)]


def test_the_page_lists_every_client_once():
    titles = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert titles == [client.title for client in CLIENTS]
