"""References in a conversation, when the tools that they name are gone."""

import json
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from toolscout.adapters._toolkit import TOOLS_GONE
from toolscout.adapters.anthropic.definitions import prune

Json = dict[str, Any]
NAMES = ("send_email", "refund_order", "get_weather", "list_orders")


def reference(name: str, key: str = "tool_name") -> Json:
    return {"type": "tool_reference", key: name}


def result(*content: Json) -> Json:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": list(content)}


def hosted(*names: str) -> Json:
    found = {
        "type": "tool_search_tool_search_result",
        "tool_references": [reference(name) for name in names],
    }
    return {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found}


def change(kind: str, name: str) -> Json:
    return {"type": kind, "tool": reference(name, "name")}


def turn(role: str, *content: Json) -> Json:
    return {"role": role, "content": list(content)}


def referred(value: object) -> list[str]:
    """Return every tool that JSON refers to, in order."""
    if isinstance(value, dict):
        members = cast("Json", value)
        if members.get("type") == "tool_reference":
            return [members.get("tool_name") or members["name"]]
        return referred(list(members.values()))
    inner = cast("list[object]", value) if isinstance(value, list) else []
    return [name for item in inner for name in referred(item)]


def test_references_to_tools_that_are_gone_leave_a_result():
    messages = [turn("user", result(reference("send_email"), reference("refund_order")))]

    assert prune(messages, ["send_email"]) == [turn("user", result(reference("send_email")))]


def test_a_result_without_any_reference_left_says_so():
    messages = [turn("user", result(reference("send_email")), {"type": "text", "text": "Hello"})]

    pruned = prune(messages, [])

    assert pruned == [
        turn("user", {**result(), "content": TOOLS_GONE}, {"type": "text", "text": "Hello"}),
    ]


def test_a_search_that_the_provider_made_keeps_its_shape():
    messages = [turn("assistant", hosted("send_email", "refund_order"))]

    assert prune(messages, ["refund_order"]) == [turn("assistant", hosted("refund_order"))]
    assert prune(messages, []) == [turn("assistant", hosted())]


def test_a_change_of_a_tool_that_is_gone_goes_with_its_message():
    added, removed = change("tool_addition", "send_email"), change("tool_removal", "list_orders")
    messages = [turn("system", added), turn("system", added, removed)]

    assert prune(messages, ["list_orders"]) == [turn("system", removed)]


def test_what_needs_no_change_is_the_same_object():
    kept = turn("user", result(reference("send_email")))
    messages: list[object] = [kept, {"role": "user", "content": "Hello"}, "no message"]

    pruned = prune(messages, ["send_email"])

    assert all(after is before for after, before in zip(pruned, messages, strict=True))


def test_text_that_looks_like_a_reference_is_left_alone():
    written = {"type": "text", "text": json.dumps(reference("send_email"))}
    said = turn("assistant", reference("send_email"), written)

    assert prune([said], []) == [said]


BLOCKS = st.one_of(
    st.lists(st.sampled_from(NAMES), max_size=3).map(lambda names: result(*map(reference, names))),
    st.lists(st.sampled_from(NAMES), max_size=3).map(lambda names: hosted(*names)),
    st.tuples(st.sampled_from(("tool_addition", "tool_removal")), st.sampled_from(NAMES)).map(
        lambda pair: change(*pair)
    ),
)


@given(st.lists(st.lists(BLOCKS, min_size=1, max_size=3)), st.sets(st.sampled_from(NAMES)))
def test_pruned_messages_refer_to_declared_tools_alone_and_lose_no_other(
    turns: list[list[Json]], declared: set[str]
):
    messages = [turn("user", *blocks) for blocks in turns]
    before = json.dumps(messages)

    pruned = prune(messages, declared)

    assert referred(pruned) == [name for name in referred(messages) if name in declared]
    assert prune(pruned, declared) == pruned
    assert json.dumps(messages) == before
