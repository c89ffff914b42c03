"""Strands Agents: a plugin that hides an agent's tools.

`Agent(tools=[…], plugins=[ToolScoutPlugin()])`. The agent keeps all its tools and runs them itself,
with its hooks and interrupts, but its requests carry only a few. The session lives in
`agent.state`, so session managers and snapshots save it.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal, Unpack, cast

from toolscout import Reply, Session, Tool
from toolscout.adapters._toolkit import (
    ApprovedCall,
    Json,
    Toolkit,
    ToolkitOptions,
    build_meta_tools,
    decode_images,
    list_request_tools,
    merge_state,
)
from toolscout.errors import ApprovalNeeded, MissingExtra

try:
    from strands import Agent
    from strands.middleware import (
        ExecuteToolContext,
        ExecuteToolStage,
        InvokeModelContext,
        InvokeModelStage,
        ToolResultEvent,
        TypedEvent,
    )
    from strands.plugins import Plugin
    from strands.tools.tools import PythonAgentTool
    from strands.types.content import Messages
    from strands.types.tools import AgentTool, ToolResult, ToolResultContent, ToolSpec, ToolUse
except ModuleNotFoundError as error:
    raise MissingExtra("strands", extra="strands") from error

STATE = "toolscout"
"""The key of the session in the agent's state."""
APPROVAL = "toolscout_approval"
"""The name of the interrupt that asks a person."""
_AGREED = (True, "y", "yes")

Next = Callable[[ExecuteToolContext], AsyncGenerator[TypedEvent, None]]


class ToolScoutPlugin(Plugin):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Without `tools`, it hides all tools of the agent, including those of MCP servers. With
    `tools`, it hides these, and the agent's own stay visible. By default found tools join the
    request at its end and are called by their own names.
    """

    @property
    def name(self) -> str:
        """The name of the plugin."""
        return "toolscout"

    def __init__(
        self, tools: Sequence[Any] | None = None, **options: Unpack[ToolkitOptions]
    ) -> None:
        super().__init__()
        self._given = tools
        self._hidden: frozenset[str] | None = None
        self._toolkit = Toolkit[AgentTool].create_growing((), _define, **options)

    def init_agent(self, agent: Agent) -> None:
        """Add the meta-tools, and the middleware that hides and guards the other tools."""
        if self._given is not None:
            self._hidden = frozenset(agent.tool_registry.process_tools([*self._given]))
        for tool in build_meta_tools():
            agent.tool_registry.register_tool(_StandIn(tool.name, _to_spec(tool), _fail))
        agent.add_middleware(InvokeModelStage.Input, self._show)
        agent.add_middleware(ExecuteToolStage, self._guard)

    def _is_mine(self, tool: AgentTool | None) -> bool:
        """Tell whether a tool is hidden, or a meta-tool."""
        if tool is None or tool.tool_type == "structured_output":
            return False
        is_hidden = self._hidden is None or tool.tool_name in self._hidden
        return is_hidden or isinstance(tool, _StandIn)

    def _open_session(self, agent: Agent) -> tuple[Session, object]:
        """Return the session that the agent's state holds, and that state."""
        tools = agent.tool_registry.registry.items()
        natives = {n: t for n, t in tools if self._is_mine(t) and not isinstance(t, _StandIn)}
        only = self._toolkit.register(natives)
        state = cast("object", agent.state.get(STATE))
        return self._toolkit.open_session("", state, only=only), state

    def _show(self, context: InvokeModelContext) -> InvokeModelContext:
        """Replace the hidden tools of a request by the meta-tools and what was found."""
        agent = cast("Agent", context.agent)
        session, before = self._open_session(agent)
        message = _read_message(context.messages)
        if message:
            session.user_message(message)
        shown = list_request_tools(session)
        _save(agent, session, before)
        specs = {spec["name"]: spec for spec in context.tool_specs}
        tools = agent.tool_registry.registry
        others = [spec for name, spec in specs.items() if not self._is_mine(tools.get(name))]
        natives = [(tool, self._toolkit.get(tool.name)) for tool in shown]
        found = [specs[own.tool_name] if own else _to_spec(tool) for tool, own in natives]
        return context.replace(tool_specs=[*others, *found])

    async def _guard(
        self, context: ExecuteToolContext, next_fn: Next
    ) -> AsyncGenerator[TypedEvent, None]:
        """Answer a meta-tool, or let a call through if its tool was found."""
        agent = cast("Agent", context.agent)
        is_other = context.tool is not None and not self._is_mine(context.tool)
        if is_other or not _is_from_model(context):
            async for event in next_fn(context):
                yield event
            return
        session, before = self._open_session(agent)
        name, given = context.tool_use["name"], cast("object", context.tool_use["input"])
        verdict = await self._toolkit.handle(session, name, given)
        if isinstance(verdict, Reply) and verdict.code == ApprovalNeeded.code:
            answer = context.interrupt(APPROVAL, reason=verdict.details).response
            if answer in _AGREED or str(answer).strip().lower() in _AGREED:
                verdict = await self._toolkit.handle(session, name, given, approved=True)
        if isinstance(verdict, Reply):
            yield _to_event(context.tool_use, verdict)
        else:
            run = next_fn(context)
            if verdict is not None:
                run = self._run_native(session, verdict, context, next_fn)
            async for event in run:
                yield event
        _save(agent, session, before)

    async def _run_native(
        self, session: Session, call: ApprovedCall, context: ExecuteToolContext, next_fn: Next
    ) -> AsyncGenerator[TypedEvent, None]:
        """Let the agent make a call, also one through `tool_call`."""
        native = self._toolkit.get_native(call)
        use: ToolUse = {**context.tool_use, "name": native.tool_name, "input": call.arguments}
        failed = True
        async for event in next_fn(context.replace(tool=native, tool_use=use)):
            if isinstance(event, ToolResultEvent):
                result = event.tool_result
                failed = result["status"] == "error"
                if call.notes:
                    texts: list[ToolResultContent] = [{"text": note} for note in call.notes]
                    whole: ToolResult = {**result, "content": [*texts, *result["content"]]}
                    event = ToolResultEvent(whole, exception=event.exception)
            yield event
        session.settle(call, failed=failed)


