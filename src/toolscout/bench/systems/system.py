"""What the benchmark asks of a tool search, ours or another's.

A `System` indexes tools, ranks them for a query, and shows what a model would read.
It knows nothing of data sets and measures; `bench.quality` and `bench.speed` do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from toolscout.errors import UsageError
from toolscout.tools import Tool


@dataclass(frozen=True, slots=True)
class Ranked:
    """A tool that a system found."""

    tool: Tool
    score: float
    """On the system's own scale; a system that tells none gets 1, 1/2, 1/3 … by rank."""


class System(Protocol):
    """A tool search that can be compared with others."""

    @property
    def name(self) -> str:
        """Return the name in reports."""
        ...

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools and forget the ones before."""
        ...

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return at most `limit` tools, best first; no query raises."""
        ...

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return what the model would read for these hits of this query."""
        ...


class MissingPeer(UsageError):
    """A peer system whose package is not installed."""

    def __init__(self, system: str, *, package: str) -> None:
        self.system, self.package = system, package
        super().__init__(
            f"System {system!r} needs a package that is not installed. "
            f"Run `pip install {package}`, best in an environment of its own."
        )


def ranked_by_position(tools: Sequence[Tool]) -> list[Ranked]:
    """Return hits for a system that gives an order and no scores."""
    return [Ranked(tool, 1 / position) for position, tool in enumerate(tools, start=1)]
