"""Google's Agent Development Kit: a toolset that shows an agent few tools and finds the others.

`LlmAgent(tools=[ToolScoutToolset([…])])`. The session lives in the state of the ADK session, under
one key for each agent, so every session service keeps it and sub-agents have their own. Calls run
as ADK runs them, with its confirmation, callbacks and credentials.
"""

import copy
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from toolscout import Mode, Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    Admission,
    Json,
    Toolkit,
    add_notes,
    is_object,
    make_exposed_name,
    merge_state,
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
"""The owner in the state's keys: `toolscout:AGENT`."""
Given = BaseTool | BaseToolset | Callable[..., Any]


class ToolScoutToolset(BaseToolset):
    """Hides functions, tools and toolsets behind `tool_search`, `tool_describe` and `tool_call`.

    Unless the settings say otherwise, found tools join the request and have their own names.
    Tools that declare no function, such as Google's own search, are passed on as they are.
    """

    def __init__(
        self,
        tools: Sequence[Given],
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__()
        # Otherwise what a search finds would be missing until the next user message.
        self._use_invocation_cache = False
        known = (BaseTool, BaseToolset)
        self._given = [tool if isinstance(tool, known) else FunctionTool(tool) for tool in tools]
        self._toolkit = Toolkit[BaseTool].create_growing(
            (), _define, scout=scout, settings=settings
        )

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return what the next request carries; all tools where there is no conversation."""
        tools = await self._listed(readonly_context)
        if readonly_context is None:
            return tools
        named = {make_exposed_name("", tool.name): tool for tool in tools}
        # A declaration is built anew each time, so it is asked only of what is new.
        known = {name for name, tool in named.items() if self._toolkit.get(name) is tool}
        natives = {n: t for n, t in named.items() if n in known or _declaration(t) is not None}
        passed = [tool for name, tool in named.items() if name not in natives]
        offer = _Offer(toolkit=self._toolkit, natives=natives, only=self._toolkit.register(natives))
        return [*passed, *offer.tools(readonly_context)]

    async def process_llm_request(
        self, *, tool_context: ToolContext, llm_request: LlmRequest
    ) -> None:
        """Let the toolsets inside add what they add to a request."""
        for toolset in self._toolsets():
            await toolset.process_llm_request(tool_context=tool_context, llm_request=llm_request)

    def get_auth_config(self) -> AuthConfig | None:
        """Return what a toolset inside needs to log in; ADK takes one for each toolset."""
        return next(filter(None, (inner.get_auth_config() for inner in self._toolsets())), None)

    async def close(self) -> None:
        """Close the toolsets inside."""
        for toolset in self._toolsets():
            await toolset.close()

    def _toolsets(self) -> Iterator[BaseToolset]:
        return (given for given in self._given if isinstance(given, BaseToolset))

    async def _listed(self, context: ReadonlyContext | None) -> list[BaseTool]:
        listed: list[BaseTool] = []
        for given in self._given:
            known = isinstance(given, BaseTool)
            listed += [given] if known else await given.get_tools_with_prefix(context)
        return listed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """What exists for one request and its calls; an inner toolset may list otherwise for others."""

    toolkit: Toolkit[BaseTool]
    natives: Mapping[str, BaseTool]
    only: frozenset[str]

    def tools(self, context: ReadonlyContext) -> Iterator[BaseTool]:
        for tool in (shown.tool for shown in self._open(context).shown()):
            native = self.natives.get(tool.name)
            yield _OwnTool(tool, self) if native is None else self._twin(native, tool.name)

    async def call(self, name: str, *, args: Json, tool_context: ToolContext) -> object:
        """Answer a meta-tool, or pass a call through the gate to the tool."""
        before, session = _kept(tool_context), self._open(tool_context)
        confirmed = tool_context.tool_confirmation
        approved = confirmed is not None and confirmed.confirmed
        verdict = await self.toolkit.handle(session, name, args, approved=approved)
        if isinstance(verdict, Admission) and name == CALL and self._waits(verdict):
            verdict = require_own_name(session, verdict)
        if isinstance(verdict, Admission):
            result = await self._run(session, verdict, tool_context)
        else:
            result = _told(verdict or await session.handle(name, args), tool_context)
        _keep(tool_context, session, before)
        return result

    async def needs_confirmation(self, name: str, args: Json, tool_context: ToolContext) -> bool:
        """Tell whether a person is to confirm a call, also one through `tool_call`."""
        session = self._open(tool_context)
        call = self.toolkit.predict_call(session, name, args)
        native = self.natives.get(call.tool.name) if call is not None else None
        if call is None or native is None:
            return False  # It will not be made, so nobody needs to be asked.
        return await native.check_require_confirmation(call.arguments, tool_context)

    def _open(self, context: ReadonlyContext) -> Session:
        kept = _kept(context)
        session = self.toolkit.open_session(context.session.id, kept.get("session"), only=self.only)
        said = _said(context)
        if said and kept.get("turn") != context.invocation_id:
            session.begin_turn(said)
        return session

    def _twin(self, native: BaseTool, name: str) -> BaseTool:
        # ADK takes the copy for the tool itself, whatever its class.
        twin, declared = cast("Any", copy.copy(native)), _declaration(native)
        twin.name, twin.run_async = name, partial(self.call, name)
        twin.check_require_confirmation = partial(self.needs_confirmation, name)
        if name != native.name and declared is not None:
            twin._get_declaration = lambda: declared.model_copy(update={"name": name})
        return twin

    def _waits(self, admission: Admission) -> bool:
        # ADK goes by the tool that was called: any other has its result at once.
        mode = self.toolkit.scout.settings.mode
        return self.natives[admission.tool.name].is_long_running and mode is Mode.NATIVE

    async def _run(self, session: Session, admission: Admission, context: ToolContext) -> object:
        native, failed = self.natives[admission.tool.name], True
        try:
            result: object = await native.run_async(args=admission.arguments, tool_context=context)
            failed = is_object(result) and "error" in result
        finally:
            if not _is_asking(context):
                session.settle(admission, failed=failed)
        return add_notes(admission, result)


class _OwnTool(BaseTool):
    """A meta-tool, or a tool of another server of the scout."""

    def __init__(self, tool: Tool, offer: _Offer) -> None:
        super().__init__(name=tool.name, description=tool.description or tool.name)
        self._schema, self._offer = tool.input_schema, offer

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


def _declaration(native: BaseTool) -> FunctionDeclaration | None:
    return native._get_declaration()  # pyright: ignore[reportPrivateUsage]  # ADK has no other way


def _define(native: BaseTool) -> Tool:
    declared = _declaration(native) or FunctionDeclaration(name=native.name)
    schema: object = declared.parameters_json_schema
    if schema is None and declared.parameters is not None:
        schema = declared.parameters.json_schema.model_dump(mode="json", exclude_none=True)
    return Tool.define(
        native.name,
        description=declared.description or native.description,
        input_schema=schema if is_object(schema) else None,
    )


def _kept(context: ReadonlyContext) -> Json:
    return to_object(cast("Any", context.state).get(f"{KEY}:{context.agent_name}"))


def _keep(context: ToolContext, session: Session, before: Json) -> None:
    # Of calls side by side, ADK takes the value that was written last.
    state = merge_state(session, before.get("session"), _kept(context).get("session"))
    context.state[f"{KEY}:{context.agent_name}"] = {"turn": context.invocation_id, "session": state}


def _said(context: ReadonlyContext) -> str:
    parts = (context.user_content and context.user_content.parts) or ()
    return "\n".join(part.text for part in parts if part.text)


def _is_asking(context: ToolContext) -> bool:
    """Tell whether the call waits for a person or for credentials, and will be made again."""
    call, actions = context.function_call_id, context.actions
    return call in actions.requested_tool_confirmations or call in actions.requested_auth_configs


def _told(reply: Reply, context: ToolContext) -> Json:
    """Return a reply as ADK's result, and ask a person where the scout's policy wants it."""
    if reply.code == ApprovalNeeded.code and context.tool_confirmation is None:
        context.request_confirmation(hint=reply.text)
        context.actions.skip_summarization = True
    blocks = (block for block in reply.blocks if block.get("type") == "image")
    images = [Part.from_bytes(data=b64decode(b["data"]), mime_type=b["mimeType"]) for b in blocks]
    said = {"error" if reply.is_error else "result": reply.text}
    return {**said, "images": images} if images else said
