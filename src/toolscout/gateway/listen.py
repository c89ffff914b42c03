"""Where the gateway listens: its socket, the web server behind it, and what ends both.

Knows nothing of MCP; `http` is what is served.

stdin and stdout as the two ends of one MCP connection, without a thread between.

The SDK reads and writes the standard streams in worker threads, which costs a call more than all
that the gateway does with it. Here the event loop watches the pipes itself. While it serves, file
descriptor 1 leads to stderr and 0 to nowhere, so that no stray output gets into the protocol.
Streams that are no pipes, such as files, are left to the SDK.
"""

import asyncio
import contextlib
import math
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from starlette.types import ASGIApp

from toolscout.config.gateway import GatewayConfig
from toolscout.errors import InvalidConfig
from toolscout.gateway.shims import BufferedProtocol
from toolscout.servers.process import ReadStream, Stream

BACKLOG = 2048


class WebServer(uvicorn.Server):
    """A server that tells when it has started and leaves signals to others."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell so."""
        await super().startup(sockets)
        self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone."""
        # uvicorn sends itself the signal again when done, which would end the process before
        # the servers behind the gateway are stopped.
        yield


def build_web_config(app: ASGIApp, config: GatewayConfig) -> uvicorn.Config:
    """Return how an application is served."""
    return uvicorn.Config(
        app,
        http=BufferedProtocol,
        log_config=None,  # whoever set up logging keeps it: stdout is not ours
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        # By then the streams have been ended; this is for what would not end.
        timeout_graceful_shutdown=math.ceil(config.stop_seconds) + 1,
    )


def open_listener(config: GatewayConfig) -> socket.socket:
    """Return a socket at the configured address, or raise `InvalidConfig`."""
    try:
        return _bind(config.host, config.port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no such address"
        raise InvalidConfig(
            "gateway.port",
            f"is {config.port}, which cannot be had at {config.host!r} ({reason})",
            remedy="Stop what listens there, or choose another port; 0 takes a free one.",
        ) from None


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sends small answers at once only where it is; without
    # it, each would wait 40 ms for the client's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def format_address(host: str, port: int) -> str:
    """Return the URL of an address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def handle_signals(stop: asyncio.Event) -> Generator[None]:
    """Have the usual signals stop the gateway; a thread hears none, and Windows has its own."""
    loop = asyncio.get_running_loop()
    heard: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        with contextlib.suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
                heard.append(number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


LINE_LIMIT = 256 << 20
"""Bytes of the longest message."""


def open_stdio() -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """Return the messages that come in on stdin, and where to send answers."""
    if sys.platform == "win32" or not (_is_pipe(0) and _is_pipe(1)):
        return stdio_server()
    return _open_pipes()


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@asynccontextmanager
async def _open_pipes() -> AsyncGenerator["tuple[StdinStream, StdoutStream]"]:
    loop = asyncio.get_running_loop()
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    os.close(nowhere)
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", buffering=0)
    )
    writing, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(sink, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(writing, protocol, None, loop)
    try:
        yield StdinStream(reader), StdoutStream(writer)
    finally:
        reading.close()
        writing.close()


class StdinStream(ReadStream):
    """Messages from stdin; what is no message comes as the error that reading it gave."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or end the stream."""
        try:
            line = await self._reader.readline()
        except (ValueError, ConnectionError) as error:
            return error
        if not line:
            raise anyio.EndOfStream
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            return error


class StdoutStream(Stream):
    """Messages to stdout, each on a line of its own."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message; waits only while the client does not read."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._writer.write(f"{text}\n".encode())
        try:
            await self._writer.drain()
        except ConnectionError:
            raise anyio.BrokenResourceError from None
