"""`Scout`: the front door, with the three verbs over catalogue, index and sessions.

Makes and restores sessions, answers what the model calls, and keeps what past calls teach. What
the model sends never raises here: every mistake becomes a reply (R12). It speaks no wire format
and opens no connection: executors run tools, a store keeps state.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast
from weakref import WeakValueDictionary

from toolscout.calls.results import MemoryShelf, Results
from toolscout.catalog import Catalog
from toolscout.errors import ModelError
from toolscout.policies import Permission, Policy
from toolscout.schemas import Json
from toolscout.search.feedback import Feedback
from toolscout.search.index import EncoderChoice, Index
from toolscout.sessions.call import Aims, Call, Executor, broken, guarded, mistaken
from toolscout.sessions.describe import Describe
from toolscout.sessions.events import (
    Answered,
    Called,
    Defer,
    Described,
    Event,
    EventStream,
    Searched,
    Suggested,
    run_now,
)
from toolscout.sessions.history import Step, steps_from_messages
from toolscout.sessions.metatools import (
    DESCRIBE,
    SEARCH,
    call_request,
    names_in,
    names_request,
    queries_in,
    search_request,
    to_object,
)
from toolscout.sessions.record import Record
from toolscout.sessions.replies import Reply
from toolscout.sessions.search import Search, delivered, note_delivered
from toolscout.sessions.session import SESSION_KIND, Admission, Session, Store
from toolscout.sessions.suggest import Suggest
from toolscout.sessions.usage import MADE, Experience
from toolscout.settings import Settings
from toolscout.tokens import estimate_tokens
from toolscout.tools import Effect, Tool

_log = logging.getLogger(__name__)


class Scout:
    """Finds, describes and calls the tools of a catalogue.

    `executors` run the tools of servers, by server; one function alone runs all. Tools made of
    Python functions run themselves. Without a `store`, sessions live as long as the scout. What
    need not come before an answer, keeping how a call ended, is given to `defer`.
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
        self.catalog = catalog
        self.index = Index(catalog, encoder=encoder) if index is None else index
        self.settings = settings or Settings()
        self.policy = policy or Policy()
        self.store = store
        self.events = EventStream() if events is None else events
        if on_event is not None:
            self.events.subscribe(on_event)
        self._timer = timer
        self._sessions: MutableMapping[str, Session] = {}
        if store is not None:
            self._sessions = WeakValueDictionary()
        self._opening = threading.RLock()
        self._shelf = MemoryShelf()
        self._experience = Experience(store, clock, defer)
        self._executors: dict[str, Executor] = {}
        default = executors if callable(executors) else None
        if isinstance(executors, Mapping):
            self._executors.update(cast("Mapping[str, Executor]", executors))
        self._search = Search(catalog, self.index, self._experience.feedback)
        self._describe = Describe(catalog, self._results, self._experience.failures)
        self._call = Call(catalog, self._executors, default, self._results)
        self._suggest = Suggest(self.index)
        self._aims = Aims(catalog)

    @property
    def feedback(self) -> Feedback:
        """What past calls teach searches."""
        return self._experience.feedback

    def connect(self, server: str, executor: Executor) -> None:
        """Have an executor run the tools of a server from now on."""
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
                    live.restrict(self.policy.narrowed(allowed))
                if pins:
                    live.pin(*pins)
                return live
            data = self.store.read(SESSION_KIND, id_) if self.store is not None else None
            record = Record.from_bytes(data) if data is not None else Record(id=id_)
            policy = self.policy.narrowed(allowed)
            return self._open(record, policy, pins=pins or (), meta_allowed=meta_allowed)

    def live(self, id_: str) -> Session | None:
        """Return a session that is in use, and neither opens nor restores one."""
        return self._sessions.get(id_)

    def restore(
        self,
        state: object,
        *,
        allowed: Callable[[Tool], bool] | None = None,
        keep: bool = True,
    ) -> Session:
        """Return the session that `Session.to_json()` or `Session.compact()` gave, as it was.

        With `keep=False` the scout does not hold or store it: the caller's state is its home.
        """
        policy = self.policy.narrowed(allowed)
        session = self._open(Record.from_json(state), policy, keep=keep)
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
        same gate as a live call. With `keep=False` the scout does not hold or store it: the
        history is its home.
        """
        session = self._open(Record(id=id_), self.policy.narrowed(allowed), keep=keep)
        with session.lock:
            for step in steps_from_messages(messages):
                self._replay(session, step)
            session.take_news()
            session.fruitless = 0
            session.save()
        return session

    def fork(self, session: Session, record: Record, pins: Sequence[str] = ()) -> Session:
        """Return a session of another record under the same policy."""
        allowed = session.prompt.meta_allowed
        twin = self._open(record, session.policy, pins=pins, meta_allowed=allowed)
        twin.save()
        return twin

    def forget(self, id_: str) -> None:
        """End a session for good."""
        session = self._sessions.pop(id_, None) or self.session(id_)
        self._results(session).clear()
        self._sessions.pop(id_, None)
        if self.store is not None:
            self.store.write(SESSION_KIND, id_, None)

    def search(
        self,
        session: Session,
        queries: object,
        *,
        limit: object = None,
        detail: object = None,
        max_tokens: object = None,
    ) -> Reply:
        """Answer `tool_search`."""

        def work() -> Reply:
            return self._found(session, queries, limit, detail, max_tokens)

        return self._answered(Searched, session, work)

    def describe(self, session: Session, names: object) -> Reply:
        """Answer `tool_describe`."""

        return self._answered(Described, session, lambda: self._told(session, names))

    async def call(
        self,
        session: Session,
        name: object,
        arguments: object,
        *,
        approved: bool = False,
        executor: Executor | None = None,
    ) -> Reply:
        """Answer `tool_call`; an `executor` given here runs this call in place of the server's."""
        started = self._timer()
        try:
            reply = await self._call(session, name, arguments, approved=approved, executor=executor)
        except Exception as error:
            reply = broken(session, error, unsure=True)
        self._learn(session, reply, started)
        return reply

    async def admit(
        self, session: Session, name: object, arguments: object, *, approved: bool = False
    ) -> Admission | Reply:
        """Pass a call through the gate for a host that runs the tool itself."""
        started = self._timer()
        try:
            admitted = await self._call.admit(session, name, arguments, approved=approved)
        except Exception as error:
            admitted = broken(session, error)
        if isinstance(admitted, Reply):
            self._learn(session, admitted, started)
            return admitted
        return replace(admitted, started=started)

    def settle(self, session: Session, admission: Admission, *, failed: bool = False) -> None:
        """Take notice of an admitted call that the host has made."""
        added = self._call.settle(session, admission.tool)
        code = "tool_error" if failed else "ok"
        details: Json = {"tool": admission.tool.name, "code": code}
        reply = Reply(text="", code=code, is_error=failed, details=details, references=tuple(added))
        self._learn(session, reply, admission.started)

    def _learn(self, session: Session, reply: Reply, started: float) -> None:
        """Keep what the outcome of a call teaches, and tell of it."""
        tool = str(reply.details.get("tool", ""))
        # The tool may have run: a store that fails now must not cost the model its result.
        with session.lock, _logged("A store failed after a call."):
            if tool:
                query = session.record.query_of(tool)
                self._experience.learn(session.id, query, tool, reply.code)
            session.save()
        self._emit(Called, session, reply, started, tool=tool, made=reply.code in MADE)

    async def handle(
        self, session: Session, name: str, arguments: object, *, executor: Executor | None = None
    ) -> Reply:
        """Answer whatever the model called: a meta-tool, or a tool by its own name.

        An `executor` given here runs the tool in place of its server's.
        """
        match self._aims.meta(name):
            case "tool_search":
                return self.search(session, queries_in(arguments), **_options(arguments))
            case "tool_describe":
                return self.describe(session, names_in(arguments))
            case "tool_call":
                started = self._timer()
                try:
                    target, inner = call_request(arguments)
                except ModelError as error:
                    reply = mistaken(session, error)
                    self._emit(Called, session, reply, started, made=False)
                    return reply
                return await self.call(session, target, inner, executor=executor)
            case _:
                # OpenAI sends every call's arguments as JSON text; that is no slip of the model.
                arguments = to_object(arguments) or arguments
                return await self.call(session, name, arguments, executor=executor)

    def begin_turn(self, session: Session, message: str) -> Reply:
        """Load what a user message asks for by keywords or, if set so, by meaning."""
        return self._answered(Suggested, session, lambda: self._suggest(session, message))

    def effect_of(self, session: Session, name: str, arguments: object) -> Effect:
        """Return what a call may do; `tool_call` does what its target does (R81)."""
        return self._aims.effect(session, name, arguments)

    async def permission_of(self, session: Session, name: str, arguments: object) -> Permission:
        """Return what the host says to a call; search and describe need no asking (R81).

        The host is asked about the arguments that would be sent. What would not be sent at all
        is to be asked about, so that nothing is allowed by mistake.
        """
        return await self._aims.permission(session, name, arguments)

    def _found(
        self, session: Session, queries: object, limit: object, detail: object, max_tokens: object
    ) -> Reply:
        request = search_request(queries, limit, detail, max_tokens, session.settings)
        return self._search(session, request)

    def _told(self, session: Session, names: object) -> Reply:
        return self._describe(session, *names_request(names))

    def _open(
        self,
        record: Record,
        policy: Policy,
        *,
        pins: Sequence[str] = (),
        meta_allowed: bool = True,
        keep: bool = True,
    ) -> Session:
        session = Session(
            self,
            self.catalog,
            record,
            settings=self.settings,
            policy=policy,
            store=self.store if keep else None,
            pins=pins,
            meta_allowed=meta_allowed,
        )
        if keep:
            self._sessions[record.id] = session
        return session

    def _answered(self, kind: type[Answered], session: Session, work: Callable[[], Reply]) -> Reply:
        started = self._timer()
        with session.lock:
            reply = delivered(session, guarded(session, work), searched=kind is Searched)
            session.save()
        more: Json = {}
        if kind is Searched:
            more = {"form": str(reply.details.get("form", "")), "hits": len(reply.hits)}
        self._emit(kind, session, reply, started, **more)
        return reply

    def _replay(self, session: Session, step: Step) -> None:
        """Do again what a step did to the session, without an event: it was told before."""
        meta = self._aims.meta(step.name)
        if meta in (SEARCH, DESCRIBE) and step.references:
            tools = [t for t in map(self.catalog.get, step.references) if t is not None]
            seen = [tool for tool in tools if session.policy.sees(tool)]
            session.load(seen)
            note_delivered(session, seen)
        elif meta == SEARCH:
            queries, options = queries_in(step.arguments), _options(step.arguments)
            guarded(session, lambda: self._found(session, queries, **options))
        elif meta == DESCRIBE:
            guarded(session, lambda: self._told(session, names_in(step.arguments)))
        else:
            tool, _ = self._aims.tool(session, step.name, step.arguments)
            if tool is not None:
                session.record.touch(tool.name)

    def _results(self, session: Session) -> Results:
        shelf = self.store if self.store is not None else self._shelf
        return Results(shelf, session.id, limit=session.settings.result_tokens)

    def _emit(
        self,
        kind: type[Answered],
        session: Session,
        reply: Reply,
        started: float,
        *,
        made: bool = False,
        **facts: Any,
    ) -> None:
        if not self.events.has_listeners:
            return
        facts |= {"made": made} if kind is Called else {"reply": reply}
        event = kind(
            session=session.id,
            code=reply.code,
            loaded=len(reply.references),
            # A result may be long, and counting it would hold up its answer.
            tokens=estimate_tokens(reply.text) if made else reply.tokens,
            milliseconds=(self._timer() - started) * 1e3,
            **facts,
        )
        self.events.emit(event)


@contextmanager
def _logged(message: str) -> Generator[None]:
    try:
        yield
    except Exception:
        _log.exception(message)


def _options(arguments: object) -> Json:
    members = to_object(arguments)
    return {key: members.get(key) for key in ("limit", "detail", "max_tokens")}
