"""The audit record: who did what through a gateway, in entries that are chained by hash.

`AuditRecord` listens to the gateway's events and appends an entry for each to the store, and to a
file of JSON lines if there is one. An entry holds names, codes, counts and digests; it holds
arguments and queries only if the configuration says so. Each gateway, and each command with which
a person decides something, writes a chain of its own, so that several can write at once: entries
are numbered and name the digest of the one before, so `verify` notices what was edited or removed.
"""

import hashlib
import json
import logging
import os
import re
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from toolscout.config.file import Config
from toolscout.config.secrets import SecretMask
from toolscout.errors import UsageError
from toolscout.gateway.events import (
    ApprovalAnswered,
    CallDecided,
    ConsoleAction,
    DefinitionChanged,
    EntryRead,
    LoginChanged,
    Reloaded,
    Requested,
    ServerChanged,
    TokenRefused,
)
from toolscout.gateway.middleware import ANONYMOUS
from toolscout.names import digest_session, to_one_line
from toolscout.schemas import Json, is_list, is_object, to_canonical_json
from toolscout.servers.state import Phase
from toolscout.sessions.events import Called, Described, Event, Ran, Searched
from toolscout.stores.store import Store

KIND = "audit"
SESSIONS_KEPT = 10_000
TEXT_CHARS = 4_000
"""How much of an argument or query an entry holds, where it holds them."""
REASON_CHARS = 200
WRITE_SECONDS = 0.1
DAY_SECONDS = 86_400
FILE_MODE = 0o600
FAULTS_KEPT = 1_000
"""How many faults of a record are told in a sentence each."""
FILTERS = ("event", "principal", "session", "server", "tool", "outcome")
"""The fields by which entries are chosen; patterns may contain `*`."""
_SPAN = re.compile(r"(\d{1,6})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
RECORDED = (
    *(Requested, Called, Searched, Described, Ran, EntryRead, ServerChanged),
    *(ApprovalAnswered, CallDecided, DefinitionChanged, LoginChanged, Reloaded, TokenRefused),
    ConsoleAction,
)

_log = logging.getLogger(__name__)


class AuditRecord:
    """Writes the entries of one gateway, in a thread of its own."""

    def __init__(
        self,
        store: Store,
        *,
        file: Path | None = None,
        with_arguments: bool = False,
        with_queries: bool = False,
        mask: SecretMask | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._file = file
        self.with_arguments = with_arguments
        self.with_queries = with_queries
        self._mask = mask or SecretMask(())
        self._clock = clock
        self._chain = secrets.token_hex(8)
        self._number = 0
        self._digest = ""
        self._callers: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """Principal and client of each session."""
        self._lock = threading.Lock()
        self._events: deque[tuple[Event, float]] = deque()
        self._lines: list[bytes] = []
        self._is_closing = threading.Event()
        # Arguments may be long, so nothing of this happens on the event loop.
        self._writer = ThreadPoolExecutor(1, "toolscout-audit")

    @classmethod
    def from_config(
        cls, config: Config, store: Store, mask: SecretMask | None = None
    ) -> "AuditRecord":
        """Return a record in a store, as a configuration wants it."""
        options = config.gateway
        return cls(
            store,
            file=Path(options.audit_file) if options.audit_file else None,
            with_arguments=options.audit_arguments,
            with_queries=options.audit_queries,
            mask=mask or SecretMask(config.list_secrets()),
        )

    def on_event(self, event: Event) -> None:
        """Add the entry of an event; a listener for `EventStream.subscribe`."""
        if isinstance(event, RECORDED):
            with self._lock:
                self._events.append((event, self._clock()))
                is_first = len(self._events) == 1
            if is_first:
                self._writer.submit(self._write_soon)

    def close(self) -> None:
        """Add the last entry of the chain, and wait until everything is written."""
        self._is_closing.set()
        ending = self._writer.submit(self._end)
        self._writer.shutdown()
        ending.result()  # raises what the store raised

    def remove_old(self, days: float) -> None:
        """Delete entries that are older, and add one that says which."""
        self._writer.submit(self._remove_old, days).result()

    def _write_soon(self) -> None:
        """Write the events of a tenth of a second together, which costs calls the least."""
        self._is_closing.wait(WRITE_SECONDS)
        self._write()

    def _write(self) -> None:
        while self._events:
            self._note(*self._events.popleft())
        if self._lines:
            block = b"\n".join(self._lines)
            self._store.append(KIND, block)
            self._lines.clear()
            if self._file is not None:
                _append_line(self._file, block)

    def _end(self) -> None:
        self._write()
        self._add("end", self._clock(), {})
        self._write()

    def _note(self, event: Event, now: float) -> None:
        match event:
            case Requested():
                self._callers[event.session] = (event.principal.name, event.client)
                self._callers.move_to_end(event.session)
                if len(self._callers) > SESSIONS_KEPT:
                    self._callers.popitem(last=False)
            case Called():
                facts = self._describe_call(event)
                self._add("call" if event.made else "refusal", now, facts)
            case Searched():
                facts = {"outcome": event.code, "form": event.form, "hits": event.hits}
                if self.with_queries and event.reply is not None:
                    facts["queries"] = self._to_text(event.reply.details.get("queries"))
                self._add("search", now, self._find_caller(event.session) | facts)
            case Described():
                facts = self._find_caller(event.session) | {"outcome": event.code}
                self._add("describe", now, facts)
            case Ran():
                facts = {"outcome": event.code, "calls": event.calls}
                facts |= {"program_digest": event.digest}
                facts |= {"milliseconds": round(event.milliseconds, 1)}
                self._add("program", now, self._find_caller(event.session) | facts)
            case EntryRead():
                name = to_one_line(self._mask.apply(event.name), REASON_CHARS)
                facts = {"tool": name, "outcome": event.outcome}
                facts |= {"milliseconds": round(event.milliseconds, 1)}
                self._add("read", now, self._find_caller(event.session) | facts)
            case ApprovalAnswered():
                facts = {
                    "tool": event.tool,
                    "server": event.server,
                    "rule": event.rule,
                    "outcome": event.outcome,
                    "by": event.by,
                }
                self._add("approval", now, self._find_caller(event.session) | facts)
            case ServerChanged(phase=Phase.FAILED | Phase.NEEDS_LOGIN):
                reason = to_one_line(self._mask.apply(event.reason), REASON_CHARS)
                facts = {"server": event.server, "outcome": event.phase.value, "reason": reason}
                self._add("server", now, facts)
            case CallDecided(request=request):
                facts = {
                    "principal": request.principal or ANONYMOUS.name,
                    "session": request.session,
                    "tool": request.tool,
                    "server": request.server,
                    "rule": request.rule,
                    "outcome": request.outcome,
                    "by": request.by,
                }
                self._add("approval", now, facts)
            case ConsoleAction():
                facts = {"server": event.server, "tool": event.tool, "outcome": event.action}
                facts |= {"options": list(event.options) or None, "by": event.by}
                self._add("action", now, facts)
            case LoginChanged():
                reason = to_one_line(self._mask.apply(event.reason), REASON_CHARS)
                facts = {"server": event.server, "outcome": event.outcome.value, "reason": reason}
                self._add("login", now, facts | {"principal": event.principal, "by": event.by})
            case TokenRefused():
                reason = to_one_line(self._mask.apply(event.reason), REASON_CHARS)
                facts = {"outcome": "refused", "source": event.source, "reason": reason}
                facts |= {"token_digest": event.digest, "unnoted": event.unnoted or None}
                self._add("token", now, facts)
            case DefinitionChanged():
                facts = {"server": event.server, "tool": event.name, "outcome": event.outcome}
                facts |= {"by": event.by, "definition_digest": event.digest}
                self._add("definition", now, facts | {"more": event.more or None})
            case Reloaded():
                names = (("added", event.added), ("removed", event.removed))
                facts = {key: list(value) for key, value in names if value}
                facts |= {"changed": list(event.changed)} if event.changed else {}
                self._add("reload", now, facts)
            case _:
                pass

    def _add(self, what: str, now: float, facts: Json) -> None:
        moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        entry: Json = {"time": moment, "event": what}
        entry |= {key: value for key, value in facts.items() if value not in ("", None)}
        self._number += 1
        entry |= {"chain": self._chain, "number": self._number, "previous": self._digest}
        self._digest = entry["digest"] = compute_digest(entry)
        self._lines.append(to_canonical_json(entry))

    def _remove_old(self, days: float) -> None:
        self._write()
        oldest = datetime.fromtimestamp(self._clock() - days * DAY_SECONDS, UTC).isoformat()
        last = 0
        removed: dict[str, list[object]] = {}
        for number, block in self._store.scan(KIND):
            entries = list(map(entry_from_line, block.splitlines()))
            if not all(str(entry.get("time", "")) < oldest for entry in entries):
                break
            last = number
            for entry in entries:
                if entry.get("event") == "removal" and is_object(entry.get("chains")):
                    # Another writer may go on with a chain of which nothing else is left.
                    removed = {**entry["chains"], **removed}
                removed[str(entry.get("chain"))] = [entry.get("number"), entry.get("digest")]
                if entry.get("event") == "end":
                    del removed[str(entry.get("chain"))]
        if last:
            # First the entry: a crash in between leaves too much rather than a gap.
            self._add("removal", self._clock(), {"chains": removed})
            self._write()
            # What others have added meanwhile stays.
            self._store.trim(KIND, 0, through=last)

    def _describe_call(self, event: Called) -> Json:
        facts: Json = self._find_caller(event.session)
        facts |= {
            "tool": event.tool or to_one_line(self._mask.apply(event.asked), REASON_CHARS),
            "server": event.server,
            "effect": event.effect,
            "rule": event.rule,
            "outcome": event.code,
            "milliseconds": round(event.milliseconds, 1),
        }
        if event.arguments is not None:
            facts["arguments_digest"] = _hash(_to_bytes(event.arguments))
            if self.with_arguments:
                facts["arguments"] = self._to_text(event.arguments)
        return facts

    def _find_caller(self, session: str) -> Json:
        principal, client = self._callers.get(session, (ANONYMOUS.name, ""))
        return {"principal": principal, "client": client, "session": digest_session(session)}

    def _to_text(self, value: object) -> str:
        text = _to_bytes(value).decode("utf-8", "replace")
        return self._mask.apply(text)[:TEXT_CHARS]


def compute_digest(entry: Json) -> str:
    """Return the digest of an entry, which covers everything but itself."""
    return _hash(_to_bytes({key: entry[key] for key in entry if key != "digest"}))


def read_entries(store: Store) -> Iterator[Json]:
    """Yield the entries of a store, oldest first; what cannot be read is an empty entry."""
    for _, block in store.scan(KIND):
        yield from map(entry_from_line, block.split(b"\n"))


def parse_since(text: str) -> str:
    """Return a time, or the beginning of a span such as `12h` that ends now, as entries have it."""
    span = _SPAN.fullmatch(text.strip())
    try:
        if span is not None:
            moment = datetime.now(UTC) - timedelta(**{_UNITS[span[2]]: int(span[1])})
        else:
            moment = datetime.fromisoformat(text.strip())
        return moment.astimezone(UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        remedy = "Write 2026-11-17T09:00, or a span such as 30m, 12h or 7d."
        raise UsageError(f"{to_one_line(text, REASON_CHARS)!r} is no time. {remedy}") from None


def is_wanted(entry: Json, patterns: Mapping[str, str], since: str) -> bool:
    """Tell whether an entry is new enough and fits the patterns of `FILTERS`."""
    return str(entry.get("time", "")) >= since and all(
        fnmatchcase(str(entry.get(name, "")), pattern) for name, pattern in patterns.items()
    )


def entry_from_line(line: bytes | str) -> Json:
    """Return the entry that a line holds, empty if it holds none."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if is_object(entry) else {}


@dataclass(slots=True, kw_only=True)
class _Chain:
    number: int
    digest: str
    ended: bool = False


@dataclass(slots=True, kw_only=True)
class Verification:
    """What `verify` found."""

    entries: int = 0
    chains: int = 0
    open_chains: int = 0
    """Chains without a last entry: their gateway runs, was killed, or the end was removed."""
    faults: list[str] = field(default_factory=list[str])
    """What does not fit together, a sentence each, up to `FAULTS_KEPT`."""

    def add_fault(self, text: str) -> None:
        """Add a sentence, unless there are too many."""
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(text)


def verify(entries: Iterable[Json]) -> Verification:
    """Check every digest, and that no entry is missing between the first and the last of a chain.

    Entries that were removed because of their age are missing at the beginning of a chain, and a
    later entry says so.
    """
    found = Verification()
    chains: dict[str, _Chain] = {}
    beginnings: dict[str, tuple[object, object]] = {}
    removed: dict[str, list[tuple[object, ...]]] = {}
    for place, entry in enumerate(entries, 1):
        found.entries += 1
        name = str(entry.get("chain", ""))
        number = entry.get("number")
        if not isinstance(number, int) or not name or entry.get("digest") != compute_digest(entry):
            found.add_fault(f"Entry {place} was edited or damaged.")
            continue
        chain = chains.get(name)
        where = f"chain {to_one_line(name, 20)}"
        if chain is None:
            if number > 1:
                beginnings[name] = (number - 1, entry.get("previous"))
        elif number != chain.number + 1:
            missing = f"after number {chain.number} of {where}"
            found.add_fault(f"Entries are missing {missing}: number {number} follows.")
        elif entry.get("previous") != chain.digest:
            found.add_fault(f"Number {number} of {where} does not follow the one before it.")
        chains[name] = _Chain(
            number=number, digest=str(entry["digest"]), ended=entry.get("event") == "end"
        )
        listed = entry.get("chains")
        if entry.get("event") == "removal" and is_object(listed):
            for other, last in listed.items():
                if is_list(last):
                    removed.setdefault(other, []).append(tuple(last))
    for name, last in beginnings.items():
        # A gateway that was killed before it removed anything leaves what an entry before says.
        if last not in removed.get(name, ()):
            where = f"chain {to_one_line(name, 20)}"
            found.add_fault(f"The first entries of {where} are missing, up to {last[0]}.")
    found.chains = len(chains)
    found.open_chains = sum(not chain.ended for chain in chains.values())
    return found


def _append_line(file: Path, line: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(file, flags, FILE_MODE), "ab") as opened:
            opened.write(line + b"\n")
    except OSError as error:
        _log.warning("The audit file could not be written: %s", error.strerror)


def _to_bytes(value: object) -> bytes:
    try:
        return to_canonical_json(value)
    except (TypeError, ValueError, RecursionError):
        return repr(type(value)).encode()


def _hash(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
