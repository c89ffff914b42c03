"""The gateway over HTTP: MCP for both protocol eras, and pages for operators and probes.

`/mcp` is streamable HTTP; `/sse` and `/messages/` serve older clients; `/healthz`, `/readyz`,
`/metrics` and `/status` tell how the gateway is. Who may ask is decided by `access`.
"""

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast

import uvicorn
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from toolscout.errors import InvalidConfig
from toolscout.gateway.access import Access, Principal
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.guards import (
    LISTENING,
    MAX_BODY_BYTES,
    PRINCIPAL,
    Ending,
    Guard,
    Traffic,
    problem,
)
from toolscout.gateway.metrics import Metrics
from toolscout.gateway.passages import Context
from toolscout.gateway.reports import readiness, status
from toolscout.gateway.server import server_of
from toolscout.sessions import Session
from toolscout.upstream.gateways import GatewayConfig

MESSAGES_PATH = "/messages/"
SESSION_HEADER = "mcp-session-id"
SESSIONS_KEPT = 1_000
"""Sessions that stay open between requests; others are opened again from the store."""
BACKLOG = 2048
LOOPBACK_ORIGIN = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"

_log = logging.getLogger(__name__)


def app_of(gateway: Gateway, config: GatewayConfig, *, metrics: Metrics | None = None) -> Starlette:
    """Return the gateway as an ASGI application; `metrics` should hear the gateway's events."""
    return _Face(gateway, config, metrics or Metrics()).app


