"""A server may offer tools and answer calls: it must not push itself in front of the others."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from serving import DEADLINE_SECONDS, served
from toolscout.config.servers import ServerConfig, Transport

PINNING = ServerConfig(
    name="pinning",
    transport=Transport.STDIO,
    command=sys.executable,
    args=(str(Path(__file__).with_name("pinning_server.py")),),
)


@pytest.mark.parametrize("may_pin", [False, True])
def test_a_server_pins_its_tools_only_where_the_configuration_allows_it(may_pin: bool):
    with served(replace(PINNING, may_pin=may_pin)) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)

        async def list_names() -> list[str]:
            async with Client(streamable_http_client(f"{gateway.url}/mcp")) as client:
                return [tool.name for tool in (await client.list_tools()).tools]

        names = asyncio.run(list_names())

    assert "tool_search" in names
    assert ("pinning__obey" in names) is may_pin
