"""`toolscout describe`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.fleet import TIME, configuration
from toolscout.cli import main

pytestmark = pytest.mark.usefixtures("home")

TOOLS = [
    {
        "server": "files",
        "name": "copy",
        "title": "Copy a file",
        "description": "Copy a file [bold]elsewhere[/bold].\nKeeps its \x9b31mtimes.",
        "effect": "destructive",
        "input_schema": {
            "type": "object",
            "properties": {
                "how": {
                    "type": "object",
                    "properties": {"mode": {"enum": ["fast", "safe"], "description": "Pace."}},
                },
                "to": {"type": "string", "description": "Where to."},
            },
            "required": ["to"],
        },
    },
    {"server": "mail", "name": "copy", "description": "Copy a message into another folder."},
]
SHOWN = """\
files__copy  Copy a file
tool of files, effect: destructive, 81 tokens (estimated)

Copy a file [bold]elsewhere[/bold].
Keeps its 31mtimes.

parameter  type              meaning
to         string  required  Where to.
how        object  optional
  mode     string  optional  Pace. One of: fast | safe
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["describe", *map(str, arguments)])


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS))
    return file


@pytest.mark.requirement("R52")
def test_a_tool_is_described_in_full_without_what_could_steer_a_terminal(tools: Path):
    """R52"""
    result = run("files__copy", "--catalog", tools)

    assert (result.exit_code, result.stdout) == (0, SHOWN)


def test_a_short_name_shows_every_tool_that_it_may_mean(tools: Path):
    shown = run("copy", "--catalog", tools).stdout

    assert "files__copy" in shown
    assert "\nmail__copy\n" in shown


def test_json_is_one_object_for_each_tool_and_holds_the_whole_definition(tools: Path):
    lines = run("mail__copy", "files__copy", "--catalog", tools, "--json").stdout.splitlines()

    mail, files = map(json.loads, lines)
    assert mail["effect"] == "unknown"
    assert files["exposed_name"] == "files__copy"
    assert files["input_schema"] == TOOLS[0]["input_schema"]
    assert files["signature"] == "files__copy(to*, how?: {mode?: fast|safe})"
    assert files["tokens"] > 20


def test_an_unknown_tool_is_exit_code_3_with_near_names():
    result = run("create_pul_request")

    assert result.exit_code == 3
    assert result.stdout == ""
    assert "There is no tool 'create_pul_request'. Near: github__create_pull_request" in (
        result.stderr
    )


def test_without_a_configuration_the_demo_catalogue_is_used_and_named():
    result = run("github__create_issue")

    assert result.exit_code == 0
    assert result.stderr == "Using the demo catalogue; name your own with --catalog or --config.\n"


def test_catalogue_and_configuration_exclude_each_other(tools: Path):
    result = run("copy", "--catalog", tools, "--config", tools)

    assert result.exit_code == 2
    assert "Use either --catalog or --config, not both." in result.stderr


def test_tools_of_configured_servers_are_known_once_they_were_asked(home: Path):
    config = configuration(home, {"time": TIME})
    before = run("time__get_current_time", "--config", config)
    CliRunner().invoke(main, ["servers", "test", "--config", str(config)])

    after = run("time__get_current_time")

    assert before.exit_code == 3
    assert "The tools of time are not known yet. Run `toolscout servers test`" in before.stderr
    assert after.exit_code == 0
    assert after.stdout.startswith("time__get_current_time")
    assert after.stderr == f"Using 2 tools of 1 server in {config}.\n"
