"""Agno: a toolkit with the three meta-tools in place of tools that stay hidden.

`Agent(tools=[ToolScoutTools([…])])`. Hidden tools run as agno runs its own, with their hooks, cache
and injected arguments. The session lives in agno's `session_state`, one per agent name, so it is
saved to the database and continues in later runs of the same agno session.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, Unpack, cast

from toolscout import Reply, Session, Tool
from toolscout.adapters._toolkit import (
    NEEDS_ASYNC_RUN,
    NO_REASON,
    ApprovedCall,
    Bridge,
    Json,
    ToolkitOptions,
    add_notes,
    decode_images,
    merge_state,
    report_outcome,
    require_members,
)
from toolscout.errors import NO_CONTENT, CallFailed, MissingExtra

try:
    from agno.media import Image
    from agno.run import RunContext
    from agno.tools import Function, Toolkit
    from agno.tools.function import FunctionCall, FunctionExecutionResult, ToolResult
except ModuleNotFoundError as error:
    raise MissingExtra("agno", extra="agno") from error

STATE = "toolscout"
"""The key of the sessions in agno's session state."""
RUN_FIELDS = ("_agent", "_team", "_run_context", "_images", "_videos", "_audios", "_files")
"""The private members in which agno hands a run to its functions."""


class ToolScoutTools(Toolkit):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Takes functions, `Function`s and toolkits; connect a toolkit first if it needs that. Tools
    that wait for a person, or run elsewhere, stay visible: agno stops at their names.
    """

    def __init__(
        self,
        tools: Iterable[Toolkit | Function | Callable[..., object]],
        **options: Unpack[ToolkitOptions],
    ) -> None:
        given = list(tools)
        natives = [native for tool in given for native in _list_natives(tool)]
        self._bridge = Bridge(natives, _define, by_name=_waits, **options)
        functions = (native.both for native in natives)
        instructed = (*functions, *(tool for tool in given if isinstance(tool, Toolkit)))
        texts = [one.instructions for one in instructed if one.add_instructions]
        instructions = "\n".join(filter(None, texts)) or None
        super().__init__(
            STATE, instructions=instructions, add_instructions=True, auto_register=False
        )
        for tool, native in self._bridge.list_declared():
            if native is None:
                self.async_functions[tool.name] = _to_function(tool, self._answer_async(tool))
                self.functions[tool.name] = _to_function(tool, self._answer_sync(tool))
                continue
            self.async_functions[native.both.name] = native.both
            if native.sync is not None:
                self.functions[native.sync.name] = native.sync

    def _answer_sync(self, tool: Tool) -> Callable[..., object]:
        def answer(
            fc: FunctionCall,
            run_context: RunContext,
            images: object = None,  # agno collects the media of a run if a tool takes them
            **given: object,
        ) -> object:
            with self._open_session(fc, run_context) as session:
                verdict = self._bridge.handle_sync(session, tool.name, given)
                if not isinstance(verdict, ApprovedCall):
                    return _to_result(cast("Reply", verdict))
                native = self._bridge.get_native(verdict).sync
                with report_outcome(session, verdict):
                    return _read_result(verdict, _prepare_call(fc, native, verdict).execute())

        return answer

    def _answer_async(self, tool: Tool) -> Callable[..., object]:
        async def answer(
            fc: FunctionCall, run_context: RunContext, images: object = None, **given: object
        ) -> object:
            with self._open_session(fc, run_context) as session:
                verdict = await self._bridge.handle(session, tool.name, given)
                if not isinstance(verdict, ApprovedCall):
                    return _to_result(cast("Reply", verdict))
                native = self._bridge.get_native(verdict).both
                with report_outcome(session, verdict):
                    done = await _execute_async(_prepare_call(fc, native, verdict))
                    return _read_result(verdict, done)

        return answer

    @contextmanager
    def _open_session(self, fc: FunctionCall, context: RunContext) -> Generator[Session]:
        """Open the session of the agent or team that a call belongs to, and save it afterwards."""
        function = cast("Any", fc.function)
        require_members("agno", function, *RUN_FIELDS)
        # Members of a team get copies of its state, which agno merges afterwards.
        owner = str(getattr(function._agent or function._team, "name", None) or "")
        entry = _get_sessions(context).get(owner, {})
        before = entry.get("session")
        session = self._bridge.open_session(context.session_id, before)
        if entry and entry.get("run") != context.run_id:
            # The agent decides which messages of earlier runs the model still has.
            session.compact()
        try:
            yield session
        finally:
            sessions = _get_sessions(context)
            state = merge_state(session, before, sessions.get(owner, {}).get("session"))
            sessions[owner] = {"run": context.run_id, "session": state}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Native:
    """A tool of agno's; a toolkit may have a synchronous and an asynchronous version of it."""

    sync: Function | None
    both: Function
    """The version that agno takes in an asynchronous run."""


