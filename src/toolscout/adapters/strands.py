"""Strands Agents: a plugin that hides an agent's tools.

`Agent(tools=[…], plugins=[ToolScoutPlugin()])`. The agent has all its tools and runs them itself,
with its hooks and interrupts; a request tells few of them. The session lives in `agent.state`, so
session managers and snapshots keep it.
"""

from base64 import b64decode
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal, cast
from uuid import uuid4

from toolscout import Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import Admission, Json, Toolkit, merge_state, meta_tools
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
"""The name of the interrupt by which a person is asked."""
_AGREED = (True, "y", "yes")

Next = Callable[[ExecuteToolContext], AsyncGenerator[TypedEvent, None]]


class ToolScoutPlugin(Plugin):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Without `tools`, all tools of the agent are hidden, those of MCP servers too; with `tools`,
    these are, and the agent's own stay as they are. Unless the settings say otherwise, found tools
    join the request at the end and are called by their own names.
    """

    @property
    def name(self) -> str:
        """What agents call the plugin."""
        return "toolscout"

    def __init__(
        self,
        tools: Sequence[Any] | None = None,
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__()
        self._given = tools
        self._hidden: frozenset[str] | None = None
        self._toolkit = Toolkit[AgentTool].create_growing(
            (), _define, scout=scout, settings=settings
        )

    def init_agent(self, agent: Agent) -> None:
        """Give an agent the meta-tools, and the middleware that hides and guards the others."""
        if self._given is not None:
            self._hidden = frozenset(agent.tool_registry.process_tools([*self._given]))
        for tool in meta_tools():
            agent.tool_registry.register_tool(_stand_in(tool))
        agent.add_middleware(InvokeModelStage.Input, self._show)
        agent.add_middleware(ExecuteToolStage, self._guard)

    def _natives(self, agent: Agent) -> dict[str, AgentTool]:
        """Return the tools to hide, by name."""
        tools = agent.tool_registry.registry
        return {name: tool for name, tool in tools.items() if self._hides(tool)}

    def _hides(self, tool: AgentTool) -> bool:
        if isinstance(tool, _StandIn) or tool.tool_type == "structured_output":
            return False
        return self._hidden is None or tool.tool_name in self._hidden

    def _open(self, agent: Agent) -> tuple[Session, object]:
        """Return the session that the agent's state holds, and that state."""
        only = self._toolkit.register(self._natives(agent))
        state = cast("object", agent.state.get(STATE))
        return self._toolkit.open_session(uuid4().hex, state, only=only), state

    def _show(self, context: InvokeModelContext) -> InvokeModelContext:
        """Tell the model what its session has found."""
        agent = cast("Agent", context.agent)
        session, before = self._open(agent)
        said = _said(context.messages)
        if said:
            session.begin_turn(said)
        shown = [one.tool for one in session.shown()]
        _keep(agent, session, before)
        natives, specs = self._natives(agent), {spec["name"]: spec for spec in context.tool_specs}
        passed = [
            spec
            for name, spec in specs.items()
            if name not in natives and not isinstance(_tool(agent, name), _StandIn)
        ]
        return context.replace(tool_specs=[*passed, *(self._spec(tool, specs) for tool in shown)])

    def _spec(self, tool: Tool, specs: dict[str, ToolSpec]) -> ToolSpec:
        native = self._toolkit.get(tool.name)
        return specs[native.tool_name] if native is not None else _spec(tool)

    async def _guard(
        self, context: ExecuteToolContext, next_fn: Next
    ) -> AsyncGenerator[TypedEvent, None]:
        """Answer a meta-tool, or let a call of a found tool through."""
        agent = cast("Agent", context.agent)
        is_other = context.tool is not None and not (
            isinstance(context.tool, _StandIn) or self._hides(context.tool)
        )
        if is_other or not _is_the_models(context):
            async for event in next_fn(context):
                yield event
            return
        session, before = self._open(agent)
        verdict = await self._judge(session, context)
        if isinstance(verdict, Admission):
            async for event in self._run(session, verdict, context, next_fn):
                yield event
        elif verdict is not None:
            yield _told(context.tool_use, verdict)
        else:
            async for event in next_fn(context):
                yield event
        _keep(agent, session, before)

    async def _judge(
        self, session: Session, context: ExecuteToolContext
    ) -> Admission | Reply | None:
        name, given = context.tool_use["name"], cast("object", context.tool_use["input"])
        verdict = await self._toolkit.handle(session, name, given)
        if isinstance(verdict, Reply) and verdict.code == ApprovalNeeded.code:
            answer = context.interrupt(APPROVAL, reason=verdict.details).response
            if answer in _AGREED or str(answer).strip().lower() in _AGREED:
                return await self._toolkit.handle(session, name, given, approved=True)
        return verdict

    async def _run(
        self, session: Session, admitted: Admission, context: ExecuteToolContext, next_fn: Next
    ) -> AsyncGenerator[TypedEvent, None]:
        """Have the agent make a call, also where the model asked by `tool_call`."""
        native = self._toolkit.get_native(admitted)
        use: ToolUse = {
            **context.tool_use,
            "name": native.tool_name,
            "input": admitted.arguments,
        }
        failed = True
        async for event in next_fn(context.replace(tool=native, tool_use=use)):
            if isinstance(event, ToolResultEvent):
                failed = event.tool_result["status"] == "error"
                event = _with_notes(event, admitted.notes)
            yield event
        session.settle(admitted, failed=failed)


