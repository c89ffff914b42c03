"""FastMCP's client before a running gateway; see `make test-peers`."""

import asyncio
import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gateway.fleet import BERLIN, TIME, configuration
from gateway.processes import Running

pytestmark = pytest.mark.skipif(find_spec("fastmcp") is None, reason="FastMCP is not installed")

NOW = {"name": "time__get_current_time", "arguments": BERLIN}


def stdio(config: Path) -> Any:
    transports: Any = import_module("fastmcp.client.transports")
    words = ["-m", "toolscout", "serve", "--config", str(config), "--no-daemon"]
    return transports.StdioTransport(command=sys.executable, args=words)


async def find_and_call(target: Any) -> dict[str, Any]:
    """Return what FastMCP's client is told; the test's own time limit is the deadline."""
    fastmcp: Any = import_module("fastmcp")
    async with fastmcp.Client(target) as client:
        found = ""
        while f"{NOW['name']}(" not in found:
            query = {"queries": ["what time is it now"]}
            found = (await client.call_tool("tool_search", query)).content[0].text
        called = await client.call_tool("tool_call", NOW)
        wrong = {**NOW, "arguments": {"timezone": "Nowhere/Land"}}
        refused = await client.call_tool("tool_call", wrong, raise_on_error=False)
        return {
            "tools": [tool.name for tool in await client.list_tools()],
            "called": json.loads(called.content[0].text),
            "is_error": refused.is_error,
            "prompts": await client.list_prompts(),
        }


@pytest.mark.requirement("R71")
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_client_of_fastmcp_finds_and_calls(tmp_path: Path, transport: str):
    """R71"""
    config = configuration(tmp_path, {"time": TIME})

    if transport == "stdio":
        told = asyncio.run(find_and_call(stdio(config)))
    else:
        with Running(config) as running:
            told = asyncio.run(find_and_call(f"{running.url}/mcp"))

    assert told["tools"] == ["tool_search", "tool_describe", "tool_call"]
    assert told["called"]["timezone"] == BERLIN["timezone"]
    assert told["is_error"]
    assert told["prompts"] == []
