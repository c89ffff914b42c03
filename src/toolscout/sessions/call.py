"""`tool_call`: find the tool, check the call, ask the host, run it, and report the outcome.

A call that is refused at any step is not made, and the reply says so; a tool's own failure is a
result. A name means the same tool to description, gate and call (R2, R73), and one that the caller
may not see is answered like one that does not exist (R77). A host's rules for a tool also hold for
a `tool_call` of it (R81).
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar, cast

from toolscout import errors
from toolscout.calls.arguments import convert, prepare
from toolscout.calls.checks import is_quick
from toolscout.calls.outcome import Outcome, outcome_from_value
from toolscout.calls.repairs import Prepared
from toolscout.calls.results import Page, check_pick, format_json, pick_part
from toolscout.catalog import Availability, Catalog, Status
from toolscout.names import is_handle, to_error_text, to_one_line
from toolscout.policies import Decision, Permission
from toolscout.programs.saved import SavedProgram
from toolscout.schemas import Json, has_few_values
from toolscout.sessions.engine import Executor
from toolscout.sessions.metatools import (
    CALL,
    DESCRIBE,
    SEARCH,
    find_meta_tool,
    read_calls,
    to_meta_name,
    to_object,
)
from toolscout.sessions.replies import Reply, refuse
from toolscout.sessions.session_state import KeptThread, SessionState, run_in_thread
from toolscout.sessions.texts import (
    ASK_FOR_LESS,
    CALLED_AS,
    CANCELLED,
    NAME_FROM_LIST,
    NO_DESTRUCTION,
    NO_NESTED_PROGRAM,
    NOT_IN_PROGRAMS,
    NOT_PICKED,
    NOTHING_PICKED,
    PICK_NOT_APPLIED,
)
from toolscout.settings import ProgramEffects, Programs
from toolscout.tokens import count_tokens
from toolscout.tools import Effect, Tool

AMBIGUOUS_SHOWN = 8
REASON_CHARS = 200
SERVER_CHARS = 60
NAME_CHARS = 64
ERROR_CHARS = 1_200
MAX_CHAR_BYTES = 4
LONGEST_NAME = 2_000
"""Longer names are those of no tool."""
QUICK_CATALOG = 1_000
"""Tools with whose names an unknown one is compared within a few milliseconds."""
SMALL_RESULT = 2_000
"""Values of a result that is read within a few milliseconds."""
SHOWN_UNPICKED = 2_000
"""Characters of a result that is shown whole where nothing could be picked from it."""
LEAST_SHARE = 100
"""Tokens that each of several results may have, however short the reply."""
KINDS_REMEMBERED = 64
NOTE_TOKENS = 60
"""Room for how to read on."""

_SHOWING_ERRORS = (errors.InvalidArguments, errors.ToolChanged)
"""Refusals that show the definition of the tool."""
_NAMING_ERRORS = (
    errors.UnknownTool,
    errors.AmbiguousTool,
    errors.ToolHeld,
    errors.ToolDisabled,
)
"""Refusals of a name that stands for no tool which the session may call."""

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedCall:
    """A call that has passed the gate and may be made once."""

    tool: Tool
    arguments: Json
    """Checked against the tool's schema, and repaired where that was harmless."""
    repairs: tuple[str, ...] = ()
    """What was changed, one sentence each."""
    unchecked: str = ""
    """What could not be checked; empty if everything was."""
    rule: str = ""
    """The rule of the host that allowed it, if one did."""
    picked: str = ""
    """The path of the part of the result that is returned; empty if all of it is."""
    started: float = 0.0
    """When the model asked for it, by the engine's timer."""

    @property
    def notes(self) -> list[str]:
        """What a host says about the repairs before the result, one line each."""
        return [f"({repair})" for repair in self.repairs]


Confirm = Callable[[Tool, Json, Decision], Awaitable[bool]]
"""Asks a person whether a call may be made; False if nobody could be asked yet."""


