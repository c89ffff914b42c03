"""Agno: a toolkit with the three meta-tools in place of tools that stay hidden.

`Agent(tools=[ToolScoutTools([…])])`. Hidden tools run as agno runs its own, with their hooks, cache
and what agno injects. The session lives in agno's `session_state`, one for each agent by name, and
goes where that goes: into the database, and into later runs of the same agno session.
"""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, cast

from toolscout import Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    NO_CONTENT,
    Admission,
    Bridge,
    Json,
    add_notes,
    merge_state,
    report_outcome,
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
"""What agno writes into the functions of a run, under private names."""


class ToolScoutTools(Toolkit):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Takes functions, `Function`s and toolkits; a toolkit that has to be connected is to be so
    already. Tools that wait for a person, or run elsewhere, are shown from the beginning: agno
    stops at their names.
    """

    def __init__(
        self,
        tools: Iterable[Toolkit | Function | Callable[..., object]],
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        given = list(tools)
        natives = [native for tool in given for native in _natives(tool)]
        self._bridge = Bridge(natives, _tool, by_name=_waits, scout=scout, settings=settings)
        told = "\n".join(_instructions(given, natives)) or None
        super().__init__(STATE, instructions=told, add_instructions=True, auto_register=False)
        for tool, native in self._bridge.list_tools():
            sync = _meta(tool, self._answering(tool)) if native is None else native.sync
            both = _meta(tool, self._aanswering(tool)) if native is None else native.both
            self.async_functions[both.name] = both
            if sync is not None:
                self.functions[sync.name] = sync

    def _answering(self, tool: Tool) -> Callable[..., object]:
        def answer(
            fc: FunctionCall,
            run_context: RunContext,
            images: object = None,  # agno collects media for a run where a tool takes them
            **given: object,
        ) -> object:
            turn = _Turn.begin(self._bridge, fc, run_context)
            try:
                verdict = self._bridge.toolkit.handle_sync(turn.session, tool.name, given)
                if not isinstance(verdict, Admission):
                    return _told(cast("Reply", verdict))
                native = cast("_Native", self._bridge.toolkit.get(verdict.tool.name))
                with report_outcome(turn.session, verdict):
                    return _result(verdict, _call(fc, native.sync, verdict).execute())
            finally:
                turn.keep()

        return answer

    def _aanswering(self, tool: Tool) -> Callable[..., object]:
        async def answer(
            fc: FunctionCall, run_context: RunContext, images: object = None, **given: object
        ) -> object:
            turn = _Turn.begin(self._bridge, fc, run_context)
            try:
                verdict = await self._bridge.toolkit.handle(turn.session, tool.name, given)
                if not isinstance(verdict, Admission):
                    return _told(cast("Reply", verdict))
                native = cast("_Native", self._bridge.toolkit.get(verdict.tool.name))
                with report_outcome(turn.session, verdict):
                    return _result(verdict, await _awaited(_call(fc, native.both, verdict)))
            finally:
                turn.keep()

        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Native:
    """A tool of agno's, of which a toolkit may have two."""

    sync: Function | None
    both: Function
    """What agno takes in an asynchronous run."""


@dataclass(slots=True, kw_only=True)
class _Turn:
    """One call of a meta-tool, and the session that it belongs to."""

    context: RunContext
    owner: str
    before: object
    session: Session

    @classmethod
    def begin(cls, bridge: Bridge[_Native], fc: FunctionCall, context: RunContext) -> "_Turn":
        # Members of a team are given copies of its state, which are put together afterwards.
        function = cast("Any", fc.function)
        owner = str(getattr(function._agent or function._team, "name", None) or "")
        entry = _sessions(context).get(owner, {})
        before = entry.get("session")
        session = bridge.open_session(context.session_id, before)
        if entry and entry.get("run") != context.run_id:
            # Which messages of earlier runs the model still has is the agent's to say.
            session.compact()
        return cls(context=context, owner=owner, before=before, session=session)

    def keep(self) -> None:
        sessions = _sessions(self.context)
        current = sessions.get(self.owner, {}).get("session")
        state = merge_state(self.session, self.before, current)
        sessions[self.owner] = {"run": self.context.run_id, "session": state}


