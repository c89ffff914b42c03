"""Tools as the operator changed them in `[servers.NAME.tools.TOOL]`, for clients of a gateway."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client

from gateway.fleet import always, text_of
from serving import DEADLINE_SECONDS, TIME, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import ServerConfig
from toolscout.gateway.audit import read_entries
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import ANONYMOUS
from toolscout.gateway.server import build_server
from toolscout.stores import MemoryStore

NOW = "time__get_current_time"
CONVERT = "time__convert_time"
TOKYO = {"get_current_time": {"arguments": {"timezone": "Asia/Tokyo"}}}
ERAS = pytest.mark.parametrize("era", ["auto", "legacy"])


def changed(tools: Any, **options: Any) -> ServerConfig:
    """Return the time server of the MCP project with changed tools."""
    return replace(TIME, tools=tools, **options)


@asynccontextmanager
async def opened(server: ServerConfig, **options: Any) -> AsyncGenerator[Gateway]:
    config = Config(servers=(server,), gateway=GatewayConfig(**options))
    async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
        await eventually(lambda: gateway.catalog.get(CONVERT))
        yield gateway


@asynccontextmanager
async def client_of(gateway: Gateway, era: str = "auto", **settings: Any) -> AsyncGenerator[Client]:
    session = gateway.open_session("ann")
    gateway.restrict_session(session, ANONYMOUS)
    async with Client(build_server(gateway, always(session)), mode=era, **settings) as client:
        yield client


async def call(client: Client, name: str, **arguments: Any) -> str:
    return text_of(await client.call_tool("tool_call", {"name": name, "arguments": arguments}))


@ERAS
def test_a_fixed_argument_is_not_shown_and_sent_with_every_call(era: str):
    async def work() -> None:
        async with opened(changed(TOKYO)) as gateway, client_of(gateway, era) as client:
            described = text_of(await client.call_tool("tool_describe", {"names": [NOW]}))
            assert "timezone" not in described.partition("inputSchema")[2]
            assert '"Asia/Tokyo"' in await call(client, NOW)
            refused = await call(client, NOW, timezone="Europe/Berlin")
            assert "timezone: is set for every call and cannot be chosen; leave it out" in refused
            assert "Tokyo" not in refused

    asyncio.run(work())


@ERAS
@pytest.mark.parametrize(
    ("server", "gateway"), [({}, {"mode": "direct"}), ({"pins": ("*",)}, {"mode": "search"})]
)
def test_listed_tools_show_the_changes_too(era: str, server: Any, gateway: Any):
    tools = {
        "convert_time": {
            "description": "Say what time it is in Tokyo.",
            "arguments": {"target_timezone": "Asia/Tokyo", "source_timezone": "UTC"},
        },
        "get_current_time": {"enabled": False},
    }

    async def work() -> None:
        started = changed(tools, **server)
        async with opened(started, **gateway) as open_, client_of(open_, era) as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert NOW not in listed
            assert listed[CONVERT].description == "Say what time it is in Tokyo."
            assert list(listed[CONVERT].input_schema["properties"]) == ["time"]
            assert listed[CONVERT].input_schema["required"] == ["time"]
            result = await client.call_tool(CONVERT, {"time": "12:00"})
            assert json.loads(text_of(result))["target"]["timezone"] == "Asia/Tokyo"
            assert "no tool" in (await call(client, NOW, timezone="UTC")).lower()

    asyncio.run(work())


def test_rules_and_the_audit_record_see_fixed_arguments(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ZONE_TOKEN", "Asia/Tokyo")
    rules = {
        "asia": {"permission": "ask", "arguments": {"timezone": "Asia/*"}},
        "rest": {"permission": "deny", "tools": [NOW], "arguments": {"timezone": "*"}},
    }
    server = changed({"get_current_time": {"arguments": {"timezone": "${ZONE_TOKEN}"}}})
    asked: list[str] = []

    async def agree(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "once"})

    async def work() -> None:
        async with opened(server, rules=rules, audit_arguments=True) as gateway:
            async with client_of(gateway, elicitation_callback=agree) as client:
                assert "datetime" in await call(client, NOW)
            store = gateway.store
        [made] = [
            entry
            for entry in read_entries(store)
            if entry.get("event") == "call" and entry["outcome"] == "ok"
        ]
        assert (made["rule"], made["outcome"]) == ("asia", "ok")
        # The variable is named like a secret, so nobody reads its value.
        assert made["arguments"] == '{"timezone":"…"}'
        assert len(asked) == 1
        assert '"timezone": "…"' in asked[0]

    asyncio.run(work())


def test_a_reload_changes_tools_without_a_restart_of_their_server():
    async def work() -> None:
        async with opened(TIME) as gateway, client_of(gateway) as client:
            await client.call_tool("tool_describe", {"names": [NOW]})
            await call(client, NOW, timezone="UTC")
            server = gateway.pool.servers["time"]
            starts = server.starts
            await gateway.reload(replace(gateway.config, servers=(changed(TOKYO),)))

            # What the model has seen is no longer what it may call.
            assert "has changed" in await call(client, NOW, timezone="UTC")
            await client.call_tool("tool_describe", {"names": [NOW]})
            assert '"Asia/Tokyo"' in await call(client, NOW)
            assert (server.starts, gateway.pool.servers["time"]) == (starts, server)

    asyncio.run(work())


def test_a_change_for_a_tool_that_the_server_does_not_have_is_a_problem_in_the_status():
    tools = {"get_curent_time": {"enabled": False}, "convert_time": {"hidden": ["time"]}}

    async def work() -> None:
        config = Config(servers=(changed(tools),))
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: gateway.pool.servers["time"].problems)
            assert [tool.name for tool in gateway.catalog.tools] == [NOW]
            hidden, missing = gateway.pool.servers["time"].problems
            assert "convert_time' leaves no call that the tool's schema accepts." in hidden
            assert hidden.endswith("Until then, 'convert_time' is left out.")
            assert missing == (
                "Setting 'servers.time.tools.get_curent_time' is for a tool that the server does "
                "not have. Use 'get_current_time'."
            )

    asyncio.run(work())
