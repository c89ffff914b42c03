"""`ActivityLog`: what the sessions and servers of a gateway did lately.

It is bounded in every direction, lives in memory and ends with the process; tokens are kept by the
gateway's `Ledger`. Queries are read from the replies that events carry, because events themselves
hold no text, and are hashed if the settings say so. `REFUSALS` explains to an operator why calls
are refused, and `build_savings` gives the ledger's hours.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from toolscout.errors import UnknownTool
from toolscout.gateway.events import LogLine, Requested
from toolscout.gateway.ledger import HOUR_SECONDS, Ledger, Tally
from toolscout.gateway.middleware import ANONYMOUS, Principal
from toolscout.names import digest_session, to_one_line
from toolscout.schemas import Json
from toolscout.search.feedback import hash_query
from toolscout.sessions.events import Answered, Called, Described, Event, Ran, Searched

SESSIONS_KEPT = 200
EVENTS_KEPT = 500
LATENCIES_KEPT = 500
LINES_KEPT = 200
TEXT_CHARS = 500
NAMES_KEPT = 20
"""Names of found tools that are kept of one search."""
HIDDEN = "hidden"
"""The reason of a refusal whose tool exists, but not for the session that called it."""
SERVER_FAULTS = frozenset({"server_unavailable", "server_busy", "timed_out"})
"""Codes of refusals that count as errors of the server."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call was refused, for an operator."""

    text: str
    remedy: str
    page: str = ""
    """The page of the console on which something can be done about it."""


