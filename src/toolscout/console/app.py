"""`Console`: one object for each part of the console, and the events that connect them.

A gateway serves it with `serve_http(pages=...)` and reports sessions, lists and events to it.
`build_console` and `serve_console` do without a gateway: the same page and API over a catalogue.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import replace
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolscout.catalog import Catalog
from toolscout.config.gateway import GatewayConfig
from toolscout.console.activity import ActivityLog, LoggedEvent, SessionLog, SessionTable
from toolscout.console.catalog import Costs, LintResults, ToolTable
from toolscout.console.map import Maps
from toolscout.console.routes import Routes
from toolscout.console.search import Indexes, SearchPreview
from toolscout.console.servers import STATES, PendingLogins, ServerTable, format_phase
from toolscout.console.stream import LiveStream
from toolscout.console.views import Backend, View, Views
from toolscout.errors import ToolscoutError
from toolscout.gateway.events import (
    CatalogChanged,
    LogLine,
    Requested,
    ServerChanged,
    emit_changes,
)
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.http import WebPages
from toolscout.gateway.ledger import Ledger
from toolscout.gateway.listen import (
    WebServer,
    build_web_config,
    format_address,
    handle_signals,
    open_listener,
)
from toolscout.gateway.middleware import (
    Authenticator,
    Principal,
    RequestGuard,
    build_problem,
    is_loopback,
)
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.servers.manifest import PROMPT, RESOURCE, TEMPLATE, TOOL
from toolscout.sessions.events import Answered, Event, EventStream, Suggested
from toolscout.sessions.metatools import build_meta_tools
from toolscout.settings import Settings
from toolscout.tokens import count_all_definition_tokens, count_definition_tokens

SAVE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Console:
    """One console. Enter `run` while it is served."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        scout = backend.scout
        self.stream = LiveStream()
        self.views = Views(scout)
        self.costs = Costs()
        self.indexes = Indexes(scout.catalog, scout.index)
        self.ledger = backend.ledger
        self.activity = ActivityLog(self._find_server, hash_queries=scout.settings.hash_queries)
        self.search = SearchPreview(scout, self.indexes)
        lint = LintResults(scout.catalog, scout.index, self._publish_overview, self.search.is_busy)
        self.tools = ToolTable(self.costs, lint)
        self.maps = Maps(scout.catalog, self.indexes)
        self.sessions = SessionTable(scout, self.activity, self.ledger, self.is_peer)
        self.servers = self.logins = None
        if backend.pool is not None:
            self.servers = ServerTable(
                backend.pool,
                self.activity,
                self.costs,
                tokens=backend.tokens,
                # After a login, the browser comes back to this machine's loopback address.
                can_redirect=is_loopback(backend.config.host),
            )
            self.logins = PendingLogins(backend.tokens) if backend.tokens is not None else None
        self.overview = Overview(backend, self.indexes, self.servers)
        self._routes = Routes(self)
        self._unsubscribe = backend.events.subscribe(self._on_event)

    @classmethod
    def from_gateway(cls, gateway: Gateway) -> "Console":
        """Return the console of a gateway, subscribed to what happens there."""
        return cls(
            Backend(
                scout=gateway.scout,
                config=gateway.config.gateway,
                events=gateway.events,
                ledger=gateway.ledger,
                pool=gateway.pool,
                tokens=gateway.tokens,
            )
        )

    @property
    def pages(self) -> WebPages:
        """The API and the page, for a gateway to serve.

        A browser loads the files of the page without a token.
        """
        return WebPages(
            routes=self._routes.routes,
            is_public=self._routes.is_public,
            run=self.run,
            close=self.close,
        )

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Save the savings regularly while this is entered."""
        saving = asyncio.create_task(self._save_often())
        try:
            yield
        finally:
            saving.cancel()
            await asyncio.wait((saving,))
            await self.close()

    async def close(self) -> None:
        """End streams and logins, and save what is not saved yet."""
        self.stream.close()
        self._unsubscribe()
        self.indexes.close()
        if self.logins is not None:
            await self.logins.close()
        await asyncio.to_thread(self._save)

    async def _save_often(self) -> None:
        await asyncio.to_thread(self._remove_old)
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            await asyncio.to_thread(self._save)

    def _save(self) -> None:
        with _log_errors("The savings could not be saved"):
            self.ledger.save()

    def _remove_old(self) -> None:
        with _log_errors("Old savings could not be removed"):
            self.ledger.remove_old()

    def _on_event(self, event: Event) -> None:
        match event:
            case Requested():
                self.activity.note_client(event.session, event.principal, event.client)
            case Answered():
                log, logged = self.activity.add(event)
                if not isinstance(event, Suggested):
                    self._publish_activity(log, logged)
            case LogLine():
                self.activity.add_line(event.server, event.line)
            case ServerChanged():
                self._publish_phase(event)
            case CatalogChanged():
                self._publish_overview()
            case _:
                pass

    def is_peer(self, principal: Principal, other: Principal) -> bool:
        """Tell whether somebody may look at another's conversations and savings."""
        return principal.profile is None or principal.profile == other.profile

    def is_peer_named(self, principal: Principal, name: str) -> bool:
        """Tell the same of somebody whose name alone is known."""
        if principal.profile is None or principal.name == name:
            return True
        token = self.backend.config.tokens.get(name)
        profiles = self.backend.config.profiles
        return token is not None and profiles.get(token.profile) == principal.profile

    def _publish_activity(self, log: SessionLog, logged: LoggedEvent) -> None:
        kind = "search" if logged.kind in ("search", "describe") else "call"
        owner = log.principal

        def is_audience(principal: Principal) -> bool:
            return self.is_peer(principal, owner)

        self.stream.publish(kind, lambda: {"session": log.id, **logged.to_json()}, is_audience)
        self.stream.publish("session", lambda: self.sessions.build_row(log), is_audience)
        self.stream.publish("savings", audience=is_audience)

    def _publish_phase(self, event: ServerChanged) -> None:
        row: Json = {"name": event.server, "state": format_phase(event.phase)}
        self.stream.publish(
            "server", row.copy, lambda who: self.views.get(who).sees_server(event.server)
        )
        self._publish_overview()

    def _publish_overview(self) -> None:
        self.stream.publish("overview")

    def _find_server(self, tool: str) -> str:
        found = self.backend.scout.catalog.get(tool)
        return found.server if found is not None else ""


