"""Agno: a toolkit with the three meta-tools in place of tools that stay hidden.

`Agent(tools=[ToolScoutTools([…])])`. Hidden tools run as agno runs its own, with their hooks, cache
and injected arguments. The session lives in agno's `session_state`, one per agent name, so it is
saved to the database and continues in later runs of the same agno session.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, cast

from toolscout import Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    NO_CONTENT,
    ApprovedCall,
    Bridge,
    Json,
    add_notes,
    decode_images,
    merge_state,
    report_outcome,
    require_members,
)
from toolscout.errors import CallFailed, MissingExtra

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
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        given = list(tools)
        natives = [native for tool in given for native in _list_natives(tool)]
        self._bridge = Bridge(natives, _define, by_name=_waits, scout=scout, settings=settings)
        instructions = "\n".join(_list_instructions(given, natives)) or None
        super().__init__(
            STATE, instructions=instructions, add_instructions=True, auto_register=False
        )
        for tool, native in self._bridge.list_tools():
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
            turn = _Turn.begin(self._bridge, fc, run_context)
            try:
                verdict = self._bridge.toolkit.handle_sync(turn.session, tool.name, given)
                if not isinstance(verdict, ApprovedCall):
                    return _to_result(cast("Reply", verdict))
                native = self._bridge.toolkit.get_native(verdict)
                with report_outcome(turn.session, verdict):
                    return _read_result(verdict, _prepare_call(fc, native.sync, verdict).execute())
            finally:
                turn.save()

        return answer

    def _answer_async(self, tool: Tool) -> Callable[..., object]:
        async def answer(
            fc: FunctionCall, run_context: RunContext, images: object = None, **given: object
        ) -> object:
            turn = _Turn.begin(self._bridge, fc, run_context)
            try:
                verdict = await self._bridge.toolkit.handle(turn.session, tool.name, given)
                if not isinstance(verdict, ApprovedCall):
                    return _to_result(cast("Reply", verdict))
                native = self._bridge.toolkit.get_native(verdict)
                with report_outcome(turn.session, verdict):
                    done = await _execute_async(_prepare_call(fc, native.both, verdict))
                    return _read_result(verdict, done)
            finally:
                turn.save()

        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Native:
    """A tool of agno's; a toolkit may have a synchronous and an asynchronous version of it."""

    sync: Function | None
    both: Function
    """The version that agno takes in an asynchronous run."""


@dataclass(slots=True, kw_only=True)
class _Turn:
    """One call of a meta-tool, and the session that it belongs to."""

    context: RunContext
    owner: str
    before: object
    session: Session

    @classmethod
    def begin(cls, bridge: Bridge[_Native], fc: FunctionCall, context: RunContext) -> "_Turn":
        # Members of a team get copies of its state, which agno merges afterwards.
        owner = _find_owner(fc)
        entry = _get_sessions(context).get(owner, {})
        before = entry.get("session")
        session = bridge.open_session(context.session_id, before)
        if entry and entry.get("run") != context.run_id:
            # The agent decides which messages of earlier runs the model still has.
            session.compact()
        return cls(context=context, owner=owner, before=before, session=session)

    def save(self) -> None:
        sessions = _get_sessions(self.context)
        current = sessions.get(self.owner, {}).get("session")
        state = merge_state(self.session, self.before, current)
        sessions[self.owner] = {"run": self.context.run_id, "session": state}


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
    function = tool if isinstance(tool, Function) else _function_from_callable(tool)
    is_sync = not iscoroutinefunction(cast("Any", function).entrypoint)
    yield _Native(sync=function if is_sync else None, both=function)


def _function_from_callable(tool: Callable[..., object]) -> Function:
    function: Function = cast("Any", Function).from_callable(tool)
    # agno does the same for a function whose only mark is `@approval`.
    function.approval_type = getattr(tool, "_agno_approval_type", None)
    function.requires_confirmation = True if function.approval_type == "required" else None
    return function


def _waits(native: _Native) -> bool:
    one = native.both
    return any((one.requires_confirmation, one.requires_user_input, one.external_execution))


def _define(native: _Native) -> Tool:
    function = _process(native.both)
    row = {
        "name": function.name,
        "title": function.title,
        "description": function.description,
        "inputSchema": function.parameters,
        "annotations": function.annotations,
    }
    return Tool.from_mcp({key: value for key, value in row.items() if value is not None})


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


def _list_instructions(tools: Iterable[object], natives: Iterable[_Native]) -> Iterator[str]:
    functions = (native.both for native in natives)
    for one in (*functions, *(tool for tool in tools if isinstance(tool, Toolkit))):
        if one.add_instructions and one.instructions:
            yield one.instructions


def _process(function: Function) -> Function:
    """Return a copy of a function that agno has read the schema of."""
    copy = function.model_copy(deep=True)
    copy.process_entrypoint(strict=bool(copy.strict))
    return copy


def _find_owner(fc: FunctionCall) -> str:
    """Return the name of the agent or team that a call belongs to."""
    function = cast("Any", fc.function)
    require_members("agno", function, *RUN_FIELDS)
    return str(getattr(function._agent or function._team, "name", None) or "")


def _copy_run_fields(outer: Any, inner: Function) -> None:
    """Hand the run of one function to another, as agno does before it calls a function."""
    require_members("agno", outer, *RUN_FIELDS)
    for name in RUN_FIELDS:
        setattr(inner, name, getattr(outer, name))


def _prepare_call(fc: FunctionCall, native: Function | None, call: ApprovedCall) -> FunctionCall:
    """Return the call inside a `tool_call`, prepared as agno prepares a model's own calls."""
    if native is None:
        raise CallFailed(call.tool.name, "it is asynchronous, and this run is not; use arun().")
    function = _process(native)
    outer = cast("Any", fc.function)
    _copy_run_fields(outer, function)
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
        raise CallFailed(call.tool.name, done.error or "it does not say why.")
    return add_notes(call, NO_CONTENT if done.result in (None, "") else done.result)


def _to_result(reply: Reply) -> object:
    images = [Image(content=data, mime_type=mime) for data, mime in decode_images(reply)]
    return ToolResult(content=reply.text, images=images) if images else reply.text
