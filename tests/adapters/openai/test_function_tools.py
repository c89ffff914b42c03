"""Function tools in OpenAI's two shapes."""

from operator import attrgetter
from typing import Any

import pytest

from toolscout import Mode, Settings
from toolscout.adapters._toolkit import Toolkit
from toolscout.adapters.openai.function_tools import (
    Call,
    check_mode,
    check_runnable,
    list_definitions,
    list_item_calls,
    list_message_calls,
    split_tools,
    to_answer,
    to_function,
)
from toolscout.dialects import Dialect
from toolscout.errors import UsageError

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}
FLAT = {"type": "function", **WEATHER}
NESTED = {"type": "function", "function": WEATHER}


def test_a_definition_is_sent_as_it_was_given_in_either_shape():
    for given in (FLAT, NESTED):
        assert to_function(given, Dialect.OPENAI_RESPONSES).definition == FLAT
        assert to_function(given, Dialect.OPENAI_CHAT).definition == NESTED


def test_tools_that_the_provider_runs_are_told_apart_from_functions():
    hosted, functions = split_tools([{"type": "web_search"}, FLAT, print], Dialect.OPENAI_CHAT)

    assert hosted == [{"type": "web_search"}]
    assert [function.tool.name for function in functions] == [FLAT["name"], "print"]


def test_a_search_is_answered_by_an_output_and_a_function_of_that_name_by_text():
    functions = [to_function(FLAT, Dialect.OPENAI_RESPONSES)]
    toolkit = Toolkit(functions, attrgetter("tool"), settings=Settings(mode=Mode.DEFINITIONS))
    session = toolkit.open_session("a")
    listed = list_definitions(toolkit, session, Dialect.OPENAI_RESPONSES)
    reply = session.handle_sync("tool_search", {"queries": ["weather"]})
    item = Call(id="c1", name="tool_search", arguments={}, searches=True)
    function = Call(id="c1", name="tool_search", arguments="{}")

    assert listed[0]["type"] == "tool_search"
    assert to_answer(toolkit, item, reply, Dialect.OPENAI_RESPONSES)["tools"] == [FLAT]
    answer = to_answer(toolkit, function, reply, Dialect.OPENAI_RESPONSES)
    assert (answer["type"], answer["output"]) == ("function_call_output", reply.text)


def test_calls_are_read_without_their_namespace_and_without_those_of_the_provider():
    items: list[dict[str, Any]] = [
        {"type": "reasoning"},
        {"type": "tool_search_call", "call_id": None, "execution": "server"},
        {"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": {}},
        {"type": "function_call", "call_id": "b", "name": "x", "namespace": "n", "arguments": "1"},
    ]
    message = {"tool_calls": [{"id": "c", "function": {"name": "y", "arguments": "{}"}}]}

    assert [*list_item_calls(items)] == [
        Call(id="a", name="tool_search", arguments={}, searches=True),
        Call(id="b", name="x", arguments="1"),
    ]
    assert [*list_message_calls(message)] == [Call(id="c", name="y", arguments="{}")]
    assert [*list_message_calls({})] == []


def test_what_cannot_work_is_refused_early():
    with pytest.raises(UsageError, match="Pass `run`"):
        check_runnable([to_function(FLAT, Dialect.OPENAI_CHAT)])
    with pytest.raises(UsageError, match="Anthropic"):
        check_mode(Mode.REFERENCE)
