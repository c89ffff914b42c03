"""The tool searches that the benchmarks compare, by name.

Four are ours, five are reimplementations of searches in earlier agents, and seven are packages of
other projects, imported only when they are needed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import cast

from benchmarks.systems.system import MissingPeer
from toolscout.catalog import Catalog
from toolscout.errors import MissingExtra, UsageError
from toolscout.evaluate.quality import PACKAGES as OUR_PACKAGES
from toolscout.evaluate.quality import Ranked, System, Tier
from toolscout.search.index import Index
from toolscout.tools import Tool


class GrowingTier(Tier):
    """One of our tiers, which can also add tools to those it has."""

    def add(self, tools: Sequence[Tool]) -> None:
        """Add tools to the catalogue; the index follows."""
        by_server: dict[str, list[Tool]] = {}
        for tool in tools:
            by_server.setdefault(tool.server, []).append(tool)
        for server, its_tools in by_server.items():
            self.catalog.add(server, its_tools)


class ApproximateTier(GrowingTier):
    """One of our tiers with an approximate search among the vectors."""

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools and forget the ones before."""
        self.catalog = Catalog(tools)
        self._index = Index(self.catalog, encoder=self._encoder, approximate=True)


_OURS: dict[str, Callable[[], System]] = {
    "toolscout": partial(GrowingTier, "static"),
    "toolscout-lexical": partial(GrowingTier, "none"),
    "toolscout-onnx": partial(GrowingTier, "onnx"),
    "toolscout-approximate": partial(ApproximateTier, "static"),
}
_OTHERS = {
    "oh-my-pi": ("oh_my_pi", "OhMyPi"),
    "claude-code-best": ("claude_code_best", "ClaudeCodeBest"),
    "dirge": ("dirge", "Dirge"),
    "cortex": ("cortex", "Cortex"),
    "deer-flow": ("deer_flow", "DeerFlow"),
    "fastmcp": ("peers", "FastMcp"),
    "pydantic-ai": ("peers", "PydanticAi"),
    "haystack": ("peers", "Haystack"),
    "ratel": ("peers", "Ratel"),
    "graph-tool-call": ("peers", "GraphToolCall"),
    "bm25s": ("bm25", "Bm25s"),
    "rank-bm25": ("bm25", "RankBm25"),
}
"""The module and class of each system; imported when the system is asked for."""

SYSTEM_NAMES: tuple[str, ...] = (*_OURS, *_OTHERS)
"""All systems, in the order of reports."""

PACKAGES = (
    *OUR_PACKAGES,
    "bm25s",
    "rank-bm25",
    "fastmcp",
    "graph-tool-call",
    "haystack-ai",
    "pydantic-ai-slim",
    "ratel-ai",
)
"""Packages whose version can change a figure."""

__all__ = [
    "PACKAGES",
    "SYSTEM_NAMES",
    "MissingPeer",
    "Ranked",
    "System",
    "find_installed",
    "make_system",
]


def make_system(name: str) -> System:
    """Return a new, empty system, or raise `MissingPeer` if its package is not installed."""
    if name in _OURS:
        return _OURS[name]()
    if name not in _OTHERS:
        known = ", ".join(SYSTEM_NAMES)
        raise UsageError(f"There is no system {name!r}. Known: {known}.")
    module, attribute = _OTHERS[name]
    return cast(System, getattr(import_module(f"{__name__}.{module}"), attribute)())


def find_installed(
    names: Sequence[str], tools: Sequence[Tool], *, make: Callable[[str], System] = make_system
) -> tuple[list[str], dict[str, str]]:
    """Return the systems that run here, and what to install for each of the others.

    Each is built once on these few tools, so that everything it imports is imported.
    """
    running: list[str] = []
    missing: dict[str, str] = {}
    for name in names:
        try:
            make(name).build(tools)
            running.append(name)
        except (MissingExtra, MissingPeer) as error:
            missing[name] = str(error)
    return running, missing
