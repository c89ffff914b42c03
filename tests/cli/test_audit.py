"""`toolscout audit`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolscout.cli import main
from toolscout.gateway.audit import AuditRecord
from toolscout.sessions.events import Called, Searched
from toolscout.stores import SqliteStore


@pytest.fixture
def store(home: Path) -> Path:
    """The store of a gateway that was used: two calls, a refusal and a search."""
    file = home / "gateway.db"
    (home / "toolscout.toml").write_text(f'[gateway]\ncache = "{file}"\n', encoding="utf-8")
    kept = SqliteStore(file)
    record = AuditRecord(kept, file=home / "audit.jsonl")
    record.on_event(Called(tool="mail__send", server="mail", effect="write", arguments={"to": "a"}))
    record.on_event(Called(tool="mail__read", server="mail", code="tool_error"))
    record.on_event(Called(tool="disk__wipe", server="disk", code="not_allowed", made=False))
    record.on_event(Searched(form="words", hits=3))
    record.close()
    kept.close()
    return file


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["audit", *words])


def test_the_entries_are_listed_oldest_first(store: Path):
    lines = run().stdout.splitlines()

    assert [line.split()[4] for line in lines[1:5]] == [
        *("mail__send", "mail__read", "disk__wipe", "words")
    ]
    assert "not_allowed" in lines[3]


@pytest.mark.parametrize(
    ("options", "tools"),
    [
        (("--event", "refusal"), ["disk__wipe"]),
        (("--tool", "mail__*"), ["mail__send", "mail__read"]),
        (("--server", "mail", "--outcome", "ok"), ["mail__send"]),
        (("--principal", "anonymous", "--limit", "2"), ["disk__wipe", None]),
        (("--since", "1h", "--event", "call"), ["mail__send", "mail__read"]),
    ],
)
def test_options_choose_entries(store: Path, options: tuple[str, ...], tools: list[str | None]):
    listed = [json.loads(line) for line in run(*options, "--json").stdout.splitlines()]

    assert [entry.get("tool") for entry in listed] == tools


def test_nothing_that_fits_is_exit_code_3(store: Path):
    assert run("--since", "2999-01-01").exit_code == 3
    assert run("--tool", "mail").exit_code == 3


def test_a_time_that_cannot_be_read_says_how_to_write_one(store: Path):
    shown = run("--since", "yesterday")

    assert shown.exit_code == 2
    assert "30m" in shown.stderr


def test_a_complete_record_verifies(store: Path, home: Path):
    assert run("verify").stdout == "5 entries of 1 run: complete.\n"
    assert run("verify", "--file", str(home / "audit.jsonl")).exit_code == 0


def test_a_line_that_was_removed_from_the_file_is_exit_code_1(store: Path, home: Path):
    file = home / "audit.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[0], *lines[2:]]))

    shown = run("verify", "--file", str(file))

    assert shown.exit_code == 1
    assert "Entries are missing after number 1" in shown.stdout
    assert json.loads(run("verify", "--file", str(file), "--json").stdout)["faults"]


def test_a_gateway_that_never_ran_has_no_entries(home: Path):
    (home / "toolscout.toml").write_text("[servers]\n", encoding="utf-8")

    assert run().exit_code == 3
    assert run("verify").stdout == "0 entries of 0 runs: complete.\n"
