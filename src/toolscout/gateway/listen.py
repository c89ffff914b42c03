"""Where the gateway listens: a socket with a web server, or stdin and stdout.

`http` builds the application that the web server runs, and `server` answers on stdin and stdout.

The SDK reads and writes the standard streams in worker threads, which costs a call more time than
the rest of the gateway. `open_stdio` lets the event loop watch the pipes instead. While it is
entered, file descriptor 1 is stderr and 0 is the null device, so that no stray output gets into the
protocol. Streams that are not pipes, such as files, are left to the SDK.
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
LINE_LIMIT = 256 << 20
"""The longest message on stdin, in bytes."""


class WebServer(uvicorn.Server):
    """A uvicorn server that calls `started` once it has started, and handles no signals."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call `started`."""
        await super().startup(sockets)
        self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone."""
        # uvicorn raises the signal again when it has stopped, which would end the process before
        # the gateway has stopped its servers.
        yield


def build_web_config(app: ASGIApp, config: GatewayConfig) -> uvicorn.Config:
    """Return uvicorn's configuration for an application."""
    return uvicorn.Config(
        app,
        http=BufferedProtocol,
        log_config=None,  # keep the logging that the process has set up
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        # The gateway ends its streams itself; this is for requests that do not end even then.
        timeout_graceful_shutdown=math.ceil(config.stop_seconds) + 1,
    )


def open_listener(config: GatewayConfig) -> socket.socket:
    """Return a socket that listens at the configured address, or raise `InvalidConfig`."""
    try:
        return _bind(config.host, config.port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no such address"
        raise InvalidConfig(
            "gateway.port",
            f"is {config.port}, which is not available on {config.host} ({reason})",
            remedy="Stop the program that uses it, or choose another port; 0 takes a free one.",
        ) from None


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once only if the socket names its protocol; otherwise each
    # would wait 40 ms for the client's acknowledgement.
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
    """Set `stop` on SIGINT and SIGTERM; does nothing outside the main thread and on Windows."""
    loop = asyncio.get_running_loop()
    handled: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        with contextlib.suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
                handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def open_stdio() -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """Open the stream of messages from stdin and the stream of answers to stdout."""
    if sys.platform == "win32" or not (_is_pipe(0) and _is_pipe(1)):
        return stdio_server()
    return _open_pipes()


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@asynccontextmanager
async def _open_pipes() -> AsyncGenerator["tuple[StdinStream, StdoutStream]"]:
    loop = asyncio.get_running_loop()
    source = os.dup(0)
    sink = os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
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
    """Messages from stdin; for a line that is not a message, the error from parsing it."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; raise `EndOfStream` at the end."""
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
        """Write one message; wait only if the client does not keep up."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._writer.write(f"{text}\n".encode())
        try:
            await self._writer.drain()
        except ConnectionError:
            raise anyio.BrokenResourceError from None
