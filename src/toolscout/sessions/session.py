"""`Session`: one conversation's view of the catalogue, and the verbs that a model has in it.

Owns a `Record` and keeps it true to the catalogue: tools that are gone are pruned and reported,
those of an absent server sleep until it is back, changed ones must be described again. Searching
and calling is done by the scout behind it, through the `Verbs` protocol.
Any thread may use a session; two sessions share nothing.

`Admission`: a call that has passed the gate and may be made once.

The scout gives it; whoever runs the tool reads it. A host that runs its tools itself makes the
call with these arguments and tells the session how it went.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from toolscout.catalog import Availability, Catalog, Status
from toolscout.dialects import Dialect
from toolscout.errors import UnknownPin, UsageError
from toolscout.policies import Policy
from toolscout.schemas import Json
from toolscout.sessions.pins import near_targets, pinned
from toolscout.sessions.prompt import Prompt, Shown
from toolscout.sessions.record import Entry, Record
from toolscout.sessions.replies import Reply, some_names
from toolscout.settings import Mode, Scope, Settings
from toolscout.tokens import count_definition_tokens
from toolscout.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Which tool may be run, and with what."""

    tool: Tool
    arguments: Json
    """Checked against the tool's schema, and repaired where that was harmless."""
    repairs: tuple[str, ...] = ()
    """What was changed, one sentence each."""
    unchecked: str = ""
    """What could not be checked; empty if all was."""
    started: float = 0.0
    """When it was asked for, by the scout's timer."""

    @property
    def notes(self) -> list[str]:
        """What a host says of the repairs before the result, one line each."""
        return [f"({repair})" for repair in self.repairs]


_T = TypeVar("_T")

SESSION_KIND = "session"
META_REFUSED = "The host refuses the meta-tools: all tools are shown in full."


class Store(Protocol):
    """Keeps values between runs, by kind and key, and logs by kind."""

    def read(self, kind: str, key: str) -> bytes | None:
        """Return a value, or nothing."""
        ...

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Keep a value; None forgets it."""
        ...

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        ...

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to a log."""
        ...

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield a log's values with their numbers, oldest first."""
        ...

    def trim(self, kind: str, keep: int) -> None:
        """Forget all but the newest values of a log."""
        ...

    def close(self) -> None:
        """Let go of what is held open."""
        ...


class Verbs(Protocol):
    """What a session asks of its scout."""

    def search(
        self,
        session: "Session",
        queries: object,
        *,
        limit: object,
        detail: object,
        max_tokens: object,
    ) -> Reply:
        """Find tools and load them."""
        ...

    def describe(self, session: "Session", names: object) -> Reply:
        """Tell whole definitions and load them."""
        ...

    async def call(
        self, session: "Session", name: object, arguments: object, *, approved: bool
    ) -> Reply:
        """Run a tool."""
        ...

    async def handle(self, session: "Session", name: str, arguments: object) -> Reply:
        """Answer a call of the model, whichever tool it names."""
        ...

    async def admit(
        self, session: "Session", name: object, arguments: object, *, approved: bool
    ) -> Admission | Reply:
        """Pass a call through the gate without making it."""
        ...

    def settle(self, session: "Session", admission: Admission, *, failed: bool) -> None:
        """Take notice of a call that the host has made."""
        ...

    def begin_turn(self, session: "Session", message: str) -> Reply:
        """Take notice of a user message."""
        ...

    def fork(self, session: "Session", record: Record, pins: Sequence[str]) -> "Session":
        """Return a session of another record under the same policy."""
        ...


