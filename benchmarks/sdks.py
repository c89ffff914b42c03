"""Compare the tool searches of agent SDKs with toolscout's adapters in the same SDKs.

A seat is one search in one SDK: the SDK's own, or toolscout's adapter in its place. A scripted
model calls the search once. Measured are the tools of its next request, the reply, and the time
between the call and that request. SDKs are imported when a seat is built.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from statistics import fmean, median
from time import perf_counter
from typing import Any, Protocol, Self

from benchmarks.report import Table
from benchmarks.systems import PACKAGES, MissingPeer
from benchmarks.systems.definitions import plain_schema
from benchmarks.systems.system import import_peer
from toolscout.errors import MissingExtra, UsageError
from toolscout.evaluate.datasets import Dataset
from toolscout.evaluate.quality import RANKING_DEPTH, Progress, compute_ndcg, find_versions
from toolscout.schemas import Json
from toolscout.tokens import count_tokens
from toolscout.tools import Tool

_LINE = re.compile(r"^- ([\w-]+)", re.MULTILINE)
PYDANTIC_AI, FASTMCP, HAYSTACK = "pydantic-ai", "fastmcp", "haystack"


@dataclass(slots=True, kw_only=True)
class Received:
    """The reply to a search, and the model's next request."""

    reply: str = ""
    tools: list[Json] = field(default_factory=list[Json])
    started: float = 0.0
    ended: float = 0.0

    @property
    def tokens(self) -> int:
        """The tokens of the reply and of the tools in the next request."""
        listed = (
            json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in self.tools
        )
        return count_tokens(self.reply) + sum(map(_definition_tokens, listed))

    @property
    def seconds(self) -> float:
        """The time from the model's call to its next request."""
        return self.ended - self.started


@lru_cache(100_000)
def _definition_tokens(definition: str) -> int:
    return count_tokens(definition)


class Seat(Protocol):
    """A search in an SDK; a context manager that is open while queries run."""

    def names(self, received: Received) -> list[str]:
        """Return the names of the tools found, best first."""
        ...

    async def ask(self, query: str, *, deep: bool) -> Received:
        """Search once: for ten tools if `deep`, otherwise for the default number of the SDK."""
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
    """A seat that needs no opening or closing."""

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
        """Return the names in the reply or in the next request."""
        if self._way == "toolset":
            return _named_in_lines(received)
        return [found["name"] for found in json.loads(received.reply)["discovered_tools"]]

    async def ask(self, query: str, *, deep: bool) -> Received:
        """Let the model search, and return its reply and next request."""
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
            strategy = "keywords" if own else _adapter("pydantic_ai").create_strategy()
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
        """Return the names in the reply or in the next request."""
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
        """Let the model search, and return its reply and next request."""
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
        """Return the names in the reply or in the next request."""
        if self._meta:
            return _named_in_lines(received)
        # Its reply has no order of its own; the tools of the next request have.
        return [tool["function"]["name"] for tool in received.tools][1:]

    async def ask(self, query: str, *, deep: bool) -> Received:
        """Let the model search, and return its reply and next request."""
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
    """Return a query without the characters that toolscout would read as operators."""
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
    return import_peer(f"{root}.{part}" if part else root, system=system, package=package)


Makers = Mapping[str, Mapping[str, Callable[[Sequence[Tool]], Seat]]]
PROBES = 10
"""Tools with which a seat is tried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The figures of one search in one SDK, on one dataset or on average."""

    ndcg: float
    """At ten hits."""
    tokens: float
    """Of the reply and of the tools of the next request, at the SDK's usual number of hits."""
    milliseconds: float
    """From the model's call to its next request; the median on a dataset."""

    def to_json(self) -> Json:
        """Return the figures, rounded."""
        return {
            "ndcg@10": round(self.ndcg, 6),
            "tokens": round(self.tokens, 2),
            "ms": round(self.milliseconds, 4),
        }


Standings = dict[str, dict[str, Standing]]
"""By SDK, then by search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All standings of one run."""

    datasets: Mapping[str, Standings]
    macro: Standings
    missing: Mapping[str, str]
    """What could not be compared, and what to install."""
    queries: int
    versions: Mapping[str, str]

    def to_json(self) -> Json:
        """Return the whole run as JSON."""
        return {
            "datasets": {name: _to_json(found) for name, found in self.datasets.items()},
            "macro": _to_json(self.macro),
            "missing": dict(self.missing),
            "queries": self.queries,
            "versions": dict(self.versions),
        }