async def call_tool(
    state: SessionState,
    name: object,
    arguments: object,
    *,
    approved: bool,
    executor: Executor | None = None,
    confirm: Confirm | None = None,
    pick: object = None,
    sharing: int = 1,
    for_apps: bool = False,
    programs: Programs | None = None,
    thread: KeptThread | None = None,
    run_saved: Executor | None = None,
) -> Reply:
    """Return what the tool gave, or the part of it at the path `pick`, or why it was not called.

    `sharing` is how many calls are answered by one reply. With `for_apps`, the tool may be one that
    only apps may call. With `programs`, a program makes the call: the tool has to be one that these
    options let a program call, and the result is not cut. `thread` is for functions that would
    hold up the event loop; without it, each gets a new one. `run_saved` runs saved programs.
    """
    if is_handle(name):
        wanted = arguments if pick is None else {**to_object(arguments), "path": pick}
        share = state.settings.result_tokens // sharing
        return await run_in_thread(partial(_read_result, state, name, wanted, share))
    refuse_ = partial(_refuse, state, sharing=sharing)
    if pick is not None:
        try:
            check_pick(pick)
        except errors.ModelError as error:
            return refuse_(error, None)
    call = await approve_call(
        state,
        name,
        arguments,
        approved=approved,
        confirm=confirm,
        sharing=sharing,
        for_apps=for_apps,
        programs=programs,
    )
    if isinstance(call, Reply):
        return call
    try:
        is_saved = isinstance(call.tool.function, SavedProgram)
        outcome = await _run(state, call, run_saved if is_saved else executor, thread)
    except (errors.ModelError, errors.UpstreamError) as error:
        return refuse_(error, call.tool)
    if not outcome.is_error and state.should_learn(call.tool):
        state.engine.shapes.learn(call.tool, outcome.text, outcome.data)
    if pick is not None and not outcome.is_error:
        picked = await run_in_thread(partial(_pick, state, call, outcome, str(pick)))
        if isinstance(picked, Reply):
            return picked
        call, outcome = picked
    is_whole = programs is not None
    if is_whole or len(outcome.text) * MAX_CHAR_BYTES <= state.settings.result_tokens:
        # It fits, because a token has at least one byte.
        page = Page(text=outcome.text, end=len(outcome.text), total=len(outcome.text))
    else:
        page = await run_in_thread(partial(state.results.cut_page, outcome.text))
    return await state.run_locked(partial(_report_outcome, state, call, outcome, page))


async def approve_call(
    state: SessionState,
    name: object,
    arguments: object,
    *,
    approved: bool,
    confirm: Confirm | None = None,
    pick: object = None,
    sharing: int = 1,
    for_apps: bool = False,
    programs: Programs | None = None,
) -> ApprovedCall | Reply:
    """Return a call that may be made, or why it may not.

    `programs` are the options of the program that makes it, if one does. `pick` is for a host that
    makes the call itself and cannot pick: the call says so in a note.
    """
    tool: Tool | None = None
    try:
        catalog = state.engine.catalog
        is_short = len(catalog) <= QUICK_CATALOG
        if catalog.is_local and not is_short:
            is_short = isinstance(name, str) and catalog.get(name) is not None
        find = partial(_find_callable, state, name, for_apps=for_apps)
        tool, refusal = await state.run_locked(find, is_short=is_short)
        if refusal is not None:
            raise refusal
        # To leave arguments out is no slip: `tool_call` does not require them.
        prepared = await prepare_later(tool, {} if arguments is None else arguments)
        decision = await _decide(state, tool, prepared.arguments, programs)
        if decision.permission is Permission.DENY:
            raise errors.NotAllowed(tool.name, rule=decision.rule, reason=decision.reason)
        if decision.permission is Permission.ASK and not approved:
            is_confirmed = confirm and await confirm(tool, prepared.arguments, decision)
            if not is_confirmed:
                raise errors.ApprovalNeeded(tool.name, rule=decision.rule)
            # While a person is asked, rules and definitions may change.
            before = tool
            tool, refusal = await state.run_locked(find, is_short=is_short)
            if refusal is None and tool.fingerprint != before.fingerprint:
                refusal = errors.ToolChanged(tool.name)
            if refusal is not None:
                raise refusal
            decision = await _decide(state, tool, prepared.arguments, programs)
            if decision.permission is Permission.DENY:
                raise errors.NotAllowed(tool.name, rule=decision.rule, reason=decision.reason)
    except (errors.ModelError, errors.UpstreamError) as error:
        is_short = not isinstance(error, _SHOWING_ERRORS)
        refuse_ = partial(_refuse, state, error, tool, sharing=sharing)
        return await state.run_locked(refuse_, is_short=is_short)
    repairs = prepared.repairs if pick is None else (*prepared.repairs, PICK_NOT_APPLIED)
    if name != tool.name:
        asked = to_one_line(str(name), NAME_CHARS)
        repairs = (CALLED_AS.format(tool=tool.name, name=asked), *repairs)
    return ApprovedCall(
        tool=tool,
        arguments=prepared.arguments,
        repairs=repairs,
        unchecked=prepared.unchecked,
        rule=decision.rule,
    )


