"""Other projects' tool searches, each through its real package.

Each peer gets the exposed name (with the server), description and input schema, at its default
settings. If it returns no scores, the order of its hits counts. Several peers index at their first
search; `build` makes that search, so that its time counts as building.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from benchmarks.systems.definitions import plain_schema, well_formed
from benchmarks.systems.system import finish, import_peer, rank_by_position
from toolscout.evaluate.quality import Ranked
from toolscout.schemas import Json
from toolscout.tools import Tool


class FastMcp:
    """FastMCP's `BM25SearchTransform`, asked as its `search_tools` asks it.

    That includes the hash of the whole catalogue that it takes for each query. The method is
    private; the public way gives the same hits and adds a server's listing, validation and
    protocol, several times the search itself.
    """

    name = "fastmcp"

    def __init__(self) -> None:
        self._tool_type = self._module("fastmcp.tools").Tool
        self._module_of_search = self._module("fastmcp.server.transforms.search")
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools, as it does at its first search."""
        self._tools = {tool.name: tool for tool in tools}
        self._theirs = [self._their_tool(tool) for tool in tools]
        self._transform = self._module_of_search.BM25SearchTransform()
        self.search("tool", 1)

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools."""
        self._transform._max_results = max(limit, 0)
        found = finish(self._transform._search(self._theirs, query))
        return rank_by_position([self._tools[tool.name] for tool in found])

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return the definitions as compact JSON, its default."""
        theirs = [self._their_tool(hit.tool) for hit in hits]
        rendered = finish(self._transform._render_results(theirs))
        return json.dumps(rendered, ensure_ascii=False, separators=(",", ":"))

    def _their_tool(self, tool: Tool) -> Any:
        schema = plain_schema(tool.input_schema)
        return self._tool_type(name=tool.name, description=tool.description, parameters=schema)

    def _module(self, name: str) -> Any:
        return import_peer(name, system=self.name, package="fastmcp")


