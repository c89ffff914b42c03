"""`tool_call`: gate, repair, validate, ask the host, run, and tell the outcome.

A call that is refused at any step is not made, and the reply says so. A tool's own failure is a
result, not an exception. What runs a tool is its function, or the executor of its server.

Which tool a model means by a name; one answer for description, gate and call (R2, R73).

A name that the caller may not see is answered like one that does not exist (R77).

Whom a call of the model is for, and what it may do, before it is made.

`tool_call` is for the tool that its arguments name: a host's rules for that tool hold for it (R81).

What a model is told when a verb fails: its own mistake in full, ours without any detail.
"""

import asyncio
import concurrent.futures
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from toolscout.calls.arguments import prepare
from toolscout.calls.outcome import Outcome, outcome_of
from toolscout.calls.results import Results, is_handle
from toolscout.catalog import Availability, Catalog, Status
from toolscout.errors import (
    AmbiguousTool,
    ApprovalNeeded,
    BrokenPolicy,
    CallFailed,
    CallTimedOut,
    InvalidArguments,
    ModelError,
    NotAllowed,
    NotLoaded,
    ServerUnavailable,
    ToolChanged,
    ToolDisabled,
    UnknownTool,
    UpstreamError,
)
from toolscout.names import find_near_names, to_one_line
from toolscout.policies import Permission
from toolscout.schemas import Json
from toolscout.sessions.metatools import CALL, DESCRIBE, SEARCH, call_request, meta_name, to_object
from toolscout.sessions.replies import Reply, refused
from toolscout.sessions.session import Admission, Session
from toolscout.tools import Effect, Tool

AMBIGUOUS_SHOWN = 8
REASON_CHARS = 200
SERVER_CHARS = 60


def tool_named(session: Session, catalog: Catalog, name: object) -> Tool:
    """Return the tool that a name means, or raise the error that the model should read.

    Of several tools with the same short name, those that are not switched off count, and of
    these the one that is loaded.
    """
    text = name.strip() if isinstance(name, str) else ""
    meant = [tool for tool in catalog.resolve(text) if session.policy.knows(tool)]
    meant = [tool for tool in meant if not session.policy.why_disabled(tool)] or meant
    if len(meant) > 1:
        loaded = [tool for tool in meant if session.is_callable(tool)]
        meant = loaded if len(loaded) == 1 else meant
    if not meant:
        raise _absent(session, catalog, text)
    if len(meant) > 1:
        names = [tool.name for tool in meant]
        raise AmbiguousTool(to_one_line(text, 64), names[:AMBIGUOUS_SHOWN])
    reason = session.policy.why_disabled(meant[0])
    if reason:
        raise ToolDisabled(meant[0].name, reason)
    return meant[0]


def _absent(session: Session, catalog: Catalog, text: str) -> Exception:
    entry = session.record.entries.get(text)
    if entry is not None:
        return absent_server(entry.server, catalog.state(entry.server))
    return UnknownTool(
        to_one_line(text, 64),
        find_near_names(text[:200], (tool.name for tool in session.visible())),
    )


def unavailable(catalog: Catalog, tool: Tool) -> ServerUnavailable | None:
    """Return why a tool's server cannot take a call, or nothing; pending ones may be started."""
    state = catalog.state(tool.server)
    if state is None or state.status is not Status.FAILED:
        return None
    return absent_server(tool.server, state)


def absent_server(server: str, state: Availability | None = None) -> ServerUnavailable:
    """Return the error of a server that is not there, in words that are safe to read."""
    name = to_one_line(server, SERVER_CHARS)
    if state is None:
        return ServerUnavailable(name, "not connected")
    return ServerUnavailable(name, state.status, to_one_line(state.reason, REASON_CHARS))


Executor = Callable[[Tool, Json], object | Awaitable[object]]
"""Runs a tool with checked arguments; may be asynchronous."""

