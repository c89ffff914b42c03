"""Haystack: a toolset that shows an `Agent` few tools and lets it find the others.

`Agent(chat_generator=…, tools=ToolScoutToolset([…]))`. Each run of an agent has a session of its
own; with `STATE_SCHEMA` and `resume_session` it lives in the agent's `State`, so that a run returns
it and a later run goes on with it. Pipelines with the toolset can be saved.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, cast
from uuid import uuid4

from toolscout import Mode, Reply, Scout, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    Admission,
    Json,
    Toolkit,
    add_notes,
    report_outcome,
    require_own_name,
)
from toolscout.errors import MissingExtra, UsageError

try:
    from haystack.components.agents import tool_calling
    from haystack.components.agents.state import State
    from haystack.core import serialization
    from haystack.dataclasses import ChatMessage, ChatRole, ImageContent, TextContent, ToolCall
    from haystack.hooks import hook
    from haystack.tools import Toolset, ToolsType, serde_utils, utils
    from haystack.tools.errors import ToolInvocationError
    from haystack.tools.tool import Tool as AgentTool
except ModuleNotFoundError as error:
    raise MissingExtra("haystack-ai", extra="haystack") from error

STATE = "toolscout"
STATE_SCHEMA: Json = {STATE: {"type": dict}}
"""For the agent's `state_schema`: runs then return the session, and take it."""
_agent: Any = tool_calling  # What an agent does with a call is private, and `tool_call` needs it.


