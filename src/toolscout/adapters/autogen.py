"""AutoGen: a workbench that hides the tools of other workbenches.

`AssistantAgent(…, workbench=ToolScoutWorkbench(tools), max_tool_iterations=10)`. The workbench that
has a tool makes the calls of it. AutoGen's agents do not save their workbench, so save the session
with `ToolScoutWorkbench.save_state()`. One workbench serves one conversation.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict
from typing import Any, Unpack, cast

from toolscout import Reply, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    SEARCH,
    ApprovedCall,
    Toolkit,
    ToolkitOptions,
    list_request_tools,
    report_outcome,
    require_members,
)
from toolscout.errors import MissingExtra, UsageError

try:
    from autogen_core import CancellationToken, ComponentModel, Image
    from autogen_core.tools import (
        BaseTool,
        FunctionTool,
        ImageResultContent,
        ParametersSchema,
        StaticStreamWorkbench,
        StaticWorkbench,
        TextResultContent,
        ToolResult,
        ToolSchema,
        Workbench,
    )
    from pydantic import BaseModel
except ModuleNotFoundError as error:
    raise MissingExtra("autogen_core", extra="autogen") from error

NO_FORM = "A scout or a `hide` function has no declarative form. Pass plain settings instead."

Offer = tuple[ToolSchema, Workbench]


# What `dump_component` and `load_component` call.
require_members("autogen-core", StaticStreamWorkbench, "_to_config", "_from_config")


class ToolScoutConfig(BaseModel):
    """The declarative form of a `ToolScoutWorkbench`."""

    workbenches: list[ComponentModel] = []
    settings: dict[str, Any] = {}


# Agents forward the events of streaming tools from this class, not from any `StreamWorkbench`.
class ToolScoutWorkbench(StaticStreamWorkbench):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Takes functions, tools and other workbenches, such as those of MCP servers. By default found
    tools join the list at its end and are called by their own names.
    """

    component_config_schema = ToolScoutConfig
    component_provider_override = "toolscout.adapters.autogen.ToolScoutWorkbench"

    def __init__(
        self,
        tools: Sequence[BaseTool[Any, Any] | Callable[..., Any] | Workbench] | Workbench,
        **options: Unpack[ToolkitOptions],
    ) -> None:
        super().__init__([])
        given = [tools] if isinstance(tools, Workbench) else tools
        own: list[BaseTool[Any, Any]] = []
        inner: list[Workbench] = []
        for tool in given:
            if isinstance(tool, Workbench):
                inner.append(tool)
            elif isinstance(tool, BaseTool):
                own.append(cast("BaseTool[Any, Any]", tool))
            else:
                own.append(FunctionTool(tool, description=tool.__doc__ or ""))
        self._workbenches = [StaticStreamWorkbench(own), *inner] if own else inner
        self._static: dict[int, list[ToolSchema]] = {}
        self._is_own = options.get("scout") is None
        self._toolkit = Toolkit[Offer].create_growing(
            (), lambda offer: Tool.from_openai(offer[0]), **options
        )
        self._begin(None)

    async def list_tools(self) -> list[ToolSchema]:
        """Return the meta-tools, the pinned tools and what was found."""
        session = await self._open_session()
        return [self._to_schema(tool) for tool in list_request_tools(session)]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Answer a meta-tool, or forward a call of a found tool to its workbench."""
        events = self.call_tool_stream(name, arguments, cancellation_token, call_id)
        return cast("ToolResult", [event async for event in events][-1])

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any | ToolResult, None]:
        """Do the same, and yield what the tool streams before its result."""
        session = await self._open_session()
        given = dict(arguments or {})
        verdict = await self._toolkit.handle(session, name, given)
        if not isinstance(verdict, ApprovedCall):
            yield _to_result(name, verdict or await session.call(name, given))
            return
        schema, workbench = self._toolkit.get_native(verdict)
        request = (schema["name"], verdict.arguments, cancellation_token, call_id)
        result: ToolResult | None = None
        with report_outcome(session, verdict) as outcome:
            if isinstance(workbench, StaticStreamWorkbench):
                async for event in workbench.call_tool_stream(*request):
                    if isinstance(event, ToolResult):
                        result = event
                    else:
                        yield event
            else:
                result = await workbench.call_tool(*request)
            outcome.failed = result is None or result.is_error
        if result is not None:
            notes = [TextResultContent(content=note) for note in verdict.notes]
            yield result.model_copy(update={"name": name, "result": [*notes, *result.result]})

    def create_another(self) -> "ToolScoutWorkbench":
        """Return a workbench for another conversation, over the same tools and their index."""
        twin = copy(self)
        twin._begin(None)
        return twin

    async def start(self) -> None:
        """Start the inner workbenches."""
        for workbench in self._workbenches:
            await workbench.start()

    async def stop(self) -> None:
        """Stop the inner workbenches."""
        for workbench in self._workbenches:
            await workbench.stop()

    async def reset(self) -> None:
        """Forget what was found, and reset the inner workbenches."""
        self._begin(None)
        for workbench in self._workbenches:
            await workbench.reset()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the session and the states of the inner workbenches as plain JSON."""
        inner = [dict(await workbench.save_state()) for workbench in self._workbenches]
        session = self._session.to_json() if self._session is not None else self._saved
        return {"type": "ToolScoutWorkbenchState", "session": session, "workbenches": inner}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self._begin(state.get("session"))
        for workbench, saved in zip(self._workbenches, state.get("workbenches", ()), strict=False):
            await workbench.load_state(saved)

    def _begin(self, saved: object) -> None:
        self._saved = saved
        self._names = frozenset[str]()
        self._session: Session | None = None

    async def _open_session(self) -> Session:
        """Return the session, which may use the tools that the workbenches have now."""
        offers: dict[str, Offer] = {}
        for at, workbench in enumerate(self._workbenches):
            # A static one rebuilds all schemas for every list, and agents list at every call.
            schemas = self._static.get(at) or await workbench.list_tools()
            if isinstance(workbench, StaticWorkbench):
                self._static[at] = schemas
            offers |= {schema["name"]: (schema, workbench) for schema in schemas}
        names = self._toolkit.register(offers)
        if self._session is None or names != self._names:
            state = self._saved if self._session is None else self._session.to_json()
            self._session = self._toolkit.open_session("", state, only=names)
            self._names = names
        return self._session

    def _to_schema(self, tool: Tool) -> ToolSchema:
        offer = self._toolkit.get(tool.name)
        if offer is not None:
            return offer[0]
        name = _MatchingName(tool.name)
        parameters = cast("ParametersSchema", tool.input_schema)
        name.hidden = self._names if tool.name == SEARCH else frozenset()
        return ToolSchema(name=name, description=tool.description, parameters=parameters)

    def _to_config(self) -> ToolScoutConfig:  # pyright: ignore[reportIncompatibleMethodOverride]  # has other fields
        settings = self._toolkit.scout.settings
        if not self._is_own or settings.hide is not None:
            raise UsageError(NO_FORM)
        values = {key: value for key, value in asdict(settings).items() if key != "hide"}
        inner = [workbench.dump_component() for workbench in self._workbenches]
        return ToolScoutConfig(workbenches=inner, settings=values)

    @classmethod
    def _from_config(cls, config: ToolScoutConfig) -> "ToolScoutWorkbench":  # pyright: ignore[reportIncompatibleMethodOverride]  # the same
        workbenches = [Workbench.load_component(model) for model in config.workbenches]
        return cls(workbenches, settings=Settings.from_mapping(config.settings))


class _MatchingName(str):
    """A name that equals the names of hidden tools as well.

    Agents look up the name of a call in the list before they ask the workbench. They would answer
    a call of a hidden tool themselves, without saying how to find it.
    """

    hidden: frozenset[str]

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or other in self.hidden

    __hash__ = str.__hash__


def _to_result(name: str, reply: Reply) -> ToolResult:
    images = [Image.from_base64(str(block.get("data"))) for block in reply.images]
    contents = [ImageResultContent(content=image) for image in images]
    text = TextResultContent(content=reply.text)
    return ToolResult(name=name, result=[text, *contents], is_error=reply.is_error)