SAID_CHARS = 500

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """Calls tools for sessions of one scout."""

    catalog: Catalog
    executors: Mapping[str, Executor]
    default: Executor | None
    results: Callable[[Session], Results]

    async def __call__(
        self,
        session: Session,
        name: object,
        arguments: object,
        *,
        approved: bool,
        executor: Executor | None = None,
    ) -> Reply:
        """Return what the tool gave, or why it was not called."""
        if is_handle(name):
            return self._read_on(session, str(name), arguments)
        admitted = await self.admit(session, name, arguments, approved=approved)
        if isinstance(admitted, Reply):
            return admitted
        try:
            outcome = await self._run(session, admitted, executor)
        except (ModelError, UpstreamError) as error:
            return self._refused(session, error, admitted.tool)
        return self._told(session, admitted, outcome)

    async def admit(
        self, session: Session, name: object, arguments: object, *, approved: bool
    ) -> Admission | Reply:
        """Return a call that may be made, or why it may not."""
        tool: Tool | None = None
        try:
            with session.lock:
                session.refresh()
                session.prompt.decide()
                tool = tool_named(session, self.catalog, name)
                self._gate(session, tool)
            # To leave arguments out is no slip: `tool_call` does not require them.
            prepared = prepare(tool, {} if arguments is None else arguments)
            await self._permit(session, tool, prepared.arguments, approved=approved)
        except (ModelError, UpstreamError) as error:
            return self._refused(session, error, tool)
        repairs = prepared.repairs
        if name != tool.name:
            repairs = (f"Called {tool.name} for {to_one_line(str(name), 64)!r}.", *repairs)
        return Admission(
            tool=tool,
            arguments=prepared.arguments,
            repairs=repairs,
            unchecked=prepared.unchecked,
        )

    def settle(self, session: Session, tool: Tool) -> list[str]:
        """Note that a tool was run; return it if that loaded it."""
        with session.lock:
            added = session.load([tool], session.record.query_of(tool.name))
            session.record.touch(tool.name)
        return added

    def _gate(self, session: Session, tool: Tool) -> None:
        """Let through what this session has found, in the definition that it was told (R72)."""
        if not session.may_call(tool):
            if session.is_stale(tool):
                raise ToolChanged(tool.name)
            if not session.settings.calls_by_name:
                raise NotLoaded(tool.name)
        reason = unavailable(self.catalog, tool)
        if reason is not None:
            raise reason

    async def _permit(
        self, session: Session, tool: Tool, arguments: Json, *, approved: bool
    ) -> None:
        permission = await session.policy.permission(tool, arguments)
        if permission is Permission.DENY:
            raise NotAllowed(tool.name)
        if permission is Permission.ASK and not approved:
            raise ApprovalNeeded(tool.name)

    async def _run(
        self, session: Session, admitted: Admission, executor: Executor | None
    ) -> Outcome:
        tool = admitted.tool
        seconds = session.settings.call_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return outcome_of(await self._started(tool, admitted.arguments, executor))
        except (ModelError, UpstreamError):
            raise
        except asyncio.CancelledError:
            if _is_given_up():
                raise
            raise CallFailed(tool.name, "it was cancelled") from None
        except Exception as error:
            if limit.expired():
                raise CallTimedOut(tool.name, seconds) from None
            # R108: what the tool was given or said is for the model, not for the log.
            _log.warning("A call of %s failed with %s.", tool.name, type(error).__name__)
            _log.debug("The failed call:", exc_info=True)
            said = to_one_line(f"{type(error).__name__}: {error}", SAID_CHARS)
            raise CallFailed(tool.name, said) from error

    async def _started(self, tool: Tool, arguments: Json, executor: Executor | None) -> object:
        if executor is None and tool.function is not None:
            return await _called(tool.function, arguments)
        executor = executor or self.executors.get(tool.server, self.default)
        if executor is None:
            raise absent_server(tool.server)
        return await _awaited(executor, tool, arguments)

    def _refused(
        self, session: Session, error: ModelError | UpstreamError, tool: Tool | None
    ) -> Reply:
        shows = isinstance(error, InvalidArguments | ToolChanged)
        reply = refused(
            error,
            code=error.code,
            budget=session.settings.describe_tokens,
            definition=tool if shows else None,
            details={"tool": tool.name if tool is not None else ""},
        )
        if not reply.described or tool is None:
            return reply
        with session.lock:
            # R64: what was told again is loaded again.
            added = session.load([tool])
            session.record.show(tool)
        return replace(reply, references=tuple(added))

    def _told(self, session: Session, admitted: Admission, outcome: Outcome) -> Reply:
        page = self.results(session).page(outcome.text)
        lines = [f"({repair})" for repair in admitted.repairs]
        lines += [page.text or "(no content)", page.note]
        added = self.settle(session, admitted.tool)
        code = "tool_error" if outcome.is_error else "ok"
        details: Json = {
            "tool": admitted.tool.name,
            "code": code,
            "repairs": list(admitted.repairs),
            "unchecked": admitted.unchecked,
            "handle": page.handle,
            "shown": [page.start, page.end, page.total],
            "data": outcome.data if not page.handle else None,
        }
        return Reply(
            text="\n".join(filter(None, lines)),
            code=code,
            is_error=outcome.is_error,
            details=details,
            references=tuple(added),
            blocks=outcome.blocks,
        )

    def _read_on(self, session: Session, handle: str, arguments: object) -> Reply:
        try:
            page = self.results(session).read(handle, to_object(arguments))
        except ModelError as error:
            return refused(error, code=error.code, budget=session.settings.reply_tokens)
        details: Json = {
            "code": "ok",
            "handle": page.handle or handle,
            "shown": [page.start, page.end, page.total],
        }
        text = "\n".join(filter(None, (page.text, page.note)))
        return Reply(text=text or "(no content)", details=details)


