"""How a catalogue in PostgreSQL is searched that is larger than the memory of a process.

`load_catalog` fills a database with variants of some tools: on servers of other names, with some
words replaced and some left out. `measure_searches` asks it from a process of its own, whose memory
and times are counted, and `rank_exactly` ranks the same catalogue in memory, all tools of it, to
see how many of its first ten hits were found.

Run as `python -m benchmarks.large search|exact URL FILE`, it does the last two with the queries of
a file.
"""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads import SEED
from toolscout.catalog import Catalog
from toolscout.errors import UsageError
from toolscout.evaluate.quality import Table
from toolscout.query import Query
from toolscout.search.index import Index
from toolscout.search.postgres import PostgresIndex
from toolscout.search.shard import SpellingTable, State, blend_vectors
from toolscout.search.tables import Candidates, Snapshot
from toolscout.tools import Tool

TOP = 10
LOAD_SECONDS = 3_600.0
WARMED_UP = 50
"""Queries before the measured ones, which fill caches."""
LEFT_OUT = 0.08
REPLACED = 0.5
SYNONYMS = {
    "get": "fetch retrieve read",
    "list": "enumerate show",
    "create": "make add",
    "delete": "remove erase",
    "update": "modify change",
    "search": "find look",
    "user": "member account",
    "users": "members accounts",
    "file": "document",
    "files": "documents",
    "message": "note",
    "returns": "gives yields",
    "specified": "given named",
    "details": "particulars properties",
    "information": "facts data",
    "all": "every",
    "new": "fresh another",
    "project": "workspace",
    "team": "group crew",
    "order": "purchase",
    "customer": "client buyer",
    "image": "picture",
    "status": "state",
    "report": "summary",
    "task": "job",
    "date": "day",
    "name": "label title",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Searches:
    """What searches of one catalogue cost, and how well they found what an exact ranking finds."""

    tools: int
    p50_ms: float
    p95_ms: float
    client_ms: float
    """Processor time of the searching process for one search."""
    server_ms: float
    """The same of the process of the database that answers it."""
    resident_bytes: int
    """The memory of the searching process."""
    found: float
    """The share of the first ten hits of the exact ranking."""
    found_first: float
    """How often the first hit is the same."""
    exact_ms: float
    """Processor time of the exact ranking for one search."""


def vary_servers(tools: Sequence[Tool], size: int) -> Iterator[tuple[str, list[Tool]]]:
    """Yield servers with `size` tools in all: the given ones, then variants of them."""
    by_server: dict[str, list[Tool]] = {}
    for tool in tools:
        by_server.setdefault(tool.server or "own", []).append(tool)
    left = size
    copy = 0
    while left > 0:
        for server, own in by_server.items():
            random = Random(f"{SEED} {server} {copy}")
            name = f"{server}-{_make_word(random)}" if copy else server
            some = own[:left]
            yield name, [_vary_tool(tool, name, random if copy else None) for tool in some]
            left -= len(some)
            if left <= 0:
                return
        copy += 1


def _vary_tool(tool: Tool, server: str, random: Random | None) -> Tool:
    moved = tool.move_to(server)
    if tool.name != tool.move_to(tool.server).name:  # a name that was made unique
        ending = hashlib.sha256(f"{server} {tool.name}".encode()).hexdigest()[:12]
        moved = replace(moved, name=f"{moved.name[:50]}_{ending}")
    if random is None:
        return moved
    words: list[str] = []
    for word in tool.description.split(" "):
        chance = random.random()
        if chance < LEFT_OUT and len(word) < 12:
            continue
        others = SYNONYMS.get(word.lower()) if chance < LEFT_OUT + REPLACED else None
        words.append(random.choice(others.split()) if others else word)
    return replace(moved, description=" ".join(words))


def _make_word(random: Random) -> str:
    return "".join(random.choice("bdfgklmnprstvz") + random.choice("aeiou") for _ in range(3))


def load_catalog(url: str, tools: Sequence[Tool], size: int) -> float:
    """Fill an empty database; return the seconds that took."""
    began = time.perf_counter()
    with PostgresIndex(url) as index:
        if len(index) == size:
            return 0.0
        if len(index):
            raise UsageError(f"The database has {len(index):,} tools already. Use an empty one.")
        index.load(vary_servers(tools, size))
    return time.perf_counter() - began


def measure_large(url: str, queries: Sequence[str]) -> Searches:
    """Return what searches in a database cost, each kind measured in a process of its own."""
    found = _run("search", url, queries)
    exact = _run("exact", url, queries)
    pairs = list(zip(found.pop("names"), exact["names"], strict=True))
    shares = [len({*mine} & {*best}) / len(best) for mine, best in pairs if best]
    firsts = [mine[:1] == best[:1] for mine, best in pairs if best]
    return Searches(
        **found,
        found=float(np.mean(shares)),
        found_first=float(np.mean(firsts)),
        exact_ms=exact["client_ms"],
    )


def _run(what: str, url: str, queries: Sequence[str]) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "queries.json"
        path.write_text(json.dumps(list(queries)), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.large", what, url, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise UsageError(f"The searches could not be measured: {said[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


class OpenIndex(PostgresIndex):
    """An index that tells which process of the database answers it, and gives all of its tools."""

    def find_process(self) -> int:
        """Return the id of the database's process, if there is only one connection."""
        return self.read(lambda snapshot: snapshot.fetch("SELECT pg_backend_pid()")[0][0])

    def read_all(self) -> State:
        """Return all tools as a state, as if this process had indexed them."""

        def read(snapshot: Snapshot) -> Candidates:
            rows = snapshot.fetch("SELECT place FROM {schema}.tools")
            return snapshot.fetch_candidates(place for (place,) in rows)

        state = self._database.run_long(lambda one: self._read_with(one, read), LOAD_SECONDS)
        shard = state.shards[0]
        vectors = cast("NDArray[np.int16]", shard.vectors)
        blends = shard.scanned_blends
        shard = replace(
            shard,
            spellings=SpellingTable.build(shard.tools),
            # Not only the leading dimensions: the first pass over all tools is exact too.
            scanned=np.asfortranarray(vectors, np.float32),
            scanned_blends=None
            if blends is None
            else np.asfortranarray(blend_vectors(vectors, shard.hint_vectors)),
        )
        return replace(state, shards=(shard,), numbered=self.number_terms)

    def number_terms(self, terms: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those terms that some tool has."""
        listed = list(terms)
        return self.read(lambda snapshot: snapshot.number_terms(listed))


class WholeIndex(Index):
    """An index in memory over a state that was made elsewhere."""

    def __init__(self, state: State) -> None:
        super().__init__(Catalog())
        self._state = state


def measure_searches(url: str, queries: Sequence[str]) -> dict[str, Any]:
    """Return times and memory of searches in this process, and the names that they found."""
    psutil = import_module("psutil")
    with OpenIndex(url, pool_size=1) as index:
        for query in queries[:WARMED_UP]:
            index.search(Query(text=query, words=query), TOP)
        backend = psutil.Process(index.find_process())
        before = backend.cpu_times()
        times: list[float] = []
        names: list[list[str]] = []
        used = time.process_time()
        for query in queries[WARMED_UP:]:
            began = time.perf_counter()
            result = index.search(Query(text=query, words=query), TOP)
            times.append(time.perf_counter() - began)
            names.append([hit.tool.name for hit in result])
        used = time.process_time() - used
        after = backend.cpu_times()
        served = after.user + after.system - before.user - before.system
        return {
            "tools": len(index),
            "p50_ms": float(np.percentile(times, 50)) * 1e3,
            "p95_ms": float(np.percentile(times, 95)) * 1e3,
            "client_ms": used / len(times) * 1e3,
            "server_ms": served / len(times) * 1e3,
            "resident_bytes": psutil.Process().memory_info().rss,
            "names": names,
        }


def rank_exactly(url: str, queries: Sequence[str]) -> dict[str, Any]:
    """Return the names that an index in memory finds, and the processor time of a search."""
    names: list[list[str]] = []
    used = 0.0
    with OpenIndex(url, pool_size=1) as opened:
        index = WholeIndex(opened.read_all())
        for query in queries[WARMED_UP:]:
            began = time.process_time()
            result = index.search(Query(text=query, words=query), TOP)
            used += time.process_time() - began
            names.append([hit.tool.name for hit in result])
    return {"names": names, "client_ms": used / len(names) * 1e3}


def tabulate_large(found: Sequence[Searches]) -> Table:
    """Return a row for each catalogue."""
    rows = [
        (
            f"{one.tools:,}",
            f"{one.p50_ms:.1f} ms",
            f"{one.p95_ms:.1f} ms",
            f"{one.client_ms:.1f} ms",
            f"{one.server_ms:.1f} ms",
            f"{one.resident_bytes / 1e6:.0f} MB",
            f"{one.found:.3f}",
            f"{one.found_first:.3f}",
            f"{one.exact_ms:.1f} ms",
        )
        for one in found
    ]
    head = (
        *("tools", "p50", "p95", "processor here", "processor of the database", "memory here"),
        *("of the exact top 10", "same first", "processor, in memory"),
    )
    return Table(title="A catalogue in PostgreSQL", head=head, rows=tuple(rows))


def main(what: str, url: str, path: Path) -> None:
    """Measure with the queries of a file in this process, and write the figures."""
    queries: list[str] = json.loads(path.read_text(encoding="utf-8"))
    figures = (measure_searches if what == "search" else rank_exactly)(url, queries)
    sys.stdout.write(f"{json.dumps(figures)}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
