"""A server with a tool that never answers and tools that answer at once."""

import anyio
from mcp.server import MCPServer

server = MCPServer("slow")


@server.tool()
async def wait() -> str:
    """Wait for ever."""
    await anyio.sleep_forever()
    return ""


@server.tool()
def echo() -> str:
    """Answer at once."""
    return "echo"


@server.tool()
def repeat(word: str, times: int) -> str:
    """Answer with a long text."""
    return f"{word} " * times


if __name__ == "__main__":
    server.run()
