"""Claude Code's permission rules hold for the tools behind toolscout."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.fleet import TIME, configuration
from toolscout.cli import main

NOW = "time__get_current_time"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user of Claude Code with a server behind toolscout, in the folder of a project."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def set_rules(file: Path, **rules: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"permissions": rules}), encoding="utf-8")


def run_hook(event: object) -> Result:
    return CliRunner().invoke(main, ["hook"], input=json.dumps(event))


def decide(tool: str = "mcp__toolscout__tool_call", **given: Any) -> str:
    """Return the hook's decision, empty if it leaves it to Claude Code."""
    done = run_hook({"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": given})
    assert done.exit_code == 0, done.output
    if not done.stdout:
        return ""
    said = json.loads(done.stdout)["hookSpecificOutput"]
    assert said["hookEventName"] == "PreToolUse"
    assert said["permissionDecisionReason"]
    return said["permissionDecision"]


@pytest.mark.parametrize(
    ("rules", "decision"),
    [
        ({"allow": ["mcp__time"]}, "allow"),
        ({"allow": ["mcp__time__*"]}, "allow"),
        ({"allow": [f"mcp__{NOW}"]}, "allow"),
        ({"allow": ["mcp__time__convert_time", "mcp__tim", "Bash"]}, ""),
        ({"allow": ["mcp__*", "mcp__t*__get_current_time"]}, ""),
        ({"deny": ["mcp__*"], "allow": ["mcp__time"]}, "deny"),
        ({"ask": ["mcp__time"], "allow": [f"mcp__{NOW}"]}, "ask"),
        ({"deny": [f"mcp__{NOW}(x)"]}, ""),
        ({}, ""),
    ],
)
def test_rules_about_the_real_tool_decide(home: Path, rules: dict[str, list[str]], decision: str):
    set_rules(home / ".claude/settings.json", **rules)

    assert decide(name=NOW, arguments={}) == decision


OTHER = "time__convert_time"


@pytest.mark.parametrize(
    ("calls", "decision"),
    [
        ([{"name": OTHER}, {"name": OTHER}], "allow"),
        ([{"name": OTHER}, {"name": NOW}], "deny"),
        ([{"name": NOW}, {"name": OTHER}], "deny"),
        ([{"name": OTHER}, {"tool_name": NOW}], "deny"),
        (json.dumps([{"name": OTHER}, {"tool": NOW}]), "deny"),
        ({"name": NOW}, "deny"),
        ([{"name": OTHER}, {"name": "git__status"}], "ask"),
        ([{"name": OTHER}, {"name": "result_0123456789"}], "allow"),
        ([{"name": "result_0123456789"}], ""),
        ([*({"name": OTHER} for _ in range(9)), {"name": NOW}], "deny"),
    ],
)
def test_the_strictest_rule_decides_about_several_calls(home: Path, calls: object, decision: str):
    folder = home / "config/toolscout"
    folder.mkdir(parents=True)
    configuration(folder, {"time": TIME})
    assert CliRunner().invoke(main, ["servers", "test"]).exit_code == 0
    set_rules(home / ".claude/settings.json", deny=[f"mcp__{NOW}"], allow=["mcp__time"])

    assert decide(calls=calls) == decision
    assert decide("mcp__toolscout__tool_read", calls=calls) == decision


def test_the_strictest_of_all_files_wins(home: Path):
    set_rules(home / ".claude/settings.json", allow=["mcp__time"])
    set_rules(home / "project/.claude/settings.json", deny=[f"mcp__{NOW}"])

    assert decide(name=NOW) == "deny"
    assert decide(name="time__convert_time") == "allow"


@pytest.mark.parametrize(
    "spelling", ["get_current_time", "time.get_current_time", "MCP__time__get_current_time", NOW]
)
def test_another_spelling_of_a_name_is_the_same_tool(home: Path, spelling: str):
    folder = home / "config/toolscout"
    folder.mkdir(parents=True)
    configuration(folder, {"time": TIME})
    assert CliRunner().invoke(main, ["servers", "test"]).exit_code == 0
    set_rules(home / ".claude/settings.json", deny=[f"mcp__{NOW}"])

    assert decide(name=spelling) == "deny"


@pytest.mark.parametrize(
    "given",
    [
        {"tool": NOW},
        {"tool_name": NOW},
        {"name": None, "tool": NOW},
        {"name": NOW, "tool": "time__convert_time"},
        json.dumps({"name": NOW}),
    ],
)
def test_a_call_is_read_as_the_gateway_reads_it(home: Path, given: object):
    set_rules(home / ".claude/settings.json", deny=[f"mcp__{NOW}"])
    call = {"tool_name": "mcp__toolscout__tool_call", "tool_input": given}

    assert '"deny"' in run_hook(call).stdout


def test_a_name_that_means_no_known_tool_is_asked_about_if_something_is_forbidden(home: Path):
    assert decide(name="get_current_time") == ""
    set_rules(home / ".claude/settings.json", deny=[f"mcp__{NOW}"])

    assert decide(name="get_current_time") == "ask"
    assert decide(name="result_0123456789") == ""


def test_a_pinned_tool_and_the_variants_of_a_call_are_covered_and_searches_are_not(home: Path):
    set_rules(home / ".claude/settings.json", deny=["mcp__time"])

    assert decide(f"mcp__toolscout__{NOW}") == "deny"
    assert decide("mcp__toolscout__tool_destroy", name=NOW) == "deny"
    assert decide("mcp__toolscout__tool_search", queries=["time"]) == ""
    assert decide("Bash", command="ls") == ""


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_what_cannot_be_read_blocks_the_call(home: Path, text: str):
    assert CliRunner().invoke(main, ["hook"], input=text).exit_code == 2
    set_rules(home / ".claude/settings.json", allow=["mcp__time"])
    (home / "project/.claude").mkdir()
    (home / "project/.claude/settings.json").write_text("{")
    call = {"tool_name": "mcp__toolscout__tool_call", "tool_input": {"name": NOW}}
    assert run_hook(call).exit_code == 2


def test_the_hook_is_installed_once_and_taken_out_again(home: Path):
    file = home / ".claude/settings.json"
    other = {"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}
    before = {"theme": "dark", "hooks": {"PreToolUse": [other]}}
    file.parent.mkdir()
    file.write_text(json.dumps(before), encoding="utf-8")

    for _ in range(2):
        assert CliRunner().invoke(main, ["hook", "--install"]).exit_code == 0

    groups = json.loads(file.read_text())["hooks"]["PreToolUse"]
    assert groups[0] == other
    assert [group["matcher"] for group in groups[1:]] == ["mcp__toolscout__.*"]
    assert CliRunner().invoke(main, ["hook", "--uninstall"]).exit_code == 0
    assert json.loads(file.read_text()) == before


def test_init_installs_the_hook_on_request_and_undoes_it(home: Path):
    servers = {"time": {"command": sys.executable, "args": list(TIME)}}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    file = home / ".claude/settings.json"

    done = CliRunner().invoke(main, ["init", "--yes", "--no-test", "--hook"])
    assert done.exit_code == 0, done.output
    assert "hook" in file.read_text()

    done = CliRunner().invoke(main, ["init", "--undo", "--yes", "--hook"])
    assert done.exit_code == 0, done.output
    assert json.loads(file.read_text()) == {}
