"""`Scout`: the front door, which builds the engine and opens sessions.

It holds the live sessions, restores stored ones and rebuilds others from a conversation's history.
It speaks no wire format and opens no connection: executors run tools, a store keeps state.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import cast
from weakref import WeakValueDictionary

from toolscout.catalog import Catalog
from toolscout.policies import Policy
from toolscout.search.feedback import Feedback
from toolscout.search.index import EncoderChoice, Index
from toolscout.sessions.engine import Engine, Executor
from toolscout.sessions.events import Defer, Event, EventStream, run_now
from toolscout.sessions.history import steps_from_messages
from toolscout.sessions.record import Record
from toolscout.sessions.replies import Reply
from toolscout.sessions.session import Session
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.sessions.usage import UsageLog
from toolscout.settings import Settings
from toolscout.stores.memory import MemoryStore
from toolscout.stores.store import Store
from toolscout.tools import Tool


class Scout:
    """Finds, describes and calls the tools of a catalogue, in sessions.

    `executors` run the tools of servers, by server; a single function runs all. Tools made of
    Python functions run themselves. Without a `store`, sessions live as long as the scout.
    `on_event` is called with every event; pass `events` to share a stream. Work that no answer
    waits for, such as storing how a call ended, goes to `defer`.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        executors: Mapping[str, Executor] | Executor | None = None,
        settings: Settings | None = None,
        policy: Policy | None = None,
        store: Store | None = None,
        encoder: EncoderChoice = "static",
        index: Index | None = None,
        events: EventStream | None = None,
        on_event: Callable[[Event], None] | None = None,
        defer: Defer = run_now,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.policy = policy or Policy()
        self.events = EventStream() if events is None else events
        if on_event is not None:
            self.events.subscribe(on_event)
        self._executors: dict[str, Executor] = {}
        default = executors if callable(executors) else None
        if isinstance(executors, Mapping):
            self._executors.update(cast("Mapping[str, Executor]", executors))
        self._engine = Engine(
            catalog=catalog,
            index=Index(catalog, encoder=encoder) if index is None else index,
            settings=settings or Settings(),
            usage=UsageLog(store, clock, defer),
            executors=self._executors,
            default_executor=default,
            store=store,
            result_store=MemoryStore() if store is None else store,
            events=self.events,
            timer=timer,
        )
        self._sessions: MutableMapping[str, Session] = {}
        if store is not None:
            self._sessions = WeakValueDictionary()
        self._opening = threading.RLock()

    @property
    def catalog(self) -> Catalog:
        """The tools that there are."""
        return self._engine.catalog

    @property
    def index(self) -> Index:
        """What searches the catalogue."""
        return self._engine.index

    @property
    def settings(self) -> Settings:
        """The settings of all sessions."""
        return self._engine.settings

    @property
    def store(self) -> Store | None:
        """What keeps sessions between runs."""
        return self._engine.store

    @property
    def feedback(self) -> Feedback:
        """What searches have learnt from past calls."""
        return self._engine.usage.feedback

    def connect(self, server: str, executor: Executor) -> None:
        """Let an executor run the tools of a server from now on."""
        self._executors[server] = executor

    def session(
        self,
        id_: str,
        *,
        pins: Sequence[str] | None = None,
        allowed: Callable[[Tool], bool] | None = None,
        meta_allowed: bool = True,
    ) -> Session:
        """Return the session of a conversation: the live one, the stored one, or a new one.

        `allowed` narrows what this caller may see; `pins` are always shown. A policy that fails
        for any tool raises `BrokenPolicy` here, before anything is shown (R79).
        """
        with self._opening:
            live = self._sessions.get(id_)
            if live is not None:
                if allowed is not None:
                    live.restrict(self.policy.narrow(allowed))
                if pins:
                    live.pin(*pins)
                return live
            data = self.store.read(SESSION_KIND, id_) if self.store is not None else None
            return Session(
                self._engine,
                Record.from_bytes(data) if data is not None else Record(id=id_),
                policy=self.policy.narrow(allowed),
                pins=pins or (),
                meta_allowed=meta_allowed,
                registry=self._sessions,
            )

    def find_live(self, id_: str) -> Session | None:
        """Return a session that is in use, without opening or restoring one."""
        return self._sessions.get(id_)

    def restore(
        self,
        state: object,
        *,
        allowed: Callable[[Tool], bool] | None = None,
        keep: bool = True,
    ) -> Session:
        """Return the session that `Session.to_json()` or `Session.compact()` gave, as it was.

        With `keep=False` the scout neither holds nor stores it: the caller's state is its home.
        """
        session = self._open(Record.from_json(state), allowed, keep=keep)
        session.save()
        return session

    def rebuild(
        self,
        id_: str,
        messages: Iterable[object],
        *,
        allowed: Callable[[Tool], bool] | None = None,
        keep: bool = True,
    ) -> Session:
        """Return a session with what a conversation's history had loaded.

        Reads calls and structured results only, never text (R51), and passes them through the
        same gate as a live call. With `keep=False` the scout neither holds nor stores it: the
        history is its home.
        """
        session = self._open(Record(id=id_), allowed, keep=keep)
        session.replay(steps_from_messages(messages))
        return session

    def forget(self, id_: str) -> None:
        """End a session for good."""
        self._sessions.pop(id_, None)
        self._engine.open_results(id_).clear()
        if self.store is not None:
            self.store.write(SESSION_KIND, id_, None)

    def preview(
        self,
        text: str,
        *,
        limit: int | None = None,
        allowed: Callable[[Tool], bool] | None = None,
        index: Index | None = None,
    ) -> Reply:
        """Return what a model would read if it searched now in a new conversation.

        No event is emitted and nothing is kept. Another `index` may be searched.
        """
        quiet = replace(self._engine, events=EventStream(), index=index or self.index)
        policy = self.policy.narrow(allowed)
        return Session(quiet, Record(id="preview"), policy=policy).search(text, limit=limit)

    def _open(
        self, record: Record, allowed: Callable[[Tool], bool] | None, *, keep: bool
    ) -> Session:
        policy = self.policy.narrow(allowed)
        registry = self._sessions if keep else None
        return Session(self._engine, record, policy=policy, registry=registry)
