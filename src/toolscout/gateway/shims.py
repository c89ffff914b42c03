"""`Bundle`: a connection that sends head and body of an answer at once.

The web server writes them one after the other, and each write wakes the client, which can do
nothing with the head alone. What is written is kept until an answer is complete, until the event
loop turns, or until it is a lot; nothing waits longer than that.
"""

import asyncio
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:  # what is installed decides; both kinds have the same methods
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as Protocol

KEPT_BYTES = 64 << 10
"""What is kept at most, so that a body in many parts is sent while it is made."""


class Bundle:
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


class BundlingProtocol(Protocol):
    """The web server's own protocol over a `Bundle`."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a new connection."""
        self._bundle = Bundle(transport)
        super().connection_made(cast("asyncio.Transport", self._bundle))

    def on_response_complete(self) -> None:
        """Send a complete answer without waiting for the loop to turn."""
        self._bundle.flush()
        super().on_response_complete()
