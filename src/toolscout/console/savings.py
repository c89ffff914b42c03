"""`Savings`: tokens that clients were spared and that toolscout cost, by the hour.

Kept in the store under the hour and this process, so that several gateways may share a store and
the chart survives a restart. Lists are only noted when they are sent; their tokens are counted
when somebody looks or when the hour is written down, because a list must not wait for it.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields

from toolscout.console.activity import HOUR_SECONDS, hour_of, told_time
from toolscout.console.catalog import Costs
from toolscout.schemas import Json
from toolscout.sessions.session import Store
from toolscout.tokens import count_tokens
from toolscout.tools import Tool

KIND = "savings"
HOURS_KEPT = 24 * 62
HOURS_MOST = 24 * 31
MOST_LISTS = 200
OWN_REPLIES = ("search", "suggest", "refusal")
COUNTED_PARTS = ("name", "description", "inputSchema")


@dataclass(slots=True, kw_only=True)
class Tally:
    """The tokens of one hour, or of several."""

    not_sent: int = 0
    """Definitions that a list without toolscout would have had."""
    menu: int = 0
    """What was listed instead."""
    replies: int = 0
    descriptions: int = 0
    servers: dict[str, int] = field(default_factory=dict[str, int])
    """`not_sent` by server."""

    def add(self, other: "Tally") -> None:
        """Add another's tokens."""
        self.not_sent += other.not_sent
        self.menu += other.menu
        self.replies += other.replies
        self.descriptions += other.descriptions
        for server, tokens in other.servers.items():
            self.servers[server] = self.servers.get(server, 0) + tokens

    @property
    def net(self) -> int:
        """What was spared in the end; below 0 where toolscout cost more."""
        return self.not_sent - self.menu - self.replies - self.descriptions

    def row(self) -> Json:
        """Return the sums for JSON."""
        names = ("not_sent", "menu", "replies", "descriptions", "net")
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True)
class _List:
    """A list of tools that was sent, and how often."""

    session: str
    principal: str
    hour: int
    tools: Sequence[Tool]
    listed: Sequence[Json]
    times: int = 0


_Hours = dict[int, dict[str, Tally]]
"""By hour and principal."""


