import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hostile import is_safe
from toolscout.catalog import Catalog
from toolscout.cli import main
from toolscout.cli.search import TRY_QUERIES, build_scout
from toolscout.demo import load_demo_tools
from toolscout.files import read_tools, write_tools
from toolscout.hints.hints import Hints
from toolscout.settings import HintUse, Settings
from toolscout.tokens import (
    COUNTED_TOOLS,
    count_all_definition_tokens,
    count_definition_tokens,
    count_tokens,
)
from toolscout.tools import Tool

TOOLS = [
    Tool.define(
        "send_mail",
        server="mail",
        description="Send an e-mail. It leaves at once.",
        input_schema={
            "type": "object",
            "properties": {"to": {"type": "string"}, "copies": {"type": "integer"}},
            "required": ["to"],
        },
    ),
    Tool.define("read_file", server="disk", description="Read [bold]a file[/bold]."),
    Tool.define("get_forecast", server="weather", description="Tell the forecast for a place."),
]
TOKENS = "This reply: 94 tokens. All 3 definitions: 110 tokens (estimated).\n"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.jsonl"
    write_tools(path, TOOLS)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["search", *map(str, arguments)])


def found(*arguments: object) -> dict[str, Any]:
    return json.loads(run(*arguments, "--json").stdout)


def names(*arguments: object) -> list[str]:
    return [hit["name"] for hit in found(*arguments)["hits"]]


def test_a_pipe_gets_one_plain_line_for_each_hit(tools: Path):
    result = run("select:send_mail,read_file", "--catalog", tools)

    assert result.exit_code == 0
    assert result.stderr == f"Using 3 tools of 3 servers in {tools}.\n"
    assert result.stdout == (
        "1  mail__send_mail  exact  (to*, copies?: integer)  Send an e-mail.\n"
        "2  disk__read_file  exact  ()                       Read [bold]a file[/bold].\n"
        "\n"
        "This reply: 157 tokens. All 3 definitions: 110 tokens (estimated).\n"
    )


def test_explain_draws_bars_and_says_what_matched(tools: Path):
    result = run("send_mail", "--catalog", tools, "--explain", "--limit", 1)

    assert result.stdout == (
        "1  mail__send_mail  exact  (to*, copies?: integer)  Send an e-mail.\n"
        "\n"
        "1  mail__send_mail  exact  100% likely to be the right tool\n"
        "   exact name  #################### 100%\n"
        "   matched     name: send, mail; server: mail; description: send, mail\n"
        "\n" + TOKENS
    )


def test_explain_says_what_held_a_hit_back(tools: Path):
    result = run("send a mail by pigeon", "--catalog", tools, "--explain", "--encoder", "none")

    assert "   held back  It does not mention: pigeon." in result.stdout


def test_json_holds_hits_reasons_and_tokens(tools: Path):
    assert found("select:send_mail,send_fax", "--catalog", tools) == {
        "query": "select:send_mail,send_fax",
        "hits": [
            {
                "name": "mail__send_mail",
                "server": "mail",
                "score": 1.0,
                "confidence": "exact",
                "signature": "mail__send_mail(to*, copies?: integer)",
                "summary": "Send an e-mail.",
                "why": {
                    "matched": {},
                    "shares": {"exact name": 1.0},
                    "held_back": [],
                    "asked_before": [],
                },
            }
        ],
        "missing": [{"name": "send_fax", "near": ["mail__send_mail"]}],
        "corrected": {},
        "tokens": {
            "reply": 116,
            "definitions": 110,
            "tools": 3,
            "encoding": "o200k_base",
            "estimated": True,
        },
    }


def test_several_queries_give_a_headed_block_or_a_json_line_each(tools: Path):
    queries = ("select:read_file", "select:send_mail")

    blocks = run(*queries, "--catalog", tools).stdout
    lines = run(*queries, "--catalog", tools, "--json").stdout.splitlines()

    assert [line for line in blocks.splitlines() if line.startswith("Query")] == [
        "Query: select:read_file",
        "Query: select:send_mail",
    ]
    assert [json.loads(line)["query"] for line in lines] == list(queries)


