"""`Chronicle`: what the gateway did lately: conversations, calls of servers, lines of their logs.

Bounded in every direction, in memory, gone with the process; what is saved by the hour is kept by
`savings`. Threads may share it.
"""

import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from toolscout.console.journals import Happening, Journal
from toolscout.events import Event
from toolscout.gateway.auth import ANONYMOUS, Principal
from toolscout.sessions.replies import Reply

JOURNALS_KEPT = 200
LATENCIES_KEPT = 500
LINES_KEPT = 200
UNREACHED = frozenset({"server_unavailable", "server_busy", "timed_out"})
"""Refusals that are a server's fault."""


def _latencies() -> deque[float]:
    return deque(maxlen=LATENCIES_KEPT)


def _lines() -> deque[tuple[float, str]]:
    return deque(maxlen=LINES_KEPT)


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What became of the calls of one server, and what it said."""

    calls: int = 0
    errors: int = 0
    latencies: deque[float] = field(default_factory=_latencies)
    lines: deque[tuple[float, str]] = field(default_factory=_lines)

    def note(self, event: Event) -> None:
        """Count a call, or one that the server could not take."""
        if event.kind == "call":
            self.calls += 1
            self.errors += event.code != "ok"
            self.latencies.append(event.milliseconds)
        elif event.code in UNREACHED:
            self.errors += 1

    def quantile(self, share: float) -> float | None:
        """Return the latency in milliseconds that a share of the last calls stayed within."""
        ordered = sorted(self.latencies)
        if not ordered:
            return None
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


class Chronicle:
    """All conversations and servers of one gateway.

    `server_of` names the server of a tool.
    """

    def __init__(
        self, server_of: Callable[[str], str], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._server_of, self._clock = server_of, clock
        self._journals: OrderedDict[str, Journal] = OrderedDict()
        self._ledgers: dict[str, Ledger] = {}
        self._lock = threading.Lock()

    def meet(self, session: str, principal: Principal, client: str) -> Journal:
        """Take note that somebody speaks in a session."""
        with self._lock:
            journal = self._journal(session)
            journal.principal = principal
            journal.client = client or journal.client
            return journal

    def hear(self, event: Event) -> tuple[Journal, Happening]:
        """Take note of an event."""
        with self._lock:
            journal = self._journal(event.session)
            happening = journal.hear(event, self._clock())
            if event.kind in ("call", "refusal") and event.form:
                server = self._server_of(event.form)
                if server:
                    self._of(server).note(event)
            return journal, happening

    def read(
        self, session: str, reply: Reply, shown: Callable[[str], str]
    ) -> tuple[Journal, Happening] | None:
        """Add what a reply says to the event that has told of it."""
        with self._lock:
            journal = self._journal(session)
            happening = journal.read(reply, shown)
            return None if happening is None else (journal, happening)

    def charge(self, session: str, *, spared: int, menu: int) -> None:
        """Add what a list cost a conversation, and what it spared it."""
        with self._lock:
            journal = self._journal(session)
            journal.spared += spared
            journal.menus += menu

    def say(self, server: str, line: str) -> None:
        """Take note of a line of a server's log."""
        with self._lock:
            self._of(server).lines.append((self._clock(), line))

    def ledger(self, server: str) -> Ledger:
        """Return what became of a server's calls, as a copy."""
        with self._lock:
            mine = self._of(server)
            return Ledger(
                calls=mine.calls,
                errors=mine.errors,
                latencies=mine.latencies.copy(),
                lines=mine.lines.copy(),
            )

    def journals(self) -> Sequence[tuple[str, Journal]]:
        """Return all conversations by the gateway's names for them, the last active first."""
        with self._lock:
            return sorted(self._journals.items(), key=lambda item: -item[1].active)

    def happenings(self, journal: Journal) -> Sequence[Happening]:
        """Return what a conversation did, oldest first."""
        with self._lock:
            return tuple(journal.happenings)

    def _journal(self, session: str) -> Journal:
        journal = self._journals.get(session)
        if journal is None:
            now = self._clock()
            journal = Journal(
                id=public_id(session), principal=ANONYMOUS, client="", started=now, active=now
            )
            self._journals[session] = journal
            while len(self._journals) > JOURNALS_KEPT:
                self._journals.popitem(last=False)
        self._journals.move_to_end(session)
        return journal

    def _of(self, server: str) -> Ledger:
        return self._ledgers.setdefault(server, Ledger())


def public_id(session: str) -> str:
    """Return a name for a session that lets nobody speak in it, which its id would."""
    return hashlib.blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
