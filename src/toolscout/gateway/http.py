"""The gateway over HTTP: MCP for both protocol eras, and pages for operators and probes.

`/mcp` is streamable HTTP; `/sse` and `/messages/` serve older clients; `/healthz`, `/readyz`,
`/metrics` and `/status` tell how the gateway is. Who may ask is decided by `access`.

`Pages`: what the gateway serves over HTTP beside MCP, such as the console.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol, cast

import uvicorn
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult
from mcp.server.sse import SseServerTransport
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from toolscout.config.gateway import GatewayConfig
from toolscout.errors import ToolscoutError
from toolscout.gateway.auth import Access, Principal
from toolscout.gateway.forward import Context
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.listen import (
    WebServer,
    address_of,
    listening,
    settings_of,
    stopped_by_signals,
)
from toolscout.gateway.metrics import Metrics
from toolscout.gateway.middleware import (
    LISTENING,
    PRINCIPAL,
    Ending,
    Guard,
    Traffic,
    headers_of,
    problem,
)
from toolscout.gateway.resume import (
    DAY_SECONDS,
    OWN_SESSION,
    SESSION,
    SSE,
    Guests,
    Revival,
    name_of,
    owner_of,
)
from toolscout.gateway.server import server_of
from toolscout.gateway.shims import Lanes, asked_method
from toolscout.gateway.status import readiness, status
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.sessions.session import Session
from toolscout.tools import Tool


class Pages(Protocol):
    """What is served beside MCP, and is told who comes and what they are listed."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """What is served."""
        ...

    def is_public(self, path: str) -> bool:
        """Tell whether anybody may load a path, with a token or without."""
        ...

    def run(self) -> AbstractAsyncContextManager[None]:
        """Work while this is entered."""
        ...

    async def close(self) -> None:
        """End what would hold the gateway up."""
        ...

    def meet(self, session: str, principal: Principal, client: str) -> None:
        """Take note of who speaks in a session, and with which program."""
        ...

    def list(
        self,
        session: str,
        principal: Principal,
        visible: Callable[[], Sequence[Tool]],
        listed: Sequence[Json],
    ) -> None:
        """Take note of a list of tools that was sent; `visible` gives all there are."""
        ...


MCP_PATH, MESSAGES_PATH = "/mcp", "/messages/"
SESSIONS_KEPT = 1_000
"""Sessions that stay open between requests; others are opened again from the store."""
SESSION_IDLE_SECONDS = 6 * 3600.0
"""How long a handshake client may ask nothing and keep no stream open before it is forgotten."""
SAID_AGAIN = ("notifications/initialized", "resources/subscribe", "resources/unsubscribe")
LOOPBACK_ORIGIN = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"

_log = logging.getLogger(__name__)


async def serve_http(
    gateway: Gateway,
    config: GatewayConfig,
    *,
    metrics: Metrics | None = None,
    pages: Pages | None = None,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set or a signal says so; running calls may end first.

    `ready` is told the address once requests are answered. Raises `InvalidConfig` for an address
    that cannot be had, or that others reach while there is no token.
    """
    stop = stop or asyncio.Event()
    face = _Face(gateway, config, metrics or Metrics(), pages)
    with contextlib.closing(listening(config)) as listener, stopped_by_signals(stop):
        address = address_of(config.host, listener.getsockname()[1])
        server = WebServer(settings_of(face.app, config), lambda: _announce(address, ready))
        closing = asyncio.create_task(_close(server, face, stop, config.stop_seconds))
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
            return f"{SSE}{request.query_params['session_id']}", principal
        return name_of(request.scope[SESSION]), principal
    return f"principal:{principal.name}", principal


