"""`toolscout catalog import`, `export` and `diff`."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.fleet import TIME, configuration
from toolscout.cli import main
from toolscout.files import read_tools

pytestmark = pytest.mark.usefixtures("home")

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
MCP = {"tools": [{"name": "read", "description": "Read a page.", "inputSchema": SCHEMA}]}
OPENAI = [
    {
        "type": "function",
        "function": {"name": "send", "description": "Send a letter.", "parameters": SCHEMA},
    }
]
ANTHROPIC = [{"name": "draw", "description": "Draw a picture.", "input_schema": SCHEMA}]
OPENAPI = """\
openapi: 3.1.0
info: {title: Pets, version: "1"}
paths:
  /pets/{id}:
    get:
      operationId: getPet
      summary: Show a pet
      parameters:
        - {name: id, in: path, required: true, schema: {type: string}}
      responses: {"200": {description: A pet}}
"""
OLD = [
    {"server": "s", "name": "gone", "description": "Leaves."},
    {"server": "s", "name": "same", "description": "Stays."},
    {
        "server": "s",
        "name": "other",
        "description": "Find pages of the wiki by their title and give back the first of them.",
        "effect": "read",
        "input_schema": {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "limit": {"type": "integer"},
                "sort": {"enum": ["up", "down"]},
            },
        },
    },
]
NEW = [
    {"server": "s", "name": "come", "description": "Arrives."},
    {"server": "s", "name": "same", "description": "Stays."},
    {
        "server": "s",
        "name": "other",
        "description": "Find pages of the wiki by their title and give back all of them.",
        "effect": "write",
        "input_schema": {
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "What it is called."},
                "sort": {"enum": ["up", "none"]},
                "page": {"type": "integer"},
            },
            "required": ["title"],
        },
    },
]
DIFF = """\
+ s__come
- s__gone
~ s__other
    description: 'the first of them.' became 'all of them.'
    parameters: page (integer, optional) is new
    parameters: limit is gone
    parameters: title is required
    parameters: title: its description changed
    parameters: sort has other values: without down and with none
    effect: 'read' became 'write'
1 added, 1 removed, 1 changed, 1 unchanged.
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["catalog", *map(str, arguments)])


