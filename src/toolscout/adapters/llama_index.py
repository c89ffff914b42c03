"""LlamaIndex: a tool retriever that shows a workflow agent few tools and lets it find the others.

`FunctionAgent(tool_retriever=ToolScoutRetriever([…]))`. An agent asks its retriever before every
request, and again for the name of a call. The session lives in the workflow's `Context`, one for
each agent of a workflow, and is written by `ctx.to_dict()` with the rest.
"""

import copy
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from toolscout import Mode, Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    Admission,
    Json,
    Toolkit,
    make_exposed_name,
    merge_state,
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
"""Tools that a retriever gives outside of a workflow."""
_Kit = Toolkit[AsyncBaseTool]


class ToolScoutRetriever(ObjectRetriever[BaseTool]):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Unless the settings say otherwise, found tools join the request and have their own names.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]],
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        # What the base class is made of, an index of nodes, has no use here.
        self._node_postprocessors = []
        natives = [*map(_as_tool, tools)]
        self._toolkit = _Kit.create_growing(natives, _define, scout=scout, settings=settings)

    def retrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """Return the tools that fit best, or the one of that name, outside of a workflow."""
        query = str(getattr(str_or_query_bundle, "query_str", str_or_query_bundle))
        named = self._toolkit.get(make_exposed_name("", query)) if query else None
        return [*([named] if named is not None else self._toolkit.rank([query], RANKED))]

    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """Return what an agent's next request carries; for the name of a call, that tool too."""
        query = str(getattr(str_or_query_bundle, "query_str", str_or_query_bundle))
        context = _context()
        if context is None:
            return self.retrieve(query)
        turn = await _Turn.open(self._toolkit, context)
        if query != await context.store.get("user_msg_str", default=None):
            return [*turn.tools(), *turn.hidden(query)]
        if not await context.store.get("num_iterations", default=0):
            turn.session.begin_turn(query)
            await turn.keep()
        return [*turn.tools()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """A session as one step of a workflow has it."""

    toolkit: _Kit
    context: Context[Any]
    agent: str
    before: object
    session: Session

    @classmethod
    async def open(cls, toolkit: _Kit, context: Context[Any]) -> "_Turn":
        """Return the session of the agent whose step this is."""
        agent = str(await context.store.get("current_agent_name", default=""))
        before = to_object(await context.store.get(KEY, default=None)).get(agent)
        session = toolkit.open_session(agent or "agent", before)
        return cls(toolkit=toolkit, context=context, agent=agent, before=before, session=session)

    async def keep(self) -> None:
        """Write the session to the context, with what calls side by side have written."""
        async with self.context.store.edit_state() as state:
            sessions = to_object(state.get(KEY, None))
            after = merge_state(self.session, self.before, sessions.get(self.agent))
            state[KEY] = {**sessions, self.agent: after}

    def tools(self) -> Iterator[BaseTool]:
        return (self._offered(shown.tool) for shown in self.session.shown())

    def hidden(self, name: str) -> Iterator[BaseTool]:
        """Yield the tool of a call that was never offered: the gate says what to do instead."""
        tool = self.session.tool(name)
        if tool is not None and all(shown.tool.name != name for shown in self.session.shown()):
            yield self._offered(tool)

    def _offered(self, tool: Tool) -> BaseTool:
        native = self.toolkit.get(tool.name)
        return (
            _OwnTool(tool, self.toolkit)
            if native is None
            else _twin(native, tool.name, self.toolkit)
        )


async def _call(toolkit: _Kit, name: str, arguments: Json) -> ToolOutput:
    """Answer a meta-tool, or pass a call through the gate to the tool."""
    context = _context()
    if context is None:
        raise UsageError(f"{name} runs in the workflow of an agent. Call it with `acall` there.")
    turn = await _Turn.open(toolkit, context)
    verdict = await toolkit.handle(turn.session, name, arguments)
    if isinstance(verdict, Admission) and name == CALL and _ends_the_run(toolkit, verdict):
        verdict = require_own_name(turn.session, verdict)
    if isinstance(verdict, Admission):
        with _settling(turn.session, verdict):
            output = await _run(toolkit, verdict, context)
    else:
        output = _told(name, arguments, verdict or await turn.session.handle(name, arguments))
    await turn.keep()
    return output


async def _run(toolkit: _Kit, admission: Admission, context: Context[Any]) -> ToolOutput:
    native = cast("Any", toolkit.get(admission.tool.name))
    wanted = native.ctx_param_name if isinstance(native, FunctionTool) else None
    given = {**admission.arguments, wanted: context} if wanted else admission.arguments
    output: ToolOutput = await native.acall(**given)
    if admission.repairs:
        notes = "\n".join(f"({repair})" for repair in admission.repairs)
        output.blocks = [TextBlock(text=notes), *output.blocks]
    return output


def _ends_the_run(toolkit: _Kit, admission: Admission) -> bool:
    # An agent goes by the tool that was called: the result of `tool_call` is read by the model.
    native, mode = toolkit.get(admission.tool.name), toolkit.scout.settings.mode
    return native is not None and native.metadata.return_direct and mode is Mode.NATIVE


@contextmanager
def _settling(session: Session, admission: Admission) -> Generator[None]:
    """Tell the session how a call went, unless it waits for a person and will be made again."""
    try:
        yield
    except WaitingForEvent:
        raise
    except BaseException:
        session.settle(admission, failed=True)
        raise
    session.settle(admission)


def _twin(native: AsyncBaseTool, name: str, toolkit: _Kit) -> BaseTool:
    """Return a tool that an agent takes for the native one, and whose calls pass the gate."""
    twin = cast("Any", copy.copy(native))
    injected = native.ctx_param_name if isinstance(native, FunctionTool) else None

    async def acall(**given: Any) -> ToolOutput:
        return await _call(toolkit, name, {key: v for key, v in given.items() if key != injected})

    twin.acall, twin.call = acall, _refuse_sync
    return twin


class _OwnTool(AsyncBaseTool):
    """A meta-tool, or a tool of another server of the scout."""

    def __init__(self, tool: Tool, toolkit: _Kit) -> None:
        self._toolkit, self._name = toolkit, tool.name
        description = tool.description or tool.name
        self._metadata = ToolMetadata(description, tool.name, fn_schema=_model(tool))

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def call(self, *args: Any, **arguments: Any) -> ToolOutput:
        _refuse_sync()

    async def acall(self, *args: Any, **arguments: Any) -> ToolOutput:
        return await _call(self._toolkit, self._name, arguments)


def _model(tool: Tool) -> type[BaseModel]:
    """Return a model whose schema is the tool's: LLM classes take a schema in no other form."""

    class Arguments(BaseModel):
        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
            return copy.deepcopy(tool.input_schema)

    return Arguments


def _refuse_sync(*args: object, **arguments: object) -> NoReturn:
    raise UsageError("The session of an agent is read by asynchronous code. Use `acall`.")


def _context() -> Context[Any] | None:
    try:
        return Context.get_step_context()
    except WorkflowRuntimeError:
        return None


def _as_tool(tool: BaseTool | Callable[..., Any]) -> AsyncBaseTool:
    known = tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool)
    return adapt_to_async_tool(known)


def _define(native: AsyncBaseTool) -> Tool:
    told = cast("Any", native.metadata)
    schema = told.get_parameters_dict()
    return Tool.define(told.get_name(), description=told.description, input_schema=schema)


def _told(name: str, arguments: Json, reply: Reply) -> ToolOutput:
    shown = (block for block in reply.blocks if block.get("type") == "image")
    images = [ImageBlock(image=b["data"].encode(), image_mimetype=b["mimeType"]) for b in shown]
    blocks: list[ContentBlock] = [TextBlock(text=reply.text), *images]
    return ToolOutput(
        name, blocks=blocks, raw_input=arguments, raw_output=reply.text, is_error=reply.is_error
    )