@pytest.mark.parametrize("encoder", ["static", "none", "onnx"])
def test_every_encoder_finds_the_obvious(encoder: str, tools: Path):
    if encoder == "onnx":
        pytest.importorskip("onnxruntime")

    assert names("send a mail", "--catalog", tools, "--encoder", encoder)[0] == "mail__send_mail"


def test_the_demo_catalogue_is_searched_when_no_tools_are_named():
    result = run("create a pull request", "--json")

    assert json.loads(result.stdout)["hits"][0]["name"] == "github__create_pull_request"
    assert result.stderr == "Using the demo catalogue; name your own with --catalog or --config.\n"


def test_a_misspelt_word_is_read_as_the_nearest_and_said_so(tools: Path):
    options = ("forcast", "--catalog", tools, "--encoder", "none")

    assert "Read 'forcast' as 'forecast'.\n" in run(*options).stdout
    assert found(*options)["corrected"] == {"forcast": "forecast"}


def test_a_missing_name_is_reported_with_near_names(tools: Path):
    result = run("select:send_mial,send_mail", "--catalog", tools)

    assert "There is no tool 'send_mial'. Near: mail__send_mail.\n" in result.stdout


def test_weaker_hits_are_counted_and_shown_on_request():
    query = ("create a pull request", "--limit", 50)
    best = names(*query)
    hidden = 50 - len(best)

    assert hidden > 0
    assert f"Weaker hits not shown: {hidden}. Add --all to see them." in run(*query).stdout
    assert names(*query, "--all")[: len(best)] == best
    assert len(names(*query, "--all")) == 50


def test_a_listing_says_how_much_it_left_out(tools: Path):
    result = run("/e/", "--catalog", tools, "--limit", 2)

    assert "Showing 2 of 3. Raise --limit to see more.\n" in result.stdout


def test_nothing_found_is_exit_code_3_with_advice(tools: Path):
    result = run("+submarine", "--catalog", tools)

    assert result.exit_code == 3
    assert result.stdout.startswith(
        "No tool found for '+submarine'. Describe what the tool should do"
    )


def test_one_query_with_a_hit_is_success(tools: Path):
    assert run("+submarine", "send a mail", "--catalog", tools).exit_code == 0


def test_a_folder_means_its_tools_file_or_else_all_its_files(tools: Path):
    folder = tools.parent
    (folder / "queries.jsonl").write_text('{"query": "not a tool"}\n', encoding="utf-8")
    assert found("server:mail", "--catalog", folder)["tokens"]["tools"] == 3

    (folder / "queries.jsonl").unlink()
    write_tools(folder / "disk.json", TOOLS[1:2])
    tools.rename(folder / "mail.jsonl")
    assert names("read_file", "--catalog", folder, "--limit", 1) == ["disk__read_file"]


def test_a_tool_listed_twice_counts_once(tools: Path, tmp_path: Path):
    again = tmp_path / "again.json"
    write_tools(again, read_tools(tools))

    assert found("send_mail", "--catalog", tools, "--catalog", again)["tokens"]["tools"] == 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["server:mial x"], 3, "Error: There is no server 'mial'. Near: mail.\n"),
        (["/(/"], 2, "Error: The pattern is invalid"),
        (["!!"], 2, "Error: The query contains nothing to search for."),
        (["x", "--limit", "0"], 2, "Error: Invalid value for '--limit'"),
        (["x", "--catalog", "nowhere.json"], 2, "Path 'nowhere.json' does not exist."),
        ([], 2, "Missing argument 'QUERY…'."),
    ],
)
def test_a_mistake_is_reported_on_stderr(arguments: list[str], code: int, said: str, tools: Path):
    result = run(*arguments, "--catalog", tools)

    assert result.exit_code == code
    assert result.stdout == ""
    assert said in result.stderr