class PydanticAi:
    """Pydantic AI's `ToolSearch` with its default, the keyword search for all providers.

    The tools are deferred; the toolset's own `search_tools` is called as an agent calls it.
    """

    name = "pydantic-ai"

    def __init__(self) -> None:
        self._tools_module = self._module("tools")
        self._toolsets = self._module("toolsets")
        self._tool_search = self._module("capabilities").ToolSearch()
        self._retry = self._module("exceptions").ModelRetry
        model = self._module("models.test").TestModel()
        usage = self._module("usage").RunUsage()
        self._context = self._tools_module.RunContext(deps=None, model=model, usage=usage)
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Defer these tools in a new toolset, which indexes them at its first search."""
        search_name = self._tool_search.function_tool_name
        # A tool may not have the search's name; one more `_` changes none of its words.
        self._tools = {
            tool.name + "_" if tool.name == search_name else tool.name: tool for tool in tools
        }
        definitions = [self._theirs(name, tool) for name, tool in self._tools.items()]
        deferred = self._toolsets.ExternalToolset(definitions)
        self._toolset = self._tool_search.get_wrapper_toolset(deferred)
        self._search_tool = finish(self._toolset.get_tools(self._context)).get(search_name)
        self.search("tool", 1)

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools; a query without a word, which it asks to repeat, finds none."""
        found = self._answer(query, limit)["discovered_tools"]
        return rank_by_position([self._tools[match["name"]] for match in found])

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return the names found as JSON; the definitions come with the next request."""
        if not hits:
            return json.dumps(self._answer(query, 1))
        return json.dumps({"discovered_tools": [{"name": hit.tool.name} for hit in hits]})

    def _answer(self, query: str, limit: int) -> Json:
        if self._search_tool is None or limit < 1:
            return {"discovered_tools": []}
        self._toolset.max_results = limit
        arguments = {"queries": [query]}
        name = self._tool_search.function_tool_name
        try:
            call = self._toolset.call_tool(name, arguments, self._context, self._search_tool)
            return finish(call)
        except self._retry:
            return {"discovered_tools": []}

    def _theirs(self, name: str, tool: Tool) -> Any:
        return self._tools_module.ToolDefinition(
            name=name,
            description=tool.description,
            parameters_json_schema=tool.input_schema,
            defer_loading=True,
        )

    def _module(self, part: str) -> Any:
        return import_peer(f"pydantic_ai.{part}", system=self.name, package="pydantic-ai-slim")


class Haystack:
    """Haystack's `SearchableToolset`, through the search tool that it gives an agent."""

    name = "haystack"

    def __init__(self) -> None:
        self._module = import_peer("haystack.tools", system=self.name, package="haystack-ai")
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Hide these tools in a new toolset."""
        self._tools = {tool.name: tool for tool in tools}
        # Below the threshold it shows all tools and has no search.
        self._toolset = self._module.SearchableToolset(
            [self._theirs(tool) for tool in tools], search_threshold=0
        )
        self._toolset.warm_up()
        self._search_tool = next(iter(self._toolset))

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools, read off the toolset, which shows what it found in order."""
        if limit < 1 or not self._tools:
            return []
        self._ask(query, limit)
        found = [tool.name for tool in self._toolset][1:]
        return rank_by_position([self._tools[name] for name in found])

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return its own sentence with the names found."""
        return self._ask(query, max(len(hits), 1))

    def _ask(self, query: str, limit: int) -> str:
        self._toolset.clear()
        return self._search_tool.invoke(tool_keywords=query, k=limit)

    def _theirs(self, tool: Tool) -> Any:
        # Its search reads no parameters, so that a schema it refuses costs it nothing.
        return self._module.Tool(
            name=tool.name,
            description=tool.description,
            parameters={"type": "object", "properties": {}},
            function=_do_nothing,
        )


class Ratel:
    """Ratel's `ToolCatalog` with its default, BM25."""

    name = "ratel"

    def __init__(self) -> None:
        self._module = import_peer("ratel_ai", system=self.name, package="ratel-ai")
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Register these tools in a new catalogue, which indexes them at its first search."""
        self._tools = {tool.name: tool for tool in tools}
        self._catalog = self._module.ToolCatalog()
        finish(self._catalog.register([self._theirs(tool) for tool in tools]))
        self._search_tool = self._module.search_capabilities_tool(self._catalog)
        self.search("tool", 1)

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools with its BM25 scores."""
        hits = self._catalog.search(well_formed(query), max(limit, 0))
        return [Ranked(self._tools[hit.tool_id], hit.score) for hit in hits]

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return the answer of its `search_capabilities`: hits by server, with schemas."""
        question = {"query": well_formed(query), "topKTools": len(hits)}
        answer = asyncio.run(self._search_tool.execute(question))
        return json.dumps(answer, ensure_ascii=False)

    def _theirs(self, tool: Tool) -> Any:
        return self._module.ExecutableTool(
            id=tool.name,
            name=tool.name,
            description=tool.description,
            input_schema=tool.input_schema,
            execute=_do_nothing,
        )


class GraphToolCall:
    """graph-tool-call's `ToolGraph` over an MCP listing, without embeddings, as it comes."""

    name = "graph-tool-call"

    def __init__(self) -> None:
        self._module = import_peer("graph_tool_call", system=self.name, package="graph-tool-call")
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Put these tools into a new graph, which indexes them at its first search."""
        self._tools = {tool.name: tool for tool in tools}
        self._graph = self._module.ToolGraph()
        self._graph.ingest_mcp_tools([_mcp_listing(tool) for tool in tools])
        self._latest: tuple[str, list[Any]] = ("", [])
        self.search("tool", 1)

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools with its fused scores."""
        if limit < 1 or not self._tools:
            return []
        found = self._graph.retrieve_with_scores(well_formed(query), top_k=limit)[:limit]
        # A search takes a tenth of a second, so the reply to it uses what it found.
        self._latest = (query, found)
        return [Ranked(self._tools[hit.tool.name], float(hit.score)) for hit in found]

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return the answer of its MCP server, without paging and suggested order."""
        if self._latest[0] != query or len(self._latest[1]) < len(hits):
            self.search(query, len(hits))
        found = self._latest[1][: len(hits)]
        tools = [hit.to_dict(include_params=True) for hit in found]
        facts = {
            "query": query,
            "count": len(tools),
            "total_tools": len(self._tools),
            "tools": tools,
        }
        return json.dumps(facts, indent=2, ensure_ascii=False)


def _mcp_listing(tool: Tool) -> Json:
    schema = {"type": "object", **plain_schema(tool.input_schema)}
    return {"name": tool.name, "description": tool.description, "inputSchema": schema}


def _do_nothing(**_arguments: object) -> str:
    return ""
