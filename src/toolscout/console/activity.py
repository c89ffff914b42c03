"""`ActivityLog`: what the sessions and servers of a gateway did lately.

It is bounded in every direction, lives in memory and ends with the process; tokens are kept by the
gateway's `Ledger`. Queries are read from the replies that events carry, because events themselves
hold no text, and are hashed if the settings say so. `SessionTable` gives the sessions as rows for
whoever may look at them, and `build_savings` the ledger's hours.
"""

import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from toolscout.console.views import View, make_not_found
from toolscout.gateway.ledger import HOUR_SECONDS, Ledger, Tally
from toolscout.gateway.middleware import ANONYMOUS, Principal
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.search.feedback import hash_query
from toolscout.sessions.events import Answered, Called, Described, Searched
from toolscout.sessions.record import Entry
from toolscout.sessions.replies import Reply

SESSIONS_KEPT = 200
EVENTS_KEPT = 500
LATENCIES_KEPT = 500
LINES_KEPT = 200
TEXT_CHARS = 500
NAMES_KEPT = 20
"""Names of found tools that are kept of one search."""
SERVER_FAULTS = frozenset({"server_unavailable", "server_busy", "timed_out"})
"""Codes of refusals that count as errors of the server."""


def format_time(seconds: float) -> str:
    """Return a time in seconds since 1970 as RFC 3339 has it: in UTC, to the millisecond."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """One event of a session."""

    time: float
    kind: str
    code: str
    text: str = ""
    tool: str = ""
    hits: int = 0
    found: tuple[str, ...] = ()
    milliseconds: float = 0.0
    tokens: int = 0

    def to_json(self) -> Json:
        """Return the event as the API shows it."""
        return {
            "time": format_time(self.time),
            "kind": self.kind,
            "text": self.text,
            "tool": self.tool,
            "hits": self.hits,
            "found": list(self.found),
            "code": self.code,
            "milliseconds": round(self.milliseconds, 3),
            "tokens": self.tokens,
        }


@dataclass(slots=True, kw_only=True)
class SessionLog:
    """One session; the activity log lets one thread write at a time."""

    session: str
    """The gateway's name, with which a client could take the session over."""
    id: str
    """The name in the API, which is good for nothing else."""
    principal: Principal = ANONYMOUS
    client: str = ""
    started: float
    active: float
    searches: int = 0
    calls: int = 0
    events: deque[LoggedEvent] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))

    def to_json(self, loaded: int, tokens: Tally) -> Json:
        """Return the session as a row; `loaded` is the number of tools that it has loaded."""
        return {
            "id": self.id,
            "client": self.client,
            "principal": self.principal.name,
            "started": format_time(self.started),
            "active": format_time(self.active),
            "searches": self.searches,
            "calls": self.calls,
            "loaded": loaded,
            "tokens_used": tokens.used,
            "tokens_saved": tokens.net,
        }


@dataclass(slots=True, kw_only=True)
class ServerLog:
    """The calls of one server, and the last lines of its log."""

    calls: int = 0
    errors: int = 0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES_KEPT))
    lines: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=LINES_KEPT))

    def count(self, event: Called) -> None:
        """Count a call, or one that the server could not take."""
        if event.made:
            self.calls += 1
            self.errors += event.code != "ok"
            self.latencies.append(event.milliseconds)
        elif event.code in SERVER_FAULTS:
            self.errors += 1

    def compute_quantile(self, share: float) -> float | None:
        """Return the latency in milliseconds that a share of the last calls stayed within."""
        ordered = sorted(self.latencies)
        if not ordered:
            return None
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


