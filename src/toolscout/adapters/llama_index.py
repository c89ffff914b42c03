"""LlamaIndex: a tool retriever that shows a workflow agent few tools and lets it find the others.

`FunctionAgent(tool_retriever=ToolScoutRetriever([…]))`. An agent asks its retriever before every
request, and again with the name of each call. The session lives in the workflow's `Context`, one
per agent, and `ctx.to_dict()` saves it.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from toolscout import Mode, Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    ApprovedCall,
    Json,
    Toolkit,
    make_exposed_name,
    merge_state,
    report_outcome,
    require_own_name,
    to_object,
)
from toolscout.errors import MissingExtra, UsageError

try:
    from llama_index.core.base.llms.types import ContentBlock, ImageBlock, TextBlock
    from llama_index.core.bridge.pydantic import BaseModel
    from llama_index.core.objects import ObjectRetriever
    from llama_index.core.schema import QueryType
    from llama_index.core.tools import (
        AsyncBaseTool,
        BaseTool,
        FunctionTool,
        ToolMetadata,
        ToolOutput,
        adapt_to_async_tool,
    )
    from workflows import Context
    from workflows.errors import WorkflowRuntimeError
    from workflows.runtime.types.results import WaitingForEvent
except ModuleNotFoundError as error:
    raise MissingExtra("llama-index-core", extra="llama-index") from error

KEY = "toolscout"
"""The key of the sessions in the context's store, by agent."""
RANKED = 5
"""How many tools a retriever returns outside a workflow."""
_AgentTools = Toolkit[AsyncBaseTool]


