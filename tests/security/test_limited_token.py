"""A client with a limited token has a profile: it must learn nothing of what is outside it."""

import asyncio
import gc
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from gateway.fleet import TIME as TIME_ARGUMENTS
from gateway.fleet import always, configuration
from gateway.processes import Running
from serving import DEADLINE_SECONDS, HANGING, MISSING, TIME, Served, eventually, served
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, Profile
from toolscout.config.servers import ServerConfig
from toolscout.errors import InvalidConfig
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.stores.memory import MemoryStore

ANN = "ann-has-a-token-of-more-than-32-characters"
BOB = "bob-has-a-token-of-more-than-32-characters"
TWO = {"ann": ANN, "bob": BOB}
TOKENS = {"ann": {"token": ANN}, "bob": {"token": BOB, "profile": "some"}}
SOME = {"some": {"servers": ["time"]}}
NOW = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def search(client: Client) -> CallToolResult:
    return await client.call_tool("tool_search", {"queries": ["tell the time"]})


@pytest.mark.parametrize(
    "secret",
    [replace(MISSING, name="payroll"), replace(HANGING, name="payroll")],
    ids=["failed", "pending"],
)
def test_a_profile_does_not_hear_of_servers_outside_it(secret: ServerConfig):
    config = Config(servers=(TIME, secret), gateway=GatewayConfig(first_search_seconds=0))

    async def search() -> CallToolResult:
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: gateway.scout.preview("tell the time").hits)
            await eventually(lambda: "payroll" in gateway.catalog.unready)
            session = gateway.open_session("ann", Profile(servers=("time",)))

            async with Client(build_server(gateway, always(session))) as client:
                return await client.call_tool("tool_search", {"queries": ["tell the time"]})

    reply = asyncio.run(search())

    assert not reply.is_error
    assert "time__get_current_time" in reply.model_dump_json()
    assert "payroll" not in reply.model_dump_json()


@asynccontextmanager
async def connected(
    gateway: Served, token: str, mode: Literal["auto", "legacy"] = "auto"
) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(f"{gateway.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def get_status(gateway: Served, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.get(
        f"{gateway.url}/status", headers=headers, timeout=DEADLINE_SECONDS
    ).status_code


async def reload(gateway: Served, **options: Any) -> None:
    """Let a gateway read a configuration in which some options are different."""
    changed = replace(gateway.gateway.config.gateway, **options)
    config = replace(gateway.gateway.config, gateway=changed)
    reloading = asyncio.run_coroutine_threadsafe(gateway.gateway.reload(config), gateway.loop)
    await asyncio.wrap_future(reloading)


@pytest.fixture
def guarded() -> Iterator[Served]:
    with served(TIME, tokens=TOKENS, profiles=SOME, console=True) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)
        yield gateway


def test_a_revoked_token_is_refused_from_the_reload_on(guarded: Served):
    async def revoke() -> None:
        async with connected(guarded, BOB) as client:
            assert "time__get_current_time" in (await search(client)).model_dump_json()
            await reload(guarded, tokens={"ann": {"token": ANN}})
            with pytest.raises(MCPError):
                await search(client)

    asyncio.run(revoke())
    assert get_status(guarded, BOB) == 401
    assert get_status(guarded, ANN) == 200


@pytest.mark.filterwarnings("ignore:Unclosed <Memory:ResourceWarning")  # the SDK's, for /sse
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/api/events"])
def test_a_stream_ends_when_its_token_is_revoked(guarded: Served, path: str):
    async def read() -> str:
        headers = {
            "Authorization": f"Bearer {BOB}",
            "Accept": "text/event-stream, application/json",
        }
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            httpx2.AsyncClient(headers=headers, base_url=guarded.url) as http,
        ):
            if path == "/mcp":
                opened = await http.post(path, json=INITIALIZE)
                http.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
            async with http.stream("GET", path, timeout=DEADLINE_SECONDS) as stream:
                assert stream.status_code == 200
                await reload(guarded, tokens={"ann": {"token": ANN}})
                return "".join([part async for part in stream.aiter_text()])

    assert "error" not in asyncio.run(read())
    gc.collect()


def test_a_subscription_ends_when_its_token_is_revoked(guarded: Served):
    async def listen() -> list[object]:
        async with (
            connected(guarded, BOB) as client,
            client.listen(tools_list_changed=True) as changes,
        ):
            await reload(guarded, tokens={"ann": {"token": ANN}})
            with suppress(MCPError, SubscriptionLost):
                return [change async for change in changes]
            return []

    assert asyncio.run(listen()) == []
    assert not guarded.gateway.subscriptions.listeners


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_narrower_profile_narrows_the_sessions_that_exist(
    guarded: Served, mode: Literal["auto", "legacy"]
):
    async def narrow() -> tuple[CallToolResult, CallToolResult]:
        async with connected(guarded, BOB, mode) as client:
            assert "time__get_current_time" in (await search(client)).model_dump_json()
            await reload(guarded, profiles={"some": {"tools": ["*__convert_time"]}})
            return await search(client), await client.call_tool("tool_call", NOW)

    found, called = asyncio.run(narrow())

    assert "time__convert_time" in found.model_dump_json()
    assert "time__get_current_time" not in found.model_dump_json()
    assert called.is_error


def test_a_stream_hears_nothing_of_what_a_narrower_profile_hides(guarded: Served):
    async def listen() -> int:
        async with connected(guarded, BOB) as client, client.listen(tools_list_changed=True):
            assert count_visible(guarded) > 0
            await reload(guarded, profiles={"some": {"servers": ["other"]}})
            return count_visible(guarded)

    assert asyncio.run(listen()) == 0


def count_visible(gateway: Served) -> int:
    """Return how many tools the only listener would hear of."""
    [listener] = gateway.gateway.subscriptions.listeners
    return len(listener.filter_visible(gateway.gateway.catalog.tools))


def test_a_configuration_without_tokens_does_not_let_everybody_in(guarded: Served):
    with pytest.raises(InvalidConfig, match="would let everybody in"):
        asyncio.run(reload(guarded, tokens={}))

    assert get_status(guarded, "none") == 401
    assert get_status(guarded, ANN) == 200


def test_a_signal_makes_a_running_gateway_forget_a_token(tmp_path: Path):
    tables = [f'[gateway.tokens.{name}]\ntoken = "{token}"\n' for name, token in TWO.items()]
    path = configuration(tmp_path, {"time": TIME_ARGUMENTS})
    servers = path.read_text(encoding="utf-8")
    path.write_text(servers + "".join(tables), encoding="utf-8")
    with Running(path) as gateway:
        path.write_text(servers + tables[0], encoding="utf-8")
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGHUP)
        gateway.wait_for_line("Reloaded")

        answers = [
            httpx2.get(f"{gateway.url}/status", headers={"Authorization": f"Bearer {token}"})
            for token in TWO.values()
        ]

    assert [answer.status_code for answer in answers] == [200, 401]
