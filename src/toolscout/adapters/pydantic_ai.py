"""Pydantic AI: a search strategy for its `ToolSearch`, and a toolset with the three meta-tools.

`scout_strategy` ranks for the SDK's own tool search, whatever provider it talks to.
`ToolScoutToolset` does the whole job itself, for any model. Its session lives in the metadata of
the meta-tools' results, so it goes where the message history goes and ends at a compaction.
"""

from base64 import b64decode
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from toolscout import Mode, Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    LIMIT_MAX,
    RESERVED_NAMES,
    Admission,
    Json,
    Toolkit,
    is_object,
    merge_states,
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


def scout_strategy(*, scout: Scout | None = None) -> ToolSearchFunc[Any]:
    """Return a strategy for `ToolSearch`: toolscout's ranking over the agent's deferred tools."""
    toolkit = Toolkit[ToolDefinition]((), _tool, scout=scout)

    def search(
        ctx: RunContext[Any], queries: Sequence[str], tools: Sequence[ToolDefinition]
    ) -> list[str]:
        only = toolkit.register({tool.name: tool for tool in tools})
        found = [tool.name for tool in toolkit.rank(queries, LIMIT_MAX, only=only)]
        # What the model has already takes no place from what it lacks.
        return sorted(found, key=ctx.discovered_tool_names.__contains__)

    return search


@dataclass(kw_only=True)
class _OwnTool(ToolsetTool[AgentDepsT]):
    """A meta-tool, or a tool of another server of the scout."""

    inner: _Tools[AgentDepsT] = field(repr=False)
    """All tools that are wrapped, as they were when the request was made."""


@dataclass(init=False)
class ToolScoutToolset(WrapperToolset[AgentDepsT]):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Takes functions and tools, or any toolset. Unless the settings say otherwise, found tools join
    the request at the end and are called by their own names.
    """

    toolkit: Toolkit[ToolDefinition] = field(repr=False)
    """The catalogue; copies of the toolset that the SDK makes for its runs share it."""

    def __init__(
        self,
        wrapped: AbstractToolset[AgentDepsT]
        | Sequence[AgentTool[AgentDepsT] | ToolFuncEither[AgentDepsT, ...]],
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
        toolkit: Toolkit[ToolDefinition] | None = None,
    ) -> None:
        if not isinstance(wrapped, AbstractToolset):
            wrapped = FunctionToolset(list(wrapped))
        super().__init__(wrapped)
        if scout is None and settings is None:
            settings = Settings(mode=Mode.NATIVE)
        self.toolkit = toolkit or Toolkit((), _tool, scout=scout, settings=settings)

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> _Tools[AgentDepsT]:
        """Return the meta-tools, then what is pinned and what the conversation has found."""
        wrapped = await self.wrapped.get_tools(ctx)
        inner = {name: _undeferred(tool) for name, tool in wrapped.items()}
        session = self._session(ctx, inner)
        return dict(self._offered(ctx, session, inner))

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],
    ) -> Any:
        """Answer a meta-tool, or pass a call of a found tool through the gate to its toolset."""
        inner = tool.inner if isinstance(tool, _OwnTool) else None
        session = self._session(ctx, inner)
        sent = _as_sent(ctx, tool_args) if inner is None else tool_args
        verdict = await self.toolkit.handle(session, name, sent, approved=ctx.tool_call_approved)
        if isinstance(verdict, Reply):
            return _told(session, verdict)
        if inner is None or verdict is None:
            with _settled(session, verdict):
                return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        with _settled(session, verdict):
            result = await self._run(verdict, ctx, inner)
        return _returned(session, verdict, result)

    def _session(self, ctx: RunContext[AgentDepsT], inner: _Tools[AgentDepsT] | None) -> Session:
        # A found tool is known from the request that offered it, so it is not learnt again.
        defined = {name: tool.tool_def for name, tool in (inner or {}).items()}
        only = self.toolkit.register(defined) if defined else None
        id_ = ctx.conversation_id or ctx.run_id or "run"
        return self.toolkit.open_session(id_, _state(ctx.messages), only=only)

    def _offered(
        self, ctx: RunContext[AgentDepsT], session: Session, inner: _Tools[AgentDepsT]
    ) -> Iterator[tuple[str, ToolsetTool[AgentDepsT]]]:
        for tool in (shown.tool for shown in session.shown()):
            native = self.toolkit.get(tool.name)
            if native is not None:
                yield native.name, inner[native.name]
                continue
            yield (
                tool.name,
                _OwnTool(
                    toolset=self,
                    tool_def=ToolDefinition(
                        name=tool.name,
                        description=tool.description,
                        parameters_json_schema=tool.input_schema,
                    ),
                    max_retries=ctx.max_retries,
                    args_validator=_OBJECT,
                    inner=inner,
                ),
            )

    async def _run(
        self, admitted: Admission, ctx: RunContext[AgentDepsT], inner: _Tools[AgentDepsT]
    ) -> Any:
        """Make a call as the SDK does, with its validation, hooks, approval and deferral."""
        definition = inner[admitted.tool.leaf].tool_def
        asked = {"tool_name": definition.name, "arguments": admitted.arguments}
        if definition.kind == "external":
            raise CallDeferred(metadata=asked)
        if definition.kind == "unapproved" and not ctx.tool_call_approved:
            raise ApprovalRequired(metadata=asked)
        manager = ToolManager(
            toolset=self.wrapped, root_capability=ctx.root_capability, ctx=ctx, tools=inner
        )
        call = ToolCallPart(
            definition.name, admitted.arguments, tool_call_id=ctx.tool_call_id or ""
        )
        # Retries are counted once, for `tool_call`.
        valid = await manager.validate_tool_call(
            call,
            approved=ctx.tool_call_approved,
            metadata=ctx.tool_call_metadata,
            wrap_validation_errors=False,
        )
        return await manager.execute_tool_call(valid, wrap_validation_errors=False)


def _undeferred(tool: ToolsetTool[AgentDepsT]) -> ToolsetTool[AgentDepsT]:
    # Hiding is toolscout's here; the SDK's own search would offer a second one.
    if not tool.tool_def.defer_loading:
        return tool
    return replace(tool, tool_def=replace(tool.tool_def, defer_loading=False))


def _tool(definition: ToolDefinition) -> Tool:
    # What an MCP server said of a tool is in the metadata of its definition.
    told: Mapping[str, Any] = definition.metadata or {}
    row = {
        "name": definition.name,
        "description": definition.description,
        "inputSchema": definition.parameters_json_schema,
        "annotations": told.get("annotations"),
        "_meta": told.get("meta"),
    }
    return Tool.from_mcp({key: value for key, value in row.items() if value is not None})


def _state(messages: Sequence[ModelMessage]) -> Json | None:
    """Return the session as the messages have it that the model still sees."""
    called: list[str] = []
    for message in reversed(post_compaction_window(messages)):
        if not isinstance(message, ModelRequest):
            continue
        parts = [part for part in message.parts if isinstance(part, ToolReturnPart)]
        states = [*filter(None, map(_kept, parts))]
        if states:
            # Calls of one response start from the same state, and each adds to it.
            return merge_states(*states, used=reversed(called))
        called += (part.tool_name for part in reversed(parts))
    return None


def _kept(part: ToolReturnPart) -> object:
    # Other tools have metadata of their own, and may write there what they like.
    told = cast("object", part.metadata)
    return told.get(STATE) if part.tool_name in RESERVED_NAMES and is_object(told) else None


def _as_sent(ctx: RunContext[Any], tool_args: dict[str, Any]) -> object:
    """Return the arguments as the model wrote them: the SDK's are Python objects by now."""
    for message in reversed(ctx.messages):
        for part in message.parts:
            if isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id:
                return part.args_as_dict()
    return tool_args


