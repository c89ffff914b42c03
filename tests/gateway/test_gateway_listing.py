"""What a client of the gateway reads about the tools that it does not list."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from mcp.client import Client

from gateway.fleet import always, text_of
from gateway.test_subscriptions import notebook
from serving import DEADLINE_SECONDS, HANGING, MISSING, TIME, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, GatewayMode, Profile
from toolscout.config.servers import ServerConfig
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import Principal
from toolscout.gateway.server import build_server
from toolscout.stores import MemoryStore
from toolscout.stores.store import Store

pytestmark = pytest.mark.timeout(300)
both_clients = pytest.mark.parametrize("mode", ["auto", "legacy"])


@asynccontextmanager
async def gateway_of(
    *servers: ServerConfig,
    listed: tuple[str, ...] = (),
    store: Store | None = None,
    mode: GatewayMode = GatewayMode.SEARCH,
) -> AsyncGenerator[Gateway]:
    """A gateway that knows the tools of the servers in `listed`."""
    config = Config(servers=servers, gateway=GatewayConfig(mode=mode))
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        Gateway(config, MemoryStore() if store is None else store) as gateway,
    ):
        await eventually(lambda: {*listed} <= {tool.server for tool in gateway.catalog})
        yield gateway


async def read_description(
    gateway: Gateway, profile: Profile | None = None, *, client: str = "ann", mode: str = "auto"
) -> str:
    session = gateway.open_session(client, Principal(name="ann", profile=profile))
    async with Client(build_server(gateway, always(session)), mode=mode, cache=None) as connected:
        found = (await connected.list_tools()).tools[0]
        assert found.name == "tool_search"
        return found.description or ""


@both_clients
def test_a_client_reads_which_servers_there_are_and_what_their_tools_are_called(mode: str):
    async def conversation() -> None:
        hinted = replace(HANGING, hint="Trains and\nstations")
        async with gateway_of(TIME, hinted, MISSING, listed=("time",)) as gateway:
            told = await read_description(gateway, mode=mode)

        assert told.endswith(
            "Hidden tools, by server:\n"
            "- hanging: Trains and stations\n"
            "- missing\n"
            "- time (2): convert, timezone\n"
            "Some of their names, to be written server__name:\n"
            "- time: convert_time, get_current_time"
        )

    asyncio.run(conversation())


def test_a_client_reads_only_of_servers_that_its_profile_admits():
    async def conversation() -> None:
        async with gateway_of(TIME, HANGING, listed=("time",)) as gateway:
            profile = Profile(servers=("time",), tools=("time__get*",))
            limited = await read_description(gateway, profile)
            other = await read_description(gateway, Profile(servers=("h*",)), client="bob")

        assert "- time (1): " in limited
        assert "hanging" not in limited
        assert "convert" not in limited
        assert other.endswith("by server:\n- hanging")

    asyncio.run(conversation())


def test_a_servers_own_words_say_what_it_is_for(tmp_path: Path):
    env = {"INSTRUCTIONS": "Keeps **notes** of the team. Touch a note before you grow one."}

    async def conversation() -> None:
        server = notebook(tmp_path, "modern", env=env)
        async with gateway_of(server, listed=("notes",)) as gateway:
            told = await read_description(gateway)

        assert "\n- notes (6): Keeps notes of the team\n" in told

    asyncio.run(conversation())


def test_a_client_that_finds_a_tool_reads_what_its_server_says_once(tmp_path: Path):
    env = {"INSTRUCTIONS": "Touch a note before you grow one."}

    async def conversation() -> None:
        server = notebook(tmp_path, "modern", env=env)
        async with gateway_of(server, listed=("notes",)) as gateway:
            await eventually(lambda: gateway.scout.preview("select:notes__echo").hits)
            served = build_server(gateway, always(gateway.open_session("ann")))
            async with Client(served) as client:
                first, second = [
                    text_of(await client.call_tool("tool_search", {"queries": ["echo"]}))
                    for _ in range(2)
                ]

        assert 'Server notes says: "Touch a note before you grow one."' in first
        assert "says" not in second

    asyncio.run(conversation())


@both_clients
def test_the_list_stays_the_same_bytes_until_a_servers_tools_change(mode: str, tmp_path: Path):
    async def conversation() -> None:
        server = notebook(tmp_path, "modern")
        async with gateway_of(server, listed=("notes",), mode=GatewayMode.SEARCH) as gateway:
            session = gateway.open_session("ann")
            served = build_server(gateway, always(session))
            async with Client(served, mode=mode, cache=None) as client:
                before = (await client.list_tools()).tools
                await client.call_tool("tool_search", {"queries": ["echo", "touch a note"]})
                await client.call_tool("tool_describe", {"names": ["notes__echo"]})
                await client.call_tool("tool_call", {"name": "notes__echo"})
                await gateway.pool.restart("notes")
                same = (await client.list_tools()).tools
                await client.call_tool("notes__grow", {"uri": "note://invoice"})
                await eventually(lambda: "notes__invoice" in gateway.catalog)
                after = (await client.list_tools()).tools

        assert same == before
        assert "invoice" in (after[0].description or "")

    asyncio.run(conversation())


def test_a_gateway_that_starts_again_lists_the_same_before_any_server_has_started(tmp_path: Path):
    """What it knows from the last run is enough; the order of starts does not matter."""
    store = MemoryStore()

    async def conversation() -> None:
        servers = (notebook(tmp_path, "modern", env={"INSTRUCTIONS": "Keeps notes."}), TIME)
        async with gateway_of(*servers, store=store, listed=("notes", "time")) as gateway:
            await eventually(lambda: store.read("manifest", "notes"))
            await eventually(lambda: store.read("manifest", "time"))
            before = await read_description(gateway)
        again = Gateway(Config(servers=servers[::-1]), store)

        assert again.open_session("bob").get_listing() == before.partition("\n\n")[2]
        assert "Keeps notes" in before

    asyncio.run(conversation())