def _get_sessions(context: RunContext) -> dict[str, Json]:
    if context.session_state is None:
        context.session_state = {}
    return cast("dict[str, Json]", context.session_state.setdefault(STATE, {}))


def _list_natives(tool: Toolkit | Function | Callable[..., object]) -> Iterator[_Native]:
    if isinstance(tool, Toolkit):
        sync = tool.get_functions()
        for name, both in tool.get_async_functions().items():
            yield _Native(sync=sync.get(name), both=both)
        return
    function: Any = tool
    if not isinstance(tool, Function):
        function = cast("Any", Function).from_callable(tool)
        # agno does the same for a function whose only mark is `@approval`.
        function.approval_type = getattr(tool, "_agno_approval_type", None)
        function.requires_confirmation = True if function.approval_type == "required" else None
    is_sync = not iscoroutinefunction(function.entrypoint)
    yield _Native(sync=function if is_sync else None, both=function)


def _waits(native: _Native) -> bool:
    one = native.both
    return any((one.requires_confirmation, one.requires_user_input, one.external_execution))


def _define(native: _Native) -> Tool:
    return Tool.from_mcp(_process(native.both))


def _to_function(tool: Tool, answer: Callable[..., object]) -> Function:
    return Function(
        name=tool.name,
        description=tool.description,
        parameters=tool.input_schema,
        # A strict schema would leave no room for the arguments of `tool_call`.
        strict=False,
        entrypoint=answer,
        skip_entrypoint_processing=True,
    )


def _process(function: Function) -> Function:
    """Return a copy of a function that agno has read the schema of."""
    copy = function.model_copy(deep=True)
    copy.process_entrypoint(strict=bool(copy.strict))
    return copy


def _prepare_call(fc: FunctionCall, native: Function | None, call: ApprovedCall) -> FunctionCall:
    """Return the call inside a `tool_call`, prepared as agno prepares a model's own calls."""
    if native is None:
        raise CallFailed(call.tool.name, NEEDS_ASYNC_RUN)
    function = _process(native)
    outer = cast("Any", fc.function)
    # agno hands its run to a function in the same way.
    for name in RUN_FIELDS:
        setattr(function, name, getattr(outer, name))
    if outer.tool_hooks is not None:
        function.tool_hooks = outer.tool_hooks
    # agno reads what to do after a call from the function that was called.
    fc.function = outer.model_copy()
    fc.function.stop_after_tool_call = function.stop_after_tool_call
    fc.function.show_result = function.show_result
    return FunctionCall(function=function, arguments=call.arguments, call_id=fc.call_id)


async def _execute_async(call: FunctionCall) -> FunctionExecutionResult:
    """Make a call in an asynchronous run: like agno, in a thread if it cannot be awaited."""
    function = cast("Any", call.function)
    parts = (function.entrypoint, *(function.tool_hooks or ()))
    if any(iscoroutinefunction(part) or isasyncgenfunction(part) for part in parts):
        return await call.aexecute()
    return await asyncio.to_thread(call.execute)


def _read_result(call: ApprovedCall, done: FunctionExecutionResult) -> object:
    if done.status == "failure":
        raise CallFailed(call.tool.name, done.error or NO_REASON)
    return add_notes(call, NO_CONTENT if done.result in (None, "") else done.result)


def _to_result(reply: Reply) -> object:
    images = [Image(content=data, mime_type=mime) for data, mime in decode_images(reply)]
    return ToolResult(content=reply.text, images=images) if images else reply.text
