"""OpenAI's Agents SDK: a `Model` that hides an agent's tools and answers searches for them.

`Agent(model=ToolScoutModel("gpt-5.4"), tools=[…], mcp_servers=[…])`. The runner keeps all tools and
runs them with its guardrails, approvals and hooks; the inner model sees only a few. The items of
the run record what was found, as finished `tool_search` items, so the SDK's sessions, results and
`RunState` keep it.
"""

import dataclasses
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from inspect import BoundArguments, signature
from typing import Any, Unpack, cast

from toolscout import Mode, Tool
from toolscout.adapters._toolkit import (
    SEARCH,
    Dialect,
    Json,
    Toolkit,
    ToolkitOptions,
    choose_openai_mode,
    require_members,
    to_search,
)
from toolscout.adapters.openai.responses import Memory, ResponsesLoop, StreamMerger
from toolscout.errors import MissingExtra, UsageError

try:
    from agents import (
        CodeInterpreterTool,
        FunctionTool,
        Model,
        ModelResponse,
        MultiProvider,
        OpenAIResponsesModel,
        Usage,
    )
    from agents import Tool as AgentTool
    from agents.items import TResponseOutputItem, TResponseStreamEvent
    from agents.tool import ToolSearchTool
    from openai.types.responses import (
        Response,
        ResponseFunctionToolCall,
        ResponseToolSearchCall,
        ResponseToolSearchOutputItem,
    )
except ModuleNotFoundError as error:
    raise MissingExtra("openai-agents", extra="openai-agents") from error

_REQUEST = signature(Model.get_response)
_TYPES: dict[str, Any] = {
    "function_call": ResponseFunctionToolCall,
    "tool_search_call": ResponseToolSearchCall,
    "tool_search_output": ResponseToolSearchOutputItem,
}


