"""Google's Agent Development Kit: a toolset that shows an agent few tools and finds the others.

`LlmAgent(tools=[ToolScoutToolset([…])])`. The session lives in the state of the ADK session, under
one key per agent, so every session service saves it and sub-agents have their own. ADK makes the
calls, with its confirmation, callbacks and credentials.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack, cast

from toolscout import Reply, Session, Tool
from toolscout.adapters._toolkit import (
    ApprovedCall,
    Json,
    Toolkit,
    ToolkitOptions,
    add_notes,
    decode_images,
    is_object,
    list_request_tools,
    make_exposed_name,
    merge_state,
    require_members,
    to_object,
)
from toolscout.errors import ApprovalNeeded, MissingExtra

try:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.auth.auth_tool import AuthConfig
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.adk.tools.function_tool import FunctionTool
    from google.adk.tools.tool_context import ToolContext
    from google.genai.types import FunctionDeclaration, Part
except ModuleNotFoundError as error:
    raise MissingExtra("google-adk", extra="google-adk") from error

KEY = "toolscout"
"""The prefix of the keys in the state: `toolscout:AGENT`."""


class ToolScoutToolset(BaseToolset):
    """Hides functions, tools and toolsets behind `tool_search`, `tool_describe` and `tool_call`.

    By default found tools join the request and are called by their own names. Tools that declare
    no function, such as Google's own search, are passed through unchanged.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool | BaseToolset | Callable[..., Any]],
        **options: Unpack[ToolkitOptions],
    ) -> None:
        super().__init__()
        # With ADK's cache, found tools would be missing until the next user message.
        require_members("google-adk", self, "_use_invocation_cache")
        self._use_invocation_cache = False
        known = (BaseTool, BaseToolset)
        self._given = [tool if isinstance(tool, known) else FunctionTool(tool) for tool in tools]
        self._toolsets = [given for given in self._given if isinstance(given, BaseToolset)]
        # ADK looks at the tool that was called, and any other has its result at once.
        self._toolkit = Toolkit[BaseTool].create_growing(
            (), _define, by_name=lambda tool: tool.is_long_running, **options
        )

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return the tools of the next request, or all tools if there is no conversation."""
        tools: list[BaseTool] = []
        for given in self._given:
            is_tool = isinstance(given, BaseTool)
            tools += [given] if is_tool else await given.get_tools_with_prefix(readonly_context)
        if readonly_context is None:
            return tools
        named = {make_exposed_name("", tool.name): tool for tool in tools}
        # ADK builds a declaration each time, so only new tools are asked for theirs.
        known = {name for name, tool in named.items() if self._toolkit.get(name) is tool}
        natives = {n: t for n, t in named.items() if n in known or _get_declaration(t) is not None}
        passed = [tool for name, tool in named.items() if name not in natives]
        offer = _Offer(toolkit=self._toolkit, natives=natives, only=self._toolkit.register(natives))
        return [*passed, *offer.list_tools(readonly_context)]

    async def process_llm_request(
        self, *, tool_context: ToolContext, llm_request: LlmRequest
    ) -> None:
        """Let the inner toolsets add to a request."""
        for toolset in self._toolsets:
            await toolset.process_llm_request(tool_context=tool_context, llm_request=llm_request)

    def get_auth_config(self) -> AuthConfig | None:
        """Return what an inner toolset needs to log in; ADK takes one per toolset."""
        return next(filter(None, (inner.get_auth_config() for inner in self._toolsets)), None)

    async def close(self) -> None:
        """Close the inner toolsets."""
        for toolset in self._toolsets:
            await toolset.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """The tools of one request and its calls; inner toolsets may list others for other callers."""

    toolkit: Toolkit[BaseTool]
    natives: Mapping[str, BaseTool]
    only: frozenset[str]

    def list_tools(self, context: ReadonlyContext) -> list[BaseTool]:
        return [self._create_tool(tool) for tool in list_request_tools(self._open_session(context))]

    async def call(self, name: str, *, args: Json, tool_context: ToolContext) -> object:
        """Answer a meta-tool, or run a tool that was found."""
        before = _read_state(tool_context)
        session = self._open_session(tool_context)
        confirmed = tool_context.tool_confirmation
        approved = confirmed is not None and confirmed.confirmed
        verdict = await self.toolkit.handle(session, name, args, approved=approved)
        if isinstance(verdict, ApprovedCall):
            result = await self._run_native(session, verdict, tool_context)
        else:
            result = _to_result(verdict or await session.handle(name, args), tool_context)
        # Of parallel calls, ADK keeps the value that was written last.
        current = _read_state(tool_context).get("session")
        state = merge_state(session, before.get("session"), current)
        entry = {"turn": tool_context.invocation_id, "session": state}
        tool_context.state[f"{KEY}:{tool_context.agent_name}"] = entry
        return result

    async def needs_confirmation(self, name: str, args: Json, tool_context: ToolContext) -> bool:
        """Tell whether a person has to confirm a call, also one through `tool_call`."""
        session = self._open_session(tool_context)
        call = self.toolkit.predict_call(session, name, args)
        native = self.natives.get(call.tool.name) if call is not None else None
        if call is None or native is None:
            return False  # The call will be refused, so nobody needs to confirm it.
        return await native.check_require_confirmation(call.arguments, tool_context)

    def _open_session(self, context: ReadonlyContext) -> Session:
        state = _read_state(context)
        known = state.get("session")
        session = self.toolkit.open_session(context.session.id, known, only=self.only)
        parts = (context.user_content and context.user_content.parts) or ()
        message = "\n".join(part.text for part in parts if part.text)
        if message and state.get("turn") != context.invocation_id:
            session.user_message(message)
        return session

    def _create_tool(self, tool: Tool) -> BaseTool:
        native = self.natives.get(tool.name) or _OwnTool(tool)
        # A copy keeps the class, by which ADK recognizes some tools.
        twin = cast("Any", copy.copy(native))
        twin.name = tool.name
        twin.run_async = partial(self.call, tool.name)
        twin.check_require_confirmation = partial(self.needs_confirmation, tool.name)
        declared = _get_declaration(native)
        if tool.name != native.name and declared is not None:
            twin._get_declaration = lambda: declared.model_copy(update={"name": tool.name})
        return twin

    async def _run_native(
        self, session: Session, call: ApprovedCall, context: ToolContext
    ) -> object:
        native = self.natives[call.tool.name]
        failed = True
        try:
            result: object = await native.run_async(args=call.arguments, tool_context=context)
            failed = is_object(result) and "error" in result
        finally:
            # A call that asks a person or for credentials will be repeated.
            asked = context.actions
            waiting = {*asked.requested_tool_confirmations, *asked.requested_auth_configs}
            if context.function_call_id not in waiting:
                session.settle(call, failed=failed)
        return add_notes(call, result)


class _OwnTool(BaseTool):
    """A meta-tool, or a tool of another server of the scout."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(name=tool.name, description=tool.description or tool.name)
        self._schema = tool.input_schema

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )


