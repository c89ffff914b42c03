"""`Member`: one server of the pool, and what became of it."""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from toolscout.config.servers import ServerConfig
from toolscout.servers.connection import FAILED, NEEDS_LOGIN, STOPPED, Connection
from toolscout.servers.manifest import Manifest
from toolscout.servers.oauth.tokens import TokenFile

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
class Member:
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
