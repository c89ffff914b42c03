"""`Console`: one object for each part of the console, and the events that connect them.

A gateway serves it with `serve_http(pages=...)` and reports sessions, lists and events to it.
`build_console` and `serve_console` do without a gateway: the same page and API over a catalogue.
"""

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from importlib.metadata import metadata, version
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from toolscout.catalog import Catalog
from toolscout.config.gateway import GatewayConfig, TokenConfig
from toolscout.console.activity import ActivityLog, LoggedEvent, SessionLog
from toolscout.console.audit import AuditTable
from toolscout.console.catalog import Costs, LintResults, ToolTable
from toolscout.console.edits import ConfigEdits
from toolscout.console.logins import PAGE, UserLogins
from toolscout.console.map import Maps
from toolscout.console.routes import Routes
from toolscout.console.search import Indexes, SearchPreview
from toolscout.console.servers import PendingLogins, ServerTable, format_phase
from toolscout.console.sessions import SessionTable, is_peer
from toolscout.console.stream import LiveStream
from toolscout.console.views import View
from toolscout.console.waiting import PLACE, WaitingCalls
from toolscout.errors import ApprovalNeeded, ToolscoutError
from toolscout.gateway.events import CallDecided, LogLine, Requested, ServerChanged
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.http import WebPages
from toolscout.gateway.ledger import Ledger
from toolscout.gateway.listen import BACKLOG, serve_app, serve_at
from toolscout.gateway.middleware import (
    Authenticator,
    Limiter,
    Principal,
    RequestGuard,
    build_exception_handlers,
    is_loopback,
    serve_healthz,
)
from toolscout.names import digest_session
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.servers.manifest import PROMPT, RESOURCE, TEMPLATE, TOOL
from toolscout.servers.oauth.encrypted_logins import EncryptedLogins
from toolscout.servers.pool import Pool
from toolscout.sessions.events import Answered, Event, EventStream, Suggested
from toolscout.settings import Settings
from toolscout.stores.memory import MemoryStore
from toolscout.stores.store import Store

SAVE_SECONDS = 60.0
LOOPBACK = "127.0.0.1"

_log = logging.getLogger(__name__)


