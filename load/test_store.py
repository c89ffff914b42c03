"""What a database costs a gateway, and what it costs when it stalls; prints its figures."""

import asyncio
import json
import os
import statistics
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from load.gateways import tell
from tests.databases import Proxy, open_proxy, run_postgres
from toolscout.config.file import Config
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import Principal
from toolscout.hints.hints import HINTS_KIND
from toolscout.sessions.session import Session
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.stores import PostgresStore, SqliteStore
from toolscout.stores.store import Change, Store
from toolscout.tools import Tool

ROUNDS = int(os.environ.get("LOAD_ROUNDS", "200"))
CLIENTS = 50
CLIENTS_AT_ONCE = 8
PAUSE_SECONDS = 5.0
TOOLS = 100
COST_LIMIT = 1.25
DELAY_LIMIT_SECONDS = 0.05
NEWS_LIMIT_SECONDS = 1.0

Ask = Callable[[Gateway, Session, int], Awaitable[None]]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """Run a database for all tests of this file."""
    with run_postgres() as url:
        yield url


def make_gateway(store: Store) -> Gateway:
    """Return a gateway with tools that answer at once."""
    gateway = Gateway(Config(), store)
    tools = [
        Tool.define(f"report_{n}", server="desk", description=f"Write report number {n}.")
        for n in range(TOOLS)
    ]
    gateway.catalog.replace("desk", tools)

    async def run(tool: Tool, arguments: object) -> str:
        return "done"

    gateway.scout.connect("desk", run)
    return gateway


def open_client(gateway: Gateway, number: int) -> Session:
    """Open the session of a client."""
    name = f"client{number}"
    return gateway.open_session(f"principal:{name}", Principal(name=name))


async def search(gateway: Gateway, session: Session, number: int) -> None:
    """Search, and wait as an answer does."""
    query = {"queries": [f"report number {number % TOOLS}"]}
    reply = await session.handle("tool_search", query)
    assert not reply.is_error, reply.text
    await gateway.store.wait_written(SESSION_KIND, session.id)


async def call(gateway: Gateway, session: Session, number: int) -> None:
    """Call a tool, and wait as an answer does."""
    reply = await session.handle("tool_call", {"name": f"desk__report_{number % TOOLS}"})
    assert reply.text == "done", reply.text
    await gateway.store.wait_written(SESSION_KIND, session.id)


def count_writes(store: SqliteStore | PostgresStore, name: str, written: Counter[str]) -> None:
    """Count the batches and changes that a store is asked to write."""
    write_all = store.write_all

    def count(changes: Sequence[Change]) -> None:
        written[f"{name}_batches"] += 1
        written[f"{name}_changes"] += len(changes)
        write_all(changes)

    store.write_all = count


def test_a_database_costs_a_gateway_little_more_cpu_than_a_file(database: str, tmp_path: Path):
    """The processor time of the gateway's process, with all its threads.

    A database works in processes of its own, which are not counted, and a file in this one.
    Several clients at a time are what a team's gateway serves, so that counts; one client in turn
    is printed too. The time includes writing what waits at the end.
    """
    written: Counter[str] = Counter()

    async def measure(gateway: Gateway, run: int, at_once: int) -> dict[str, float]:
        numbers = [run * at_once + place for place in range(at_once)]
        opened = [asyncio.to_thread(open_client, gateway, number) for number in numbers]
        sessions = await asyncio.gather(*opened)
        spent: dict[str, float] = {}
        for ask in (search, call):

            async def work(session: Session, ask: Ask = ask) -> None:
                for place in range(ROUNDS):
                    await ask(gateway, session, place)

            started = time.process_time()
            await asyncio.gather(*map(work, sessions))
            await asyncio.to_thread(gateway.store.flush)
            spent[ask.__name__] = (time.process_time() - started) / ROUNDS / at_once
        return spent

    async def work() -> dict[str, list[tuple[float, float]]]:
        """Return what each run took with a file and with a database, by the kind of run."""
        found: dict[str, list[tuple[float, float]]] = {}
        file = SqliteStore(tmp_path / "store.db")
        shared = PostgresStore(database, schema=f"load_{uuid.uuid4().hex}")
        count_writes(file, "sqlite", written)
        count_writes(shared, "postgres", written)
        with closing(file), closing(shared):
            async with make_gateway(file) as one, make_gateway(shared) as two:
                for gateway in (one, two):
                    await measure(gateway, 0, 1)  # loads what is loaded once
                for run in range(1, 6):
                    for name, at_once in (("", CLIENTS_AT_ONCE), ("in_turn_", 1)):
                        first = await measure(one, run, at_once)
                        second = await measure(two, run, at_once)
                        for ask in first:
                            pair = (first[ask], second[ask])
                            found.setdefault(f"{name}{ask}", []).append(pair)
        return found

    found = asyncio.run(work())
    files = {ask: statistics.median(pair[0] for pair in pairs) for ask, pairs in found.items()}
    databases = {ask: statistics.median(pair[1] for pair in pairs) for ask, pairs in found.items()}
    ratios = {ask: databases[ask] / files[ask] for ask in found}
    tell(
        f"CPU of a gateway, PostgreSQL against SQLite, {CLIENTS_AT_ONCE} clients or one in turn",
        **{f"sqlite_{ask}_ms": round(value * 1e3, 2) for ask, value in files.items()},
        **{f"postgres_{ask}_ms": round(value * 1e3, 2) for ask, value in databases.items()},
        **{f"{ask}_ratio": round(ratio, 2) for ask, ratio in ratios.items()},
        **written,
    )
    assert max(ratios["search"], ratios["call"]) <= COST_LIMIT