def _get_declaration(native: BaseTool) -> FunctionDeclaration | None:
    """Return what a tool declares to the model; ADK has no public way to ask for it."""
    require_members("google-adk", native, "_get_declaration")
    return native._get_declaration()  # pyright: ignore[reportPrivateUsage]


def _define(native: BaseTool) -> Tool:
    declared = _get_declaration(native) or FunctionDeclaration(name=native.name)
    schema: object = declared.parameters_json_schema
    if schema is None and declared.parameters is not None:
        schema = declared.parameters.json_schema.model_dump(mode="json", exclude_none=True)
    return Tool.define(
        native.name,
        description=declared.description or native.description,
        input_schema=schema if is_object(schema) else None,
    )


def _read_state(context: ReadonlyContext) -> Json:
    return to_object(cast("Any", context.state).get(f"{KEY}:{context.agent_name}"))


def _to_result(reply: Reply, context: ToolContext) -> Json:
    """Return a reply as ADK's result, and ask a person if the scout's policy demands it."""
    if reply.code == ApprovalNeeded.code and context.tool_confirmation is None:
        context.request_confirmation(hint=reply.text)
        context.actions.skip_summarization = True
    images = [Part.from_bytes(data=data, mime_type=mime) for data, mime in decode_images(reply)]
    result: Json = {"error" if reply.is_error else "result": reply.text}
    return {**result, "images": images} if images else result
