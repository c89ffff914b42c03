"""How fast systems build, update and search, and how much memory they take, by catalogue size.

The systems take turns, so that whatever else the machine does slows all of them alike; compare
ratios rather than milliseconds. They take turns twice: block by block, where each finds the
processor's caches as it left them, and query by query, where others have filled them.
"""

import gc
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, Protocol, runtime_checkable

from benchmarks.footprints import Import, Memory
from benchmarks.systems import PACKAGES, System, find_installed, make_system
from benchmarks.workloads import NEW_TOOLS, Workload, make_request
from toolscout.errors import UsageError
from toolscout.evaluate.datasets import make_names_unique
from toolscout.evaluate.quality import (
    Milliseconds,
    find_versions,
    summarize_times,
)
from toolscout.tools import Tool

Json = dict[str, Any]
Make = Callable[[str], System]
_Seconds = dict[str, list[float]]

BASELINE = "bm25s"
DEFAULT_SYSTEMS = ("toolscout", "toolscout-lexical", "bm25s", "rank-bm25", "fastmcp")
DEFAULT_SIZES = (1000, 10000)
DEFAULT_QUERIES = 200
SEARCH_LIMIT = 10
WARM_UP_QUERIES = 3
BLOCK_QUERIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The time to add one more server, until its tools can be found."""

    how: Literal["add", "rebuild"]
    ms: float
    first_search_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The figures of one system at one size."""

    build_ms: float
    update: Update
    ms: Milliseconds
    """Searches one after another, as in a loop."""
    cold: Milliseconds
    """Searches in turn with other systems, as if one came now and then."""
    memory: Memory | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """All figures of one run."""

    sizes: Mapping[int, Mapping[str, Pace]]
    """By number of tools, then by system."""
    skipped: Mapping[str, str]
    """Systems that could not run, and what to install."""
    importing: Import | None
    queries: int
    versions: Mapping[str, str]

    def ratio(self, size: int, system: str) -> float | None:
        """Return the median search time as a multiple of the baseline's, if that ran."""
        baseline = self.sizes[size].get(BASELINE)
        return self.sizes[size][system].ms.p50 / baseline.ms.p50 if baseline else None

    def cold_ratio(self, size: int, system: str) -> float | None:
        """Return the same ratio for cold searches."""
        baseline = self.sizes[size].get(BASELINE)
        return self.sizes[size][system].cold.p50 / baseline.cold.p50 if baseline else None

    def to_json(self) -> Json:
        """Return the whole run as JSON."""
        return {
            "sizes": {
                str(size): {name: self._pace_to_json(size, name) for name in paces}
                for size, paces in self.sizes.items()
            },
            "skipped": dict(self.skipped),
            "import": self.importing and self.importing.to_json(),
            "queries": self.queries,
            "versions": dict(self.versions),
        }

    def _pace_to_json(self, size: int, system: str) -> Json:
        pace, memory = self.sizes[size][system], self.sizes[size][system].memory
        ratio, cold_ratio = self.ratio(size, system), self.cold_ratio(size, system)
        cold = {f"{name}_cold": figure for name, figure in pace.cold.to_json().items()}
        return {
            "build_ms": round(pace.build_ms, 3),
            "update": {
                "how": pace.update.how,
                "ms": round(pace.update.ms, 3),
                "first_search_ms": round(pace.update.first_search_ms, 3),
            },
            "ms": {**pace.ms.to_json(), **cold},
            f"p50_over_{BASELINE}": None if ratio is None else round(ratio, 3),
            f"p50_cold_over_{BASELINE}": None if cold_ratio is None else round(cold_ratio, 3),
            "memory": memory and {"rss_mb": memory.rss_mb, "growth_mb": memory.growth_mb},
        }


@runtime_checkable
class Growing(Protocol):
    """A system that can add tools without being rebuilt."""

    def add(self, tools: Sequence[Tool]) -> None:
        """Add tools to those that can be found already."""
        ...


