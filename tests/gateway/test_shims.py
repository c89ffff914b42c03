"""What is written of an answer goes out at once, as JSON or as events, and nothing is held back."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from serving import eventually
from toolscout.gateway import shims
from toolscout.gateway.shims import (
    ANSWER,
    BUFFER_BYTES,
    BufferedTransport,
    StreamedAnswer,
    hold_head,
)

HEAD, BODY = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n", b"body"


class Wire(asyncio.Transport):
    """A transport that notes what it is told to do."""

    def __init__(self) -> None:
        super().__init__({"peername": ("there", 1)})
        self.did: list[object] = []

    def write(self, data: Any) -> None:
        self.did.append(bytes(data))

    def close(self) -> None:
        self.did.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.did


def test_head_and_body_are_one_write_when_the_answer_is_complete():
    async def answer() -> list[object]:
        wire = Wire()
        bundle = BufferedTransport(wire)
        bundle.write(HEAD)
        bundle.write(BODY)
        assert not wire.did
        bundle.flush()
        await asyncio.sleep(0)
        return wire.did

    assert asyncio.run(answer()) == [HEAD + BODY]


def test_what_is_not_complete_goes_out_when_the_loop_turns():
    async def begin() -> list[object]:
        wire = Wire()
        bundle = BufferedTransport(wire)
        bundle.write(HEAD)
        await asyncio.sleep(0)
        bundle.write(BODY)
        await asyncio.sleep(0)
        return wire.did

    assert asyncio.run(begin()) == [HEAD, BODY]


@pytest.mark.parametrize(("size", "at_once"), [(BUFFER_BYTES, False), (BUFFER_BYTES + 1, True)])
def test_a_large_body_does_not_wait(size: int, at_once: bool):
    async def answer() -> list[object]:
        wire = Wire()
        BufferedTransport(wire).write(b"x" * size)
        return list(wire.did)

    assert bool(asyncio.run(answer())) is at_once


def test_closing_sends_what_is_kept_first():
    async def answer() -> list[object]:
        wire = Wire()
        bundle = BufferedTransport(wire)
        bundle.write(HEAD)
        bundle.close()
        await asyncio.sleep(0)
        assert bundle.is_closing()
        return wire.did

    assert asyncio.run(answer()) == [HEAD, "closed"]


def test_all_else_is_asked_of_the_transport_beneath():
    assert BufferedTransport(Wire()).get_extra_info("peername") == ("there", 1)


class Exchange:
    """A request whose body was read: what is sent to its client, and when the client leaves."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.left = asyncio.Event()

    async def receive(self) -> Any:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def headers(self) -> list[Any]:
        (start,) = [message for message in self.sent if message["type"] == "http.response.start"]
        return start["headers"]

    async def answer(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """Answer as the SDK does in its JSON mode; `work` gets the channel of the call."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            channel = SimpleNamespace(sink=None)
            scope[ANSWER].open(channel, accepts_events=True)
            await work(channel)
            await send({"type": "http.response.start", "status": 200, "headers": JSON_TYPE})
            await send({"type": "http.response.body", "body": b'{"id":1}'})

        async with asyncio.timeout(60):
            await StreamedAnswer(self.receive, self.send).run(app, {})


JSON_TYPE = [(b"content-type", b"application/json")]


def test_a_call_without_messages_is_answered_with_json():
    async def call() -> Exchange:
        exchange = Exchange()
        await exchange.answer(lambda channel: asyncio.sleep(0))
        return exchange

    exchange = asyncio.run(call())

    assert exchange.headers == JSON_TYPE
    assert exchange.body == b'{"id":1}'


def test_messages_of_a_call_come_before_its_answer_in_a_stream_of_events():
    async def call() -> Exchange:
        async def report(channel: Any) -> None:
            await channel.sink.send(b"event: message\r\ndata: half\r\n\r\n")

        exchange = Exchange()
        await exchange.answer(report)
        return exchange

    exchange = asyncio.run(call())

    assert (b"content-type", b"text/event-stream") in exchange.headers
    assert exchange.body == (
        b'event: message\r\ndata: half\r\n\r\nevent: message\r\ndata: {"id":1}\r\n\r\n'
    )
    assert exchange.sent[-1]["more_body"] is False


def test_a_call_is_cancelled_when_its_client_leaves():
    async def call() -> Exchange:
        exchange = Exchange()

        async def wait(channel: Any) -> None:
            exchange.left.set()
            await asyncio.Event().wait()

        await exchange.answer(wait)
        return exchange

    assert asyncio.run(call()).sent == []


def test_a_long_call_shows_that_its_connection_is_in_use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shims, "WATCH_SECONDS", 0)
    monkeypatch.setattr(shims, "PING_SECONDS", 0.001)

    async def call() -> Exchange:
        exchange = Exchange()
        await exchange.answer(lambda channel: eventually(lambda: b": ping" in exchange.body))
        return exchange

    exchange = asyncio.run(call())

    assert exchange.body.startswith(b": ping\r\n\r\n")
    assert exchange.body.endswith(b'data: {"id":1}\r\n\r\n')


def test_a_message_that_comes_after_the_answer_is_refused():
    async def call() -> Exchange:
        channels: list[Any] = []

        async def keep(channel: Any) -> None:
            channels.append(channel)

        exchange = Exchange()
        await exchange.answer(keep)
        with pytest.raises(anyio.ClosedResourceError):
            await channels[0].sink.send(b"late")
        return exchange

    assert b"late" not in asyncio.run(call()).body


def test_the_head_of_an_answer_goes_out_with_the_first_part_of_its_body():
    """A load balancer can tell the client so if the gateway is killed before there is any."""

    async def answer() -> list[list[str]]:
        sent: list[str] = []
        seen: list[list[str]] = []

        async def send(message: Any) -> None:
            sent.append(message["type"])

        hold = hold_head(send)
        for kind in ("start", "body", "body"):
            await hold({"type": f"http.response.{kind}", "status": 200, "body": b"x"})
            seen.append(list(sent))
        return seen

    start, body = "http.response.start", "http.response.body"
    assert asyncio.run(answer()) == [[], [start, body], [start, body, body]]
