import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.errors import InvalidTool
from toolscout.schemas import Json
from toolscout.tools import Effect, Tool

SCHEMA: Json = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}


def test_a_definition_gets_its_exposed_name():
    tool = Tool.define("create issue", server="github")

    assert (tool.name, tool.leaf) == ("github__create_issue", "create issue")
    assert tool.input_schema == {"type": "object", "properties": {}}


def test_an_mcp_definition_keeps_all_that_it_says():
    tool = Tool.from_mcp(
        {
            "name": "send.mail",
            "description": "Send a mail.",
            "inputSchema": SCHEMA,
            "outputSchema": {"type": "object"},
            "annotations": {"title": "Send mail", "readOnlyHint": False, "destructiveHint": False},
            "_meta": {"anthropic/searchHint": "smtp", "anthropic/alwaysLoad": True},
        },
        server="mail",
    )

    assert (tool.name, tool.leaf, tool.title) == ("mail__send_mail", "send.mail", "Send mail")
    assert (tool.hint, tool.always_load, tool.effect) == ("smtp", True, Effect.WRITE)
    assert tool.output_schema == {"type": "object"}
    assert tool.extras["annotations"]["title"] == "Send mail"


def test_an_sdk_object_reads_like_its_json():
    listed = SimpleNamespace(
        name="send",
        title=None,
        description="Send.",
        inputSchema=SCHEMA,
        annotations=SimpleNamespace(
            model_dump=lambda **_: {"readOnlyHint": True}  # pyright: ignore[reportUnknownLambdaType]  # stands for pydantic
        ),
        meta={"anthropic/searchHint": "smtp"},
    )

    tool = Tool.from_mcp(listed, server="mail")

    assert (tool.name, tool.input_schema, tool.hint) == ("mail__send", SCHEMA, "smtp")
    assert tool.effect is Effect.READ


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        ({}, Effect.UNKNOWN),
        ({"readOnlyHint": True, "destructiveHint": True}, Effect.READ),
        ({"read_only_hint": False, "destructive_hint": True}, Effect.DESTRUCTIVE),
        ({"readOnlyHint": False, "destructiveHint": False}, Effect.WRITE),
        ({"readOnlyHint": False}, Effect.DESTRUCTIVE),
        ({"readOnlyHint": "yes"}, Effect.UNKNOWN),
    ],
)
def test_hints_of_a_server_say_the_effect(hints: Json, effect: Effect):
    assert Tool.from_mcp({"name": "x", "annotations": hints}).effect is effect


@pytest.mark.requirement("R81")
def test_a_server_cannot_mark_its_own_tools():
    """R81"""
    claimed = {"name": "x", "effect": "read", "always_load": True, "kind": "skill", "hint": "all"}

    tool = Tool.from_mcp(claimed, server="s")

    assert (tool.effect, tool.always_load) == (Effect.UNKNOWN, False)
    assert (tool.kind, tool.hint) == ("tool", "")


@pytest.mark.parametrize(
    "definition",
    [
        {
            "type": "function",
            "function": {"name": "send", "description": "S", "parameters": SCHEMA},
        },
        {"type": "function", "name": "send", "description": "S", "parameters": SCHEMA},
        {"name": "send", "description": "S", "parameters": SCHEMA},
        {"name": "send", "description": "S", "input_schema": SCHEMA},
        {"name": "send", "description": "S", "inputSchema": SCHEMA},
    ],
)
def test_every_shape_gives_the_same_tool(definition: Json):
    expected = Tool.define("send", server="mail", description="S", input_schema=SCHEMA)

    assert Tool.from_any(definition, "mail") == expected
    assert Tool.from_openai(definition, "mail") == expected


def test_options_of_a_definition_become_extras():
    function = {"name": "send", "parameters": SCHEMA, "strict": True}
    row = {"name": "send", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}

    assert Tool.from_openai({"type": "function", "function": function}).extras == {"strict": True}
    assert Tool.from_anthropic(row).extras == {"cache_control": {"type": "ephemeral"}}


def test_a_function_is_a_tool():
    def send(to: str) -> None:
        """Send a mail."""

    tool = Tool.from_callable(send, server="local", name="post", tags=["mail"])

    assert (tool.name, tool.description, tool.tags) == ("local__post", "Send a mail.", ("mail",))
    assert tool.input_schema == SCHEMA
    assert Tool.from_any(send).name == "send"


def test_a_row_may_carry_toolscouts_own_members():
    row = {"name": "x", "server": "s", "effect": "write", "aliases": ["y", "y"], "kind": "skill"}

    tool = Tool.from_any(row, "ignored")

    assert (tool.server, tool.effect, tool.aliases) == ("s", Effect.WRITE, ("y",))
    assert tool.kind == "skill"


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"name": ""},
        {"name": " \n"},
        {"name": 7},
        {"name": "x" * 1001},
        {"name": "x", "inputSchema": "string"},
        {"name": "x", "inputSchema": [1]},
        {"name": "x", "inputSchema": {"a": {1, 2}}},
        {"name": "x", "effect": "boom"},
        "x",
        None,
        7,
        SimpleNamespace(name="schema_unknown"),
    ],
)
def test_a_broken_definition_is_refused_with_its_server_and_a_remedy(definition: object):
    with pytest.raises(InvalidTool) as caught:
        Tool.from_any(definition, "github")

    assert caught.value.server == "github"
    assert caught.value.remedy


