"""deer-flow's `tool_search`, first version: the query is one regular expression.

Reimplemented from a description of its behaviour. It returns at most five results, whatever the
limit, so metrics at ten see five.
The original runs Python's `re`, where one hostile pattern stops the process. Here patterns run
on RE2, in linear time; patterns that RE2 refuses (look-around, back references) are read
literally, as invalid patterns are in the original. RE2's `\\w`, `\\d` and `\\b` know ASCII only.
"""

import json
from collections.abc import Sequence

from benchmarks.systems.definitions import mcp_name, well_formed
from benchmarks.systems.patterns import pattern_from_query
from benchmarks.systems.system import rank_by_position
from toolscout.evaluate.quality import Ranked
from toolscout.tools import Tool

MOST_RESULTS = 5


class DeerFlow:
    """A pattern over "name description"; equal scores keep the catalogue's order."""

    name = "deer-flow"

    def __init__(self) -> None:
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools."""
        self._tools = list(tools)
        self._names = [well_formed(mcp_name(tool)) for tool in tools]
        self._texts = [
            well_formed(f"{name} {tool.description}")
            for name, tool in zip(self._names, tools, strict=True)
        ]

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return at most five tools that match the pattern, those that match by name first."""
        query = well_formed(query)
        if query.startswith("select:"):
            hits = self._selected(query.removeprefix("select:"))
        elif query.startswith("+"):
            hits = self._required(query[1:])
        else:
            hits = self._matching(query)
        return hits[: max(0, min(limit, MOST_RESULTS))]

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return the complete definitions as indented JSON."""
        if not self._tools:
            return "No deferred tools available."
        if not hits:
            return f"No tools found matching: {query}"
        definitions = [
            {
                "name": mcp_name(hit.tool),
                "description": hit.tool.description,
                "parameters": hit.tool.input_schema,
            }
            for hit in hits
        ]
        return json.dumps(definitions, indent=2, ensure_ascii=False)

    def _selected(self, names: str) -> list[Ranked]:
        wanted = {name.strip() for name in names.split(",")}
        pairs = zip(self._names, self._tools, strict=True)
        return rank_by_position([tool for name, tool in pairs if name in wanted])

    def _required(self, query: str) -> list[Ranked]:
        """Rank the tools with a word in their name by how often the rest matches."""
        word, _, rest = query.strip().partition(" ")
        if not word:
            return []
        kept = [i for i, name in enumerate(self._names) if word.lower() in name.lower()]
        pattern = pattern_from_query(rest.strip()) if rest.strip() else None
        hits = [
            Ranked(self._tools[i], float(sum(1 for _ in pattern.finditer(self._texts[i]))))
            if pattern
            else Ranked(self._tools[i], 0.0)
            for i in kept
        ]
        return sorted(hits, key=lambda hit: -hit.score)

    def _matching(self, query: str) -> list[Ranked]:
        pattern = pattern_from_query(query)
        hits = [
            Ranked(tool, 2.0 if pattern.search(name) else 1.0)
            for tool, name, text in zip(self._tools, self._names, self._texts, strict=True)
            if pattern.search(text)
        ]
        return sorted(hits, key=lambda hit: -hit.score)
