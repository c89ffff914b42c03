"""`docs/commands.md`: it has every command, and its examples work."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gateway.fleet import TIME, configuration
from toolscout.cli import main
from toolscout.demo import load_demo_tools
from toolscout.files import write_tools
from toolscout.lint.rules import RULES
from toolscout.sessions.usage import UsageLog
from toolscout.stores import SqliteStore

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = [line for block in BLOCKS for line in block.splitlines()]
ELSEWHERE = ("serve", "status", "stop", "logs", "console", "init", "doctor", "hook")
"""Commands that run on, or that look at the whole machine; their own tests run them."""
QUERIES = [
    {"query": "open a pull request", "tool": "github__create_pull_request", "times": 3},
    {"query": "list the files of a folder", "tool": "filesystem__list_directory"},
]

DATABASE = {
    "name": "com.example/database",
    "description": "Query a database.",
    "version": "1.0.0",
    "remotes": [{"type": "streamable-http", "url": "https://database.example/mcp"}],
}


def test_every_command_has_a_section():
    sections = set(re.findall(r"^### (.+)$", PAGE, re.MULTILINE))

    assert set(every_command()) == sections


def test_every_rule_of_lint_is_in_the_table():
    for rule in RULES:
        code = rule.__name__.removeprefix("find_").replace("_", "-")
        assert f"| `{code}` |" in PAGE


def test_the_examples_work_in_the_order_of_the_page(home: Path):
    configuration(home, {"time": TIME})
    write_tools(home / "tools.json", load_demo_tools())
    (home / "my-queries").mkdir()
    (home / "my-queries" / "tools.jsonl").write_text('{"id": "1", "name": "send_mail"}')
    (home / "my-queries" / "queries.jsonl").write_text(
        '{"id": "a", "query": "send a mail", "relevant": ["1"]}'
    )
    (home / "registry.json").write_text(json.dumps({"servers": [{"server": DATABASE}]}))
    (home / "calls.jsonl").write_text("\n".join(map(json.dumps, QUERIES)))
    with SqliteStore(home / "gateway.db") as store:
        UsageLog(store, lambda: 1.0).add("c", "what time is it", "time__now", "ok")

    for line in EXAMPLES:
        words = shlex.split(line)[1:]
        if words[0] not in ELSEWHERE:
            result = CliRunner().invoke(main, words)
            assert result.exit_code == 0, f"{line}\n{result.output}"
            assert "--json" not in words or json.loads(result.stdout.splitlines()[0])


def every_command() -> Iterator[str]:
    """Yield the names of all commands; of `catalog`, those of its commands."""
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if name == "catalog" and isinstance(command, click.Group):
            yield from (f"catalog {inner}" for inner in command.list_commands(context))
        else:
            yield name


@pytest.mark.parametrize("line", [line for line in EXAMPLES if line.split()[1] in ELSEWHERE])
def test_examples_that_are_not_run_name_commands_that_exist(line: str):
    assert main.get_command(click.Context(main), shlex.split(line)[1]) is not None