class Console:
    """One console over a scout, and the servers behind it if there are any.

    Enter `run` while it is served. `tokens` is the folder with the logins of servers, and
    `encrypted_logins` has those of users. The audit record and waiting calls are in the `store`.
    """

    def __init__(
        self,
        scout: Scout,
        config: GatewayConfig,
        events: EventStream,
        ledger: Ledger,
        *,
        pool: Pool | None = None,
        tokens: Path | None = None,
        encrypted_logins: EncryptedLogins | None = None,
        store: Store | None = None,
        edits: ConfigEdits | None = None,
        list_clients: Callable[[], list[Json]] | None = None,
    ) -> None:
        self.config = config
        self.edits = edits
        self._list_clients = list_clients
        self._documentation = find_documentation()
        self.emit = events.emit
        self.ledger = ledger
        self._scout = scout
        self.stream = LiveStream()
        self._views: dict[Principal, View] = {}
        self.costs = Costs()
        self.indexes = Indexes(scout.catalog, scout.index)
        self.activity = ActivityLog(self._find_server, hash_queries=scout.settings.hash_queries)
        self.search = SearchPreview(scout, self.indexes)
        lint = LintResults(
            scout.catalog, scout.index, lambda: self.stream.publish("overview"), self.search.is_busy
        )
        self.tools = ToolTable(self.costs, lint)
        self.maps = Maps(scout.catalog, self.indexes)
        kept = store if store is not None else MemoryStore()
        self.sessions = SessionTable(scout, self.activity, self.ledger, kept, config)
        self.servers = self.logins = None
        if pool is not None:
            self.servers = ServerTable(
                pool,
                self.activity,
                self.costs,
                tokens=tokens,
                list_off=edits.list_off if edits is not None else list,
                # After a login, the browser comes back to this machine's loopback address.
                can_redirect=is_loopback(config.host),
            )
            self.logins = PendingLogins(tokens, events.emit) if tokens is not None else None
        self.user_logins = None
        if encrypted_logins is not None:
            self.user_logins = UserLogins(encrypted_logins, events.emit)
        self.audit = AuditTable(kept, config)
        self.waiting = WaitingCalls(kept, events.emit)
        self._routes = Routes(self)
        self._subscriptions = contextlib.ExitStack()
        self._subscriptions.callback(events.subscribe(self._on_event))
        self._subscriptions.callback(
            scout.catalog.subscribe(lambda change: self.stream.publish("overview"))
        )

    @classmethod
    def from_gateway(
        cls,
        gateway: Gateway,
        *,
        reload: Callable[[], Awaitable[None]] | None = None,
        token: tuple[str, str] | None = None,
        list_clients: Callable[[], list[Json]] | None = None,
    ) -> "Console":
        """Return the console of a gateway, subscribed to what happens there.

        `reload` makes the gateway use its configuration file as it is now. `token`, a name and a
        token, is the only one that is accepted instead of the gateway's. `list_clients` is given by
        a daemon.
        """
        gateway.login_path = PAGE
        gateway.waiting_path = PLACE
        config = gateway.config.gateway
        if token is not None:
            name, plain = token
            tokens = {name: TokenConfig(token=plain)}
            config = replace(config, host=LOOPBACK, tokens=tokens, issuers={}, origins=(), hosts=())
        return cls(
            gateway.scout,
            config,
            gateway.events,
            gateway.ledger,
            pool=gateway.pool,
            tokens=gateway.tokens,
            encrypted_logins=gateway.encrypted_logins,
            store=gateway.store,
            edits=ConfigEdits(gateway, reload),
            list_clients=list_clients,
        )

    @property
    def pages(self) -> WebPages:
        """The API and the page, for a gateway to serve."""
        return WebPages(
            routes=self._routes.routes,
            is_public=self._routes.is_public,
            run=self.run,
            close=self.close,
            reload=self.reload,
        )

    def reload(self, config: GatewayConfig) -> None:
        """Use other tokens and profiles from now on."""
        self.config = self.sessions.config = config
        self._views.clear()

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Save the savings and the sessions regularly while this is entered."""
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
        self._subscriptions.close()
        self.indexes.close()
        self.audit.close()
        for logins in (self.logins, self.user_logins):
            if logins is not None:
                await logins.close()
        await self._save()

    async def _save_often(self) -> None:
        await _run_in_thread(self.ledger.remove_old, "Old savings could not be removed")
        await _run_in_thread(self.sessions.remove_old, "Old sessions could not be removed")
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            await self._save()

    async def _save(self) -> None:
        await _run_in_thread(self.ledger.save, "The savings could not be saved")
        await _run_in_thread(self.sessions.save, "What sessions did could not be saved")

    def get_view(self, principal: Principal) -> View:
        """Return what a principal sees now."""
        view = self._views.get(principal)
        if view is None or view.version != self._scout.catalog.version:
            view = self._views[principal] = View(self._scout, principal)
        return view

    @property
    def _host(self) -> str:
        if self.servers is None:
            return "console"
        return "gateway" if self._list_clients is None else "daemon"

    def list_clients(self, view: View) -> list[Json]:
        """Return the clients that are connected to a daemon, by the short ids of their sessions."""
        view.refuse_limited("Clients are")
        listed = self._list_clients() if self._list_clients is not None else []
        return [{**client, "session": digest_session(client["session"])} for client in listed]

    def build_overview(self, view: View, states: Json) -> Json:
        """Return what there is, what it costs, and what the principal may do with it.

        `states` is the number of servers in each state.
        """
        kinds = Counter(tool.kind for tool in view.tools)
        servers = self.servers
        is_live = servers is not None
        may_act = is_live and not view.is_limited
        return {
            "version": version("toolscout"),
            "docs": self._documentation,
            "host": self._host,
            "principal": view.principal.name,
            "tools": kinds[TOOL],
            "resources": kinds[RESOURCE] + kinds[TEMPLATE],
            "prompts": kinds[PROMPT],
            "servers": states,
            "encoders": self.indexes.names,
            "tokens": {
                "all_definitions": view.tokens,
                "menu": view.menu_tokens,
            },
            "waiting": self.waiting.count() if may_act else 0,
            "capabilities": {
                "start": may_act,
                "stop": may_act,
                "restart": may_act,
                "log": may_act,
                "login": servers is not None and may_act and servers.has_logins,
                "approve": may_act,
                "audit": may_act,
                "edit": may_act and self.edits is not None,
                "call": False,
                "sessions": is_live,
                "savings": is_live,
            },
        }

    def _on_event(self, event: Event) -> None:
        match event:
            case Requested():
                self.activity.note_client(event.session, event.principal, event.client)
            case Answered():
                log, logged = self.activity.add(event)
                if not isinstance(event, Suggested):
                    self._publish_activity(log, logged)
                if event.code == ApprovalNeeded.code:
                    self._publish_waiting()
            case CallDecided():
                self._publish_waiting()
            case LogLine():
                self.activity.add_line(event.server, event.line)
            case ServerChanged():
                row: Json = {"name": event.server, "state": format_phase(event.phase)}
                self.stream.publish(
                    "server", row.copy, lambda who: self.get_view(who).sees_server(event.server)
                )
                self.stream.publish("overview")
            case _:
                pass

    def is_peer_named(self, principal: Principal, name: str) -> bool:
        """Tell the same as `is_peer` of somebody whose name alone is known."""
        if principal.profile is None or principal.name == name:
            return True
        token = self.config.tokens.get(name)
        profiles = self.config.profiles
        return token is not None and profiles.get(token.profile) == principal.profile

    def _publish_activity(self, log: SessionLog, logged: LoggedEvent) -> None:
        kind = "search" if logged.kind in ("search", "describe") else "call"
        owner = log.principal

        def is_audience(principal: Principal) -> bool:
            return is_peer(principal, owner)

        self.stream.publish(kind, lambda: {"session": log.id, **logged.to_json()}, is_audience)
        self.stream.publish("session", lambda: self.sessions.build_row(log), is_audience)
        self.stream.publish("savings", audience=is_audience)

    def _publish_waiting(self) -> None:
        self.stream.publish("waiting", audience=lambda principal: principal.profile is None)

    def _find_server(self, tool: str) -> str:
        found = self._scout.catalog.get(tool)
        return found.server if found is not None else ""


def find_documentation() -> str:
    """Return the address of the documentation, as the package names it."""
    links = metadata("toolscout").get_all("Project-URL") or []
    return dict(link.split(", ", 1) for link in links)["Documentation"]


async def _run_in_thread(work: Callable[[], None], problem: str) -> None:
    try:
        await asyncio.to_thread(work)
    except ToolscoutError as error:
        _log.warning("%s: %s", problem, error)


def build_console(
    catalog: Catalog, config: GatewayConfig, settings: Settings | None = None
) -> Console:
    """Return a console over a catalogue alone, which searches as a gateway would."""
    settings = replace(settings or Settings(), calls_by_name=True, shared=True)
    scout = Scout(catalog, settings=settings)
    return Console(scout, config, EventStream(), Ledger())


def build_app(console: Console) -> Starlette:
    """Return a console as an ASGI application of its own, guarded as the gateway is."""
    config = console.config

    @contextlib.asynccontextmanager
    async def run_console(app: Starlette) -> AsyncGenerator[None]:
        async with console.run():
            yield

    guard = Middleware(
        RequestGuard,
        authenticator=Authenticator(config),
        limiter=Limiter(config),
        max_body_bytes=config.max_body_bytes,
        is_public=console.pages.is_public,
    )
    return Starlette(
        routes=[Route("/healthz", serve_healthz), *console.pages.routes],
        middleware=[guard],
        exception_handlers=build_exception_handlers("no_page"),
        lifespan=run_console,
    )


async def serve_console(
    console: Console,
    *,
    ready: Callable[[str], None] = lambda address: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set or a signal arrives; call `ready` with the address."""

    async def end_streams() -> None:  # an open stream would keep the server from ending
        console.stream.close()

    await serve_app(build_app(console), console.config, on_stop=end_streams, ready=ready, stop=stop)


@contextlib.asynccontextmanager
async def open_at(console: Console, path: Path) -> AsyncGenerator[None]:
    """Serve a console at a local socket while this is entered."""
    stop = asyncio.Event()
    started = asyncio.Event()

    async def end_streams() -> None:
        console.stream.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        await asyncio.to_thread(path.chmod, 0o600)
        listener.listen(BACKLOG)
        serving = asyncio.create_task(
            serve_at(
                listener,
                build_app(console),
                console.config,
                on_stop=end_streams,
                ready=started.set,
                stop=stop,
            )
        )
        try:
            waiting = asyncio.create_task(started.wait())
            await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
            yield
        finally:
            stop.set()
            await serving
