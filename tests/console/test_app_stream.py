"""What a gateway does, sent to the page as it happens."""

import asyncio
from collections.abc import Iterator

import pytest

from console.asking import Asker, Json, converse
from serving import DEADLINE_SECONDS, TIME, Served, served

CALL = ("tool_call", {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}})
TALK: list[tuple[str, Json]] = [("tool_search", {"queries": ["what time is it now"]}), CALL]
ANN, BOB = "open sesame", "swordfish"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    tokens = {"ann": {"token": ANN}, "bob": {"token": BOB, "profile": "some"}}
    some = {"tools": ["*convert*"]}
    with served(TIME, console=True, tokens=tokens, profiles={"some": some}) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        yield running


def test_searches_and_calls_are_sent_as_they_happen(guarded: Served):
    with Asker(guarded.url, ANN).events() as events:
        asyncio.run(converse(guarded.url, TALK, ANN))
        told: dict[str, Json] = {}
        while "call" not in told or "session" not in told:
            _, kind, data = next(events)
            told[kind] = data

    assert told["search"]["text"] == "what time is it now"
    assert told["search"]["found"][0] == "time__get_current_time"
    assert (told["call"]["tool"], told["call"]["code"]) == ("time__get_current_time", "ok")
    assert told["call"]["session"] == told["session"]["id"]


def test_a_profile_sees_its_own_events_and_no_others(guarded: Served):
    with Asker(guarded.url, BOB).events() as events:
        asyncio.run(converse(guarded.url, TALK, ANN))
        asyncio.run(converse(guarded.url, [("tool_search", {"queries": ["convert"]})], BOB))
        _, kind, data = next(events)

    assert (kind, data["text"], data["found"]) == ("search", "convert", ["time__convert_time"])


def test_a_reader_that_comes_back_misses_nothing(guarded: Served):
    ann = Asker(guarded.url, ANN)
    with ann.events() as events:
        asyncio.run(converse(guarded.url, TALK[:1], ANN))
        last, kind, _ = next(events)
    assert kind == "search"

    asyncio.run(converse(guarded.url, [CALL], ANN))

    with ann.events(last) as events:
        while (seen := next(events))[1] != "call":
            pass
    assert seen[2]["tool"] == "time__get_current_time"


def test_a_stopped_server_is_sent_and_an_open_stream_does_not_hold_up_the_end():
    with served(TIME, console=True) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        asker = Asker(running.url)
        with asker.events() as events:
            asker.post("/servers/time/stop")
            while (told := next(events))[1:] != ("server", {"name": "time", "state": "stopped"}):
                pass
            running.stop()
            running.thread.join(DEADLINE_SECONDS)

            assert told[1] == "server"
            assert not running.thread.is_alive()