async def _decide(
    state: SessionState, tool: Tool, arguments: Json, programs: Programs | None
) -> Decision:
    """Return whether the policy lets a call through, and the program's options if there is one.

    A program never gets more than the policy permits.
    """
    decision = await state.policy.decide(tool, arguments)
    if programs is None or decision.permission is Permission.DENY:
        return decision
    if isinstance(tool.function, SavedProgram):
        return replace(decision, permission=Permission.DENY, reason=NO_NESTED_PROGRAM)
    effects = programs.effects
    if tool.effect is Effect.READ:
        return decision
    if effects is ProgramEffects.READ:
        return replace(decision, permission=Permission.DENY, reason=NOT_IN_PROGRAMS)
    if tool.effect is Effect.WRITE:
        return decision
    if effects is ProgramEffects.WRITE:
        return replace(decision, permission=Permission.DENY, reason=NO_DESTRUCTION)
    return replace(decision, permission=Permission.ASK, each=True)


async def prepare_later(tool: Tool, arguments: object) -> Prepared:
    """Return checked arguments; what may take long is checked in a thread."""
    if is_quick(tool, arguments):
        return prepare(tool, arguments)
    return await run_in_thread(partial(prepare, tool, arguments))


def _find_callable(
    state: SessionState, name: object, *, for_apps: bool
) -> tuple[Tool, errors.ModelError | errors.UpstreamError | None]:
    """Return the tool that a name means, and why it may not be called."""
    state.prepare()
    tool = find_tool(state, name, for_apps=for_apps)
    try:
        _check_gate(state, tool)
    except (errors.ModelError, errors.UpstreamError) as error:
        return tool, error
    return tool, None


def note_called(state: SessionState, tool: Tool) -> list[str]:
    """Note that a tool was run; return its name if that loaded it."""
    if tool.is_for_apps:
        return []
    with state.lock:
        added = state.load([tool], state.record.find_query(tool.name))
        state.record.touch(tool.name)
    return added


# Which tool a name means.


def find_tool(state: SessionState, name: object, *, for_apps: bool = False) -> Tool:
    """Return the tool that a name means, or raise the error that the model should read.

    Tools that only apps may call exist only `for_apps`. Of several tools with the same short name,
    those that are not switched off count, and of these the one that is loaded.
    """
    if name is None:
        raise errors.InvalidRequest.from_call()
    text = name.strip() if isinstance(name, str) else ""
    policy = state.policy
    named = state.engine.catalog.resolve(text) if len(text) <= LONGEST_NAME else []
    tools = [t for t in named if policy.knows(t) and (for_apps or not t.is_for_apps)]
    tools = [tool for tool in tools if state.may_use(tool)]
    tools = [tool for tool in tools if not policy.explain_disabled(tool)] or tools
    if len(tools) > 1:
        loaded = [tool for tool in tools if state.is_callable(tool)]
        tools = loaded if len(loaded) == 1 else tools
    if not tools:
        held = state.engine.catalog.get_held(text)
        if held is not None and policy.knows(held):
            raise errors.ToolHeld(held.name)
        entry = state.record.entries.get(text)
        if entry is not None and not named:
            raise explain_unavailable(entry.server, state.engine.catalog.state(entry.server))
        if to_meta_name(text) and state.hides_tools:
            raise errors.InvalidRequest.from_meta_tool(to_meta_name(text))
        near = state.find_near(text[:200])
        if state.hides_tools:
            raise errors.UnknownTool(to_one_line(text, NAME_CHARS), near)
        raise errors.UnknownTool(to_one_line(text, NAME_CHARS), near, otherwise=NAME_FROM_LIST)
    if len(tools) > 1:
        names = [tool.name for tool in tools]
        raise errors.AmbiguousTool(to_one_line(text, NAME_CHARS), names[:AMBIGUOUS_SHOWN])
    reason = policy.explain_disabled(tools[0])
    if reason:
        raise errors.ToolDisabled(tools[0].name, reason)
    return tools[0]


def find_target(state: SessionState, name: str, arguments: object) -> tuple[Tool | None, object]:
    """Return the tool that a call would reach, if it is a single one, and its arguments."""
    target, given = _read_target(state.engine.catalog, name, arguments)
    try:
        return find_tool(state, target, for_apps=target == name), given
    except (errors.ModelError, errors.UpstreamError):
        return None, None


