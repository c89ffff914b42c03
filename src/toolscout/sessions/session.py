"""`Session`: one conversation's view of the catalogue, and the verbs that a model has in it.

What the model sends never raises here: every mistake becomes a reply (R12). The verbs themselves
are in `search`, `describe`, `call` and `run`; what the conversation has loaded is in `state`.
Any thread may use a session; two sessions share nothing.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, Unpack

from toolscout.dialects import Dialect
from toolscout.errors import (
    BrokenPolicy,
    CatalogUnavailable,
    ModelError,
    ProgramStopped,
    UsageError,
)
from toolscout.policies import Permission, Policy
from toolscout.schemas import Json
from toolscout.sessions import metatools
from toolscout.sessions.call import (
    MAX_CHAR_BYTES,
    ApprovedCall,
    Confirm,
    approve_call,
    call_tool,
    find_target,
    is_read_only,
    note_called,
    prepare_later,
    share_room,
)
from toolscout.sessions.describe import describe_tools
from toolscout.sessions.engine import Engine, Executor
from toolscout.sessions.events import Answered, Called, Described, Ran, Searched, Suggested
from toolscout.sessions.history import Step
from toolscout.sessions.metatools import CALLS_LIMIT
from toolscout.sessions.prompt import ShownTool
from toolscout.sessions.record import Entry, Record
from toolscout.sessions.replies import Reply, join_replies, refuse
from toolscout.sessions.run import (
    VERBS,
    Clock,
    ProgramParts,
    ProgramRecord,
    ProgramRun,
    Verbs,
    keep_program,
    list_programs,
    make_record,
    take_all,
)
from toolscout.sessions.search import (
    add_refused_queries,
    deliver,
    note_delivered,
    search_tools,
    suggest_tools,
)
from toolscout.sessions.session_state import KeptThread, SessionState, run_in_thread
from toolscout.sessions.texts import MAYBE_CALLED, NOTHING_DONE
from toolscout.sessions.usage import MADE
from toolscout.settings import Programs, Settings
from toolscout.stores.store import Version
from toolscout.tokens import estimate_tokens
from toolscout.tools import Effect, Tool

_T = TypeVar("_T")
_BY_DANGER = (Effect.READ, Effect.WRITE, Effect.UNKNOWN, Effect.DESTRUCTIVE)
_BY_STRICTNESS = (Permission.ALLOW, Permission.ASK, Permission.DENY)

_log = logging.getLogger(__name__)


class Session:
    """One conversation. `Scout.session()` makes it.

    A session with a `registry` is found there by its id and kept in the engine's store; without
    one, the caller's own state is its home.
    """

    def __init__(
        self,
        engine: Engine,
        record: Record,
        *,
        policy: Policy,
        pins: Sequence[str] = (),
        meta_allowed: bool = True,
        registry: "MutableMapping[str, Session] | None" = None,
        principal: str = "",
        version: Version | None = None,
    ) -> None:
        self.settings: Settings = engine.settings
        self._engine = engine
        self._registry = registry
        self._state = SessionState(
            engine,
            record,
            policy=policy,
            pins=pins,
            meta_allowed=meta_allowed,
            is_stored=registry is not None,
            version=version,
        )
        self._state.principal = principal
        self._record = record
        self._prompt = self._state.prompt
        self._lock = self._state.lock
        if registry is not None:
            registry[record.id] = self

    @property
    def id(self) -> str:
        """The conversation's name."""
        return self._record.id

    @property
    def policy(self) -> Policy:
        """What this session may see and run."""
        return self._state.policy

    @property
    def principal(self) -> str:
        """The user for whom the session works; empty in the library and over stdio."""
        return self._state.principal

    @principal.setter
    def principal(self, name: str) -> None:
        self._state.principal = name

    @property
    def loaded(self) -> tuple[str, ...]:
        """The tools that may be called because they were found, in the order of loading."""
        return self._state.list_live(pinned=False)

    @property
    def pinned(self) -> tuple[str, ...]:
        """The tools that may always be called."""
        return self._state.list_live(pinned=True)

    @property
    def warnings(self) -> list[str]:
        """What the host should know: refused meta-tools, pins that match nothing."""
        return self._state.list_warnings()

    # What the model calls.

    def search(
        self,
        queries: str | Sequence[str],
        *,
        limit: int | None = None,
        detail: str | None = None,
        max_tokens: int | None = None,
    ) -> Reply:
        """Find tools for one or several queries, and load what fits."""
        options = {"limit": limit, "detail": detail, "max_tokens": max_tokens}
        started = self._engine.timer()
        return self._emit_search(self._search(queries, options), started)

    def describe(self, names: str | Sequence[str]) -> Reply:
        """Return whole definitions by name, and load them."""
        started = self._engine.timer()
        reply = self._describe(names)
        self._emit(Described, reply, started)
        return reply

    async def call(
        self,
        name: object,
        arguments: object = None,
        *,
        approved: bool = False,
        executor: Executor | None = None,
        confirm: Confirm | None = None,
        pick: object = None,
        sharing: int = 1,
        for_apps: bool = False,
        programs: Programs | None = None,
        thread: KeptThread | None = None,
        parts: ProgramParts | None = None,
    ) -> Reply:
        """Run a tool. `approved` says that a person has agreed to this very call (R75).

        An `executor` given here runs this call in place of the server's. `confirm` asks a person
        about a call that needs approval. `pick` is the path of the part to return of JSON.
        `sharing` is how many calls are answered by one reply. With `for_apps`, the tool may be one
        that only apps may call, not the model. With `programs`, a program makes the call: these
        options say which tools it may call, and the result is not cut. `thread` is the one that
        the program keeps for functions. `parts` are those of `run`, for a tool that is a saved
        program.
        """
        started = self._engine.timer()
        parts = parts or {"forward": lambda: (executor, confirm)}
        try:
            reply = await call_tool(
                self._state,
                name,
                arguments,
                approved=approved,
                executor=executor,
                confirm=confirm,
                pick=pick,
                sharing=sharing,
                for_apps=for_apps,
                programs=programs,
                thread=thread,
                run_saved=partial(self._run_saved, parts),
            )
        except Exception as error:
            reply = self._report_failure(error, maybe_called=True)
        await self.run_locked(lambda: self._record_call(reply))
        self._emit_call(reply, started, arguments)
        return reply

    async def call_each(
        self, calls: Sequence[Callable[[int], Awaitable[Reply]]], *, at_once: int = CALLS_LIMIT
    ) -> list[Reply]:
        """Make several calls, some `at_once`; return the reply to each, in order.

        Each gets the number of calls to pass to `call`. Their replies together are no longer than
        the result of one call may be.
        """
        slots = asyncio.Semaphore(at_once)

        async def make(call: Callable[[int], Awaitable[Reply]]) -> Reply:
            async with slots:
                return await call(len(calls))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(make(call)) for call in calls]
        replies = [task.result() for task in tasks]
        if (
            sum(len(reply.text) for reply in replies) * MAX_CHAR_BYTES
            <= self.settings.result_tokens
        ):
            return replies
        try:
            return await run_in_thread(lambda: share_room(self._state, replies))
        except Exception as error:  # the store could not keep what is cut
            return [self._report_failure(error, maybe_called=True)] * len(replies)

    async def handle(
        self,
        name: str,
        arguments: object = None,
        *,
        executor: Executor | None = None,
        confirm: Confirm | None = None,
        **program: Unpack[ProgramParts],
    ) -> Reply:
        """Answer what the model called: a meta-tool, or a loaded tool by its own name.

        `executor` and `confirm` are those of `call`, and `program` has the arguments of `run`.
        """
        started = self._engine.timer()
        match metatools.find_meta_tool(self._engine.catalog, name):
            case "tool_search":
                options = metatools.read_search_options(arguments)
                return await self._search_later(metatools.find_queries(arguments), options)
            case "tool_describe":
                return await self._describe_later(metatools.find_names(arguments))
            case "tool_run":
                try:
                    code = metatools.read_code(arguments)
                except ModelError as error:
                    reply = self._refuse(error)
                    self._emit(Ran, reply, started)
                    return reply
                parts: ProgramParts = {"forward": lambda: (executor, confirm)}
                return await self.run(code, **(parts | program))
            case "tool_call":
                try:
                    calls, notes = metatools.read_calls(arguments)
                except ModelError as error:
                    reply = self._refuse(error)
                    self._emit(Called, reply, started, made=False)
                    return reply

                async def make(call: metatools.CallRequest, sharing: int = 1) -> Reply:
                    return await self.call(
                        call.name,
                        call.arguments,
                        executor=executor,
                        confirm=confirm,
                        pick=call.pick,
                        sharing=sharing,
                        parts=program,
                    )

                if len(calls) == 1:
                    return await make(calls[0])
                replies = await self.call_each([partial(make, call) for call in calls])
                return join_replies([call.name for call in calls], replies, notes)
            case _:
                # OpenAI sends every call's arguments as JSON text; that is no slip of the model.
                given = metatools.to_object(arguments) or arguments
                return await self.call(
                    name,
                    given,
                    executor=executor,
                    confirm=confirm,
                    for_apps=True,
                    parts=program,
                )

    async def run(self, code: str, **parts: Unpack[ProgramParts]) -> Reply:
        """Run a program that calls tools, as `tool_run` does; see docs/programs.md.

        Each of its calls passes the gate like a call of the model.
        """
        started = self._engine.timer()
        try:
            run, clock = self._prepare_program(parts)
            reply = await run.run(code, clock)
        except ModelError as error:
            reply = self._refuse(error)
        except Exception as error:
            reply = self._report_failure(error, maybe_called=True)
        seconds = self._engine.timer() - started
        record = make_record(code, reply, seconds)
        try:
            keep = partial(keep_program, self._engine.result_store, self.id, record)
            await self.run_locked(keep)
        except Exception:
            # Tools may have run: a failing store must not cost the model the result.
            _log.exception("The store failed after a program.")
        calls = sum(one.code in MADE and one.name not in VERBS for one in record.calls)
        self._emit(Ran, reply, started, calls=calls, digest=record.digest)
        return reply

    def _prepare_program(self, parts: ProgramParts) -> tuple[ProgramRun, Clock]:
        """Return what runs a program, and its clock; raises `ProgramStopped` if there are none."""
        forward = parts.get("forward")
        options = parts.get("programs") or self.settings.programs
        if not options.enabled:
            raise ProgramStopped.from_switch()
        clock = Clock(options.seconds)

        async def call(name: object, arguments: object, thread: KeptThread) -> Reply:
            executor, confirm = forward() if forward is not None else (None, None)
            asks = None if confirm is None else partial(clock.confirm, confirm)
            return await self.call(
                name, arguments, executor=executor, confirm=asks, programs=options, thread=thread
            )

        verbs = Verbs(search=self._search_later, describe=self._describe_later, call=call)
        slots = parts.get("take_slots", take_all)
        return ProgramRun(self._state, verbs, options, slots), clock

    async def _run_saved(self, parts: ProgramParts, tool: Tool, arguments: Json) -> object:
        run, clock = self._prepare_program(parts)
        return await run.run_saved(tool, arguments, clock)

    def run_sync(self, code: str) -> Reply:
        """Run a program from synchronous code."""
        return run_sync(lambda: self.run(code))

    def list_programs(self) -> list[ProgramRecord]:
        """Return the last programs of this session, oldest first, with their calls."""
        return list_programs(self._engine.result_store, self.id)

    def call_sync(
        self, name: str, arguments: object = None, *, approved: bool = False, pick: object = None
    ) -> Reply:
        """Run a tool from synchronous code."""
        return run_sync(lambda: self.call(name, arguments, approved=approved, pick=pick))

    def handle_sync(self, name: str, arguments: object = None) -> Reply:
        """Answer what the model called, from synchronous code."""
        return run_sync(lambda: self.handle(name, arguments))

    # For hosts that run their tools themselves.

    async def admit(
        self, name: str, arguments: object = None, *, approved: bool = False, pick: object = None
    ) -> ApprovedCall | Reply:
        """Return a call that the host may make, or the reply that says why not.

        Report a call that was made with `settle`. If the model wanted to `pick` a part of the
        result, which the host cannot do, the notes of the call say so.
        """
        started = self._engine.timer()
        try:
            call = await approve_call(self._state, name, arguments, approved=approved, pick=pick)
        except Exception as error:
            call = self._report_failure(error)
        if isinstance(call, Reply):
            refused = call
            await self.run_locked(lambda: self._record_call(refused))
            self._emit_call(refused, started, arguments)
            return refused
        return replace(call, started=started)

    def admit_sync(
        self, name: str, arguments: object = None, *, approved: bool = False
    ) -> ApprovedCall | Reply:
        """Do the same as `admit` from synchronous code."""
        return run_sync(lambda: self.admit(name, arguments, approved=approved))

    def settle(self, call: ApprovedCall, *, failed: bool = False) -> None:
        """Note that an approved call was made, and whether the tool failed."""
        added = note_called(self._state, call.tool)
        code = "tool_error" if failed else "ok"
        details: Json = {"tool": call.tool.name, "code": code}
        reply = Reply(text="", code=code, is_error=failed, details=details, references=tuple(added))
        self._record_call(reply)
        self._emit_call(reply, call.started, call.arguments)

    def find_effect(self, name: str, arguments: object = None) -> Effect:
        """Return what a call may do; `tool_call` does what its target does (R81).

        Of several targets, the one that may do most counts.
        """
        catalog = self._engine.catalog
        effects: list[Effect] = []
        for name_, given in metatools.split_call(catalog, name, arguments):
            tool, _ = self.find_target(name_, given)
            is_reading = is_read_only(catalog, name_, given)
            effects.append(Effect.READ if is_reading else tool.effect if tool else Effect.UNKNOWN)
        return max(effects, key=_BY_DANGER.index)

    async def find_permission(self, name: str, arguments: object = None) -> Permission:
        """Return the host's answer to a call; search and describe are always allowed (R81).

        The policy sees the arguments that would be sent. A call that could not be sent needs a
        person's approval, so that nothing is allowed by mistake. Of several calls at once, the
        strictest answer counts.
        """
        calls = metatools.split_call(self._engine.catalog, name, arguments)
        if len(calls) > 1:
            found = [await self.find_permission(*call) for call in calls]
            return max(found, key=_BY_STRICTNESS.index)
        if is_read_only(self._engine.catalog, name, arguments):
            return Permission.ALLOW
        tool, given = self.find_target(name, arguments)
        if tool is None:
            return Permission.ASK
        try:
            prepared = await prepare_later(tool, {} if given is None else given)
        except ModelError:
            return Permission.ASK
        return (await self.policy.decide(tool, prepared.arguments)).permission

    def find_target(self, name: str, arguments: object) -> tuple[Tool | None, object]:
        """Return the tool that a call would reach, also through `tool_call`, and its arguments.

        None for a `tool_call` of several tools.
        """
        return find_target(self._state, name, arguments)

    async def run_locked(self, work: Callable[[], _T], *, is_short: bool = True) -> _T:
        """Run work on this session without blocking the event loop; long work gets a thread."""
        return await self._state.run_locked(work, is_short=is_short)

    # What the next request to a model carries.

    def user_message(self, message: str = "") -> Reply:
        """Note a user message: it may end the scope of loaded tools, and suggest others.

        The reply's text is for the conversation and may be empty.
        """
        started = self._engine.timer()
        reply = self._answer(lambda: suggest_tools(self._state, message))
        self._emit(Suggested, reply, started)
        return reply

    def tools(
        self, dialect: Dialect | str, *, listing: bool = True, forced: str = ""
    ) -> list[Json]:
        """Return the definitions that the next request carries, in a provider's dialect.

        The description of `tool_search` says what exists, unless `listing` is False. A `forced`
        tool is added for this request.
        """
        return self._read(
            lambda: self._prompt.build_definitions(dialect, listing=listing, forced=forced)
        )

    def list_shown(self, *, listing: bool = True) -> list[ShownTool]:
        """Return the tools that the next request carries, for hosts that shape them themselves."""
        return self._read(lambda: self._prompt.list_shown(listing=listing))

    def get_listing(self) -> str:
        """Return what exists: servers, and names of tools while they fit.

        The first time after a change of the catalogue, this may take tens of milliseconds.
        """
        return self._read(self._prompt.get_listing)

    def has_listing(self) -> bool:
        """Tell whether `get_listing` returns at once."""
        return self._read(self._prompt.has_listing)

    def system_prompt(self, *, listing: bool = False) -> str:
        """Return the session's part of the system prompt.

        With `listing` it says what exists; then pass `listing=False` to `tools`.
        """
        return self._read(lambda: self._prompt.render_system_prompt(listing=listing))

    def announce_changes(self, *, again: bool = False) -> str:
        """Return a message about tools that came and went, or an empty text (R99)."""
        return self._read(lambda: self._prompt.render_announcement(again=again))

    def cache_key(self, dialect: Dialect | str) -> str:
        """Return a hash of the definitions and the system prompt of the next request."""
        return self._read(lambda: self._prompt.compute_cache_key(dialect))

    # What the host decides about loaded tools.

    def pin(self, *targets: str) -> None:
        """Keep tools for good, by name, server or pattern."""
        with self._lock:
            self._state.pin(targets)
            self._state.save()

    def load(self, *tools: Tool) -> list[str]:
        """Load tools without a search, the most useful first; return those that are new."""
        with self._lock:
            # A tool that a search has shown keeps the query that found it.
            query = self._record.find_query(tools[0].name) if len(tools) == 1 else ""
            added = self._state.load(tools, query)
            self._state.save()
            return added

    def offer(self, *tools: Tool) -> None:
        """Accept calls of tools that were shown to the model in another way than by a search."""
        with self._lock:
            self._record.offer([tool for tool in tools if not self._record.holds(tool)])

    def touch(self, name: str) -> None:
        """Make a loaded tool the most recently used one."""
        with self._lock:
            self._record.touch(name)

    def unload(self, *names: str) -> list[str]:
        """Forget found tools by name, or all without names; return those that were loaded."""
        with self._lock:
            known = [entry.name for entry in self._record.loaded]
            gone = self._record.unload([name for name in (names or known) if name in known])
            self._record.withdraw(names or list(self._record.offered))
            self._state.save()
            return gone

    def restrict(self, policy: Policy) -> None:
        """Show and run from now on what another policy allows."""
        with self._lock:
            self._state.restrict(policy)

    def follow(self, engine: Engine) -> None:
        """Follow from now on the settings of another engine of the same scout."""
        with self._lock:
            self._engine = engine
            self.settings = engine.settings
            self._state.follow(engine)

    def watch_results(self, on_keep: Callable[[str, int], None]) -> None:
        """Call a function with the key and the bytes of each long result that is stored."""
        self._state.results.on_keep = on_keep

    def offer_meta_tools(self, is_offered: bool) -> None:
        """Say whether the gateway lists the meta-tools to its client, or all tools instead."""
        self._state.has_meta_tools = is_offered

    def list_kinds(self, *kinds: str) -> list[Tool]:
        """Return the tools of some kinds that this session may see, by name."""
        return self._state.list_kinds(kinds)

    def list_visible(self) -> Sequence[Tool]:
        """Return the tools that this session may see, by name."""
        return self._state.list_visible()

    def list_for_apps(self) -> list[Tool]:
        """Return the tools that only apps may call, which no search finds."""
        return self._state.list_for_apps()

    def list_entries(self) -> list[Entry]:
        """Return what is known of each loaded tool: its cost, and the query that found it."""
        with self._lock:
            return [replace(entry) for entry in self._record.loaded]

    def find_tool(self, name: str) -> Tool | None:
        """Return a tool that this session may see, by its exact name."""
        found = self._engine.catalog.get(name)
        is_seen = found is not None and self.policy.sees(found) and self._state.may_use(found)
        return found if is_seen else None

    def may_call(self, tool: Tool) -> bool:
        """Tell whether a call of a tool would pass the gate."""
        return self._state.may_call(tool)

    def is_declared(self, name: str) -> bool:
        """Tell whether every request carries a tool's definition, found or not."""
        return self._state.is_declared(name)

    def note_delivered(self, tools: Iterable[Tool]) -> None:
        """Note that the conversation's items hold the definitions of these tools."""
        with self._lock:
            note_delivered(self._state, tools)

    # Its state.

    def compact(self) -> Json:
        """Note that earlier messages were dropped; return a record to carry over.

        Tools stay loaded; definitions will be shown again when they are needed.
        """
        with self._lock:
            self._state.compact()
            self._state.save()
            return self._record.to_json()

    def save(self) -> None:
        """Write the session to the store, if it has changed."""
        with self._lock:
            self._state.save()

    def to_json(self) -> Json:
        """Return the session as plain JSON, for `Scout.restore()`."""
        with self._lock:
            return self._record.to_json()

    def fork(
        self, id_: str, *, inherit: bool = True, pins: bool = False, names: Iterable[str] = ()
    ) -> "Session":
        """Return a session that goes its own way from here; this one is not affected.

        With `inherit` it continues this conversation. Without, it starts a new one, with only
        the pinned tools (`pins`) or the `names` that are loaded here (R70).
        """
        if id_ == self.id:
            raise UsageError(f"A fork of {id_!r} cannot have the same id. Choose another.")
        with self._lock:
            old = self._record
            record = old.copy(id_) if inherit else old.derive(id_, names=names, pins=pins)
        fork = Session(
            self._engine,
            record,
            policy=self.policy,
            pins=self._state.pins if inherit or pins else (),
            meta_allowed=self._prompt.meta_allowed,
            registry=self._registry,
        )
        fork.save()
        return fork

    def adopt(self, stored: bytes) -> None:
        """Take over what another process has stored of this session since."""
        with self._lock:
            self._state.adopt(stored)

    def replay(self, steps: Iterable[Step]) -> None:
        """Do again what earlier steps did to the session, without running tools or emitting."""
        with self._lock:
            for step in steps:
                self._replay_step(step)
            self._state.take_news()
            self._state.fruitless = 0
            self._state.save()

    def _replay_step(self, step: Step) -> None:
        meta = metatools.find_meta_tool(self._engine.catalog, step.name)
        if meta in (metatools.SEARCH, metatools.DESCRIBE) and step.references:
            tools = [t for t in map(self.find_tool, step.references) if t is not None]
            self._state.load(tools)
            note_delivered(self._state, tools)
        elif meta == metatools.SEARCH:
            queries = metatools.find_queries(step.arguments)
            options = metatools.read_search_options(step.arguments)
            self._guard(lambda: self._run_search(queries, options))
        elif meta == metatools.DESCRIBE:
            names = metatools.find_names(step.arguments)
            self._guard(lambda: describe_tools(self._state, *metatools.read_names_request(names)))
        else:
            for call in metatools.split_call(self._engine.catalog, step.name, step.arguments):
                tool, _ = find_target(self._state, *call)
                if tool is not None:
                    self._record.touch(tool.name)

    def _search(self, queries: object, options: Json) -> Reply:
        reply = self._answer(lambda: self._run_search(queries, options), is_search=True)
        if reply.is_error:
            with self._lock:
                reply = add_refused_queries(self._state, reply, metatools.read_texts(queries))
        return reply

    async def _search_later(self, queries: object, options: Json) -> Reply:
        """Search without blocking the event loop."""
        started = self._engine.timer()
        is_short = metatools.is_short_search(queries, len(self._engine.catalog))
        search = partial(self._search, queries, options)
        if self._engine.catalog.is_local:
            reply = await self.run_locked(search, is_short=is_short)
        else:  # it takes the lock itself, once the database has answered
            reply = await run_in_thread(search)
        return self._emit_search(reply, started)

    async def _describe_later(self, names: object) -> Reply:
        """Describe without blocking the event loop."""
        started = self._engine.timer()
        # Definitions may be long, and their tokens are counted.
        reply = await self.run_locked(partial(self._describe, names), is_short=False)
        self._emit(Described, reply, started)
        return reply

    def _emit_search(self, reply: Reply, started: float) -> Reply:
        form = str(reply.details.get("form", ""))
        self._emit(Searched, reply, started, form=form, hits=len(reply.hits))
        return reply

    def _describe(self, names: object) -> Reply:
        return self._answer(
            lambda: describe_tools(self._state, *metatools.read_names_request(names))
        )

    def _run_search(self, queries: object, options: Json) -> Reply:
        request = metatools.read_search_request(queries, settings=self.settings, **options)
        return search_tools(self._state, request)

    def _answer(self, work: Callable[[], Reply], *, is_search: bool = False) -> Reply:
        refusal = self._check_catalog() if is_search else None
        with self._lock:
            reply = deliver(self._state, refusal or self._guard(work), is_search=is_search)
            self._state.save()
        return reply

    def _check_catalog(self) -> Reply | None:
        """Return why the catalogue cannot be read, if so.

        A database that does not answer is waited for here, without the lock that calls of known
        tools need.
        """
        try:
            self._engine.catalog.check()
        except CatalogUnavailable as error:
            return self._refuse(error)
        return None

    def _read(self, read: Callable[[], _T]) -> _T:
        with self._lock:
            self._state.refresh()
            value = read()
            self._state.save()
            return value

    def _record_call(self, reply: Reply) -> None:
        """Record how a call ended."""
        tool = str(reply.details.get("tool", ""))
        try:
            with self._lock:
                if tool:
                    self._engine.usage.add(
                        self.id,
                        self._record.find_query(tool),
                        tool,
                        reply.code,
                        principal=self.principal,
                        chance=self._state.chances.get(tool),
                    )
                self._state.save()
        except Exception:
            # The tool may have run: a failing store must not cost the model its result.
            _log.exception("The store failed after a call.")

    def _emit_call(self, reply: Reply, started: float, arguments: object) -> None:
        tool = str(reply.details.get("tool", ""))
        known = self._engine.catalog.get_known(tool)
        made = reply.code in MADE
        if made and known is not None and known.fixed_arguments:
            arguments = metatools.to_object(arguments) | known.fixed_arguments
        self._emit(
            Called,
            reply,
            started,
            tool=tool,
            server=known.server if known else "",
            effect=known.effect if known else "",
            asked=str(reply.details.get("asked", "")),
            rule=str(reply.details.get("rule", "")),
            arguments=arguments,
            made=made,
        )

    def _emit(self, kind: type[Answered], reply: Reply, started: float, **facts: Any) -> None:
        if not self._engine.events.listeners:
            return
        # A result may be long, and counting it would hold up its answer.
        is_result = kind is Ran or (kind is Called and facts["made"])
        event = kind(
            session=self.id,
            code=reply.code,
            loaded=len(reply.references),
            tokens=estimate_tokens(reply.text) if is_result else reply.tokens,
            milliseconds=(self._engine.timer() - started) * 1e3,
            reply=None if kind is Called else reply,
            **facts,
        )
        self._engine.events.emit(event)

    def _guard(self, work: Callable[[], Reply]) -> Reply:
        """Return what the work gives, or a reply that says why it gave nothing."""
        try:
            return work()
        except ModelError as error:
            return self._refuse(error)
        except Exception as error:
            return self._report_failure(error)

    def _refuse(self, error: ModelError) -> Reply:
        return refuse(error, code=error.code, budget=self.settings.reply_tokens)

    def _report_failure(self, error: Exception, *, maybe_called: bool = False) -> Reply:
        """Return a reply that exposes nothing, and log what went wrong (R47)."""
        _log.error("A request of a session failed with %s.", type(error).__name__)
        _log.debug("The failed request:", exc_info=error)
        is_policy = isinstance(error, BrokenPolicy)  # always asked before anything is done
        text = MAYBE_CALLED if maybe_called and not is_policy else NOTHING_DONE
        code = "broken_policy" if is_policy else "broken_index"
        return refuse(ModelError(text), code=code, budget=self.settings.reply_tokens)


def run_sync(start: Callable[[], Coroutine[object, object, _T]]) -> _T:
    """Run asynchronous work to its end, whether or not a loop runs already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(start())
    # In a notebook or a web handler a loop runs already. It is held up meanwhile, as by any
    # synchronous function, so the work gets a loop and a thread of its own.
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "toolscout-sync") as pool:
        return pool.submit(context.run, lambda: asyncio.run(start())).result()
