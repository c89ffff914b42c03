"""Tool searches in their seats: each asked by a scripted model inside a running agent SDK.

A seat is one search in one SDK: the SDK's own, or toolscout's adapter in its place. The model calls
the search once; what it then receives is what counts: the tools of its next request, the reply,
and the time between the call and that request. SDKs are imported when a seat is built.
"""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from time import perf_counter
from typing import Any, Protocol, Self

from toolscout.bench.metrics import RANKING_DEPTH
from toolscout.bench.systems.definitions import plain_schema
from toolscout.bench.systems.packages import module_of
from toolscout.schemas import Json
from toolscout.tokens import count_tokens
from toolscout.tools import Tool

_LINE = re.compile(r"^- ([\w-]+)", re.MULTILINE)
PYDANTIC_AI, FASTMCP, HAYSTACK = "pydantic-ai", "fastmcp", "haystack"


@dataclass(slots=True, kw_only=True)
class Received:
    """What the model has after its search."""

    reply: str = ""
    tools: list[Json] = field(default_factory=list[Json])
    started: float = 0.0
    ended: float = 0.0

    @property
    def tokens(self) -> int:
        """What the reply and the tools of the next request cost."""
        listed = (
            json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in self.tools
        )
        return count_tokens(self.reply) + sum(map(_definition_tokens, listed))

    @property
    def seconds(self) -> float:
        """From the model's call to its next request."""
        return self.ended - self.started


@lru_cache(100_000)
def _definition_tokens(definition: str) -> int:
    return count_tokens(definition)


class Seat(Protocol):
    """A search in an SDK; open while it is asked."""

    def names(self, received: Received) -> list[str]:
        """Return the tools that a reply gives, best first."""
        ...

    async def ask(self, query: str, *, deep: bool) -> Received:
        """Search once: for ten tools where it is `deep`, else as many as is usual there."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


def _function(name: str, description: str | None, parameters: object) -> Json:
    told = {"name": name, "description": description or "", "parameters": parameters}
    return {"type": "function", "function": told}


def _named_in_json(received: Received) -> list[str]:
    found: list[Any] = json.loads(received.reply or "[]")  # FastMCP says nothing of nothing
    return [row["name"] for row in found]


def _named_in_lines(received: Received) -> list[str]:
    return _LINE.findall(received.reply)


class _Open:
    """Nothing to open, and nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class PydanticAiSeat(_Open):
    """An agent of Pydantic AI with a function for a model."""

    def __init__(self, tools: Sequence[Tool], way: str) -> None:
        self._way, self._received, self._call = way, Received(), ("", dict[str, Any]())
        self._agent = self._agent_of(tools)

    def names(self, received: Received) -> list[str]:
        """Return what the reply or the next request names."""
        if self._way == "toolset":
            return _named_in_lines(received)
        return [found["name"] for found in json.loads(received.reply)["discovered_tools"]]

    async def ask(self, query: str, *, deep: bool) -> Received:
        """Have the model search, and note what it receives."""
        self._received = Received()
        if self._way == "toolset":
            limit = {"limit": RANKING_DEPTH} if deep else {}
            self._call = ("tool_search", {"queries": [plain(query)], **limit})
        else:
            self._call = ("search_tools", {"queries": [query]})
        await self._agent.run("Go on.")
        return self._received

    def _agent_of(self, tools: Sequence[Tool]) -> Any:
        model = _pydantic("models.function").FunctionModel(self._answer)
        deferred = self._way != "toolset"
        definitions = [_pydantic_tool(tool, deferred) for tool in tools]
        toolset = _pydantic("toolsets").ExternalToolset(definitions)
        capabilities: list[Any] = []
        if self._way == "toolset":
            toolset = _adapter("pydantic_ai").ToolScoutToolset(toolset)
        else:
            own = self._way == "keywords"
            strategy = "keywords" if own else _adapter("pydantic_ai").scout_strategy()
            capabilities = [_pydantic("capabilities").ToolSearch(strategy=strategy)]
        return _pydantic("").Agent(model, toolsets=[toolset], capabilities=capabilities)

    def _answer(self, messages: list[Any], info: Any) -> Any:
        module = _pydantic("messages")
        if len(messages) == 1:
            call = module.ToolCallPart(*self._call)
            self._received.started = perf_counter()
            return module.ModelResponse([call])
        self._received.ended = perf_counter()
        [told] = [p for p in messages[-1].parts if p.part_kind.startswith("tool-")]
        self._received.reply = told.model_response_str()
        self._received.tools = [
            _function(tool.name, tool.description, tool.parameters_json_schema)
            for tool in info.function_tools
        ]
        return module.ModelResponse([module.TextPart("Done.")])


