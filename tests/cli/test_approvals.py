"""`toolscout approvals`, `toolscout lock` and `toolscout serve --locked`."""

import getpass
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolscout.cli import main

SERVER = Path(__file__).parents[1] / "security" / "changing_server.py"
Json = dict[str, Any]


def define(name: str, description: str) -> Json:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


READ, LIST = define("read_note", "Read a note."), define("list_notes", "List notes.")
CHANGED = define("read_note", "Read a note and send it on.")


class Notes:
    """A configured server whose list a test changes."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "toolscout.toml"
        self.lock = folder / "toolscout.lock"
        self.file = folder / "lists.json"
        self.configure()

    def configure(self, **options: str) -> None:
        args = json.dumps([str(SERVER), str(self.file)])
        lines = [f"{key} = {json.dumps(value)}" for key, value in options.items()]
        command = f"command = {json.dumps(sys.executable)}\nargs = {args}"
        text = "\n".join(('[gateway]\ncache = "gateway.db"\n[servers.notes]', command, *lines))
        self.config.write_text(text)

    def offer(self, *tools: Json, instructions: str = "") -> None:
        self.file.write_text(json.dumps({"tools": tools, "instructions": instructions}))
        result = run("servers", "test", "notes")
        assert result.exit_code == 0, result.output


def run(*words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, words, input=answer)


@pytest.fixture
def notes(home: Path) -> Notes:
    server = Notes(home)
    server.offer(READ, LIST)
    return server


def json_lines(text: str) -> list[Json]:
    return [json.loads(line) for line in text.splitlines()]


def find(name: str) -> bool:
    return run("describe", name).exit_code == 0


def test_what_is_held_is_listed_with_its_differences_and_used_once_approved(notes: Notes):
    assert run("approvals").stdout == "Nothing waits for approval.\n"
    notes.offer(CHANGED, LIST, define("erase", "Erase all."), instructions="Obey.")
    assert not find("notes__read_note")

    listed = run("approvals").stdout
    rows = json.loads(run("approvals", "list", "--json").stdout)["held"]
    shown = run("approvals", "show", "notes__read_note").stdout

    for line in ("- Read a note.", "+ Read a note and send it on.", "+ Erase all.", "+ Obey."):
        assert line in listed
    labels = {"notes:about", "notes__erase", "notes__read_note"}
    assert {row["name"] for row in rows} == labels
    assert "notes__read_note has changed (description)" in shown
    assert "Erase" not in shown

    approved = run("approvals", "approve", "notes__read_note", answer="y\n")
    assert approved.exit_code == 0
    assert "+ Read a note and send it on." in approved.stdout
    assert approved.stdout.endswith("Approved notes__read_note.\n")
    assert find("notes__read_note")
    assert not find("notes__erase")
    assert run("approvals", "approve", "notes", "--yes").exit_code == 0
    assert find("notes__erase")
    assert run("approvals").stdout == "Nothing waits for approval.\n"


def test_what_a_person_decides_without_a_gateway_is_in_the_audit_record(notes: Notes):
    notes.offer(CHANGED, define("erase", "Erase all."))
    [erase, read] = json.loads(run("approvals", "list", "--json").stdout)["held"]
    run("approvals", "approve", read["name"], "--yes")
    run("approvals", "reject", erase["name"], "--yes")

    entries = json_lines(run("audit", "--event", "definition", "--json").stdout)

    user = getpass.getuser()
    told = [(row["tool"], row["outcome"], row["by"], row["definition_digest"]) for row in entries]
    assert told == [
        (read["name"], "approved", user, read["digest"]),
        (erase["name"], "rejected", user, erase["digest"]),
    ]
    assert run("audit", "verify").stdout == "4 entries of 2 runs: complete.\n"


def test_nothing_is_approved_without_a_yes(notes: Notes):
    notes.offer(CHANGED, LIST)

    assert "Nothing was changed" in run("approvals", "approve", "--all", answer="n\n").stderr
    assert run("approvals", "approve", "--all").exit_code == 2  # nobody answers
    assert not find("notes__read_note")


def test_what_is_rejected_stays_away_without_being_mentioned(notes: Notes):
    notes.offer(CHANGED, LIST)

    rejected = run("approvals", "reject", "notes__read_note", "--yes")

    assert rejected.stdout == "Rejected notes__read_note.\n"
    assert not find("notes__read_note")
    assert "(rejected)" in run("approvals").stdout
    assert "approval" not in run("servers", "test").stdout


def test_a_name_that_nothing_has_is_refused_with_near_names(notes: Notes):
    notes.offer(CHANGED, LIST)

    result = run("approvals", "approve", "notes__read_nose")

    assert result.exit_code == 3
    assert "Near: notes__read_note." in result.stderr
    assert run("approvals", "approve").exit_code == 2
    assert run("approvals", "approve", "notes", "--all").exit_code == 2


def test_a_test_of_servers_and_the_doctor_mention_what_is_held(notes: Notes):
    notes.offer(CHANGED, LIST)

    tested = run("servers", "test")
    checked = run("doctor", "--start")

    for result in (tested, checked):
        assert "Waits for approval: notes__read_note has changed (description)" in result.stdout
        assert "toolscout approvals" in result.stdout
    assert json.loads(run("servers", "test", "--json").stdout)["servers"][0]["held"] == 1
    assert json.loads(run("servers", "list", "--json").stdout)["servers"][0]["tools"] == 1


def test_a_server_that_denies_changes_cannot_be_approved(notes: Notes):
    notes.configure(changes="deny")
    notes.offer(CHANGED, LIST)

    result = run("approvals", "approve", "notes", "--yes")

    assert result.exit_code == 2
    assert "changes = 'deny'" in result.stderr
    assert not find("notes__read_note")


def test_a_server_that_was_removed_is_new_when_it_is_added_again(notes: Notes):
    notes.offer(CHANGED, LIST)
    run("servers", "remove", "notes")

    notes.configure()
    notes.offer(CHANGED, LIST)

    assert find("notes__read_note")


def test_a_lock_file_is_written_compared_and_the_same_each_time(notes: Notes):
    written = run("lock")
    first = notes.lock.read_text()
    again = run("lock")

    assert written.exit_code == again.exit_code == 0
    assert notes.lock.read_text() == first
    assert "Wrote 2 tools of 1 server" in written.stdout
    assert [line.split()[0] for line in first.splitlines() if " = " in line] == [
        "version",
        "about",
        "list_notes",
        "read_note",
    ]
    assert run("lock", "--check").exit_code == 0


def test_drift_from_a_lock_file_names_server_tool_change_and_remedy(notes: Notes):
    run("lock")
    before = notes.lock.read_text()
    notes.file.write_text(json.dumps({"tools": [CHANGED, define("erase", "Erase all.")]}))

    result = run("lock", "--check")

    assert result.exit_code == 1
    for part in (
        "notes: ",
        "notes__read_note has changed (description)",
        "notes__erase is new",
        "notes__list_notes is gone",
        "Run `toolscout lock`",
    ):
        assert part in result.stderr
    assert notes.lock.read_text() == before


def test_what_waits_for_approval_is_not_locked(notes: Notes):
    notes.offer(CHANGED, LIST)

    result = run("lock")

    assert "Waits for approval: notes__read_note" in result.stderr
    assert "read_note" not in notes.lock.read_text()


def test_a_locked_gateway_needs_a_lock_file_that_fits(notes: Notes):
    missing = run("serve", "--locked")
    run("lock")
    with notes.config.open("a") as file:
        file.write('\n[servers.other]\ncommand = "other"\n')
    other = run("serve", "--locked")

    assert (missing.exit_code, other.exit_code) == (2, 2)
    assert "toolscout lock" in missing.stderr
    assert "other: The lock file does not have this server." in other.stderr
    assert run("serve", "--locked", "--demo").exit_code == 2


def test_serve_reports_drift_and_leaves_the_tool_out(notes: Notes):
    run("lock")
    notes.offer(CHANGED, LIST)
    run("approvals", "approve", "--all", "--yes")
    command = [
        sys.executable,
        "-m",
        "toolscout",
        "serve",
        "--no-daemon",
        "--locked",
        "--mode",
        "direct",
    ]
    client = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    messages: list[Json] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
    ]
    text = "".join(json.dumps(message) + "\n" for message in messages)

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(text)
        process.stdin.flush()
        answers = json_lines("".join(process.stdout.readline() for _ in range(2)))
        process.stdin.close()
        logged = process.stderr.read()

    [listed] = [answer for answer in answers if answer["id"] == 2]
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["notes__list_notes"]
    assert "ERROR" in logged
    assert "notes__read_note has changed. Run `toolscout lock`" in logged
