"""`Catalog`: the live set of tools, by server.

A server's tools are replaced at once or not at all; a server may be pending or failed while its
last known tools stay. Every change has a version and is told to subscribers in version order.
Reading gives values: `tools`, `snapshot()` and `view()` never show half a change. Any thread may
read or change. It does not rank, and it does not decide who may see what: views are told.

Notices: what a change of the catalogue did, told to all who follow it.

Changes are posted under the catalogue's lock and told outside it, in the order in which they
were made. A subscriber that fails costs the others nothing.

Spellings: all that a tool may be called, and what a text may call.

The catalogue and the index both look tools up by these, so that a name means the same to each.
"""

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from toolscout.errors import DuplicateTool, InvalidTool, UsageError
from toolscout.names import fold_name, is_exposed_name
from toolscout.tools import Tool

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one change did. A tool with new content is in both lists: old removed, new added."""

    version: int
    server: str
    added: tuple[Tool, ...]
    removed: tuple[Tool, ...]


class Notices:
    """Hands changes to subscribers in the order in which they were posted."""

    def __init__(self) -> None:
        self._waiting: deque[Change] = deque()
        self._turn = threading.RLock()
        self._listing = threading.Lock()
        self._delivering = False
        self._subscribers: tuple[tuple[int, Callable[[Change], None]], ...] = ()

    def subscribe(self, callback: Callable[[Change], None], since: int) -> Callable[[], None]:
        """Tell a callback every change after a version; the result ends that."""
        entry = (since, callback)
        with self._listing:
            self._subscribers = (*self._subscribers, entry)

        def unsubscribe() -> None:
            with self._listing:
                self._subscribers = tuple(e for e in self._subscribers if e is not entry)

        return unsubscribe

    def post(self, change: Change) -> None:
        """Put a change behind those that wait."""
        self._waiting.append(change)

    def deliver(self) -> None:
        """Tell all changes that wait, one thread at a time."""
        with self._turn:
            # A callback that changes the catalogue comes back here: its notice waits its turn.
            if self._delivering:
                return
            self._delivering = True
            try:
                while self._waiting:
                    self._tell(self._waiting.popleft())
            finally:
                self._delivering = False

    def _tell(self, change: Change) -> None:
        for since, callback in self._subscribers:
            if change.version <= since:
                continue
            try:
                callback(change)
            except Exception:
                _log.exception("A subscriber failed on change %d.", change.version)


Spelling = tuple[int, str]
"""How a tool may be called: 0 by its qualified name, 1 by an alias, 2 by its leaf; and the name
without case and separators."""


def list_spellings(tool: Tool) -> set[Spelling]:
    """Return all that a tool may be called."""
    leaf = fold_name(tool.leaf)
    found: set[Spelling] = {(0, fold_name(tool.name)), (0, fold_name(tool.server) + leaf)}
    found.update((1, fold_name(alias)) for alias in tool.aliases)
    found.add((2, leaf))
    return found


def read_spellings(text: str) -> list[Spelling]:
    """Return what a text may call, in the order in which it is tried; the first that is known wins.

    Claude Code and others write `mcp__server__leaf`; folding leaves "mcp" in front.
    """
    key = fold_name(text)
    bare = key.removeprefix("mcp")
    if not key:
        return []
    return [(0, key), *([(0, bare)] if bare != key else []), (1, key), (2, key)]


class Spellings:
    """Spellings to exposed names, kept up to date tool by tool, so that nothing is scanned."""

    def __init__(self) -> None:
        self._lookups = (_Lookup(), _Lookup(), _Lookup())

    def add(self, tool: Tool) -> None:
        """Take in all that a tool may be called."""
        for kind, key in list_spellings(tool):
            self._lookups[kind].add(key, tool.name)

    def remove(self, tool: Tool) -> None:
        """Forget what a tool was called."""
        for kind, key in list_spellings(tool):
            self._lookups[kind].remove(key, tool.name)

    def resolve(self, text: str) -> list[str]:
        """Return the exposed names of the tools that a text may mean, sorted."""
        for kind, key in read_spellings(text):
            if found := self._lookups[kind].find(key):
                return found
        return []


class _Lookup:
    """A key to one or several names; one name, the usual case, is stored without a set."""

    def __init__(self) -> None:
        self._names: dict[str, str | set[str]] = {}

    def find(self, key: str) -> list[str]:
        found = self._names.get(key)
        if found is None:
            return []
        return [found] if isinstance(found, str) else sorted(found)

    def add(self, key: str, name: str) -> None:
        found = self._names.get(key)
        if found is None:
            self._names[key] = name
        elif isinstance(found, set):
            found.add(name)
        elif found != name:
            self._names[key] = {found, name}

    def remove(self, key: str, name: str) -> None:
        found = self._names.get(key)
        if isinstance(found, set):
            found.discard(name)
            if len(found) == 1:
                self._names[key] = found.pop()
        elif found == name:
            del self._names[key]


RESERVED_NAMES = frozenset({"tool_search", "tool_describe", "tool_call"})
INTERNAL_KIND = "internal"
"""Entries of this kind serve the host alone and are never catalogued (R88)."""


class Status(StrEnum):
    """Where a server stands."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Where a server stands, and why it failed."""

    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The catalogue as it was at one version."""

    version: int
    by_name: Mapping[str, Tool]
    servers: tuple[str, ...]

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools, sorted by name."""
        return tuple(self.by_name[name] for name in sorted(self.by_name))

    def get(self, name: str) -> Tool | None:
        """Return the tool of an exposed name."""
        return self.by_name.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.by_name)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name


