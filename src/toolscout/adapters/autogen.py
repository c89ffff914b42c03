"""AutoGen: a workbench that hides the tools of others.

`AssistantAgent(…, workbench=ToolScoutWorkbench(tools), max_tool_iterations=10)`. Calls that pass
the gate are made by the workbench that has the tool. AutoGen's agents do not save their workbench,
so the session is in `ToolScoutWorkbench.save_state()`; one workbench is one conversation.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict
from typing import Any, cast
from uuid import uuid4

from toolscout import Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import SEARCH, Admission, Toolkit
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

NO_FORM = "A scout, and `hide`, have no declarative form. Give the workbench plain settings."

AnyTool = BaseTool[Any, Any] | Callable[..., Any]
Offer = tuple[ToolSchema, Workbench]


class ToolScoutConfig(BaseModel):
    """The declarative form of a `ToolScoutWorkbench`."""

    workbenches: list[ComponentModel] = []
    settings: dict[str, Any] = {}


# Agents pass on what tools stream from this class alone, and not from any `StreamWorkbench`.
class ToolScoutWorkbench(StaticStreamWorkbench):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Takes functions, tools and other workbenches, such as those of MCP servers. Unless the settings
    say otherwise, found tools join the list at the end and are called by their own names.
    """

    component_config_schema = ToolScoutConfig
    component_provider_override = "toolscout.adapters.autogen.ToolScoutWorkbench"

    def __init__(
        self,
        tools: Sequence[AnyTool | Workbench] | Workbench,
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__([])
        self._workbenches = _workbenches([tools] if isinstance(tools, Workbench) else tools)
        self._static: dict[int, list[ToolSchema]] = {}
        self._is_own = scout is None
        self._toolkit = Toolkit[Offer].create_growing((), _define, scout=scout, settings=settings)
        self._begin(None)

    async def list_tools(self) -> list[ToolSchema]:
        """Return the meta-tools, what is pinned and what was found."""
        return [self._schema(shown.tool) for shown in (await self._open()).shown()]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Answer a meta-tool, or pass a call of a found tool on to its workbench."""
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
        session, given = await self._open(), dict(arguments or {})
        verdict = await self._toolkit.handle(session, name, given) or await session.call(
            name, given
        )
        if isinstance(verdict, Reply):
            yield _told(name, verdict)
            return
        result: ToolResult | None = None
        try:
            async for event in self._run(verdict, cancellation_token, call_id):
                if isinstance(event, ToolResult):
                    result = event
                else:
                    yield event
        finally:
            session.settle(verdict, failed=result is None or result.is_error)
        if result is not None:
            notes = [TextResultContent(content=note) for note in verdict.notes]
            yield result.model_copy(update={"name": name, "result": [*notes, *result.result]})

    def another(self) -> "ToolScoutWorkbench":
        """Return a workbench for another conversation, over the same tools and their index."""
        twin = copy(self)
        twin._begin(None)
        return twin

    async def start(self) -> None:
        """Start the workbenches behind."""
        for workbench in self._workbenches:
            await workbench.start()

    async def stop(self) -> None:
        """Stop the workbenches behind."""
        for workbench in self._workbenches:
            await workbench.stop()

    async def reset(self) -> None:
        """Forget what was found, and reset the workbenches behind."""
        self._begin(None)
        for workbench in self._workbenches:
            await workbench.reset()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the session, and the states of the workbenches behind, as plain JSON."""
        behind = [dict(await workbench.save_state()) for workbench in self._workbenches]
        session = self._session.to_json() if self._session is not None else self._saved
        return {"type": "ToolScoutWorkbenchState", "session": session, "workbenches": behind}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._begin(state.get("session"))
        for workbench, kept in zip(self._workbenches, state.get("workbenches", ()), strict=False):
            await workbench.load_state(kept)

    def _begin(self, saved: object) -> None:
        self._saved, self._names = saved, frozenset[str]()
        self._session: Session | None = None

    async def _open(self) -> Session:
        """Return the session, which may use the tools that the workbenches have now."""
        offers = {
            schema["name"]: (schema, workbench)
            for at, workbench in enumerate(self._workbenches)
            for schema in await self._listed(at, workbench)
        }
        names = self._toolkit.register(offers)
        if self._session is None or names != self._names:
            state = self._saved if self._session is None else self._session.to_json()
            self._session = self._toolkit.open_session(uuid4().hex, state, only=names)
            self._names = names
        return self._session

    async def _listed(self, at: int, workbench: Workbench) -> list[ToolSchema]:
        if not isinstance(workbench, StaticWorkbench):
            return await workbench.list_tools()
        # It makes all schemas anew for every list, and agents list at every call.
        if at not in self._static:
            self._static[at] = await workbench.list_tools()
        return self._static[at]

    def _schema(self, tool: Tool) -> ToolSchema:
        offer = self._toolkit.get(tool.name)
        if offer is not None:
            return offer[0]
        name, parameters = _Answering(tool.name), cast("ParametersSchema", tool.input_schema)
        name.hidden = self._names if tool.name == SEARCH else frozenset()
        return ToolSchema(name=name, description=tool.description, parameters=parameters)

    async def _run(
        self, admitted: Admission, token: CancellationToken | None, call_id: str | None
    ) -> AsyncGenerator[Any | ToolResult, None]:
        schema, workbench = self._toolkit.get_native(admitted)
        call = (schema["name"], admitted.arguments, token, call_id)
        if not isinstance(workbench, StaticStreamWorkbench):
            yield await workbench.call_tool(*call)
            return
        async for event in workbench.call_tool_stream(*call):
            yield event

    def _to_config(self) -> ToolScoutConfig:  # pyright: ignore[reportIncompatibleMethodOverride]  # has other fields
        settings = self._toolkit.scout.settings
        if not self._is_own or settings.hide is not None:
            raise UsageError(NO_FORM)
        values = {key: value for key, value in asdict(settings).items() if key != "hide"}
        behind = [workbench.dump_component() for workbench in self._workbenches]
        return ToolScoutConfig(workbenches=behind, settings=values)

    @classmethod
    def _from_config(cls, config: ToolScoutConfig) -> "ToolScoutWorkbench":  # pyright: ignore[reportIncompatibleMethodOverride]  # the same
        workbenches = [Workbench.load_component(model) for model in config.workbenches]
        return cls(workbenches, settings=Settings.from_mapping(config.settings))


class _Answering(str):
    """A name that stands in for those of hidden tools as well.

    Agents look for the name of a call in the list before they ask the workbench, and would answer
    a call of a hidden tool themselves, without a word on how to find it.
    """

    hidden: frozenset[str]

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or other in self.hidden

    __hash__ = str.__hash__


def _workbenches(tools: Sequence[AnyTool | Workbench]) -> list[Workbench]:
    own = [tool for tool in tools if not isinstance(tool, Workbench)]
    static = [StaticStreamWorkbench([*map(_as_tool, own)])] if own else []
    return [*static, *(tool for tool in tools if isinstance(tool, Workbench))]


def _as_tool(tool: AnyTool) -> BaseTool[Any, Any]:
    if isinstance(tool, BaseTool):
        return cast("BaseTool[Any, Any]", tool)
    return FunctionTool(tool, description=tool.__doc__ or "")


def _define(offer: Offer) -> Tool:
    return Tool.from_openai(offer[0])


def _told(name: str, reply: Reply) -> ToolResult:
    images = [Image.from_base64(str(block.get("data"))) for block in reply.images]
    shown = [ImageResultContent(content=image) for image in images]
    text = TextResultContent(content=reply.text)
    return ToolResult(name=name, result=[text, *shown], is_error=reply.is_error)
