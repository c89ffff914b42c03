"""`Scout`: the entry point, which gives each conversation a session over one catalogue of tools.

A scout builds the search index, holds the live sessions, restores stored ones and rebuilds others
from the messages of a conversation. It opens no connection: executors run the tools, and a store
keeps the sessions.
"""

import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Literal, cast
from weakref import WeakValueDictionary

from toolscout.calls.results import Results
from toolscout.calls.shapes import ResultShapes
from toolscout.catalog import Catalog
from toolscout.errors import UsageError
from toolscout.hints.hints import Hints
from toolscout.policies import Policy
from toolscout.programs.workers import check_programs
from toolscout.search.feedback import Feedback
from toolscout.search.index import EncoderChoice, Index, SearchIndex
from toolscout.sessions.engine import Engine, Executor
from toolscout.sessions.events import Defer, Event, EventStream, run_now
from toolscout.sessions.history import steps_from_messages
from toolscout.sessions.record import Record
from toolscout.sessions.replies import Reply
from toolscout.sessions.run import PROGRAM_KIND
from toolscout.sessions.session import Session
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.sessions.usage import UsageLog
from toolscout.settings import Settings
from toolscout.stores.memory import MemoryStore
from toolscout.stores.store import KeyLocks, Store, Version
from toolscout.tools import Tool


