"""A server for benchmarks: offers many tools and answers each call at once.

Run it as `python -m toolscout.bench.offering --tools 500`, with `--port` for HTTP.
"""

import argparse
import asyncio
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

from toolscout.demo import demo_tools
from toolscout.dialects import to_definition
from toolscout.schemas import Json


def offered(count: int) -> list[Json]:
    """Return as many definitions as are asked for: the demo tools, numbered when they run out."""
    tools = demo_tools()
    rows: list[Json] = []
    for number in range(count):
        lap, place = divmod(number, len(tools))
        row = to_definition(tools[place], "mcp")
        rows.append({**row, "name": f"{tools[place].name}_{lap}"[:64] if lap else row["name"]})
    return rows


def server_of(count: int) -> Server[Any]:
    """Return a server that offers so many tools, and `echo`."""
    echo: Json = {"name": "echo", "inputSchema": {"type": "object", "properties": {}}}
    listing: Json = {
        "tools": [echo, *offered(count)],
        **{"resultType": "complete", "ttlMs": 0, "cacheScope": "private"},
    }
    answer = {"content": [{"type": "text", "text": "ok"}], "resultType": "complete"}

    async def list_tools(context: Any, params: types.PaginatedRequestParams | None) -> Any:
        return listing

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
        return answer

    return Server("offering", on_list_tools=list_tools, on_call_tool=call_tool)


async def _serve(count: int) -> None:
    server = server_of(count)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    """Serve over stdin and stdout, or over HTTP."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=int, default=500)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    if given.port:
        import uvicorn

        app = server_of(given.tools).streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")
    else:
        asyncio.run(_serve(given.tools))


if __name__ == "__main__":
    main()
