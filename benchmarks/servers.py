"""MCP servers for benchmarks, over stdio or HTTP.

Run `python -P benchmarks/servers.py many --tools 500` for a server with many tools that answers
every call at once, or `… time --port 9000` for `mcp-server-time` over streamable HTTP, which it
does not support by itself; the SDK serves its own server object, so that a call over HTTP is the
same call as over stdio.
"""

import argparse
import asyncio
from importlib import import_module
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

from toolscout.demo import load_demo_tools
from toolscout.dialects import to_definition
from toolscout.schemas import Json

ZONE = "Europe/Berlin"


def make_definitions(count: int) -> list[Json]:
    """Return `count` definitions: the demo tools, numbered when they run out."""
    tools = load_demo_tools()
    rows: list[Json] = []
    for number in range(count):
        lap, place = divmod(number, len(tools))
        row = to_definition(tools[place], "mcp")
        rows.append({**row, "name": f"{tools[place].name}_{lap}"[:64] if lap else row["name"]})
    return rows


def make_server(count: int) -> Server[Any]:
    """Return a server with `count` tools, and `echo`."""
    echo: Json = {"name": "echo", "inputSchema": {"type": "object", "properties": {}}}
    listing: Json = {
        "tools": [echo, *make_definitions(count)],
        **{"resultType": "complete", "ttlMs": 0, "cacheScope": "private"},
    }
    answer = {"content": [{"type": "text", "text": "ok"}], "resultType": "complete"}

    async def list_tools(context: Any, params: types.PaginatedRequestParams | None) -> Any:
        return listing

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
        return answer

    return Server("many", on_list_tools=list_tools, on_call_tool=call_tool)


async def _serve_stdio(server: Any) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("server", choices=["many", "time"])
    parser.add_argument("--tools", type=int, default=500)
    parser.add_argument("--port", type=int, default=0, help="listen on HTTP instead of stdio")
    given = parser.parse_args()
    server: Any = (
        make_server(given.tools)
        if given.server == "many"
        else import_module("mcp_server_time.server").create_server(ZONE)
    )
    if given.port:
        import uvicorn  # slow to import, and most of these servers run over stdio

        app = server.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")
    else:
        asyncio.run(_serve_stdio(server))


if __name__ == "__main__":
    main()
