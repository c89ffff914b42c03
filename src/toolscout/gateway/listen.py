"""Where the gateway listens: a socket with a web server, or stdin and stdout.

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
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic_core import from_json
from starlette.types import ASGIApp

from toolscout.config.gateway import GatewayConfig
from toolscout.errors import InvalidConfig
from toolscout.gateway.shims import BufferedProtocol, UnauthenticatedConnections

BACKLOG = 2048
LINE_LIMIT = 256 << 20
"""The longest message on stdin, in bytes."""


async def serve_app(
    app: ASGIApp,
    config: GatewayConfig,
    *,
    on_stop: Callable[[], Awaitable[None]],
    ready: Callable[[str], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Serve an application until `stop` is set or a signal arrives.

    Calls `ready` with the address once the application answers. To stop, it refuses new connections
    and calls `on_stop`, which ends the open ones. Raises `InvalidConfig` if the address is not
    available.
    """
    stop = stop or asyncio.Event()
    with contextlib.closing(open_listener(config)) as listener, handle_signals(stop):
        host = f"[{config.host}]" if ":" in config.host else config.host
        address = f"http://{host}:{listener.getsockname()[1]}"
        announce = partial(ready, address)
        await serve_at(listener, app, config, on_stop=on_stop, ready=announce, stop=stop)


async def serve_at(
    listener: socket.socket,
    app: ASGIApp,
    config: GatewayConfig,
    *,
    on_stop: Callable[[], Awaitable[None]],
    ready: Callable[[], None],
    stop: asyncio.Event,
) -> None:
    """Do the same at a socket that listens already, without looking at signals."""

    class Protocol(BufferedProtocol):
        read_seconds = config.read_seconds
        unauthenticated = UnauthenticatedConnections(config.max_unauthenticated)

    web_config = uvicorn.Config(
        app,
        interface="asgi3",
        http=Protocol,
        log_config=None,  # keep the logging that the process has set up
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        # `on_stop` ends requests; this is for those that do not end even then.
        timeout_graceful_shutdown=math.ceil(config.stop_seconds) + 1,
    )
    server = _WebServer(web_config, ready)

    async def close() -> None:
        await stop.wait()
        server.should_exit = True
        await on_stop()

    closing = asyncio.create_task(close())
    try:
        await server.serve(sockets=[listener])
    finally:
        closing.cancel()


class _WebServer(uvicorn.Server):
    """A uvicorn server that calls `started` once it has started, and handles no signals."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        # uvicorn raises the signal again when it has stopped, which would end the process before
        # the gateway has stopped its servers.
        yield


def open_listener(config: GatewayConfig) -> socket.socket:
    """Return a socket that listens at the address of a gateway; raises `InvalidConfig`."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio sends small answers at once only if the socket names its protocol; otherwise each
    # would wait 40 ms for the client's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
        listener.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or "no such address"
        raise InvalidConfig(
            "gateway.port",
            f"is {config.port}, which is not available on {config.host} ({reason})",
            remedy="Stop the program that uses it, or choose another port; 0 takes a free one.",
        ) from None
    return listener


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


class StdinStream(ObjectReceiveStream[SessionMessage | Exception]):
    """Messages from stdin; for a line that is not a message, the error from parsing it."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; raise `EndOfStream` at the end."""
        try:
            line = await self._reader.readline()
        except ValueError as error:  # the line is too long; the next one may not be
            return error
        except ConnectionError:
            # A client that dies with answers unread resets its socket, and every further read
            # raises the same error at once: whoever went on would never let anybody else run.
            raise anyio.EndOfStream from None
        if not line:
            raise anyio.EndOfStream
        try:
            # In two steps, as in `servers.process`: this reads the text once.
            message = from_json(line)
            adapter = types.jsonrpc_message_adapter
            return SessionMessage(adapter.validate_python(message, by_name=False))
        except ValueError as error:
            return error

    async def aclose(self) -> None:
        """Close nothing: the process owns its stdin."""


class StdoutStream(ObjectSendStream[SessionMessage]):
    """Messages to stdout, each on a line of its own."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage) -> None:
        """Write one message; wait only if the client does not keep up."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._writer.write(f"{text}\n".encode())
        try:
            await self._writer.drain()
        except ConnectionError:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Close nothing: the process owns its stdout."""
