"""Searches inside one request of a host that keeps OpenAI's items."""

import asyncio
import json
from typing import Any

import pytest

from toolscout import Mode, Settings, Tool
from toolscout.adapters._toolkit import Toolkit
from toolscout.adapters.openai.responses import ROUNDS_LIMIT, Memory, ResponsesLoop
from toolscout.errors import UsageError
from toolscout.schemas import Json
from toolscout.sessions.record import Record

SCHEMA: Json = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["order"],
}
TEXTS = {
    "refund_order": "Pay the money for an order back.",
    "track_parcel": "Tell where a parcel is.",
    "send_email": "Send an email to a person.",
}
USER: Json = {"role": "user", "content": "Go."}


def define(name: str) -> Tool:
    return Tool.define(name, description=TEXTS[name], input_schema=SCHEMA)


def write(name: str) -> Json:
    return {"type": "function", "name": name, "strict": True}


def kit_of(mode: Mode) -> Toolkit[str]:
    return Toolkit(TEXTS, define, settings=Settings(mode=mode))


def rounds_of(toolkit: Toolkit[str], *items: Json, **options: Any) -> ResponsesLoop[str]:
    return ResponsesLoop(toolkit, [USER, *items], write, **options)


def made(name: str, arguments: Json, call_id: str = "c1") -> Json:
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name}
    return item | {"arguments": json.dumps(arguments)}


def searched(query: str, call_id: str = "c1") -> Json:
    item: Json = {"type": "tool_search_call", "id": f"tsc_{call_id}", "call_id": call_id}
    return item | {"execution": "client", "arguments": {"queries": [query]}, "status": "completed"}


def search_in(mode: Mode, query: str, call_id: str = "c1") -> Json:
    is_item = mode is Mode.DEFINITIONS
    return (
        searched(query, call_id) if is_item else made("tool_search", {"queries": [query]}, call_id)
    )


def take(rounds: ResponsesLoop[str], *output: Json) -> bool:
    return asyncio.run(rounds.take(output))


MODES = pytest.mark.parametrize("mode", [Mode.DEFINITIONS, Mode.NATIVE, Mode.BRIDGE])


@MODES
def test_the_provider_gets_a_search_back_as_the_model_made_it(mode: Mode):
    search = search_in(mode, "refund an order")
    rounds = rounds_of(kit_of(mode))
    due = take(rounds, search)

    assert due
    assert rounds.input[:2] == [USER, search]
    assert rounds.input[2]["call_id"] == "c1"
    assert [(item["type"], item["execution"]) for item in rounds.output] == [
        ("tool_search_call", "server"),
        ("tool_search_output", "server"),
    ]


@MODES
def test_kept_items_say_all_and_come_to_the_same_bytes(mode: Mode):
    toolkit = kit_of(mode)
    first = rounds_of(toolkit)
    take(first, search_in(mode, "select:refund_order"))
    kept = json.loads(json.dumps(first.output))
    second = rounds_of(toolkit, *kept)

    assert second.session.loaded == first.session.loaded == ("refund_order",)
    assert json.dumps(second.input) == json.dumps(first.input)


def test_a_definition_shown_as_text_does_not_count_as_delivered():
    toolkit = kit_of(Mode.DEFINITIONS)
    first = rounds_of(toolkit)
    take(first, made("tool_describe", {"names": ["refund_order"]}), searched("track parcel", "c2"))
    second = rounds_of(toolkit, *first.output)

    assert (
        set(second.session.loaded) == set(first.session.loaded) == {"refund_order", "track_parcel"}
    )
    assert (
        list(Record.from_json(second.session.to_json()).shown)
        == list(Record.from_json(first.session.to_json()).shown)
        == ["track_parcel"]
    )


def test_answers_hold_the_definitions_that_the_host_has():
    rounds = rounds_of(kit_of(Mode.DEFINITIONS))
    take(rounds, searched("select:refund_order"))

    assert rounds.input[-1]["tools"] == [write("refund_order")]


