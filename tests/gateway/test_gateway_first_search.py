"""What the first search of a client finds at a gateway that has just started."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client

from gateway.fleet import always, text_of
from serving import DEADLINE_SECONDS, HANGING, TIME
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, Profile
from toolscout.config.servers import ServerConfig
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import Principal
from toolscout.gateway.server import build_server
from toolscout.stores import MemoryStore

pytestmark = pytest.mark.timeout(300)


@asynccontextmanager
async def client_of(
    *servers: ServerConfig, profile: Profile | None = None, **options: Any
) -> AsyncGenerator[Client]:
    """A client of a gateway that knows no tools yet."""
    config = Config(servers=servers, gateway=GatewayConfig(**options))
    async with Gateway(config, MemoryStore()) as gateway:
        session = gateway.open_session("ann", Principal(name="ann", profile=profile))
        async with Client(build_server(gateway, always(session))) as client:
            yield client


async def search(client: Client) -> tuple[str, float]:
    """Return what a search says, and how many seconds it took."""
    clock = asyncio.get_running_loop().time
    begun = clock()
    result = await client.call_tool("tool_search", {"queries": ["current time in a city"]})
    return text_of(result), clock() - begun


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await work

    asyncio.run(limited())


def test_a_first_search_finds_the_tools_of_a_server_that_is_about_to_list_them():
    async def work() -> None:
        async with client_of(TIME, first_search_seconds=60) as client:
            text, seconds = await search(client)

            assert "time__get_current_time" in text
            assert "Still connecting" not in text
            assert seconds < 60

    run(work())


def test_a_first_search_waits_for_a_slow_server_only_once_and_only_so_long():
    async def work() -> None:
        async with client_of(TIME, HANGING, first_search_seconds=4) as client:
            first, seconds = await search(client)
            second, later = await search(client)

            assert "Still connecting, may have more: hanging" in first
            assert seconds >= 3.9
            assert "Still connecting" not in second
            assert later < seconds

    run(work())


@pytest.mark.parametrize(("profile", "seconds"), [(None, 0), (Profile(servers=("others",)), 60)])
def test_nobody_waits_for_a_server_without_need(profile: Profile | None, seconds: float):
    async def work() -> None:
        async with client_of(HANGING, profile=profile, first_search_seconds=seconds) as client:
            _, waited = await search(client)

            assert waited < 30

    run(work())