_MODELS_TURN = "Nothing: the refusal told the model what to do."
REFUSALS = {
    "not_allowed": Refusal(
        "A rule or a person does not allow the call.",
        "If it should be allowed, change the rule under [gateway.rules] in the configuration.",
    ),
    "approval_needed": Refusal(
        "A rule asks a person about the call, and the client could not ask its user.",
        "Approve or deny it on the page Waiting.",
        "waiting",
    ),
    HIDDEN: Refusal(
        "The tool exists, but a profile or a rule hides it from this client.",
        "If the client should see it, change the profile or the rule in the configuration.",
    ),
    "unknown_tool": Refusal(
        "No server offers a tool of this name.",
        "If it should exist, check on the page Servers that its server runs and the tool is on.",
        "servers",
    ),
    "ambiguous_tool": Refusal("Several servers have a tool of this name.", _MODELS_TURN),
    "tool_held": Refusal(
        "The server changed the definition of the tool, and nobody has approved the change.",
        "Review the change on the page Servers.",
        "servers",
    ),
    "tool_disabled": Refusal("The host has switched the tool off.", "Switch it on in the host."),
    "tool_changed": Refusal(
        "The definition of the tool has changed since the model read it.", _MODELS_TURN
    ),
    "not_loaded": Refusal("The model has not searched for the tool yet.", _MODELS_TURN),
    "invalid_arguments": Refusal(
        "The arguments do not match the tool's schema.",
        "If models often get them wrong, give the tool a clearer description on the page Servers.",
        "servers",
    ),
    "invalid_request": Refusal("The model called toolscout's own tool wrongly.", _MODELS_TURN),
    "wrong_variant": Refusal(
        "The call was made with a variant of tool_call that is for other effects.",
        "If the effect is wrong, set it under `effects` of the server in the configuration.",
    ),
    "unknown_file": Refusal("The skill has no file of this name.", _MODELS_TURN),
    "skill_changed": Refusal(
        "A file of the skill has changed since somebody approved the skill.",
        "Review the change on the page Servers.",
        "servers",
    ),
    "unknown_result": Refusal("The stored result that the model wants is gone.", _MODELS_TURN),
    "server_unavailable": Refusal(
        "The server does not run.", "See on the page Servers why, and start it.", "servers"
    ),
    "login_required": Refusal(
        "The user has not logged in to the server.",
        "Ask the user to log in; the page Servers leads there.",
        "servers",
    ),
    "login_undecided": Refusal(
        "The server would use one person's login for everybody.",
        'Set login = "user" or login = "shared" for it in the configuration.',
    ),
    "server_busy": Refusal(
        "Too many calls wait for the server.",
        "If that happens often, raise `concurrency` of the server or `queue` under [gateway].",
    ),
    "catalog_unavailable": Refusal(
        "The database that holds the catalogue did not answer.",
        "Look at the log for the reason, and see that the database runs.",
    ),
}
"""By code: why a call was refused, and what an operator can do about it."""


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
    """The tool that was called, or the name that the model used instead of one."""
    rule: str = ""
    reason: str = ""
    """Why a call was refused: a key of `REFUSALS`, or a code that it does not explain."""
    hits: int = 0
    found: tuple[str, ...] = ()
    milliseconds: float = 0.0
    tokens: int = 0

    def to_json(self) -> Json:
        """Return the event as the API shows it."""
        return {
            **asdict(self),
            "time": format_time(self.time),
            "found": list(self.found),
            "milliseconds": round(self.milliseconds, 3),
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
    refusals: int = 0
    events: deque[LoggedEvent] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))


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
    """All sessions and servers of one gateway. `find_server` names the server of a tool."""

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
            log.refusals += logged.kind == "refusal"
            log.events.append(logged)
            server = self._find_server(logged.tool) if logged.tool else ""
            if server and isinstance(event, Called):
                self._servers.setdefault(server, ServerLog()).count(event)
            return log, logged

    def replay(self, past: Iterable[tuple[float, Event]]) -> None:
        """Take in what happened before, each event at its time."""
        clock = self._clock
        for at, event in past:
            self._clock = partial(float, at)
            match event:
                case Requested():
                    self.note_client(event.session, event.principal, event.client)
                case Answered():
                    self.add(event)
                case LogLine():
                    self.add_line(event.server, event.line)
                case _:
                    pass
        self._clock = clock

    def add_line(self, server: str, line: str) -> None:
        """Add a line of a server's own log."""
        with self._lock:
            log = self._servers.setdefault(server, ServerLog())
            log.lines.append((self._clock(), line))

    def get_server(self, server: str) -> ServerLog:
        """Return a copy of a server's log."""
        with self._lock:
            log = self._servers.get(server, ServerLog())
            return replace(log, latencies=log.latencies.copy(), lines=log.lines.copy())

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
            id_ = digest_session(session)
            log = SessionLog(session=session, id=id_, started=now, active=now)
            self._sessions[session] = log
            if len(self._sessions) > SESSIONS_KEPT:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(session)
        return log

    def _build_event(self, event: Answered) -> LoggedEvent:
        """Return what to keep of an event; queries and names are in the reply that it carries."""
        kind = "suggest"
        text = tool = rule = reason = ""
        found: list[str] = []
        match event:
            case Searched():
                kind = "search"
                if event.reply is not None:
                    rows = event.reply.details.get("queries", ())
                    queries = (self._format_query(str(row["query"])) for row in rows)
                    text = " · ".join(to_one_line(query, TEXT_CHARS) for query in queries)
                    found = [hit.tool.name for hit in (*event.reply.hits, *event.reply.known)]
            case Described():
                kind = "describe"
                if event.reply is not None:
                    found = [*map(str, event.reply.details.get("described", ()))]
                text = ", ".join(dict.fromkeys(found))
            case Called():
                kind = "call" if event.made else "refusal"
                tool = event.tool or to_one_line(event.asked, TEXT_CHARS)
                rule = event.rule
                reason = "" if event.made else self._find_reason(event)
            case Ran():
                kind = "program"
                text = f"{event.calls} calls"
            case _:
                pass
        return LoggedEvent(
            time=self._clock(),
            kind=kind,
            code=event.code,
            text=to_one_line(text, TEXT_CHARS),
            tool=tool,
            rule=rule,
            reason=reason,
            hits=(event.hits if isinstance(event, Searched) else 0) or event.loaded,
            found=tuple(dict.fromkeys(found))[:NAMES_KEPT],
            milliseconds=event.milliseconds,
            tokens=event.tokens,
        )

    def _find_reason(self, event: Called) -> str:
        # A model is not told of tools that it may not see, but an operator is.
        is_hidden = event.code == UnknownTool.code and self._find_server(event.asked)
        return HIDDEN if is_hidden else event.code


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
