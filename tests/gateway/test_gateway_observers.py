"""Who looks on at a gateway hears of everything, and costs nobody an answer."""

import asyncio
from dataclasses import dataclass, field

import pytest

from toolscout.config.file import Config
from toolscout.gateway.gateway import Gateway
from toolscout.schemas import Json
from toolscout.sessions.events import Event
from toolscout.sessions.replies import Reply
from toolscout.sessions.session import Session
from toolscout.sessions.usage import USAGE_KIND
from toolscout.stores.memory import MemoryStore
from toolscout.tools import Tool

TOOL = Tool.define("sail", description="Sails a boat.", server="sea")


@dataclass
class Onlooker:
    """Keeps what it is told, or fails at it."""

    fails: bool = False
    told: list[str] = field(default_factory=list[str])

    def hear(self, event: Event) -> None:
        self.told.append(type(event).__name__)
        if self.fails:
            raise RuntimeError("deaf")

    def read(self, session: Session, reply: Reply) -> None:
        self.told.append(reply.code)


async def sent() -> None:
    """Let the loop turn as often as it takes to send an answer over HTTP."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def search(gateway: Gateway) -> Reply:
    gateway.catalog.replace("sea", [TOOL])
    return await gateway.open_session("s").handle("tool_search", {"queries": ["sail a boat"]})


def test_events_are_told_in_their_order_once_the_answer_is_made():
    async def conversation() -> None:
        onlooker = Onlooker()
        async with Gateway(Config(), MemoryStore(), on_event=onlooker.hear) as gateway:
            reply = await search(gateway)

            assert reply.hits
            assert onlooker.told == []

            await sent()

            assert onlooker.told == ["Searched"]

    asyncio.run(conversation())


def test_an_onlooker_that_fails_costs_nobody_what_is_told(
    caplog: pytest.LogCaptureFixture,
):
    async def conversation() -> None:
        failing, onlooker = Onlooker(fails=True), Onlooker()
        gateway = Gateway(Config(), MemoryStore(), on_event=failing.hear)
        gateway.events.subscribe(onlooker.hear)
        async with gateway:
            reply = await search(gateway)
            await sent()

        assert reply.hits
        assert failing.told == onlooker.told == ["Searched"]
        assert "An event listener failed" in caplog.text
        assert "deaf" in caplog.text

    asyncio.run(conversation())


def test_in_a_thread_where_no_client_waits_events_are_told_at_once():
    onlooker = Onlooker()
    gateway = Gateway(Config(), MemoryStore(), on_event=onlooker.hear)
    gateway.catalog.replace("sea", [TOOL])

    gateway.scout.search(gateway.open_session("s"), ["sail a boat"])

    assert onlooker.told == ["Searched"]


def test_how_a_call_ended_is_kept_once_its_answer_is_sent():
    async def run(tool: Tool, arguments: Json) -> str:
        return "sailed"

    async def conversation() -> None:
        store = MemoryStore()
        async with Gateway(Config(), store) as gateway:
            await search(gateway)
            gateway.scout.connect("sea", run)
            reply = await gateway.open_session("s").handle("tool_call", {"name": TOOL.name})

            assert reply.text == "sailed"
            assert list(store.scan(USAGE_KIND)) == []

            await sent()

            assert len(list(store.scan(USAGE_KIND))) == 1

    asyncio.run(conversation())