class ActivityLog:
    """All sessions and servers of one gateway; threads may share it.

    `find_server` names the server of a tool.
    """

    def __init__(
        self,
        find_server: Callable[[str], str],
        *,
        hash_queries: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._find_server = find_server
        self._format_query = hash_query if hash_queries else str
        self._clock = clock
        self._sessions: OrderedDict[str, SessionLog] = OrderedDict()
        self._servers: dict[str, ServerLog] = {}
        self._lock = threading.Lock()

    def note_client(self, session: str, principal: Principal, client: str) -> SessionLog:
        """Note who uses a session."""
        with self._lock:
            log = self._find_log(session)
            log.principal = principal
            log.client = client or log.client
            return log

    def add(self, event: Answered) -> tuple[SessionLog, LoggedEvent]:
        """Add an event to the log of its session and, if it is a call, of its server."""
        logged = self._build_event(event)
        with self._lock:
            log = self._find_log(event.session)
            log.active = logged.time
            log.searches += logged.kind == "search"
            log.calls += logged.kind == "call"
            log.events.append(logged)
            server = self._find_server(logged.tool) if logged.tool else ""
            if server and isinstance(event, Called):
                self._servers.setdefault(server, ServerLog()).count(event)
            return log, logged

    def add_line(self, server: str, line: str) -> None:
        """Add a line of a server's own log."""
        with self._lock:
            log = self._servers.setdefault(server, ServerLog())
            log.lines.append((self._clock(), line))

    def get_server(self, server: str) -> ServerLog:
        """Return a copy of a server's log."""
        with self._lock:
            log = self._servers.get(server, ServerLog())
            return ServerLog(
                calls=log.calls,
                errors=log.errors,
                latencies=log.latencies.copy(),
                lines=log.lines.copy(),
            )

    def list_sessions(self) -> Sequence[SessionLog]:
        """Return all sessions, the last active first."""
        with self._lock:
            return sorted(self._sessions.values(), key=lambda log: -log.active)

    def list_events(self, log: SessionLog) -> Sequence[LoggedEvent]:
        """Return the events of a session, oldest first."""
        with self._lock:
            return tuple(log.events)

    def _find_log(self, session: str) -> SessionLog:
        log = self._sessions.get(session)
        if log is None:
            now = self._clock()
            log = SessionLog(session=session, id=hash_session(session), started=now, active=now)
            self._sessions[session] = log
            if len(self._sessions) > SESSIONS_KEPT:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(session)
        return log

    def _build_event(self, event: Answered) -> LoggedEvent:
        kind = "suggest"
        text = ""
        found: list[str] = []
        match event:
            case Searched():
                kind = "search"
                text, found = self._read_search(event.reply)
            case Described():
                kind = "describe"
                found = _read_described(event.reply)
                text = ", ".join(found)
            case Called():
                kind = "call" if event.made else "refusal"
            case _:
                pass
        return LoggedEvent(
            time=self._clock(),
            kind=kind,
            code=event.code,
            text=to_one_line(text, TEXT_CHARS),
            tool=event.tool if isinstance(event, Called) else "",
            hits=(event.hits if isinstance(event, Searched) else 0) or event.loaded,
            found=tuple(found[:NAMES_KEPT]),
            milliseconds=event.milliseconds,
            tokens=event.tokens,
        )

    def _read_search(self, reply: Reply | None) -> tuple[str, list[str]]:
        if reply is None:
            return "", []
        queries = [str(row["query"]) for row in reply.details.get("queries", ())]
        texts = [to_one_line(self._format_query(query), TEXT_CHARS) for query in queries]
        found = dict.fromkeys(hit.tool.name for hit in (*reply.hits, *reply.known))
        return " · ".join(texts), list(found)


def _read_described(reply: Reply | None) -> list[str]:
    names = reply.details.get("described", ()) if reply is not None else ()
    return list(dict.fromkeys(map(str, names)))


def hash_session(session: str) -> str:
    """Return a name for a session with which nobody can take it over."""
    return hashlib.blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class SessionTable:
    """The sessions of a gateway; `is_peer` tells whether one principal may see another's."""

    def __init__(
        self,
        scout: Scout,
        activity: ActivityLog,
        ledger: Ledger,
        is_peer: Callable[[Principal, Principal], bool],
    ) -> None:
        self._scout = scout
        self._activity = activity
        self._ledger = ledger
        self._is_peer = is_peer

    def list_rows(self, view: View) -> list[Json]:
        """Return the visible sessions, the last active first."""
        return [
            self.build_row(log)
            for log in self._activity.list_sessions()
            if self._is_peer(view.principal, log.principal)
        ]

    def build_row(self, log: SessionLog) -> Json:
        """Return one session."""
        loaded = self._list_entries(log.session)
        return log.to_json(len(loaded), self._ledger.get_session(log.session))

    def get_details(self, view: View, id_: str) -> Json:
        """Return one session with its loaded tools and its events."""
        log = self._find_log(view, id_)
        return {
            **self.build_row(log),
            "loaded": [
                {"name": entry.name, "tokens": entry.tokens, "query": entry.query}
                for entry in self._list_entries(log.session)
            ],
            "events": [event.to_json() for event in self._activity.list_events(log)],
        }

    def _find_log(self, view: View, id_: str) -> SessionLog:
        for log in self._activity.list_sessions():
            if log.id == id_ and self._is_peer(view.principal, log.principal):
                return log
        raise make_not_found("session", id_)

    def _list_entries(self, session: str) -> list[Entry]:
        """Return what a session has loaded; one that nobody holds open any more has nothing."""
        live = self._scout.find_live(session)
        return [] if live is None else live.list_entries()


def build_savings(ledger: Ledger, hours: int, includes: Callable[[str], bool]) -> Json:
    """Return the tokens of the last hours, one point for each, of the included principals."""
    points = ledger.sum_hours(hours, includes)
    total = Tally()
    for tally in points.values():
        total.add(tally)
    by_server = sorted(total.servers.items(), key=lambda item: (-item[1], item[0]))
    return {
        "points": [
            {"time": format_time(hour * HOUR_SECONDS), **tally.to_json()}
            for hour, tally in points.items()
        ],
        "by_server": [{"server": name, "not_sent": tokens} for name, tokens in by_server],
        "total": total.to_json(),
    }
