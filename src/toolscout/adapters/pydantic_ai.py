"""Pydantic AI: a search strategy for its `ToolSearch`, and a toolset with the three meta-tools.

`create_strategy` ranks for the SDK's own tool search, whatever provider it talks to.
`ToolScoutToolset` does everything itself, for any model. Its session lives in the metadata of the
meta-tools' results, so it follows the message history and ends at a compaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack, cast

from toolscout import Mode, Reply, Scout, Session, Tool
from toolscout.adapters._toolkit import (
    LIMIT_MAX,
    RESERVED_NAMES,
    ApprovedCall,
    Json,
    Toolkit,
    ToolkitOptions,
    add_notes,
    decode_images,
    is_object,
    list_request_tools,
    merge_states,
    report_outcome,
    to_object,
)
from toolscout.errors import ApprovalNeeded, MissingExtra

try:
    from pydantic_ai import BinaryContent, FunctionToolset, RunContext, ToolReturn
    from pydantic_ai import Tool as AgentTool
    from pydantic_ai.capabilities import ToolSearchFunc
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ToolCallPart,
        ToolReturnPart,
        post_compaction_window,
    )
    from pydantic_ai.tool_manager import ToolManager
    from pydantic_ai.tools import AgentDepsT, ToolDefinition, ToolFuncEither
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
    from pydantic_core import SchemaValidator, core_schema
except ModuleNotFoundError as error:
    raise MissingExtra("pydantic_ai", extra="pydantic-ai") from error

STATE = "toolscout"
"""The key of the session in the metadata of a result."""
_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
_Tools = dict[str, ToolsetTool[AgentDepsT]]


def create_strategy(*, scout: Scout | None = None) -> ToolSearchFunc[Any]:
    """Return a strategy for `ToolSearch`: toolscout's ranking over the agent's deferred tools."""
    toolkit = Toolkit[ToolDefinition]((), _define, scout=scout)

    def search(
        ctx: RunContext[Any], queries: Sequence[str], tools: Sequence[ToolDefinition]
    ) -> list[str]:
        only = toolkit.register({tool.name: tool for tool in tools})
        found = [tool.name for tool in toolkit.rank(queries, LIMIT_MAX, only=only)]
        # Tools that the model has already come last.
        return sorted(found, key=ctx.discovered_tool_names.__contains__)

    return search


@dataclass(kw_only=True)
class _OwnTool(ToolsetTool[AgentDepsT]):
    """A meta-tool, or a tool of another server of the scout."""

    inner: _Tools[AgentDepsT] = field(repr=False)
    """All wrapped tools, as they were when the request was made."""


@dataclass(init=False)
class ToolScoutToolset(WrapperToolset[AgentDepsT]):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Takes functions and tools, or any toolset. By default found tools join the request at its end
    and are called by their own names.
    """

    toolkit: Toolkit[ToolDefinition] = field(repr=False)
    """The catalogue, shared by the copies of the toolset that the SDK makes for its runs."""

    def __init__(
        self,
        wrapped: AbstractToolset[AgentDepsT]
        | Sequence[AgentTool[AgentDepsT] | ToolFuncEither[AgentDepsT, ...]],
        *,
        toolkit: Toolkit[ToolDefinition] | None = None,
        **options: Unpack[ToolkitOptions],
    ) -> None:
        if not isinstance(wrapped, AbstractToolset):
            wrapped = FunctionToolset(list(wrapped))
        super().__init__(wrapped)
        self.toolkit = toolkit or Toolkit((), _define, mode=Mode.NATIVE, **options)

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> _Tools[AgentDepsT]:
        """Return the meta-tools, the pinned tools and what the conversation has found."""
        inner = dict(await self.wrapped.get_tools(ctx))
        for name, known in inner.items():
            if known.tool_def.defer_loading:
                # toolscout hides the tools here; the SDK would add a second search for these.
                definition = replace(known.tool_def, defer_loading=False)
                inner[name] = replace(known, tool_def=definition)
        shown: _Tools[AgentDepsT] = {}
        for tool in list_request_tools(self._open_session(ctx, inner)):
            native = self.toolkit.get(tool.name)
            if native is not None:
                shown[native.name] = inner[native.name]
                continue
            schema = tool.input_schema
            definition = ToolDefinition(
                name=tool.name, description=tool.description, parameters_json_schema=schema
            )
            shown[tool.name] = _OwnTool(
                toolset=self,
                tool_def=definition,
                max_retries=ctx.max_retries,
                args_validator=_OBJECT,
                inner=inner,
            )
        return shown

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],
    ) -> Any:
        """Answer a meta-tool, or forward a call of a found tool to its toolset."""
        inner = tool.inner if isinstance(tool, _OwnTool) else None
        session = self._open_session(ctx, inner)
        sent = _find_arguments(ctx, tool_args) if inner is None else tool_args
        verdict = await self.toolkit.handle(session, name, sent, approved=ctx.tool_call_approved)
        if isinstance(verdict, Reply):
            if verdict.code == ApprovalNeeded.code:
                raise ApprovalRequired(metadata=verdict.details)
            if verdict.is_error and not verdict.references:
                raise ToolFailed(verdict.text)
            images = [BinaryContent(data, media_type=mime) for data, mime in decode_images(verdict)]
            content = [verdict.text, *images] if images else verdict.text
            return ToolReturn(content, metadata={STATE: session.to_json()})
        if verdict is None:
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        with report_outcome(session, verdict, postponed=(ApprovalRequired, CallDeferred)):
            if inner is None:
                return await self.wrapped.call_tool(name, tool_args, ctx, tool)
            result = await self._run_inner(verdict, ctx, inner)
        is_whole = isinstance(result, ToolReturn)
        whole = cast("ToolReturn[Any]", result if is_whole else ToolReturn(result))
        whole = replace(whole, return_value=add_notes(verdict, whole.return_value))
        metadata = cast("object", whole.metadata or {})
        if not is_object(metadata):
            return whole
        return replace(whole, metadata=metadata | {STATE: session.to_json()})

    def _open_session(
        self, ctx: RunContext[AgentDepsT], inner: _Tools[AgentDepsT] | None
    ) -> Session:
        # The request that showed a found tool has registered it already.
        defined = {name: tool.tool_def for name, tool in (inner or {}).items()}
        only = self.toolkit.register(defined) if defined else None
        id_ = ctx.conversation_id or ctx.run_id or "run"
        return self.toolkit.open_session(id_, _read_state(ctx.messages), only=only)

    async def _run_inner(
        self, approved: ApprovedCall, ctx: RunContext[AgentDepsT], inner: _Tools[AgentDepsT]
    ) -> Any:
        """Make a call as the SDK does, with its validation, hooks, approval and deferral."""
        definition = inner[approved.tool.leaf].tool_def
        asked = {"tool_name": definition.name, "arguments": approved.arguments}
        if definition.kind == "external":
            raise CallDeferred(metadata=asked)
        if definition.kind == "unapproved" and not ctx.tool_call_approved:
            raise ApprovalRequired(metadata=asked)
        manager = ToolManager(
            toolset=self.wrapped, root_capability=ctx.root_capability, ctx=ctx, tools=inner
        )
        call = ToolCallPart(
            definition.name, approved.arguments, tool_call_id=ctx.tool_call_id or ""
        )
        # Retries are counted once, for `tool_call`.
        valid = await manager.validate_tool_call(
            call,
            approved=ctx.tool_call_approved,
            metadata=ctx.tool_call_metadata,
            wrap_validation_errors=False,
        )
        return await manager.execute_tool_call(valid, wrap_validation_errors=False)


