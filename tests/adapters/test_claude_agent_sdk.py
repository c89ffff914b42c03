"""Claude's Agent SDK: its own Claude Code works through the gateway, with a model on loopback."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, query
from claude_agent_sdk.types import McpStdioServerConfig
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from adapters.gateways import FIND, META, REFUND, REFUNDED, configured, words
from adapters.provider import Provider, call

PREFIX = "mcp__toolscout__"


def options_of(folder: Path, server: McpStdioServerConfig, root_url: str) -> ClaudeAgentOptions:
    # A home of its own, so that no settings or logins of this machine play a part.
    home = {"HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "claude")}
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1"}
    model = {"ANTHROPIC_BASE_URL": root_url, "ANTHROPIC_API_KEY": "none"}
    return ClaudeAgentOptions(
        mcp_servers={"toolscout": server},
        allowed_tools=["mcp__toolscout"],
        tools=[],
        setting_sources=[],
        model="claude-opus-4-6",
        cwd=folder,
        env={**home, **quiet, **model},
    )


async def served(server: McpStdioServerConfig) -> tuple[list[str], str]:
    """Start what a configuration says, and meet it as a client."""
    started = StdioServerParameters(command=server["command"], args=server.get("args", []))
    async with Client(started) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        # The server behind is still starting; the test's own time limit is the deadline.
        while "order*" not in str(found := await client.call_tool("tool_search", FIND)):
            pass
        return listed, str(found)


async def run(options: ClaudeAgentOptions) -> list[Any]:
    return [message async for message in query(prompt="Refund order A-7.", options=options)]


def test_claude_code_finds_and_calls_a_tool_through_the_gateway(tmp_path: Path):
    config = configured(tmp_path, Path(sys.executable))
    server: McpStdioServerConfig = {"command": sys.executable, "args": words(config)}
    listed, _ = asyncio.run(served(server))
    script = [call(f"{PREFIX}tool_search", queries=["pay an order back"])]
    script += [call(f"{PREFIX}tool_call", **REFUND), "It is refunded."]
    with Provider(script) as provider:
        messages = asyncio.run(run(options_of(tmp_path, server, provider.root_url)))

    assert listed == META
    names = [sorted(request.tool_names) for request in provider.requests]
    assert names == [sorted(f"{PREFIX}{name}" for name in META)] * 3
    found, done = provider.requests[-1].tool_results.values()
    assert "shop__refund_order" in found
    assert REFUNDED in done  # Claude Code adds a reminder of its own
    assert messages[-1].result == "It is refunded."
    assert len({request.tools_bytes for request in provider.requests}) == 1