class Catalog:
    """The live set of tools by server; thread safe."""

    def __init__(self, servers: Mapping[str, Iterable[object]] | None = None) -> None:
        self._lock = threading.RLock()
        self._tools: dict[str, Tool] = {}
        self._by_server: dict[str, dict[str, Tool]] = {}
        self._states: dict[str, Availability] = {}
        self._names = Spellings()
        self._version = 0
        self._sorted: tuple[Tool, ...] | None = ()
        self._snapshot: Snapshot | None = None
        self._fingerprint: tuple[int, str] | None = None
        self._notices = Notices()
        for server, tools in (servers or {}).items():
            self.replace(server, tools)

    @property
    def version(self) -> int:
        """Grows by one with every change of tools; server states do not count."""
        return self._version

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that have tools or a state, sorted."""
        with self._lock:
            return tuple(sorted(self._states))

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools, sorted by name."""
        with self._lock:
            if self._sorted is None:
                self._sorted = tuple(self._tools[name] for name in sorted(self._tools))
            return self._sorted

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the content of all tools, whatever their order or process (R87)."""
        with self._lock:
            if self._fingerprint is None or self._fingerprint[0] != self._version:
                self._fingerprint = (self._version, _fingerprint_of(self.tools))
            return self._fingerprint[1]

    def state(self, server: str) -> Availability | None:
        """Return where a server stands, or nothing for a server never heard of."""
        with self._lock:
            return self._states.get(server)

    @property
    def unready(self) -> dict[str, Availability]:
        """The servers that are pending or failed, by name."""
        with self._lock:
            states = self._states.items()
            return {s: state for s, state in sorted(states) if state.status is not Status.READY}

    def get(self, name: str) -> Tool | None:
        """Return the tool of an exposed name."""
        return self._tools.get(name)

    def resolve(self, text: str) -> list[Tool]:
        """Return the tools that a name may mean, sorted by name (R2, R3).

        The first of these that gives anything: the exposed name; a server-qualified name in any
        spelling (`server.leaf`, `server/leaf`, `mcp__server__leaf`), ignoring case and
        separators; an alias; a leaf. Only aliases and leaves commonly give more than one.
        """
        with self._lock:
            tool = self._tools.get(text)
            if tool is not None:
                return [tool]
            return [self._tools[name] for name in self._names.resolve(text)]

    def snapshot(self) -> Snapshot:
        """Return the catalogue as it is now; repeated calls between changes cost nothing."""
        with self._lock:
            servers = tuple(sorted(self._states))
            last = self._snapshot
            if last is None or last.version != self._version or last.servers != servers:
                tools = MappingProxyType(dict(self._tools))
                last = Snapshot(version=self._version, by_name=tools, servers=servers)
                self._snapshot = last
            return last

    def view(self, predicate: Callable[[Tool], bool]) -> "CatalogView":
        """Return a live reading view of the tools that a predicate accepts."""
        return CatalogView(self, predicate)

    def replace(self, server: str, tools: Iterable[object]) -> None:
        """Make these the tools of a server, at once or not at all, and the server ready.

        Takes `Tool`s and whatever `Tool.from_any` reads. Tools that are the same as before stay
        and are no change.
        """
        wanted = _by_name(server, tools)
        with self._lock:
            self._change(server, wanted, keep_others=False)
        self._notices.deliver()

    def add(self, server: str, tools: Iterable[object]) -> None:
        """Add tools to a server, in place of those of the same name."""
        wanted = _by_name(server, tools)
        with self._lock:
            self._change(server, wanted, keep_others=True)
        self._notices.deliver()

    def remove(self, server: str, names: Iterable[str] | None = None) -> None:
        """Forget a server, or some of its tools by exposed name or leaf; unknown ones are fine."""
        with self._lock:
            mine = self._by_server.get(server, {})
            if names is None:
                self._commit(server, [], list(mine.values()))
                self._states.pop(server, None)
            else:
                unwanted = set(names)
                gone = [t for t in mine.values() if t.name in unwanted or t.leaf in unwanted]
                self._commit(server, [], gone)
        self._notices.deliver()

    def set_pending(self, server: str) -> None:
        """Say that a server is still connecting; tools known from before stay searchable."""
        with self._lock:
            self._states[server] = Availability(status=Status.PENDING)

    def set_failed(self, server: str, reason: str) -> None:
        """Say that a server failed, and why; tools known from before stay searchable."""
        with self._lock:
            self._states[server] = Availability(status=Status.FAILED, reason=reason)

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Tell every later change to a callback; the result ends that.

        Changes come in version order, outside the data lock, before the changing call returns.
        A callback may change the catalogue; it must not wait for another thread that does.
        """
        with self._lock:
            return self._notices.subscribe(callback, self._version)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def _change(self, server: str, wanted: dict[str, Tool], *, keep_others: bool) -> None:
        mine = self._by_server.get(server, {})
        for name, tool in wanted.items():
            owner = self._tools.get(name)
            if owner is not None and name not in mine:
                raise _collision(owner, tool)
        changed = {n: t for n, t in wanted.items() if n not in mine or _differ(mine[n], t)}
        gone = [mine[name] for name in changed if name in mine]
        if not keep_others:
            gone += [tool for name, tool in mine.items() if name not in wanted]
        self._commit(server, list(changed.values()), gone)
        self._states[server] = Availability(status=Status.READY)

    def _commit(self, server: str, added: list[Tool], removed: list[Tool]) -> None:
        if not added and not removed:
            return
        mine = self._by_server.setdefault(server, {})
        for tool in removed:
            del self._tools[tool.name], mine[tool.name]
            self._names.remove(tool)
        for tool in added:
            self._tools[tool.name] = mine[tool.name] = tool
            self._names.add(tool)
        if not mine:
            del self._by_server[server]
        self._version += 1
        self._sorted = None
        self._notices.post(
            Change(
                version=self._version,
                server=server,
                added=tuple(sorted(added, key=_name_of)),
                removed=tuple(sorted(removed, key=_name_of)),
            )
        )