def test_files_without_tools_say_what_is_expected(tmp_path: Path):
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    empty = tmp_path / "empty"
    empty.mkdir()

    assert "line 1: is not JSON" in run("x", "--catalog", broken).stderr
    assert "contains no file of tools. Name a file" in run("x", "--catalog", empty).stderr


def test_try_shows_the_main_job_and_what_to_type_next():
    result = CliRunner().invoke(main, ["try"])
    lines = result.stdout.splitlines()

    assert result.exit_code == 0
    assert [line[2:] for line in lines if line.startswith("> ")] == list(TRY_QUERIES)
    assert any(line.startswith("  github__create_pull_request  ") for line in lines)
    assert any(line.startswith("      because: 'pull', 'request' in its name; ") for line in lines)
    assert sum("tokens" in line and "Saved: " in line for line in lines) == 1
    assert lines[-4] == "Try next:"
    assert all(line.startswith("  toolscout search ") for line in lines[-3:])


def test_tokens_are_counted_as_o200k_does():
    assert count_tokens("") == 0
    assert count_tokens("hello world") == 2
    assert count_tokens("<|endoftext|>") > 1


def test_a_definition_counts_name_description_and_schema():
    bare = Tool.define("send")

    described = Tool.define("send", description="Send a letter.")

    assert count_definition_tokens(bare) < count_definition_tokens(described)
    assert count_definition_tokens(described) - count_definition_tokens(bare) == 4


def test_large_catalogues_are_estimated_from_a_part():
    tools = load_demo_tools()
    many = tools * (2 * COUNTED_TOOLS // len(tools) + 1)

    exact = sum(map(count_definition_tokens, many))

    assert count_all_definition_tokens(tools) == sum(map(count_definition_tokens, tools))
    assert count_all_definition_tokens(many) == pytest.approx(exact, rel=0.1)


HOSTILE = Tool.define(
    "ring",
    server="bell",
    description="Ring\x07 the \x1b[31mbell\nloudly" + " and long" * 50,
    input_schema={
        "type": "object",
        # A pipe would not get `\x1b[` anyway, but these.
        "properties": {
            "how\x9b2J": {"type": "string"},
            "tone": {"enum": ["low\x07", "\x1b]0;high\x07\x9b"]},
            "times": {"type": "integer\x9b1A"},
        },
        "required": ["how\x9b2J", "tone", "times"],
    },
    aliases=["peal\x9b31m"],
)


@pytest.mark.requirement("R52")
@pytest.mark.parametrize("options", [(), ("--explain",), ("--json",)])
def test_control_characters_of_a_server_never_reach_the_terminal(
    tmp_path: Path, options: tuple[str, ...]
):
    """R52: what is shown comes from values, cleaned, cut and on one line."""
    write_tools(tmp_path / "tools.json", [HOSTILE])

    result = run(
        "ring the \x9b31mbell", "select:no\x9b2Jne", "--catalog", tmp_path / "tools.json", *options
    )

    assert result.exit_code == 0
    assert "Ring the [31mbell loudly and long" in result.stdout
    assert is_safe(result.stdout)


@pytest.mark.requirement("R52")
def test_a_hit_is_one_line_in_a_pipe_and_its_sentence_is_cut(tmp_path: Path):
    """R52"""
    write_tools(tmp_path / "tools.json", [HOSTILE])

    line = run("ring the bell", "--catalog", tmp_path / "tools.json").stdout.splitlines()[0]

    assert line.startswith("1  bell__ring  ")
    assert line.endswith(" and long and…")
    assert len(line) < 300


def test_a_search_uses_the_hints_of_the_store_unless_they_are_off():
    hints = Hints()

    assert build_scout(Catalog(TOOLS), "none", hints).hints is hints
    assert build_scout(Catalog(TOOLS), "none", hints, Settings(hints=HintUse.OFF)).hints is None
