"""The console without a gateway: the same page and API over any catalogue.

Guarded as the gateway is: loopback unless told, Host and Origin checked, tokens where there are
any.

`Console`: all parts of the console over one subject, kept up to date by what happens there.

Made for `serve_http(pages=...)`: it is told who speaks in which session and what is listed, hears
the gateway's events and the pool's servers, and gives routes. `app_of` is the same without MCP.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from toolscout.catalog import Catalog, Change
from toolscout.config.gateway import GatewayConfig
from toolscout.console.activity import Chronicle, Conversations, Happening, Journal
from toolscout.console.catalog import Costs, Directory, Findings
from toolscout.console.events import Feed
from toolscout.console.map import Maps
from toolscout.console.overview import Overviews
from toolscout.console.routes import Routes
from toolscout.console.savings import Savings
from toolscout.console.search import Indexes, Searches
from toolscout.console.servers import Board, Visits, state_of
from toolscout.console.views import Subject, Views
from toolscout.errors import ToolscoutError
from toolscout.gateway.auth import Authenticator, Principal, is_loopback
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.listen import (
    WebServer,
    build_web_config,
    format_address,
    handle_signals,
    open_listener,
)
from toolscout.gateway.middleware import RequestGuard, build_problem
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.search.feedback import hash_query
from toolscout.servers.server import ServerState
from toolscout.sessions.events import Answered, Called, Event
from toolscout.sessions.replies import Reply
from toolscout.sessions.session import Session
from toolscout.settings import Settings
from toolscout.tools import Tool

SAVE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Console:
    """One console. Run it with `run` while it is served."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        scout, config = subject.scout, subject.config
        self.feed = Feed()
        self.views = Views(scout)
        self.costs = Costs()
        self.indexes = Indexes(scout.catalog, scout.index)
        self.chronicle = Chronicle(self._server_of)
        self.savings = Savings(subject.store, self.costs, self._charge)
        self.searches = Searches(scout, self.indexes)
        findings = Findings(scout.catalog, scout.index, self._tell_overview, self.searches.is_busy)
        self.directory = Directory(self.costs, findings)
        self.maps = Maps(scout.catalog, self.indexes)
        self.conversations = Conversations(scout, self.chronicle, self.is_peer)
        self.board = self.visits = None
        if subject.pool is not None:
            self.board = Board(
                subject.pool,
                self.chronicle,
                self.costs,
                tokens=subject.tokens,
                # The browser comes back to this machine's loopback address.
                logs_in=is_loopback(config.host),
            )
            self.visits = Visits(subject.tokens) if subject.tokens is not None else None
            subject.pool.on_phase = self._entered
            subject.pool.on_line = self.chronicle.say
        self.overviews = Overviews(subject, self.indexes, self.board)
        self._routes = Routes(self)
        self._unsubscribe = scout.catalog.subscribe(self._changed)

    @classmethod
    def of(cls, gateway: Gateway) -> "Console":
        """Return the console of a gateway, which it hears from here on."""
        console = cls(
            Subject(
                scout=gateway.scout,
                config=gateway.config.gateway,
                pool=gateway.pool,
                store=gateway.store,
                tokens=gateway.tokens,
            )
        )
        gateway.observer = console
        gateway.events.subscribe(console.hear)
        return console

    # What is served.

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """All that is served, beside whatever else the host serves."""
        return self._routes.routes

    def is_public(self, path: str) -> bool:
        """Tell whether a path is a part of the page, which a browser loads without a token."""
        return self._routes.is_public(path)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Keep what is saved up to date while this is entered."""
        saving = asyncio.create_task(self._save_often())
        try:
            yield
        finally:
            saving.cancel()
            await asyncio.wait((saving,))
            await self.close()

    async def close(self) -> None:
        """End streams and logins, and write down what is not written yet."""
        self.feed.close()
        self._unsubscribe()
        self.indexes.close()
        if self.visits is not None:
            await self.visits.close()
        await asyncio.to_thread(self._save)

    async def _save_often(self) -> None:
        await asyncio.to_thread(self._sweep)
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            await asyncio.to_thread(self._save)

    def _save(self) -> None:
        with _logged("The savings could not be kept"):
            self.savings.save()

    def _sweep(self) -> None:
        with _logged("Old savings could not be removed"):
            self.savings.sweep()

    # What the gateway tells.

    def meet(self, session: str, principal: Principal, client: str) -> None:
        """Take note of who speaks in a session."""
        self.chronicle.meet(session, principal, client)

    def list(
        self,
        session: str,
        principal: Principal,
        visible: Callable[[], Sequence[Tool]],
        listed: Sequence[Json],
    ) -> None:
        """Take note of a list of tools that was sent."""
        version = self.subject.scout.catalog.version
        self.savings.note_list(session, principal.name, version, visible, listed)

    def hear(self, event: Event) -> None:
        """Take note of an event."""
        if not isinstance(event, Answered):
            return
        journal, happening = self.chronicle.hear(event)
        self.savings.note_reply(journal.principal.name, happening.kind, event.tokens)
        if isinstance(event, Called):
            self._tell("call", event.session, journal, happening)

    def read(self, session: Session, reply: Reply) -> None:
        """Take note of what a reply to a search or description says."""
        shown = hash_query if session.settings.hash_queries else str
        found = self.chronicle.read(session.id, reply, shown)
        if found is not None:
            self._tell("search", session.id, *found)

    def is_peer(self, principal: Principal, other: Principal) -> bool:
        """Tell whether somebody may look at another's conversations and savings."""
        return principal.profile is None or principal.profile == other.profile

    def is_peer_named(self, principal: Principal, name: str) -> bool:
        """Tell the same of somebody whose name alone is known."""
        if principal.profile is None or principal.name == name:
            return True
        token = self.subject.config.tokens.get(name)
        profiles = self.subject.config.profiles
        return token is not None and profiles.get(token.profile) == principal.profile

    def _tell(self, kind: str, name: str, journal: Journal, happening: Happening) -> None:
        owner = journal.principal

        def audience(principal: Principal) -> bool:
            return self.is_peer(principal, owner)

        self.feed.publish(kind, lambda: {"session": journal.id, **happening.row()}, audience)
        self.feed.publish("session", lambda: self.conversations.row(name, journal), audience)
        self.feed.publish("savings", audience=audience)

    def _entered(self, member: ServerState) -> None:
        told: Json = {"name": member.name, "state": state_of(member)}
        self.feed.publish(
            "server", told.copy, lambda who: self.views.of(who).sees_server(told["name"])
        )
        self._tell_overview()

    def _changed(self, change: Change) -> None:
        self._tell_overview()

    def _tell_overview(self) -> None:
        self.feed.publish("overview")

    def _charge(self, session: str, spared: int, menu: int) -> None:
        self.chronicle.charge(session, spared=spared, menu=menu)

    def _server_of(self, tool: str) -> str:
        found = self.subject.scout.catalog.get(tool)
        return found.server if found is not None else ""