class CatalogView:
    """The part of a catalogue that a predicate accepts; always as the catalogue is now.

    The predicate is asked at every reading, so that it may depend on more than the tool.
    """

    def __init__(self, catalog: Catalog, predicate: Callable[[Tool], bool]) -> None:
        self._catalog = catalog
        self._accepts = predicate

    @property
    def version(self) -> int:
        """The version of the catalogue behind."""
        return self._catalog.version

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The accepted tools, sorted by name."""
        return tuple(filter(self._accepts, self._catalog.tools))

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers with an accepted tool, and those of which no tool is known yet."""
        snapshot = self._catalog.snapshot()
        known = {tool.server for tool in snapshot.by_name.values()}
        seen = {tool.server for tool in snapshot.by_name.values() if self._accepts(tool)}
        return tuple(server for server in snapshot.servers if server in seen or server not in known)

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the content of the accepted tools."""
        return _fingerprint_of(self.tools)

    def state(self, server: str) -> Availability | None:
        """Return where a server of this view stands."""
        return self._catalog.state(server) if server in self.servers else None

    def get(self, name: str) -> Tool | None:
        """Return the accepted tool of an exposed name."""
        tool = self._catalog.get(name)
        return tool if tool is not None and self._accepts(tool) else None

    def resolve(self, text: str) -> list[Tool]:
        """Return the accepted ones among the tools that a name may mean."""
        return list(filter(self._accepts, self._catalog.resolve(text)))

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return sum(map(self._accepts, self._catalog.tools))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None


def _name_of(tool: Tool) -> str:
    return tool.name


def _fingerprint_of(tools: Iterable[Tool]) -> str:
    digest = hashlib.sha256()
    for tool in tools:
        digest.update(tool.fingerprint.encode())
    return digest.hexdigest()[:16]


def _differ(old: Tool, new: Tool) -> bool:
    # Python holds 1 == 1.0 == True; the fingerprint, being JSON, does not. A reloaded function is
    # another function, though its definition may be the same.
    return old is not new and (
        old != new or old.fingerprint != new.fingerprint or old.function is not new.function
    )


def _by_name(server: str, tools: Iterable[object]) -> dict[str, Tool]:
    wanted: dict[str, Tool] = {}
    for definition in tools:
        tool = _at_home(Tool.from_any(definition, server), server)
        if tool.kind == INTERNAL_KIND:
            continue
        if tool.name in wanted:
            raise _collision(wanted[tool.name], tool)
        wanted[tool.name] = tool
    return wanted


def _at_home(tool: Tool, server: str) -> Tool:
    if tool.server != server:
        if tool.server:
            raise UsageError(
                f"Tool {tool.name!r} says that it belongs to server {tool.server!r}, but was given "
                f"to {server!r}. Use `tool.move_to({server!r})`, or give it to its own server."
            )
        tool = tool.move_to(server)
    if tool.name in RESERVED_NAMES:
        raise InvalidTool(
            "has the name of one of toolscout's own tools",
            server=server,
            tool=tool.leaf,
            remedy="Rename it, or put it under a server.",
        )
    if not is_exposed_name(tool.name):
        raise InvalidTool(
            f"has the exposed name {tool.name[:80]!r}, which providers refuse",
            server=server,
            tool=tool.leaf,
            remedy="Make it with Tool.define, which computes a fitting name.",
        )
    return tool


def _collision(first: Tool, second: Tool) -> DuplicateTool:
    return DuplicateTool(
        second.name, first=(first.server, first.leaf), second=(second.server, second.leaf)
    )