class ToolScoutModel(Model):
    """A model that sees the meta-tools and what they found, in place of all tools.

    Without settings, GPT-5.4 and later at OpenAI's own address get definitions in the answers to
    searches, and for other models found tools join the request. A `scout` runs the tools of its
    own servers.
    """

    def __init__(self, model: Model | str, **options: Unpack[ToolkitOptions]) -> None:
        self._model = MultiProvider().get_model(model) if isinstance(model, str) else model
        mode = Mode.NATIVE if any(options.values()) else _choose_mode(self._model)
        self._toolkit = Toolkit[FunctionTool]((), _define, mode=mode, **options)
        if self._toolkit.mode is Mode.REFERENCE:
            raise UsageError("Mode 'reference' is Anthropic's. Use 'definitions' or 'native'.")
        self._memory = Memory()

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        """Return the first response that calls a tool of the agent, or no tool at all."""
        turn = self._begin_turn(args, named)
        usage = Usage()
        while True:
            turn.prepare_request()
            given = turn.request
            response = await self._model.get_response(*given.args[1:], **given.kwargs)
            usage.add(response.usage)
            if not await turn.take(response.output, response.response_id):
                self._memory.keep(turn.rounds, response.response_id, turn.conversation)
                return dataclasses.replace(response, output=turn.output, usage=usage)

    async def stream_response(
        self, *args: Any, **named: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Stream text at once, and calls when it is known who answers them."""
        turn = self._begin_turn(args, named)
        stream = StreamMerger()
        while True:
            turn.prepare_request()
            given = turn.request
            async for event in self._model.stream_response(*given.args[1:], **given.kwargs):
                for passed in stream.feed(event):
                    yield passed
            done = cast("Response | None", stream.response)
            if done is None:
                return
            if not await turn.take(done.output, done.id):
                self._memory.keep(turn.rounds, done.id, turn.conversation, alias=stream.id)
                for event in stream.end(turn.output):
                    yield event
                return
            stream.begin_round()

    async def close(self) -> None:
        """Close the inner model."""
        await self._model.close()

    def _begin_turn(self, args: tuple[Any, ...], named: Json) -> "_Turn":
        request = _REQUEST.bind(self, *args, **named)
        given = request.arguments
        tools: list[AgentTool] = given["tools"]
        hidden = {tool.name: tool for tool in tools if _is_hidden(tool)}
        names = self._toolkit.register(cast("dict[str, FunctionTool]", hidden))
        passed = [t for t in tools if not _is_hidden(t) and not isinstance(t, ToolSearchTool)]
        items = given["input"]
        previous = given["previous_response_id"]
        rounds = ResponsesLoop(
            self._toolkit,
            [{"role": "user", "content": items}] if isinstance(items, str) else items,
            _to_definition,
            only=names,
            others={*(t.name for t in passed), *(h.tool_name for h in given["handoffs"])},
            before=self._memory,
            key=given["conversation_id"] or previous or "",
        )
        given["previous_response_id"] = self._memory.resolve(previous) if previous else None
        return _Turn(toolkit=self._toolkit, rounds=rounds, passed=passed, request=request)


@dataclass(slots=True, kw_only=True)
class _Turn:
    """One request of the runner, and the rounds that it takes."""

    toolkit: Toolkit[FunctionTool]
    rounds: ResponsesLoop[FunctionTool]
    passed: Sequence[AgentTool]
    """Tools that stay visible: the provider's own, and those of namespaces."""
    request: BoundArguments
    """The arguments of the next request to the inner model, after the model itself."""
    originals: list[tuple[Json, TResponseOutputItem]] = field(
        default_factory=list[tuple[Json, TResponseOutputItem]]
    )

    @property
    def conversation(self) -> str | None:
        """The conversation that the provider keeps, if it does."""
        return self.request.arguments["conversation_id"]

    @property
    def output(self) -> list[TResponseOutputItem]:
        """The output for the runner; unchanged items are the model's own objects."""
        same = {id(item): original for item, original in self.originals}
        return [
            same.get(id(item)) or _TYPES[str(item["type"])].construct(**item)
            for item in self.rounds.output
        ]

    def prepare_request(self) -> None:
        """Give the next request its items and tools."""
        given = self.request.arguments
        choice = given["model_settings"].tool_choice
        is_name = isinstance(choice, str) and choice not in ("auto", "required", "none")
        forced = str(choice) if is_name else ""
        found = self.toolkit.list_tools(self.rounds.session, self._create_tool, forced)
        given |= {"input": self.rounds.input, "tools": [*self.passed, *found]}

    async def take(self, output: list[TResponseOutputItem], response_id: str | None) -> bool:
        """Process the output of the model; return whether another request is due."""
        items = [(item.model_dump(mode="json", exclude_unset=True), item) for item in output]
        self.originals += items
        if self.request.arguments["previous_response_id"]:
            self.request.arguments["previous_response_id"] = response_id
        return await self.rounds.take(item for item, _ in items)

    def _create_tool(self, tool: Tool) -> AgentTool:
        if tool.name == SEARCH and self.toolkit.mode is Mode.DEFINITIONS:
            # The SDK refuses its own ToolSearchTool if no function is deferred.
            return _RawTool(cast("Any", to_search(tool, Dialect.OPENAI_RESPONSES)))
        return FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.input_schema,
            on_invoke_tool=_fail,
            strict_json_schema=False,
        )


class _RawTool(CodeInterpreterTool):
    """A definition that the SDK sends unchanged."""


def _is_hidden(tool: AgentTool) -> bool:
    # The namespace tells its tools apart, and the SDK sends them together.
    return isinstance(tool, FunctionTool) and tool.qualified_name == tool.name


def _define(tool: FunctionTool) -> Tool:
    return Tool.define(
        tool.name, description=tool.description, input_schema=tool.params_json_schema
    )


def _to_definition(tool: FunctionTool) -> Json:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.params_json_schema,
        "strict": tool.strict_json_schema,
    }


def _choose_mode(model: Model) -> Mode:
    if not isinstance(model, OpenAIResponsesModel):
        return Mode.NATIVE
    require_members("openai-agents", model, "_client")
    base_url = str(model._client.base_url)  # pyright: ignore[reportPrivateUsage]
    return choose_openai_mode(str(model.model), base_url)


async def _fail(context: object, arguments: str) -> str:
    raise UsageError("ToolScoutModel answers meta-tools before the runner sees them.")
