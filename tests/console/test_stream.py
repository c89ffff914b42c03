"""Live events reach every reader who may see them, however slowly it reads."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import pytest

from console.asking import Json, parse_events
from toolscout.console.stream import EVENTS_KEPT, QUEUE_EVENTS_MAX, LiveStream
from toolscout.gateway.middleware import ANONYMOUS, Principal

BOB = Principal(name="bob")
SECONDS = 20.0


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, SECONDS))


async def open_stream(
    live: LiveStream, who: Principal = ANONYMOUS, last: str = ""
) -> AsyncGenerator[bytes]:
    """Return a stream that has begun, without its first lines."""
    stream = live.read(who, last)
    await anext(stream)
    return stream


def parse(data: bytes) -> list[tuple[str, str, Json]]:
    return list(parse_events(iter(data.decode().split("\n"))))


def test_a_reader_gets_what_any_thread_publishes():
    async def work() -> None:
        live = LiveStream()
        stream = await open_stream(live)
        threading.Thread(target=live.publish, args=("call", {"tool": "a\nb"}.copy)).start()

        [(_, kind, data)] = parse(await anext(stream))

        assert (kind, data) == ("call", {"tool": "a\nb"})
        await stream.aclose()

    run(work())


def test_the_data_of_an_event_that_nobody_reads_is_never_built():
    def build() -> Json:
        raise AssertionError("nobody asked")

    async def work() -> None:
        live = LiveStream()
        stream = await open_stream(live, BOB)
        live.publish("call", build, lambda who: who.name == "ann")
        live.publish("call")

        assert [data for _, _, data in parse(await anext(stream))] == [{}]
        await stream.aclose()

    run(work())


def test_only_the_audience_gets_an_event():
    async def work() -> None:
        live = LiveStream()
        stream = await open_stream(live, BOB)
        live.publish("call", {"for": "ann"}.copy, lambda who: who.name == "ann")
        live.publish("call", {"for": "bob"}.copy, lambda who: who.name == "bob")

        assert [data for _, _, data in parse(await anext(stream))] == [{"for": "bob"}]
        await stream.aclose()

    run(work())


def test_a_reader_that_comes_back_gets_what_it_missed_and_may_see():
    async def work() -> None:
        live = LiveStream()
        stream = await open_stream(live)
        live.publish("call", {"n": 1}.copy)
        [(last, _, _)] = parse(await anext(stream))
        await stream.aclose()
        live.publish("call", {"n": 2}.copy, lambda who: who.name == "ann")
        live.publish("call", {"n": 3}.copy)

        again = await anext(live.read(ANONYMOUS, last))

        assert [data["n"] for _, _, data in parse(again)] == [3]

    run(work())


def test_a_reader_that_missed_more_than_is_kept_has_to_resync():
    async def work() -> None:
        live = LiveStream()
        stream = await open_stream(live)
        live.publish("call", {"n": 0}.copy)
        [(last, _, _)] = parse(await anext(stream))
        await stream.aclose()
        for number in range(EVENTS_KEPT + 1):
            live.publish("call", {"n": number}.copy)

        for unknown in (last, "otherboot-1", "nonsense", f"{last}0000000000000000000"):
            data = parse(await anext(live.read(ANONYMOUS, unknown)))
            assert [kind for _, kind, _ in data] == ["resync"], unknown

    run(work())


def test_a_slow_reader_is_dropped_with_one_event():
    async def work() -> None:
        live = LiveStream()
        slow = await open_stream(live)
        for number in range(QUEUE_EVENTS_MAX + 1):
            live.publish("call", {"n": number}.copy)

        data = b"".join([part async for part in slow])

        assert [kind for _, kind, _ in parse(data)] == ["resync"]

    run(work())


def test_a_quiet_stream_is_kept_alive_until_it_is_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("toolscout.console.stream.HEARTBEAT_SECONDS", 0.01)

    async def work() -> None:
        live = LiveStream()
        stream = await open_stream(live)

        assert (await anext(stream)).startswith(b":")
        live.close()
        assert parse(b"".join([part async for part in stream])) == []
        assert parse(b"".join([part async for part in live.read(BOB)])) == []

    run(work())