class _StandIn(PythonAgentTool):
    """A meta-tool, which the plugin answers."""


def _stand_in(tool: Tool) -> _StandIn:
    return _StandIn(tool.name, _spec(tool), _never)


def _never(*_: object, **__: object) -> Any:
    raise AssertionError("the plugin answers such calls")


def _tool(agent: Agent, name: str) -> AgentTool | None:
    return agent.tool_registry.registry.get(name)


def _spec(tool: Tool) -> ToolSpec:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {"json": tool.input_schema},
    }


def _define(tool: AgentTool) -> Tool:
    spec = tool.tool_spec
    schema = cast("Json", spec["inputSchema"])
    return Tool.define(
        tool.tool_name,
        description=spec["description"],
        input_schema=cast("Json", schema.get("json", schema)),
    )


def _keep(agent: Agent, session: Session, before: object) -> None:
    """Write a session to the agent's state, which calls side by side have in common."""
    current = cast("object", agent.state.get(STATE))
    after = merge_state(session, before, current)
    if after != current:
        agent.state.set(STATE, after)


def _said(messages: Messages) -> str:
    """Return what the user has just said; nothing in the midst of a turn."""
    last = messages[-1] if messages else None
    if last is None or last["role"] != "user" or any("toolResult" in c for c in last["content"]):
        return ""
    return "\n".join(content.get("text", "") for content in last["content"])


def _is_the_models(context: ExecuteToolContext) -> bool:
    """Tell a call of the model from one that the host makes by `agent.tool.NAME()`."""
    id_ = context.tool_use["toolUseId"]
    messages = reversed(cast("Agent", context.agent).messages)
    contents = (content for message in messages for content in message["content"])
    return any(content.get("toolUse", {}).get("toolUseId") == id_ for content in contents)


def _with_notes(event: ToolResultEvent, notes: Sequence[str]) -> ToolResultEvent:
    told: list[ToolResultContent] = [{"text": note} for note in notes]
    result = event.tool_result
    whole: ToolResult = {**result, "content": [*told, *result["content"]]}
    return ToolResultEvent(whole, exception=event.exception) if notes else event


def _told(use: ToolUse, reply: Reply) -> ToolResultEvent:
    content: list[ToolResultContent] = [{"text": reply.text}, *map(_image, reply.images)]
    status: Literal["error", "success"] = "error" if reply.is_error else "success"
    return ToolResultEvent({"toolUseId": use["toolUseId"], "status": status, "content": content})


def _image(block: Json) -> ToolResultContent:
    kind = cast("Any", str(block.get("mimeType")).rpartition("/")[2])
    return {"image": {"format": kind, "source": {"bytes": b64decode(str(block.get("data")))}}}
