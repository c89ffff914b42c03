"""Microsoft's Agent Framework: a context provider that hides an agent's tools.

`Agent(client=…, tools=[…], context_providers=[ToolScoutProvider()])`. The agent has all its tools
and runs them itself, with its middleware and approvals; a request tells few of them. The session
lives in the state of the `AgentSession`, under the provider's `source_id`.
"""

from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic_core import to_jsonable_python

from toolscout import Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    Admission,
    Json,
    Toolkit,
    is_object,
    list_request_tools,
    meta_tools,
    report_outcome,
)
from toolscout.errors import ApprovalNeeded, MissingExtra

try:
    from agent_framework import (
        AgentSession,
        ChatContext,
        Content,
        ContextProvider,
        FunctionInvocationContext,
        FunctionTool,
        SessionContext,
        SupportsAgentRun,
        normalize_tools,
    )
except ModuleNotFoundError as error:
    raise MissingExtra("agent_framework", extra="agent-framework") from error

STATE, ASKED = "session", "asked"
"""The keys of the provider's state: the session, and the calls that a person was asked about."""
ALWAYS = "always_require"
"""The approval mode of tools that the framework itself asks about."""

Next = Callable[[], Awaitable[None]]


class ToolScoutProvider(ContextProvider):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Without `tools`, all functions of the agent are hidden, those of MCP servers too; with `tools`,
    these are, and the agent's own stay as they are. Unless the settings say otherwise, found tools
    join the request at the end and are called by their own names.
    """

    def __init__(
        self,
        tools: Sequence[FunctionTool | Callable[..., Any]] | None = None,
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
        source_id: str = "toolscout",
    ) -> None:
        super().__init__(source_id)
        self._given = _functions(normalize_tools(tools)) if tools is not None else None
        self._toolkit = Toolkit[FunctionTool].create_growing(
            (), _define, scout=scout, settings=settings
        )

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Give the run the meta-tools, and the middleware that hides and guards the others."""
        said = "\n".join(message.text for message in context.input_messages)
        only = None if self._given is None else frozenset(tool.name for tool in self._given)
        run = _Run(toolkit=self._toolkit, id=session.session_id, state=state, said=said, only=only)
        own = [_stand_in(tool) for tool in (*meta_tools(), *run.foreign())]
        context.extend_tools(self.source_id, [*(self._given or ()), *own])
        context.extend_middleware(self.source_id, [run.show, run.guard])


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run of the agent, and the session that its requests and calls share."""

    toolkit: Toolkit[FunctionTool]
    id: str
    state: Json
    """The provider's part of the agent's session."""
    said: str
    """What the user said; empty once the session has heard it."""
    only: frozenset[str] | None
    """The tools to hide; all functions where there is none."""
    names: frozenset[str] = frozenset()
    """The hidden tools that exist now, by exposed name."""
    session: Session | None = None

    def open(self, tools: Iterable[object]) -> Session:
        """Return the session, which may use the tools that the run has now."""
        names = self.toolkit.register(
            {tool.name: tool for tool in _functions(tools) if self.hides(tool)}
        )
        if self.session is None or names != self.names:
            self.names = names
            self.session = self.toolkit.open_session(self.id, self.state.get(STATE), only=names)
        if self.said:
            self.session.begin_turn(self.said)
            self.said = ""
        return self.session

    def hides(self, tool: object) -> bool:
        """Tell whether a tool is one that has to be found."""
        if not isinstance(tool, FunctionTool) or isinstance(tool, _StandIn):
            return False
        # Who only declares a tool runs it elsewhere, where nothing can be guarded.
        return not tool.declaration_only and (self.only is None or tool.name in self.only)

    def foreign(self) -> list[Tool]:
        """Return the loaded tools that the scout has from elsewhere."""
        session = self.session or self.toolkit.open_session(self.id, self.state.get(STATE))
        loaded = [session.tool(name) for name in session.loaded]
        return [t for t in loaded if t is not None and self.toolkit.get(t.name) is None]

    async def show(self, context: ChatContext, call_next: Next) -> None:
        """Tell the model what its session has found, behind the tools that are not hidden."""
        options = dict(context.options or {})
        tools = cast("list[object]", options.get("tools") or [])
        choice = options.get("tool_choice")
        forced = choice.get("required_function_name") if is_object(choice) else None
        session = self.open(tools)
        shown = list_request_tools(session, str(forced or ""))
        self.state[STATE] = session.to_json()
        passed = [t for t in tools if not self.hides(t) and not isinstance(t, _StandIn)]
        found = [self.toolkit.get(tool.name) or _stand_in(tool) for tool in shown]
        # The list of before stays as it is: the agent runs calls with it.
        context.options = {**options, "tools": [*passed, *found]}
        await call_next()

    async def guard(self, context: FunctionInvocationContext, call_next: Next) -> None:
        """Answer a meta-tool, or let a call through once its tool was found."""
        tool = context.function
        if not self.hides(tool) and not isinstance(tool, _StandIn):
            return await call_next()
        session = self.open(context.tools or [tool])
        given = cast("object", to_jsonable_python(context.arguments))
        approved = self._is_approved(context)
        verdict = await self.toolkit.handle(session, tool.name, given, approved=approved)
        try:
            if isinstance(verdict, Admission):
                await self._make(context, session, verdict, call_next)
            elif verdict is not None and verdict.code == ApprovalNeeded.code:
                self._ask(context)
            elif verdict is not None:
                context.result = _told(verdict)
        finally:
            self.state[STATE] = session.to_json()
            self._add_foreign(context)

    async def _make(
        self,
        context: FunctionInvocationContext,
        session: Session,
        admitted: Admission,
        call_next: Next,
    ) -> None:
        """Have the framework make a call, or make that which `tool_call` stands for."""
        native = self.toolkit.get_native(admitted)
        is_inner = isinstance(context.function, _StandIn)
        if is_inner and native.approval_mode == ALWAYS and not self._is_approved(context):
            self._ask(context)
            return
        if admitted.repairs and not is_inner:
            context.arguments = admitted.arguments
        with report_outcome(session, admitted):
            if is_inner:
                context.result = await _run_inside(context, native, admitted.arguments)
            else:
                await call_next()
        notes = [Content.from_text(note) for note in admitted.notes]
        if notes and isinstance(context.result, list):
            context.result = [*notes, *cast("list[Content]", context.result)]

    def _is_approved(self, context: FunctionInvocationContext) -> bool:
        # The framework also approves, unasked, what stood beside a call that it asked about.
        is_asked = context.metadata.get("call_id") in self.state.get(ASKED, ())
        is_answered = context.metadata.get("approval_response") is not None
        return is_answered and (is_asked or context.function.approval_mode == ALWAYS)

    def _ask(self, context: FunctionInvocationContext) -> None:
        """Have the framework ask a person about a call."""
        call_id = str(context.metadata["call_id"])
        id_ = context.metadata.get("function_call_occurrence_id")
        given = cast("Json", to_jsonable_python(context.arguments))
        call = Content.from_function_call(call_id, context.function.name, arguments=given, id=id_)
        self.state[ASKED] = [*self.state.get(ASKED, ()), call_id]
        context.result = Content.from_function_approval_request(id_ or call_id, call)

    def _add_foreign(self, context: FunctionInvocationContext) -> None:
        """Have the agent know the tools that the scout runs, once they are found."""
        live = context.tools if context.tools is not None else []
        known = {tool.name for tool in _functions(live)}
        live += [_stand_in(tool) for tool in self.foreign() if tool.name not in known]


class _StandIn(FunctionTool):
    """A meta-tool, or a tool of another server of the scout: the gate answers its calls."""


def _stand_in(tool: Tool) -> FunctionTool:
    schema = tool.input_schema
    return _StandIn(name=tool.name, description=tool.description, input_model=schema, func=_never)


def _never(**_: object) -> str:
    raise AssertionError("the gate answers such calls")


async def _run_inside(context: FunctionInvocationContext, tool: FunctionTool, given: Json) -> Any:
    """Run a tool with all that the call of `tool_call` was given by the framework."""
    inner = FunctionInvocationContext(
        function=tool,
        arguments=given,
        session=context.session,
        kwargs=context.kwargs,
        tools=context.tools,
    )
    return await tool.invoke(arguments=given, context=inner)


def _functions(tools: Iterable[object]) -> list[FunctionTool]:
    return [tool for tool in tools if isinstance(tool, FunctionTool)]


def _define(tool: FunctionTool) -> Tool:
    return Tool.define(tool.name, description=tool.description, input_schema=tool.parameters())


def _told(reply: Reply) -> list[Content]:
    images = [(b64decode(str(one.get("data"))), str(one.get("mimeType"))) for one in reply.images]
    return [Content.from_text(reply.text), *(Content.from_data(*image) for image in images)]
