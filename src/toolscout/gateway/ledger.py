"""`Ledger`: the tokens that toolscout saved and the tokens that it cost.

The only place where a gateway counts tokens. It listens to the gateway's events and keeps sums for
the process, for each session, and for each hour and principal. The store keeps the hours of each
process, so gateways can share a store. Counting a large catalogue may take a second, so a list of
tools that was sent is only noted; `settle`, which every reader calls first, counts its tokens.
"""

import json
import secrets
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from toolscout.catalog import TOOL_KIND
from toolscout.gateway.events import Listed, Requested
from toolscout.gateway.middleware import ANONYMOUS
from toolscout.schemas import Json
from toolscout.sessions.events import Answered, Called, Described, Event, Ran
from toolscout.stores.store import Store
from toolscout.tokens import count_all_definition_tokens, count_tokens
from toolscout.tools import Tool

KIND = "savings"
HOUR_SECONDS = 3_600
HOURS_KEPT = 24 * 62
PENDING_LISTS = 200
"""When this many lists are noted, a thread counts them without waiting for a reader."""
SESSIONS_KEPT = 1_000
COUNTED_PARTS = ("name", "description", "inputSchema")
"""The parts of a definition whose tokens are counted, as in `count_definition_tokens`."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Sums of tokens."""

    not_sent: int = 0
    """Definitions that clients would have been sent without toolscout."""
    menu: int = 0
    """Definitions that clients were sent."""
    replies: int = 0
    """Replies to searches and user messages, and refusals."""
    descriptions: int = 0
    servers: dict[str, int] = field(default_factory=dict[str, int])
    """`not_sent` by server."""

    def add(self, other: "Tally") -> None:
        """Add another tally to this one."""
        self.not_sent += other.not_sent
        self.menu += other.menu
        self.replies += other.replies
        self.descriptions += other.descriptions
        for server, tokens in other.servers.items():
            self.servers[server] = self.servers.get(server, 0) + tokens

    @property
    def used(self) -> int:
        """Tokens that toolscout itself cost."""
        return self.menu + self.replies + self.descriptions

    @property
    def net(self) -> int:
        """Tokens saved after all costs; negative if toolscout cost more than it saved."""
        return self.not_sent - self.used

    def to_json(self) -> Json:
        """Return all sums except those by server."""
        names = ("not_sent", "menu", "replies", "descriptions", "net")
        return {name: getattr(self, name) for name in names}


_SAVED = TypeAdapter(dict[str, Tally])
"""The tallies of one hour by principal, as the store has them."""


@dataclass(slots=True)
class _PendingList:
    """A list of tools that was sent `times` times and whose tokens are not counted yet."""

    event: Listed
    hour: int
    times: int = 1


@dataclass(slots=True)
class _Account:
    """The principal and the tokens of one session."""

    principal: str = ANONYMOUS.name
    tally: Tally = field(default_factory=Tally)


