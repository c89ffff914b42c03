"""The gateway over HTTP: MCP for new and old clients, and pages for operators and probes.

`/mcp` is streamable HTTP; `/sse` and `/messages/` serve older clients; `/healthz`, `/readyz`,
`/metrics` and `/status` report the state of the gateway. A `WebPages`, such as the console, adds
routes of its own. `middleware` decides which requests are admitted.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult
from mcp.server.sse import SseServerTransport
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscout.config.gateway import GatewayConfig
from toolscout.errors import ToolscoutError
from toolscout.gateway.events import Listed, Requested, TokenRefused
from toolscout.gateway.forward import Context, mark_stored
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.listen import serve_app
from toolscout.gateway.metrics import Metrics, build_readiness, build_status
from toolscout.gateway.middleware import (
    ANONYMOUS,
    LISTENING,
    MCP_PATH,
    MESSAGES_PATH,
    METADATA_PATHS,
    PRINCIPAL,
    SIZE_PROBLEM,
    TEXTS,
    TOO_LARGE,
    Authenticator,
    Limiter,
    Principal,
    RequestGuard,
    build_exception_handlers,
    build_problem,
    read_header,
    read_principal_name,
    serve_healthz,
)
from toolscout.gateway.resume import (
    CLIENT_KIND,
    PRINCIPALS,
    SESSION,
    SESSION_HEADER,
    SSE,
    KnownClients,
    SessionResumer,
    name_session,
    read_owner,
    sweep_daily,
)
from toolscout.gateway.server import build_server, format_client
from toolscout.gateway.shims import McpApp, read_method
from toolscout.policies import Policy
from toolscout.schemas import Json
from toolscout.servers.oauth.login import needs_decision
from toolscout.servers.pool import SEVERAL
from toolscout.sessions.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPages:
    """More routes for the gateway to serve, such as the console's."""

    routes: Sequence[BaseRoute]
    is_public: Callable[[str], bool]
    """Whether anybody may load a path, with or without a token."""
    run: Callable[[], AbstractAsyncContextManager[None]]
    """Entered while the gateway serves."""
    close: Callable[[], Awaitable[None]]
    """Ends streams that would keep the gateway from stopping."""
    reload: Callable[[GatewayConfig], None]
    """Called when other principals may use the gateway."""


SSE_PATH = "/sse"
UNREAD_MAX = 500
"""Messages over SSE that a client has not read; with more, its stream ends."""
FLUSH_SECONDS = 0.1
EXPIRY_SECONDS = 5.0
"""How often streams are checked for tokens that have expired."""
HELLO_BYTES = 64 << 10
"""The largest `initialize` request, which is stored as long as its session."""
HELLO_SECONDS = 2.0
"""How long the answer to `initialize` or a subscription waits until the store has it."""
RETRY_SECONDS = "5"
"""When a client should ask again while the store is down."""
SESSIONS_KEPT = 1_000
"""Sessions that stay in memory between requests; others are loaded from the store."""
SESSION_IDLE_SECONDS = 6 * 3600.0
"""After this time without a request or an open stream, the SDK drops a handshake client."""
REPLAYED_METHODS = ("initialize", "resources/subscribe", "resources/unsubscribe")

_log = logging.getLogger(__name__)


