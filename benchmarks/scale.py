"""How far a site of gateways scales: measured constants, a capacity model, and a simulated day.

`measure_constants` measures what a tool, a session, a search and a call need, in processes of
their own. Processor time is counted, not time on the clock, so that a busy machine changes little.
`Model` turns the constants into what a site needs. `replay_day` sends a day of requests through
replicas that are queues with the measured times, and loses one of them at the busiest hour.

Run as `python -m benchmarks.scale FILE`, it measures the memory and time of an index with the
tools of a file.
"""

import asyncio
import gc
import json
import math
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import numpy as np
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from numpy.typing import NDArray

from benchmarks.workloads import SEED, Workload
from toolscout.catalog import Catalog
from toolscout.errors import UsageError
from toolscout.evaluate.datasets import make_names_unique
from toolscout.evaluate.quality import Table
from toolscout.files import read_tools, write_tools
from toolscout.gateway.http import SESSIONS_KEPT
from toolscout.query import query_from_text
from toolscout.search.index import Index
from toolscout.tools import Tool

Doubles = NDArray[np.float64]

BUSY = 0.6
"""The share of a core that a replica may need in the busiest hour; more makes requests wait."""
SPARE = 1
"""Replicas beyond those that the load needs, for one that is lost or upgraded."""
MOST_SEARCH_SECONDS = 0.1
MOST_REPLICA_BYTES = 16e9
GATEWAY_TOOLS = 500
PRINCIPALS = 150
QUERIES = 200
CALLS = 400
MEGABYTE = 1e6
DAY_SECONDS = 86_400
HOURS = (1, 1, 1, 1, 1, 2, 4, 8, 14, 18, 19, 18, 15, 17, 19, 18, 16, 12, 8, 5, 4, 3, 2, 1)
"""How many sessions begin in each hour of a day of one time zone, as parts of their sum."""
SESSIONS_A_DAY = 4
SEARCHES_A_SESSION = 3
CALLS_A_SESSION = 10
THINK_SECONDS = 15.0
"""The mean time between two requests of a session."""
LOST_SECONDS = 60
AUDIT_DAYS = 90
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What one of each needs, in bytes and seconds of a processor."""

    base_bytes: float
    """A gateway with a few tools and no session."""
    tool_bytes: float
    tool_seconds: float
    """To index one more tool."""
    search_seconds: float
    """A search in a small catalogue, without the protocol."""
    search_seconds_per_tool: float
    session_bytes: float
    session_stored_bytes: float
    request_search_seconds: float
    """A search over HTTP, as the gateway's process pays it."""
    request_call_seconds: float
    call_stored_bytes: float
    """What the store and its audit record grow by with a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is asked of the gateways."""

    tools: int
    principals: int

    @property
    def searches(self) -> float:
        """Searches in a day."""
        return self.principals * SESSIONS_A_DAY * SEARCHES_A_SESSION

    @property
    def calls(self) -> float:
        """Calls in a day."""
        return self.principals * SESSIONS_A_DAY * CALLS_A_SESSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a site needs."""

    site: Site
    peak_requests: float
    """In a second of the busiest hour."""
    search_seconds: float
    replicas: int
    replica_bytes: float
    index_seconds: float
    """To index all tools at a first start."""
    stored_bytes: float
    writes: float
    """Into the database, in a second of the busiest hour."""

    @property
    def limit(self) -> str:
        """What does not fit first; empty if everything fits."""
        if self.replica_bytes > MOST_REPLICA_BYTES:
            return "memory of a replica"
        return "time of a search" if self.search_seconds > MOST_SEARCH_SECONDS else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """How a day went; times in seconds."""

    requests: int
    replicas: int
    busiest: float
    """The largest share of a core that a replica needed in an hour."""
    wait_p50: float
    wait_p99: float
    lost_wait_p99: float
    """The same in the minute in which a replica was gone and the others had its principals."""
    lost_wait_max: float
    moved: int
    """Requests that went to another replica in that minute."""


class Model:
    """Says what a site needs, by the constants."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants

    def time_search(self, tools: int) -> float:
        """Return the processor time of a search over HTTP with this many tools."""
        more = self.constants.search_seconds_per_tool * max(0, tools - GATEWAY_TOOLS)
        return self.constants.request_search_seconds + more

    def find_need(self, site: Site) -> Need:
        """Return what a site needs."""
        constants = self.constants
        peak = max(HOURS) / sum(HOURS) / 3600
        search = self.time_search(site.tools)
        load = peak * (site.searches * search + site.calls * constants.request_call_seconds)
        replicas = math.ceil(load / BUSY) + SPARE
        kept = min(SESSIONS_KEPT, math.ceil(site.principals / replicas))
        return Need(
            site=site,
            peak_requests=peak * (site.searches + site.calls),
            search_seconds=search,
            replicas=replicas,
            replica_bytes=constants.base_bytes
            + constants.tool_bytes * site.tools
            + constants.session_bytes * kept,
            index_seconds=constants.tool_seconds * site.tools,
            stored_bytes=constants.session_stored_bytes * site.principals
            + constants.call_stored_bytes * (site.calls + site.searches) * AUDIT_DAYS,
            writes=peak * 2 * (site.searches + site.calls),
        )