class Session:
    """One conversation. `Scout.session()` makes it."""

    def __init__(
        self,
        verbs: Verbs,
        catalog: Catalog,
        record: Record,
        *,
        settings: Settings,
        policy: Policy,
        store: Store | None = None,
        pins: Sequence[str] = (),
        meta_allowed: bool = True,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.record = record
        self.lock = threading.RLock()
        self.fruitless = 0
        """Searches in a row that found nothing."""
        self.prompt = Prompt(record, settings, self.visible, self.is_waiting, meta_allowed)
        self._verbs = verbs
        self._catalog = catalog
        self._store = store
        self.pins = tuple(pins)
        self._news: list[str] = []
        self._awake: set[str] = set()
        self._changed: dict[str, str] = {}
        self._seen: tuple[int, tuple[Tool, ...]] | None = None
        self._pinned_at = self._settled_at = -1
        self._unknown_pins: list[str] = []
        self._saved = b""
        self.refresh()

    @property
    def id(self) -> str:
        """The conversation's name."""
        return self.record.id

    @property
    def loaded(self) -> tuple[str, ...]:
        """The tools that may be called because they were found, in the order of loading."""
        with self.lock:
            self.refresh()
            return tuple(entry.name for entry in self.record.loaded if self._is_live(entry))

    @property
    def pinned(self) -> tuple[str, ...]:
        """The tools that may always be called."""
        with self.lock:
            self.refresh()
            entries = self.record.entries.values()
            return tuple(e.name for e in entries if e.pinned and self._is_live(e))

    @property
    def warnings(self) -> list[str]:
        """What the host should know: meta-tools that it refuses, pins that mean nothing."""
        with self.lock:
            self.refresh()
            tools, expected = self.visible(), self.unready()
            lost = [pin for pin in self._unknown_pins if pin not in expected]
            refused = [] if self.prompt.meta_allowed else [META_REFUSED]
            return [*refused, *(str(UnknownPin(pin, near_targets(pin, tools))) for pin in lost)]

    def search(
        self,
        queries: str | Sequence[str],
        *,
        limit: int | None = None,
        detail: str | None = None,
        max_tokens: int | None = None,
    ) -> Reply:
        """Find tools for one or several queries, and load what fits."""
        return self._verbs.search(self, queries, limit=limit, detail=detail, max_tokens=max_tokens)

    def describe(self, names: str | Sequence[str]) -> Reply:
        """Return whole definitions by name, and load them."""
        return self._verbs.describe(self, names)

    async def call(self, name: str, arguments: object = None, *, approved: bool = False) -> Reply:
        """Run a tool. `approved` says that a person has agreed to this very call (R75)."""
        return await self._verbs.call(self, name, arguments, approved=approved)

    async def handle(self, name: str, arguments: object = None) -> Reply:
        """Answer what the model called: a meta-tool, or a loaded tool by its own name."""
        return await self._verbs.handle(self, name, arguments)

    def call_sync(self, name: str, arguments: object = None, *, approved: bool = False) -> Reply:
        """Run a tool from code that is not asynchronous."""
        return run_sync(lambda: self.call(name, arguments, approved=approved))

    def handle_sync(self, name: str, arguments: object = None) -> Reply:
        """Answer what the model called, from code that is not asynchronous."""
        return run_sync(lambda: self.handle(name, arguments))

    async def admit(
        self, name: str, arguments: object = None, *, approved: bool = False
    ) -> Admission | Reply:
        """Pass a call through the gate, for a host that runs its tools itself.

        Gives what may be run, or the reply that says why not. A call that was made is to be
        told with `settle`.
        """
        return await self._verbs.admit(self, name, arguments, approved=approved)

    def admit_sync(
        self, name: str, arguments: object = None, *, approved: bool = False
    ) -> Admission | Reply:
        """Pass a call through the gate, from code that is not asynchronous."""
        return run_sync(lambda: self.admit(name, arguments, approved=approved))

    def settle(self, admission: Admission, *, failed: bool = False) -> None:
        """Take notice of an admitted call that was made, and whether the tool failed."""
        self._verbs.settle(self, admission, failed=failed)

    def begin_turn(self, message: str = "") -> Reply:
        """Take notice of a user message: scope, routing keywords, suggestions.

        The reply's text is for the conversation and may be empty.
        """
        return self._verbs.begin_turn(self, message)

    def tools(
        self, dialect: Dialect | str, *, listing: bool = False, forced: str = ""
    ) -> list[Json]:
        """Return the definitions that the next request carries, in a provider's dialect."""
        with self.lock:
            self.refresh()
            definitions = self.prompt.tools(dialect, listing=listing, forced=forced)
            self.save()
            return definitions

    def shown(self, *, listing: bool = False) -> list[Shown]:
        """Return the tools that the next request carries, in order, for shapes of one's own."""
        with self.lock:
            self.refresh()
            shown = self.prompt.shown(listing=listing)
            self.save()
            return shown

    def section(self, *, listing: bool = True) -> str:
        """Return the session's part of the system prompt."""
        with self.lock:
            self.refresh()
            text = self.prompt.section(listing=listing)
            self.save()
            return text

    def announcement(self, *, again: bool = False) -> str:
        """Return a message about tools that came and went meanwhile, or nothing (R99)."""
        with self.lock:
            self.refresh()
            text = self.prompt.announcement(again=again)
            self.save()
            return text

    def digest(self, dialect: Dialect | str) -> str:
        """Return a hash of the definitions and the prompt section of the next request."""
        with self.lock:
            self.refresh()
            digest = self.prompt.digest(dialect)
            self.save()
            return digest

    def pin(self, *targets: str) -> None:
        """Keep tools for good, by name, server or pattern."""
        with self.lock:
            self.pins += targets
            self._pinned_at = self._settled_at = -1
            self.refresh()
            self.save()

    def unload(self, *names: str) -> list[str]:
        """Forget found tools by name, or all without names; return those that were loaded."""
        with self.lock:
            known = [entry.name for entry in self.record.loaded]
            gone = self.record.unload([n for n in (names or known) if n in known])
            self.record.withdraw(names or list(self.record.offered))
            self.save()
            return gone

    def compact(self) -> Json:
        """Note that earlier messages were dropped; return a record to carry over.

        Tools stay loaded; definitions will be shown again when they are needed.
        """
        with self.lock:
            self.record.compact()
            self.prompt.compact()
            self.fruitless = 0
            self.save()
            return self.record.to_json()

    def to_json(self) -> Json:
        """Return the session as plain JSON, for `Scout.restore()`."""
        with self.lock:
            return self.record.to_json()

    def fork(
        self,
        id_: str,
        *,
        inherit: bool = True,
        pins: bool = False,
        names: Iterable[str] = (),
    ) -> "Session":
        """Return a session that goes its own way from here; this one never changes by it.

        With `inherit` it continues this conversation. Without, it starts a new one, with only
        the pinned tools (`pins`) or the `names` that are loaded here (R70).
        """
        if id_ == self.id:
            raise UsageError(f"A fork of {id_!r} cannot have the same id. Give it another.")
        with self.lock:
            record = self.record
            twin = record.copy(id_) if inherit else record.child(id_, names=names, pins=pins)
        return self._verbs.fork(self, twin, self.pins if inherit or pins else ())

    # What the scout needs. A host does not.

    def restrict(self, policy: Policy) -> None:
        """Show and run from now on what another policy allows."""
        with self.lock:
            self.policy, self._seen = policy, None
            self._pinned_at = self._settled_at = -1
            self.refresh()

    def visible(self) -> Sequence[Tool]:
        """Return the tools that this session may see, by name."""
        if self.policy.is_open:
            return self._catalog.tools
        version = self._catalog.version
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, tuple(filter(self.policy.sees, self._catalog.tools)))
        return self._seen[1]

    def tool(self, name: str) -> Tool | None:
        """Return a tool that this session may see, by its exact name."""
        found = self._catalog.get(name)
        return found if found is not None and self.policy.sees(found) else None

    def unready(self) -> dict[str, Availability]:
        """Return the pending and failed servers of which this session may know."""
        unready = self._catalog.unready
        if not unready or self.policy.is_open:
            return unready
        known = set(self._catalog.view(self.policy.sees).servers)
        return {server: state for server, state in unready.items() if server in known}

    def is_waiting(self) -> bool:
        """Tell whether a server is still connecting."""
        return any(state.status is Status.PENDING for state in self.unready().values())

    def is_callable(self, tool: Tool) -> bool:
        """Tell whether exactly this definition is loaded, pinned or shown in full."""
        entry = self.record.entries.get(tool.name)
        if entry is not None and entry.fingerprint == tool.fingerprint:
            return True
        return self.record.hiding is False or tool.name in self.record.declared

    @property
    def may_know(self) -> bool:
        """Whether the conversation can know of any tool that it can call it."""
        entries = self.record.entries.values()
        return not self.settings.shared or any(entry.pinned for entry in entries)

    def is_known(self, tool: Tool) -> bool:
        """Tell whether the conversation knows that it can call a tool."""
        entry = self.record.entries.get(tool.name)
        told = not self.settings.shared or (entry is not None and entry.pinned)
        return told and self.is_callable(tool)

    def has_shown(self, tool: Tool) -> bool:
        """Tell whether the conversation has a tool's whole definition."""
        return not self.settings.shared and self.record.has_shown(tool)

    def may_call(self, tool: Tool) -> bool:
        """Tell whether the gate lets a tool through: loaded, or shown by a search (R50)."""
        return self.record.offers(tool) or self.is_callable(tool)

    def is_stale(self, tool: Tool) -> bool:
        """Tell whether another definition of this tool was loaded."""
        entry = self.record.entries.get(tool.name)
        return entry is not None and entry.fingerprint != tool.fingerprint

    def load(self, tools: Sequence[Tool], query: str = "") -> list[str]:
        """Load tools, best first; return those that are new. Evictions become news."""
        # Most searches find again what an earlier one has loaded.
        fresh = [tool for tool in tools if not self.record.holds(tool)]
        if not fresh:
            return []
        costs = [(tool, count_definition_tokens(tool)) for tool in fresh]
        added, evicted = self.record.load(costs, self.settings.loaded_tokens, query)
        if added:
            self._awake.update(added)
            self._settled_at = -1  # a call may end after its tool has changed or gone
        self._tell_evicted(evicted)
        return added

    def tell(self, tools: Iterable[Tool]) -> None:
        """Note tools whose whole definitions are in the text of a reply."""
        # Where definitions answer a search, text makes no tool callable by its own name.
        if self.settings.mode is not Mode.DEFINITIONS:
            for tool in tools:
                self.record.show(tool)

    def take_news(self) -> tuple[str, ...]:
        """Return what happened to loaded tools since the last reply."""
        news, self._news = tuple(self._news), []
        return news

    def refresh(self) -> None:
        """Bring the record in step with the catalogue."""
        version = self._catalog.version
        if self._settled_at == version:
            return
        if self._pinned_at != version:
            self._pinned_at = version
            self._pin()
        gone = [e.name for e in list(self.record.entries.values()) if not self._keep(e)]
        if gone:
            self.record.unload(gone)
        # A definition that has grown, or a smaller budget than at the last run.
        self._tell_evicted(self.record.evict(self.settings.loaded_tokens))
        self._settled_at = version if self._is_settled() else -1

    def _is_settled(self) -> bool:
        """Tell whether only another version of the catalogue could change the record.

        A predicate may answer otherwise at any time; so may the state of a server whose tools
        sleep.
        """
        return self.policy.is_open and all(map(self._is_live, self.record.entries.values()))

    def save(self) -> None:
        """Write the record to the store, if it has changed."""
        if self._store is None:
            return
        mark = self.record.mark()
        if mark != self._saved:
            self._store.write(SESSION_KIND, self.record.id, self.record.to_bytes())
            self._saved = mark

    def _pin(self) -> None:
        found, self._unknown_pins = pinned(self.visible(), self.settings, self.pins)
        for tool in found:
            self.record.pin(tool, count_definition_tokens(tool))

    def _tell_evicted(self, names: list[str]) -> None:
        if names:
            self._news.append(f"Unloaded to make room: {some_names(names)}.")

    def _is_live(self, entry: Entry) -> bool:
        tool = self._catalog.get(entry.name)
        return tool is not None and tool.fingerprint == entry.fingerprint

    def _keep(self, entry: Entry) -> bool:
        """Look at what became of an entry's tool; return whether the entry stays."""
        tool = self._catalog.get(entry.name)
        if tool is None:
            return self._is_asleep(entry)
        if not self.policy.sees(tool):
            return False
        self._awake.add(entry.name)
        if tool.fingerprint != entry.fingerprint:
            self._note_change(entry, tool)
        return True

    def _is_asleep(self, entry: Entry) -> bool:
        """Tell a tool whose server is away from one that is gone (R65, R66)."""
        state = self._catalog.state(entry.server)
        if state is None:
            asleep = entry.name not in self._awake
        else:
            asleep = state.status is not Status.READY
        if not asleep:
            self._news.append(f"{entry.name} is gone.")
        return asleep

    def _note_change(self, entry: Entry, tool: Tool) -> None:
        # Where the request itself carries the definition, the model has the new one already.
        if entry.pinned or self.settings.mode in (Mode.NATIVE, Mode.REFERENCE):
            entry.fingerprint, entry.tokens = tool.fingerprint, count_definition_tokens(tool)
        elif self._changed.get(tool.name) != tool.fingerprint:
            self._changed[tool.name] = tool.fingerprint
            self._news.append(f"{tool.name} has changed; describe it again before a call.")

    def end_turn_scope(self) -> list[str]:
        """Count a user message; return what it unloaded."""
        return self.record.begin_turn(keep=self.settings.scope is Scope.SESSION)


def run_sync(start: Callable[[], Coroutine[object, object, _T]]) -> _T:
    """Run asynchronous work to its end, whether or not a loop runs already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(start())
    # In a notebook or a web handler a loop runs already. It is held up meanwhile, as by any
    # function that is not asynchronous, so the work gets a loop and a thread of its own.
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "toolscout-sync") as pool:
        return pool.submit(context.run, lambda: asyncio.run(start())).result()