def measure_speed(
    workload: Workload,
    systems: Sequence[str] = DEFAULT_SYSTEMS,
    *,
    sizes: Sequence[int] = DEFAULT_SIZES,
    queries: int = DEFAULT_QUERIES,
    make: Make = make_system,
    memory: Callable[[str, Sequence[Tool]], Memory] | None = None,
    importing: Import | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Speed:
    """Return the pace of every installed system at every size.

    `memory` measures one system with some tools; without it there are no memory figures. `tell`
    receives progress messages. Raises `UsageError` without tools, sizes or queries.
    """
    if not workload.tools or not sizes or min(sizes) < 1 or queries < 1:
        raise UsageError("Speed needs tools, and sizes and queries of 1 or more.")
    names, skipped = find_installed(systems, workload.tools[:NEW_TOOLS], make=make)
    paces: dict[int, dict[str, Pace]] = {}
    for size in sorted(sizes):
        tools = workload.draw_tools(size)
        if len(tools) not in paces:
            round_trip = _Round(tools, workload, queries, make, tell)
            paces[len(tools)] = round_trip.paces(names, memory)
    return Speed(
        sizes=paces,
        skipped=skipped,
        importing=importing,
        queries=queries,
        versions=find_versions(PACKAGES),
    )


@dataclass(frozen=True, slots=True)
class _Round:
    """One size."""

    tools: tuple[Tool, ...]
    workload: Workload
    queries: int
    make: Make
    tell: Callable[[str], None]

    def paces(
        self, names: Sequence[str], memory: Callable[[str, Sequence[Tool]], Memory] | None
    ) -> dict[str, Pace]:
        systems = {name: self.make(name) for name in names}
        builds = {name: self._build(name, system) for name, system in systems.items()}
        searches, cold = self._search(systems)
        updates = {name: self._update(name, system) for name, system in systems.items()}
        systems.clear()
        return {
            name: Pace(
                build_ms=builds[name],
                update=updates[name],
                ms=summarize_times(searches[name]),
                cold=summarize_times(cold[name]),
                memory=self._memory(name, memory),
            )
            for name in names
        }

    def _say(self, what: str) -> None:
        self.tell(f"{len(self.tools):,} tools: {what}")

    def _build(self, name: str, system: System) -> float:
        self._say(f"{name} builds")
        gc.collect()
        return _milliseconds_of(lambda: system.build(self.tools))

    def _search(self, systems: Mapping[str, System]) -> tuple[_Seconds, _Seconds]:
        """Return the times of searches in blocks, and in turns query by query.

        They use different queries, so that no query is cached.
        """
        self._say("all search")
        asked = self.workload.draw_queries(self.tools, WARM_UP_QUERIES + 2 * self.queries)
        first, rest = asked[:WARM_UP_QUERIES], asked[WARM_UP_QUERIES:]
        with _garbage_kept():
            return (
                _times(systems, rest[: self.queries], block=BLOCK_QUERIES, before=first),
                _times(systems, rest[self.queries :], block=1, before=()),
            )

    def _update(self, name: str, system: System) -> Update:
        self._say(f"{name} takes in {NEW_TOOLS} tools")
        fresh = self.workload.make_newcomers()
        grown = make_names_unique([*self.tools, *fresh])
        query = make_request(fresh[0])
        gc.collect()
        if isinstance(system, Growing):
            how, spent = "add", _milliseconds_of(lambda: system.add(grown[len(self.tools) :]))
        else:
            how, spent = "rebuild", _milliseconds_of(lambda: system.build(grown))
        first = _milliseconds_of(lambda: system.search(query, SEARCH_LIMIT))
        return Update(how=how, ms=spent, first_search_ms=first)

    def _memory(
        self, name: str, memory: Callable[[str, Sequence[Tool]], Memory] | None
    ) -> Memory | None:
        if memory is None:
            return None
        self._say(f"{name} is weighed")
        return memory(name, self.tools)


def _milliseconds_of(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return (perf_counter() - start) * 1000


@contextmanager
def _garbage_kept() -> Generator[None]:
    """Collect garbage only on demand, and leave out the catalogues that exist already."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _times(
    systems: Mapping[str, System], queries: Sequence[str], *, block: int, before: Sequence[str]
) -> _Seconds:
    """Return how long each query took each system, which take turns after each block.

    Each block begins with the query `before`, which is not timed.
    """
    seconds: _Seconds = {name: [] for name in systems}
    for turn, begin in enumerate(range(0, len(queries), block)):
        for name in _rotated(list(systems), turn):
            search = systems[name].search
            for query in before:
                search(query, SEARCH_LIMIT)
            for query in queries[begin : begin + block]:
                start = perf_counter()
                search(query, SEARCH_LIMIT)
                seconds[name].append(perf_counter() - start)
            gc.collect()  # untimed: no system searches amid the garbage of another
    return seconds


def _rotated(names: list[str], turn: int) -> list[str]:
    first = turn % len(names) if names else 0
    return names[first:] + names[:first]
