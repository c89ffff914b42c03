"""An operator switches servers and tools and changes tools; the configuration file says so."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from console.asking import Asker, Json
from console.fixtures import wait_for_entries
from serving import DEADLINE_SECONDS, TIME, served
from toolscout.config.file import read_config

TEXT = f"""# Servers of the office.
[servers.time]
command = {json.dumps(sys.executable)}  # the one of the project
args = {json.dumps(TIME.args)}
hints = {{ "get_*" = "clock" }}

# Only for Tuesdays.
[servers.later]
command = "later"
disabled = true

# People
[gateway.tokens]
ann = {{ token = "open sesame" }}
bob = {{ token = "swordfish", profile = "some" }}

[gateway.profiles.some]
servers = ["time"]
"""


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asker, Path]]:
    """Ann, who may change everything, before a gateway that reads a file; and the file."""
    path = tmp_path_factory.mktemp("office") / "toolscout.toml"
    path.write_text(TEXT, encoding="utf-8")
    with served(file=path, console=True) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        yield Asker(running.url, "open sesame"), path


@pytest.fixture
def file(office: tuple[Asker, Path]) -> Path:
    return office[1]


@pytest.fixture
def ann(office: tuple[Asker, Path]) -> Asker:
    """Ann, before a gateway that uses the file as it was at first."""
    asker, path = office
    path.write_text(TEXT, encoding="utf-8")
    asker.post("/servers/later/off")  # it is off already, but the gateway reads the file
    return asker


def read_states(asker: Asker) -> dict[str, str]:
    return {row["name"]: row["state"] for row in asker.get("/servers")}


def find_tool(asker: Asker, name: str) -> Json:
    [row] = [row for row in asker.get("/servers/time/tools")["tools"] if row["tool"] == name]
    return row


def test_a_server_is_switched_off_and_on_in_the_file_and_comments_stay(ann: Asker, file: Path):
    assert read_states(ann)["later"] == "off"

    assert ann.post("/servers/time/off")["state"] == "off"

    assert read_states(ann) == {"time": "off", "later": "off"}
    assert (ann.get("/overview")["tools"], ann.get("/overview")["servers"]["off"]) == (0, 2)
    assert [server.disabled for server in read_config(file).servers] == [True, True]
    assert ann.post("/servers/time/on")["state"] != "off"
    assert ann.get("/overview")["tools"] == 2
    assert file.read_text(encoding="utf-8") == TEXT


def test_a_tool_that_is_switched_off_is_gone_but_can_be_switched_on_again(ann: Asker, file: Path):
    ann.post("/servers/time/tools/convert_time", {"enabled": False})

    assert ann.get("/overview")["tools"] == 1
    assert not find_tool(ann, "convert_time")["on"]
    assert not read_config(file).servers[0].tools["convert_time"].enabled
    ann.post("/servers/time/tools/convert_time", {"enabled": True})
    assert ann.get("/overview")["tools"] == 2
    assert file.read_text(encoding="utf-8") == TEXT


def test_a_changed_tool_is_described_found_and_called_as_the_operator_wants(ann: Asker, file: Path):
    changes: Json = {
        "description": "Tell what hour it is elsewhere.",
        "hint": "rendezvous",
        "arguments": {"target_timezone": "Asia/Tokyo"},
    }

    ann.post("/servers/time/tools/convert_time", changes)

    row = find_tool(ann, "convert_time")
    assert {key: row[key] for key in changes} == changes
    tool = ann.get("/tools/time__convert_time")
    assert (tool["description"], tool["hint"]) == (changes["description"], "rendezvous")
    assert "target_timezone" not in tool["input_schema"]["properties"]
    ann.post("/servers/time/tools/convert_time", {"description": "", "hint": "", "arguments": {}})
    assert read_config(file) == read_config(file, TEXT)


def test_what_a_person_writes_meanwhile_is_kept_and_used(ann: Asker, file: Path):
    ann.get("/servers/time/tools")
    written = TEXT.replace("# Only", "# My note\n# Only").replace("clock", "wall clock")
    file.write_text(written, encoding="utf-8")

    ann.post("/servers/time/tools/convert_time", {"enabled": False})

    assert "# My note\n# Only for Tuesdays.\n" in file.read_text(encoding="utf-8")
    assert ann.get("/tools/time__get_current_time")["hint"] == "wall clock"


def test_the_audit_record_says_who_changed_what(ann: Asker):
    began = datetime.now(UTC).isoformat()
    ann.post("/servers/time/stop")
    ann.post("/servers/time/tools/convert_time", {"description": "Convert.", "hint": "zone"})
    ann.post("/servers/time/off")

    keys = ("by", "outcome", "tool", "options")
    entries = wait_for_entries(ann, 3, event="action", server="time", since=began)
    assert [[entry.get(key) for key in keys] for entry in entries] == [
        ["ann", "switched off", None, None],
        ["ann", "changed", "convert_time", ["description", "hint"]],
        ["ann", "stopped", None, None],
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, (400, "bad_change")),
        ({"command": "sh"}, (400, "bad_change")),
        ({"enabled": "no"}, (400, "bad_change")),
        ({"hidden": ["no such"]}, (400, "bad_change")),
        ({"arguments": {"target_timezone": "${command:touch /tmp/x}"}}, (403, "reference")),
        ({"arguments": {"target_timezone": ["${HOME}"]}}, (403, "reference")),
    ],
)
def test_a_change_that_cannot_be_used_leaves_the_file_as_it_is(
    ann: Asker, file: Path, changes: Json, problem: tuple[int, str]
):
    path = "/servers/time/tools/convert_time"

    assert ann.problem(path, "POST", changes) == problem

    assert file.read_text(encoding="utf-8") == TEXT


def test_a_hint_of_a_pattern_is_changed_in_the_file_only(ann: Asker, file: Path):
    path = "/servers/time/tools/get_current_time"

    assert ann.problem(path, "POST", {"hint": "zone"}) == (409, "pattern")
    file.write_text(TEXT.replace("hints =", 'deny = ["get_*"]\nhints ='), encoding="utf-8")
    ann.post("/servers/time/tools/convert_time", {"enabled": False})
    assert ann.problem(path, "POST", {"enabled": True}) == (409, "pattern")
    assert "deny" in find_tool(ann, "get_current_time")["problem"]


def test_a_token_with_a_profile_changes_nothing(ann: Asker, file: Path):
    bob = Asker(ann.url, "swordfish")

    assert not bob.get("/overview")["capabilities"]["edit"]
    assert bob.problem("/servers/time/off", "POST") == (403, "limited")
    assert bob.problem("/servers/time/tools") == (403, "limited")
    refused = bob.problem("/servers/time/tools/convert_time", "POST", {"enabled": False})
    assert refused == (403, "limited")
    assert file.read_text(encoding="utf-8") == TEXT


def test_a_file_of_another_program_is_not_written_and_the_page_says_so(tmp_path: Path):
    server = {"command": sys.executable, "args": TIME.args}
    text = json.dumps({"mcpServers": {"time": server}})
    file = tmp_path / "mcp.json"
    file.write_text(text, encoding="utf-8")
    with served(file=file, console=True) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        asker = Asker(running.url)

        assert "belongs to another program" in asker.get("/servers/time/tools")["problem"]
        assert asker.problem("/servers/time/off", "POST")[0] == 400

    assert file.read_text(encoding="utf-8") == text


def test_changes_that_a_gateway_would_use_only_after_a_restart_are_refused(
    postgres_url: str, tmp_path: Path
):
    path = tmp_path / "toolscout.toml"
    gateway = f'[gateway]\nstore = "{postgres_url}"\nindex = "postgres"\n\n[gateway.tokens]'
    text = TEXT.replace("[gateway.tokens]", gateway)
    path.write_text(text, encoding="utf-8")
    with served(file=path, console=True) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        ann = Asker(running.url, "open sesame")

        refused = ann.problem("/servers/time/off", "POST")
        changed = ann.problem("/servers/time/tools/get_current_time", "POST", {"enabled": False})

        assert refused == changed == (409, "needs_restart")
        assert "restart the gateways" in ann.get("/servers/time/tools")["problem"]
        assert path.read_text(encoding="utf-8") == text
        assert ann.post("/servers/time/stop")["state"] == "stopped"