@contextlib.contextmanager
def _log_errors(problem: str) -> Generator[None]:
    try:
        yield
    except ToolscoutError as error:
        _log.warning("%s: %s", problem, error)


class Overview:
    """What there is, what it costs, and what the bearer of a token may do with it."""

    def __init__(self, backend: Backend, indexes: Indexes, servers: ServerTable | None) -> None:
        self._backend = backend
        self._indexes = indexes
        self._servers = servers
        self._tokens: dict[str, tuple[int, int]] = {}

    def count_states(self, view: View) -> Json:
        """Return the number of servers in each state; call it on the pool's loop."""
        return (
            dict.fromkeys(STATES, 0) if self._servers is None else self._servers.count_states(view)
        )

    def build(self, view: View, states: Json) -> Json:
        """Return the overview of a view; `states` comes from `count_states`."""
        kinds = Counter(tool.kind for tool in view.tools)
        return {
            "version": version("toolscout"),
            "host": self._backend.host,
            "principal": view.principal.name,
            "tools": kinds[TOOL],
            "resources": kinds[RESOURCE] + kinds[TEMPLATE],
            "prompts": kinds[PROMPT],
            "servers": states,
            "encoders": self._indexes.names,
            "tokens": {
                "all_definitions": self._count_tokens(view),
                "menu": sum(map(count_definition_tokens, build_meta_tools())),
            },
            "capabilities": self._list_capabilities(view),
        }

    def _list_capabilities(self, view: View) -> Json:
        servers = self._servers
        is_live = servers is not None
        may_act = is_live and not view.is_limited
        return {
            "start": may_act,
            "stop": may_act,
            "restart": may_act,
            "log": may_act,
            "login": may_act and servers is not None and servers.has_logins,
            "call": False,
            "sessions": is_live,
            "savings": is_live,
        }

    def _count_tokens(self, view: View) -> int:
        cached = self._tokens.get(view.principal.name)
        if cached is None or cached[0] != view.version:
            cached = (view.version, count_all_definition_tokens(view.callables))
            self._tokens[view.principal.name] = cached
        return cached[1]


def build_console(catalog: Catalog, config: GatewayConfig) -> Console:
    """Return a console over a catalogue alone, which searches as a gateway would."""
    settings = replace(Settings(), calls_by_name=True, shared=True)
    events = EventStream()
    emit_changes(catalog, events)
    scout = Scout(catalog, settings=settings)
    return Console(Backend(scout=scout, config=config, events=events, ledger=Ledger()))


def build_app(console: Console) -> Starlette:
    """Return a console as an ASGI application of its own, guarded as the gateway is."""
    config = console.backend.config

    @contextlib.asynccontextmanager
    async def run_console(app: Starlette) -> AsyncGenerator[None]:
        async with console.run():
            yield

    guard = Middleware(
        RequestGuard,
        authenticator=Authenticator(config),
        max_body_bytes=config.max_body_bytes,
        is_public=console.pages.is_public,
    )
    return Starlette(
        routes=[Route("/healthz", _report_health), *console.pages.routes],
        middleware=[guard],
        exception_handlers={404: _refuse_path, 405: _refuse_method},
        lifespan=run_console,
    )


async def serve_console(
    console: Console,
    *,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set or a signal arrives; call `ready` with the address."""
    stop = stop or asyncio.Event()
    config = console.backend.config
    app = build_app(console)
    with contextlib.closing(open_listener(config)) as listener, handle_signals(stop):
        address = format_address(config.host, listener.getsockname()[1])
        server = WebServer(
            build_web_config(app, config), lambda: ready(address) if ready is not None else None
        )
        ending = asyncio.create_task(_end(server, console, stop))
        try:
            await server.serve(sockets=[listener])
        finally:
            ending.cancel()


async def _end(server: WebServer, console: Console, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True
    console.stream.close()  # an open stream would keep the server from ending


async def _report_health(request: Request) -> Response:
    return JSONResponse({"alive": True})


async def _refuse_path(request: Request, error: Exception) -> Response:
    return build_problem("no_page", 404)


async def _refuse_method(request: Request, error: Exception) -> Response:
    allowed = error.headers if isinstance(error, HTTPException) else None
    return build_problem("wrong_method", 405, headers=allowed)