@contextmanager
def _settled(session: Session, admitted: Admission | None) -> Generator[None]:
    """Tell the session how a call went, unless the SDK has put it off."""
    failed = True
    try:
        yield
        failed = False
    except (ApprovalRequired, CallDeferred):
        admitted = None
        raise
    finally:
        if admitted is not None:
            session.settle(admitted, failed=failed)


def _told(session: Session, reply: Reply) -> ToolReturn[Any]:
    """Return a reply as the SDK's result, with the session in it."""
    if reply.code == ApprovalNeeded.code:
        raise ApprovalRequired(metadata=reply.details)
    if reply.is_error and not reply.references:
        raise ToolFailed(reply.text)
    images = [_image(block) for block in reply.blocks if block.get("type") == "image"]
    said = [reply.text, *images] if images else reply.text
    return ToolReturn(said, metadata=_kept_in(session))


def _returned(session: Session, admitted: Admission, result: Any) -> ToolReturn[Any]:
    """Return a tool's own result, with the session in it and what was repaired before it."""
    whole = (
        cast("ToolReturn[Any]", result) if isinstance(result, ToolReturn) else ToolReturn(result)
    )
    if isinstance(whole.return_value, str):
        notes = (f"({repair})" for repair in admitted.repairs)
        whole = replace(whole, return_value="\n".join((*notes, whole.return_value)))
    told = cast("object", whole.metadata or {})
    return replace(whole, metadata=told | _kept_in(session)) if is_object(told) else whole


def _kept_in(session: Session) -> Json:
    return {STATE: session.to_json()}


def _image(block: Json) -> BinaryContent:
    return BinaryContent(b64decode(str(block.get("data"))), media_type=str(block.get("mimeType")))
