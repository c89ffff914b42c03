"""`tool_run`: run a program of the model, whose calls pass the same gate as the model's own.

The program runs in a worker process, which knows no tool. Every function that it calls comes back
here and becomes a search, a description or a call of this session, with its policy, approvals,
limits and events. What ran is kept with the session, so that a person can look at it.
"""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypedDict, cast

from toolscout import errors
from toolscout.calls.results import Page, format_json
from toolscout.names import to_one_line
from toolscout.policies import Decision
from toolscout.programs.saved import SavedProgram
from toolscout.programs.workers import (
    CallRaised,
    Finished,
    FunctionCall,
    to_json_value,
)
from toolscout.schemas import Json, is_object, list_parameters
from toolscout.sessions.call import MAX_CHAR_BYTES, Confirm, find_tool
from toolscout.sessions.engine import Executor
from toolscout.sessions.metatools import find_meta_tool
from toolscout.sessions.replies import Reply, refuse
from toolscout.sessions.session_state import KeptThread, SessionState, run_in_thread
from toolscout.sessions.texts import (
    ARGUMENT_TWICE,
    NAME_TO_CALL,
    NAME_TO_DESCRIBE,
    NO_VALUE,
    NOT_APPROVED,
    OUTPUT_DROPPED,
    TEXT_TO_SEARCH,
    TOO_MANY_ARGUMENTS,
    VERBS_OF_PROGRAMS,
    WHOLE_ARGUMENTS,
    list_calls,
)
from toolscout.settings import Programs
from toolscout.stores.store import Store
from toolscout.tools import Tool

PROGRAM_KIND = "program"
KEPT_PROGRAMS = 10
"""Programs that are kept for each session."""
KEPT_CALLS = 100
"""Calls that are kept of each program."""
NAMES_SHOWN = 8
MESSAGE_CHARS = 1_200
SMALL_TEXT = 100_000
"""Characters of JSON that are read within a few milliseconds."""
AT_ONCE = 10
"""Calls of one program that run at the same time."""

VERBS = ("search", "describe", "call")
"""Functions that every program has besides those of tools."""

_EXCEPTIONS = {
    errors.InvalidArguments.code: "ValueError",
    errors.InvalidRequest.code: "ValueError",
    errors.InvalidQuery.code: "ValueError",
    errors.UnknownTool.code: "NameError",
    errors.AmbiguousTool.code: "NameError",
    errors.NotAllowed.code: "PermissionError",
    errors.ApprovalNeeded.code: "PermissionError",
    errors.ToolDisabled.code: "PermissionError",
    errors.ToolHeld.code: "PermissionError",
    errors.NotLoaded.code: "PermissionError",
    errors.CallTimedOut.code: "TimeoutError",
}
"""The exception that a program gets for a reply; RuntimeError for all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCall:
    """One call that a program made."""

    name: str
    code: str
    milliseconds: float

    def to_json(self) -> Json:
        """Return it as replies and the store have it."""
        return {"name": self.name, "code": self.code, "milliseconds": self.milliseconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRecord:
    """A program that has run, as a person looks at it."""

    source: str
    code: str
    """How it ended: `ok`, or the code of an error."""
    started: str
    milliseconds: float
    calls: tuple[ProgramCall, ...] = ()
    digest: str = ""
    message: str = ""
    """Why it failed; empty if it did not."""

    def to_json(self) -> Json:
        """Return it as the store keeps it."""
        return {
            "source": self.source,
            "code": self.code,
            "started": self.started,
            "milliseconds": self.milliseconds,
            "calls": [call.to_json() for call in self.calls],
            "digest": self.digest,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbs:
    """What a program can do in a session, each with its events and limits."""

    search: Callable[[object, Json], Awaitable[Reply]]
    describe: Callable[[object], Awaitable[Reply]]
    call: Callable[[object, object, KeptThread], Awaitable[Reply]]


class Clock:
    """Ends a program when its time is over; stands still while a person is asked."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._asked = 0
        self._limit = asyncio.timeout(seconds)

    async def __aenter__(self) -> "Clock":
        await self._limit.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._limit.__aexit__(*error)

    @property
    def is_over(self) -> bool:
        """Whether the time was over before the program had ended."""
        return self._limit.expired()

    async def confirm(
        self, confirm: Confirm, tool: Tool, arguments: Json, decision: Decision
    ) -> bool:
        """Ask a person about a call, while time stands still."""
        with self.pause():
            return await confirm(tool, arguments, decision)

    @contextmanager
    def pause(self) -> Generator[None]:
        """Let time stand still while this is entered."""
        now = asyncio.get_running_loop().time
        if self._asked == 0:
            self._left = max(0.0, (self._limit.when() or now()) - now())
            self._limit.reschedule(None)
        self._asked += 1
        try:
            yield
        finally:
            self._asked -= 1
            if self._asked == 0 and not self._limit.expired():
                self._limit.reschedule(now() + self._left)


