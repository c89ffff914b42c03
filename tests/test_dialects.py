import re
from typing import Any

import pytest

from toolscout.dialects import Dialect, to_definition, to_result, to_search, to_search_output
from toolscout.errors import UsageError
from toolscout.scout import Scout
from toolscout.tools import Effect, Tool

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = Tool.define(
    "read",
    server="files",
    title="Read",
    description="Read a file.",
    input_schema=SCHEMA,
    output_schema={"type": "object"},
    effect=Effect.READ,
)


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (
            "openai-chat",
            {
                "type": "function",
                "function": {
                    "name": "files__read",
                    "description": "Read a file.",
                    "parameters": SCHEMA,
                },
            },
        ),
        (
            "openai-responses",
            {
                "type": "function",
                "name": "files__read",
                "description": "Read a file.",
                "parameters": SCHEMA,
            },
        ),
        (
            "anthropic",
            {"name": "files__read", "description": "Read a file.", "input_schema": SCHEMA},
        ),
        (
            "mcp",
            {
                "name": "files__read",
                "title": "Read",
                "description": "Read a file.",
                "inputSchema": SCHEMA,
                "outputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": True, "destructiveHint": False},
            },
        ),
    ],
)
def test_a_definition_in_each_dialect(dialect: str, expected: dict[str, Any]):
    assert to_definition(READ, dialect) == expected


@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_schema_without_a_type_is_told_as_an_object(dialect: Dialect):
    bare = Tool(name="read", input_schema={"properties": {}})

    assert "'type': 'object'" in str(to_definition(bare, dialect))
    assert bare.input_schema == {"properties": {}}


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_a_tool_without_a_description_is_told_by_title_or_name(dialect: str):
    assert "'description': 'bare'" in str(to_definition(Tool(name="bare"), dialect))
    assert "'description': 'T'" in str(to_definition(Tool(name="bare", title="T"), dialect))


def test_only_providers_that_know_it_are_told_to_defer():
    deferred = {d for d in Dialect if "defer_loading" in to_definition(READ, d, deferred=True)}

    assert deferred == {Dialect.OPENAI_CHAT, Dialect.OPENAI_RESPONSES, Dialect.ANTHROPIC}


def test_mcp_says_nothing_of_an_unknown_effect():
    assert to_definition(Tool(name="bare"), "mcp") == {
        "name": "bare",
        "description": "",
        "inputSchema": {"type": "object", "properties": {}},
    }


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("openai-chat", {"role": "tool", "tool_call_id": "c1", "content": "no"}),
        (
            "openai-responses",
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [
                    {"type": "input_text", "text": "no"},
                    {"type": "input_image", "image_url": "data:image/png;base64,eA=="},
                ],
            },
        ),
        (
            "anthropic",
            {
                "type": "tool_result",
                "tool_use_id": "c1",
                "content": [
                    {"type": "text", "text": "no"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "eA=="},
                    },
                ],
                "is_error": True,
            },
        ),
        (
            "mcp",
            {
                "content": [
                    {"type": "text", "text": "no"},
                    {"type": "image", "data": "eA==", "mimeType": "image/png"},
                ],
                "isError": True,
            },
        ),
    ],
)
def test_a_result_in_each_dialect(dialect: str, expected: dict[str, Any]):
    image = {"type": "image", "data": "eA==", "mimeType": "image/png"}

    assert to_result(dialect, "c1", "no", is_error=True, blocks=(image,)) == expected


@pytest.mark.parametrize(
    ("dialect", "key"), [("openai-responses", "output"), ("anthropic", "content")]
)
def test_a_result_without_images_is_plain_text(dialect: str, key: str):
    assert to_result(dialect, "c1", "yes")[key] == "yes"


@pytest.mark.parametrize("dialect", ["anthropic", "mcp"])
def test_a_result_that_is_no_error_has_no_mark(dialect: str):
    assert "rror" not in str(to_result(dialect, "c1", "yes", is_error=False, blocks=()))


def test_a_search_that_the_client_runs_always_has_a_description():
    assert to_search(Tool(name="tool_search"), "openai-responses") == {
        "type": "tool_search",
        "execution": "client",
        "description": "tool_search",
        "parameters": {"type": "object", "properties": {}},
    }


def test_the_answer_to_such_a_search_holds_whole_definitions():
    assert to_search_output("openai-responses", "c1", [READ]) == {
        "type": "tool_search_output",
        "call_id": "c1",
        "execution": "client",
        "status": "completed",
        "tools": [to_definition(READ, "openai-responses")],
    }


def test_definitions_are_grouped_by_server_in_namespaces_of_fewer_than_ten():
    many = [Tool.define(f"t{number}", server="my files!") for number in range(11)]
    output = to_search_output("openai-responses", "c1", [*many, Tool(name="own")], grouped=True)

    told = [(group["type"], group["name"], len(group["tools"])) for group in output["tools"]]
    assert told == [
        ("namespace", "my_files_", 9),
        ("namespace", "my_files__2", 2),
        ("namespace", "tools", 1),
    ]
    assert all(group["description"] for group in output["tools"])
    assert output["tools"][0]["tools"][0] == to_definition(many[0], "openai-responses")


def test_a_host_may_answer_a_search_with_definitions_of_its_own():
    own = {"type": "function", "name": "files__read", "strict": True}
    plain = to_search_output("openai-responses", "c1", [READ], define=lambda tool: own)
    grouped = to_search_output(
        "openai-responses", "c1", [READ], define=lambda tool: own, grouped=True
    )

    assert plain["tools"] == grouped["tools"][0]["tools"] == [own]


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic", "mcp"])
def test_no_other_dialect_answers_a_search_with_definitions(dialect: str):
    with pytest.raises(UsageError, match=dialect):
        to_search(READ, dialect)
    with pytest.raises(UsageError, match=dialect):
        to_search_output(dialect, "c1", [READ])


def test_an_mcp_definition_tells_clients_that_hide_tools_which_to_keep():
    kept = Tool.define("read", description="Read.", hint="open a file", always_load=True)
    other = Tool.define("write", description="Write.")

    hints = {"anthropic/alwaysLoad": True, "anthropic/searchHint": "open a file"}
    assert to_definition(kept, Dialect.MCP)["_meta"] == hints
    assert Tool.from_mcp(to_definition(kept, Dialect.MCP)).always_load
    assert "_meta" not in to_definition(other, Dialect.MCP)


@pytest.mark.parametrize(
    ("dialect", "message"),
    [
        (
            "openai",
            "There is no dialect 'openai'. Use one of openai-chat, openai-responses, anthropic, "
            "mcp. You may mean openai-chat or openai-responses.",
        ),
        (
            "gemini",
            "There is no dialect 'gemini'. Use one of openai-chat, openai-responses, anthropic, "
            "mcp.",
        ),
        (
            None,
            "There is no dialect 'NoneType'. Use one of openai-chat, openai-responses, anthropic, "
            "mcp.",
        ),
    ],
)
def test_an_unknown_dialect_is_refused_with_those_that_exist(dialect: Any, message: str):
    session = Scout([READ]).session("a")

    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        session.tools(dialect)
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        session.search("read").to_message(dialect, "call_1")