class FastMcpSeat:
    """A FastMCP server with a client in the same process."""

    def __init__(self, tools: Sequence[Tool], way: str) -> None:
        self._meta = way == "transform"
        self._servers = [self._server(tools, way, deep) for deep in (False, True)]

    def names(self, received: Received) -> list[str]:
        """Return what the reply or the next request names."""
        return (_named_in_lines if self._meta else _named_in_json)(received)

    async def __aenter__(self) -> Self:
        client = _fastmcp("").Client
        self._stack = AsyncExitStack()
        opened = [self._stack.enter_async_context(client(server)) for server in self._servers]
        self._clients = [await one for one in opened]
        self._listed = [[_mcp_function(t) for t in await c.list_tools()] for c in self._clients]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def ask(self, query: str, *, deep: bool) -> Received:
        """Have the model search, and note what it receives."""
        name = "tool_search" if self._meta else "search_tools"
        asked: Json = {"queries": [plain(query)]} if self._meta else {"query": query}
        started = perf_counter()
        answer = await self._clients[deep].call_tool(name, asked)
        ended = perf_counter()
        reply = "\n".join(block.text for block in answer.content)
        return Received(reply=reply, tools=self._listed[deep], started=started, ended=ended)

    def _server(self, tools: Sequence[Tool], way: str, deep: bool) -> Any:
        server = _fastmcp("").FastMCP("seat")
        tool_type = _fastmcp("tools").Tool
        for tool in tools:
            schema = {"type": "object", **plain_schema(tool.input_schema)}
            server.add_tool(
                tool_type(name=tool.name, description=tool.description, parameters=schema)
            )
        server.add_transform(_transform(way, {"max_results": RANKING_DEPTH} if deep else {}))
        return server


class HaystackSeat(_Open):
    """An agent of Haystack with a function for a model."""

    def __init__(self, tools: Sequence[Tool], way: str) -> None:
        self._meta = way == "toolset"
        theirs = [_haystack_tool(tool) for tool in tools]
        if self._meta:
            toolset = _adapter("haystack").ToolScoutToolset(theirs)
        else:
            toolset = _haystack("tools").SearchableToolset(theirs, search_threshold=0)
        model = _haystack("components.generators.chat").MockChatGenerator(response_fn=self._answer)
        self._agent = _haystack("components.agents").Agent(chat_generator=model, tools=toolset)
        self._agent.warm_up()
        self._received, self._call = Received(), ("", dict[str, Any]())

    def names(self, received: Received) -> list[str]:
        """Return what the reply or the next request names."""
        if self._meta:
            return _named_in_lines(received)
        # Its reply has no order of its own; the tools of the next request have.
        return [tool["function"]["name"] for tool in received.tools][1:]

    async def ask(self, query: str, *, deep: bool) -> Received:
        """Have the model search, and note what it receives."""
        self._received = Received()
        name, many = ("tool_search", "limit") if self._meta else ("search_tools", "k")
        asked: Json = {"queries": [plain(query)]} if self._meta else {"tool_keywords": query}
        self._call = (name, asked | ({many: RANKING_DEPTH} if deep else {}))
        said = _haystack("dataclasses").ChatMessage.from_user("Go on.")
        self._agent.run(messages=[said])
        return self._received

    def _answer(self, messages: list[Any], tools: Any) -> Any:
        module = _haystack("dataclasses")
        results = [result for message in messages for result in message.tool_call_results]
        if not results:
            call = module.ToolCall(tool_name=self._call[0], arguments=self._call[1], id="1")
            self._received.started = perf_counter()
            return module.ChatMessage.from_assistant(tool_calls=[call])
        self._received.ended = perf_counter()
        self._received.reply = str(results[-1].result)
        listed = _haystack("tools").flatten_tools_or_toolsets(tools)
        self._received.tools = [_function(t.name, t.description, t.parameters) for t in listed]
        return module.ChatMessage.from_assistant("Done.")


