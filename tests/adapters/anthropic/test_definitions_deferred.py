"""Definitions that the provider hides, by its rules."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.adapters.anthropic.definitions import TOOLS_LIMIT, create_hosted_search, defer
from toolscout.errors import UsageError

Json = dict[str, Any]
CACHED: Json = {"cache_control": {"type": "ephemeral"}}


def tool(name: str, **members: Any) -> Json:
    return {"name": name, "input_schema": {"type": "object"}, **members}


def test_hidden_definitions_are_marked_and_lose_what_the_provider_refuses():
    hidden = tool("send_email", strict=True, input_examples=[{}], **CACHED)

    definitions = defer([tool("tool_search"), hidden], {"send_email"})

    assert definitions == [
        tool("tool_search", **CACHED),
        tool("send_email", strict=True, defer_loading=True),
    ]


def test_the_breakpoint_goes_to_the_last_definition_that_is_not_hidden():
    given_tools = [tool("tool_search", **CACHED), tool("a"), tool("b", defer_loading=False)]

    assert defer(given_tools, {"a"}) == [
        tool("tool_search"),
        tool("a", defer_loading=True),
        tool("b", **CACHED),
    ]


def test_without_a_breakpoint_none_is_made():
    assert defer([tool("tool_search"), tool("a")], {"a"})[0] == tool("tool_search")


def test_definitions_that_are_given_are_not_changed():
    given_tool = tool("a", **CACHED)
    defer([tool("tool_search"), given_tool], {"a"})

    assert given_tool == tool("a", **CACHED)


def test_a_request_must_show_something():
    with pytest.raises(UsageError, match="All tools of a request would be hidden"):
        defer([tool("a")], {"a"})
    assert defer([], {"a"}) == []


def test_more_definitions_than_the_provider_takes_are_refused_with_the_way_out():
    many = [tool(f"t{number}") for number in range(TOOLS_LIMIT)]

    assert len(defer(many, ())) == TOOLS_LIMIT
    with pytest.raises(UsageError, match=r"10,001 tools.*'bridge'"):
        defer([*many, tool("one_more")], ())


def test_the_providers_own_searches_are_known_by_their_ranking():
    assert create_hosted_search("bm25") == {
        "type": "tool_search_tool_bm25_20251119",
        "name": "tool_search_tool_bm25",
    }
    with pytest.raises(UsageError, match="Use bm25 or regex"):
        create_hosted_search("vectors")


TOOLS = st.builds(
    tool,
    st.sampled_from("abcdefgh"),
    cache_control=st.sampled_from(({}, {"type": "ephemeral"})),
    input_examples=st.just([{}]),
)


@given(st.lists(TOOLS, unique_by=lambda each: each["name"]), st.sets(st.sampled_from("abcdefgh")))
def test_the_providers_rules_hold_for_any_definitions(given_tools: list[Json], hidden: set[str]):
    definitions = defer([tool("tool_search"), *given_tools], hidden)

    deferred = [each for each in definitions if each.get("defer_loading")]
    cached = [each["name"] for each in definitions if each.get("cache_control")]
    shown = [each["name"] for each in definitions if not each.get("defer_loading")]
    assert shown[0] == "tool_search"
    assert {each["name"] for each in deferred} == hidden & {each["name"] for each in given_tools}
    assert not any("cache_control" in each or "input_examples" in each for each in deferred)
    assert cached in ([], shown[-1:])