class Ledger:
    """Counts the tokens of one gateway; safe to share between threads."""

    def __init__(self, store: Store | None = None, *, clock: Callable[[], float] = time.time):
        self._store = store
        self._clock = clock
        self._process = secrets.token_hex(4)
        self._total = Tally()
        self._hours: dict[int, dict[str, Tally]] = {}
        """Tallies by hour since 1970 and by principal."""
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._changed: set[int] = set()
        self._pending: dict[tuple[str, int, int], _PendingList] = {}
        self._lock = threading.Lock()
        self._settling = threading.Lock()

    def on_event(self, event: Event) -> None:
        """Count the tokens of an event; a listener for `EventStream.subscribe`."""
        match event:
            case Requested():
                with self._lock:
                    self._find_account(event.session).principal = event.principal.name
            case Listed():
                self._note_list(event)
            case Called(made=True) | Ran():
                pass  # without toolscout, the client would have received the result too
            case Described():
                self._add(event.session, self.hour, Tally(descriptions=event.tokens))
            case Answered():
                self._add(event.session, self.hour, Tally(replies=event.tokens))
            case _:
                pass

    @property
    def hour(self) -> int:
        """The current hour since 1970."""
        return int(self._clock() // HOUR_SECONDS)

    def settle(self) -> None:
        """Count the tokens of all lists that were noted since the last time."""
        with self._settling:
            with self._lock:  # held briefly: events must not wait while tokens are counted
                pending = list(self._pending.values())
                self._pending = {}
            for one in pending:
                tokens = _count_by_server(one.event.tools)
                servers = {server: count * one.times for server, count in tokens.items()}
                menu = one.times * sum(map(count_listed_tokens, one.event.definitions))
                tally = Tally(not_sent=sum(servers.values()), menu=menu, servers=servers)
                self._add(one.event.session, one.hour, tally, one.event.principal)

    def get_total(self) -> Tally:
        """Return the tokens of this process since its start."""
        self.settle()
        with self._lock:
            return deepcopy(self._total)

    def get_session(self, session: str) -> Tally:
        """Return the tokens of one session, without lists that are not counted yet."""
        with self._lock:
            account = self._accounts.get(session)
            return Tally() if account is None else deepcopy(account.tally)

    def sum_hours(self, hours: int, includes: Callable[[str], bool]) -> dict[int, Tally]:
        """Return a tally for each of the last hours, of the principals that `includes` accepts.

        The tallies cover this process and all others that share the store.
        """
        self.settle()
        last = self.hour
        points = {hour: Tally() for hour in range(last - hours + 1, last + 1)}
        others = list(self._read_others(points))
        with self._lock:
            for hour, tallies in (*others, *self._hours.items()):
                for principal, tally in tallies.items():
                    if hour in points and includes(principal):
                        points[hour].add(tally)
        return points

    def save(self) -> None:
        """Write the hours that have changed since the last time to the store."""
        self.settle()
        with self._lock:
            changed = self._changed
            self._changed = set()
            rows = {hour: _SAVED.dump_json(self._hours[hour]) for hour in changed}
        if self._store is not None:
            for hour, data in rows.items():
                self._store.write(KIND, f"{hour:09d}/{self._process}", data)

    def remove_old(self) -> None:
        """Delete hours that are older than `HOURS_KEPT`, in memory and in the store."""
        oldest = self.hour - HOURS_KEPT
        with self._lock:
            for hour in [hour for hour in self._hours if hour < oldest]:
                del self._hours[hour]
        if self._store is not None:
            for key in self._store.keys(KIND):
                if _hour_from_key(key) < oldest:
                    self._store.write(KIND, key, None)

    def _note_list(self, event: Listed) -> None:
        hour = self.hour
        key = (event.session, event.version, hour)
        with self._lock:
            known = self._pending.get(key)
            if known is not None:
                known.times += 1
                return
            self._pending[key] = _PendingList(event, hour)
            is_full = len(self._pending) == PENDING_LISTS
        if is_full:
            threading.Thread(target=self.settle, name="toolscout-ledger", daemon=True).start()

    def _add(self, session: str, hour: int, tally: Tally, principal: str = "") -> None:
        with self._lock:
            account = self._find_account(session)
            account.tally.add(tally)
            hours = self._hours.setdefault(hour, {})
            hours.setdefault(principal or account.principal, Tally()).add(tally)
            self._total.add(tally)
            self._changed.add(hour)

    def _find_account(self, session: str) -> _Account:
        account = self._accounts.get(session)
        if account is None:
            account = self._accounts[session] = _Account()
            if len(self._accounts) > SESSIONS_KEPT:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(session)
        return account

    def _read_others(self, hours: Container[int]) -> Iterator[tuple[int, dict[str, Tally]]]:
        """Yield the hours that other processes have saved, including earlier runs of this one."""
        if self._store is None:
            return
        for key in self._store.keys(KIND):
            hour = _hour_from_key(key)
            if key.partition("/")[2] != self._process and hour in hours:
                try:
                    yield hour, _SAVED.validate_json(self._store.read(KIND, key) or b"{}")
                except ValidationError:
                    continue  # written by another version


def count_listed_tokens(definition: Json) -> int:
    """Return the tokens of the counted parts of a listed definition."""
    parts = {key: definition.get(key) for key in COUNTED_PARTS}
    return count_tokens(json.dumps(parts, ensure_ascii=False, separators=(",", ":")))


def _count_by_server(tools: Sequence[Tool]) -> dict[str, int]:
    by_server: defaultdict[str, list[Tool]] = defaultdict(list)
    for tool in tools:
        if tool.kind == TOOL_KIND:
            by_server[tool.server].append(tool)
    return {server: count_all_definition_tokens(group) for server, group in by_server.items()}


def _hour_from_key(key: str) -> int:
    hour = key.partition("/")[0]
    return int(hour) if hour.isdecimal() and len(hour) < 12 else 0
