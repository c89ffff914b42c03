"""`SessionState`: what one conversation may call, kept true to the catalogue.

Owns a `Record`. Tools that are gone are dropped and reported, those of an absent server wait until
it is back, changed ones must be described again. The verbs work on this class; hosts see only
`Session`. Whoever changes the state holds `lock`.
"""

import asyncio
import contextvars
import hashlib
import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

from toolscout.calls.results import Results
from toolscout.catalog import Availability, Sample, Status
from toolscout.errors import CatalogUnavailable, InvalidState, UnknownPin
from toolscout.names import list_some
from toolscout.policies import Policy
from toolscout.programs.saved import SAVED_SERVER, SavedProgram
from toolscout.search.hits import Hit
from toolscout.sessions.engine import Engine
from toolscout.sessions.pins import find_pinned, list_near_targets
from toolscout.sessions.prompt import Prompt
from toolscout.sessions.record import Entry, Record
from toolscout.sessions.texts import CHANGED, GONE, UNLOADED
from toolscout.settings import Mode
from toolscout.stores.store import Merge, Version
from toolscout.tokens import count_definition_tokens
from toolscout.tools import Tool

_T = TypeVar("_T")

SESSION_KIND = "session"
HEARD_SECONDS = 600.0
"""Where conversations share a session, a server's instructions are repeated after this time."""
CHANCES_LIMIT = 200
META_REFUSED = "The host refuses the meta-tools: all tools are shown in full."


