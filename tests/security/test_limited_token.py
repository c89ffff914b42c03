"""A client with a limited token has a profile: it must learn nothing of what is outside it."""

import asyncio
from dataclasses import replace

import pytest
from mcp import Client
from mcp_types import CallToolResult

from gateway.fleet import always
from serving import DEADLINE_SECONDS, HANGING, MISSING, TIME, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, Profile
from toolscout.config.servers import ServerConfig
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.stores.memory import MemoryStore


@pytest.mark.parametrize(
    "secret",
    [replace(MISSING, name="payroll"), replace(HANGING, name="payroll")],
    ids=["failed", "pending"],
)
def test_a_profile_does_not_hear_of_servers_outside_it(secret: ServerConfig):
    config = Config(servers=(TIME, secret), gateway=GatewayConfig(first_search_seconds=0))

    async def search() -> CallToolResult:
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: "time" in {tool.server for tool in gateway.catalog})
            await eventually(lambda: "payroll" in gateway.catalog.unready)
            session = gateway.open_session("ann", Profile(servers=("time",)))

            async with Client(build_server(gateway, always(session))) as client:
                return await client.call_tool("tool_search", {"queries": ["tell the time"]})

    reply = asyncio.run(search())

    assert not reply.is_error
    assert "time__get_current_time" in reply.model_dump_json()
    assert "payroll" not in reply.model_dump_json()
