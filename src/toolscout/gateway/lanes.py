"""`Lanes`: streamable HTTP, with shorter ways for calls of the gateway's own tools.

Before each call of 2026-07-28 the SDK lists the caller's tools, to compare `Mcp-Param-*` headers
with what the called tool declares. The gateway's own tools declare none, so that calls of them
pass without it. All others are looked at as the SDK does, as their caller sees them: a look-up by
name alone would answer for tools that the caller may not know.

During a call the SDK also watches for what the client is to hear meanwhile, and whether it is
still there. A search or a description is made in one go and tells nothing meanwhile, so that it
needs neither; its answer is JSON either way.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import Receive, Scope, Send

from toolscout.gateway.gateway import SPLIT
from toolscout.gateway.middleware import FirstHeaders, headers_of, text_of
from toolscout.sessions.metatools import CALL, DESCRIBE, SEARCH

IN_ONE_GO = frozenset({SEARCH, DESCRIBE})
RUNNING = frozenset({CALL, *SPLIT})
VERSION_HEADER, METHOD_HEADER, NAME_HEADER = b"mcp-protocol-version", b"mcp-method", b"mcp-name"


class Lanes:
    """An ASGI application over servers that are all made alike."""

    def __init__(
        self, make: Callable[[], Server[Any]], *, max_body_bytes: int, idle_seconds: float
    ) -> None:
        manager = partial(
            StreamableHTTPSessionManager,
            max_request_body_size=max_body_bytes,
            session_idle_timeout=idle_seconds,
        )
        short = make()
        short.get_tool_input_schema = _nothing_declared
        self._long, self._short = manager(make()), manager(short)
        self._shortest = manager(short, json_response=True)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Serve while this is entered."""
        async with self._long.run(), self._short.run(), self._shortest.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name = _called(headers_of(scope))
        manager = self._long
        if name in IN_ONE_GO:
            manager = self._shortest
        elif name in RUNNING:
            manager = self._short
        await manager.handle_request(scope, receive, send)


def asked_method(headers: FirstHeaders) -> str | None:
    """Return what a client of 2026-07-28 asks for; earlier ones say it in the body alone."""
    is_modern = text_of(headers, VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS
    return text_of(headers, METHOD_HEADER) if is_modern else None


def _called(headers: FirstHeaders) -> str | None:
    """Return the tool that is called; the SDK refuses a request whose body says otherwise."""
    return text_of(headers, NAME_HEADER) if asked_method(headers) == "tools/call" else None


def _nothing_declared(name: str) -> None:
    return None