class SessionState:
    """The tools of one conversation, and what it has been shown of them."""

    def __init__(
        self,
        engine: Engine,
        record: Record,
        *,
        policy: Policy,
        pins: Sequence[str] = (),
        meta_allowed: bool = True,
        is_stored: bool = True,
        version: Version | None = None,
    ) -> None:
        """`version` is that of the stored record from which this one was made."""
        self.engine = engine
        self.settings = engine.settings
        self.record = record
        self.policy = policy
        self.pins = tuple(pins)
        self.principal = ""
        """For whom the session works; what past calls teach may be theirs alone."""
        self.chances: dict[str, float] = {}
        """The score that a search gave each tool it found lately, before past calls raised it."""
        self.has_meta_tools = True
        """Whether a gateway lists the meta-tools; otherwise it lists all tools instead."""
        self.lock = threading.RLock()
        self.results = Results(engine.result_store, record.id, limit=engine.settings.result_tokens)
        self.fruitless = 0
        """Searches in a row that found nothing."""
        self.prompt = Prompt(
            record,
            engine.settings,
            sample=self.sample,
            find=self._find_visible,
            is_waiting=self.is_waiting,
            unlisted=self.list_unlisted,
            summaries=lambda: engine.catalog.summaries,
            listings=engine.listings,
            meta_allowed=meta_allowed,
        )
        self._store = engine.store if is_stored else None
        self._catalog = engine.catalog
        self._news: list[str] = []
        self._told: dict[str, object] = {}
        self._heard_at: dict[str, float] = {}
        self._awake: set[str] = set()
        self._changed: dict[str, str] = {}
        self._sample: tuple[int, Sample] | None = None
        self._pinned_at = -1
        self._settled_at = -1
        self._unknown_pins: list[str] = []
        self._saved: tuple[bytes, list[int]] = (b"", [])
        self._version = Version() if version is None else version
        self.refresh()

    async def run_locked(self, work: Callable[[], _T], *, is_short: bool = True) -> _T:
        """Run work under the lock of the session without ever blocking the event loop.

        Short work runs at once if the lock is free. Other work runs in a thread, and whatever needs
        the lock meanwhile waits for it in another.
        """
        if is_short and self._catalog.is_local and self.lock.acquire(blocking=False):
            try:
                return work()
            finally:
                self.lock.release()

        def run() -> _T:
            with self.lock:
                return work()

        return await run_in_thread(run)

    def list_live(self, *, pinned: bool) -> tuple[str, ...]:
        """Return the tools that are pinned, or loaded, and exist now, in the order of loading."""
        with self.lock:
            self.refresh()
            entries = self.record.entries.values()
            return tuple(e.name for e in entries if e.pinned is pinned and self._is_live(e))

    def list_warnings(self) -> list[str]:
        """Return what the host should know: refused meta-tools, pins that match nothing."""
        with self.lock:
            self.refresh()
            expected = self.list_unready()
            lost = [pin for pin in self._unknown_pins if pin not in expected]
            tools = self.list_visible() if lost else ()
            warnings = [str(UnknownPin(pin, list_near_targets(pin, tools))) for pin in lost]
            return warnings if self.prompt.meta_allowed else [META_REFUSED, *warnings]

    @property
    def sees_all(self) -> bool:
        """Whether a search may show every tool."""
        if not self.policy.is_open or self._catalog.app_tools:
            return False
        if self._catalog.state(SAVED_SERVER) is None:
            return True
        return all(map(self.may_use, self._catalog.list_server(SAVED_SERVER)))

    def sees(self, tool: Tool) -> bool:
        """Tell whether a search may show a tool."""
        if tool.name in self._catalog.app_tools:
            return False
        return (self.policy.is_open or self.policy.sees(tool)) and self.may_use(tool)

    def may_use(self, tool: Tool) -> bool:
        """Tell whether this session sees all tools that a saved program calls; any other it may."""
        program = tool.function
        if not isinstance(program, SavedProgram):
            # A shared catalogue may have a program that this process does not know.
            return not (tool.server == SAVED_SERVER and "program" in tool.extras)
        called = [self._catalog.get(name) for name in program.calls]
        return all(one is not None and self.policy.sees(one) for one in called)

    def list_visible(self) -> Sequence[Tool]:
        """Return the tools that this session may see and list, by name; see `Catalog.sample`."""
        return self.sample().tools

    def sample(self) -> Sample:
        """Return the tools that this session may see and list, and how many others there are."""
        if self.sees_all:
            return self._catalog.sample()
        version = self._catalog.version
        if self._sample is None or self._sample[0] != version:
            whole = self._catalog.sample()
            tools = tuple(filter(self.sees, whole.tools))
            self._sample = (version, Sample(tools=tools, more=self._count_more(whole, tools)))
        return self._sample[1]

    def _count_more(self, whole: Sample, seen: Sequence[Tool]) -> Mapping[str, int]:
        """Return how many unlisted tools servers have, as far as this session may know that."""
        if not whole.more:
            return {}
        listed = Counter(tool.server for tool in whole.tools)
        visible = Counter(tool.server for tool in seen)
        return {
            server: count
            for server, count in whole.more.items()
            if visible[server] == listed[server] and (listed[server] or self._sees_some(server))
        }

    def _sees_some(self, server: str) -> bool:
        return self.policy.is_open or self.policy.sees_some(server)

    def _find_visible(self, name: str) -> Tool | None:
        tool = self._catalog.get(name)
        return tool if tool is not None and self.sees(tool) else None

    def list_possible(self, targets: Iterable[str]) -> Sequence[Tool]:
        """Return at least the visible tools that targets may mean, or that are always loaded."""
        tools = self._catalog.list_possible(targets)
        if tools is self._catalog.sample().tools:
            return self.list_visible()
        return tools if self.sees_all else tuple(filter(self.sees, tools))

    def list_kinds(self, kinds: Collection[str]) -> list[Tool]:
        """Return the visible tools of some kinds, by name."""
        return [
            tool for tool in self._catalog.list_kinds(kinds) if self.sees_all or self.sees(tool)
        ]

    def find_near(self, name: str) -> list[str]:
        """Return the names of visible tools that resemble a name."""
        return self._catalog.find_near(name, None if self.sees_all else self.sees)

    def list_for_apps(self) -> list[Tool]:
        """Return the tools that only apps may call, and only if the policy permits it."""
        found = map(self._catalog.get, sorted(self._catalog.app_tools))
        return [tool for tool in found if tool is not None and self.policy.sees(tool)]

    def list_unready(self) -> Mapping[str, Availability]:
        """Return the pending and failed servers that this session may know of."""
        unready = self._catalog.unready
        if not unready or self.policy.is_open:
            return unready
        unlisted = self._catalog.unlisted
        return {
            server: state
            for server, state in unready.items()
            if any(map(self.sees, self._catalog.list_server(server)))
            or (server in unlisted and self.policy.sees_some(server))
        }

    def list_unlisted(self) -> tuple[str, ...]:
        """Return the servers without known tools of which this session may see any tool."""
        unlisted = self._catalog.unlisted
        return unlisted if self.policy.is_open else tuple(filter(self.policy.sees_some, unlisted))

    def is_waiting(self) -> bool:
        """Tell whether a server is still connecting."""
        return any(state.status is Status.PENDING for state in self.list_unready().values())

    def list_absent(self, status: Status) -> list[str]:
        """Return the servers of a status whose tools are unknown."""
        unready = self.list_unready().items()
        names = [server for server, state in unready if state.status is status]
        unlisted = self._catalog.unlisted if names else ()
        return [server for server in names if server in unlisted]

    @property
    def hides_tools(self) -> bool:
        """Whether the model has the meta-tools: because tools are hidden, or from a gateway."""
        return self.has_meta_tools if self.settings.shared else self.record.hiding is not False

    def is_callable(self, tool: Tool) -> bool:
        """Tell whether exactly this definition is loaded, pinned or shown in full."""
        record = self.record
        return record.holds(tool) or record.hiding is False or tool.name in record.declared

    def is_known(self, tool: Tool) -> bool:
        """Tell whether the conversation knows that it can call a tool."""
        entry = self.record.entries.get(tool.name)
        is_listed = not self.settings.shared or (entry is not None and entry.pinned)
        return is_listed and self.is_callable(tool)

    @property
    def knows_tools(self) -> bool:
        """Whether `is_known` may hold for any tool."""
        record = self.record
        if self.settings.shared:
            return any(entry.pinned for entry in record.entries.values())
        return record.hiding is False or bool(record.entries or record.declared)

    def has_shown(self, tool: Tool) -> bool:
        """Tell whether the conversation has a tool's whole definition."""
        return not self.settings.shared and self.record.has_shown(tool)

    def should_learn(self, tool: Tool) -> bool:
        """Tell whether what a tool returns is learned, because nobody has declared it."""
        is_undeclared = tool.output_schema is None and tool.kind == "tool"
        return is_undeclared and self.settings.learn_results

    def may_call(self, tool: Tool) -> bool:
        """Tell whether the gate lets a tool through: loaded, or shown by a search (R50)."""
        return self.record.offers(tool) or self.is_callable(tool)

    def is_declared(self, name: str) -> bool:
        """Tell whether every request carries a tool's definition, so no search has to."""
        entry = self.record.entries.get(name)
        return entry is None or entry.pinned or name in self.record.declared

    def load(self, tools: Sequence[Tool], query: str = "") -> list[str]:
        """Load tools, best first; return those that are new. Evictions become news."""
        # Most searches find again what an earlier one has loaded.
        fresh = [tool for tool in tools if not self.record.holds(tool)]
        if not fresh:
            return []
        costs = [(tool, count_definition_tokens(tool)) for tool in fresh]
        entries, shown = dict(self.record.entries), dict(self.record.shown)
        added, evicted = self.record.load(costs, self.settings.loaded_tokens, query)
        self._awake.update(added)
        if not all(self._is_live(self.record.entries[name]) for name in added):
            self._settled_at = -1  # a call may end after its tool has changed or gone
        self._report_evicted(evicted, entries, shown)
        return added

    def note_found(self, hits: Iterable[Hit]) -> None:
        """Note how sure a search was of what it found, without the help of past calls."""
        for hit in hits:
            self.chances.pop(hit.tool.name, None)
            score = hit.score if hit.raised_from is None else hit.raised_from
            self.chances[hit.tool.name] = score
        for name in list(self.chances)[:-CHANCES_LIMIT]:
            del self.chances[name]

    def note_shown(self, tools: Iterable[Tool]) -> None:
        """Note tools whose whole definitions are in the text of a reply."""
        # Where definitions answer a search, text makes no tool callable by its own name.
        if self.settings.mode is not Mode.DEFINITIONS:
            for tool in tools:
                self.record.show(tool)

    def find_unheard(self, tools: Iterable[Tool]) -> dict[str, str]:
        """Return what the servers of tools say that the conversation has not read, by server."""
        said = {tool.server: tool.instructions for tool in tools if tool.instructions}
        return {server: text for server, text in said.items() if not self._has_heard(server, text)}

    def note_heard(self, said: Mapping[str, str]) -> None:
        """Note that the conversation has read what servers say."""
        for server, text in said.items():
            self.record.heard[server] = _hash_text(text)
            self._heard_at[server] = self.engine.timer()

    def _has_heard(self, server: str, text: str) -> bool:
        if self.record.heard.get(server) != _hash_text(text):
            return False
        if not self.settings.shared:
            return True
        # Other conversations of this session, and this one after compaction, have not read it.
        at = self._heard_at.get(server)
        return at is not None and self.engine.timer() - at < HEARD_SECONDS

    def take_news(self) -> tuple[str, ...]:
        """Return what happened to loaded tools since the last reply."""
        news = tuple(self._news)
        self._news = []
        return news

    def tell(self, subject: str, value: object) -> bool:
        """Note what a reply says of a subject; return whether the last one said otherwise."""
        is_news = self._told.get(subject) != value
        self._told[subject] = value
        return is_news

    def compact(self) -> None:
        """Forget what only the dropped messages had."""
        self.record.compact()
        self.prompt.compact()
        self.fruitless = 0
        self._told.clear()

    def pin(self, targets: Sequence[str]) -> None:
        """Keep tools for good, by name, server or pattern."""
        self.pins += tuple(targets)
        self._pinned_at = self._settled_at = -1
        self.refresh()

    def restrict(self, policy: Policy) -> None:
        """Show and run from now on what another policy allows."""
        self.policy = policy
        self._sample = None
        self._pinned_at = self._settled_at = -1
        self.refresh()

    def follow(self, engine: Engine) -> None:
        """Follow the settings of another engine, which has the same catalogue and stores."""
        self.engine = engine
        self.settings = self.prompt.settings = engine.settings
        self.results.limit = engine.settings.result_tokens
        self._pinned_at = self._settled_at = -1
        self.refresh()

    def prepare(self) -> None:
        """Bring the session up to date for a verb: its record, and whether tools are hidden."""
        self.refresh()
        self.prompt.decide()

    def adopt(self, stored: bytes) -> None:
        """Take over what another process has stored of this session."""
        self._version.foreign.append(stored)
        self.refresh()

    def refresh(self) -> None:
        """Bring the record in step with other processes and the catalogue."""
        while self._version.foreign:
            try:
                theirs = Record.from_bytes(self._version.foreign.popleft())
            except InvalidState:
                continue  # written by another version
            merged = self.record.merge(theirs)
            for item in fields(merged):
                setattr(self.record, item.name, getattr(merged, item.name))
            self._settled_at = -1
        version = self._catalog.version
        if self._settled_at == version:
            return
        try:
            self._settle(version)
        except CatalogUnavailable:
            self._settled_at = -1  # loaded tools stay what they were

    def _settle(self, version: int) -> None:
        if self._pinned_at != version:
            targets = (*self.settings.essential, *self.settings.pins, *self.pins)
            tools = [*self.list_possible(targets), *self.list_for_apps()]
            self._pinned_at = version
            found, self._unknown_pins = find_pinned(tools, self.settings, self.pins)
            for tool in found:
                self.record.pin(tool, count_definition_tokens(tool))
        gone = [e.name for e in list(self.record.entries.values()) if not self._check_entry(e)]
        if gone:
            self.record.unload(gone)
        # A definition may have grown, or the budget be smaller than in the last run.
        entries, shown = dict(self.record.entries), dict(self.record.shown)
        self._report_evicted(self.record.evict(self.settings.loaded_tokens), entries, shown)
        # A predicate may change its answer at any time, and so may the state of an absent server.
        is_settled = self.policy.is_open and all(map(self._is_live, self.record.entries.values()))
        self._settled_at = version if is_settled else -1

    def save(self) -> None:
        """Write the record to the store, if it has changed."""
        if self._store is None:
            return
        mark = self.record.mark()
        if mark != self._saved:
            merge = Merge(
                SESSION_KIND,
                self.record.id,
                self.record.to_bytes(),
                self._version,
                _join_records,
                is_urgent=mark[0] != self._saved[0],  # recency alone may be written a little later
            )
            self._store.write_all([merge])
            self._saved = mark

    def _report_evicted(
        self, names: Sequence[str], entries: Mapping[str, Entry], shown: Mapping[str, str]
    ) -> None:
        """Make news of evicted tools that this conversation had read of before.

        The host may load tools that no reply has shown, and of those in a shared session nobody
        knows which conversation has seen them.
        """
        if not names or self.settings.shared:
            return
        is_request = self.settings.mode in (Mode.NATIVE, Mode.REFERENCE)
        old = [entries[name] for name in names if name in entries]
        told = [e.name for e in old if is_request or e.query or e.name in shown]
        if told:
            self._news.append(UNLOADED.format(names=list_some(told)))

    def _is_live(self, entry: Entry) -> bool:
        tool = self._catalog.get(entry.name)
        return tool is not None and tool.fingerprint == entry.fingerprint

    def _check_entry(self, entry: Entry) -> bool:
        """Look at what became of an entry's tool; return whether the entry stays."""
        tool = self._catalog.get(entry.name)
        if tool is None:
            # R65, R66: a tool whose server is away sleeps; any other is gone.
            state = self._catalog.state(entry.server)
            if state is None:
                is_asleep = entry.name not in self._awake
            else:
                is_asleep = state.status is not Status.READY
            if not is_asleep:
                self._news.append(GONE.format(name=entry.name))
            return is_asleep
        if not (self.policy.is_open or self.policy.sees(tool)):
            return False
        self._awake.add(entry.name)
        if tool.fingerprint == entry.fingerprint:
            return True
        # Where the request itself carries the definition, the model has the new one already.
        if entry.pinned or self.settings.mode in (Mode.NATIVE, Mode.REFERENCE):
            entry.fingerprint = tool.fingerprint
            entry.tokens = count_definition_tokens(tool)
        elif self._changed.get(tool.name) != tool.fingerprint:
            self._changed[tool.name] = tool.fingerprint
            self._news.append(CHANGED.format(name=tool.name))
        return True


