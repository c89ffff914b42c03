"""A server lists 1,000 tools while 20 clients search: nobody waits for the indexing."""

import asyncio
import gc
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import pytest

from load.gateways import tell
from load.upstream import MANY_TOOLS
from toolscout.config.file import Config
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.sessions.session import Session
from toolscout.stores import MemoryStore

UPSTREAM = Path(__file__).parent / "upstream.py"
CLIENTS = 20
BASELINE_SECONDS = 3.0
DEADLINE_SECONDS = 120.0
TICK_SECONDS = 0.001
PAUSE_SECONDS = 0.05
"""How long a client thinks between two searches."""
MOST_EXTRA_SECONDS = 0.020


@dataclass
class Waits:
    """Seconds that clients waited for answers, and that the event loop was late."""

    answers: list[float] = field(default_factory=list[float])
    ticks: list[float] = field(default_factory=list[float])

    def __str__(self) -> str:
        return f"{_describe(self.answers)}; loop late by {max(self.ticks) * 1e3:.1f} ms at most"


@pytest.mark.timeout(2 * DEADLINE_SECONDS)
def test_indexing_a_thousand_tools_delays_nobody():
    """No answer waits more than 20 ms longer than without the change."""
    calm, changing = asyncio.run(_measure())
    tell(
        f"{CLIENTS} clients search while a server lists {MANY_TOOLS:,} tools",
        without_the_change=calm,
        during_the_change=changing,
    )

    assert max(changing.ticks) - max(calm.ticks) < MOST_EXTRA_SECONDS
    assert max(changing.answers) - max(calm.answers) < MOST_EXTRA_SECONDS


async def _measure() -> tuple[Waits, Waits]:
    gc.freeze()  # as `toolscout serve` does
    arguments = (str(UPSTREAM), "big", "growing")
    server = ServerConfig(
        name="big",
        transport=Transport.STDIO,
        command=sys.executable,
        args=arguments,
        changes="allow",
    )
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        Gateway(Config(servers=(server,)), MemoryStore()) as gateway,
    ):
        await _wait_until(lambda: _is_found(gateway, "report number 7 of big", "big__report_7"))
        sessions = [gateway.open_session(f"client {number}") for number in range(CLIENTS)]
        await asyncio.sleep(1.0)
        async with _searching(sessions) as calm:
            await asyncio.sleep(BASELINE_SECONDS)
        async with _searching(sessions) as changing:
            params = {"name": "echo", "arguments": {"text": "grow"}}
            await gateway.pool.request("big", "tools/call", params)
            await _wait_until(lambda: len(gateway.scout.index) == MANY_TOOLS)
            await asyncio.sleep(0.5)
        return calm, changing


@asynccontextmanager
async def _searching(sessions: list[Session]) -> AsyncGenerator[Waits]:
    """Let clients search, and measure how long they and the event loop wait."""
    waits = Waits()
    tasks = [
        asyncio.create_task(_search(session, waits, place * PAUSE_SECONDS / len(sessions)))
        for place, session in enumerate(sessions)
    ]
    tasks.append(asyncio.create_task(_tick(waits)))
    try:
        yield waits
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _search(session: Session, waits: Waits, delay: float) -> None:
    await asyncio.sleep(delay)  # so that the clients do not all ask at once
    for number in range(1_000_000):
        await asyncio.sleep(PAUSE_SECONDS)
        started = time.perf_counter()
        query = f"report number {number % 19} of big"
        await session.handle("tool_search", {"queries": [query]})
        waits.answers.append(time.perf_counter() - started)


async def _tick(waits: Waits) -> None:
    last = time.perf_counter()
    while True:
        await asyncio.sleep(TICK_SECONDS)
        now = time.perf_counter()
        waits.ticks.append(now - last - TICK_SECONDS)
        last = now


def _is_found(gateway: Gateway, query: str, name: str) -> bool:
    return name in [hit.tool.name for hit in gateway.scout.index.search(query)]


async def _wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  # an index is no event
        await asyncio.sleep(0.01)


def _describe(seconds: list[float]) -> str:
    cuts = quantiles(seconds, n=100)
    return (
        f"{len(seconds):,} answers; p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms, "
        f"most {max(seconds) * 1e3:.1f} ms"
    )
