"""`Lanes`: streamable HTTP, with a shorter way for calls of the gateway's own tools.

Before each call of 2026-07-28 the SDK lists the caller's tools, to compare `Mcp-Param-*` headers
with what the called tool declares. The gateway's own tools declare none, so that calls of them
pass without it. All others are looked at as the SDK does, as their caller sees them: a look-up by
name alone would answer for tools that the caller may not know.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from toolscout.gateway.gateway import SPLIT
from toolscout.metatools import CALL, DESCRIBE, SEARCH

OWN_TOOLS = frozenset({SEARCH, DESCRIBE, CALL, *SPLIT})
VERSION_HEADER, METHOD_HEADER, NAME_HEADER = "mcp-protocol-version", "mcp-method", "mcp-name"


class Lanes:
    """An ASGI application over servers that are all made alike."""

    def __init__(
        self, make: Callable[[], Server[Any]], *, max_body_bytes: int, idle_seconds: float
    ) -> None:
        short = make()
        short.get_tool_input_schema = _nothing_declared
        self._long, self._short = (
            StreamableHTTPSessionManager(
                server, max_request_body_size=max_body_bytes, session_idle_timeout=idle_seconds
            )
            for server in (make(), short)
        )

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Serve while this is entered."""
        async with self._long.run(), self._short.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        manager = self._short if _is_own_call(Headers(scope=scope)) else self._long
        await manager.handle_request(scope, receive, send)


def asked_method(headers: Headers) -> str | None:
    """Return what a client of 2026-07-28 asks for; earlier ones say it in the body alone."""
    is_modern = headers.get(VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS
    return headers.get(METHOD_HEADER) if is_modern else None


def _is_own_call(headers: Headers) -> bool:
    # The SDK refuses a request whose body says otherwise.
    return asked_method(headers) == "tools/call" and headers.get(NAME_HEADER) in OWN_TOOLS


def _nothing_declared(name: str) -> None:
    return None