def write(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_listings_definitions_and_documents_become_one_catalogue(home: Path):
    sources = [
        write(home / "mcp.json", MCP),
        write(home / "openai.json", OPENAI),
        write(home / "anthropic.json", ANTHROPIC),
        write(home / "pets.v1.yaml", OPENAPI),
    ]

    result = run("import", *sources, "-o", "all.jsonl", "--server", "web")

    assert result.stdout == "Wrote 4 tools of 1 server to all.jsonl.\n", result.stderr
    tools = read_tools(home / "all.jsonl")
    assert [tool.name for tool in tools] == ["web__draw", "web__getPet", "web__read", "web__send"]
    assert [tool.effect for tool in tools] == ["unknown", "read", "unknown", "unknown"]


def test_an_openapi_document_is_a_server_named_like_its_file(home: Path):
    write(home / "pets.v1.yaml", OPENAPI)
    as_json = {"openapi": "3.0.0", "info": {"title": "x", "version": "1"}, "paths": {}}
    write(home / "empty.json", as_json)

    result = run("import", "pets.v1.yaml", "empty.json", "-o", "pets.json.gz")

    assert result.exit_code == 0, result.stderr
    rows = json.loads(gzip.decompress((home / "pets.json.gz").read_bytes()))
    assert [(row["server"], row["name"]) for row in rows] == [("pets", "getPet")]


@pytest.mark.processes
def test_a_configured_server_is_started_and_asked(home: Path):
    configuration(home, {"time": TIME})

    result = run("import", "time", "-o", "time.json")

    assert result.exit_code == 0, result.stderr
    names = [tool.name for tool in read_tools(home / "time.json")]
    assert names == ["time__convert_time", "time__get_current_time"]


def test_a_missing_server_and_a_missing_file_have_different_errors(home: Path):
    configuration(home, {"time": TIME})

    server, file = run("import", "tme", "-o", "x.json"), run("import", "no.json", "-o", "x.json")

    assert server.exit_code == 3
    assert "There is no server 'tme'. Near: time." in server.stderr
    assert file.exit_code == 2
    assert "no.json: does not exist. Name a file or a configured server." in file.stderr
    assert not (home / "x.json").exists()


def test_tools_that_ask_for_one_name_are_not_imported(home: Path):
    one = write(home / "one.json", [{"server": "s", "name": "a.b", "description": "x"}])
    two = write(home / "two.json", [{"server": "s", "name": "a/b", "description": "y"}])

    result = run("import", one, two, "-o", "x.json")

    assert result.exit_code == 2
    assert "Two tools have the exposed name 's__a_b'" in result.stderr


@pytest.mark.parametrize("shape", ["mcp", "openai", "openai-responses", "anthropic"])
def test_what_is_exported_for_others_reads_back_under_the_names_that_models_see(
    home: Path, shape: str
):
    old = write(home / "old.json", OLD)

    result = run("export", "--catalog", old, "--format", shape, "-o", "out.json")

    assert result.exit_code == 0, result.stderr
    assert result.stderr.endswith("\nWrote 3 tools to out.json.\n")
    tools = {tool.name: tool for tool in read_tools(home / "out.json")}
    assert list(tools) == ["s__gone", "s__other", "s__same"]
    assert tools["s__other"].input_schema == OLD[2]["input_schema"]


@pytest.mark.parametrize("shape", ["json", "jsonl"])
def test_our_own_shape_reads_back_to_equal_tools(home: Path, shape: str):
    old = write(home / "old.json", OLD)

    (home / f"out.{shape}").write_text(run("export", "--catalog", old, "--format", shape).stdout)

    assert set(read_tools(home / f"out.{shape}")) == set(read_tools(old))


def test_an_export_may_be_of_some_servers_alone(home: Path):
    some = run("export", "--format", "mcp", "--server", "jira")
    none = run("export", "--server", "jra")

    assert {t["name"].split("__")[0] for t in json.loads(some.stdout)["tools"]} == {"jira"}
    assert none.exit_code == 3
    assert "Near: jira" in none.stderr


def test_a_difference_says_what_came_went_and_changed(home: Path):
    old, new = write(home / "old.json", OLD), write(home / "new.json", NEW)

    result = run("diff", old, new)

    assert (result.exit_code, result.stdout) == (0, DIFF)


def test_a_difference_is_also_json_and_an_exit_code(home: Path):
    old, new = write(home / "old.json", OLD), write(home / "new.json", NEW)

    different = run("diff", old, new, "--json", "--exit-code")
    same = run("diff", old, old, "--exit-code")

    told = json.loads(different.stdout)
    assert (different.exit_code, same.exit_code) == (1, 0)
    assert (told["added"], told["removed"], told["unchanged"]) == (["s__come"], ["s__gone"], 1)
    assert told["changed"][0]["changes"][-1] == {
        "what": "effect",
        "text": "'read' became 'write'",
    }
    assert same.stdout == "0 added, 0 removed, 0 changed, 3 unchanged.\n"


@pytest.mark.processes
def test_a_configuration_can_be_compared_with_a_file(home: Path):
    config = configuration(home, {"time": TIME})
    run("import", "time", "-o", "time.json")
    with config.open("a") as file:
        file.write("[servers.time.effects]\nconvert_time = 'destructive'\n")

    result = run("diff", "time.json", config)

    assert "~ time__convert_time\n    effect: 'unknown' became 'destructive'\n" in result.stdout
    assert "1 changed, 1 unchanged." in result.stdout


def test_the_folders_of_written_files_are_created(home: Path):
    exported = run("export", "--format", "mcp", "-o", "new/export/out.json")
    imported = run("import", "new/export/out.json", "-o", "other/new/tools.jsonl")

    assert (exported.exit_code, imported.exit_code) == (0, 0)
    assert (home / "other" / "new" / "tools.jsonl").is_file()
