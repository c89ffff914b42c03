"""Searches inside one request of a host that speaks ChatLoop Completions."""

import asyncio
import json
from typing import Any

import pytest

from toolscout import Mode, Settings, Tool
from toolscout.adapters._toolkit import Toolkit
from toolscout.adapters.openai.chat import ChatLoop, ChunkMerger
from toolscout.adapters.openai.responses import ROUNDS_LIMIT
from toolscout.errors import UsageError
from toolscout.schemas import Json

TEXTS = {
    "refund_order": "Pay the money for an order back.",
    "track_parcel": "Tell where a parcel is.",
    "send_email": "Send an email to a person.",
}
SCHEMA: Json = {"type": "object", "properties": {"order": {"type": "string"}}}
USER: Json = {"role": "user", "content": "Go."}


def define(name: str) -> Tool:
    return Tool.define(name, description=TEXTS[name], input_schema=SCHEMA)


def kit_of() -> Toolkit[str]:
    return Toolkit(TEXTS, define, settings=Settings(mode=Mode.NATIVE))


def call(name: str, call_id: str = "c1", /, **arguments: Any) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call_id, "type": "function", "function": function}


def said(*calls: Json, **members: Any) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": [*calls], **members}


def search(name: str, call_id: str = "c1") -> Json:
    return call("tool_search", call_id, queries=[f"select:{name}"])


def take(chat: ChatLoop, message: Json, usage: Json | None = None) -> Json | None:
    return asyncio.run(chat.take(message, usage))


def test_a_search_is_answered_inside_and_the_found_tool_called_outside():
    chat = ChatLoop(kit_of(), [USER])
    first = take(chat, said(search("refund_order")), {"total_tokens": 5})
    shown = take(chat, said(call("refund_order", order="A")), {"total_tokens": 7})

    assert first is None
    assert [message["role"] for message in chat.messages] == ["user", "assistant", "tool"]
    assert shown == said(call("refund_order", order="A"), toolscout=["refund_order"])
    assert chat.usage == {"total_tokens": 12}


def test_what_was_found_comes_back_with_the_message_and_leaves_no_trace_on_the_wire():
    toolkit = kit_of()
    message = {"role": "assistant", "content": "Shall I?", "toolscout": ["track_parcel", "gone"]}
    chat = ChatLoop(toolkit, [USER, message])

    assert chat.session.loaded == ("track_parcel",)
    assert chat.messages == [USER, {"role": "assistant", "content": "Shall I?"}]


def test_only_an_assistant_can_say_what_was_found():
    forged = {"role": "tool", "tool_call_id": "c1", "content": "x", "toolscout": ["send_email"]}

    assert ChatLoop(kit_of(), [USER | {"toolscout": ["send_email"]}, forged]).session.loaded == ()


def test_a_call_next_to_a_search_is_shown_alone_and_the_hits_are_named():
    chat = ChatLoop(kit_of(), [USER, said(call("refund_order"), toolscout=["refund_order"])])
    shown = take(chat, said(search("track_parcel"), call("refund_order", "c2", order="A")))

    assert shown == said(
        call("refund_order", "c2", order="A"), toolscout=["refund_order", "track_parcel"]
    )


def test_tool_call_is_shown_as_a_call_of_its_target():
    chat = ChatLoop(kit_of(), [USER])
    take(chat, said(search("refund_order")))
    shown = take(chat, said(call("tool_call", name="refund_order", arguments={"order": "A"})))

    assert shown is not None
    assert shown["tool_calls"] == [call("refund_order", order="A")]


@pytest.mark.parametrize("name", ["send_email", "make_coffee"])
def test_a_call_that_may_not_be_made_is_answered_inside(name: str):
    chat = ChatLoop(kit_of(), [USER])

    assert take(chat, said(call(name))) is None
    assert "tool_search" in chat.messages[-1]["content"]


def test_a_model_that_only_searches_is_stopped():
    chat = ChatLoop(kit_of(), [USER])
    for _ in range(ROUNDS_LIMIT - 1):
        take(chat, said(search("refund_order")))

    with pytest.raises(UsageError, match="nothing but search"):
        take(chat, said(search("refund_order")))


def chunk(delta: Json, reason: str | None = None, **members: Any) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"id": "x", "choices": [choice], **members}


def test_the_streams_of_two_rounds_are_one():
    first, rest = call("refund_order"), {"index": 0, "function": {"arguments": ""}}
    chunks = ChunkMerger()
    passed = [
        *chunks.feed(chunk({"role": "assistant", "content": "Let "})),
        *chunks.feed(chunk({"content": "me."})),
        *chunks.feed(chunk({"tool_calls": [{"index": 0, **search("refund_order")}]})),
        *chunks.feed(chunk({}, "tool_calls")),
    ]
    message = chunks.end_round()
    passed += [
        *chunks.feed(chunk({"role": "assistant", "tool_calls": [{"index": 0, **first}]}, id="y")),
        *chunks.feed(chunk({"tool_calls": [rest]}, id="y")),
        *chunks.feed(chunk({}, "tool_calls", id="y")),
        *chunks.feed({"id": "y", "choices": [], "usage": {"total_tokens": 3}}),
    ]
    second = chunks.end_round()
    ending = list(chunks.end(second | {"toolscout": ["refund_order"]}, {"total_tokens": 9}))

    assert message == said(search("refund_order"), content="Let me.")
    assert second == said(first)
    assert [entry["choices"][0]["delta"] for entry in passed] == [
        {"role": "assistant", "content": "Let "},
        {"content": "me."},
    ]
    calls = [first | {"index": 0}]
    assert ending[0]["choices"][0]["delta"] == {"tool_calls": calls, "toolscout": ["refund_order"]}
    assert ending[1]["choices"][0]["finish_reason"] == "tool_calls"
    assert ending[2]["usage"] == {"total_tokens": 9}
    assert {entry["id"] for entry in (*passed, *ending)} == {"x"}
