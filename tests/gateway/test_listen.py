"""Clients of 2026-07-28 over a pair of streams: requests, cancellations, and what is no request."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server import Server
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from serving import DEADLINE_SECONDS
from toolscout.gateway.forward import Context
from toolscout.gateway.listen import LineReader, StdinStream, StdoutStream, serve_streams
from toolscout.schemas import Json

ENVELOPE: Json = {
    PROTOCOL_VERSION_META_KEY: MODERN_PROTOCOL_VERSIONS[-1],
    CLIENT_INFO_META_KEY: {"name": "test", "version": "1"},
    CLIENT_CAPABILITIES_META_KEY: {},
    "progressToken": "half",
}


class Wire:
    """What a client writes to a server, and what it reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, **members: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def call(self, number: int | str, name: str, **arguments: Any) -> None:
        params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
        self.send(id=number, method="tools/call", params=params)

    async def receive(self) -> Any:
        return json.loads(await self._reader.readline())

    def leave(self) -> None:
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


class Tools:
    """A server whose tool `wait` never ends, and which notes what is cancelled."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def call(self, context: Context, params: types.CallToolRequestParams) -> Json:
        if params.name == "wait":
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        if params.name == "report":
            await context.session.report_progress(0.5, 1.0, "half")
        if params.name == "fail":
            raise RuntimeError("with a secret")
        given = (params.arguments or {}).get("text", params.name)
        return {"content": [{"type": "text", "text": given}], "resultType": "complete"}


@asynccontextmanager
async def connected(tools: Tools) -> AsyncGenerator[Wire]:
    ours, theirs = socket.socketpair()
    reader = LineReader()
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(
        lambda: asyncio.StreamReaderProtocol(reader), sock=theirs
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    server = Server("test", on_call_tool=cast("Any", tools.call))
    streams = StdinStream(reader), StdoutStream(writer)
    serving = asyncio.create_task(serve_streams(server, *streams))
    wire = Wire(*await asyncio.open_connection(sock=ours))
    try:
        yield wire
        wire.leave()
        await serving
    finally:
        serving.cancel()
        writer.close()
        wire.close()


def run(work: Callable[[Wire, Tools], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            tools = Tools()
            async with connected(tools) as wire:
                await work(wire, tools)

    asyncio.run(limited())


def text_of(answer: Json) -> str:
    return answer["result"]["content"][0]["text"]


def test_a_request_that_takes_long_holds_up_no_other():
    async def work(wire: Wire, tools: Tools) -> None:
        wire.call(1, "wait")
        wire.call("two", "hello")
        answer = await wire.receive()

        assert answer["id"] == "two"
        assert text_of(answer) == "hello"

    run(work)


def test_a_cancelled_request_ends_and_gets_no_answer():
    async def work(wire: Wire, tools: Tools) -> None:
        wire.call(7, "wait")
        await tools.waiting.wait()
        wire.send(method="notifications/cancelled", params={"requestId": "7"})
        await tools.cancelled.wait()
        wire.call(8, "hello")

        assert (await wire.receive())["id"] == 8

    run(work)


def test_progress_comes_before_the_answer():
    async def work(wire: Wire, tools: Tools) -> None:
        wire.call(1, "report")
        progress, answer = await wire.receive(), await wire.receive()

        assert progress["method"] == "notifications/progress"
        assert progress["params"]["progressToken"] == "half"
        assert progress["params"]["progress"] == 0.5
        assert answer["id"] == 1

    run(work)


def test_a_client_that_stops_writing_is_told_that_its_requests_have_ended():
    async def work(wire: Wire, tools: Tools) -> None:
        wire.call(1, "wait")
        await tools.waiting.wait()
        wire.leave()
        answer = await wire.receive()

        assert answer["id"] == 1
        assert answer["error"]["code"] == types.CONNECTION_CLOSED
        assert tools.cancelled.is_set()

    run(work)


def test_what_is_no_request_is_refused_or_left_out_and_the_next_one_is_answered():
    async def work(wire: Wire, tools: Tools) -> None:
        wire.call(1, "hello")  # makes it a client of this version
        assert (await wire.receive())["id"] == 1
        wire.send(id=2, method="tools/call", params=[1])
        refused = await wire.receive()
        wire.send(id=True, method="tools/call", params={})
        unnamed = await wire.receive()
        wire.send(id=3, result={})
        wire.send(method="notifications/cancelled", params={"requestId": None})
        wire.send(method="notifications/unheard-of")
        wire.send(id=4, method="no/such", params={"_meta": ENVELOPE})
        unknown = await wire.receive()
        wire.call(5, "hello")

        assert (refused["id"], refused["error"]["code"]) == (2, types.INVALID_REQUEST)
        assert (unnamed["id"], unnamed["error"]["code"]) == (None, types.INVALID_REQUEST)
        assert (unknown["id"], unknown["error"]["code"]) == (4, types.METHOD_NOT_FOUND)
        assert (await wire.receive())["id"] == 5

    run(work)


def test_an_error_of_a_handler_says_nothing_about_the_gateway():
    async def work(wire: Wire, tools: Tools) -> None:
        wire.call(1, "fail")
        answer = await wire.receive()

        assert answer["error"]["code"] == types.INTERNAL_ERROR
        assert "secret" not in json.dumps(answer)

    run(work)


def test_a_line_that_is_no_json_is_refused_and_the_next_one_is_read():
    async def work(wire: Wire, tools: Tools) -> None:
        wire.call(1, "hello")
        assert (await wire.receive())["id"] == 1
        wire.call(2, "echo", text="\ud83d")  # half a character
        refused = await wire.receive()
        wire.call(3, "echo", text="whole")

        assert (refused["id"], refused["error"]["code"]) == (None, types.PARSE_ERROR)
        assert text_of(await wire.receive()) == "whole"

    run(work)


@given(st.lists(st.integers(1, 400), max_size=12))
def test_requests_are_answered_once_and_in_order_however_they_are_cut(ends: list[int]):
    async def work(wire: Wire, tools: Tools) -> None:
        wire.call(0, "hello")  # makes it a client of this version
        assert (await wire.receive())["id"] == 0
        params = {"name": "hello", "arguments": {}, "_meta": ENVELOPE}
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params})
            for n in range(1, 6)
        ]
        text = "".join(f"{line}\n" for line in lines).encode()
        begin = 0
        for size in ends:
            wire.write(text[begin : begin + size])
            begin += size
            await asyncio.sleep(0)  # lets the reader see this part alone
        wire.write(text[begin:])

        assert [(await wire.receive())["id"] for _ in lines] == [1, 2, 3, 4, 5]

    run(work)


def test_a_request_after_a_line_that_is_too_long_is_answered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("toolscout.gateway.listen.LINE_LIMIT", 10_000)

    async def work(wire: Wire, tools: Tools) -> None:
        wire.call(1, "hello")
        assert (await wire.receive())["id"] == 1
        wire.write(b"x" * 15_000)
        wire.write(b"x" * 15_000 + b"\n")
        wire.call(2, "hello")
        answers = [await wire.receive()]
        while answers[-1]["id"] != 2:
            answers.append(await wire.receive())

        assert {answer["error"]["code"] for answer in answers[:-1]} == {types.PARSE_ERROR}
        assert text_of(answers[-1]) == "hello"

    run(work)