def measure_constants(workload: Workload, sizes: Sequence[int]) -> Constants:
    """Measure everything; of `sizes`, the smallest and the largest give what one tool costs."""
    small, large = (_measure_index(workload, size) for size in (min(sizes), max(sizes)))
    more = large["tools"] - small["tools"]
    if more <= 0:
        raise UsageError("Give two sizes, such as --sizes 5000,20000, and enough tools for both.")
    gateway = asyncio.run(_measure_gateway())
    slope = max(0.0, (large["search_seconds"] - small["search_seconds"]) / more)
    return Constants(
        tool_bytes=(large["bytes"] - small["bytes"]) / more,
        tool_seconds=(large["build_seconds"] - small["build_seconds"]) / more,
        search_seconds=small["search_seconds"] - slope * small["tools"],
        search_seconds_per_tool=slope,
        **gateway,
    )


def replay_day(model: Model, site: Site, *, replicas: int | None = None, seed: int = SEED) -> Day:
    """Send a day of requests through replicas; the requests of a principal go to one of them."""
    count = model.find_need(site).replicas if replicas is None else replicas
    random = np.random.default_rng(seed)
    times, owners, is_search = draw_requests(random, site)
    constants = model.constants
    means = np.where(is_search, model.time_search(site.tools), constants.request_call_seconds)
    # An assumption, not a measurement: times deviate from their mean by half of it.
    work = means * random.gamma(4.0, 0.25, len(means))
    homes = random.integers(0, count, site.principals)[owners]
    hour = int(np.argmax(np.bincount((times // 3600).astype(np.int64), minlength=24)))
    lost_at = hour * 3600 + 1800.0
    is_lost = (times >= lost_at) & (times < lost_at + LOST_SECONDS)
    is_moved = is_lost & (homes == 0) if count > 1 else np.zeros(len(times), dtype=np.bool_)
    homes[is_moved] = random.integers(1, max(count, 2), int(is_moved.sum()))
    waits = queue_requests(times, work, homes, count)
    in_hour = times // 3600 == hour
    busiest = np.bincount(homes[in_hour], work[in_hour], minlength=count).max() / 3600
    return Day(
        requests=len(times),
        replicas=count,
        busiest=float(busiest),
        wait_p50=float(np.quantile(waits, 0.5)),
        wait_p99=float(np.quantile(waits, 0.99)),
        lost_wait_p99=float(np.quantile(waits[is_lost], 0.99)) if is_lost.any() else 0.0,
        lost_wait_max=float(waits[is_lost].max()) if is_lost.any() else 0.0,
        moved=int(is_moved.sum()),
    )


def draw_requests(
    random: np.random.Generator, site: Site
) -> tuple[Doubles, NDArray[np.int64], NDArray[np.bool_]]:
    """Return the times of a day's requests in order, whose they are, and which are searches."""
    sessions = site.principals * SESSIONS_A_DAY
    steps = SEARCHES_A_SESSION + CALLS_A_SESSION
    shares = np.array(HOURS) / sum(HOURS)
    starts = (random.choice(24, sessions, p=shares) + random.random(sessions)) * 3600
    gaps = random.exponential(THINK_SECONDS, (sessions, steps))
    times = (starts[:, None] + np.cumsum(gaps, axis=1)).ravel() % DAY_SECONDS
    owners = np.repeat(random.integers(0, site.principals, sessions), steps)
    kinds = np.tile(np.arange(steps) < SEARCHES_A_SESSION, sessions)
    order = np.argsort(times, kind="stable")
    return times[order], owners[order], kinds[order]


def queue_requests(times: Doubles, work: Doubles, homes: NDArray[np.int64], count: int) -> Doubles:
    """Return how long each request waits until its replica has done what came before."""
    waits = np.zeros(len(times))
    for home in range(count):
        places = np.flatnonzero(homes == home)
        # A request begins when the one before it has ended: a running maximum, without a loop.
        done = np.cumsum(work[places])
        before = done - work[places]
        begun = before + np.maximum.accumulate(times[places] - before)
        waits[places] = begun - times[places]
    return waits


def tabulate_constants(constants: Constants) -> Table:
    """Return a row for each constant."""
    rows = [
        ("gateway with few tools, memory", f"{constants.base_bytes / MEGABYTE:,.0f} MB"),
        ("tool, memory", f"{constants.tool_bytes / 1e3:,.1f} KB"),
        ("tool, to index", f"{constants.tool_seconds * 1e3:,.2f} ms"),
        ("search, in the library", f"{constants.search_seconds * 1e3:,.2f} ms"),
        ("search, for each million tools", f"{constants.search_seconds_per_tool * 1e9:,.0f} ms"),
        ("search, over HTTP", f"{constants.request_search_seconds * 1e3:,.2f} ms"),
        ("call, over HTTP", f"{constants.request_call_seconds * 1e3:,.2f} ms"),
        ("session, memory", f"{constants.session_bytes / 1e3:,.1f} KB"),
        ("session, stored", f"{constants.session_stored_bytes / 1e3:,.1f} KB"),
        ("call, stored", f"{constants.call_stored_bytes / 1e3:,.2f} KB"),
    ]
    head = ("one", "memory or processor time")
    return Table(title="Measured", head=head, rows=tuple(rows))


def tabulate_needs(needs: Sequence[Need]) -> Table:
    """Return a row for each site."""
    rows = [
        (
            f"{need.site.tools:,} tools, {need.site.principals:,} principals",
            f"{need.peak_requests:,.0f}",
            f"{need.search_seconds * 1e3:,.1f} ms",
            f"{need.replicas:,}",
            f"{need.replica_bytes / 1e9:,.2f} GB",
            f"{need.index_seconds / 60:,.1f} min",
            f"{need.stored_bytes / 1e9:,.1f} GB",
            f"{need.writes:,.0f}",
            need.limit or "fits",
        )
        for need in needs
    ]
    head = (
        *("site", "requests/s", "search", "replicas", "memory each", "first index"),
        *("database", "writes/s", "limit"),
    )
    return Table(title="What a site needs", head=head, rows=tuple(rows))


def tabulate_days(days: Sequence[tuple[Site, Day]]) -> Table:
    """Return a row for each simulated day."""
    rows = [
        (
            f"{site.tools:,} tools, {site.principals:,} principals",
            f"{day.requests:,}",
            str(day.replicas),
            f"{day.busiest:.2f}",
            f"{day.wait_p50 * 1e3:,.1f} ms",
            f"{day.wait_p99 * 1e3:,.1f} ms",
            f"{day.lost_wait_p99 * 1e3:,.1f} ms",
            f"{day.lost_wait_max * 1e3:,.0f} ms",
            f"{day.moved:,}",
        )
        for site, day in days
    ]
    head = (
        *("site", "requests", "replicas", "busiest", "wait p50", "wait p99"),
        *("p99, one lost", "longest, one lost", "moved"),
    )
    return Table(title="A day", head=head, rows=tuple(rows))


def json_from_scale(
    constants: Constants, needs: Sequence[Need], days: Sequence[tuple[Site, Day]]
) -> dict[str, Any]:
    """Return everything as JSON."""
    return {
        "constants": asdict(constants),
        "needs": [asdict(need) | {"limit": need.limit} for need in needs],
        "days": [asdict(site) | asdict(day) for site, day in days],
    }


def constants_from_json(figures: dict[str, float]) -> Constants:
    """Return constants that were measured before."""
    return Constants(**{part.name: figures[part.name] for part in fields(Constants)})


def _measure_index(workload: Workload, size: int) -> dict[str, float]:
    tools = workload.draw_tools(size)
    queries = workload.draw_queries(tools, QUERIES)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tools.jsonl"
        write_tools(path, tools)
        (Path(folder) / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.scale", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise UsageError(f"The index could not be measured: {said[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(path: Path) -> None:
    """Measure an index with the tools of a file in this process, and write the figures."""
    queries: list[str] = json.loads(path.with_name("queries.json").read_text(encoding="utf-8"))
    Index(_build_catalog(()))  # what every index needs is not counted to its tools
    tools = make_names_unique(read_tools(path))
    before = _count_resident()
    began = time.process_time()
    catalog = _build_catalog(tools)
    index = Index(catalog)
    index.search(query_from_text(queries[0]))
    built = time.process_time() - began
    after = _count_resident()
    began = time.process_time()
    for query in queries:
        index.search(query_from_text(query))
    searched = (time.process_time() - began) / len(queries)
    figures = {
        "tools": len(tools),
        "bytes": after - before,
        "build_seconds": built,
        "search_seconds": searched,
    }
    sys.stdout.write(f"{json.dumps(figures)}\n")


def _build_catalog(tools: Sequence[Tool]) -> Catalog:
    catalog = Catalog()
    by_server: dict[str, list[Tool]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(tool)
    for server, members in by_server.items():
        catalog.replace(server, members)
    return catalog


async def _measure_gateway() -> dict[str, float]:
    """Return what sessions, searches and calls cost a gateway over HTTP, by its own process."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        async with _serve_gateway(place) as (url, process):
            async with _open_client(url, 0) as client:
                await _wait_known(client)
                await client.call_tool("tool_call", {"name": "many__echo", "arguments": {}})
                base = process.memory_info().rss
                search = await _count_seconds(process, client, "tool_search", CALLS // 2)
                stored = _count_stored(place)
                call = await _count_seconds(process, client, "tool_call", CALLS)
                call_stored = (_count_stored(place) - stored) / CALLS
            stored, resident = _count_stored(place), process.memory_info().rss
            for number in range(1, PRINCIPALS):
                async with _open_client(url, number) as client:
                    await client.call_tool("tool_search", {"query": "open a pull request"})
            await asyncio.sleep(1)  # until what was queued is stored
            session = (process.memory_info().rss - resident) / (PRINCIPALS - 1)
            session_stored = (_count_stored(place) - stored) / (PRINCIPALS - 1)
    return {
        "base_bytes": float(base),
        "session_bytes": max(0.0, session),
        "session_stored_bytes": session_stored,
        "request_search_seconds": search,
        "request_call_seconds": call,
        "call_stored_bytes": call_stored,
    }


@asynccontextmanager
async def _serve_gateway(folder: Path) -> AsyncGenerator[tuple[str, Any]]:
    servers = Path(__file__).with_name("servers.py")
    words = ["-P", str(servers), "many", "--tools", str(GATEWAY_TOOLS)]
    tokens = "".join(
        f'[gateway.tokens.p{number}]\ntoken = "token-{number}"\n' for number in range(PRINCIPALS)
    )
    config = folder / "toolscout.toml"
    text = (
        f"[gateway]\nport = 0\nmax_requests = 1000000\n{tokens}"
        f"[servers.many]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(words)}\n"
    )
    await asyncio.to_thread(config.write_text, text, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolscout", "serve", "--http", "--config", str(config)),
        *("--cache", str(folder)),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            address = b""
            while b"Serving MCP at" not in address:
                address = await process.stderr.readline()
        reading = asyncio.create_task(process.stderr.read())
        url = address.decode().split()[-1].removesuffix("/mcp.").rstrip(".")
        yield url, import_module("psutil").Process(process.pid)
        reading.cancel()
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _open_client(url: str, number: int) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer token-{number}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=START_SECONDS) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        yield client


async def _wait_known(client: Client) -> None:
    async with asyncio.timeout(START_SECONDS):
        found = False
        while not found:
            answer = await client.call_tool("tool_search", {"query": "select:many__echo"})
            found = any("many__echo(" in getattr(part, "text", "") for part in answer.content)


async def _count_seconds(process: Any, client: Client, tool: str, count: int) -> float:
    """Return the processor time that the gateway needs for one request of a kind."""
    queries = ("open a pull request", "send an invoice", "what is the weather", "list my files")
    began = process.cpu_times()
    for number in range(count):
        arguments: dict[str, Any] = {"name": "many__echo", "arguments": {}}
        if tool == "tool_search":
            arguments = {"query": f"{queries[number % len(queries)]} {number}"}
        await client.call_tool(tool, arguments)
    ended = process.cpu_times()
    return (ended.user + ended.system - began.user - began.system) / count


def _count_stored(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "gateway.db")) as database:
        # Until then, its log has each changed page again, up to 4 MB.
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(path.stat().st_size for path in folder.glob("gateway.db*"))


def _count_resident() -> int:
    gc.collect()
    return import_module("psutil").Process().memory_info().rss


if __name__ == "__main__":
    main(Path(sys.argv[1]))