class _StandIn(PythonAgentTool):
    """A meta-tool, which the plugin answers."""


def _fail(*_: object, **__: object) -> Any:
    raise AssertionError("The plugin answers calls of this tool.")


def _to_spec(tool: Tool) -> ToolSpec:
    schema = {"json": tool.input_schema}
    return {"name": tool.name, "description": tool.description, "inputSchema": schema}


def _define(tool: AgentTool) -> Tool:
    spec = tool.tool_spec
    schema = cast("Json", spec["inputSchema"])
    whole = cast("Json", schema.get("json", schema))
    return Tool.define(tool.tool_name, description=spec["description"], input_schema=whole)


def _save(agent: Agent, session: Session, before: object) -> None:
    """Write a session to the agent's state, which parallel calls share."""
    current = cast("object", agent.state.get(STATE))
    after = merge_state(session, before, current)
    if after != current:
        agent.state.set(STATE, after)


def _read_message(messages: Messages) -> str:
    """Return the user's message if it is the last one; otherwise an empty string."""
    last = messages[-1] if messages else None
    if last is None or last["role"] != "user" or any("toolResult" in c for c in last["content"]):
        return ""
    return "\n".join(content.get("text", "") for content in last["content"])


def _is_from_model(context: ExecuteToolContext) -> bool:
    """Tell whether the model made a call, rather than the host by `agent.tool.NAME()`."""
    id_ = context.tool_use["toolUseId"]
    messages = reversed(cast("Agent", context.agent).messages)
    contents = (content for message in messages for content in message["content"])
    return any(content.get("toolUse", {}).get("toolUseId") == id_ for content in contents)


def _to_event(use: ToolUse, reply: Reply) -> ToolResultEvent:
    content: list[ToolResultContent] = [{"text": reply.text}]
    for data, mime in decode_images(reply):
        kind = cast("Any", mime.rpartition("/")[2])
        content.append({"image": {"format": kind, "source": {"bytes": data}}})
    status: Literal["error", "success"] = "error" if reply.is_error else "success"
    return ToolResultEvent({"toolUseId": use["toolUseId"], "status": status, "content": content})