@MODES
def test_a_call_is_the_hosts_under_the_tools_own_name(mode: Mode):
    toolkit = kit_of(mode)
    rounds = rounds_of(toolkit)
    take(rounds, search_in(mode, "select:refund_order"))
    given = {"order": "A", "cents": "5"}
    bridged = made("tool_call", {"name": "refund_order", "arguments": given}, "c2")
    due = take(rounds, bridged if mode is Mode.BRIDGE else made("refund_order", given, "c2"))

    shown = rounds.output[-1]
    assert not due
    assert shown["name"] == "refund_order"
    assert json.loads(shown["arguments"]) == {"order": "A", "cents": 5}
    sent = rounds_of(toolkit, *rounds.output).input[-1]
    assert sent["name"] == ("tool_call" if mode is Mode.BRIDGE else "refund_order")


@MODES
def test_a_call_that_the_gate_refuses_never_reaches_the_host(mode: Mode):
    rounds = rounds_of(kit_of(mode))
    due = take(rounds, made("send_email", {"order": "A"}))

    assert due
    assert "tool_search" in rounds.input[-1]["output"]
    assert not any(item["type"] == "function_call" for item in rounds.output)
    assert rounds.session.loaded == ()


def test_a_name_that_is_nobodys_is_answered_and_a_handoff_passes():
    rounds = rounds_of(kit_of(Mode.NATIVE), others={"transfer_to_sales"})

    assert take(rounds, made("make_coffee", {}))
    assert not take(rounds, made("transfer_to_sales", {}, "c2"))
    assert rounds.output[-1] == made("transfer_to_sales", {}, "c2")


def test_a_search_next_to_a_call_of_the_host_ends_the_round():
    toolkit = kit_of(Mode.DEFINITIONS)
    rounds = rounds_of(toolkit)
    take(rounds, searched("select:refund_order"))
    call = made("refund_order", {"order": "A"}, "c2")
    due = take(rounds, searched("select:track_parcel", "c3"), call)

    assert not due
    assert [item["call_id"] for item in rounds.waiting] == ["c3"]
    assert rounds_of(toolkit, *rounds.output).session.loaded == ("refund_order", "track_parcel")


def test_where_the_provider_keeps_the_items_only_answers_are_sent():
    toolkit, memory = kit_of(Mode.DEFINITIONS), Memory()
    first = rounds_of(toolkit)
    take(first, searched("select:refund_order"))
    call = made("refund_order", {"order": "A"}, "c2")
    take(first, searched("select:track_parcel", "c3"), call)
    memory.keep(first, "resp_2", alias="resp_1")
    output = {"type": "function_call_output", "call_id": "c2", "output": "ok"}
    second = ResponsesLoop(toolkit, [output], write, before=memory, key="resp_1")

    assert memory.resolve("resp_1") == "resp_2"
    assert second.session.loaded == ("refund_order", "track_parcel")
    assert [item["call_id"] for item in second.input] == ["c3", "c2"]
    take(second, searched("select:send_email", "c4"))
    assert [item["call_id"] for item in second.input] == ["c4"]


def test_a_memory_forgets_the_oldest():
    memory = Memory(limit=2)
    rounds = rounds_of(kit_of(Mode.NATIVE))
    for key in ("a", "b", "c"):
        memory.keep(rounds, key)

    assert memory.get("a")[0] is None
    assert memory.get("c")[0] is not None


def test_searches_of_the_provider_itself_are_left_alone():
    hosted: list[Json] = [
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
        {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": []},
    ]
    rounds = rounds_of(kit_of(Mode.DEFINITIONS), *hosted)

    assert rounds.input == [USER, *hosted]


def test_a_model_that_only_searches_is_stopped():
    rounds = rounds_of(kit_of(Mode.NATIVE))
    for number in range(ROUNDS_LIMIT - 1):
        take(rounds, search_in(Mode.NATIVE, "zzqqy", f"c{number}"))

    with pytest.raises(UsageError, match="nothing but search"):
        take(rounds, search_in(Mode.NATIVE, "zzqqy", "last"))


@MODES
def test_a_call_among_kept_items_had_passed_the_gate_so_its_tool_is_loaded(mode: Mode):
    rounds = rounds_of(kit_of(mode), made("track_parcel", {"order": "A"}))

    assert rounds.session.loaded == ("track_parcel",)
    assert rounds.input[-1]["name"] == ("track_parcel" if mode is Mode.NATIVE else "tool_call")