def is_read_only(catalog: Catalog, name: str, arguments: object) -> bool:
    """Tell whether a call only searches, describes or reads a stored result."""
    target, _ = _read_target(catalog, name, arguments)
    return find_meta_tool(catalog, name) in (SEARCH, DESCRIBE) or is_handle(target)


def _read_target(catalog: Catalog, name: str, arguments: object) -> tuple[object, object]:
    if find_meta_tool(catalog, name) != CALL:
        return name, arguments
    try:
        calls, _ = read_calls(arguments)
    except errors.ModelError:
        return None, None
    return calls[0][:2] if len(calls) == 1 else (None, None)


def explain_unavailable(
    server: str, availability: Availability | None = None
) -> errors.ServerUnavailable:
    """Return the error of a server that is not there, in words that are safe to read."""
    name = to_one_line(server, SERVER_CHARS)
    if availability is None:
        return errors.ServerUnavailable(name, "not connected")
    return errors.ServerUnavailable(
        name, availability.status, to_error_text(availability.reason, REASON_CHARS)
    )


# The gate.


def _check_gate(state: SessionState, tool: Tool) -> None:
    """Let through what this session has found, in the definition that it was shown (R72)."""
    if not state.may_call(tool):
        if tool.name in state.record.entries:  # with another definition
            raise errors.ToolChanged(tool.name)
        if not state.settings.calls_by_name:
            raise errors.NotLoaded(tool.name)
    availability = state.engine.catalog.state(tool.server)
    # A pending server may be started by the call.
    if availability is not None and availability.status is Status.FAILED:
        raise explain_unavailable(tool.server, availability)


# Running.


async def _run(
    state: SessionState, call: ApprovedCall, executor: Executor | None, thread: KeptThread | None
) -> Outcome:
    tool = call.tool
    seconds = state.settings.call_seconds
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            function = tool.function
            if executor is None and function is not None:

                def call_function() -> object:
                    return function(**convert(tool, call.arguments))

                return await _read_outcome(await _invoke(call_function, function, thread))
            engine = state.engine
            executor = executor or engine.executors.get(tool.server, engine.default_executor)
            if executor is None:
                raise explain_unavailable(tool.server)
            work = partial(executor, tool, call.arguments)
            return await _read_outcome(await _invoke(work, executor, thread))
    except (errors.ModelError, errors.UpstreamError):
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling() > 0:
            raise  # the caller cancelled this call, rather than the tool itself
        raise errors.CallFailed(tool.name, CANCELLED) from None
    except Exception as error:
        if limit.expired():
            raise errors.CallTimedOut(tool.name, seconds) from None
        # R108: what the tool was given or said is for the model, not for the log.
        _log.warning("A call of %s failed with %s.", tool.name, type(error).__name__)
        _log.debug("The failed call:", exc_info=True)
        message = to_error_text(f"{type(error).__name__}: {error}", ERROR_CHARS, keep_lines=True)
        raise errors.CallFailed(tool.name, message) from error


async def _invoke(
    work: Callable[[], object], function: Callable[..., object], thread: KeptThread | None
) -> object:
    """Run a function; one that is not asynchronous gets a thread, so that nothing waits."""
    # An object that is called like a function has a method that tells.
    if _has_async_call(type(function)) or inspect.iscoroutinefunction(function):
        return await cast("Awaitable[object]", work())
    value = await run_in_thread(work, thread)
    return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value


@lru_cache(maxsize=KINDS_REMEMBERED)
def _has_async_call(kind: type) -> bool:
    """Tell whether calling an object of a class runs an asynchronous method."""
    return inspect.iscoroutinefunction(getattr(kind, "__call__", None))  # noqa: B004


def _pick(
    state: SessionState, call: ApprovedCall, outcome: Outcome, path: str
) -> tuple[ApprovedCall, Outcome] | Reply:
    """Return the part of a result at a path; if there is none, all of it, and why.

    A long result is kept under a handle instead.
    """
    try:
        part = pick_part(outcome.text, outcome.data, path)
    except errors.InvalidRequest as error:
        # The call was made, so nothing of its result may be lost.
        is_json = not isinstance(error, errors.NotJson)
        whole = outcome.text if outcome.data is None else format_json(outcome.data)
        if is_json and state.hides_tools and len(whole) > SHOWN_UNPICKED:
            kept = state.results.keep(whole)
            reading = errors.suggest_reading(kept.handle, {"path": "$.KEY"}, "Pick from it")
            text = f"{NOTHING_PICKED.format(reason=error)} {reading}"
            with state.lock:
                reply = _report_outcome(state, call, outcome, replace(kept, text=text))
            return replace(reply, page=None)  # there is nothing in it to cut
        note = NOT_PICKED.format(reason=error)
        return replace(call, repairs=(*call.repairs, note)), outcome
    return replace(call, picked=path), Outcome(text=part)


