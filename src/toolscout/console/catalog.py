"""`Directory`: the catalogue as rows to browse, by server, kind and effect, with their costs."""

from collections import Counter
from collections.abc import Callable, Sequence

from toolscout.console.costs import Costs
from toolscout.console.findings import Findings
from toolscout.console.refusals import BAD, Refused
from toolscout.console.views import View
from toolscout.schemas import Json
from toolscout.tokens import COUNTED_TOOLS, definition_tokens
from toolscout.tools import Tool

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
        "signature": tool.signature(),
        "sentence": tool.first_sentence(),
        "tokens": definition_tokens(tool),
    }
