"""cortex's `ToolSearch`: names, prefixes, and points for words.

Reimplemented from a description of its behaviour. All tools are hidden, none is loaded yet.
Names found by selection, equality or prefix have no score there; they get 1, 1/2, 1/3 … here.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.systems.definitions import mcp_name
from benchmarks.systems.postings import best_first
from benchmarks.systems.system import rank_by_position
from toolscout.evaluate.quality import Ranked
from toolscout.tools import Tool


class Cortex:
    """Keyword points as cortex gives them; equal points keep the catalogue's order."""

    name = "cortex"

    def __init__(self) -> None:
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools."""
        self._tools = list(tools)
        self._by_name = {mcp_name(tool): tool for tool in tools}
        self._words = [_Words(tool) for tool in tools]

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the tools named or, for anything but a name, those with the most points."""
        query = query.strip()
        if query.startswith("select:"):
            return rank_by_position(self._selected(query.removeprefix("select:")))
        if not query:
            return []
        named = self._named(query)
        if named:
            return rank_by_position(named[: max(limit, 0)])
        return self._keywords(query.lower().split(), limit)

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return the names found, one to a line."""
        if not hits:
            return f"No tools matched {query!r}. {len(self._tools)} tools are still hidden."
        names = "\n".join(f"- {mcp_name(hit.tool)}" for hit in hits)
        return f"Loaded {len(hits)} tools, callable from the next turn:\n{names}"

    def _selected(self, names: str) -> list[Tool]:
        wanted = dict.fromkeys(name.strip() for name in names.split(","))
        return [self._by_name[name] for name in wanted if name in self._by_name]

    def _named(self, query: str) -> list[Tool]:
        """Return the tool of this name, else the tools whose names begin so."""
        if query in self._by_name:
            return [self._by_name[query]]
        if len(query.split()) > 1:
            return []
        return [self._by_name[name] for name in sorted(self._by_name) if name.startswith(query)]

    def _keywords(self, terms: Sequence[str], limit: int) -> list[Ranked]:
        required = [term[1:] for term in terms if _is_required(term)]
        wanted = [term[1:] if _is_required(term) else term for term in terms]
        points = np.array([words.points(wanted, required) for words in self._words], dtype=float)
        return [Ranked(self._tools[i], float(points[i])) for i in best_first(points, limit)]


class _Words:
    """One tool's name and description, ready to be compared with terms."""

    __slots__ = ("description", "equal", "inside", "name", "parts")

    def __init__(self, tool: Tool) -> None:
        self.name = mcp_name(tool).lower()
        self.description = tool.description.lower()
        self.parts = frozenset(part for part in re.split("_+", self.name) if part)
        self.equal, self.inside = (12, 6) if tool.server else (10, 5)

    def points(self, terms: Iterable[str], required: Iterable[str]) -> int:
        """Return the points for all terms; none when a required one is in neither text."""
        if any(term not in self.name and term not in self.description for term in required):
            return 0
        return sum(map(self._points_of, terms))

    def _points_of(self, term: str) -> int:
        if term not in self.name:
            return 2 if term in self.description else 0
        if term in self.parts:
            return self.equal
        return self.inside if any(term in part for part in self.parts) else 3


def _is_required(term: str) -> bool:
    return term.startswith("+") and len(term) > 1