SEATS: dict[str, dict[str, Callable[[Sequence[Tool]], Seat]]] = {
    PYDANTIC_AI: {
        "its keywords": lambda tools: PydanticAiSeat(tools, "keywords"),
        "toolscout strategy": lambda tools: PydanticAiSeat(tools, "strategy"),
        "toolscout toolset": lambda tools: PydanticAiSeat(tools, "toolset"),
    },
    FASTMCP: {
        "its BM25": lambda tools: FastMcpSeat(tools, "bm25"),
        "toolscout drop-in": lambda tools: FastMcpSeat(tools, "search"),
        "toolscout transform": lambda tools: FastMcpSeat(tools, "transform"),
    },
    HAYSTACK: {
        "its BM25": lambda tools: HaystackSeat(tools, "searchable"),
        "toolscout toolset": lambda tools: HaystackSeat(tools, "toolset"),
    },
}
"""By SDK: its own search first, then toolscout's."""


def plain(query: str) -> str:
    """Return a query as words, where toolscout would read operators."""
    return re.sub(r":(?=\S)", ": ", re.sub(r"(?<!\S)[-+/]+(?=\S)", "", query))


def _transform(way: str, options: Json) -> Any:
    if way == "bm25":
        return _fastmcp("server.transforms.search").BM25SearchTransform(**options)
    ours = _adapter("fastmcp")
    made = ours.ToolScoutTransform if way == "transform" else ours.ToolScoutSearchTransform
    return made(**options)


def _pydantic_tool(tool: Tool, deferred: bool) -> Any:
    return _pydantic("tools").ToolDefinition(
        name=tool.name + "_" if tool.name == "search_tools" else tool.name,
        description=tool.description,
        parameters_json_schema={"type": "object", **plain_schema(tool.input_schema)},
        defer_loading=deferred,
    )


def _haystack_tool(tool: Tool) -> Any:
    empty: Json = {"type": "object", "properties": {}}
    make = partial(
        _haystack("tools").Tool,
        name=tool.name,
        description=tool.description,
        function=_do_nothing,
    )
    try:
        return make(parameters={**empty, **plain_schema(tool.input_schema)})
    except ValueError:  # it refuses some schemas; its search reads none
        return make(parameters=empty)


def _mcp_function(tool: Any) -> Json:
    return _function(tool.name, tool.description, tool.input_schema)


def _do_nothing(**_arguments: object) -> str:
    return ""


def _pydantic(part: str) -> Any:
    return _module("pydantic_ai", part, PYDANTIC_AI, "pydantic-ai-slim")


def _fastmcp(part: str) -> Any:
    return _module("fastmcp", part, FASTMCP, "fastmcp")


def _haystack(part: str) -> Any:
    return _module("haystack", part, HAYSTACK, "haystack-ai")


def _adapter(name: str) -> Any:
    return _module("toolscout", f"adapters.{name}", name, f"toolscout[{name}]")


def _module(root: str, part: str, system: str, package: str) -> Any:
    return module_of(f"{root}.{part}" if part else root, system=system, package=package)