def _define(definition: ToolDefinition) -> Tool:
    # The metadata of a definition has the annotations of an MCP server.
    metadata: Mapping[str, Any] = definition.metadata or {}
    row = {
        "name": definition.name,
        "description": definition.description,
        "inputSchema": definition.parameters_json_schema,
        "annotations": metadata.get("annotations"),
        "_meta": metadata.get("meta"),
    }
    return Tool.from_mcp({key: value for key, value in row.items() if value is not None})


def _read_state(messages: Sequence[ModelMessage]) -> Json | None:
    """Return the session from the messages that the model still sees."""
    called: list[str] = []
    for message in reversed(post_compaction_window(messages)):
        if not isinstance(message, ModelRequest):
            continue
        parts = [part for part in message.parts if isinstance(part, ToolReturnPart)]
        # Other tools may put anything into their metadata.
        ours = [to_object(part.metadata) for part in parts if part.tool_name in RESERVED_NAMES]
        states = [metadata[STATE] for metadata in ours if metadata.get(STATE)]
        if states:
            # Calls of one response start from the same state, and each adds to it.
            return merge_states(*states, used=reversed(called))
        called += (part.tool_name for part in reversed(parts))
    return None


def _find_arguments(ctx: RunContext[Any], tool_args: dict[str, Any]) -> object:
    """Return the arguments as the model wrote them; the SDK's are Python objects by now."""
    for message in reversed(ctx.messages):
        for part in message.parts:
            if isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id:
                return part.args_as_dict()
    return tool_args
