"""`ServerState`: one server of the pool, with its phase, its counters and its connection.

`CallSlot` gives a call one of the server's places and limits its time. While a person or a model
answers a question of the server, the server only waits: the call then frees its place for others
and its clock stops. Whoever asks the question limits how long the answer may take.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import mcp_types as types

from toolscout.config.servers import ServerConfig
from toolscout.servers.connection import FAILED, NEEDS_LOGIN, STOPPED, Connection, Relay
from toolscout.servers.manifest import Manifest
from toolscout.servers.oauth.tokens import TokenFile

LOG_LINES = 50


class Phase(StrEnum):
    """What a server is doing."""

    CONFIGURED = "configured"
    KNOWN = "known"
    """Its tools are in the cache; it has not been started."""
    STARTING = "starting"
    READY = "ready"
    FAILED = FAILED
    NEEDS_LOGIN = NEEDS_LOGIN
    STOPPED = STOPPED


def _make_set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True, kw_only=True)
class ServerState:
    """One server; all times are those of the event loop."""

    config: ServerConfig
    slots: asyncio.Semaphore
    name: str = field(init=False)
    phase: Phase = Phase.CONFIGURED
    reason: str = ""
    since: float = 0.0
    starts: int = 0
    failures: int = 0
    """Failed starts and unexpected ends since the last answered call."""
    silences: int = 0
    """Calls in a row that were not answered in time."""
    waiting: int = 0
    """Calls that wait for a slot or for the server to start."""
    running: int = 0
    resting: int = 0
    """Running calls that wait for an answer of their client."""
    used: float = 0.0
    retry_at: float = 0.0
    token_file: TokenFile | None = None
    login: str = ""
    """The login that the token file held at the last start."""
    manifest: Manifest | None = None
    problems: tuple[str, ...] = ()
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    """The last lines that the server wrote to stderr, with secrets masked."""
    connection: Connection | None = None
    opening: asyncio.Task[Connection] | None = None
    idle: asyncio.Event = field(default_factory=_make_set_event)
    """Set while no call is running."""
    is_held: bool = False
    """Whether the server stays stopped until somebody starts it by name."""

    def __post_init__(self) -> None:
        self.name = self.config.name

    def note_login(self, file: TokenFile | None) -> None:
        """Remember the login that a start begins with."""
        self.token_file = file
        self.login = file.login if file is not None else ""

    @property
    def has_new_login(self) -> bool:
        """Whether someone logged in, or out, since the last start."""
        return self.token_file is not None and self.token_file.login != self.login

    @contextmanager
    def count_waiting(self) -> Generator[None]:
        """Count a call as waiting."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    @contextmanager
    def count_running(self) -> Generator[None]:
        """Count a waiting call as running."""
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
    """The slot and the clock of one call. Entering it waits until a slot is free."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._slots = server.slots
        self._has_slot = False
        self._is_resting = False
        self._is_over = False
        self._clock: asyncio.Timeout | None = None
        self._seconds_left = 0.0
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
    async def limit(self, seconds: float) -> AsyncGenerator[None]:
        """Raise `TimeoutError` after some seconds, not counting those spent at rest."""
        async with asyncio.timeout(seconds) as clock:
            self._clock = clock
            try:
                yield
            finally:
                self._clock = None

    def wrap_relay(self, relay: Relay | None) -> Relay | None:
        """Return a relay that lets the call rest while it asks a question."""
        return None if relay is None else _RestingRelay(relay, self)

    @asynccontextmanager
    async def pause(self) -> AsyncGenerator[None]:
        """Let the call rest; it rests until all questions are answered."""
        self._questions += 1
        self._start_resting()
        try:
            yield
        except BaseException:
            # A cancelled question cannot wait for a slot, so the call goes on without one.
            self._questions -= 1
            if not self._questions:
                self._wake()
            raise
        self._questions -= 1
        if not self._questions:
            await self._resume()

    def _start_resting(self) -> None:
        if self._is_over or self._is_resting:
            return
        self._is_resting = True
        self._server.resting += 1
        self._release()
        clock = self._clock
        if clock is not None and not clock.expired():
            self._seconds_left = (clock.when() or 0.0) - asyncio.get_running_loop().time()
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
        self._server.resting -= 1
        clock = self._clock
        if clock is not None and not clock.expired():
            clock.reschedule(asyncio.get_running_loop().time() + self._seconds_left)

    def _release(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._slots.release()


class _RestingRelay:
    """A relay whose questions let the call rest."""

    def __init__(self, relay: Relay, slot: CallSlot) -> None:
        self._relay = relay
        self._slot = slot

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        await self._relay.report_progress(progress, total, message)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        await self._relay.log(params)

    async def sample(self, params: types.CreateMessageRequestParams) -> Any:
        async with self._slot.pause():
            return await self._relay.sample(params)

    async def elicit(self, params: types.ElicitRequestParams) -> Any:
        async with self._slot.pause():
            return await self._relay.elicit(params)

    async def list_roots(self) -> Any:
        async with self._slot.pause():
            return await self._relay.list_roots()