async def serve_http(
    gateway: Gateway,
    config: GatewayConfig,
    *,
    metrics: Metrics | None = None,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set or a signal says so; running calls may end first.

    `ready` is told the address once requests are answered. Raises `InvalidConfig` for an address
    that cannot be had, or that others reach while there is no token.
    """
    stop = stop or asyncio.Event()
    face = _Face(gateway, config, metrics or Metrics())
    with contextlib.closing(_listener(config)) as listener, _signals(stop):
        address = _address(config.host, listener.getsockname()[1])
        server = _Uvicorn(_settings(face.app, config), lambda: _announce(address, ready))
        closing = asyncio.create_task(_close(server, face.traffic, stop, config.stop_seconds))
        try:
            await server.serve(sockets=[listener])
        finally:
            closing.cancel()


def client_of(context: Context) -> tuple[str, Principal]:
    """Return the name under which a client's session is kept, and who the client is.

    A client of the handshake era has a session of its own; later ones have none on the wire and
    share their principal's. The SDK has checked the ids, but only for the era they belong to.
    """
    request = cast("Request", context.request)
    principal: Principal = request.scope[PRINCIPAL]
    if context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        if request.url.path.startswith(MESSAGES_PATH):
            return f"sse:{request.query_params['session_id']}", principal
        return f"http:{request.headers[SESSION_HEADER]}", principal
    return f"principal:{principal.name}", principal


class _Face:
    """One gateway's application, and what is needed to stop it."""

    def __init__(self, gateway: Gateway, config: GatewayConfig, metrics: Metrics) -> None:
        self.traffic = Traffic()
        self._gateway, self._metrics = gateway, metrics
        # Opening a session looks at every tool that its profile may admit.
        self._session = lru_cache(maxsize=SESSIONS_KEPT)(gateway.session)
        metrics.watch(gateway.catalog, gateway.pool)
        server = server_of(gateway, self._session_of)
        server.middleware += [self._count_work, self._count_lists]
        self._manager = StreamableHTTPSessionManager(server, max_request_body_size=MAX_BODY_BYTES)
        self.app = self._app(server, config)

    def _app(self, server: Server[Any], config: GatewayConfig) -> Starlette:
        old = _OldClients(server)
        cors = Middleware(
            CORSMiddleware,
            allow_origins=config.origins,
            allow_origin_regex=LOOPBACK_ORIGIN,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("Mcp-Session-Id", "WWW-Authenticate"),
        )
        return Starlette(
            routes=[
                Route("/mcp", Ending(StreamableHTTPASGIApp(self._manager), self.traffic)),
                Route("/sse", Ending(old, self.traffic)),
                Mount(MESSAGES_PATH, old.transport.handle_post_message),
                Route("/healthz", _healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics_page),
                Route("/status", self._status),
            ],
            middleware=[Middleware(Guard, access=Access(config)), cors],
            exception_handlers={404: _not_found, 405: _wrong_method},
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        async with self._manager.run():
            yield

    def _session_of(self, context: Context) -> Session:
        client, principal = client_of(context)
        return self._session(client, principal.profile)

    async def _count_work(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        # Over SSE, a request is answered long after its post has ended.
        is_work = ctx.request_id is not None and ctx.method != LISTENING
        with self.traffic.counted() if is_work else contextlib.nullcontext():
            return await call_next(ctx)

    async def _count_lists(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "tools/list" and isinstance(result, dict):
            _, principal = client_of(ctx)
            self._metrics.note_list(
                principal.name,
                self._gateway.catalog.version,
                lambda: self._session_of(ctx).visible(),
                result["tools"],
            )
        return result

    async def _readyz(self, request: Request) -> Response:
        told = readiness(self._gateway)
        return JSONResponse(told, 200 if told["ready"] else 503)

    async def _metrics_page(self, request: Request) -> Response:
        if _is_limited(request):
            return problem("limited", 403)
        # The first look counts tokens, which may take a second.
        text = await asyncio.to_thread(self._metrics.text)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def _status(self, request: Request) -> Response:
        if _is_limited(request):
            return problem("limited", 403)
        totals = await asyncio.to_thread(self._metrics.totals)
        now = asyncio.get_running_loop().time()
        return JSONResponse(status(self._gateway, totals, now=now, wall=datetime.now(UTC)))


class _OldClients:
    """Serves the transport of 2024: one stream for answers, and posts for questions."""

    def __init__(self, server: Server[Any]) -> None:
        self.transport = SseServerTransport(MESSAGES_PATH, max_request_body_size=MAX_BODY_BYTES)
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await problem("wrong_method", 405, headers={"Allow": "GET"})(scope, receive, send)
            return
        options = self._server.create_initialization_options()
        async with self.transport.connect_sse(scope, receive, send) as (read, write):
            await self._server.run(read, write, options)


class _Uvicorn(uvicorn.Server):
    """A server that tells when it has started and leaves signals to others."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        # uvicorn sends itself the signal again when done, which would end the process before
        # the servers behind the gateway are stopped.
        yield


async def _close(
    server: uvicorn.Server, traffic: Traffic, stop: asyncio.Event, seconds: float
) -> None:
    """Take no more connections once told to stop, and end the ones there are in order."""
    await stop.wait()
    server.should_exit = True
    await traffic.stop(seconds)


async def _healthz(request: Request) -> Response:
    return JSONResponse({"alive": True})


async def _not_found(request: Request, error: Exception) -> Response:
    return problem("not_found", 404)


async def _wrong_method(request: Request, error: Exception) -> Response:
    return problem("wrong_method", 405, headers={"Allow": "GET"})


def _is_limited(request: Request) -> bool:
    """Tell whether somebody sees a part of the catalogue only."""
    principal: Principal = request.scope[PRINCIPAL]
    return principal.profile is not None


def _settings(app: Starlette, config: GatewayConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,  # whoever set up logging keeps it: stdout is not ours
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        # By then the streams have been ended; this is for what would not end.
        timeout_graceful_shutdown=math.ceil(config.stop_seconds) + 1,
    )


def _listener(config: GatewayConfig) -> socket.socket:
    try:
        return _bound(config.host, config.port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no such address"
        raise InvalidConfig(
            "gateway.port",
            f"is {config.port}, which cannot be had at {config.host!r} ({reason})",
            remedy="Stop what listens there, or choose another port; 0 takes a free one.",
        ) from None


def _bound(host: str, port: int) -> socket.socket:
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


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _announce(address: str, ready: Callable[[str], None] | None) -> None:
    _log.info("Serving MCP at %s/mcp.", address)
    if ready is not None:
        ready(address)


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Generator[None]:
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
