"""`Record`: what one conversation has loaded, pinned and been shown, as plain values.

It becomes JSON and comes back unchanged. It keeps order, recency and the budget of what is loaded,
and knows no catalogue: the session finds out what became of a tool.
"""

import json
import marshal
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from types import UnionType
from typing import Any, Self, cast, get_args, get_origin

from toolscout.errors import InvalidState
from toolscout.schemas import Json, is_list, is_object
from toolscout.tools import Tool

LAYOUT = 1
SUGGESTED_LIMIT = 500
OFFERED_LIMIT = 200
MARSHAL_VERSION = 2


@dataclass(slots=True, kw_only=True)
class Entry:
    """One tool that the conversation may call."""

    name: str
    server: str
    fingerprint: str
    """Of the definition that was loaded; another one has to be described again (R64)."""
    tokens: int = 0
    used: int = 0
    """The record's clock when it was last loaded, described or called."""
    turn: int = 0
    pinned: bool = False
    query: str = ""
    """What found it."""


@dataclass(slots=True, kw_only=True)
class Record:
    """The state of one session; equal records behave the same."""

    id: str
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    """In the order of loading, which is the order of a growing tools array (R57)."""
    shown: dict[str, str] = field(default_factory=dict[str, str])
    """Tools whose definition is in the conversation, and that definition's fingerprint."""
    offered: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Tools that a search showed as weak: not loaded, but a call of them is accepted. Each with
    its fingerprint and the query that showed it."""
    hiding: bool | None = None
    """Whether tools are hidden, once that is decided."""
    declared: list[str] = field(default_factory=list[str])
    """Tools that were shown in full before hiding began, in order."""
    listing: str | None = None
    """What exists, as the model first read it."""
    listed: dict[str, str] = field(default_factory=dict[str, str])
    """For each server in the listing, a digest of its tools' names."""
    told: dict[str, str] = field(default_factory=dict[str, str])
    """The same, with what was announced since."""
    suggested: list[str] = field(default_factory=list[str])
    heard: dict[str, str] = field(default_factory=dict[str, str])
    """For each server whose instructions the conversation has read, a digest of them."""
    turn: int = 0
    clock: int = 0

    @property
    def loaded(self) -> list[Entry]:
        """The entries that are not pinned, in the order of loading."""
        return [entry for entry in self.entries.values() if not entry.pinned]

    def pin(self, tool: Tool, tokens: int) -> bool:
        """Keep a tool for good; return whether that is news."""
        entry = self.entries.get(tool.name)
        if entry is not None and entry.pinned and entry.fingerprint == tool.fingerprint:
            return False
        self.entries[tool.name] = Entry(
            name=tool.name,
            server=tool.server,
            fingerprint=tool.fingerprint,
            tokens=tokens,
            pinned=True,
        )
        return True

    def select_fitting(self, costs: Sequence[tuple[str, int]], budget: int) -> list[str]:
        """Return which tools, best first, may be loaded together; the first always may (R60)."""
        kept: list[str] = []
        spent = 0
        for name, tokens in costs:
            spent += tokens
            if kept and spent > budget:
                break
            kept.append(name)
        return kept

    def load(
        self, tools: Sequence[tuple[Tool, int]], budget: int, query: str = ""
    ) -> tuple[list[str], list[str]]:
        """Load tools, best first; return the names that are new and those evicted for them.

        Tools that are loaded already keep their place and age, so that a search that adds
        nothing changes nothing (R56).
        """
        fresh = [(tool, tokens) for tool, tokens in tools if not self.holds(tool)]
        self.clock += len(fresh)
        for rank, (tool, tokens) in enumerate(fresh):
            self.entries[tool.name] = Entry(
                name=tool.name,
                server=tool.server,
                fingerprint=tool.fingerprint,
                tokens=tokens,
                # The best is to be evicted last, so it counts as the most recent.
                used=self.clock - rank,
                turn=self.turn,
                query=query,
            )
        evicted = self.evict(budget) if fresh else []
        return [tool.name for tool, _ in fresh if tool.name in self.entries], evicted

    def holds(self, tool: Tool) -> bool:
        """Tell whether exactly this definition is loaded or pinned."""
        entry = self.entries.get(tool.name)
        return entry is not None and entry.fingerprint == tool.fingerprint

    def evict(self, budget: int) -> list[str]:
        """Unload the least recently used until the rest fits or is one tool; return them."""
        evicted: list[str] = []
        loaded = self.loaded
        spent = sum([entry.tokens for entry in loaded])
        if spent > budget:
            loaded.sort(key=attrgetter("used", "name"))
        for entry in loaded[:-1]:
            if spent <= budget:
                break
            spent -= entry.tokens
            evicted.append(entry.name)
        self.unload(evicted)
        return evicted

    def touch(self, name: str) -> None:
        """Make a tool the most recently used one."""
        entry = self.entries.get(name)
        if entry is None:
            return
        others = (other for other in self.entries.values() if other is not entry)
        # If it is the newest, it stays as it is: a record that does not change is not written.
        if any(other.used >= entry.used for other in others):
            self.clock += 1
            entry.used = self.clock

    def unload(self, names: Iterable[str]) -> list[str]:
        """Forget tools, pinned or not; return those that were there."""
        gone = [name for name in names if self.entries.pop(name, None) is not None]
        for name in gone:
            self.shown.pop(name, None)
        self.withdraw(gone)
        return gone

    def withdraw(self, names: Iterable[str]) -> None:
        """Take back what was offered: from now on, only loading makes these callable."""
        for name in names:
            self.offered.pop(name, None)

    def offer(self, tools: Iterable[Tool], query: str = "") -> None:
        """Note tools that were shown without being loaded; the oldest leave."""
        for tool in tools:
            if not self.offers(tool):
                self.offered[tool.name] = [tool.fingerprint, query]
        for name in list(self.offered)[:-OFFERED_LIMIT]:
            del self.offered[name]

    def offers(self, tool: Tool) -> bool:
        """Tell whether exactly this definition was shown without being loaded."""
        return self.offered.get(tool.name, ("",))[0] == tool.fingerprint

    def find_query(self, name: str) -> str:
        """Return the query that found a tool, if one did."""
        entry, offer = self.entries.get(name), self.offered.get(name)
        return (entry.query if entry is not None else "") or (offer[1] if offer else "")

    def begin_turn(self, *, keep: bool) -> list[str]:
        """Count a user message; unless kept, unload what earlier ones loaded."""
        self.turn += 1
        if keep:
            return []
        self.offered.clear()
        return self.unload([entry.name for entry in self.loaded if entry.turn < self.turn])

    def show(self, tool: Tool) -> None:
        """Note that the conversation has a tool's whole definition."""
        self.shown[tool.name] = tool.fingerprint

    def has_shown(self, tool: Tool) -> bool:
        """Tell whether the conversation has exactly this definition."""
        return self.shown.get(tool.name) == tool.fingerprint

    def suggest(self, names: Iterable[str]) -> None:
        """Note tools that were suggested, each once per session (R103)."""
        self.suggested = [*self.suggested, *names][-SUGGESTED_LIMIT:]

    def compact(self) -> None:
        """Forget what only the dropped messages had: definitions, announcements and the like."""
        self.shown.clear()
        self.offered.clear()
        self.told = dict(self.listed)
        self.suggested.clear()
        self.heard.clear()

    def copy(self, id_: str) -> "Record":
        """Return an equal record under another id that shares nothing with this one."""
        twin = deepcopy(self)
        twin.id = id_
        return twin

    def derive(self, id_: str, *, names: Iterable[str] = (), pins: bool = False) -> "Record":
        """Return a record for a new conversation that starts with some of these tools."""
        wanted = set(names)
        kept = [e for e in self.entries.values() if e.name in wanted or (pins and e.pinned)]
        # Turns start again; the clock runs on, so that what it loads is younger than these.
        entries = {entry.name: replace(entry, turn=0) for entry in kept}
        return Record(id=id_, entries=entries, clock=self.clock)

    def merge(self, other: "Record") -> "Record":
        """Return what two branches of one conversation know together, first this one's.

        Calls that run side by side each start from the same record and add to it. Of a tool that
        both have, the definition counts that was used last.
        """
        both = self.copy(self.id)
        for name, entry in other.entries.items():
            known = both.entries.get(name)
            if known is None or (entry.used > known.used and not known.pinned):
                both.entries[name] = replace(entry)
        both.shown |= other.shown
        both.offered |= {name: list(offer) for name, offer in other.offered.items()}
        both.heard |= other.heard
        both.declared += [name for name in other.declared if name not in both.declared]
        both.suggested += [name for name in other.suggested if name not in both.suggested]
        if both.hiding is None:
            both.hiding = other.hiding
        if both.listing is None:
            both.listing, both.listed = other.listing, dict(other.listed)
        both.told = both.told | other.told
        both.turn, both.clock = max(both.turn, other.turn), max(both.clock, other.clock)
        return both

    def to_json(self) -> Json:
        """Return plain JSON that shares nothing with the record; equal records give equal bytes."""
        # After every call; `deepcopy` and `asdict` would take most of the time of writing it.
        plain = {name: _copy_plain(getattr(self, name)) for name in _PLAIN_TYPES}
        entries = [
            {name: getattr(entry, name) for name in _ENTRY_TYPES} for entry in self.entries.values()
        ]
        return {"layout": LAYOUT, **plain, "entries": entries}

    def to_bytes(self) -> bytes:
        """Return the JSON as it is stored."""
        text = json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass")  # an id is the host's, whatever it holds

    def mark(self) -> tuple[bytes, list[int]]:
        """Return what changes whenever the record does: to compare, not to keep.

        The second part is recency: the clock, and when each tool was last used.
        """
        # A sixth of the time of JSON. Later versions of the format tell shared values apart.
        entries = [_ENTRY_VALUES(entry) for entry in self.entries.values()]
        recency = [self.clock, *[entry.used for entry in self.entries.values()]]
        return marshal.dumps((_PLAIN_VALUES(self), entries), MARSHAL_VERSION), recency

    @classmethod
    def from_json(cls, state: object) -> Self:
        """Return what `to_json` gave, or raise `InvalidState`."""
        if not is_object(state) or state.get("layout") != LAYOUT:
            raise _make_unreadable(f"has no layout {LAYOUT}")
        state = {"heard": {}, **state}  # records before 0.6 have none
        try:
            entries = [Entry(**entry) for entry in state["entries"]]
            rest: dict[str, Any] = {key: deepcopy(state[key]) for key in _PLAIN_TYPES}
            record = cls(entries={entry.name: entry for entry in entries}, **rest)
        except (KeyError, TypeError) as error:
            raise _make_unreadable(f"lacks a member or has a wrong one ({error})") from None
        checked = [(record, _PLAIN_TYPES), *((e, _ENTRY_TYPES) for e in record.entries.values())]
        for value, types in checked:
            for name, wanted in types.items():
                if not _is_of_type(getattr(value, name), wanted):
                    raise _make_unreadable(f"has a wrong {name!r}")
        if any([*map(type, offer)] != [str, str] for offer in record.offered.values()):
            raise _make_unreadable("has a wrong 'offered'")
        return record

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return what `to_bytes` gave, or raise `InvalidState`."""
        try:
            state = cast("object", json.loads(data))
        except (ValueError, RecursionError):
            raise _make_unreadable("is no JSON") from None
        return cls.from_json(state)


def _copy_plain(value: object) -> object:
    if is_object(value):
        return {key: list(member) if is_list(member) else member for key, member in value.items()}
    return list(value) if is_list(value) else value


_ENTRY_TYPES = {item.name: item.type for item in fields(Entry)}
_PLAIN_TYPES = {item.name: item.type for item in fields(Record) if item.name != "entries"}
_ENTRY_VALUES = attrgetter(*(name for name in _ENTRY_TYPES if name != "used"))
_PLAIN_VALUES = attrgetter(*(name for name in _PLAIN_TYPES if name != "clock"))


def _is_of_type(value: object, wanted: Any) -> bool:
    """Tell whether a value has a type such as `int`, `dict[str, str]` or `bool | None`."""
    if type(wanted) is type:
        return type(value) is wanted  # for `isinstance`, True is an int
    if isinstance(wanted, UnionType):
        return type(value) in get_args(wanted)
    items = value.values() if is_object(value) else value
    inner = get_origin(get_args(wanted)[-1]) or get_args(wanted)[-1]
    return type(value) is get_origin(wanted) and set(map(type, cast("Any", items))) <= {inner}


def _make_unreadable(problem: str) -> InvalidState:
    return InvalidState(
        f"The stored session {problem}", remedy="Start a new session, or restore another record."
    )
