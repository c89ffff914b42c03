"""The catalogue as rows: tools by page, their groups, single tools with what is wrong with them.

`Costs` counts tokens, `LintResults` lints the catalogue in the background, and `ToolTable` builds
the answers from both. Searching is left to `search`.
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from toolscout.catalog import Catalog
from toolscout.console.views import ApiError, View
from toolscout.lint.duplicates import Near, find_near
from toolscout.lint.lint import lint_catalog
from toolscout.lint.rules import Finding
from toolscout.schemas import Json
from toolscout.search.index import SearchIndex
from toolscout.tokens import COUNTED_TOOLS, count_definition_tokens
from toolscout.tools import Tool

PAGE_SIZE = 100
PAGE_SIZE_MAX = 1_000
SORTS = ("name", "tokens")
NEAR_SHOWN = 5
LENGTHS_KEPT = 200_000
MANY_TOOLS = 5_000
PROBED_OF_MANY = 500
"""Tools of a large catalogue for which the lint tries a search."""
NEAR_TRIED = 50
"""Nearest tools among which the visible ones are looked for."""
SWITCH_SECONDS = 1e-4
WAIT_SECONDS = 0.05


class ToolTable:
    """The tools of a view, as rows."""

    def __init__(self, costs: "Costs", lint: "LintResults") -> None:
        self._costs = costs
        self._lint = lint
        self._texts: tuple[int, dict[str, str]] = (-1, {})

    def list_page(
        self,
        view: View,
        *,
        server: str = "",
        kind: str = "",
        effect: str = "",
        text: str = "",
        sort: str = "name",
        offset: int = 0,
        limit: int = PAGE_SIZE,
    ) -> Json:
        """Return some of the tools that pass all filters; sorted by `tokens`, the dearest first."""
        if sort not in SORTS:
            raise ApiError(400, "bad_sort", f"There is no order {sort!r}.", "Use name or tokens.")
        tools = [
            tool
            for tool in view.tools
            if (not server or tool.server == server)
            and (not kind or tool.kind == kind)
            and (not effect or tool.effect.value == effect)
        ]
        words = text.casefold().split()
        if words:
            texts = self._fold_texts(view.version, tools)
            tools = [tool for tool in tools if all(word in texts[tool.name] for word in words)]
        if sort == "tokens":
            costs = self._costs.count(tools)
            order = sorted(range(len(tools)), key=lambda i: (-costs[i], tools[i].name))
            tools = [tools[i] for i in order]
        page = tools[offset : offset + limit]
        counts = self._lint.count(view, page)
        return {
            "total": len(tools),
            "offset": offset,
            "tools": [
                {**row_from_tool(tool), "findings": count}
                for tool, count in zip(page, counts, strict=True)
            ],
        }

    def count_facets(self, view: View) -> Json:
        """Return the number of tools and tokens by server, kind and effect."""
        tools = view.tools
        keys: dict[str, Callable[[Tool], str]] = {
            "servers": lambda tool: tool.server,
            "kinds": lambda tool: tool.kind,
            "effects": lambda tool: tool.effect.value,
        }
        facets: Json = {"estimated": len(tools) > COUNTED_TOOLS}
        for facet, key in keys.items():
            names = list(map(key, tools))
            counts = Counter(names)
            tokens = self._costs.sum_by(tools, names)
            facets[facet] = [
                {"name": name, "tools": counts[name], "tokens": tokens[name]}
                for name in sorted(counts)
            ]
        return facets

    def describe(self, view: View, name: str) -> Json:
        """Return everything there is to know about one tool."""
        tool = view.get_tool(name)
        return {
            **row_from_tool(tool),
            "description": tool.description,
            "input_schema": tool.input_schema,
            "output_schema": tool.output_schema,
            "hint": tool.hint,
            "tags": list(tool.tags),
            "aliases": list(tool.aliases),
            "near": [
                {"name": other.name, "similarity": other.similarity}
                for other in self._lint.find_near(view, tool)
            ],
            "findings": self._lint.list_findings(view, tool),
        }

    def _fold_texts(self, version: int, tools: Sequence[Tool]) -> dict[str, str]:
        """Return the texts in which words are looked for, by name; all views share them."""
        if self._texts[0] != version:
            self._texts = (version, {})
        texts = self._texts[1]
        for tool in tools:
            if tool.name not in texts:
                texts[tool.name] = "\n".join((tool.name, tool.title, tool.description)).casefold()
        return texts


def row_from_tool(tool: Tool) -> Json:
    """Return the facts about a tool that every list of tools shows."""
    return {
        "name": tool.name,
        "server": tool.server,
        "leaf": tool.leaf,
        "kind": tool.kind,
        "effect": tool.effect.value,
        "title": tool.title,
        "signature": tool.render_signature(),
        "sentence": tool.first_sentence,
        "tokens": count_definition_tokens(tool),
    }


class Costs:
    """Tokens of definitions; threads may share it.

    Counting takes about half a millisecond for each definition. In a larger catalogue, some are
    counted and the others estimated from their length.
    """

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}

    def count(self, tools: Sequence[Tool]) -> list[int]:
        """Return the tokens of each tool: counted up to 2,000 tools, estimated beyond."""
        if len(tools) <= COUNTED_TOOLS:
            return [count_definition_tokens(tool) for tool in tools]
        lengths = [self._measure(tool) for tool in tools]
        step = -(-len(tools) // COUNTED_TOOLS)
        counted = sum(map(count_definition_tokens, tools[::step]))
        share = counted / max(1, sum(lengths[::step]))
        return [max(1, round(length * share)) for length in lengths]

    def sum_by(self, tools: Sequence[Tool], groups: Iterable[str]) -> dict[str, int]:
        """Return the tokens of each group; `groups` has the group of each tool."""
        sums: dict[str, int] = {}
        for group, tokens in zip(groups, self.count(tools), strict=True):
            sums[group] = sums.get(group, 0) + tokens
        return sums

    def _measure(self, tool: Tool) -> int:
        length = self._lengths.get(tool.fingerprint)
        if length is None:
            schema = json.dumps(tool.input_schema, ensure_ascii=False, separators=(",", ":"))
            length = len(tool.name) + len(tool.description) + len(schema)
            if len(self._lengths) >= LENGTHS_KEPT:
                self._lengths.clear()
            self._lengths[tool.fingerprint] = length
        return length


class LintResults:
    """What the lint finds in a catalogue, by tool; threads may share it.

    The lint of a large catalogue takes a while. It runs in the background whenever the catalogue
    has changed; there are no findings until it ends and calls `on_ready`.
    """

    def __init__(
        self,
        catalog: Catalog,
        index: SearchIndex,
        on_ready: Callable[[], None],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._catalog = catalog
        self._index = index
        self._on_ready = on_ready
        self._is_busy = is_busy
        self._results: tuple[str, dict[str, list[Finding]]] = ("", {})
        self._running = ""
        self._lock = threading.Lock()

    def count(self, view: View, tools: Sequence[Tool]) -> list[int | None]:
        """Return the number of findings of each tool, or None while the lint runs."""
        results = self._get_results()
        if results is None:
            return [None] * len(tools)
        return [len(_list_visible(results.get(tool.name, []), view)) for tool in tools]

    def list_findings(self, view: View, tool: Tool) -> list[Json]:
        """Return the findings of one tool, worst first; none while the lint runs."""
        found = (self._get_results() or {}).get(tool.name, [])
        keys = ("code", "severity", "message", "remedy", "others")
        rows = (finding.to_json() for finding in _list_visible(found, view))
        return [{key: row[key] for key in keys} for row in rows]

    def find_near(self, view: View, tool: Tool) -> list[Near]:
        """Return the visible tools that are nearest in meaning, nearest first."""
        if not view.is_limited:
            return list(find_near(self._index, tool.name, NEAR_SHOWN))
        tried = find_near(self._index, tool.name, NEAR_TRIED)
        return [other for other in tried if view.sees_tool(other.name)][:NEAR_SHOWN]

    def _get_results(self) -> dict[str, list[Finding]] | None:
        fingerprint = self._catalog.fingerprint
        with self._lock:
            if self._results[0] == fingerprint:
                return self._results[1]
            if self._running != fingerprint:
                self._running = fingerprint
                threading.Thread(target=self._run, args=(fingerprint,), daemon=True).start()
        return None

    def _run(self, fingerprint: str) -> None:
        most = PROBED_OF_MANY if len(self._catalog) > MANY_TOOLS else MANY_TOOLS
        # Shorter turns of Python's threads do not hold up a search that a person waits for: at
        # 22,665 tools a keystroke took 243 ms with the usual turns of 5 ms, and 92 ms with these.
        usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            results = lint_catalog(
                self._catalog, self._index, most_probed=most, progress=self._wait_while_busy
            )
        finally:
            sys.setswitchinterval(usual)
        with self._lock:
            self._results = (fingerprint, results)
        self._on_ready()

    def _wait_while_busy(self, stage: str, done: int, total: int) -> None:
        while self._is_busy():
            time.sleep(WAIT_SECONDS)


def _list_visible(found: Sequence[Finding], view: View) -> list[Finding]:
    """Return the findings that name no tool which is hidden from the caller."""
    if not view.is_limited:
        return list(found)
    return [finding for finding in found if all(map(view.sees_tool, finding.others))]
