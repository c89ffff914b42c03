"""`toolscout catalog lint`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolscout.cli import main

pytestmark = pytest.mark.usefixtures("home")

TOOLS = [
    {"server": "s", "name": "run", "description": "Paint walls in bright colours."},
    {
        "server": "s",
        "name": "sheep.count",
        "description": "Count sheep at night.",
        "effect": "read",
    },
    {"server": "s", "name": "sheep/count", "description": "Feed fish in a tank.", "effect": "read"},
]
SHOWN = """\
s__run: warning vague-name: The name 'run' does not say what it is about. \
Name it with a verb and its object, such as 'create_invoice'.
s__sheep_count: error name-taken: 'sheep/count' of server 's' would be 's__sheep_count', \
the name of 'sheep.count' of server 's'. It cannot be catalogued. Rename the tool or its server.
2 tools: 1 error, 1 warning, 1 info.
Less severe findings not shown: 1. Add --show info to see them.
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["catalog", "lint", *map(str, arguments)])


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS))
    return file


def test_findings_are_one_line_each_in_a_pipe(tools: Path):
    result = run("--catalog", tools)

    assert (result.exit_code, result.stdout) == (1, SHOWN)


def test_the_mildest_finding_to_show_can_be_chosen(tools: Path):
    assert "unknown-effect" in run("--catalog", tools, "--show", "info").stdout
    assert "vague-name" not in run("--catalog", tools, "--show", "error").stdout


def test_json_holds_all_findings_with_code_severity_message_and_remedy(tools: Path):
    told = json.loads(run("--catalog", tools, "--json").stdout)

    assert (told["tools"], told["tried"]) == (2, 2)
    assert told["counts"] == {"warning": 1, "info": 1, "error": 1}
    assert [row["code"] for row in told["findings"]] == [
        "vague-name",
        "unknown-effect",
        "name-taken",
    ]
    assert all(row["message"] and row["remedy"] for row in told["findings"])


@pytest.mark.parametrize(
    ("count", "worst", "code"),
    [
        (3, "error", 1),
        (3, "never", 0),
        (2, "error", 0),
        (2, "warning", 1),
    ],
)
def test_how_bad_a_finding_must_be_to_fail_can_be_chosen(
    tmp_path: Path, count: int, worst: str, code: int
):
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS[:count]))

    assert run("--catalog", file, "--fail-on", worst).exit_code == code


def test_queries_that_should_find_a_tool_and_do_not_fail(tools: Path, tmp_path: Path):
    queries = tmp_path / "queries.jsonl"
    rows = [{"query": "colour a wall", "tool": "s__run"}, {"query": "x", "tool": "s__rnu"}]
    queries.write_text("\n".join(map(json.dumps, rows)))

    found = run("--catalog", tools, "--queries", queries, "--json").stdout

    missed = [row for row in json.loads(found)["findings"] if row["code"] == "missed-query"]
    assert [row["tool"] for row in missed] == ["s__rnu"]


def test_a_broken_skill_of_a_configured_folder_is_an_error(tmp_path: Path):
    for name, text in (("good", "Brew tea."), ("bad", "Use when: never")):
        (tmp_path / "skills" / name).mkdir(parents=True)
        head = f"---\nname: {name}\ndescription: {text}\n---\n"
        (tmp_path / "skills" / name / "SKILL.md").write_text(head)
    config = tmp_path / "toolscout.toml"
    config.write_text('[skills]\nfolders = ["skills"]\n')

    command = ["catalog", "lint", "--config", str(config)]
    result = CliRunner().invoke(main, command)

    assert result.exit_code == 1
    assert "skills__bad: error skill-frontmatter: Its frontmatter is not YAML" in result.stdout
    assert "(line 3, column 22)" in result.stdout
    assert "1 error" in result.stdout