class ToolScoutToolset(Toolset):
    """Hides tools and toolsets behind `tool_search`, `tool_describe` and `tool_call`.

    Unless the settings say otherwise, found tools join the request and have their own names.
    """

    def __init__(
        self, tools: ToolsType, *, scout: Scout | None = None, settings: Settings | None = None
    ) -> None:
        super().__init__([])
        self._given: Any = tools
        self._settings, self._is_warm = settings, False
        self._is_plain = scout is None and not (settings and settings.hide)
        self._toolkit = Toolkit[AgentTool].create_growing(
            (), _define, scout=scout, settings=settings
        )
        self._run = _Run(self._toolkit)

    def warm_up(self) -> None:
        """Let lazy tools and toolsets connect, and take in what they have."""
        utils.warm_up_tools(self._given)
        self._take_in()

    async def warm_up_async(self) -> None:
        """Do the same without holding up the event loop."""
        await utils.warm_up_tools_async(self._given)
        self._take_in()

    def close(self) -> None:
        """Close the tools and toolsets inside."""
        utils.close_tools(self._given)
        self._is_warm = False

    async def close_async(self) -> None:
        """Close them without holding up the event loop."""
        await utils.close_tools_async(self._given)
        self._is_warm = False

    def add(self, tool: AgentTool) -> None:
        """Add a tool, hidden like the others."""
        self._check_warm()
        super().add(tool)
        self._given = [*([self._given] if isinstance(self._given, Toolset) else self._given), tool]
        self._toolkit.register({tool.name: tool})

    def spawn(self, selected_tool_names: set[str] | None = None) -> "ToolScoutToolset":
        """Return a copy with a session of its own, for one run."""
        self._check_warm()
        spawned, names = copy.copy(self), selected_tool_names
        chosen = {tool.name: tool for tool in self.tools if names is None or tool.name in names}
        spawned._run = _Run(
            self._toolkit, None if names is None else self._toolkit.register(chosen)
        )
        return spawned

    def __iter__(self) -> Iterator[AgentTool]:
        """Yield what the next request carries, in order."""
        self._check_warm()
        return iter(self._run.tools())

    def to_dict(self) -> dict[str, Any]:
        """Return the tools and the settings; sessions are not part of it."""
        if not self._is_plain:
            raise UsageError("A scout or a `hide` function cannot be written. Give plain settings.")
        values = asdict(self._settings) if self._settings else {}
        settings = json.loads(json.dumps({k: v for k, v in values.items() if k != "hide"}))
        data = {"tools": serde_utils.serialize_tools_or_toolset(self._given), "settings": settings}
        return {"type": serialization.generate_qualified_class_name(type(self)), "data": data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ToolScoutToolset":
        """Return the toolset that was written."""
        inner: Json = data["data"]
        serde_utils.deserialize_tools_or_toolset_inplace(inner)
        plain: Json = inner["settings"]
        return cls(inner["tools"], settings=Settings.from_mapping(plain) if plain else None)

    def _take_in(self) -> None:
        if not self._is_warm:
            self.tools, self._is_warm = utils.flatten_tools_or_toolsets(self._given), True
            self._toolkit.replace(())
            self._toolkit.register({tool.name: tool for tool in self.tools})

    def _check_warm(self) -> None:
        if not self._is_warm:
            self.warm_up()


class _Run:
    """One run of an agent: its session, and the calls that it makes."""

    def __init__(self, toolkit: Toolkit[AgentTool], only: frozenset[str] | None = None) -> None:
        self._toolkit, self._only = toolkit, only
        self._session = toolkit.open_session(uuid4().hex, only=only)
        self._state: State | None = None

    def tools(self) -> list[AgentTool]:
        return [self._offer(shown.tool) for shown in self._session.shown()]

    def attach(self, state: State) -> None:
        """Go on with the session that the state of this run holds, and keep it there."""
        if state is self._state:
            return
        self._state = state
        if state.data.get(STATE):
            self._session = self._toolkit.open_session("", state.data[STATE], only=self._only)
        messages = cast("list[ChatMessage]", state.data.get("messages") or [])
        if messages and messages[-1].is_from(ChatRole.USER):
            self._session.begin_turn(messages[-1].text or "")

    def call_sync(self, name: str, /, **given: Any) -> Any:
        """Answer a meta-tool, or pass a call through the gate to the tool."""
        arguments, injected = self._parted(name, given)
        verdict = self._toolkit.handle_sync(self._session, name, arguments)
        admitted = self._admitted(name, verdict or self._session.handle_sync(name, arguments))
        if not isinstance(admitted, Admission):
            return admitted
        native, args = self._ready(name, admitted, injected)
        with report_outcome(self._session, admitted):
            result = native.invoke(**args)
        return self._returned(name, admitted, native, result)

    async def call(self, name: str, /, **given: Any) -> Any:
        arguments, injected = self._parted(name, given)
        verdict = await self._toolkit.handle(self._session, name, arguments)
        admitted = self._admitted(name, verdict or await self._session.handle(name, arguments))
        if not isinstance(admitted, Admission):
            return admitted
        native, args = self._ready(name, admitted, injected)
        with report_outcome(self._session, admitted):
            result = await native.invoke_async(**args)
        return self._returned(name, admitted, native, result)

    def _offer(self, tool: Tool) -> AgentTool:
        native = self._toolkit.get(tool.name)
        # An agent takes the copy for the tool itself, whatever its class.
        offered = cast("Any", copy.copy(native) if native is not None else _OwnTool(tool, self))
        offered.name, offered.invoke = tool.name, partial(self.call_sync, tool.name)
        offered.invoke_async = partial(self.call, tool.name)
        return offered

    def _parted(self, name: str, given: Json) -> tuple[Json, Json]:
        """Return what the model gave, and what the agent added to it."""
        native = self._toolkit.get(name)
        added = {*((native and native.inputs_from_state) or {}).values(), "streaming_callback"}
        added -= {*(native.parameters.get("properties", ()) if native else ())}
        injected = {k: v for k, v in given.items() if isinstance(v, State) or k in added}
        for state in (value for value in injected.values() if isinstance(value, State)):
            self.attach(state)
        return {key: value for key, value in given.items() if key not in injected}, injected

    def _admitted(self, name: str, verdict: Admission | Reply) -> Any:
        """Return a call that is to be made, or else what the model is told."""
        is_native = self._toolkit.get(name) is not None
        if isinstance(verdict, Admission):
            # Confirmation, exit conditions and the like go by the name of the call.
            if is_native or self._session.settings.mode is Mode.BRIDGE:
                return verdict
            verdict = require_own_name(self._session, verdict)
        self._keep()
        if is_native:
            raise ToolInvocationError(verdict.text, tool_name=name)
        shown = (block for block in verdict.blocks if block.get("type") == "image")
        images = [ImageContent(str(b["data"]), mime_type=str(b["mimeType"])) for b in shown]
        return [TextContent(verdict.text), *images] if images else verdict.text

    def _ready(self, name: str, admission: Admission, injected: Json) -> tuple[AgentTool, Json]:
        native, given = (
            cast("AgentTool", self._toolkit.get(admission.tool.name)),
            admission.arguments,
        )
        if name != CALL:
            return native, {**given, **injected}
        return native, _agent._inject_state_args(native, given, self._state)

    def _returned(self, name: str, admission: Admission, native: AgentTool, result: Any) -> Any:
        self._keep()
        if name == CALL:  # What the agent does with the result of a tool that it runs itself.
            _agent._merge_tool_outputs_into_state(native, result, self._state)
            call = ToolCall(native.name, admission.arguments)
            build = partial(_agent._build_tool_result_message, raise_on_failure=False)
            result = build(result, call, native).tool_call_results[0].result
        return add_notes(admission, result)

    def _keep(self) -> None:
        if self._state is not None and STATE in self._state.schema:
            self._state.set(STATE, self._session.to_json())


class _OwnTool(AgentTool):
    """A meta-tool, or a tool of another server of the scout."""

    def __init__(self, tool: Tool, run: _Run) -> None:
        told, raw = tool.description or tool.name, {"raw_result": True}
        init = cast("Any", super().__init__)
        init(tool.name, told, tool.input_schema, _takes_state, raw)
        self.run = run


@hook
def resume_session(state: State) -> None:
    """Put the session that an agent's state holds back into the run that begins."""
    for run in {tool.run for tool in state.data["tools"] if isinstance(tool, _OwnTool)}:
        run.attach(state)


def _takes_state(agent_state: State, **arguments: object) -> None:
    """Have the agent hand over its state; the call itself is answered elsewhere."""


def _define(native: AgentTool) -> Tool:
    told, schema = native.description, native.parameters
    return Tool.define(native.name, description=told, input_schema=schema)
