"""An MCP server over HTTP, built with the official SDK: path `/mcp` and, for SSE, `/sse`.

Arguments: port, transport, and a token that it wants, if any. What it was asked, it forgets.
"""

import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("web")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def grow(context: Context) -> str:
    """Offer one tool more."""
    server.add_tool(add, name="grown")
    await context.notify_tools_changed()
    return "grown"


def guarded(app: ASGIApp, token: str) -> ASGIApp:
    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"authorization") != f"Bearer {token}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    return guard


if __name__ == "__main__":
    port, transport, *given = sys.argv[1:]
    app: ASGIApp = server.sse_app() if transport == "sse" else server.streamable_http_app()
    if given:
        app = guarded(app, given[0])
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