class Scout:
    """Lets models search, describe and call the tools of a catalogue.

        scout = Scout(Catalog({"clock": [get_time]}))
        session = scout.session("conversation-1")
        print(session.search("what time is it").text)
        print(session.call_sync("clock__get_time").text)

    Instead of a catalogue, it takes what a `Catalog` is made of, such as a list of functions.
    With `index="postgresql://…"`, tools are kept in that database and not in memory, beside those
    that are there already; several processes may share them. Close such a scout at the end.
    `executors` maps each server to a function that runs its tools; a single function runs all of
    them. Tools made from Python functions need no executor. `encoder` compares meaning, by default
    the one that `settings` names. Sessions are saved in `store`; without
    one, they live as long as the scout. `hints` are by default those of `settings` and `store`.
    `on_event` receives every event; to share an event stream, pass `events`. `defer` runs work that
    no answer has to wait for, such as storing how a call ended.
    """

    def __init__(
        self,
        catalog: Catalog | Mapping[str, Iterable[object]] | Iterable[object] = (),
        *,
        executors: Mapping[str, Executor] | Executor | None = None,
        settings: Settings | None = None,
        policy: Policy | None = None,
        store: Store | None = None,
        encoder: EncoderChoice | Literal["settings"] = "settings",
        index: SearchIndex | str | None = None,
        hints: Hints | None = None,
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
        self._opened: Catalog | None = None
        self._executors: dict[str, Executor] = {}
        default = executors if callable(executors) else None
        if isinstance(executors, Mapping):
            self._executors.update(cast("Mapping[str, Executor]", executors))
        settings = settings or Settings()
        check_programs(settings)
        encoder = settings.encoder.value if encoder == "settings" else encoder
        hints = hints or Hints.from_settings(settings, store)
        if isinstance(index, str):
            if isinstance(catalog, Catalog):
                raise UsageError(
                    "This catalogue is in memory, but the index is in a database. Give its tools "
                    "by server, as Scout({'server': tools}, index=…)."
                )
            from toolscout.search.postgres_catalog import PostgresCatalog

            catalog = PostgresCatalog(index, catalog, encoder=encoder, hints=hints)
            index = catalog.index
            self._opened = catalog
        elif not isinstance(catalog, Catalog):
            catalog = Catalog(catalog)
        if index is None:
            index = Index(catalog, encoder=encoder, hints=hints)
        feedback = Feedback(encode=index.encode_questions, learning=settings.learning, clock=clock)
        self._engine = Engine(
            catalog=catalog,
            index=index,
            settings=settings,
            usage=UsageLog(store, clock, defer, feedback=feedback),
            executors=self._executors,
            default_executor=default,
            store=store,
            result_store=MemoryStore() if store is None else store,
            events=self.events,
            timer=timer,
            shapes=ResultShapes(store),
        )
        self._sessions: MutableMapping[str, Session] = {}
        if store is not None:
            self._sessions = WeakValueDictionary()
        self._opening = KeyLocks()

    @property
    def catalog(self) -> Catalog:
        """The tools of all servers."""
        return self._engine.catalog

    @property
    def index(self) -> SearchIndex:
        """The search index of the catalogue."""
        return self._engine.index

    @property
    def hints(self) -> Hints | None:
        """What is known about tools besides their definitions, unless settings switch it off."""
        return self._engine.index.hints

    @property
    def settings(self) -> Settings:
        """The settings that all sessions share."""
        return self._engine.settings

    @property
    def store(self) -> Store | None:
        """The store that keeps sessions between runs, if there is one."""
        return self._engine.store

    @property
    def shapes(self) -> ResultShapes:
        """What results of tools look like, as far as they were seen."""
        return self._engine.shapes

    @property
    def feedback(self) -> Feedback:
        """How past calls change the order of hits."""
        return self._engine.usage.feedback

    def read_news(self) -> None:
        """Learn from the calls that other processes with the same store have made.

        This reads the store and may encode requests, so an event loop should call it in a thread.
        """
        self._engine.usage.read_news()
        self.feedback.encode_waiting()

    def change_settings(self, settings: Settings) -> None:
        """Let all sessions follow other settings from now on, except encoder and hints."""
        check_programs(settings)
        self._engine = replace(self._engine, settings=settings)
        for session in list(self._sessions.values()):
            session.follow(self._engine)

    def connect(self, server: str, executor: Executor) -> None:
        """Run the tools of a server with this executor from now on."""
        self._executors[server] = executor

    def session(
        self,
        id_: str,
        *,
        pins: Sequence[str] | None = None,
        allowed: Callable[[Tool], bool] | None = None,
        meta_allowed: bool = True,
        principal: str = "",
    ) -> Session:
        """Return the session of a conversation: the live one, the stored one, or a new one.

        `pins` names tools that are always shown. `allowed` narrows the tools that this caller may
        see; if it fails for any tool, this raises `BrokenPolicy` before anything is shown (R79).
        `principal` is the user for whom the session works: what it learns from its calls helps
        only the sessions of that user, unless the settings share it.
        """
        with self._opening[id_]:
            live = self._sessions.get(id_)
            if live is not None:
                if allowed is not None:
                    live.restrict(self.policy.narrow(allowed))
                if pins:
                    live.pin(*pins)
                live.principal = principal
                return live
            data, version = self._read_version(id_)
            return Session(
                self._engine,
                Record.from_bytes(data) if data is not None else Record(id=id_),
                policy=self.policy.narrow(allowed),
                pins=pins or (),
                meta_allowed=meta_allowed,
                registry=self._sessions,
                principal=principal,
                version=version,
            )

    def list_live(self) -> list[str]:
        """Return the names of the live sessions."""
        return list(self._sessions)

    def find_live(self, id_: str) -> Session | None:
        """Return the session of a conversation if it is live; never opens or restores one."""
        return self._sessions.get(id_)

    def restore(
        self, state: object, *, allowed: Callable[[Tool], bool] | None = None, keep: bool = True
    ) -> Session:
        """Return a session from the JSON of `Session.to_json()` or `Session.compact()`.

        With `keep=False`, the scout neither holds nor stores it; the caller keeps its JSON.
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
        """Return a session with the tools that the messages of a conversation have loaded.

        Only calls and structured results count, never text (R51), and they pass the same checks as
        live calls. With `keep=False`, the scout neither holds nor stores the session; the caller
        keeps the messages.
        """
        session = self._open(Record(id=id_), allowed, keep=keep)
        session.replay(steps_from_messages(messages))
        return session

    async def close(self) -> None:
        """End the processes that run programs, and close a catalogue that this scout opened."""
        await self._engine.workers.close()
        if self._opened is not None:
            self._opened.close()

    def forget(self, id_: str) -> None:
        """Delete a session and its long results."""
        self._sessions.pop(id_, None)
        Results(self._engine.result_store, id_).clear()
        self._engine.result_store.write(PROGRAM_KIND, id_, None)
        if self.store is not None:
            self.store.write(SESSION_KIND, id_, None)

    def preview(
        self,
        text: str,
        *,
        limit: int | None = None,
        allowed: Callable[[Tool], bool] | None = None,
        index: SearchIndex | None = None,
        principal: str = "",
    ) -> Reply:
        """Return the reply that a model would get if it searched now in a new conversation.

        This emits no event and keeps nothing. `index` replaces the scout's own index.
        """
        quiet = replace(self._engine, events=EventStream(), index=index or self.index)
        policy = self.policy.narrow(allowed)
        session = Session(quiet, Record(id="preview"), policy=policy, principal=principal)
        return session.search(text, limit=limit)

    def preview_listing(self, *, allowed: Callable[[Tool], bool] | None = None) -> str:
        """Return what a new conversation would read about what exists; this keeps nothing."""
        policy = self.policy.narrow(allowed)
        return Session(self._engine, Record(id="preview"), policy=policy).get_listing()

    def _open(
        self, record: Record, allowed: Callable[[Tool], bool] | None, *, keep: bool
    ) -> Session:
        policy = self.policy.narrow(allowed)
        registry = self._sessions if keep else None
        # It takes the place of what is stored, and is not merged with it.
        version = self._read_version(record.id)[1] if keep else None
        return Session(self._engine, record, policy=policy, registry=registry, version=version)

    def _read_version(self, id_: str) -> tuple[bytes | None, Version]:
        if self.store is None:
            return None, Version()
        return self.store.read_version(SESSION_KIND, id_)
