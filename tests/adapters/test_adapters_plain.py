"""Plain code keeps the contract, in every mode and dialect that toolscout speaks by itself."""

import json

import pytest

from adapters.contract import (
    check_async,
    check_concurrent_conversations,
    check_contract,
    check_streaming,
    check_two_conversations_do_not_share,
)
from adapters.loops import Json, Loop, Loops
from adapters.surfaces import DialectName
from adapters.surfaces import Mode as ModeName
from toolscout.settings import Mode

WAYS: tuple[tuple[ModeName, Mode, DialectName], ...] = (
    ("bridge", Mode.BRIDGE, "openai-chat"),
    ("native", Mode.NATIVE, "openai-chat"),
    ("native", Mode.NATIVE, "openai-responses"),
    ("definitions", Mode.DEFINITIONS, "openai-responses"),
    ("native", Mode.NATIVE, "anthropic"),
    ("reference", Mode.REFERENCE, "anthropic"),
)


def every_way() -> pytest.MarkDecorator:
    names = [f"{mode}-{dialect}" for mode, _, dialect in WAYS]
    return pytest.mark.parametrize(("mode", "setting", "dialect"), WAYS, ids=names)


@every_way()
def test_a_loop_keeps_the_contract(mode: ModeName, setting: Mode, dialect: DialectName):
    loops = Loops(setting, dialect)

    check_contract(loops, mode=mode, dialect=dialect)


@every_way()
def test_two_conversations_of_a_loop_share_nothing(
    mode: ModeName, setting: Mode, dialect: DialectName
):
    loops = Loops(setting, dialect)

    check_two_conversations_do_not_share(loops, mode=mode, dialect=dialect)
    check_concurrent_conversations(loops, mode=mode, dialect=dialect)


def test_an_asynchronous_loop_sends_what_a_synchronous_one_sends():
    check_async(Loops(Mode.NATIVE, "openai-chat"), mode="native", dialect="openai-chat")


def test_a_loop_that_streams_sends_what_one_that_waits_sends():
    loops = Loops(Mode.NATIVE, "openai-chat", Streaming)

    check_streaming(loops, mode="native", dialect="openai-chat")


def test_found_tools_have_the_definition_that_a_request_without_toolscout_has():
    loops = Loops(Mode.NATIVE, "openai-chat")
    plain = Loops(None, "openai-chat")

    check_contract(loops, mode="native", dialect="openai-chat", plain=plain)


class Streaming(Loop):
    """Reads Chat Completions chunk by chunk."""

    is_streaming = False

    def ask_streaming(self, message: str) -> str:
        self.is_streaming = True
        return self.ask(message)

    def answer(self) -> Json:
        if not self.is_streaming:
            return super().answer()
        message: Json = {"role": "assistant", "content": None}
        for line in self.posted(stream=True).splitlines():
            if line.startswith("data: {"):
                add_delta(message, json.loads(line[6:])["choices"][0]["delta"])
        return {"choices": [{"message": message}]}


def add_delta(message: Json, delta: Json) -> None:
    if delta.get("content"):
        message["content"] = (message["content"] or "") + delta["content"]
    for piece in delta.get("tool_calls", ()):
        calls = message.setdefault("tool_calls", [])
        if "id" in piece:
            calls.append({key: piece[key] for key in ("id", "type", "function")})
        else:
            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
