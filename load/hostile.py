"""One principal who does all it can to disturb the others, as `test_fairness` lets it.

Run it as `python load/hostile.py URL TOKEN SECONDS`. Writes an empty line when it begins, and then
how often each answer came, as JSON.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

FLOODERS = 40
SLOW = 10
HUGE = 2
OPENERS = 4
HUGE_BYTES = 900 << 10
"""A little less than `upstream.py` reads as one line."""
SLOW_SECONDS = 0.5

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "hostile", "version": "1"},
    },
}


class Attacker:
    """Connections with one token."""

    def __init__(self, url: str, token: str, seconds: float) -> None:
        place = urlsplit(url)
        self.answers: Counter[str] = Counter()
        self.place = (place.hostname or "", place.port or 80)
        self._end = time.monotonic() + seconds
        self._head = (
            f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        )

    def build_call(self, text: str) -> tuple[dict[str, Any], str]:
        """Return a call that comes back with a text, and the further headers that it needs."""
        version = MODERN_PROTOCOL_VERSIONS[0]
        meta = {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: {"name": "hostile", "version": "1"},
            CLIENT_CAPABILITIES_META_KEY: {},
        }
        echo = {"name": "server0__echo", "arguments": {"text": text}}
        params = {"name": "tool_call", "arguments": echo, "_meta": meta}
        names = "Mcp-Method: tools/call\r\nMcp-Name: tool_call\r\n"
        return (
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
            f"MCP-Protocol-Version: {version}\r\n{names}",
        )

    def build_request(self, message: dict[str, Any], more: str) -> bytes:
        """Return a whole HTTP request."""
        body = json.dumps(message).encode()
        return f"{self._head}{more}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def run(self) -> None:
        """Attack in all ways at once."""
        small = self.build_request(*self.build_call("x"))
        huge = self.build_request(*self.build_call("x" * HUGE_BYTES))
        hello = self.build_request(HELLO, "")
        ways: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *[lambda: self._repeat("flood", small)] * FLOODERS,
            *[lambda: self._repeat("sessions", hello)] * OPENERS,
            *[lambda: self._repeat("huge", huge)] * HUGE,
            *[self._dawdle] * SLOW,
        ]
        await asyncio.gather(*(self._keep_on(way) for way in ways))

    async def _keep_on(self, way: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while time.monotonic() < self._end:
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                async with asyncio.timeout(self._end - time.monotonic()):
                    await way()

    async def _repeat(self, kind: str, request: bytes) -> None:
        """Send a request again and again over one connection."""
        reader, writer = await asyncio.open_connection(*self.place)
        try:
            while True:
                writer.write(request)
                await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                self.answers[f"{kind} {head.split()[1].decode()}"] += 1
                if b"content-length" in head.lower():
                    length = head.lower().partition(b"content-length:")[2].split()[0]
                    await reader.readexactly(int(length))
                else:
                    return  # a stream; the next request gets a connection of its own
        finally:
            writer.close()

    async def _dawdle(self) -> None:
        """Announce a body and send it byte by byte."""
        reader, writer = await asyncio.open_connection(*self.place)
        try:
            writer.write(f"{self._head}Content-Length: 10000\r\n\r\n".encode())
            while not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(SLOW_SECONDS)
        finally:
            self.answers["slow bodies"] += 1
            writer.close()


def main() -> None:
    """Attack, and write what came back."""
    attacker = Attacker(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    sys.stdout.write("\n")
    sys.stdout.flush()
    asyncio.run(attacker.run())
    sys.stdout.write(json.dumps(attacker.answers))


if __name__ == "__main__":
    main()