def compare_sdks(
    datasets: Sequence[Dataset],
    *,
    makers: Makers = SEATS,
    progress: Progress = lambda stage, done, total: None,
) -> Comparison:
    """Measure all installed searches on all datasets.

    Raises `UsageError` if no SDK is installed or a dataset has no queries.
    """
    unasked = [dataset.name for dataset in datasets if not dataset.queries]
    if unasked or not datasets:
        raise UsageError(f"There is nothing to ask of {unasked or 'no dataset'}. Name others.")
    present, missing = _present(makers, datasets[0].tools[:PROBES])
    if not present:
        raise UsageError(f"No SDK is installed. {' '.join(sorted(set(missing.values())))}")
    found = {dataset.name: _on_dataset(dataset, present, progress) for dataset in datasets}
    return Comparison(
        datasets=found,
        macro=_macro(list(found.values())),
        missing=missing,
        queries=sum(len(dataset.queries) for dataset in datasets),
        versions=find_versions(PACKAGES),
    )


def tabulate_comparison(comparison: Comparison) -> list[Table]:
    """Return the macro means, then nDCG@10 and tokens of each dataset."""
    head = ("SDK and search", "nDCG@10", "tokens", "ms")
    rows = [(name, *_cells(standing)) for name, standing in _listed(comparison.macro)]
    title = f"Macro mean, datasets: {len(comparison.datasets)}"
    return [
        Table(title=title, head=head, rows=tuple(rows)),
        _by_dataset(comparison, "nDCG@10", lambda standing: f"{standing.ndcg:.3f}"),
        _by_dataset(comparison, "Tokens", lambda standing: f"{standing.tokens:,.0f}"),
        _by_dataset(comparison, "Milliseconds", lambda standing: f"{standing.milliseconds:.1f}"),
    ]


def _present(makers: Makers, tools: Sequence[Tool]) -> tuple[Makers, dict[str, str]]:
    present: dict[str, dict[str, Callable[[Sequence[Tool]], Seat]]] = {}
    missing: dict[str, str] = {}
    for sdk, searches in makers.items():
        for search, make in searches.items():
            try:
                make(tools)
                present.setdefault(sdk, {})[search] = make
            except (MissingExtra, MissingPeer) as error:
                missing[f"{sdk}: {search}"] = str(error)
    return present, missing


def _on_dataset(dataset: Dataset, makers: Makers, progress: Progress) -> Standings:
    return {
        sdk: {
            search: asyncio.run(
                _standing(dataset, make(dataset.tools), f"{sdk} {search}", progress)
            )
            for search, make in searches.items()
        }
        for sdk, searches in makers.items()
    }


async def _standing(dataset: Dataset, seat: Seat, name: str, progress: Progress) -> Standing:
    group_of, asked = dataset.group_by_name(), dataset.queries
    gains: list[float] = []
    tokens: list[int] = []
    seconds: list[float] = []
    async with seat:
        await seat.ask(asked[0].text, deep=False)  # the first one indexes
        for query, relevant in zip(asked, dataset.find_relevant_groups(), strict=True):
            names = seat.names(await seat.ask(query.text, deep=True))
            ranking = [group_of[name] for name in names if name in group_of]
            gains.append(compute_ndcg(ranking[:RANKING_DEPTH], relevant, RANKING_DEPTH))
            received = await seat.ask(query.text, deep=False)
            tokens.append(received.tokens)
            seconds.append(received.seconds)
            progress(f"{dataset.name}: {name}", len(gains), len(asked))
    return Standing(ndcg=fmean(gains), tokens=fmean(tokens), milliseconds=median(seconds) * 1_000)


def _macro(found: Sequence[Standings]) -> Standings:
    return {
        sdk: {
            search: Standing(
                ndcg=fmean(one[sdk][search].ndcg for one in found),
                tokens=fmean(one[sdk][search].tokens for one in found),
                milliseconds=fmean(one[sdk][search].milliseconds for one in found),
            )
            for search in searches
        }
        for sdk, searches in found[0].items()
    }


def _listed(standings: Standings) -> list[tuple[str, Standing]]:
    return [
        (f"{sdk}: {search}", standing)
        for sdk, searches in standings.items()
        for search, standing in searches.items()
    ]


def _cells(standing: Standing) -> tuple[str, str, str]:
    return (
        f"{standing.ndcg:.3f}",
        f"{standing.tokens:,.0f}",
        f"{standing.milliseconds:.1f}",
    )


def _by_dataset(comparison: Comparison, title: str, cell: Callable[[Standing], str]) -> Table:
    names = [name for name, _ in _listed(comparison.macro)]
    rows = [
        (dataset, *(cell(standing) for _, standing in _listed(standings)))
        for dataset, standings in (*comparison.datasets.items(), ("macro", comparison.macro))
    ]
    return Table(title=title, head=("dataset", *names), rows=tuple(rows))


def _to_json(standings: Standings) -> Json:
    return {
        sdk: {search: standing.to_json() for search, standing in searches.items()}
        for sdk, searches in standings.items()
    }
