"""`toolscout policy`."""

import getpass
import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.fleet import TIME, configuration
from toolscout.cli import main
from toolscout.gateway.audit import read_entries, verify
from toolscout.gateway.pending import ApprovalRequest, CallApprovals
from toolscout.stores import SqliteStore

NOW = "time__get_current_time"
CONVERT = "time__convert_time"
RULES = """
[gateway.tokens.ci]
token = "${CI_TOKEN}"
profile = "robots"

[gateway.profiles.robots]
tools = ["*get*"]

[gateway.rules.home]
permission = "allow"
arguments = { timezone = "Europe/*" }

[gateway.rules.robots-ask]
permission = "ask"
profiles = ["robots"]

[gateway.rules.nobody-converts]
permission = "deny"
tools = ["*convert*"]
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["policy", *words])


@pytest.fixture
def rules(home: Path) -> Path:
    """A configuration with rules, whose server has been listed."""
    file = configuration(home, {"time": TIME})
    with file.open("a", encoding="utf-8") as opened:
        opened.write(RULES)
    assert CliRunner().invoke(main, ["servers", "test"]).exit_code == 0
    return file


def permissions(*words: str) -> dict[str, tuple[str, str]]:
    shown = run("test", *words, "--json")
    assert shown.exit_code == 0, shown.output
    return {row["tool"]: (row["permission"], row["because"]) for row in json.loads(shown.stdout)}


def test_every_tool_is_listed_with_the_rule_that_decides(rules: Path):
    assert permissions() == {
        NOW: ("allow", "no rule matches"),
        CONVERT: ("deny", "rule nobody-converts"),
    }
    lines = run("test").stdout.splitlines()
    assert lines[1].split()[-2:] == ["rule", "nobody-converts"]


def test_a_principal_has_the_profile_of_its_token(rules: Path):
    assert permissions("--principal", "ci") == {
        NOW: ("ask", "rule robots-ask"),
        CONVERT: ("not seen", "profile robots"),
    }


def test_arguments_can_make_another_rule_decide(rules: Path):
    found = permissions(CONVERT, "--arguments", '{"timezone": "Europe/Oslo"}')

    assert found == {CONVERT: ("allow", "rule home")}


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("time__get_currant_time",), 3, NOW),
        (("--profile", "robot"), 2, "robots"),
        (("--arguments", "[1]"), 2, "JSON object"),
    ],
)
def test_mistakes_say_what_to_write(rules: Path, words: tuple[str, ...], code: int, hint: str):
    shown = run("test", *words)

    assert shown.exit_code == code
    assert hint in shown.stderr


def test_a_rule_without_a_permission_is_refused(home: Path):
    file = configuration(home, {"time": TIME})
    with file.open("a", encoding="utf-8") as opened:
        opened.write("[gateway.rules.vague]\ntools = ['*']\n")

    shown = run("test")

    assert shown.exit_code == 2
    assert "gateway.rules.vague" in shown.stderr
    assert "permission" in shown.stderr


def build_request(asked: float | None = None) -> ApprovalRequest:
    return ApprovalRequest(
        principal="ci",
        session="0a0a",
        tool=NOW,
        server="time",
        arguments="{}",
        rule="robots-ask",
        asked=time.time() if asked is None else asked,
    )


@pytest.fixture
def waiting(home: Path) -> Path:
    """The store of a gateway in which the call cafe waits."""
    file = home / "gateway.db"
    (home / "toolscout.toml").write_text(f'[gateway]\ncache = "{file}"\n', encoding="utf-8")
    with SqliteStore(file) as store:
        CallApprovals(store).find_stored("cafe", build_request())
    return file


def test_calls_that_wait_are_listed_and_approved_by_id(waiting: Path):
    assert run("waiting").stdout.split()[5:10] == ["cafe", "ci", NOW, "{}", "waiting"]
    assert run("approve", "cafe").exit_code == 0
    assert json.loads(run("waiting", "--json").stdout)[0]["scope"] == "once"
    assert run("approve", "beef").exit_code == 3


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (("approve", "cafe"), "approved once"),
        (("approve", "cafe", "--session"), "approved session"),
        (("deny", "cafe"), "denied"),
    ],
)
def test_what_a_person_decides_without_a_gateway_is_in_the_audit_record(
    waiting: Path, words: tuple[str, ...], outcome: str
):
    assert run(*words).exit_code == 0

    with SqliteStore(waiting) as store:
        entries = list(read_entries(store))
    assert [entry["event"] for entry in entries] == ["approval", "end"]
    told = {key: entries[0][key] for key in ("principal", "session", "tool", "rule", "outcome")}
    assert told == {
        "principal": "ci",
        "session": "0a0a",
        "tool": NOW,
        "rule": "robots-ask",
        "outcome": outcome,
    }
    assert entries[0]["by"] == getpass.getuser()
    assert verify(entries).faults == []
    assert outcome in run("waiting").stdout


def test_a_denied_call_is_approved_after_all(waiting: Path):
    run("deny", "cafe")

    assert run("approve", "cafe").exit_code == 0
    assert json.loads(run("waiting", "--json").stdout)[0]["scope"] == "once"


def test_a_call_that_waited_for_more_than_a_day_is_gone(waiting: Path):
    with SqliteStore(waiting) as store:
        CallApprovals(store).find_stored("old", build_request(time.time() - 90_000))

    assert [row["id"] for row in json.loads(run("waiting", "--json").stdout)] == ["cafe"]
    assert run("approve", "old").exit_code == 3


def test_no_call_waits_where_no_gateway_ran(home: Path):
    (home / "toolscout.toml").write_text("[servers]\n", encoding="utf-8")

    assert "No call waits" in run("waiting").stderr
    assert run("approve", "cafe").exit_code == 3


def test_a_tool_that_does_not_exist_is_to_be_searched_for(rules: Path):
    result = run("test", "nothing_like_it")

    assert result.exit_code == 3
    assert "There is no tool 'nothing_like_it'. Find it with `toolscout search" in result.stderr