def _is_given_up() -> bool:
    """Tell whether the caller cancelled this call, rather than the tool itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _called(function: Callable[..., object], arguments: Json) -> object:
    """Run a Python function; one that is not asynchronous gets a thread, so nothing waits."""
    if _is_asynchronous(function):
        return await cast("Awaitable[object]", function(**arguments))
    return await _result(await _in_thread(partial(function, **arguments)))


async def _awaited(executor: Executor, tool: Tool, arguments: Json) -> object:
    if _is_asynchronous(executor):
        return await cast("Awaitable[object]", executor(tool, arguments))
    return await _result(await _in_thread(partial(executor, tool, arguments)))


def _is_asynchronous(function: Callable[..., object]) -> bool:
    """Tell it of functions, and of objects that are called like one."""
    call = getattr(function, "__call__", None)  # noqa: B004 - whether there is one is not asked
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def _result(value: object) -> object:
    return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value


async def _in_thread(work: Callable[[], object]) -> object:
    """Run a function in a thread of its own.

    Not in the event loop's pool: a function that never returns would take a place there for
    good, and would keep the loop from closing, whatever the time-out says.
    """
    done: concurrent.futures.Future[object] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            done.set_result(context.run(work))
        except BaseException as error:
            # A future passes on neither StopIteration nor SystemExit; here both are failures.
            passes = isinstance(error, Exception) and not isinstance(error, StopIteration)
            done.set_exception(error if passes else RuntimeError(repr(error)))

    threading.Thread(target=run, name="toolscout-call", daemon=True).start()
    return await asyncio.wrap_future(done)


@dataclass(frozen=True, slots=True)
class Aims:
    """Reads calls against one catalogue."""

    catalog: Catalog

    def meta(self, name: str) -> str:
        """Return which meta-tool a name means; a server's tool of such a name is none."""
        meta = meta_name(name)
        return meta if meta == name or not self.catalog.resolve(name) else ""

    def tool(self, session: Session, name: str, arguments: object) -> tuple[Tool | None, object]:
        """Return the tool that a call would reach, if there is one, and what it is given."""
        wanted, given = self._wanted(name, arguments)
        try:
            return tool_named(session, self.catalog, wanted), given
        except (ModelError, UpstreamError):
            return None, None

    def effect(self, session: Session, name: str, arguments: object) -> Effect:
        """Return what a call may do."""
        if self._only_reads(name, arguments):
            return Effect.READ
        tool, _ = self.tool(session, name, arguments)
        return tool.effect if tool is not None else Effect.UNKNOWN

    async def permission(self, session: Session, name: str, arguments: object) -> Permission:
        """Return what the host says to a call; what would not be sent is to be asked about."""
        if self._only_reads(name, arguments):
            return Permission.ALLOW
        tool, given = self.tool(session, name, arguments)
        if tool is None:
            return Permission.ASK
        try:
            prepared = prepare(tool, {} if given is None else given)
        except ModelError:
            return Permission.ASK
        return await session.policy.permission(tool, prepared.arguments)

    def _only_reads(self, name: str, arguments: object) -> bool:
        wanted, _ = self._wanted(name, arguments)
        return self.meta(name) in (SEARCH, DESCRIBE) or is_handle(wanted)

    def _wanted(self, name: str, arguments: object) -> tuple[object, object]:
        if self.meta(name) != CALL:
            return name, arguments
        try:
            return call_request(arguments)
        except ModelError:
            return None, None


_NOTHING_DONE = (
    "Something broke inside the tool search; nothing was called or loaded. Tell the user."
)
_UNSURE = (
    "Something broke inside the tool search; the tool may have been called. "
    "Check before you call it again, or tell the user."
)


def guarded(session: Session, work: Callable[[], Reply]) -> Reply:
    """Return what the work gives, or a reply that says why it gave nothing."""
    try:
        return work()
    except ModelError as error:
        return mistaken(session, error)
    except Exception as error:
        return broken(session, error)


def mistaken(session: Session, error: ModelError) -> Reply:
    """Return the reply to a mistake that the model can put right."""
    return refused(error, code=error.code, budget=session.settings.reply_tokens)


def broken(session: Session, error: Exception, *, unsure: bool = False) -> Reply:
    """Return a reply that exposes nothing, and log what went wrong (R47).

    `unsure` says that a tool may have run meanwhile.
    """
    _log.error("A request of a session failed with %s.", type(error).__name__)
    _log.debug("The failed request:", exc_info=error)
    policy = isinstance(error, BrokenPolicy)  # always asked before anything is done
    said = _UNSURE if unsure and not policy else _NOTHING_DONE
    code = "broken_policy" if policy else "broken_index"
    return refused(ModelError(said), code=code, budget=session.settings.reply_tokens)