def test_a_database_that_pauses_delays_no_answer(database: str):
    """What the store adds to each answer while the database says nothing for 5 seconds."""

    async def work(proxy: Proxy, store: Store) -> tuple[list[float], list[float], int, int]:
        async with make_gateway(store) as gateway:
            sessions = [
                await asyncio.to_thread(open_client, gateway, number) for number in range(CLIENTS)
            ]
            waits: list[float] = []
            wait_written = gateway.store.wait_written

            async def measure(kind: str, key: str) -> None:
                started = time.perf_counter()
                await wait_written(kind, key)
                waits.append(time.perf_counter() - started)

            gateway.store.wait_written = measure  # pyright: ignore[reportAttributeAccessIssue]
            end = asyncio.Event()

            async def ask(session: Session, number: int) -> int:
                asked = 0
                while not end.is_set():
                    await search(gateway, session, number + asked)
                    await call(gateway, session, number + asked)
                    asked += 2
                    await asyncio.sleep(0.05)
                return asked

            asking = [asyncio.create_task(ask(s, n)) for n, s in enumerate(sessions)]
            await asyncio.sleep(PAUSE_SECONDS)
            before = list(waits)
            waits.clear()
            proxy.pause()
            await asyncio.sleep(PAUSE_SECONDS)
            during = list(waits)
            proxy.resume()
            end.set()
            await asyncio.gather(*asking)
            async with asyncio.timeout(120):
                while gateway.store.pending:
                    await asyncio.to_thread(gateway.store.flush)
            return before, during, gateway.store.pending, gateway.store.dropped

    with (
        open_proxy(database) as proxy,
        closing(PostgresStore(proxy.url, schema=f"load_{uuid.uuid4().hex}")) as store,
    ):
        before, during, pending, dropped = asyncio.run(work(proxy, store))
    tell(
        f"The database pauses for {PAUSE_SECONDS:g} s, {CLIENTS} clients",
        answers_before=len(before),
        answers_during=len(during),
        longest_wait_before_ms=round(max(before) * 1e3, 1),
        longest_wait_during_ms=round(max(during) * 1e3, 1),
        unwritten_afterwards=pending,
        lost=dropped,
    )
    assert (pending, dropped) == (0, 0)
    assert statistics.quantiles(during, n=100)[98] <= DELAY_LIMIT_SECONDS


def test_what_one_gateway_learned_another_knows_within_a_second(database: str):
    """From the write at one gateway to its use by another."""

    async def time_news(store: Store, is_known: Callable[[str], bool]) -> list[float]:
        seconds: list[float] = []
        for _ in range(101):
            digest = uuid.uuid4().hex
            row = {"digest": digest, "version": 1, "text": "words", "by": "person", "at": "now"}
            started = time.perf_counter()
            await asyncio.to_thread(store.append, HINTS_KIND, json.dumps([row]).encode())
            while not is_known(digest):  # noqa: ASYNC110  # nothing announces it
                await asyncio.sleep(0.002)
            seconds.append(time.perf_counter() - started)
        return seconds[1:]  # the first one waits until the other gateway has loaded its encoder

    async def work() -> list[float]:
        schema = f"load_{uuid.uuid4().hex}"
        here = PostgresStore(database, schema=schema)
        there = PostgresStore(database, schema=schema)
        with closing(here), closing(there):
            async with make_gateway(here) as one, make_gateway(there) as two:
                hints = two.scout.hints
                assert hints is not None
                rows = hints._rows  # pyright: ignore[reportPrivateUsage]
                return await time_news(one.store, rows.__contains__)

    seconds = asyncio.run(work())
    p99 = statistics.quantiles(seconds, n=100)[98]
    tell(
        "From one gateway to another",
        p50_ms=round(statistics.median(seconds) * 1e3, 1),
        p99_ms=round(p99 * 1e3, 1),
    )
    assert p99 < NEWS_LIMIT_SECONDS