def _sessions(context: RunContext) -> dict[str, Json]:
    if context.session_state is None:
        context.session_state = {}
    return cast("dict[str, Json]", context.session_state.setdefault(STATE, {}))


def _natives(tool: Toolkit | Function | Callable[..., object]) -> Iterator[_Native]:
    if isinstance(tool, Toolkit):
        sync = tool.get_functions()
        for name, both in tool.get_async_functions().items():
            yield _Native(sync=sync.get(name), both=both)
        return
    function = tool if isinstance(tool, Function) else _function(tool)
    is_sync = not iscoroutinefunction(cast("Any", function).entrypoint)
    yield _Native(sync=function if is_sync else None, both=function)


def _function(tool: Callable[..., object]) -> Function:
    function: Function = cast("Any", Function).from_callable(tool)
    # As agno does for a function that is marked `@approval` and nothing else.
    function.approval_type = getattr(tool, "_agno_approval_type", None)
    function.requires_confirmation = True if function.approval_type == "required" else None
    return function


def _waits(native: _Native) -> bool:
    one = native.both
    return any((one.requires_confirmation, one.requires_user_input, one.external_execution))


def _tool(native: _Native) -> Tool:
    function = _prepared(native.both)
    row = {
        "name": function.name,
        "title": function.title,
        "description": function.description,
        "inputSchema": function.parameters,
        "annotations": function.annotations,
    }
    return Tool.from_mcp({key: value for key, value in row.items() if value is not None})


def _meta(tool: Tool, answer: Callable[..., object]) -> Function:
    return Function(
        name=tool.name,
        description=tool.description,
        parameters=tool.input_schema,
        # A strict schema would leave no room for the arguments of `tool_call`.
        strict=False,
        entrypoint=answer,
        skip_entrypoint_processing=True,
    )


def _instructions(tools: Iterable[object], natives: Iterable[_Native]) -> Iterator[str]:
    functions = (native.both for native in natives)
    for one in (*functions, *(tool for tool in tools if isinstance(tool, Toolkit))):
        if one.add_instructions and one.instructions:
            yield one.instructions


def _prepared(function: Function) -> Function:
    copy = function.model_copy(deep=True)
    copy.process_entrypoint(strict=bool(copy.strict))
    return copy


def _call(fc: FunctionCall, native: Function | None, admitted: Admission) -> FunctionCall:
    """Return the call that `tool_call` stands for, as agno prepares those of a model."""
    if native is None:
        raise CallFailed(admitted.tool.name, "it is asynchronous, and this run is not; use arun().")
    function, outer = _prepared(native), cast("Any", fc.function)
    for name in RUN_FIELDS:
        setattr(function, name, getattr(outer, name))
    if outer.tool_hooks is not None:
        function.tool_hooks = outer.tool_hooks
    # What follows a call, agno reads from the function that was called.
    fc.function = outer.model_copy()
    fc.function.stop_after_tool_call = function.stop_after_tool_call
    fc.function.show_result = function.show_result
    return FunctionCall(function=function, arguments=admitted.arguments, call_id=fc.call_id)


async def _awaited(call: FunctionCall) -> FunctionExecutionResult:
    """Make a call in an asynchronous run: as agno does, in a thread unless it can be awaited."""
    function = cast("Any", call.function)
    parts = (function.entrypoint, *(function.tool_hooks or ()))
    if any(iscoroutinefunction(part) or isasyncgenfunction(part) for part in parts):
        return await call.aexecute()
    return await asyncio.to_thread(call.execute)


def _result(admitted: Admission, done: FunctionExecutionResult) -> object:
    if done.status == "failure":
        raise CallFailed(admitted.tool.name, done.error or "it does not say why.")
    return add_notes(admitted, NO_CONTENT if done.result in (None, "") else done.result)


def _told(reply: Reply) -> object:
    images = [
        Image(content=b64decode(str(block.get("data"))), mime_type=str(block.get("mimeType")))
        for block in reply.blocks
        if block.get("type") == "image"
    ]
    return ToolResult(content=reply.text, images=images) if images else reply.text