async def _read_outcome(value: object) -> Outcome:
    if has_few_values(value, SMALL_RESULT):
        return outcome_from_value(value)
    return await run_in_thread(partial(outcome_from_value, value))


# Replies.


def _refuse(
    state: SessionState,
    error: errors.ModelError | errors.UpstreamError,
    tool: Tool | None,
    *,
    sharing: int = 1,
) -> Reply:
    shows = isinstance(error, _SHOWING_ERRORS)
    rule = error.rule if isinstance(error, errors.NotAllowed | errors.ApprovalNeeded) else ""
    budget = state.settings.describe_tokens
    if sharing > 1:
        budget = min(budget, max(LEAST_SHARE, state.settings.result_tokens // sharing))
    details = {"tool": tool.name if tool is not None else ""} | ({"rule": rule} if rule else {})
    if tool is None and isinstance(error, _NAMING_ERRORS):
        details["asked"] = error.name
    reply = refuse(
        error,
        code=error.code,
        budget=budget,
        definition=tool if shows else None,
        can_describe=state.hides_tools,
        details=details,
    )
    if not reply.described or tool is None:
        return reply
    with state.lock:
        # R64: what was shown again is loaded again.
        added = state.load([tool])
        state.record.show(tool)
    return replace(reply, references=tuple(added))


def _report_outcome(state: SessionState, call: ApprovedCall, outcome: Outcome, page: Page) -> Reply:
    added = note_called(state, call.tool)
    code = "tool_error" if outcome.is_error else "ok"
    details: Json = {
        "tool": call.tool.name,
        "code": code,
        "repairs": list(call.repairs),
        "unchecked": call.unchecked,
        "handle": page.handle,
        "shown": [page.start, page.end, page.total],
        "data": outcome.data if not page.handle else None,
    }
    if call.rule:
        details["rule"] = call.rule
    if call.picked:
        details["picked"] = call.picked
    return Reply(
        text=_render_page(state, call.notes, page),
        code=code,
        is_error=outcome.is_error,
        details=details,
        references=tuple(added),
        blocks=outcome.blocks,
        page=page,
    )


def _render_page(state: SessionState, notes: Iterable[str], page: Page) -> str:
    note = page.note
    if note and not state.hides_tools:  # nothing to read on with
        part = errors.PART_SHOWN.format(start=page.start, end=page.end, total=page.total)
        note = f"{part} {ASK_FOR_LESS}"
    return "\n".join(filter(None, (*notes, page.text or errors.NO_CONTENT, note)))


def share_room(state: SessionState, replies: Sequence[Reply]) -> list[Reply]:
    """Return the replies to calls, together no longer than one result may be.

    The longest are cut, all to the same length, so that short ones stay whole.
    """
    sizes = [count_tokens(reply.text) for reply in replies]
    left = state.settings.result_tokens
    share = left
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            break
        left -= size
    limit = max(LEAST_SHARE, share)
    return [
        _shorten(state, reply, limit - NOTE_TOKENS) if size > limit else reply
        for reply, size in zip(replies, sizes, strict=True)
    ]


def _shorten(state: SessionState, reply: Reply, limit: int) -> Reply:
    if reply.page is None:
        return reply  # a refusal, which was given its share
    page = state.results.shorten(reply.page, limit)
    shown = {"handle": page.handle, "shown": [page.start, page.end, page.total], "data": None}
    notes = [f"({repair})" for repair in reply.details["repairs"]]
    text = _render_page(state, notes, page)
    return replace(reply, text=text, page=page, details=reply.details | shown)


def _read_result(state: SessionState, handle: str, arguments: object, limit: int) -> Reply:
    try:
        page = state.results.read(handle, to_object(arguments), limit=max(LEAST_SHARE, limit))
    except errors.ModelError as error:
        return refuse(error, code=error.code, budget=state.settings.reply_tokens)
    details: Json = {
        "code": "ok",
        "handle": page.handle or handle,
        "shown": [page.start, page.end, page.total],
    }
    text = "\n".join(filter(None, (page.text, page.note)))
    return Reply(text=text or errors.NO_CONTENT, details=details)