class Savings:
    """All hours of this process and those that the store has; threads may share it.

    `charge` is told what a list spared and cost a session.
    """

    def __init__(
        self,
        store: Store | None,
        costs: Costs,
        charge: Callable[[str, int, int], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._costs, self._charge, self._clock = store, costs, charge, clock
        self._process = secrets.token_hex(4)
        self._hours: _Hours = {}
        self._changed: set[int] = set()
        self._lists: dict[tuple[str, int, int], _List] = {}
        self._lock = threading.Lock()
        self._settling = threading.Lock()

    def note_reply(self, principal: str, kind: str, tokens: int) -> None:
        """Count a reply of toolscout's own."""
        if kind in OWN_REPLIES:
            self._add(principal, hour_of(self._clock()), Tally(replies=tokens))
        elif kind == "describe":
            self._add(principal, hour_of(self._clock()), Tally(descriptions=tokens))

    def note_list(
        self,
        session: str,
        principal: str,
        version: int,
        visible: Callable[[], Sequence[Tool]],
        listed: Sequence[Json],
    ) -> None:
        """Take note that a client was listed tools, of a version of the catalogue."""
        key = (session, version, hour_of(self._clock()))
        with self._lock:
            known = self._lists.get(key)
            if known is not None:
                known.times += 1
                return
            is_full = len(self._lists) >= MOST_LISTS
        if is_full:
            self.settle()
        made = _List(session, principal, key[2], visible(), listed, 1)
        with self._lock:
            self._lists[key] = made

    def settle(self) -> None:
        """Count the tokens of all lists since the last time."""
        with self._settling:
            with self._lock:  # not for longer: lists must not wait while tokens are counted
                lists, self._lists = list(self._lists.values()), {}
            for one in lists:
                tools = [tool for tool in one.tools if tool.kind == "tool"]
                servers = {s: n * one.times for s, n in self._costs.sum_by_server(tools).items()}
                menu = one.times * sum(map(listed_tokens, one.listed))
                spared = sum(servers.values())
                self._add(
                    one.principal, one.hour, Tally(not_sent=spared, menu=menu, servers=servers)
                )
                self._charge(one.session, spared, menu)

    def save(self) -> None:
        """Write down the hours that have changed, and forget those that are too old."""
        self.settle()
        with self._lock:
            changed, self._changed = self._changed, set()
            written = {
                hour: json.dumps({who: asdict(tally) for who, tally in self._hours[hour].items()})
                for hour in changed
            }
        if self._store is None:
            return
        for hour, text in written.items():
            self._store.write(KIND, f"{hour:09d}/{self._process}", text.encode())

    def sweep(self) -> None:
        """Forget the hours that are too old to be asked for."""
        oldest = hour_of(self._clock()) - HOURS_KEPT
        with self._lock:
            for hour in [hour for hour in self._hours if hour < oldest]:
                del self._hours[hour]
        for key in self._store.keys(KIND) if self._store is not None else ():
            if self._store is not None and _hour_in(key) < oldest:
                self._store.write(KIND, key, None)

    def told(self, hours: int, includes: Callable[[str], bool]) -> Json:
        """Return the last hours, one point for each, of the principals that are included."""
        self.settle()
        last = hour_of(self._clock())
        first = last - max(1, min(hours, HOURS_MOST)) + 1
        points = {hour: Tally() for hour in range(first, last + 1)}
        for hour, tallies in (*self._stored(first), *self._own(first)):
            for who, tally in tallies.items():
                if hour in points and includes(who):
                    points[hour].add(tally)
        total = Tally()
        for tally in points.values():
            total.add(tally)
        by_server = sorted(total.servers.items(), key=lambda item: (-item[1], item[0]))
        return {
            "points": [
                {"time": told_time(hour * HOUR_SECONDS), **tally.row()}
                for hour, tally in points.items()
            ],
            "by_server": [{"server": name, "not_sent": tokens} for name, tokens in by_server],
            "total": total.row(),
        }

    def _own(self, first: int) -> list[tuple[int, dict[str, Tally]]]:
        with self._lock:
            return [
                (hour, {who: _copied(tally) for who, tally in tallies.items()})
                for hour, tallies in self._hours.items()
                if hour >= first
            ]

    def _stored(self, first: int) -> list[tuple[int, dict[str, Tally]]]:
        """Return what other processes, or this machine before a restart, have written down."""
        if self._store is None:
            return []
        found: list[tuple[int, dict[str, Tally]]] = []
        for key in self._store.keys(KIND):
            hour, _, process = key.partition("/")
            if process != self._process and _hour_in(key) >= first:
                found.append((int(hour), _tallies(self._store.read(KIND, key))))
        return found

    def _add(self, principal: str, hour: int, tally: Tally) -> None:
        with self._lock:
            mine = self._hours.setdefault(hour, {})
            mine.setdefault(principal, Tally()).add(tally)
            self._changed.add(hour)


def listed_tokens(definition: Json) -> int:
    """Return what a listed tool costs, by the same parts as `count_definition_tokens` counts."""
    told = {key: definition.get(key) for key in COUNTED_PARTS}
    return count_tokens(json.dumps(told, ensure_ascii=False, separators=(",", ":")))


def _copied(tally: Tally) -> Tally:
    twin = Tally()
    twin.add(tally)
    return twin


def _hour_in(key: str) -> int:
    hour = key.partition("/")[0]
    return int(hour) if hour.isdecimal() and len(hour) < 12 else 0


def _tallies(data: bytes | None) -> dict[str, Tally]:
    """Return what was written down; what cannot be read, of another version perhaps, is nothing."""
    names = {item.name for item in fields(Tally)}
    try:
        rows = json.loads(data or b"{}")
        return {
            who: Tally(**{k: v for k, v in row.items() if k in names}) for who, row in rows.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
