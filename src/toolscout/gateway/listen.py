"""Where the gateway listens: a socket with a web server, or stdin and stdout.

The SDK reads and writes the standard streams in worker threads, which costs a call more time than
the rest of the gateway. `open_stdio` lets the event loop watch the pipes instead. While it is
entered, file descriptor 1 is stderr and 0 is the null device, so that no stray output gets into the
protocol. Streams that are not pipes, such as files, are left to the SDK. `serve_streams` answers
what arrives there, and at the socket of the gateway in the background.
"""

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, cast

import anyio
import mcp_types as types
import uvicorn
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server import Server, runner
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.stdio import stdio_server
from mcp.shared.dispatcher import CallOptions, Outbound, as_request_id, coerce_request_id
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp.shared.jsonrpc_dispatcher import (
    cancelled_request_id_from_params,
    progress_token_from_params,
)
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json
from starlette.types import ASGIApp

from toolscout.config.gateway import GatewayConfig
from toolscout.errors import InvalidConfig
from toolscout.gateway.shims import BufferedProtocol, UnauthenticatedConnections, connect_client
from toolscout.names import to_one_line
from toolscout.schemas import Json, is_object
from toolscout.servers.connection import SAID_CHARS
from toolscout.servers.process import dump_json

BACKLOG = 2048
LINE_LIMIT = 256 << 20
"""The longest message on stdin, in bytes."""
LEAD_MESSAGES = 8
"""After as many messages without a request, a client is served as one of the handshake era."""
LAST_SECONDS = 1.0
"""How long the last answers may take to be sent when a client leaves."""
NO_REQUEST = (
    "A request needs an id that is a text or a whole number, and params that are an object."
)

_log = logging.getLogger(__name__)


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
    reader = LineReader()
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


class LineReader(asyncio.StreamReader):
    """A reader of lines that can pass them on in the turn of the event loop in which they arrive.

    Whoever waits for a line gets it one turn later.
    """

    def __init__(self) -> None:
        super().__init__(limit=LINE_LIMIT)
        self.take_line: Callable[[bytes], None] | None = None
        """Called with each line that arrives whole while no other waits to be read."""
        self._unread = 0

    def feed_data(self, data: Any) -> None:
        """Pass whole lines on, or keep the data until it is read."""
        if self.take_line is None or self._unread or not data.endswith(b"\n"):
            self._unread += len(data)
            super().feed_data(data)
            return
        for line in data[:-1].split(b"\n"):
            self.take_line(line)

    async def readline(self) -> bytes:
        """Return the next line that was not passed on."""
        try:
            line = await super().readline()
        except ValueError:  # it is too long, and nobody knows how much of it was dropped
            self.take_line = None
            raise
        self._unread -= len(line)
        return line


class StdinStream(ObjectReceiveStream[SessionMessage | Exception]):
    """Messages from stdin; for a line that is not a message, the error from parsing it."""

    def __init__(self, reader: LineReader) -> None:
        self._reader = reader
        self._again: list[Any] = []

    def pass_on(self, take: Callable[[Any], None]) -> None:
        """Call `take` with most messages as soon as they arrive; the others are to be received."""
        self._reader.take_line = lambda line: take(self.read_json(line))

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; raise `EndOfStream` at the end."""
        message = await self.receive_json()
        try:
            adapter = types.jsonrpc_message_adapter
            return SessionMessage(adapter.validate_python(message, by_name=False))
        except ValueError as error:
            return error

    async def receive_json(self) -> Any:
        """Return the next message as it was sent, or the error from parsing it."""
        if self._again:
            return self._again.pop(0)
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
        return self.read_json(line)

    def read_json(self, line: bytes) -> Any:
        """Return the message in a line, or the error from parsing it."""
        try:
            return from_json(line)
        except ValueError as error:
            return error

    def put_back(self, messages: list[Any]) -> None:
        """Let these messages be received again, before all others."""
        self._again[:0] = messages

    async def aclose(self) -> None:
        """Close nothing: the process owns its stdin."""


class StdoutStream(ObjectSendStream[SessionMessage]):
    """Messages to stdout, each on a line of its own."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage) -> None:
        """Write one message; wait only if the client does not keep up."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._write(text.encode())

    async def send_json(self, message: Json) -> None:
        """Do the same with a message that is plain JSON."""
        await self._write(dump_json(message))

    async def _write(self, line: bytes) -> None:
        self._writer.write(line + b"\n")
        try:
            await self._writer.drain()
        except ConnectionError:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Close nothing: the process owns its stdout."""


