"""What the calls of a principal teach, and to whom: over several gateways and one store."""

import asyncio
import time

import pytest

from serving import eventually
from toolscout.config.file import Config
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import ANONYMOUS, Principal
from toolscout.schemas import Json
from toolscout.sessions.usage import UsageLog
from toolscout.settings import Learning, Settings
from toolscout.stores.memory import MemoryStore
from toolscout.stores.store import Store
from toolscout.tools import Tool

ANN = Principal(name="ann")
BOB = Principal(name="bob")
TWINS = {
    "a": Tool.define("shut", server="a", description="Close a ticket."),
    "b": Tool.define("finish", server="b", description="Close a ticket."),
}


def make_gateway(store: Store, learning: Learning = Learning.OWN) -> Gateway:
    gateway = Gateway(Config(sessions=Settings(learning=learning)), store)
    gateway.news_seconds = 0.01
    for server, tool in TWINS.items():
        gateway.catalog.replace(server, [tool])
        gateway.scout.connect(server, run)
    return gateway


async def run(tool: Tool, arguments: Json) -> str:
    return "done"


async def teach(gateway: Gateway, principal: Principal) -> None:
    session = gateway.open_session(f"teaching {principal.name}", principal)
    await session.handle("tool_search", {"queries": ["close this ticket"]})
    for _ in range(5):
        reply = await session.handle("tool_call", {"name": "b__finish"})
        assert reply.code == "ok"


def find_first(gateway: Gateway, principal: Principal) -> str:
    session = gateway.open_session(f"asking {principal.name}", principal)
    return session.search("discover: close the ticket").hits[0].tool.name


@pytest.mark.requirement("R77")
def test_the_calls_of_a_token_help_only_its_own_sessions_on_every_gateway():
    """R77"""

    async def work() -> None:
        store = MemoryStore()
        async with make_gateway(store) as here, make_gateway(store) as there:
            await teach(here, ANN)
            await eventually(lambda: not there.scout.feedback.is_empty)
            for gateway in (here, there):
                assert find_first(gateway, ANN) == "b__finish"
                assert find_first(gateway, BOB) == "a__shut"
                assert find_first(gateway, ANONYMOUS) == "a__shut"

    asyncio.run(work())


def test_shared_calls_help_everybody():
    async def work() -> None:
        async with make_gateway(MemoryStore(), Learning.SHARED) as gateway:
            await teach(gateway, ANN)
            await teach(gateway, BOB)

            assert find_first(gateway, ANONYMOUS) == "b__finish"

    asyncio.run(work())


def test_a_running_gateway_forgets_what_another_process_forgets():
    async def work() -> None:
        store = MemoryStore()
        async with make_gateway(store) as gateway:
            await teach(gateway, ANN)
            await gateway.store.run_in_thread(gateway.store.flush)

            UsageLog(store, time.time).forget(tool="b__finish")

            await eventually(lambda: gateway.scout.feedback.is_empty)
            assert find_first(gateway, ANN) == "a__shut"

    asyncio.run(work())
