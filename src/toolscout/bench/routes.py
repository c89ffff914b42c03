"""`Routes`: the same servers and gateways, reached over stdio or over HTTP.

Takes how many tools to offer; gives connected clients: of the servers themselves, of toolscout
before them and, where it is installed, of FastMCP's proxy before them. On a route of HTTP, the
gateways reach their servers over HTTP too, so that each hop is of one kind.
"""

import asyncio
import json
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from toolscout.schemas import Json

Transport = Literal["stdio", "http"]
READY_SECONDS = 30.0
STOP_SECONDS = 10.0

_FASTMCP = """
import asyncio, json, logging, sys
from fastmcp import Client
from fastmcp.server import create_proxy
from fastmcp.server.transforms.search import BM25SearchTransform

async def main():
    logging.disable(logging.CRITICAL)
    # A client that is connected already is kept; otherwise each call would start its server anew.
    async with Client(json.loads(sys.argv[1])) as servers:
        proxy = create_proxy(servers)
        proxy.add_transform(BM25SearchTransform())
        await proxy.run_async(show_banner=False, **json.loads(sys.argv[2]))

asyncio.run(main())
"""


class Routes:
    """Ways to the servers over one transport; what it starts ends with the stack."""

    def __init__(
        self, transport: Transport, folder: Path, stack: AsyncExitStack, *, tools: int
    ) -> None:
        self._transport, self._stack = transport, stack
        self._config = folder / f"{transport}.json"
        self._servers: dict[str, tuple[str, ...]] = {
            "time": ("mcp_server_time",) if transport == "stdio" else ("toolscout.bench.clock",),
            "many": ("toolscout.bench.offering", "--tools", str(tools)),
        }
        self._rows: dict[str, Json] = {}

    async def open(self) -> None:
        """Start what is reached over HTTP, and write the gateways' configuration."""
        for name, words in self._servers.items():
            row: Json = {"command": sys.executable, "args": ["-m", *words]}
            if self._transport == "http":
                row = {"type": "http", "url": await self._started(("-m", *words))}
            self._rows[name] = row
        text = json.dumps({"mcpServers": self._rows})
        await asyncio.to_thread(self._config.write_text, text, encoding="utf-8")

    async def server(self, name: str) -> Client:
        """Return a client of a server itself."""
        row = self._rows[name]
        return await self._entered(row["url"] if "url" in row else _process(row["args"]))

    async def toolscout(self) -> Client:
        """Return a client of a fresh gateway."""
        cache = ("--cache", str(self._config.parent))
        words = ("-m", "toolscout", "serve", "--config", str(self._config), *cache)
        if self._transport == "stdio":
            return await self._entered(_process(words))
        return await self._entered(await self._started((*words, "--http")))

    async def fastmcp(self) -> Client | None:
        """Return a client of FastMCP's proxy, if FastMCP is installed."""
        if find_spec("fastmcp") is None:
            return None
        words = ("-c", _FASTMCP, json.dumps({"mcpServers": self._rows}))
        if self._transport == "stdio":
            return await self._entered(_process((*words, "{}")))
        port = _free_port()
        options = json.dumps({"transport": "http", "host": "127.0.0.1", "port": port})
        return await self._entered(await self._listening((*words, options), port))

    async def _entered(self, server: str | StdioServerParameters) -> Client:
        return await self._stack.enter_async_context(Client(server))

    async def _started(self, words: Sequence[str]) -> str:
        port = _free_port()
        return await self._listening((*words, "--port", str(port)), port)

    async def _listening(self, words: Sequence[str], port: int) -> str:
        """Start a process and return its address once it listens."""
        nowhere = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )
        self._stack.push_async_callback(_end, process)
        async with asyncio.timeout(READY_SECONDS):
            while not await _is_listening(port):
                if process.returncode is not None:
                    raise RuntimeError(f"A server that is measured ended: {' '.join(words[:2])}.")
                await asyncio.sleep(0.05)
        return f"http://127.0.0.1:{port}/mcp"


def _process(words: Sequence[str]) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=list(words))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


async def _is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