async def serve_streams(server: Server[Any], read: Any, write: Any) -> None:
    """Serve one client over a pair of streams, in the era that its first request belongs to."""
    sdk: Any = runner
    async with server.lifespan(server) as state:
        if not (isinstance(read, StdinStream) and isinstance(write, StdoutStream)):
            await runner.serve_dual_era_loop(server, read, write, lifespan_state=state)
        elif await _is_modern(read):
            await _ModernClient(server, read, write, state).serve()
        else:
            await sdk._serve_legacy_stream(
                server,
                read,
                write,
                lifespan_state=state,
                session_id=None,
                init_options=server.create_initialization_options(),
                raise_exceptions=False,
            )


async def _is_modern(read: StdinStream) -> bool:
    """Tell whether the first request of a client is one of 2026-07-28."""
    sdk: Any = runner
    lead: list[Any] = []
    opening: Json = {}
    with contextlib.suppress(anyio.EndOfStream):
        while not opening and len(lead) < LEAD_MESSAGES:
            message = await read.receive_json()
            lead.append(message)
            if is_object(message) and "id" in message and "method" in message:
                opening = message
    read.put_back(lead)
    params = opening.get("params")
    is_modern = is_object(params) and sdk._has_modern_envelope(params)
    return is_modern and opening["method"] != "initialize"


