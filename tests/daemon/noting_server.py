"""A server with a tool that notes each call in a file and never answers."""

from pathlib import Path

import anyio
from mcp.server import MCPServer

server = MCPServer("noting")


@server.tool()
async def note(path: str) -> str:
    """Note the call in a file, and wait for ever."""
    with Path(path).open("a", encoding="utf-8") as file:  # noqa: ASYNC230  # it is short
        file.write("called\n")
    await anyio.sleep_forever()
    return ""


if __name__ == "__main__":
    server.run()
