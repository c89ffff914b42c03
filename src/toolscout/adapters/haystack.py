"""Haystack: a toolset that shows an `Agent` few tools and lets it find the others.

`Agent(chat_generator=…, tools=ToolScoutToolset([…]))`. Each run of an agent has its own session.
With `STATE_SCHEMA` and `resume_session` the session lives in the agent's `State`: a run returns it,
and a later run continues it. Pipelines with the toolset can be saved.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, Unpack, cast

from toolscout import Reply, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    ApprovedCall,
    Json,
    Toolkit,
    ToolkitOptions,
    add_notes,
    list_request_tools,
    report_outcome,
    require_members,
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
"""For the agent's `state_schema`: runs then accept the session and return it."""


class ToolScoutToolset(Toolset):
    """Hides tools and toolsets behind `tool_search`, `tool_describe` and `tool_call`.

    By default found tools join the request and are called by their own names.
    """

    def __init__(self, tools: ToolsType, **options: Unpack[ToolkitOptions]) -> None:
        super().__init__([])
        self._given: Any = tools
        self._settings = settings = options.get("settings")
        self._is_warm = False
        self._is_plain = options.get("scout") is None and not (settings and settings.hide)
        # Confirmation, exit conditions and the like depend on the name of the call.
        self._toolkit = Toolkit[AgentTool].create_growing(
            (), Tool.from_mcp, by_name=lambda tool: True, **options
        )
        self._run = _Run(self._toolkit)

    def warm_up(self) -> None:
        """Let lazy tools and toolsets connect, and catalogue what they offer."""
        utils.warm_up_tools(self._given)
        self._index_tools()

    async def warm_up_async(self) -> None:
        """Do the same without blocking the event loop."""
        await utils.warm_up_tools_async(self._given)
        self._index_tools()

    def close(self) -> None:
        """Close the inner tools and toolsets."""
        utils.close_tools(self._given)
        self._is_warm = False

    async def close_async(self) -> None:
        """Do the same without blocking the event loop."""
        await utils.close_tools_async(self._given)
        self._is_warm = False

    def add(self, tool: AgentTool) -> None:
        """Add a tool, hidden like the others."""
        self._ensure_warm()
        super().add(tool)
        self._given = [*([self._given] if isinstance(self._given, Toolset) else self._given), tool]
        self._toolkit.register({tool.name: tool})

    def spawn(self, selected_tool_names: set[str] | None = None) -> "ToolScoutToolset":
        """Return a copy with its own session, for one run."""
        self._ensure_warm()
        only = None
        if selected_tool_names is not None:
            selected = {tool.name: tool for tool in self.tools if tool.name in selected_tool_names}
            only = self._toolkit.register(selected)
        spawned = copy.copy(self)
        spawned._run = _Run(self._toolkit, only)
        return spawned

    def __iter__(self) -> Iterator[AgentTool]:
        """Yield the tools of the next request, in order."""
        self._ensure_warm()
        return iter(self._run.list_tools())

    def to_dict(self) -> dict[str, Any]:
        """Return the tools and the settings, without sessions."""
        if not self._is_plain:
            raise UsageError("A scout or a `hide` function cannot be saved. Pass plain settings.")
        values = asdict(self._settings) if self._settings else {}
        settings = json.loads(json.dumps({k: v for k, v in values.items() if k != "hide"}))
        data = {"tools": serde_utils.serialize_tools_or_toolset(self._given), "settings": settings}
        return {"type": serialization.generate_qualified_class_name(type(self)), "data": data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ToolScoutToolset":
        """Return the toolset that `to_dict` saved."""
        inner: Json = data["data"]
        serde_utils.deserialize_tools_or_toolset_inplace(inner)
        plain: Json = inner["settings"]
        return cls(inner["tools"], settings=Settings.from_mapping(plain) if plain else None)

    def _index_tools(self) -> None:
        if not self._is_warm:
            self.tools = utils.flatten_tools_or_toolsets(self._given)
            self._is_warm = True
            self._toolkit.replace(())
            self._toolkit.register({tool.name: tool for tool in self.tools})

    def _ensure_warm(self) -> None:
        if not self._is_warm:
            self.warm_up()


class _Run:
    """One run of an agent: its session, and the calls that it makes."""

    def __init__(self, toolkit: Toolkit[AgentTool], only: frozenset[str] | None = None) -> None:
        self._toolkit = toolkit
        self._only = only
        self._session = toolkit.open_session(only=only)
        self._state: State | None = None

    def list_tools(self) -> list[AgentTool]:
        return [self._create_tool(tool) for tool in list_request_tools(self._session)]

    def attach(self, state: State) -> None:
        """Continue the session in the state of this run, and keep it there."""
        if state is self._state:
            return
        self._state = state
        if state.data.get(STATE):
            self._session = self._toolkit.open_session("", state.data[STATE], only=self._only)
        messages = cast("list[ChatMessage]", state.data.get("messages") or [])
        if messages and messages[-1].is_from(ChatRole.USER):
            self._session.user_message(messages[-1].text or "")

    def call_sync(self, name: str, /, **given: Any) -> Any:
        """Answer a meta-tool, or run a tool that was found."""
        arguments, injected = self._split_arguments(name, given)
        call = self._toolkit.handle_sync(self._session, name, arguments)
        if not isinstance(call, ApprovedCall):
            return self._answer(name, call or self._session.handle_sync(name, arguments))
        native = self._toolkit.get_native(call)
        with report_outcome(self._session, call):
            result = native.invoke(**self._prepare_arguments(name, call, injected))
        return self._finish(name, call, result)

    async def call(self, name: str, /, **given: Any) -> Any:
        arguments, injected = self._split_arguments(name, given)
        call = await self._toolkit.handle(self._session, name, arguments)
        if not isinstance(call, ApprovedCall):
            return self._answer(name, call or await self._session.handle(name, arguments))
        native = self._toolkit.get_native(call)
        with report_outcome(self._session, call):
            result = await native.invoke_async(**self._prepare_arguments(name, call, injected))
        return self._finish(name, call, result)

    def _create_tool(self, tool: Tool) -> AgentTool:
        native = self._toolkit.get(tool.name)
        # A copy keeps the class, by which agents recognize some tools.
        offered = cast("Any", copy.copy(native) if native is not None else _OwnTool(tool, self))
        offered.name = tool.name
        offered.invoke = partial(self.call_sync, tool.name)
        offered.invoke_async = partial(self.call, tool.name)
        return offered

    def _split_arguments(self, name: str, given: Json) -> tuple[Json, Json]:
        """Return the arguments of the model, and those that the agent added."""
        native = self._toolkit.get(name)
        added = {*((native and native.inputs_from_state) or {}).values(), "streaming_callback"}
        added -= {*(native.parameters.get("properties", ()) if native else ())}
        injected = {k: v for k, v in given.items() if isinstance(v, State) or k in added}
        for state in (value for value in injected.values() if isinstance(value, State)):
            self.attach(state)
        return {key: value for key, value in given.items() if key not in injected}, injected

    def _answer(self, name: str, reply: Reply) -> Any:
        self._save()
        if self._toolkit.get(name) is not None:
            raise ToolInvocationError(reply.text, tool_name=name)
        images = [
            ImageContent(str(block["data"]), mime_type=str(block["mimeType"]))
            for block in reply.images
        ]
        return [TextContent(reply.text), *images] if images else reply.text

    def _prepare_arguments(self, name: str, call: ApprovedCall, injected: Json) -> Json:
        if name != CALL:
            return {**call.arguments, **injected}
        inject = _get_agent_function("_inject_state_args")
        return inject(self._toolkit.get_native(call), call.arguments, self._state)

    def _finish(self, name: str, call: ApprovedCall, result: Any) -> Any:
        self._save()
        if name == CALL:
            # Agents do the same with the results of the tools that they run.
            native = self._toolkit.get_native(call)
            _get_agent_function("_merge_tool_outputs_into_state")(native, result, self._state)
            build = _get_agent_function("_build_tool_result_message")
            made = ToolCall(native.name, call.arguments)
            message = build(result, made, native, raise_on_failure=False)
            result = message.tool_call_results[0].result
        return add_notes(call, result)

    def _save(self) -> None:
        if self._state is not None and STATE in self._state.schema:
            self._state.set(STATE, self._session.to_json())


class _OwnTool(AgentTool):
    """A meta-tool, or a tool of another server of the scout."""

    def __init__(self, tool: Tool, run: _Run) -> None:
        init = cast("Any", super().__init__)
        description = tool.description or tool.name
        init(tool.name, description, tool.input_schema, _request_state, {"raw_result": True})
        self.run = run


@hook
def resume_session(state: State) -> None:
    """Restore the session that an agent's state holds into the run that begins."""
    for run in {tool.run for tool in state.data["tools"] if isinstance(tool, _OwnTool)}:
        run.attach(state)


def _request_state(agent_state: State, **arguments: object) -> None:
    """Make the agent pass its state by this signature; `_Run` answers the call itself."""


def _get_agent_function(name: str) -> Any:
    """Return a private function by which Haystack's agents make a call; `tool_call` needs them."""
    require_members("haystack-ai", tool_calling, "_build_tool_result_message")
    require_members("haystack-ai", tool_calling, "_inject_state_args")
    require_members("haystack-ai", tool_calling, "_merge_tool_outputs_into_state")
    return getattr(tool_calling, name)
