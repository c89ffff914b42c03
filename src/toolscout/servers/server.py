"""`ServerState`: one server of the pool, and what became of it.

`CallSlot`: one call's place among those that a server works on, and its clock.

While a person or a model is asked on behalf of a call, the server only waits. Such a call rests:
it leaves its place to others, and its clock stands still. How long somebody may take to answer is
limited by whoever asks.

`CatalogUpdater`: puts what servers offer into the catalogue, and keeps it for the next run.

What was kept is searchable before its server has started (R86).
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import mcp_types as types

from toolscout.catalog import Catalog, Status
from toolscout.config.servers import ServerConfig
from toolscout.schemas import to_canonical_json
from toolscout.servers.connection import FAILED, NEEDS_LOGIN, STOPPED, Connection, Relay
from toolscout.servers.manifest import MANIFEST_KIND, Manifest, build_entries, manifest_from_bytes
from toolscout.servers.oauth.tokens import TokenFile
from toolscout.sessions.session import Store
from toolscout.tools import Tool

LINES_KEPT = 50


class Phase(StrEnum):
    """Where a server stands in its life."""

    CONFIGURED = "configured"
    KNOWN = "known"
    """Its tools are in the cache; it has not been started."""
    STARTING = "starting"
    READY = "ready"
    FAILED = FAILED
    NEEDS_LOGIN = NEEDS_LOGIN
    STOPPED = STOPPED


def _idle() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _no_lines() -> deque[str]:
    return deque(maxlen=LINES_KEPT)


@dataclass(slots=True, kw_only=True)
class ServerState:
    """One server; times are those of the event loop."""

    config: ServerConfig
    slots: asyncio.Semaphore
    phase: Phase = Phase.CONFIGURED
    reason: str = ""
    since: float = 0.0
    starts: int = 0
    failures: int = 0
    """Starts and ends that went wrong since a call was last answered."""
    silences: int = 0
    """Calls in a row that got no answer in time."""
    waiting: int = 0
    """Calls that wait for their turn or for the server's start."""
    running: int = 0
    resting: int = 0
    """Running calls on whose behalf somebody is being asked."""
    used: float = 0.0
    retry_at: float = 0.0
    token_file: TokenFile | None = None
    login: str = ""
    """The login that the last start found in the file."""
    manifest: Manifest | None = None
    problems: tuple[str, ...] = ()
    lines: deque[str] = field(default_factory=_no_lines)
    """What it wrote to stderr last, without secrets."""
    connection: Connection | None = None
    opening: asyncio.Task[Connection] | None = None
    idle: asyncio.Event = field(default_factory=_idle)
    """Set while no call is running."""
    is_held: bool = False
    """Whether it stays stopped until someone starts it by name."""

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.config.name

    def note_login(self, file: TokenFile | None) -> None:
        """Remember which login a start that begins has found."""
        self.token_file, self.login = file, file.login if file is not None else ""

    @property
    def has_new_login(self) -> bool:
        """Whether someone logged in, or out, since the last start."""
        return self.token_file is not None and self.token_file.login != self.login

    @contextmanager
    def queued(self) -> Generator[None]:
        """Count a call that waits."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    @contextmanager
    def counted(self) -> Generator[None]:
        """Count a call that waited as one that runs."""
        self.waiting -= 1
        self.running += 1
        self.idle.clear()
        try:
            yield
        finally:
            self.waiting += 1
            self.running -= 1
            if not self.running:
                self.idle.set()


class CallSlot:
    """The turn of one call; begins when a slot is free. Use it as a context manager."""

    def __init__(self, member: ServerState) -> None:
        self._member, self._slots = member, member.slots
        self._has_slot = self._is_resting = self._is_over = False
        self._clock: asyncio.Timeout | None = None
        self._left = 0.0
        self._questions = 0

    async def __aenter__(self) -> Self:
        await self._slots.acquire()
        self._has_slot = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        self._wake()
        self._release()

    @asynccontextmanager
    async def timed(self, seconds: float) -> AsyncGenerator[None]:
        """Limit work to so many seconds, not counting rests; raises `TimeoutError`."""
        async with asyncio.timeout(seconds) as clock:
            self._clock = clock
            try:
                yield
            finally:
                self._clock = None

    def relay(self, relay: Relay | None) -> Relay | None:
        """Return a relay whose questions let the call rest."""
        return None if relay is None else _Resting(relay, self)

    @asynccontextmanager
    async def resting(self) -> AsyncGenerator[None]:
        """Rest for as long as somebody is asked."""
        self._questions += 1
        self._rest()
        try:
            yield
        except BaseException:
            # A question that was called off cannot wait for a slot; the call goes on without.
            self._questions -= 1
            if not self._questions:
                self._wake()
            raise
        self._questions -= 1
        if not self._questions:
            await self._resume()

    def _rest(self) -> None:
        if self._is_over or self._is_resting:
            return
        self._is_resting = True
        self._member.resting += 1
        self._release()
        clock = self._clock
        if clock is not None and not clock.expired():
            self._left = (clock.when() or 0.0) - asyncio.get_running_loop().time()
            clock.reschedule(None)

    async def _resume(self) -> None:
        await self._slots.acquire()
        if self._is_over or self._questions or not self._is_resting:
            self._slots.release()
            return
        self._has_slot = True
        self._wake()

    def _wake(self) -> None:
        if not self._is_resting:
            return
        self._is_resting = False
        self._member.resting -= 1
        clock = self._clock
        if clock is not None and not clock.expired():
            clock.reschedule(asyncio.get_running_loop().time() + self._left)

    def _release(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._slots.release()


class _Resting:
    """A relay during whose questions a call rests."""

    def __init__(self, relay: Relay, turn: CallSlot) -> None:
        self._relay, self._turn = relay, turn

    async def report_progress(self, done: float, total: float | None, message: str | None) -> None:
        await self._relay.report_progress(done, total, message)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        await self._relay.log(params)

    async def sample(self, params: types.CreateMessageRequestParams) -> Any:
        async with self._turn.resting():
            return await self._relay.sample(params)

    async def elicit(self, params: types.ElicitRequestParams) -> Any:
        async with self._turn.resting():
            return await self._relay.elicit(params)

    async def list_roots(self) -> Any:
        async with self._turn.resting():
            return await self._relay.list_roots()


_log = logging.getLogger(__name__)


class CatalogUpdater:
    """The way from servers into one catalogue."""

    def __init__(self, catalog: Catalog, store: Store) -> None:
        self._catalog, self._store = catalog, store

    def recall(self, member: ServerState) -> None:
        """Offer what a server offered last, or say that it is awaited."""
        data = self._store.read(MANIFEST_KIND, member.name)
        kept = (
            manifest_from_bytes(data, compute_config_key(member.config))
            if data is not None
            else None
        )
        if kept is None:
            self._catalog.set_pending(member.name)
        else:
            self.offer(member, kept)
            member.phase = Phase.KNOWN

    async def read(self, member: ServerState, connection: Connection) -> None:
        """Ask a server what it offers; offer that, and keep it."""
        async with asyncio.timeout(member.config.start_seconds):
            manifest = await connection.read_manifest()
        if manifest == member.manifest and self.is_ready(member):
            return
        self.offer(member, manifest)
        try:
            data = manifest.to_bytes(compute_config_key(member.config))
            self._store.write(MANIFEST_KIND, member.name, data)
        except Exception:  # a cache that cannot be written is no reason to lose a server
            _log.warning("The lists of server %s were not kept.", member.name, exc_info=True)

    def offer(self, member: ServerState, manifest: Manifest) -> None:
        """Make the tools of a manifest those of a server, which is ready by that."""
        offers = build_entries(member.config, manifest)
        problems = list(offers.problems)
        tools = [tool for tool in offers.tools if self._is_free(tool, problems)]
        for problem in problems:
            if problem not in member.problems:
                _log.warning("Server %s: %s", member.name, problem)
        member.manifest, member.problems = manifest, tuple(problems)
        self._catalog.replace(member.name, tools)

    def is_ready(self, member: ServerState) -> bool:
        """Tell whether the catalogue has a server as ready."""
        state = self._catalog.state(member.name)
        return state is not None and state.status is Status.READY

    def _is_free(self, tool: Tool, problems: list[str]) -> bool:
        # One name that two servers want must not cost either its other tools (R84).
        owner = self._catalog.get(tool.name)
        if owner is None or owner.server == tool.server:
            return True
        problems.append(f"{tool.leaf!r} would be {tool.name!r}, which {owner.server!r} has.")
        return False


def compute_config_key(config: ServerConfig) -> str:
    """Return a digest of what decides a server's tools; another one makes its cache void."""
    parts = [config.command, list(config.args), config.cwd, config.url, config.spec]
    return hashlib.sha256(to_canonical_json([str(config.transport), *parts])).hexdigest()[:16]
