"""Google's Agent Development Kit: a toolset that shows an agent few tools and finds the others.

`LlmAgent(tools=[ToolScoutToolset([…])])`. The session lives in the state of the ADK session, under
one key per agent, so every session service saves it and sub-agents have their own. ADK makes the
calls, with its confirmation, callbacks and credentials.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from toolscout import Mode, Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    ApprovedCall,
    Json,
    Toolkit,
    add_notes,
    decode_images,
    is_object,
    make_exposed_name,
    merge_state,
    require_members,
    require_own_name,
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
Given = BaseTool | BaseToolset | Callable[..., Any]


class ToolScoutToolset(BaseToolset):
    """Hides functions, tools and toolsets behind `tool_search`, `tool_describe` and `tool_call`.

    By default found tools join the request and are called by their own names. Tools that declare
    no function, such as Google's own search, are passed through unchanged.
    """

    def __init__(
        self,
        tools: Sequence[Given],
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__()
        self._disable_cache()
        known = (BaseTool, BaseToolset)
        self._given = [tool if isinstance(tool, known) else FunctionTool(tool) for tool in tools]
        self._toolkit = Toolkit[BaseTool].create_growing(
            (), _define, scout=scout, settings=settings
        )

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return the tools of the next request, or all tools if there is no conversation."""
        tools = await self._list_inner(readonly_context)
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
        for toolset in self._list_toolsets():
            await toolset.process_llm_request(tool_context=tool_context, llm_request=llm_request)

    def get_auth_config(self) -> AuthConfig | None:
        """Return what an inner toolset needs to log in; ADK takes one per toolset."""
        return next(
            filter(None, (inner.get_auth_config() for inner in self._list_toolsets())), None
        )

    async def close(self) -> None:
        """Close the inner toolsets."""
        for toolset in self._list_toolsets():
            await toolset.close()

    def _disable_cache(self) -> None:
        # With ADK's cache, found tools would be missing until the next user message.
        require_members("google-adk", self, "_use_invocation_cache")
        self._use_invocation_cache = False

    def _list_toolsets(self) -> Iterator[BaseToolset]:
        return (given for given in self._given if isinstance(given, BaseToolset))

    async def _list_inner(self, context: ReadonlyContext | None) -> list[BaseTool]:
        listed: list[BaseTool] = []
        for given in self._given:
            known = isinstance(given, BaseTool)
            listed += [given] if known else await given.get_tools_with_prefix(context)
        return listed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """The tools of one request and its calls; inner toolsets may list others for other callers."""

    toolkit: Toolkit[BaseTool]
    natives: Mapping[str, BaseTool]
    only: frozenset[str]

    def list_tools(self, context: ReadonlyContext) -> Iterator[BaseTool]:
        for tool in (shown.tool for shown in self._open_session(context).list_shown()):
            native = self.natives.get(tool.name)
            yield _OwnTool(tool, self) if native is None else self._copy_tool(native, tool.name)

    async def call(self, name: str, *, args: Json, tool_context: ToolContext) -> object:
        """Answer a meta-tool, or run a tool that was found."""
        before = _read_state(tool_context)
        session = self._open_session(tool_context)
        confirmed = tool_context.tool_confirmation
        approved = confirmed is not None and confirmed.confirmed
        verdict = await self.toolkit.handle(session, name, args, approved=approved)
        if isinstance(verdict, ApprovedCall) and name == CALL and self._waits(verdict):
            verdict = require_own_name(session, verdict)
        if isinstance(verdict, ApprovedCall):
            result = await self._run_native(session, verdict, tool_context)
        else:
            result = _to_result(verdict or await session.handle(name, args), tool_context)
        _write_state(tool_context, session, before)
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
        session = self.toolkit.open_session(
            context.session.id, state.get("session"), only=self.only
        )
        message = _read_message(context)
        if message and state.get("turn") != context.invocation_id:
            session.user_message(message)
        return session

    def _copy_tool(self, native: BaseTool, name: str) -> BaseTool:
        # A copy keeps the class, by which ADK recognizes some tools.
        twin = cast("Any", copy.copy(native))
        twin.name = name
        twin.run_async = partial(self.call, name)
        twin.check_require_confirmation = partial(self.needs_confirmation, name)
        declared = _get_declaration(native)
        if name != native.name and declared is not None:
            twin._get_declaration = lambda: declared.model_copy(update={"name": name})
        return twin

    def _waits(self, call: ApprovedCall) -> bool:
        # ADK looks at the tool that was called, and any other has its result at once.
        is_native = self.toolkit.mode is Mode.NATIVE
        return self.natives[call.tool.name].is_long_running and is_native

    async def _run_native(
        self, session: Session, call: ApprovedCall, context: ToolContext
    ) -> object:
        native = self.natives[call.tool.name]
        failed = True
        try:
            result: object = await native.run_async(args=call.arguments, tool_context=context)
            failed = is_object(result) and "error" in result
        finally:
            if not _is_asking(context):
                session.settle(call, failed=failed)
        return add_notes(call, result)


class _OwnTool(BaseTool):
    """A meta-tool, or a tool of another server of the scout."""

    def __init__(self, tool: Tool, offer: _Offer) -> None:
        super().__init__(name=tool.name, description=tool.description or tool.name)
        self._schema = tool.input_schema
        self._offer = offer

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> object:
        return await self._offer.call(self.name, args=args, tool_context=tool_context)

    async def check_require_confirmation(
        self, args: dict[str, Any], tool_context: ToolContext
    ) -> bool:
        return await self._offer.needs_confirmation(self.name, args, tool_context)


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


def _write_state(context: ToolContext, session: Session, before: Json) -> None:
    # Of parallel calls, ADK keeps the value that was written last.
    current = _read_state(context).get("session")
    state = merge_state(session, before.get("session"), current)
    context.state[f"{KEY}:{context.agent_name}"] = {"turn": context.invocation_id, "session": state}


def _read_message(context: ReadonlyContext) -> str:
    parts = (context.user_content and context.user_content.parts) or ()
    return "\n".join(part.text for part in parts if part.text)


def _is_asking(context: ToolContext) -> bool:
    """Tell whether the call waits for a person or for credentials, and will be repeated."""
    call = context.function_call_id
    actions = context.actions
    return call in actions.requested_tool_confirmations or call in actions.requested_auth_configs


def _to_result(reply: Reply, context: ToolContext) -> Json:
    """Return a reply as ADK's result, and ask a person if the scout's policy demands it."""
    if reply.code == ApprovalNeeded.code and context.tool_confirmation is None:
        context.request_confirmation(hint=reply.text)
        context.actions.skip_summarization = True
    images = [Part.from_bytes(data=data, mime_type=mime) for data, mime in decode_images(reply)]
    result: Json = {"error" if reply.is_error else "result": reply.text}
    return {**result, "images": images} if images else result
