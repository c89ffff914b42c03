"""LlamaIndex: a tool retriever that shows a workflow agent few tools and lets it find the others.

`FunctionAgent(tool_retriever=ToolScoutRetriever([…]))`. An agent asks its retriever before every
request, and again with the name of each call. The session lives in the workflow's `Context`, one
per agent, and `ctx.to_dict()` saves it.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Unpack, cast

from toolscout import Session, Tool
from toolscout.adapters._toolkit import (
    ApprovedCall,
    Json,
    Toolkit,
    ToolkitOptions,
    list_request_tools,
    make_exposed_name,
    merge_state,
    report_outcome,
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
        self, tools: Sequence[BaseTool | Callable[..., Any]], **options: Unpack[ToolkitOptions]
    ) -> None:
        # The base class is not initialized: it would need an index of nodes.
        natives = [
            adapt_to_async_tool(t if isinstance(t, BaseTool) else FunctionTool.from_defaults(t))
            for t in tools
        ]
        # The agent looks at the tool that was called, and `tool_call` ends no run.
        self._toolkit = _AgentTools.create_growing(
            natives, _define, by_name=lambda native: native.metadata.return_direct, **options
        )

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
        is_message = query == await context.store.get("user_msg_str", default=None)
        if is_message and not await context.store.get("num_iterations", default=0):
            turn.session.user_message(query)
            await turn.save()
        tools = list_request_tools(turn.session)
        # A call of a tool that was not in the request gets a reply that says how to find it.
        called = None if is_message else turn.session.find_tool(query)
        if called is not None and all(tool.name != query for tool in tools):
            tools.append(called)
        return [self._create_tool(tool) for tool in tools]

    def _create_tool(self, tool: Tool) -> BaseTool:
        native = self._toolkit.get(tool.name)
        if native is None:
            return _OwnTool(tool, self._toolkit)
        # Agents treat a copy like the original, but its calls are checked first.
        twin = cast("Any", copy.copy(native))
        injected = native.ctx_param_name if isinstance(native, FunctionTool) else None

        async def acall(**given: Any) -> ToolOutput:
            arguments = {key: value for key, value in given.items() if key != injected}
            return await _call(self._toolkit, tool.name, arguments)

        twin.acall = acall
        twin.call = _refuse_sync
        return twin


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The session of an agent during one step of a workflow."""

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
        return cls(context=context, agent=agent, before=before, session=session)

    async def save(self) -> None:
        """Write the session to the context, merged with what parallel calls wrote."""
        async with self.context.store.edit_state() as state:
            sessions = to_object(state.get(KEY, None))
            after = merge_state(self.session, self.before, sessions.get(self.agent))
            state[KEY] = {**sessions, self.agent: after}


async def _call(toolkit: _AgentTools, name: str, arguments: Json) -> ToolOutput:
    """Answer a meta-tool, or run a tool that was found."""
    context = _find_context()
    if context is None:
        raise UsageError(f"{name} runs only in the workflow of an agent. Call it with `acall`.")
    turn = await _Turn.open(toolkit, context)
    verdict = await toolkit.handle(turn.session, name, arguments)
    if isinstance(verdict, ApprovedCall):
        native = toolkit.get_native(verdict)
        injected = native.ctx_param_name if isinstance(native, FunctionTool) else None
        given = {**verdict.arguments, injected: context} if injected else verdict.arguments
        with report_outcome(turn.session, verdict, postponed=(WaitingForEvent,)):
            output: ToolOutput = await cast("Any", native).acall(**given)
        if verdict.notes:
            output.blocks = [TextBlock(text="\n".join(verdict.notes)), *output.blocks]
    else:
        reply = verdict or await turn.session.handle(name, arguments)
        images = [
            ImageBlock(image=block["data"].encode(), image_mimetype=block["mimeType"])
            for block in reply.images
        ]
        blocks: list[ContentBlock] = [TextBlock(text=reply.text), *images]
        output = ToolOutput(
            name, blocks=blocks, raw_input=arguments, raw_output=reply.text, is_error=reply.is_error
        )
    await turn.save()
    return output


class _Metadata(ToolMetadata):
    """Accepts a description of any length: that of `tool_search` lists what exists."""

    def to_openai_tool(self, skip_length_check: bool = False) -> dict[str, Any]:
        """Return the definition; the SDK would refuse one of more than 1,024 characters."""
        return super().to_openai_tool(skip_length_check=True)


class _OwnTool(AsyncBaseTool):
    """A meta-tool, or a tool of another server of the scout."""

    def __init__(self, tool: Tool, toolkit: _AgentTools) -> None:
        self._toolkit = toolkit
        self._name = tool.name
        description = tool.description or tool.name

        # LLM classes take a schema in no other form.
        class Arguments(BaseModel):
            @classmethod
            def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
                return copy.deepcopy(tool.input_schema)

        self._metadata = _Metadata(description, tool.name, fn_schema=Arguments)

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def call(self, *args: Any, **arguments: Any) -> ToolOutput:
        _refuse_sync()

    async def acall(self, *args: Any, **arguments: Any) -> ToolOutput:
        return await _call(self._toolkit, self._name, arguments)


def _refuse_sync(*args: object, **arguments: object) -> NoReturn:
    raise UsageError("The session of an agent is asynchronous. Use `acall`.")


def _read_query(query: QueryType) -> str:
    return query if isinstance(query, str) else query.query_str


def _find_context() -> Context[Any] | None:
    try:
        return Context.get_step_context()
    except WorkflowRuntimeError:
        return None


def _define(native: AsyncBaseTool) -> Tool:
    metadata = cast("Any", native.metadata)
    schema = metadata.get_parameters_dict()
    return Tool.define(metadata.get_name(), description=metadata.description, input_schema=schema)
