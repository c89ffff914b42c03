"""`Directory`: the catalogue as rows to browse, by server, kind and effect, with their costs.

`Costs`: what definitions cost in tokens, also where there are too many to count.

Counting takes about half a millisecond for a definition, so that of larger catalogues some are
counted and the others estimated by their length.

`Findings`: what `lints` says about the tools of a catalogue, worked out once for each content.

Linting a large catalogue takes a while, so that nobody waits for it: until it is done there are
no findings, and then `on_ready` is told.
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

from toolscout.audit.duplicates import Near, find_near
from toolscout.audit.lint import lint_catalog
from toolscout.audit.rules import Finding
from toolscout.catalog import Catalog
from toolscout.console.views import BAD, Refused, View
from toolscout.schemas import Json
from toolscout.search.index import Index
from toolscout.tokens import COUNTED_TOOLS, count_definition_tokens
from toolscout.tools import Tool

LENGTHS_KEPT = 200_000


class Costs:
    """Tokens of definitions; threads may share it."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, tools: Sequence[Tool]) -> list[int]:
        """Return the tokens of each tool: counted up to 2,000 of them, estimated beyond."""
        if len(tools) <= COUNTED_TOOLS:
            return [count_definition_tokens(tool) for tool in tools]
        lengths = [self._length(tool) for tool in tools]
        step = -(-len(tools) // COUNTED_TOOLS)
        counted = sum(map(count_definition_tokens, tools[::step]))
        share = counted / max(1, sum(lengths[::step]))
        return [max(1, round(length * share)) for length in lengths]

    def by_server(self, tools: Sequence[Tool]) -> dict[str, int]:
        """Return the tokens of each server's tools."""
        return self.by(tools, (tool.server for tool in tools))

    def by(self, tools: Sequence[Tool], groups: Iterable[str]) -> dict[str, int]:
        """Return the tokens of each group; `groups` names that of each tool."""
        sums: dict[str, int] = {}
        for group, tokens in zip(groups, self.of(tools), strict=True):
            sums[group] = sums.get(group, 0) + tokens
        return sums

    def _length(self, tool: Tool) -> int:
        known = self._lengths.get(tool.fingerprint)
        if known is None:
            schema = json.dumps(tool.input_schema, ensure_ascii=False, separators=(",", ":"))
            known = len(tool.name) + len(tool.description) + len(schema)
            with self._lock:
                if len(self._lengths) >= LENGTHS_KEPT:
                    self._lengths.clear()
                self._lengths[tool.fingerprint] = known
        return known


MANY_TOOLS = 5_000
FEW_PROBED = 500
"""Tools of such a catalogue for which a search is tried: searches of a person go first."""
TURN_SECONDS = 1e-4
WAIT_SECONDS = 0.05
NEAR_TRIED = 50
"""Nearest tools among which a caller's own are looked for."""


class Findings:
    """Findings by tool; threads may share it."""

    def __init__(
        self,
        catalog: Catalog,
        index: Index,
        on_ready: Callable[[], None],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._catalog, self._index, self._on_ready = catalog, index, on_ready
        self._is_busy = is_busy
        self._found: tuple[str, dict[str, list[Finding]]] = ("", {})
        self._working = ""
        self._lock = threading.Lock()

    def counts(self, view: View, tools: Sequence[Tool]) -> list[int | None]:
        """Return how many findings each tool has, or nothing while that is worked out."""
        found = self._ready()
        if found is None:
            return [None] * len(tools)
        return [len(_visible(found.get(tool.name, []), view)) for tool in tools]

    def of(self, view: View, tool: Tool) -> list[Json]:
        """Return the findings of one tool, worst first; none while they are worked out."""
        found = self._ready() or {}
        return [_finding_row(finding) for finding in _visible(found.get(tool.name, []), view)]

    def near(self, view: View, tool: Tool, count: int) -> list[Near]:
        """Return the visible tools nearest in meaning to one, nearest first."""
        if not view.is_limited:
            return list(find_near(self._index, tool.name, count))
        tried = find_near(self._index, tool.name, NEAR_TRIED)
        return [one for one in tried if view.sees_tool(one.name)][:count]

    def _ready(self) -> dict[str, list[Finding]] | None:
        fingerprint = self._catalog.fingerprint
        with self._lock:
            if self._found[0] == fingerprint:
                return self._found[1]
            if self._working != fingerprint:
                self._working = fingerprint
                threading.Thread(target=self._work, args=(fingerprint,), daemon=True).start()
        return None

    def _work(self, fingerprint: str) -> None:
        most = FEW_PROBED if len(self._catalog) > MANY_TOOLS else MANY_TOOLS
        with _giving_way():
            found = lint_catalog(
                self._catalog, self._index, most_probed=most, progress=self._wait_while_busy
            )
        with self._lock:
            self._found = (fingerprint, found)
        self._on_ready()

    def _wait_while_busy(self, stage: str, done: int, total: int) -> None:
        """Stand aside while somebody types."""
        while self._is_busy():
            time.sleep(WAIT_SECONDS)


@contextmanager
def _giving_way() -> Generator[None]:
    """Let other threads in often: a search that a person waits for takes many short turns.

    At 22,665 tools a key took 243 ms with Python's usual turns of 5 ms, and 92 ms with these.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _visible(found: Sequence[Finding], view: View) -> list[Finding]:
    """Return the findings that name no tool which the caller may not know."""
    if not view.is_limited:
        return list(found)
    return [finding for finding in found if all(map(view.sees_tool, finding.others))]


def _finding_row(finding: Finding) -> Json:
    told = finding.to_json()
    return {key: told[key] for key in ("code", "severity", "message", "remedy", "others")}


PAGE, PAGE_MOST = 100, 1_000
SORTS = ("name", "tokens")
NEAR = 5


class Directory:
    """Lists and single tools of a view."""

    def __init__(self, costs: Costs, findings: Findings) -> None:
        self._costs, self._findings = costs, findings
        self._texts: tuple[int, dict[str, str]] = (-1, {})

    def page(
        self,
        view: View,
        *,
        server: str = "",
        kind: str = "",
        effect: str = "",
        text: str = "",
        sort: str = "name",
        offset: int = 0,
        limit: int = PAGE,
    ) -> Json:
        """Return some of the tools that pass all filters; the dearest first for `tokens`."""
        if sort not in SORTS:
            raise Refused(BAD, "bad_sort", f"There is no order {sort!r}.", "Use name or tokens.")
        words = text.casefold().split()
        wanted = [
            tool
            for tool in view.tools
            if (not server or tool.server == server)
            and (not kind or tool.kind == kind)
            and (not effect or tool.effect.value == effect)
        ]
        if words:
            texts = self._folded(view)
            wanted = [t for t in wanted if all(word in texts[t.name] for word in words)]
        if sort == "tokens":
            costs = self._costs.of(wanted)
            order = sorted(range(len(wanted)), key=lambda i: (-costs[i], wanted[i].name))
            wanted = [wanted[i] for i in order]
        shown = wanted[offset : offset + limit]
        counts = self._findings.counts(view, shown)
        return {
            "total": len(wanted),
            "offset": offset,
            "tools": [_row(tool) | {"findings": n} for tool, n in zip(shown, counts, strict=True)],
        }

    def facets(self, view: View) -> Json:
        """Return how many tools there are of each server, kind and effect, and their tokens."""
        tools = view.tools
        keys: dict[str, Callable[[Tool], str]] = {
            "servers": lambda tool: tool.server,
            "kinds": lambda tool: tool.kind,
            "effects": lambda tool: tool.effect.value,
        }
        groups = {name: self._groups(tools, [key(t) for t in tools]) for name, key in keys.items()}
        return {**groups, "estimated": len(tools) > COUNTED_TOOLS}

    def _groups(self, tools: Sequence[Tool], names: Sequence[str]) -> list[Json]:
        counts, tokens = Counter(names), self._costs.by(tools, names)
        return [
            {"name": name, "tools": counts[name], "tokens": tokens[name]} for name in sorted(counts)
        ]

    def whole(self, view: View, name: str) -> Json:
        """Return all there is to know of one tool."""
        tool = view.tool(name)
        return {
            **_row(tool),
            "description": tool.description,
            "input_schema": tool.input_schema,
            "output_schema": tool.output_schema,
            "hint": tool.hint,
            "tags": list(tool.tags),
            "aliases": list(tool.aliases),
            "near": [
                {"name": near.name, "similarity": near.similarity}
                for near in self._findings.near(view, tool, NEAR)
            ],
            "findings": self._findings.of(view, tool),
        }

    def _folded(self, view: View) -> dict[str, str]:
        """Return what is looked through for words, by name; the same for all views."""
        if self._texts[0] != view.version:
            self._texts = (view.version, _Folded())
        texts = self._texts[1]
        for tool in view.tools:
            if tool.name not in texts:
                texts[tool.name] = "\n".join((tool.name, tool.title, tool.description)).casefold()
        return texts


class _Folded(dict[str, str]):
    """Texts by name; a tool that came meanwhile has none yet."""

    def __missing__(self, name: str) -> str:
        return name.casefold()


def _row(tool: Tool) -> Json:
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
