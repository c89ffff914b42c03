"""What happens is told to readers, whoever they are and however slowly they read."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from console.asking import Json, parsed
from toolscout.console.events import Feed
from toolscout.gateway.auth import ANONYMOUS, Principal

BOB = Principal(name="bob")
SECONDS = 20.0


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, SECONDS))


async def begun(feed: Feed, who: Principal = ANONYMOUS, last: str = "") -> AsyncGenerator[bytes]:
    """Return a stream that has been let in, without its first lines."""
    stream = feed.stream(who, last)
    await anext(stream)
    return stream


def read(told: bytes) -> list[tuple[str, str, Json]]:
    return list(parsed(iter(told.decode().split("\n"))))


def test_a_reader_is_told_what_others_publish_from_any_thread():
    async def work() -> None:
        feed = Feed()
        stream = await begun(feed)
        threading.Thread(target=feed.publish, args=("call", {"tool": "a\nb"}.copy)).start()

        [(_, kind, data)] = read(await anext(stream))

        assert (kind, data) == ("call", {"tool": "a\nb"})
        await stream.aclose()

    run(work())


def test_what_nobody_reads_is_never_worked_out():
    def told() -> Json:
        raise AssertionError("nobody asked")

    async def work() -> None:
        feed = Feed()
        stream = await begun(feed, BOB)
        feed.publish("call", told, lambda who: who.name == "ann")
        feed.publish("call")

        assert [data for _, _, data in read(await anext(stream))] == [{}]
        await stream.aclose()

    run(work())


def test_only_the_audience_hears():
    async def work() -> None:
        feed = Feed()
        stream = await begun(feed, BOB)
        feed.publish("call", {"for": "ann"}.copy, lambda who: who.name == "ann")
        feed.publish("call", {"for": "bob"}.copy, lambda who: who.name == "bob")

        assert [data for _, _, data in read(await anext(stream))] == [{"for": "bob"}]
        await stream.aclose()

    run(work())


def test_who_comes_back_is_told_what_it_missed_and_may_hear():
    async def work() -> None:
        feed = Feed()
        stream = await begun(feed)
        feed.publish("call", {"n": 1}.copy)
        [(last, _, _)] = read(await anext(stream))
        await stream.aclose()
        feed.publish("call", {"n": 2}.copy, lambda who: who.name == "ann")
        feed.publish("call", {"n": 3}.copy)

        again = await anext(feed.stream(ANONYMOUS, last))

        assert [data["n"] for _, _, data in read(again)] == [3]

    run(work())


def test_who_missed_more_than_is_known_has_to_look_again():
    async def work() -> None:
        feed = Feed(kept=2)
        stream = await begun(feed)
        feed.publish("call", {"n": 0}.copy)
        [(last, _, _)] = read(await anext(stream))
        await stream.aclose()
        for number in range(1, 4):
            feed.publish("call", {"n": number}.copy)

        for unknown in (last, "otherboot-1", "nonsense", f"{last}0000000000000000000"):
            told = read(await anext(feed.stream(ANONYMOUS, unknown)))
            assert [kind for _, kind, _ in told] == ["resync"], unknown

    run(work())


def test_a_slow_reader_is_let_go_with_one_event_and_costs_no_more():
    async def work() -> None:
        feed = Feed(waiting=3)
        slow = await begun(feed)
        for number in range(100):
            feed.publish("call", {"n": number}.copy)

        told = b"".join([part async for part in slow])

        assert [kind for _, kind, _ in read(told)] == ["resync"]

    run(work())


def test_a_quiet_stream_is_kept_alive_and_ends_with_the_feed():
    async def work() -> None:
        feed = Feed(heartbeat_seconds=0.01)
        stream = await begun(feed)

        assert (await anext(stream)).startswith(b":")
        feed.close()
        assert read(b"".join([part async for part in stream])) == []
        assert read(b"".join([part async for part in feed.stream(BOB)])) == []

    run(work())
