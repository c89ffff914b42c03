"""`Catalog`: the live set of tools, by server.

A server's tools are replaced all at once or not at all; a server that is pending or failed keeps
its last known tools. Every change has a version, and subscribers hear of changes in version order.
Reads never show half a change. The catalogue does not rank or decide who may see what.
"""

import hashlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from time import perf_counter, sleep
from types import MappingProxyType
from typing import cast

from toolscout.errors import DuplicateTool, InvalidTool, UsageError
from toolscout.names import Spelling, find_near_names, is_exposed_name, read_spellings
from toolscout.tools import Tool

_log = logging.getLogger(__name__)

RESERVED_NAMES = frozenset({"tool_search", "tool_describe", "tool_call", "tool_run"})
TOOL_KIND = "tool"
INTERNAL_KIND = "internal"
"""Tools of this kind are for the host only and are never catalogued (R88)."""
LARGE_CHANGE = 50
SLICE_SECONDS = 0.001
PAUSE_SECONDS = 0.00005


class Status(StrEnum):
    """Whether a server can be used."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a server can be used, and why not."""

    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The catalogue at one version."""

    version: int
    by_name: Mapping[str, Tool]
    servers: tuple[str, ...]

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools, sorted by name."""
        return tuple(self.by_name[name] for name in sorted(self.by_name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change, tools sorted by name. A tool with new content is in both lists."""

    version: int
    server: str
    added: tuple[Tool, ...]
    removed: tuple[Tool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The tools that may be listed: all of them, or of very many some of each large server."""

    tools: tuple[Tool, ...]
    """Sorted by name."""
    more: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many others each server has."""

    @property
    def count(self) -> int:
        """How many tools there are, listed or not."""
        return len(self.tools) + sum(self.more.values())

    def count_by_server(self) -> Counter[str]:
        """Return how many tools each server has."""
        counts = Counter(tool.server for tool in self.tools)
        counts.update(self.more)
        return counts


class Catalog:
    """The live set of tools by server.

    Any thread may read or change it. Changes are made one at a time, and everyone who subscribes,
    such as an index, is notified in the thread that makes the change. A large change therefore
    belongs in a worker thread; there, it pauses every millisecond to let others run. Readers wait
    for neither the preparation of a change nor the subscribers.

    It begins with the tools of some servers, or with a list of tools: those that name no server,
    such as functions, belong to none.
    """

    def __init__(
        self, servers: Mapping[str, Iterable[object]] | Iterable[object] | None = None
    ) -> None:
        self._writing = threading.Lock()
        self._lock = threading.RLock()
        self._tools: dict[str, Tool] = {}
        self._by_server: dict[str, dict[str, Tool]] = {}
        self._states: dict[str, Availability] = {}
        self._unready: Mapping[str, Availability] | None = None
        self._summaries: Mapping[str, str] = MappingProxyType({})
        self._held: dict[str, dict[str, Tool]] = {}
        self._names = Spellings()
        self._app_tools: frozenset[str] = frozenset()
        self._version: int = 0
        self._sorted: tuple[Tool, ...] | None = ()
        self._sample: Sample | None = None
        self._snapshot: Snapshot | None = None
        self._fingerprint: tuple[int, str] | None = None
        self._notices = Notices()
        for server, tools in group_by_server(servers or {}).items():
            self.replace(server, tools)

    @property
    def version(self) -> int:
        """Grows by one with every change of tools, but not with the availability of servers."""
        return self._version

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that have tools or an availability, sorted."""
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
                prints = "".join(tool.fingerprint for tool in self.tools)
                digest = hashlib.sha256(prints.encode()).hexdigest()[:16]
                self._fingerprint = (self._version, digest)
            return self._fingerprint[1]

    @property
    def app_tools(self) -> frozenset[str]:
        """The names of the tools that only apps may call."""
        return self._app_tools

    def state(self, server: str) -> Availability | None:
        """Return the availability of a server, or None for an unknown one."""
        with self._lock:
            return self._states.get(server)

    @property
    def unready(self) -> Mapping[str, Availability]:
        """The servers that are pending or failed, by name."""
        with self._lock:
            if self._unready is None:
                found = [at for at in self._states.items() if at[1].status is not Status.READY]
                self._unready = dict(sorted(found, key=itemgetter(0)))
            return self._unready

    @property
    def unlisted(self) -> tuple[str, ...]:
        """The servers that are pending or failed and whose tools are not known, sorted."""
        with self._lock:
            states = sorted(self._states.items())
            return tuple(
                server
                for server, state in states
                if state.status is not Status.READY and server not in self._by_server
            )

    @property
    def summaries(self) -> Mapping[str, str]:
        """What servers are for, in a few words; the same object until one of them changes."""
        return self._summaries

    def get(self, name: str) -> Tool | None:
        """Return the tool of an exposed name."""
        return self._tools.get(name)

    def get_known(self, name: str) -> Tool | None:
        """Return the tool of an exposed name if that takes no longer than to look in memory."""
        return self.get(name)

    def get_held(self, name: str) -> Tool | None:
        """Return the tool of an exposed name that nobody may use before a person approves it."""
        with self._lock:
            found = (tools[name] for tools in self._held.values() if name in tools)
            return next(found, None)

    def resolve(self, text: str) -> list[Tool]:
        """Return the tools that a name may mean, sorted by name (R2, R3).

        Tries the exposed name; then a server-qualified name in any spelling (`server.leaf`,
        `server/leaf`, `mcp__server__leaf`), ignoring case and separators; then an alias; then a
        leaf. Only aliases and leaves commonly match more than one tool.
        """
        with self._lock:
            tool = self._tools.get(text)
            if tool is not None:
                return [tool]
            return [self._tools[name] for name in self._names.resolve(text)]

    @property
    def is_local(self) -> bool:
        """Whether reading takes no longer than looking something up in memory."""
        return True

    def sample(self) -> Sample:
        """Return the tools that may be listed; the same object until the catalogue changes."""
        tools = self.tools
        if self._sample is None or self._sample.tools is not tools:
            self._sample = Sample(tools=tools)
        return self._sample

    def list_server(self, server: str) -> tuple[Tool, ...]:
        """Return the tools of a server."""
        with self._lock:
            return tuple(self._by_server.get(server, {}).values())

    def list_possible(self, targets: Iterable[str]) -> Sequence[Tool]:
        """Return at least the tools that are always loaded, and those that targets may mean.

        A target is a name, a leaf, a server or a pattern with `*`.
        """
        return self.tools

    def list_kinds(self, kinds: Collection[str]) -> Sequence[Tool]:
        """Return the tools of some kinds, by name."""
        return [tool for tool in self.tools if tool.kind in kinds]

    def find_owners(self, names: Collection[str]) -> Mapping[str, str]:
        """Return the servers of those tools of some exposed names that exist, by name."""
        found = ((name, self._tools.get(name)) for name in names)
        return {name: tool.server for name, tool in found if tool is not None}

    def count_tools(self) -> Counter[str]:
        """Return how many tools each server has; resources, prompts and skills do not count."""
        return Counter(tool.server for tool in self.tools if tool.kind == TOOL_KIND)

    def find_near(self, name: str, sees: Callable[[Tool], bool] | None = None) -> list[str]:
        """Return the names of up to three visible tools that resemble a name."""
        return find_near_names(name, (t.name for t in self.tools if sees is None or sees(t)))

    def check(self) -> None:
        """Raise `CatalogUnavailable` if the tools cannot be read; those in memory always can."""

    def close(self) -> None:
        """End what the catalogue has opened; one in memory has opened nothing."""

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

    def replace(
        self,
        server: str,
        tools: Iterable[object],
        *,
        summary: str | None = None,
        held: Iterable[Tool] = (),
    ) -> None:
        """Make these the tools of a server, all or nothing, and mark the server as ready.

        Accepts `Tool`s and everything that `Tool.from_any` reads. Tools that are the same as before
        stay and do not count as changed. `summary` says in a few words what the server is for.
        `held` are tools that wait for approval; the catalogue does not contain them.
        """
        wanted = collect_tools(server, tools)
        with self._lock:  # before the change, so that a held tool is never unknown in between
            self._held[server] = {tool.name: tool for tool in held}
        self._change(server, wanted, keep_others=False, summary=summary)

    def add(self, server: str, tools: Iterable[object]) -> None:
        """Add tools to a server, replacing those of the same name."""
        self._change(server, collect_tools(server, tools), keep_others=True)

    def remove(self, server: str, names: Iterable[str] | None = None) -> None:
        """Remove a server, or some of its tools by exposed name or leaf; ignores unknown ones."""
        unwanted = None if names is None else set(names)
        with self._writing:
            gone = list(self._by_server.get(server, {}).values())
            if unwanted is not None:
                gone = [tool for tool in gone if tool.name in unwanted or tool.leaf in unwanted]
            removed = _prepare(gone)
            with self._lock:
                self._commit(server, [], removed)
                if unwanted is None:
                    self._held.pop(server, None)
                    self._set_state(server, None)
                    self._summarize(server, "")
        self._notices.deliver()

    def set_pending(self, server: str, reason: str = "", *, summary: str | None = None) -> None:
        """Mark a server as still connecting, and why; its last known tools stay searchable."""
        with self._lock:
            self._set_state(server, Availability(status=Status.PENDING, reason=reason))
            self._summarize(server, summary)

    def set_failed(self, server: str, reason: str) -> None:
        """Mark a server as failed, with the reason; its last known tools stay searchable."""
        with self._lock:
            self._set_state(server, Availability(status=Status.FAILED, reason=reason))

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back for every later change; the returned function ends that.

        Changes come in version order, without any lock that readers need, before the call that made
        the change returns. A callback may change the catalogue, but must not wait for another
        thread that does.
        """
        with self._lock:
            return self._notices.subscribe(callback, self._version)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def _change(
        self, server: str, wanted: dict[str, Tool], *, keep_others: bool, summary: str | None = None
    ) -> None:
        with self._writing:
            mine = self._by_server.get(server, {})
            pace = Pace(len(wanted))
            added: list[Tool] = []
            removed: list[Tool] = []
            for name, tool in wanted.items():
                old = self._tools.get(name)
                if old is not None and name not in mine:
                    raise make_collision(old, tool)
                if old is None or _is_changed(old, tool):
                    added.append(tool)
                    removed += [] if old is None else [old]
                pace.step()
            if not keep_others:
                removed += [tool for name, tool in mine.items() if name not in wanted]
            prepared = _prepare(added), _prepare(removed)
            with self._lock:
                self._commit(server, *prepared)
                self._set_state(server, Availability(status=Status.READY))
                self._summarize(server, summary)
        self._notices.deliver()

    def _set_state(self, server: str, state: Availability | None) -> None:
        self._unready = None
        if state is None:
            self._states.pop(server, None)
        else:
            self._states[server] = state

    def _summarize(self, server: str, summary: str | None) -> None:
        if summary is None or summary == self._summaries.get(server, ""):
            return
        others = {name: text for name, text in self._summaries.items() if name != server}
        own = {server: summary} if summary else {}
        self._summaries = MappingProxyType(others | own)

    def _commit(self, server: str, added: "_Prepared", removed: "_Prepared") -> None:
        if not added and not removed:
            return
        mine = self._by_server.setdefault(server, {})
        for tool, spellings in removed:
            del self._tools[tool.name], mine[tool.name]
            self._names.remove(tool.name, spellings)
        for tool, spellings in added:
            self._tools[tool.name] = mine[tool.name] = tool
            self._names.add(tool.name, spellings)
        if not mine:
            del self._by_server[server]
        self._app_tools -= {tool.name for tool, _ in removed}
        self._app_tools |= {tool.name for tool, _ in added if tool.is_for_apps}
        self._version += 1
        self._sorted = None
        self._notices.queue.append(
            Change(
                version=self._version,
                server=server,
                added=tuple(tool for tool, _ in added),
                removed=tuple(tool for tool, _ in removed),
            )
        )


_Prepared = list[tuple[Tool, set[Spelling]]]
"""Tools by name, with what takes long to compute: readers wait only while a change is committed."""


def _prepare(tools: list[Tool]) -> _Prepared:
    pace = Pace(len(tools))
    prepared: _Prepared = []
    for tool in sorted(tools, key=lambda tool: tool.name):
        prepared.append((tool, tool.spellings))
        pace.step()
    return prepared


class Pace:
    """Pauses a large change in a worker thread every millisecond.

    Without that, a thread keeps the interpreter for 5 ms at a time. A search in another thread
    releases it in every larger array operation and would wait that long each time. A pause of
    length zero is not enough: the thread would be back before another one has woken up.
    """

    def __init__(self, size: int) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.is_active = size >= LARGE_CHANGE and not is_main
        self._last = perf_counter()

    def step(self) -> None:
        """Pause if the last pause was more than a millisecond ago."""
        if self.is_active and perf_counter() - self._last > SLICE_SECONDS:
            sleep(PAUSE_SECONDS)
            self._last = perf_counter()


class Notices:
    """Hands changes to subscribers in the order in which they were posted.

    Changes are posted under the catalogue's lock and delivered outside it. A subscriber that fails
    does not affect the others.
    """

    def __init__(self) -> None:
        self.queue: deque[Change] = deque()
        self._delivery = threading.RLock()
        self._listing = threading.Lock()
        self._delivering = False
        self._subscribers: tuple[tuple[int, Callable[[Change], None]], ...] = ()

    def subscribe(self, callback: Callable[[Change], None], since: int) -> Callable[[], None]:
        """Call back for every change after a version; the returned function ends that."""
        entry = (since, callback)
        with self._listing:
            self._subscribers = (*self._subscribers, entry)

        def unsubscribe() -> None:
            with self._listing:
                self._subscribers = tuple(e for e in self._subscribers if e is not entry)

        return unsubscribe

    def deliver(self) -> None:
        """Deliver all queued changes, one thread at a time."""
        with self._delivery:
            # A callback that changes the catalogue comes back here: its change stays queued.
            if self._delivering:
                return
            self._delivering = True
            try:
                while self.queue:
                    self._notify(self.queue.popleft())
            finally:
                self._delivering = False

    def _notify(self, change: Change) -> None:
        for since, callback in self._subscribers:
            if change.version <= since:
                continue
            try:
                callback(change)
            except Exception:
                _log.exception("A catalogue subscriber failed on change %d.", change.version)


class Spellings:
    """Finds exposed names by spelling; updated tool by tool, so that nothing is scanned."""

    def __init__(self) -> None:
        # By kind of spelling. Most have a single name, which is stored without a set.
        self._names: tuple[dict[str, str | set[str]], ...] = ({}, {}, {})

    def add(self, name: str, spellings: Iterable[Spelling]) -> None:
        """Add the spellings of a tool."""
        for kind, key in spellings:
            found = self._names[kind].setdefault(key, name)
            if isinstance(found, set):
                found.add(name)
            elif found != name:
                self._names[kind][key] = {found, name}

    def remove(self, name: str, spellings: Iterable[Spelling]) -> None:
        """Remove the spellings of a tool."""
        for kind, key in spellings:
            found = self._names[kind].get(key)
            if isinstance(found, set):
                found.discard(name)
                if len(found) == 1:
                    self._names[kind][key] = found.pop()
            elif found == name:
                del self._names[kind][key]

    def resolve(self, text: str) -> list[str]:
        """Return the exposed names of the tools that a text may mean, sorted by name."""
        for kind, key in read_spellings(text):
            found = self._names[kind].get(key)
            if found is not None:
                return [found] if isinstance(found, str) else sorted(found)
        return []


def _is_changed(old: Tool, new: Tool) -> bool:
    # Python considers 1, 1.0 and True equal; the fingerprint, being JSON, does not. A reloaded
    # function is another function, even if its definition is the same.
    return old is not new and (
        old != new or old.fingerprint != new.fingerprint or old.function is not new.function
    )


def group_by_server(given: object) -> Mapping[str, Iterable[object]]:
    """Return the tools that a catalogue begins with, by server."""
    if isinstance(given, Mapping):
        return cast("Mapping[str, Iterable[object]]", given)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UsageError(
            f"A catalogue cannot be made of a {type(given).__name__}. Use a list of tools or "
            "functions, or Catalog({'server': [function]})."
        )
    by_server: dict[str, list[object]] = {}
    for definition in cast("Iterable[object]", given):
        tool = Tool.from_any(definition)
        by_server.setdefault(tool.server, []).append(tool)
    return by_server


def collect_tools(server: str, tools: Iterable[object]) -> dict[str, Tool]:
    """Return the tools of a server by exposed name, whatever form they were given in."""
    listed = list(tools)
    pace = Pace(len(listed))
    wanted: dict[str, Tool] = {}
    for definition in listed:
        pace.step()
        tool = _check_home(Tool.from_any(definition, server), server)
        if tool.kind == INTERNAL_KIND:
            continue
        if tool.name in wanted:
            raise make_collision(wanted[tool.name], tool)
        wanted[tool.name] = tool
    return wanted


def _check_home(tool: Tool, server: str) -> Tool:
    if tool.server != server:
        if tool.server:
            raise UsageError(
                f"Tool {tool.name!r} belongs to server {tool.server!r} but was added to "
                f"{server!r}. Use `tool.move_to({server!r})`, or add it to its own server."
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
            f"has the exposed name {tool.name[:80]!r}, which providers reject",
            server=server,
            tool=tool.leaf,
            remedy="Create it with `Tool.define`, which makes a valid name.",
        )
    return tool


def make_collision(first: Tool, second: Tool) -> DuplicateTool:
    """Return the error for two tools of one exposed name."""
    return DuplicateTool(
        second.name, first=(first.server, first.leaf), second=(second.server, second.leaf)
    )