class _Face:
    """One gateway's application, and what is needed to stop it."""

    def __init__(
        self, gateway: Gateway, config: GatewayConfig, metrics: Metrics, pages: Pages | None
    ) -> None:
        self.traffic = Traffic()
        self._gateway, self._metrics, self._pages = gateway, metrics, pages
        # Opening a session looks at every tool that its profile may admit.
        self._session = lru_cache(maxsize=SESSIONS_KEPT)(gateway.session)
        metrics.watch(gateway.catalog, gateway.pool)
        self._guests = Guests(gateway.store, config.session_days, gateway.scout.forget)
        self._lanes = Lanes(
            self._server, max_body_bytes=config.max_body_bytes, idle_seconds=SESSION_IDLE_SECONDS
        )
        self.app = self._app(config)

    def _server(self) -> Server[Any]:
        server = server_of(self._gateway, self._session_of)
        server.middleware.append(self._watch)
        return server

    def _app(self, config: GatewayConfig) -> ASGIApp:
        mcp = Ending(Revival(self._lanes, self._guests), self.traffic)
        others = self._others(mcp, _OldClients(self._server(), config.max_body_bytes))
        shared = CORSMiddleware(
            _Fork(mcp, others),
            allow_origins=config.origins,
            allow_origin_regex=LOOPBACK_ORIGIN,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("Mcp-Session-Id", "WWW-Authenticate"),
        )
        return Guard(
            shared,
            access=Access(config),
            max_body_bytes=config.max_body_bytes,
            is_public=self._pages.is_public if self._pages is not None else None,
        )

    def _others(self, mcp: ASGIApp, old: "_OldClients") -> Starlette:
        """Return what answers beside MCP, and knows that `/mcp/` means `/mcp`."""
        return Starlette(
            routes=[
                Route(MCP_PATH, mcp),
                Route("/sse", Ending(old, self.traffic)),
                Mount(MESSAGES_PATH, old.transport.handle_post_message),
                Route("/healthz", _healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics_page),
                Route("/status", self._status),
                *(self._pages.routes if self._pages is not None else ()),
            ],
            exception_handlers={404: _not_found, 405: _wrong_method},
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        pages = self._pages.run() if self._pages is not None else contextlib.nullcontext()
        async with self._lanes.run(), pages:
            sweeping = asyncio.create_task(self._sweep())
            try:
                yield
            finally:
                sweeping.cancel()
                await asyncio.wait((sweeping,))

    async def _sweep(self) -> None:
        """Forget sessions whose clients stayed away, at start and daily."""
        while True:
            try:
                gone = await asyncio.to_thread(self._guests.sweep)
            except ToolscoutError as error:
                _log.warning("Old sessions could not be removed: %s", error)
            else:
                _log.info("Sessions removed for their age: %d.", gone)
            await asyncio.sleep(DAY_SECONDS)

    async def stop(self, seconds: float) -> None:
        """End streams in good order, then all requests once nothing runs any more."""
        await self._gateway.subscriptions.close()
        if self._pages is not None:
            await self._pages.close()
        await self.traffic.stop(seconds)

    def _session_of(self, context: Context) -> Session:
        client, principal = client_of(context)
        if client.startswith(OWN_SESSION):
            self._guests.touch(client)
        if self._pages is not None:
            self._pages.meet(client, principal, _program(context))
        return self._session(client, principal.profile)

    async def _watch(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        # Over SSE, a request is answered long after its post has ended.
        is_work = ctx.request_id is not None and ctx.method != LISTENING
        with self.traffic.counted if is_work else contextlib.nullcontext():
            result = await call_next(ctx)
        if _is_list(ctx) and isinstance(result, dict):
            self._count_list(ctx, result["tools"])
        if ctx.method in SAID_AGAIN and ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            self._note_guest(ctx)
        return result

    def _count_list(self, ctx: Context, listed: Sequence[Json]) -> None:
        client, principal = client_of(ctx)
        visible, version = self._session_of(ctx).visible, self._gateway.catalog.version
        self._metrics.note_list(principal.name, version, visible, listed)
        if self._pages is not None:
            self._pages.list(client, principal, visible, listed)

    def _note_guest(self, ctx: Context) -> None:
        """Keep what a client of the handshake era would have to say again after a restart."""
        client, _ = client_of(ctx)
        if ctx.method == "notifications/initialized":
            self._greet(client, ctx)
        else:
            wanted = ctx.method == "resources/subscribe"
            self._guests.subscribe(client, str((ctx.params or {})["uri"]), wanted=wanted)

    def _greet(self, client: str, ctx: Context) -> None:
        hello = ctx.session.client_params
        if hello is not None and not client.startswith(SSE):
            self._guests.greet(
                client,
                owner=owner_of(cast("Request", ctx.request).scope),
                version=ctx.protocol_version,
                hello=hello.model_dump(by_alias=True, mode="json", exclude_none=True),
            )

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


class _Fork:
    """Leads requests of MCP straight to it: the routes beside it would look at each first."""

    def __init__(self, mcp: ASGIApp, others: ASGIApp) -> None:
        self._mcp, self._others = mcp, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_mcp = scope["type"] == "http" and scope["path"] == MCP_PATH
        await (self._mcp if is_mcp else self._others)(scope, receive, send)


class _OldClients:
    """Serves the transport of 2024: one stream for answers, and posts for questions."""

    def __init__(self, server: Server[Any], max_body_bytes: int) -> None:
        self.transport = SseServerTransport(MESSAGES_PATH, max_request_body_size=max_body_bytes)
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await problem("wrong_method", 405, headers={"Allow": "GET"})(scope, receive, send)
            return
        options = self._server.create_initialization_options()
        async with self.transport.connect_sse(scope, receive, send) as (read, write):
            await self._server.run(read, write, options)


async def _close(server: uvicorn.Server, face: _Face, stop: asyncio.Event, seconds: float) -> None:
    """Take no more connections once told to stop, and end the ones there are in order."""
    await stop.wait()
    server.should_exit = True
    await face.stop(seconds)


async def _healthz(request: Request) -> Response:
    return JSONResponse({"alive": True})


async def _not_found(request: Request, error: Exception) -> Response:
    return problem("not_found", 404)


async def _wrong_method(request: Request, error: Exception) -> Response:
    allowed = error.headers if isinstance(error, HTTPException) else None
    return problem("wrong_method", 405, headers=allowed or {"Allow": "GET"})


def _is_list(ctx: Context) -> bool:
    """Tell whether a client asked for its tools; the SDK lists them itself before some calls."""
    if ctx.method != "tools/list":
        return False
    asked = asked_method(headers_of(cast("Request", ctx.request).scope))
    return asked in (None, "tools/list")


def _is_limited(request: Request) -> bool:
    """Tell whether somebody sees a part of the catalogue only."""
    principal: Principal = request.scope[PRINCIPAL]
    return principal.profile is not None


def _program(ctx: Context) -> str:
    """Return what a client calls itself."""
    hello = ctx.session.client_params
    return _shown(hello.client_info.name, hello.client_info.version) if hello else ""


@lru_cache(maxsize=SESSIONS_KEPT)
def _shown(program: str, version: str) -> str:
    # Every request tells it, and few programs ask.
    return to_one_line(f"{program} {version}", 80)


def _announce(address: str, ready: Callable[[str], None] | None) -> None:
    _log.info("Serving MCP at %s/mcp.", address)
    if ready is not None:
        ready(address)