class _ModernClient:
    """Serves a client of 2026-07-28, which no server ever asks anything.

    The SDK reads every message into a model, opens a scope, an event and two contexts for each
    request, and reads who the client is again each time. Here a request is one object and one task.
    Without this, a call used 9 per cent more processor time of the gateway, and a search 13.
    """

    def __init__(
        self, server: Server[Any], read: StdinStream, write: StdoutStream, state: Any
    ) -> None:
        self._server = server
        self._read = read
        self._write = write
        self._state = state
        self._outbound = NotifyOnlyOutbound(cast("Outbound", self))
        self._requests: dict[types.RequestId | None, _ModernRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Serve the client until it leaves."""
        self._read.pass_on(self._take)
        try:
            with contextlib.suppress(anyio.EndOfStream):
                while True:
                    self._take(await self._read.receive_json())
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=LAST_SECONDS)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Tell the client something, unless it is gone."""
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self._send(message)

    def _take(self, message: object) -> None:
        """Begin to answer a message."""
        if isinstance(message, Exception):
            told = f"This is no message: {to_one_line(str(message), SAID_CHARS)}."
            error = types.ErrorData(code=types.PARSE_ERROR, message=told)
            self._start(self._send(_make_error(None, error)))
            return
        if not is_object(message) or not isinstance(message.get("method"), str):
            _log.debug("Left out what is no request: %r", message)
            return
        method: str = message["method"]
        params: object = message.get("params")
        number = as_request_id(message.get("id"))
        if "id" not in message:
            given = params if is_object(params) else {}
            if method == "notifications/cancelled":
                asked = cancelled_request_id_from_params(given)
                request = (
                    self._requests.get(coerce_request_id(asked)) if asked is not None else None
                )
                if request is not None:
                    request.cancel()
            else:
                self._start(self._note(method, given))
        elif number is None or not (params is None or is_object(params)):
            error = types.ErrorData(code=types.INVALID_REQUEST, message=NO_REQUEST)
            self._start(self._send(_make_error(number, error)))
        else:
            request = _ModernRequest(self, number, params or {})
            self._requests[_to_key(number)] = request
            request.task = self._start(self._answer(request, method, params))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _answer(self, request: "_ModernRequest", method: str, params: Json | None) -> None:
        try:
            result = await self._handle(request, method, params)
            answer: Json = {"jsonrpc": "2.0", "id": request.request_id, "result": result}
        except asyncio.CancelledError:
            if request.is_cancelled:
                return
            ended = types.ErrorData(code=types.CONNECTION_CLOSED, message="Connection closed")
            answer = _make_error(request.request_id, ended)
        except Exception as error:
            answer = _make_error(request.request_id, runner.modern_error_data(error))
        finally:
            request.is_over = True
            key = _to_key(request.request_id)
            if self._requests.get(key) is request:
                del self._requests[key]
        if not request.is_cancelled:
            await self._send(answer)

    async def _handle(self, request: "_ModernRequest", method: str, params: Json | None) -> Json:
        if method == "initialize":
            sdk: Any = runner
            raise MCPError(
                code=types.UNSUPPORTED_PROTOCOL_VERSION,
                message="This connection uses 2026-07-28, which has no initialize request.",
                data=sdk._initialize_after_modern_data(params),
            )
        route = classify_inbound_request({"method": method, "params": params})
        if not isinstance(route, InboundModernRoute):
            raise MCPError(code=route.code, message=route.message, data=route.data)
        connection = connect_client(route, self._outbound)
        kernel = runner.ServerRunner(self._server, connection, self._state)
        try:
            return await kernel.on_request(cast("Any", request), method, params)
        finally:
            # The gateway adds no callback that waits, so nothing has to be shielded.
            await connection.exit_stack.aclose()

    async def _note(self, method: str, params: Json) -> None:
        """Handle a notification; the SDK logs what goes wrong with it."""
        version = MODERN_PROTOCOL_VERSIONS[-1]
        connection = Connection.from_envelope(version, None, None, outbound=self._outbound)
        kernel = runner.ServerRunner(self._server, connection, self._state)
        async with connection.exit_stack:
            await kernel.on_notify(cast("Any", _ModernRequest(self, None, params)), method, params)

    async def _send(self, message: Json) -> None:
        with contextlib.suppress(anyio.BrokenResourceError):  # the client is gone
            await self._write.send_json(message)


class _ModernRequest:
    """What the SDK's handlers know of a request or a notification."""

    transport = TransportContext(kind="jsonrpc", can_send_request=False)
    can_send_request = False
    message_metadata = None

    def __init__(
        self, client: _ModernClient, request_id: types.RequestId | None, params: Json
    ) -> None:
        self.request_id = request_id
        self.is_cancelled = False
        self.is_over = False
        self.task: asyncio.Task[None] | None = None
        self._client = client
        self._token = progress_token_from_params(params)

    def cancel(self) -> None:
        """End the request; it gets no answer."""
        self.is_cancelled = True
        if self.task is not None:
            self.task.cancel()

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Tell the client something that belongs to the request, unless it is over."""
        if not self.is_over:
            await self._client.notify(method, params)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if the client wants to hear of it."""
        if self._token is None:
            return
        given = {"progressToken": self._token, "progress": progress}
        given |= {} if total is None else {"total": total}
        given |= {} if message is None else {"message": message}
        await self.notify("notifications/progress", given)

    async def send_raw_request(self, method: str, *_: object) -> Json:
        """Raise `NoBackChannelError`: servers ask nothing in this version."""
        raise NoBackChannelError(method)


def _to_key(number: types.RequestId | None) -> types.RequestId | None:
    return None if number is None else coerce_request_id(number)


def _make_error(number: types.RequestId | None, error: types.ErrorData) -> Json:
    told = error.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {"jsonrpc": "2.0", "id": number, "error": told}