def _join_records(theirs: bytes, ours: bytes) -> bytes:
    """Return what two processes have stored of a session together."""
    try:
        return Record.from_bytes(ours).merge(Record.from_bytes(theirs)).to_bytes()
    except InvalidState:
        return ours  # nobody could read what was stored


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


_Work = Callable[[], Callable[[], None]]
"""Does something that may block, and returns what tells whoever waits for it."""


class KeptThread:
    """A thread for functions that are called one after the other, as programs do.

    A function that is called while another one runs gets a thread of its own. So does every call
    after one that never returns.
    """

    def __init__(self) -> None:
        self._is_free = True
        self._is_started = False
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()

    def start(self, work: _Work) -> None:
        """Begin to work, and return at once."""
        if not self._is_free:
            _start_thread(lambda: work()())
            return
        self._is_free = False
        if not self._is_started:
            self._is_started = True
            _start_thread(self._serve)
        self._work.put(work)

    def close(self) -> None:
        """End the thread when it is free."""
        self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            tell = work()
            self._is_free = True  # before anybody hears of the result and calls the next function
            tell()
            del work, tell  # or the last result would stay in memory


async def run_in_thread(work: Callable[[], _T], thread: KeptThread | None = None) -> _T:
    """Run a function in a thread of its own, or in one that is kept for such functions.

    Not in the event loop's pool: a function that never returns would take a place there for
    good, and would keep the loop from closing, whatever the time-out says.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> Callable[[], None]:
        try:
            return partial(_tell, loop, done.set_result, context.run(work), done)
        except BaseException as error:
            # A future passes on neither StopIteration nor SystemExit; here both are failures.
            passes = isinstance(error, Exception) and not isinstance(error, StopIteration)
            failure = error if passes else RuntimeError(repr(error))
            return partial(_tell, loop, done.set_exception, failure, done)

    if thread is None:
        _start_thread(lambda: run()())
    else:
        thread.start(run)
    return await done


def _tell(
    loop: asyncio.AbstractEventLoop,
    settle: Callable[[Any], None],
    value: object,
    done: "asyncio.Future[Any]",
) -> None:
    """Tell the event loop from a thread how work has ended."""

    def tell() -> None:
        if not done.done():  # or nobody waits any more
            settle(value)

    with suppress(RuntimeError):  # the event loop is closed
        loop.call_soon_threadsafe(tell)


def _start_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="toolscout-call", daemon=True).start()
