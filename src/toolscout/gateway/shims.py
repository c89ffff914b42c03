"""`BufferedTransport`: a connection that sends head and body of an answer at once.

The web server writes them one after the other, and each write wakes the client, which can do
nothing with the head alone. What is written is kept until an answer is complete, until the event
loop turns, or until it is a lot; nothing waits longer than that.

`McpApp`: streamable HTTP, with shorter ways for calls of the gateway's own tools.

Before each call of 2026-07-28 the SDK lists the caller's tools, to compare `Mcp-Param-*` headers
with what the called tool declares. The gateway's own tools declare none, so that calls of them
pass without it. All others are looked at as the SDK does, as their caller sees them: a look-up by
name alone would answer for tools that the caller may not know.

During a call the SDK also watches for what the client is to hear meanwhile, and whether it is
still there. A search or a description is made in one go and tells nothing meanwhile, so that it
needs neither; its answer is JSON either way.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import Receive, Scope, Send

from toolscout.gateway.gateway import SPLIT
from toolscout.gateway.middleware import FirstHeaders, read_header, read_headers
from toolscout.sessions.metatools import CALL, DESCRIBE, SEARCH

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:  # what is installed decides; both kinds have the same methods
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as Protocol

KEPT_BYTES = 64 << 10
"""What is kept at most, so that a body in many parts is sent while it is made."""


class BufferedTransport:
    """A transport; all but writing and closing is left to the one beneath."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Keep a part, or send it with those before it if it is large."""
        if not self._parts:
            asyncio.get_running_loop().call_soon(self.flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > KEPT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is kept."""
        if self._parts:
            data = b"".join(self._parts)
            self._parts, self._size = [], 0
            self._transport.write(data)

    def close(self) -> None:
        """Send what is kept, then close."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BufferedProtocol(Protocol):
    """The web server's own protocol over a `BufferedTransport`."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a new connection."""
        self._bundle = BufferedTransport(transport)
        super().connection_made(cast("asyncio.Transport", self._bundle))

    def on_response_complete(self) -> None:
        """Send a complete answer without waiting for the loop to turn."""
        self._bundle.flush()
        super().on_response_complete()


IN_ONE_GO = frozenset({SEARCH, DESCRIBE})
RUNNING = frozenset({CALL, *SPLIT})
VERSION_HEADER, METHOD_HEADER, NAME_HEADER = b"mcp-protocol-version", b"mcp-method", b"mcp-name"


class McpApp:
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
        short.get_tool_input_schema = _declare_nothing
        self._long, self._short = manager(make()), manager(short)
        self._shortest = manager(short, json_response=True)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Serve while this is entered."""
        async with self._long.run(), self._short.run(), self._shortest.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name = _read_tool_name(read_headers(scope))
        manager = self._long
        if name in IN_ONE_GO:
            manager = self._shortest
        elif name in RUNNING:
            manager = self._short
        await manager.handle_request(scope, receive, send)


def read_method(headers: FirstHeaders) -> str | None:
    """Return what a client of 2026-07-28 asks for; earlier ones say it in the body alone."""
    is_modern = read_header(headers, VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS
    return read_header(headers, METHOD_HEADER) if is_modern else None


def _read_tool_name(headers: FirstHeaders) -> str | None:
    """Return the tool that is called; the SDK refuses a request whose body says otherwise."""
    return read_header(headers, NAME_HEADER) if read_method(headers) == "tools/call" else None


def _declare_nothing(name: str) -> None:
    return None
