"""`toolscout try --gateway`: the gateway seen by a client, from start to stop.

Starts a real gateway in front of real servers, searches, calls, counts, and stops all of it.
"""

import asyncio
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from mcp.client import Client

QUERY = "tell the current time in another city"
NAME = "time__get_current_time"
ARGUMENTS = {"timezone": "Asia/Tokyo"}
READY_TRIES, READY_SECONDS = 150, 0.1
LOG_LEVEL = "TOOLSCOUT_LOG"
CLIENT_LINES = (
    "toolscout init      # puts the MCP servers that you have behind toolscout",
    '"toolscout": {"command": "toolscout", "args": ["serve"]}  # into your client\'s mcpServers',
)


async def show_gateway() -> None:
    """Print what a client meets."""
    with tempfile.TemporaryDirectory(prefix="toolscout-") as folder:
        click.echo("A gateway in front of real MCP servers (time, git, fetch). A client sees:")
        async with _client(folder) as client:
            listed = (await client.list_tools()).tools
            click.echo(f"  {', '.join(tool.name for tool in listed)}\n")
            found = await _searched(client)
            click.echo(f"> tool_search: {QUERY}\n{_indented(_text(found))}\n")
            called = await client.call_tool("tool_call", {"name": NAME, "arguments": ARGUMENTS})
            click.echo(f"> tool_call: {NAME} {json.dumps(ARGUMENTS)}\n{_indented(_text(called))}\n")
        # The cache now knows all tools, so that the same gateway can list them at once.
        async with _client(folder, "--mode", "direct") as client:
            everything = (await client.list_tools()).tools
    click.echo(_savings(everything, listed, _text(found)))
    click.echo("\nTo use it for good:")
    for line in CLIENT_LINES:
        click.echo(f"  {line}")


async def _searched(client: "Client") -> Any:
    """Search until every server has told its tools."""
    found = await client.call_tool("tool_search", {"queries": [QUERY]})
    for _ in range(READY_TRIES):
        if "onnecting" not in _text(found):
            break
        await asyncio.sleep(READY_SECONDS)
        found = await client.call_tool("tool_search", {"queries": [QUERY]})
    return found


def _client(folder: str, *options: str) -> "Client":
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    arguments = ["-m", "toolscout", "serve", "--demo", "--cache", folder, *options]
    # While servers start, the gateway logs each search; what is shown here says it better.
    logged = {LOG_LEVEL: os.environ.get(LOG_LEVEL, "warning")}
    return Client(StdioServerParameters(command=sys.executable, args=arguments, env=logged))


def _text(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _savings(everything: list[Any], listed: list[Any], reply: str) -> str:
    from toolscout.tokens import count_tokens

    def cost(tools: list[Any]) -> int:
        dumped = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]
        return count_tokens(json.dumps(dumped))

    before, after = cost(everything), cost(listed)
    return (
        f"All {len(everything)} definitions: {before:,} tokens in every request. With toolscout: "
        f"{after:,}, and {count_tokens(reply):,} for this search (estimated)."
    )
