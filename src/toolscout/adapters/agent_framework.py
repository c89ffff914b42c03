"""Microsoft's Agent Framework: a context provider that hides an agent's tools.

`Agent(client=…, tools=[…], context_providers=[ToolScoutProvider()])`. The agent keeps all its tools
and runs them itself, with its middleware and approvals, but its requests carry only a few. The
session lives in the state of the `AgentSession`, under the provider's `source_id`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Unpack, cast

from pydantic_core import to_jsonable_python

from toolscout import Session, Tool
from toolscout.adapters._toolkit import (
    ApprovedCall,
    Json,
    Toolkit,
    ToolkitOptions,
    build_meta_tools,
    decode_images,
    is_object,
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

STATE = "session"
"""The key of the session in the provider's state."""
ASKED = "asked"
"""The key of the calls that a person was asked about."""
ALWAYS = "always_require"
"""The approval mode of tools that the framework itself asks about."""

Next = Callable[[], Awaitable[None]]


class ToolScoutProvider(ContextProvider):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Without `tools`, it hides all functions of the agent, including those of MCP servers. With
    `tools`, it hides these, and the agent's own stay visible. By default found tools join the
    request at its end and are called by their own names.
    """

    def __init__(
        self,
        tools: Sequence[FunctionTool | Callable[..., Any]] | None = None,
        *,
        source_id: str = "toolscout",
        **options: Unpack[ToolkitOptions],
    ) -> None:
        super().__init__(source_id)
        self._given = _select_functions(normalize_tools(tools)) if tools is not None else None
        self._toolkit = Toolkit[FunctionTool].create_growing(
            (),
            lambda t: Tool.define(t.name, description=t.description, input_schema=t.parameters()),
            **options,
        )

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Add the meta-tools, and the middleware that hides and guards the other tools."""
        run = _Run(
            toolkit=self._toolkit,
            id=session.session_id,
            state=state,
            message="\n".join(message.text for message in context.input_messages),
            only=None if self._given is None else frozenset(tool.name for tool in self._given),
        )
        own = [_create_stand_in(tool) for tool in (*build_meta_tools(), *run.list_foreign())]
        context.extend_tools(self.source_id, [*(self._given or ()), *own])
        context.extend_middleware(self.source_id, [run.show, run.guard])


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run of the agent, and the session that its requests and calls share."""

    toolkit: Toolkit[FunctionTool]
    id: str
    state: Json
    """The provider's part of the agent's session."""
    message: str
    """The user's message; empty once the session has seen it."""
    only: frozenset[str] | None
    """The tools to hide; None hides all functions."""
    names: frozenset[str] = frozenset()
    """The exposed names of the hidden tools that exist now."""
    session: Session | None = None

    def open_session(self, tools: Iterable[object]) -> Session:
        """Return the session, which may use the tools that the run has now."""
        hidden = {tool.name: tool for tool in _select_functions(tools) if self.is_hidden(tool)}
        names = self.toolkit.register(hidden)
        if self.session is None or names != self.names:
            self.names = names
            self.session = self.toolkit.open_session(self.id, self.state.get(STATE), only=names)
        if self.message:
            self.session.user_message(self.message)
            self.message = ""
        return self.session

    def is_hidden(self, tool: object) -> bool:
        """Tell whether the model has to find a tool before it can call it."""
        if not isinstance(tool, FunctionTool) or isinstance(tool, _StandIn):
            return False
        # A tool that is only declared here runs elsewhere, where nothing can be guarded.
        return not tool.declaration_only and (self.only is None or tool.name in self.only)

    def list_foreign(self) -> list[Tool]:
        """Return the loaded tools of the scout's other servers."""
        session = self.session or self.toolkit.open_session(self.id, self.state.get(STATE))
        loaded = [session.find_tool(name) for name in session.loaded]
        return [t for t in loaded if t is not None and self.toolkit.get(t.name) is None]

    async def show(self, context: ChatContext, call_next: Next) -> None:
        """Replace the hidden tools of a request by the meta-tools and what was found."""
        options = dict(context.options or {})
        tools = cast("list[object]", options.get("tools") or [])
        choice = options.get("tool_choice")
        forced = choice.get("required_function_name") if is_object(choice) else None
        session = self.open_session(tools)
        found = self.toolkit.list_tools(session, _create_stand_in, str(forced or ""))
        self.state[STATE] = session.to_json()
        passed = [t for t in tools if not self.is_hidden(t) and not isinstance(t, _StandIn)]
        # The original list stays unchanged: the agent looks up the tools of calls in it.
        context.options = {**options, "tools": [*passed, *found]}
        await call_next()

    async def guard(self, context: FunctionInvocationContext, call_next: Next) -> None:
        """Answer a meta-tool, or let a call through if its tool was found."""
        tool = context.function
        if not self.is_hidden(tool) and not isinstance(tool, _StandIn):
            return await call_next()
        session = self.open_session(context.tools or [tool])
        given = cast("object", to_jsonable_python(context.arguments))
        approved = self._is_approved(context)
        verdict = await self.toolkit.handle(session, tool.name, given, approved=approved)
        try:
            if isinstance(verdict, ApprovedCall):
                await self._make_call(context, session, verdict, call_next)
            elif verdict is not None and verdict.code == ApprovalNeeded.code:
                self._ask_person(context)
            elif verdict is not None:
                images = [Content.from_data(data, mime) for data, mime in decode_images(verdict)]
                context.result = [Content.from_text(verdict.text), *images]
        finally:
            self.state[STATE] = session.to_json()
            # Newly found tools of the scout's other servers must be known to the agent.
            live = context.tools if context.tools is not None else []
            known = {tool.name for tool in _select_functions(live)}
            live += [_create_stand_in(t) for t in self.list_foreign() if t.name not in known]

    async def _make_call(
        self,
        context: FunctionInvocationContext,
        session: Session,
        call: ApprovedCall,
        call_next: Next,
    ) -> None:
        """Let the framework make a call, or make the call inside a `tool_call`."""
        native = self.toolkit.get_native(call)
        is_inner = isinstance(context.function, _StandIn)
        if is_inner and native.approval_mode == ALWAYS and not self._is_approved(context):
            self._ask_person(context)
            return
        if call.repairs and not is_inner:
            context.arguments = call.arguments
        with report_outcome(session, call):
            if is_inner:
                # The tool gets everything that the framework passed to the call of `tool_call`.
                inner = FunctionInvocationContext(
                    function=native,
                    arguments=call.arguments,
                    session=context.session,
                    kwargs=context.kwargs,
                    tools=context.tools,
                )
                context.result = await native.invoke(arguments=call.arguments, context=inner)
            else:
                await call_next()
        notes = [Content.from_text(note) for note in call.notes]
        if notes and isinstance(context.result, list):
            context.result = [*notes, *cast("list[Content]", context.result)]

    def _is_approved(self, context: FunctionInvocationContext) -> bool:
        # The framework also approves the other calls of a response in which it asked about one.
        is_asked = context.metadata.get("call_id") in self.state.get(ASKED, ())
        is_answered = context.metadata.get("approval_response") is not None
        return is_answered and (is_asked or context.function.approval_mode == ALWAYS)

    def _ask_person(self, context: FunctionInvocationContext) -> None:
        """Make the framework ask a person to approve a call."""
        call_id = str(context.metadata["call_id"])
        id_ = context.metadata.get("function_call_occurrence_id")
        given = cast("Json", to_jsonable_python(context.arguments))
        call = Content.from_function_call(call_id, context.function.name, arguments=given, id=id_)
        self.state[ASKED] = [*self.state.get(ASKED, ()), call_id]
        context.result = Content.from_function_approval_request(id_ or call_id, call)


class _StandIn(FunctionTool):
    """A meta-tool, or a tool of another server of the scout; `guard` answers its calls."""


def _create_stand_in(tool: Tool) -> FunctionTool:
    schema = tool.input_schema
    return _StandIn(name=tool.name, description=tool.description, input_model=schema, func=_fail)


def _fail(**_: object) -> str:
    raise AssertionError("The guard answers calls of this tool.")


def _select_functions(tools: Iterable[object]) -> list[FunctionTool]:
    return [tool for tool in tools if isinstance(tool, FunctionTool)]
