"""Listeners to a gateway's events hear of everything, and cost nobody an answer."""

import asyncio
from dataclasses import dataclass, field

import pytest

from toolscout.config.file import Config
from toolscout.gateway.gateway import Gateway
from toolscout.schemas import Json
from toolscout.sessions.events import Event
from toolscout.sessions.replies import Reply
from toolscout.sessions.usage import USAGE_KIND
from toolscout.stores.memory import MemoryStore
from toolscout.tools import Tool

TOOL = Tool.define("sail", description="Sails a boat.", server="sea")


@dataclass
class Recorder:
    """Keeps the names of events, or fails at them."""

    fails: bool = False
    events: list[str] = field(default_factory=list[str])

    def on_event(self, event: Event) -> None:
        self.events.append(type(event).__name__)
        if self.fails:
            raise RuntimeError("deaf")


async def sent() -> None:
    """Let the loop turn as often as it takes to send an answer over HTTP."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def search(gateway: Gateway) -> Reply:
    gateway.catalog.replace("sea", [TOOL])
    return await gateway.open_session("s").handle("tool_search", {"queries": ["sail a boat"]})


def test_events_arrive_in_order_once_the_answer_is_made():
    async def conversation() -> None:
        recorder = Recorder()
        async with Gateway(Config(), MemoryStore()) as gateway:
            gateway.events.subscribe(recorder.on_event)
            reply = await search(gateway)

            assert reply.hits
            assert recorder.events == []

            await sent()

            assert recorder.events == ["Searched"]

    asyncio.run(conversation())


def test_a_listener_that_raises_is_logged_and_costs_nothing(
    caplog: pytest.LogCaptureFixture,
):
    async def conversation() -> None:
        failing, recorder = Recorder(fails=True), Recorder()
        gateway = Gateway(Config(), MemoryStore())
        gateway.events.subscribe(failing.on_event)
        gateway.events.subscribe(recorder.on_event)
        async with gateway:
            reply = await search(gateway)
            await sent()

        assert reply.hits
        assert failing.events == recorder.events == ["Searched"]
        assert "An event listener failed" in caplog.text
        assert "deaf" in caplog.text

    asyncio.run(conversation())


def test_in_a_thread_where_no_client_waits_events_arrive_at_once():
    recorder = Recorder()
    gateway = Gateway(Config(), MemoryStore())
    gateway.events.subscribe(recorder.on_event)
    gateway.catalog.replace("sea", [TOOL])

    gateway.open_session("s").search(["sail a boat"])

    assert recorder.events == ["Searched"]


def test_how_a_call_ended_is_kept_once_its_answer_is_sent():
    async def run(tool: Tool, arguments: Json) -> str:
        return "sailed"

    async def conversation() -> None:
        async with Gateway(Config(), MemoryStore()) as gateway:
            await search(gateway)
            gateway.scout.connect("sea", run)
            reply = await gateway.open_session("s").handle("tool_call", {"name": TOOL.name})

            assert reply.text == "sailed"
            assert list(gateway.store.scan(USAGE_KIND)) == []

            await sent()

            assert len(list(gateway.store.scan(USAGE_KIND))) == 1

    asyncio.run(conversation())
