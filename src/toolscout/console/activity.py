"""`Chronicle`: what the gateway did lately: conversations, calls of servers, lines of their logs.

Bounded in every direction, in memory, gone with the process; what is saved by the hour is kept by
`savings`. Threads may share it.

`Journal`: what one conversation did, as far back as a person wants to look.

Hears the gateway's events and reads its replies, because events hold no text. What a query said
is kept in memory only, and hash_query where the configuration says so.

`Conversations`: live sessions as rows, for whoever may look at them.

How the console writes times: in UTC, to the millisecond, as RFC 3339 has it.
"""

import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from toolscout.console.views import View, make_not_found
from toolscout.gateway.auth import ANONYMOUS, Principal
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.sessions.events import Answered, Called, Described, Searched
from toolscout.sessions.record import Record
from toolscout.sessions.replies import Reply

HOUR_SECONDS = 3_600


def told_time(seconds: float) -> str:
    """Return a time in seconds since 1970 as text."""
    told = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def hour_of(seconds: float) -> int:
    """Return the number of an hour since 1970."""
    return int(seconds // HOUR_SECONDS)


EVENTS_KEPT = 500
TEXT_CHARS = 500
FOUND_TOLD = 20
TOLD = ("search", "describe", "call", "load", "refusal", "suggest")
OWN_REPLIES = ("search", "describe", "suggest", "refusal")
"""Events whose replies exist because of toolscout."""


@dataclass(slots=True, kw_only=True)
class Happening:
    """One event of a conversation."""

    time: float
    kind: str
    code: str
    text: str = ""
    tool: str = ""
    hits: int = 0
    found: tuple[str, ...] = ()
    milliseconds: float = 0.0
    tokens: int = 0

    def row(self) -> Json:
        """Return it for JSON."""
        return {
            "time": told_time(self.time),
            "kind": self.kind,
            "text": self.text,
            "tool": self.tool,
            "hits": self.hits,
            "found": list(self.found),
            "code": self.code,
            "milliseconds": round(self.milliseconds, 3),
            "tokens": self.tokens,
        }


def _no_happenings() -> deque[Happening]:
    return deque(maxlen=EVENTS_KEPT)


@dataclass(slots=True, kw_only=True)
class Journal:
    """One conversation; its owner sees to it that one thread writes at a time."""

    id: str
    """As the API names it; the gateway's own name may let somebody take the session over."""
    principal: Principal
    client: str
    started: float
    active: float
    searches: int = 0
    calls: int = 0
    replies: int = 0
    """Tokens of toolscout's own replies."""
    menus: int = 0
    """Tokens of the lists that it was sent."""
    spared: int = 0
    """Tokens of the definitions that it was not sent."""
    happenings: deque[Happening] = field(default_factory=_no_happenings)

    def hear(self, event: Answered, now: float) -> Happening:
        """Take note of an event."""
        kind = _name_kind(event)
        self.active = now
        self.searches += kind == "search"
        self.calls += kind == "call"
        self.replies += event.tokens if kind in OWN_REPLIES else 0
        happening = Happening(
            time=now,
            kind=kind,
            code=event.code,
            tool=event.tool if isinstance(event, Called) else "",
            hits=(event.hits if isinstance(event, Searched) else 0) or event.loaded,
            milliseconds=event.milliseconds,
            tokens=event.tokens,
        )
        self.happenings.append(happening)
        return happening

    def read(self, reply: Reply, shown: Callable[[str], str]) -> Happening | None:
        """Add what a reply says to the event that told of it; return that event.

        `shown` gives a query as it may be kept.
        """
        queries = reply.details.get("queries")
        kind = "search" if queries is not None else "describe"
        happening = next((h for h in reversed(self.happenings) if h.kind == kind), None)
        if happening is None:
            return None
        if queries is not None:
            texts = [to_one_line(shown(str(row["query"])), TEXT_CHARS) for row in queries]
            happening.text = to_one_line(" · ".join(texts), TEXT_CHARS)
            found = dict.fromkeys(hit.tool.name for hit in (*reply.hits, *reply.known))
        else:
            found = dict.fromkeys(map(str, reply.details.get("described", ())))
            happening.text = to_one_line(", ".join(found), TEXT_CHARS)
        happening.found = tuple(found)[:FOUND_TOLD]
        return happening

    @property
    def used(self) -> int:
        """Tokens that toolscout itself cost."""
        return self.menus + self.replies

    def row(self, loaded: int) -> Json:
        """Return it for a list; `loaded` is how many tools it has."""
        return {
            "id": self.id,
            "client": self.client,
            "principal": self.principal.name,
            "started": told_time(self.started),
            "active": told_time(self.active),
            "searches": self.searches,
            "calls": self.calls,
            "loaded": loaded,
            "tokens_used": self.used,
            "tokens_saved": self.spared - self.used,
        }


def _name_kind(event: Answered) -> str:
    match event:
        case Searched():
            return "search"
        case Described():
            return "describe"
        case Called():
            return "call" if event.made else "refusal"
        case _:
            return "suggest"


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

    def note(self, event: Called) -> None:
        """Count a call, or one that the server could not take."""
        if event.made:
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

    def hear(self, event: Answered) -> tuple[Journal, Happening]:
        """Take note of an event."""
        with self._lock:
            journal = self._journal(event.session)
            happening = journal.hear(event, self._clock())
            if isinstance(event, Called) and event.tool:
                server = self._server_of(event.tool)
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


class Conversations:
    """The sessions of a gateway. `peers` tells whether somebody may look at another's."""

    def __init__(
        self, scout: Scout, chronicle: Chronicle, peers: Callable[[Principal, Principal], bool]
    ) -> None:
        self._scout, self._chronicle, self._peers = scout, chronicle, peers

    def rows(self, view: View) -> list[Json]:
        """Return the visible sessions, the last active first."""
        return [
            journal.row(len(self._record(name).loaded))
            for name, journal in self._chronicle.journals()
            if self._peers(view.principal, journal.principal)
        ]

    def row(self, name: str, journal: Journal) -> Json:
        """Return one session by the gateway's name for it."""
        return journal.row(len(self._record(name).loaded))

    def whole(self, view: View, id_: str) -> Json:
        """Return one session with what it has loaded and done."""
        name, journal = self._find(view, id_)
        record = self._record(name)
        return {
            **journal.row(len(record.loaded)),
            "loaded": [
                {"name": entry.name, "tokens": entry.tokens, "query": entry.query}
                for entry in record.loaded
            ],
            "events": [happening.row() for happening in self._chronicle.happenings(journal)],
        }

    def _find(self, view: View, id_: str) -> tuple[str, Journal]:
        for name, journal in self._chronicle.journals():
            if journal.id == id_ and self._peers(view.principal, journal.principal):
                return name, journal
        raise make_not_found("session", id_)

    def _record(self, name: str) -> Record:
        """Return what a session has loaded; one that nobody holds open any more has nothing."""
        session = self._scout.live(name)
        return Record(id=name) if session is None else session.record