@contextlib.contextmanager
def _logged(what: str) -> Generator[None]:
    try:
        yield
    except ToolscoutError as error:
        _log.warning("%s: %s", what, error)


def console_of(catalog: Catalog, config: GatewayConfig) -> Console:
    """Return the console of a catalogue, which answers as a gateway would."""
    settings = replace(Settings(), calls_by_name=True, shared=True)
    return Console(Subject(scout=Scout(catalog, settings=settings), config=config))


def app_of(console: Console) -> Starlette:
    """Return a console as an ASGI application."""
    config = console.subject.config

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with console.run():
            yield

    guard = Middleware(
        RequestGuard,
        authenticator=Authenticator(config),
        max_body_bytes=config.max_body_bytes,
        is_public=console.is_public,
    )
    return Starlette(
        routes=[Route("/healthz", _healthz), *console.routes],
        middleware=[guard],
        exception_handlers={404: _not_found, 405: _wrong_method},
        lifespan=lifespan,
    )


async def serve_console(
    console: Console,
    *,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set or a signal says so; `ready` is told the address."""
    stop, config = stop or asyncio.Event(), console.subject.config
    app = app_of(console)
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
    console.feed.close()  # a stream that stays open would hold the server up


async def _healthz(request: Request) -> Response:
    return JSONResponse({"alive": True})


async def _not_found(request: Request, error: Exception) -> Response:
    return build_problem("no_page", 404)


async def _wrong_method(request: Request, error: Exception) -> Response:
    return build_problem("wrong_method", 405, headers=getattr(error, "headers", None))