class ToolScoutRetriever(ObjectRetriever[BaseTool]):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    By default found tools join the request and are called by their own names.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]],
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        # The base class is not initialized: it would need an index of nodes.
        natives = [*map(_to_tool, tools)]
        self._toolkit = _AgentTools.create_growing(natives, _define, scout=scout, settings=settings)

    def retrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """Return the tools that fit best, or the one with that name, outside a workflow."""
        query = _read_query(str_or_query_bundle)
        named = self._toolkit.get(make_exposed_name("", query)) if query else None
        return [*([named] if named is not None else self._toolkit.rank([query], RANKED))]

    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """Return the tools of an agent's next request; for the name of a call, that tool too."""
        query = _read_query(str_or_query_bundle)
        context = _find_context()
        if context is None:
            return self.retrieve(query)
        turn = await _Turn.open(self._toolkit, context)
        if query != await context.store.get("user_msg_str", default=None):
            return [*turn.list_tools(), *turn.find_hidden(query)]
        if not await context.store.get("num_iterations", default=0):
            turn.session.user_message(query)
            await turn.save()
        return [*turn.list_tools()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The session of an agent during one step of a workflow."""

    toolkit: _AgentTools
    context: Context[Any]
    agent: str
    before: object
    session: Session

    @classmethod
    async def open(cls, toolkit: _AgentTools, context: Context[Any]) -> "_Turn":
        """Return the session of the agent whose step this is."""
        agent = str(await context.store.get("current_agent_name", default=""))
        before = to_object(await context.store.get(KEY, default=None)).get(agent)
        session = toolkit.open_session(agent or "agent", before)
        return cls(toolkit=toolkit, context=context, agent=agent, before=before, session=session)

    async def save(self) -> None:
        """Write the session to the context, merged with what parallel calls wrote."""
        async with self.context.store.edit_state() as state:
            sessions = to_object(state.get(KEY, None))
            after = merge_state(self.session, self.before, sessions.get(self.agent))
            state[KEY] = {**sessions, self.agent: after}

    def list_tools(self) -> Iterator[BaseTool]:
        return (self._create_tool(shown.tool) for shown in self.session.list_shown())

    def find_hidden(self, name: str) -> Iterator[BaseTool]:
        """Yield the tool of a call that was not in the request; its reply says how to find it."""
        tool = self.session.find_tool(name)
        if tool is not None and all(shown.tool.name != name for shown in self.session.list_shown()):
            yield self._create_tool(tool)

    def _create_tool(self, tool: Tool) -> BaseTool:
        native = self.toolkit.get(tool.name)
        return (
            _OwnTool(tool, self.toolkit)
            if native is None
            else _copy_tool(native, tool.name, self.toolkit)
        )


async def _call(toolkit: _AgentTools, name: str, arguments: Json) -> ToolOutput:
    """Answer a meta-tool, or run a tool that was found."""
    context = _find_context()
    if context is None:
        raise UsageError(f"{name} runs only in the workflow of an agent. Call it with `acall`.")
    turn = await _Turn.open(toolkit, context)
    verdict = await toolkit.handle(turn.session, name, arguments)
    if isinstance(verdict, ApprovedCall) and name == CALL and _ends_run(toolkit, verdict):
        verdict = require_own_name(turn.session, verdict)
    if isinstance(verdict, ApprovedCall):
        with report_outcome(turn.session, verdict, postponed=(WaitingForEvent,)):
            output = await _run_native(toolkit.get_native(verdict), verdict, context)
    else:
        output = _to_output(name, arguments, verdict or await turn.session.handle(name, arguments))
    await turn.save()
    return output


async def _run_native(
    native: AsyncBaseTool, call: ApprovedCall, context: Context[Any]
) -> ToolOutput:
    injected = native.ctx_param_name if isinstance(native, FunctionTool) else None
    given = {**call.arguments, injected: context} if injected else call.arguments
    output: ToolOutput = await cast("Any", native).acall(**given)
    if call.notes:
        output.blocks = [TextBlock(text="\n".join(call.notes)), *output.blocks]
    return output


def _ends_run(toolkit: _AgentTools, call: ApprovedCall) -> bool:
    # The agent looks at the tool that was called, so the result of `tool_call` ends nothing.
    native = toolkit.get_native(call)
    return native.metadata.return_direct and toolkit.mode is Mode.NATIVE


def _copy_tool(native: AsyncBaseTool, name: str, toolkit: _AgentTools) -> BaseTool:
    """Return a copy that agents treat like the original, but whose calls are checked first."""
    twin = cast("Any", copy.copy(native))
    injected = native.ctx_param_name if isinstance(native, FunctionTool) else None

    async def acall(**given: Any) -> ToolOutput:
        return await _call(toolkit, name, {key: v for key, v in given.items() if key != injected})

    twin.acall = acall
    twin.call = _refuse_sync
    return twin


class _OwnTool(AsyncBaseTool):
    """A meta-tool, or a tool of another server of the scout."""

    def __init__(self, tool: Tool, toolkit: _AgentTools) -> None:
        self._toolkit = toolkit
        self._name = tool.name
        description = tool.description or tool.name
        self._metadata = ToolMetadata(description, tool.name, fn_schema=_create_model(tool))

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def call(self, *args: Any, **arguments: Any) -> ToolOutput:
        _refuse_sync()

    async def acall(self, *args: Any, **arguments: Any) -> ToolOutput:
        return await _call(self._toolkit, self._name, arguments)


def _create_model(tool: Tool) -> type[BaseModel]:
    """Return a model with the schema of a tool: LLM classes take a schema in no other form."""

    class Arguments(BaseModel):
        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
            return copy.deepcopy(tool.input_schema)

    return Arguments


def _refuse_sync(*args: object, **arguments: object) -> NoReturn:
    raise UsageError("The session of an agent is asynchronous. Use `acall`.")


def _read_query(query: QueryType) -> str:
    return query if isinstance(query, str) else query.query_str


def _find_context() -> Context[Any] | None:
    try:
        return Context.get_step_context()
    except WorkflowRuntimeError:
        return None


def _to_tool(tool: BaseTool | Callable[..., Any]) -> AsyncBaseTool:
    known = tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool)
    return adapt_to_async_tool(known)


def _define(native: AsyncBaseTool) -> Tool:
    metadata = cast("Any", native.metadata)
    return Tool.define(
        metadata.get_name(),
        description=metadata.description,
        input_schema=metadata.get_parameters_dict(),
    )


def _to_output(name: str, arguments: Json, reply: Reply) -> ToolOutput:
    images = [
        ImageBlock(image=block["data"].encode(), image_mimetype=block["mimeType"])
        for block in reply.images
    ]
    blocks: list[ContentBlock] = [TextBlock(text=reply.text), *images]
    return ToolOutput(
        name, blocks=blocks, raw_input=arguments, raw_output=reply.text, is_error=reply.is_error
    )