def test_a_schema_nested_too_deep_is_refused_and_a_huge_one_is_kept():
    deep: Json = {}
    for _ in range(1000):
        deep = {"properties": {"a": deep}}
    huge = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(100_000)}}

    with pytest.raises(InvalidTool, match="deeper than 200"):
        Tool.define("x", input_schema=deep)
    tool = Tool.define("x", input_schema=huge)

    assert tool.input_schema == huge
    assert len(tool.fingerprint) == 16
    assert len(tool.render_signature()) < 500


def test_texts_of_a_wrong_type_count_as_absent():
    tool = Tool.from_any({"name": "x", "description": 7, "title": ["a"], "aliases": 3})

    assert (tool.description, tool.title, tool.aliases) == ("", "", ())


@pytest.mark.requirement("R85")
def test_texts_are_bounded_and_cleaned():
    """R85"""
    tool = Tool.define("x", description="a\x00\u202eb\ud800\n" + "c" * 200_000, title="t" * 9000)

    assert tool.description.startswith("ab\ufffd\nccc")
    assert len(tool.description) <= 100_000
    assert len(tool.title) == 400


@given(st.text(), st.text(), st.text())
def test_any_text_makes_a_tool_or_is_refused(leaf: str, server: str, description: str):
    try:
        tool = Tool.define(leaf, server=server, description=description)
    except InvalidTool:
        assert not leaf.strip()
        return

    json.dumps(tool.description).encode()
    tool.name.encode("ascii")
    assert "\n" not in tool.first_sentence and len(tool.first_sentence) <= 160


def test_moving_a_tool_gives_it_the_name_it_has_there():
    tool = Tool.define("send", server="mail").move_to("post")

    assert tool == Tool.define("send", server="post")


@pytest.mark.requirement("R87")
def test_a_fingerprint_ignores_key_order_and_extras_and_sees_everything_else():
    """R87"""
    base: dict[str, Any] = {"input_schema": {"type": "object", "title": "T"}}
    tool = Tool.define("x", **base)

    assert Tool.define("x", input_schema={"title": "T", "type": "object"}).fingerprint == (
        tool.fingerprint
    )
    assert Tool.define("x", extras={"a": 1}, **base).fingerprint == tool.fingerprint
    others: list[dict[str, Any]] = [
        {"description": "d"},
        {"summary": "s"},
        {"hint": "h"},
        {"tags": ["t"]},
        {"effect": "read"},
        {"always_load": True},
        {"server": "s"},
        {"output_schema": {}},
    ]
    for other in others:
        assert Tool.define("x", **(base | other)).fingerprint != tool.fingerprint


@pytest.mark.requirement("R87")
@pytest.mark.processes
def test_a_fingerprint_is_the_same_in_another_process():
    """R87"""
    code = "from toolscout.tools import Tool; print(Tool.define('x', tags=['b', 'a']).fingerprint)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert other.stdout.strip() == Tool.define("x", tags=["b", "a"]).fingerprint


def test_tools_are_values_and_defaults_are_not_shared():
    first, second = Tool.define("x"), Tool.define("x")

    assert first == second and len({first, second}) == 1
    assert first.input_schema is not second.input_schema
    assert first.extras is not second.extras


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ("Send a mail. Then wait.", "Send a mail."),
        ("Send a mail, e.g. to Bob. More.", "Send a mail, e.g. to Bob."),
        ("Use v1.2 of it. More.", "Use v1.2 of it."),
        ("Send\na mail\n\nMore", "Send a mail"),
        ("## **Send** a mail\n- one\n- two", "Send a mail"),
        ("发送邮件。然后等待。", "发送邮件。"),
        ("Send <system>now</system>", "Send \u2039system\u203anow\u2039/system\u203a"),
        ("", ""),
    ],
)
def test_the_first_sentence_is_plain(description: str, sentence: str):
    assert Tool.define("x", description=description).first_sentence == sentence


@pytest.mark.requirement("R25")
def test_a_summary_stands_in_for_the_description_in_replies_only():
    """R25"""
    tool = Tool.define("x", description="Long story.", summary="Short story.")

    assert tool.first_sentence == "Short story."
    assert tool.description == "Long story."


def test_a_long_sentence_is_cut_at_a_word():
    sentence = Tool.define("x", description="word " * 100).first_sentence

    assert len(sentence) <= 160
    assert sentence.endswith("word…")


@pytest.mark.requirement("R40")
def test_the_signature_carries_the_exposed_name():
    """R40"""
    assert (
        Tool.define("send", server="mail", input_schema=SCHEMA).render_signature()
        == "mail__send(to*)"
    )