async def serve_http(
    gateway: Gateway,
    *,
    pages: WebPages | None = None,
    ready: Callable[[str], None] = lambda address: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set or a signal arrives, then let running calls finish.

    Calls `ready` with the address once the gateway answers requests. Raises `InvalidConfig` if the
    address is not available, or if other machines can reach it and no token is configured.
    """

    def announce(address: str) -> None:
        _log.info("Serving MCP at %s/mcp.", address)
        ready(address)

    http = _HttpGateway(gateway, pages)
    config = gateway.config.gateway
    await serve_app(http.app, config, on_stop=http.stop, ready=announce, stop=stop)


def identify_client(context: Context) -> tuple[str, Principal]:
    """Return the name of a client's session, and the client's principal.

    A client of the handshake era has a session of its own. Later clients have none on the wire, so
    all clients of a principal share one. The SDK checks session ids in the handshake era only.
    """
    request = cast("Request", context.request)
    principal: Principal = request.scope[PRINCIPAL]
    if context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        if request.url.path.startswith(MESSAGES_PATH):
            return f"{SSE}{request.query_params['session_id']}", principal
        return name_session(request.scope[SESSION]), principal
    return f"{PRINCIPALS}{principal.name}", principal


class _HttpGateway:
    """The ASGI application of one gateway, which can be stopped in good order."""

    def __init__(self, gateway: Gateway, pages: WebPages | None) -> None:
        config = gateway.config.gateway
        self._running = RunningRequests()
        self._gateway = gateway
        self._metrics = Metrics(gateway)
        self._pages = pages
        self._sessions: OrderedDict[tuple[str, Principal], Session] = OrderedDict()
        self._principals: WeakKeyDictionary[Session, Principal] = WeakKeyDictionary()
        """Whose each session is, also of those that only a stream or a call still uses."""
        self._connected: dict[str, Principal] = {}
        """Whose the sessions are that the SDK keeps, by their ids."""
        self._ending: set[asyncio.Task[None]] = set()
        self._store = gateway.store
        self._clients = KnownClients(
            self._store,
            config.session_days,
            gateway.end_session,
            kept=config.max_sessions,
            max_bytes=config.max_stored_bytes,
        )
        self._mcp_app = McpApp(
            self._build_server,
            max_body_bytes=config.max_body_bytes,
            idle_seconds=SESSION_IDLE_SECONDS,
        )
        self._resumer = SessionResumer(self._mcp_app, self._clients, self._store)
        self._opening = RequestBodyLimitMiddleware(self._resumer, HELLO_BYTES)
        self._sse = SseServerTransport(MESSAGES_PATH, max_request_body_size=config.max_body_bytes)
        self._sse_server = self._build_server()
        self._mcp = StoppableApp(self._answer_mcp, self._running)
        self._others = self._build_routes()
        self._stoppable_others = StoppableApp(self._others, self._running)
        self._authenticator = Authenticator(config)
        self._limiter = Limiter(config)
        self._shared = self._build_cors(config)
        gateway.on_access = self._change_access
        gateway.take_slots = self._limiter.take_slots
        gateway.pool.principals = config.count_principals()
        _warn_of_logins(gateway)
        self.app = RequestGuard(
            self._share,
            authenticator=self._authenticator,
            limiter=self._limiter,
            max_body_bytes=config.max_body_bytes,
            is_public=pages.is_public if pages is not None else None,
            on_refused=self._report_refusal,
        )

    def _build_cors(self, config: GatewayConfig) -> CORSMiddleware:
        return CORSMiddleware(
            self._route,
            allow_origins=config.origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("Mcp-Session-Id", "WWW-Authenticate"),
        )

    def _share(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Let pages of other origins read the answers, if they may; programs send no origin."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        is_program = is_post and read_header(scope, b"origin") is None
        return (self._route if is_program else self._shared)(scope, receive, send)

    def _report_refusal(self, source: str, digest: str, reason: str, unnoted: int) -> None:
        self._gateway.events.emit(
            TokenRefused(source=source, digest=digest, reason=reason, unnoted=unnoted)
        )

    def _change_access(self, config: GatewayConfig) -> None:
        """Decide by other options from now on, and end what they no longer allow."""
        self._authenticator.reload(config)
        self._limiter.reload(config)
        self._clients.days = config.session_days
        self._clients.kept = config.max_sessions
        self._clients.max_bytes = config.max_stored_bytes
        self._shared = self._build_cors(config)
        if self._pages is not None:
            self._pages.reload(config)
        self._sessions.clear()
        for session, before in list(self._principals.items()):
            self._restrict(session, before)
        self._running.end(self._is_refused)
        self._gateway.pool.principals = config.count_principals()
        self._gateway.pool.end_owned(
            lambda owner: bool(owner.principal) and not config.may_have(owner.principal)
        )
        _warn_of_logins(self._gateway)
        for session_id, before in self._connected.items():
            if self._authenticator.refresh(before) is None:
                ending = asyncio.create_task(self._mcp_app.end_session(session_id))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

    def _restrict(self, session: Session, before: Principal) -> None:
        """Let a session see what its principal may see now."""
        principal = self._authenticator.refresh(before)
        if principal is not None:
            self._principals[session] = principal
            self._gateway.restrict_session(session, principal)
        else:
            session.restrict(Policy(allowed=lambda tool: False))
            self._gateway.subscriptions.end(session)
            self._gateway.tasks.end(session.id)

    def _is_refused(self, scope: Scope) -> bool:
        """Tell whether a running request would be refused now, or show more than it may."""
        before = scope.get(PRINCIPAL)
        if before is None:
            return False  # everybody may make this request
        now = self._authenticator.authenticate(read_header(scope, b"authorization"))
        if now is None or now.name != before.name:
            return True
        # What MCP shows depends on the session, which is up to date.
        return now != before and not scope["path"].startswith((MCP_PATH, SSE_PATH, MESSAGES_PATH))

    def _build_server(self) -> Server[Any]:
        server = build_server(self._gateway, self._find_session)
        server.middleware.append(self._watch)
        return server

    def _build_routes(self) -> Starlette:
        """Return the application for all other paths; it also redirects `/mcp/` to `/mcp`."""
        return Starlette(
            routes=[
                Route(MCP_PATH, self._mcp),
                Route(SSE_PATH, StoppableApp(self._answer_sse, self._running)),
                Mount(MESSAGES_PATH, self._sse.handle_post_message),
                *(Route(path, self._serve_metadata) for path in METADATA_PATHS),
                Route("/healthz", serve_healthz),
                Route("/readyz", self._serve_readyz),
                Route("/metrics", self._serve_metrics),
                Route("/status", self._serve_status),
                *(self._pages.routes if self._pages is not None else ()),
            ],
            exception_handlers=build_exception_handlers("not_found"),
            lifespan=self._run_lifespan,
        )

    def _route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass requests for `/mcp` straight to MCP, past the slower matching of routes."""
        if scope["type"] != "http":
            return self._others(scope, receive, send)
        app = self._mcp if scope["path"] == MCP_PATH else self._stoppable_others
        return app(scope, receive, send)

    def _answer_mcp(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # Clients of 2026-07-28 have no session on the wire, so none can be lost.
        if read_method(scope) is not None:
            return self._mcp_app(scope, receive, send)
        if scope["method"] != "POST" or read_header(scope, SESSION_HEADER.encode()) is not None:
            return self._resumer(scope, receive, send)
        # The request opens a session.
        principal: Principal = scope[PRINCIPAL]
        if principal is not ANONYMOUS:
            problem = self._limiter.find_problem(principal.name, "too_many_sessions")
            if problem is not None:
                return problem(scope, receive, send)
        problem = build_problem("hello_too_large", TOO_LARGE, limit=f"{HELLO_BYTES:,}")
        scope[SIZE_PROBLEM] = problem  # also for a body whose length nobody knows yet
        if int(read_header(scope, b"content-length") or 0) > HELLO_BYTES:
            return problem(scope, receive, send)
        return self._opening(scope, receive, send)

    async def _answer_sse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the transport of MCP 2024-11-05: requests by POST, answers on one event stream."""
        if scope["method"] != "GET":
            await build_problem("wrong_method", 405, headers={"Allow": "GET"})(scope, receive, send)
            return
        options = self._sse_server.create_initialization_options()
        name = scope[PRINCIPAL].name
        with anyio.CancelScope() as stream:
            async with self._sse.connect_sse(scope, receive, send) as (read, write):
                count = partial(self._limiter.count, name, "too_many_calls")
                counted = CountedAnswers(write, count, on_full=stream.cancel)
                await self._sse_server.run(read, cast("Any", counted), options)

    @contextlib.asynccontextmanager
    async def _run_lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        pages = self._pages.run() if self._pages is not None else contextlib.nullcontext()
        async with self._mcp_app.run(), pages:
            work = (
                sweep_daily(self._clients, self._store),
                self._end_expired(),
                self._metrics.watch_loop(),
            )
            tasks = [asyncio.create_task(one) for one in work]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _end_expired(self) -> None:
        """End the streams of tokens that have expired."""

        def is_expired_stream(scope: Scope) -> bool:
            is_listening = read_header(scope, b"mcp-method") == LISTENING
            is_stream = scope["method"] == "GET" or is_listening
            return is_stream and self._is_refused(scope)

        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            self._running.end(is_expired_stream)

    async def stop(self) -> None:
        """End streams in good order, give running requests some time, then end the rest."""
        await self._gateway.subscriptions.close()
        if self._pages is not None:
            await self._pages.close()
        seconds = self._gateway.config.gateway.stop_seconds
        await asyncio.gather(self._running.stop(seconds), self._gateway.tasks.close(seconds))

    async def _find_session(self, context: Context) -> Session:
        client, principal = identify_client(context)
        owner = None if principal is ANONYMOUS else principal.name
        try:
            if not self._clients.is_fresh(client):
                await self._store.run_in_thread(partial(self._clients.touch, client, owner))
            session = await self._open_session(client, principal)
        except ToolscoutError as error:
            _log.warning("Could not open a session: %s", error)
            raise MCPError(code=types.INTERNAL_ERROR, message=TEXTS["store_down"]) from None
        self._gateway.events.emit(
            Requested(session=client, principal=principal, client=format_client(context))
        )
        return session

    async def _open_session(self, client: str, principal: Principal) -> Session:
        session = self._sessions.get((client, principal))
        if session is None:
            # This reads from the store and checks every tool against the profile.
            session = await self._store.run_in_thread(
                lambda: self._gateway.open_session(client, principal)
            )
            if self._authenticator.refresh(principal) != principal:
                # The request came before a reload that took effect while the session was opened.
                self._restrict(session, principal)
                raise MCPError(code=types.INVALID_REQUEST, message=TEXTS["unauthorized"])
            if principal is not ANONYMOUS:
                session.watch_results(partial(self._clients.count_result, principal.name))
            self._principals[session] = principal
            self._sessions[client, principal] = session
            if len(self._sessions) > SESSIONS_KEPT:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end((client, principal))
        await self._gateway.refresh_session(session)
        return session

    async def _watch(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        # Over SSE, the answer is sent long after the POST request has ended.
        is_work = ctx.request_id is not None and ctx.method != LISTENING
        with self._running if is_work else contextlib.nullcontext(), self._count_call(ctx):
            result = await call_next(ctx)
        if ctx.method == "initialize":
            self._count_session(ctx)
        if ctx.method == "tools/list" and isinstance(result, dict):
            await self._emit_listed(ctx, result["tools"])
        client = self._find_replayed(ctx)
        if client is not None:
            await self._store.run_in_thread(partial(self._remember, ctx, client, result))
            is_stored = await self._store.wait_stored(CLIENT_KIND, client, HELLO_SECONDS)
            if isinstance(result, dict):
                return mark_stored(result, is_stored=is_stored)
        return result

    @contextlib.contextmanager
    def _count_call(self, ctx: Context) -> Generator[None]:
        """Count a call that came over SSE, whose HTTP request has ended long before the call."""
        name = read_principal_name(ctx.request)
        if not name or not cast("Request", ctx.request).url.path.startswith(MESSAGES_PATH):
            yield
            return
        if self._limiter.find_problem(name, "too_many_calls") is not None:
            limit = self._gateway.config.gateway.max_calls
            text = TEXTS["too_many_calls"].format(limit=f"{limit:,}")
            raise MCPError(code=types.INVALID_REQUEST, message=text)
        with self._limiter.count(name, "too_many_calls"):
            yield

    def _count_session(self, ctx: Context) -> None:
        """Count a session of its principal until its connection is closed."""
        principal: Principal = cast("Request", ctx.request).scope[PRINCIPAL]
        connection = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
        self._limiter.add(principal.name, "too_many_sessions")
        connection.exit_stack.callback(self._limiter.remove, principal.name, "too_many_sessions")
        if connection.session_id is not None:
            self._connected[connection.session_id] = principal
            connection.exit_stack.callback(self._connected.pop, connection.session_id, None)

    async def _emit_listed(self, ctx: Context, definitions: Sequence[Json]) -> None:
        asked = read_method(cast("Request", ctx.request).scope)
        if asked not in (None, "tools/list"):
            return  # before some calls the SDK lists the tools for itself
        client, principal = identify_client(ctx)
        session = await self._open_session(client, principal)
        visible = await session.run_locked(session.list_visible)
        self._gateway.events.emit(
            Listed(
                session=client,
                principal=principal.name,
                version=self._gateway.catalog.version,
                definitions=definitions,
                tools=visible,
            )
        )

    def _find_replayed(self, ctx: Context) -> str | None:
        """Return the name of a handshake-era client whose message another gateway has to know.

        A load balancer may send the very next message to another gateway, so the client is stored
        before its first one is answered. A session that is being resumed is stored already.
        """
        if ctx.method not in REPLAYED_METHODS:
            return None
        if ctx.method != "initialize":
            is_handshake = ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
            return identify_client(ctx)[0] if is_handshake else None
        session_id = ctx.session._connection.session_id  # pyright: ignore[reportPrivateUsage]
        is_resumed = SESSION in cast("Request", ctx.request).scope
        return None if is_resumed or session_id is None else name_session(session_id)

    def _remember(self, ctx: Context, client: str, result: HandlerResult) -> None:
        """Store what a handshake-era client would have to send again at another gateway."""
        params = ctx.params or {}
        if ctx.method != "initialize":
            wanted = ctx.method == "resources/subscribe"
            self._clients.subscribe(client, str(params["uri"]), wanted=wanted)
        elif isinstance(result, dict):
            hello = types.InitializeRequestParams.model_validate(params, by_name=False)
            self._clients.remember(
                client,
                owner=read_owner(cast("Request", ctx.request).scope),
                version=str(result["protocolVersion"]),
                hello=hello.model_dump(by_alias=True, mode="json", exclude_none=True),
            )

    async def _serve_metadata(self, request: Request) -> Response:
        """Tell a client where to log in (RFC 9728)."""
        issuers = self._authenticator.issuers.list_addresses()
        if not issuers:
            return build_problem("not_found", 404)
        address = self._authenticator.find_address(request.scope)
        return JSONResponse(
            {
                "resource": f"{address}{MCP_PATH}",
                "authorization_servers": issuers,
                "bearer_methods_supported": ["header"],
                "resource_name": "toolscout",
            }
        )

    async def _serve_readyz(self, request: Request) -> Response:
        needs_store = request.query_params.get("ignore") != "store"
        readiness = await self._check_readiness(needs_store=needs_store)
        return JSONResponse(readiness, 200 if readiness["ready"] else 503)

    async def _check_readiness(self, *, needs_store: bool = True) -> Json:
        readiness = build_readiness(self._gateway, now=asyncio.get_running_loop().time())
        readiness["store"] = await self._store.is_available()
        readiness["unwritten"] = self._store.pending
        readiness["lost"] = self._store.dropped
        readiness["ready"] = readiness["ready"] and (readiness["store"] or not needs_store)
        return readiness

    async def _serve_metrics(self, request: Request) -> Response:
        if _is_limited(request):
            return build_problem("limited", 403)
        readiness = await self._check_readiness()
        requests, streams = self._running.count_open()
        self._metrics.update(
            ready=readiness["ready"],
            store_available=readiness["store"],
            running_requests=requests,
            open_streams=streams,
            sessions=len(self._sessions),
        )
        # The first request counts tokens, which may take a second.
        text = await asyncio.to_thread(self._metrics.render)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def _serve_status(self, request: Request) -> Response:
        if _is_limited(request):
            return build_problem("limited", 403)
        totals = await asyncio.to_thread(self._metrics.count_totals)
        now = asyncio.get_running_loop().time()
        return JSONResponse(build_status(self._gateway, totals, now=now, wall=datetime.now(UTC)))


class CountedAnswers:
    """The answers to a client over SSE; each that it has not read counts as one of its calls.

    Otherwise a client that reads nothing could have any number of results kept for it.
    """

    def __init__(
        self,
        stream: Any,
        count: Callable[[], AbstractContextManager[None]],
        *,
        on_full: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._count = count
        self._on_full = on_full
        self._unread = 0

    async def send(self, item: SessionMessage) -> None:
        """Send a message once the client has read those before it."""
        if self._unread >= UNREAD_MAX:
            self._on_full()
        is_answer = isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError)
        self._unread += 1
        try:
            with self._count() if is_answer else contextlib.nullcontext():
                await self._stream.send(item)
        finally:
            self._unread -= 1

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class RunningRequests:
    """Keeps track of running requests, so that a gateway can stop without losing an answer.

    Enter it for work that should be finished before the gateway stops. It is a context manager
    itself because a generator for every request would cost more.
    """

    def __init__(self) -> None:
        self.is_stopped = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._running = 0
        self._open: dict[asyncio.Task[Any], Scope] = {}
        self._ended: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> None:
        self._running += 1
        self._idle.clear()

    def __exit__(self, *error: object) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()

    @contextlib.contextmanager
    def cancel_on_stop(self, scope: Scope) -> Generator[None]:
        """Return a context whose body is cancelled when the gateway stops or ends the request."""
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = scope
        try:
            yield
        except asyncio.CancelledError:
            if not self.is_stopped and task not in self._ended:
                raise
            task.uncancel()  # cancelled here; the task goes on to answer the client
        finally:
            self._open.pop(task, None)
            self._ended.discard(task)

    def count_open(self) -> tuple[int, int]:
        """Return how many requests are being answered, and how many streams are open."""
        scopes = list(self._open.values())
        streams = [scope for scope in scopes if scope["path"] in (MCP_PATH, SSE_PATH)]
        return sum(map(_is_work, scopes)), sum(not _is_work(scope) for scope in streams)

    def end(self, is_ended: Callable[[Scope], bool]) -> None:
        """Cancel the open requests for which a predicate holds."""
        for task, scope in self._open.items():
            if is_ended(scope):
                self._ended.add(task)
                task.cancel()

    async def stop(self, seconds: float) -> None:
        """Cancel all open requests once no work is running, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
                # Older clients get answers over a stream that stays open; let the last be sent.
                await asyncio.sleep(FLUSH_SECONDS)
        self.is_stopped = True
        for task in self._open:
            task.cancel()


class StoppableApp:
    """Ends requests when the gateway stops; otherwise an open stream would keep it running."""

    def __init__(self, app: ASGIApp, running: RunningRequests) -> None:
        self._app = app
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, at least in part."""
        is_begun: bool = False
        is_complete: bool = False

        async def track(message: Message) -> None:
            nonlocal is_begun, is_complete
            is_begun = True
            is_body = message["type"] == "http.response.body"
            is_complete = is_body and not message.get("more_body", False)
            await send(message)

        with self._running if _is_work(scope) else contextlib.nullcontext():
            if not self._running.is_stopped:
                # Runs in the request's own task, which is cheaper than two more tasks per request.
                with self._running.cancel_on_stop(scope):
                    try:
                        await self._app(scope, receive, track)
                    except ToolscoutError as error:
                        if is_begun:
                            raise
                        _log.warning("Could not answer a request: %s", error)
                        retry = {"Retry-After": RETRY_SECONDS}
                        problem = build_problem("store_down", 503, headers=retry)
                        await problem(scope, receive, send)
                    return
            if not is_begun:
                problem = ("stopping", 503) if self._running.is_stopped else ("unauthorized", 401)
                await build_problem(*problem)(scope, receive, send)
            elif not is_complete:
                await send({"type": "http.response.body", "body": b"", "more_body": False})


def _is_work(scope: Scope) -> bool:
    """Tell whether a request ends by itself: a POST does, unless it opens a stream."""
    return scope["method"] == "POST" and read_header(scope, b"mcp-method") != LISTENING


def _warn_of_logins(gateway: Gateway) -> None:
    """Log which servers are refused because nobody has said whose login their calls use."""
    for server in gateway.config.servers:
        if gateway.pool.principals >= SEVERAL and needs_decision(server):
            _log.warning(
                "Server %s needs a login, and several principals use this gateway: its tools are "
                'refused until its configuration says login = "user" or login = "shared".',
                server.name,
            )


def _is_limited(request: Request) -> bool:
    """Tell whether the principal sees only a part of the catalogue, and of the figures."""
    principal: Principal = request.scope[PRINCIPAL]
    return principal.profile is not None and not principal.reads_metrics