TakeSlots = Callable[[int], AbstractContextManager[int]]
"""Counts further calls while it is entered, and returns how many may run at the same time."""


def take_all(wanted: int) -> AbstractContextManager[int]:
    """Let a program make all its calls at once, where nothing limits them."""
    return nullcontext(wanted)


class ProgramParts(TypedDict, total=False):
    """What a host decides about the programs of a session."""

    forward: Callable[[], tuple[Executor | None, Confirm | None]]
    """Returns the executor and the `confirm` of each call, as `Session.call` takes them."""
    programs: Programs
    """The options to use instead of those of the settings."""
    take_slots: TakeSlots


@dataclass(slots=True)
class ProgramRun:
    """One program on its way, and the calls that it has made."""

    state: SessionState
    verbs: Verbs
    options: Programs
    take_slots: TakeSlots
    allowed: frozenset[str] | None = None
    """The tools that a saved program may call; None for all."""
    calls: list[ProgramCall] = field(default_factory=list[ProgramCall])
    references: list[str] = field(default_factory=list[str])
    _at_once: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, AT_ONCE))
    _own_slot: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a call that runs in the place of the request itself."""
    _thread: KeptThread = field(default_factory=KeptThread)

    async def run(self, code: str, clock: Clock) -> Reply:
        """Run a program, and return what it gave or why it failed."""
        try:
            return await self._report(await self._finish(code, clock))
        except errors.ModelError as error:
            return self._refuse(error)

    async def run_saved(self, tool: Tool, arguments: Json, clock: Clock) -> object:
        """Return the value of a saved program, or what it printed; raises `CallFailed`."""
        program = tool.function
        assert isinstance(program, SavedProgram)
        self.allowed = frozenset(program.calls)
        try:
            finished = await self._finish(program.source, clock, to_json_value(arguments))
        except errors.ModelError as error:
            raise errors.CallFailed(tool.name, f"{error} {self._summarize()}") from error
        return finished.printed if finished.value is None else finished.value

    async def _finish(self, code: str, clock: Clock, variables: Json | None = None) -> Finished:
        try:
            async with clock:
                return await self.state.engine.workers.run(
                    code,
                    options=self.options,
                    owner=self.state.principal or self.state.record.id,
                    has_function=self.has_function,
                    answer=self.answer,
                    variables=variables,
                )
        except TimeoutError:
            if not clock.is_over:
                raise
            raise errors.ProgramStopped.from_time(self.options.seconds) from None
        finally:
            self._thread.close()

    async def has_function(self, name: str) -> bool:
        """Tell whether a name is a verb or a tool that this session may know of."""
        if name in VERBS:
            return True
        try:
            found = await self.state.run_locked(lambda: self.state.engine.catalog.resolve(name))
        except errors.CatalogUnavailable:
            return True  # the call says so
        return any(map(self.state.policy.knows, found))

    async def answer(self, call: FunctionCall) -> object:
        """Return the value of a call as JSON, or raise what the program gets."""
        async with self._at_once:
            with self.take_slots(1) as free:
                # Where its caller has no further slot, calls take turns in that of the request.
                async with nullcontext() if free else self._own_slot:
                    return await self._answer(call)

    async def _answer(self, call: FunctionCall) -> object:
        match call.name:
            case "search":
                return await self._search(call)
            case "describe":
                return await self._describe(call)
            case "call":
                name, given = self._read_call(call)
            case name:
                given = await self._read_arguments(call)
        if isinstance(name, str) and find_meta_tool(self.state.engine.catalog, name):
            raise CallRaised("NameError", VERBS_OF_PROGRAMS)
        if self.allowed is not None:
            name = await self.state.run_locked(partial(self._check_allowed, name))
        started = self.state.engine.timer()
        reply = await self.verbs.call(name, given, self._thread)
        self._note(str(reply.details.get("tool") or name), reply, started)
        self._check(reply)
        return await _value_from_reply(reply)

    def _check_allowed(self, name: object) -> str:
        """Return the exposed name of a tool that a saved program may call."""
        try:
            found = find_tool(self.state, name).name
        except (errors.ModelError, errors.UpstreamError) as error:
            raise CallRaised("NameError", str(error)) from None
        if self.allowed is None or found not in self.allowed:
            raise CallRaised("PermissionError", NOT_APPROVED.format(tool=found))
        return found

    async def _search(self, call: FunctionCall) -> object:
        given = _bind(call, ("queries", "limit"), TEXT_TO_SEARCH)
        started = self.state.engine.timer()
        reply = await self.verbs.search(given.get("queries"), {"limit": given.get("limit")})
        self._note(call.name, reply, started)
        self._check(reply)
        return [_describe_hit(hit.tool) for hit in (*reply.hits, *reply.known)]

    async def _describe(self, call: FunctionCall) -> object:
        given = _bind(call, ("names",), NAME_TO_DESCRIBE)
        started = self.state.engine.timer()
        reply = await self.verbs.describe(given.get("names"))
        self._note(call.name, reply, started)
        self._check(reply)
        names = reply.details.get("described", ())
        rows = await self.state.run_locked(partial(self._define_all, names))
        is_single = isinstance(given.get("names"), str)
        return rows[0] if is_single and len(rows) == 1 else rows

    def _define_all(self, names: Iterable[str]) -> list[Json]:
        found = map(self.state.engine.catalog.get, names)
        return [self._define(tool) for tool in found if tool is not None]

    def _define(self, tool: Tool) -> Json:
        row = _describe_hit(tool) | {"input_schema": to_json_value(tool.input_schema)}
        if tool.output_schema is not None:
            row["output_schema"] = to_json_value(tool.output_schema)
        shape = self.state.engine.shapes.describe(tool)
        return row | ({"seen_results": shape} if shape else {})

    def _read_call(self, call: FunctionCall) -> tuple[object, object]:
        given = _bind(call, ("name", "arguments"), NAME_TO_CALL)
        return given.get("name"), given.get("arguments") or {}

    async def _read_arguments(self, call: FunctionCall) -> Json:
        """Return the arguments of a tool by name; those without a name follow its signature."""
        if not call.arguments:
            return call.keywords
        try:
            tool = await self.state.run_locked(partial(find_tool, self.state, call.name))
        except (errors.ModelError, errors.UpstreamError):
            return call.keywords  # the call says what is wrong
        listed = [p for p in list_parameters(tool.input_schema, max_depth=1) if not p.depth]
        names = [p.name for p in sorted(listed, key=lambda p: not p.required)]
        first = call.arguments[0]
        is_alone = len(call.arguments) == 1 and not call.keywords
        if is_alone and is_object(first) and first.keys() <= set(names):
            return first
        if len(call.arguments) > len(names):
            text = TOO_MANY_ARGUMENTS.format(tool=tool.name, most=len(names))
            raise CallRaised("TypeError", text)
        return _merge(tool.name, names, call)

    def _note(self, name: str, reply: Reply, started: float) -> None:
        milliseconds = (self.state.engine.timer() - started) * 1e3
        row = ProgramCall(
            name=to_one_line(name, 100), code=reply.code, milliseconds=round(milliseconds, 1)
        )
        self.calls.append(row)
        self.references += reply.references

    def _check(self, reply: Reply) -> None:
        """Raise the exception that a failed call is in the program."""
        if not reply.is_error:
            return
        kind = _EXCEPTIONS.get(reply.code, "RuntimeError")
        message = str(reply.details.get("message") or reply.text)
        raise CallRaised(kind, message[:MESSAGE_CHARS].encode("utf-8", "replace").decode())

    def _refuse(self, error: errors.ModelError) -> Reply:
        reply = refuse(error, code=error.code, budget=self.state.settings.describe_tokens)
        text = f"{reply.text} {self._summarize()}"
        return replace(reply, text=text, details=reply.details | self._get_details())

    async def _report(self, finished: Finished) -> Reply:
        value = finished.value
        shown = value if isinstance(value, str) else format_json(value)
        dropped = finished.dropped
        note = OUTPUT_DROPPED.format(dropped=dropped) if dropped else ""
        printed = finished.printed.rstrip("\n")
        parts = (printed, note, "" if value is None else shown)
        text = "\n".join(filter(None, parts)) or f"{NO_VALUE} {self._summarize()}"
        if len(text) * MAX_CHAR_BYTES <= self.state.settings.result_tokens:
            page = Page(text=text, end=len(text), total=len(text))
        else:
            page = await run_in_thread(partial(self.state.results.cut_page, text))
        details: Json = {
            "code": "ok",
            "handle": page.handle,
            "shown": [page.start, page.end, page.total],
            "data": value if not page.handle else None,
        }
        return Reply(
            text="\n".join(filter(None, (page.text, page.note))),
            details=details | self._get_details(),
            references=tuple(dict.fromkeys(self.references)),
            page=page,
        )

    def _summarize(self) -> str:
        made = Counter(call.name for call in self.calls)
        failed = Counter(call.name for call in self.calls if call.code != "ok")
        names = list(made)[:NAMES_SHOWN]
        return list_calls([(name, made[name], failed[name]) for name in names])

    def _get_details(self) -> Json:
        return {"calls": [call.to_json() for call in self.calls[:KEPT_CALLS]]}


def _bind(call: FunctionCall, names: Sequence[str], usual: str) -> Json:
    """Return the arguments of a verb by name, or raise what the program gets."""
    is_known = len(call.arguments) <= len(names) and call.keywords.keys() <= set(names)
    if not is_known or not (call.arguments or call.keywords):
        text = WHOLE_ARGUMENTS.format(verb=call.name, usual=usual)
        raise CallRaised("TypeError", text)
    return _merge(call.name, names, call)


def _merge(name: str, names: Sequence[str], call: FunctionCall) -> Json:
    given = dict(zip(names, call.arguments, strict=False))
    twice = next((key for key in given if key in call.keywords), None)
    if twice is not None:
        raise CallRaised("TypeError", ARGUMENT_TWICE.format(tool=name, name=twice))
    return given | call.keywords


def _describe_hit(tool: Tool) -> Json:
    return {
        "name": tool.name,
        "signature": tool.render_signature(),
        "description": tool.first_sentence,
        "effect": tool.effect.value,
    }


async def _value_from_reply(reply: Reply) -> object:
    """Return the result of a call as a program reads it: JSON if it is JSON, else text."""
    data: object = reply.details.get("data")
    text = reply.text if reply.page is None else reply.page.text
    if max(len(text), len(reply.text)) <= SMALL_TEXT:
        return _read_value(data, text)
    return await run_in_thread(partial(_read_value, data, text))


def _read_value(data: object, text: str) -> object:
    if data is None and text.lstrip()[:1] in ("{", "["):
        try:
            data = cast("object", json.loads(text))
        except (ValueError, RecursionError):
            data = None
    if data is None and text == errors.NO_CONTENT:
        return None
    return to_json_value(text if data is None else data)


# What ran is kept with the session.


def make_record(code: str, reply: Reply, seconds: float) -> ProgramRecord:
    """Return what a person may want to know of a program that has ended."""
    calls = [ProgramCall(**row) for row in reply.details.get("calls", ())]
    return ProgramRecord(
        source=code,
        code=reply.code,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        milliseconds=round(seconds * 1e3, 1),
        calls=tuple(calls),
        digest=digest_source(code),
        message=str(reply.details.get("message", "")),
    )


def digest_source(code: str) -> str:
    """Return what identifies the source of a program."""
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()


def keep_program(store: Store, session: str, record: ProgramRecord) -> None:
    """Keep a program with its session; the oldest leave. This may block."""
    # One line each, so that adding one does not need to parse the others.
    lines = [*_read_lines(store, session), json.dumps(record.to_json()).encode()]
    store.write(PROGRAM_KIND, session, b"\n".join(lines[-KEPT_PROGRAMS:]))


def list_programs(store: Store, session: str) -> list[ProgramRecord]:
    """Return the programs of a session, oldest first. This may block."""
    found: list[ProgramRecord] = []
    for line in _read_lines(store, session):
        row: Json = json.loads(line)
        calls = tuple(ProgramCall(**call) for call in row.pop("calls"))
        found.append(ProgramRecord(**row, calls=calls))
    return found


def _read_lines(store: Store, session: str) -> list[bytes]:
    return (store.read(PROGRAM_KIND, session) or b"").splitlines()
