"""Ten principals, one of them hostile: the other nine are served as before."""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import quantiles

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from load.gateways import Gateway, becomes, fleet_of, footprint, is_ready, serving, tell, text_of

HERE = Path(__file__).parent
PRINCIPALS = 10
CLIENTS_EACH = 20
SECONDS = 12.0
PAUSE_SECONDS = 2.0
"""How long a client thinks between two calls."""
STARTING_SECONDS = 30.0
CONNECTING_AT_ONCE = 10
ECHO = {"name": "server0__echo", "arguments": {"text": "hello"}}
KEPT = 0.9
GROWTH_MEGABYTES = 150.0
DEADLINE_SECONDS = 30.0


def token_of(number: int) -> str:
    """Return the token of one principal."""
    return f"token-of-principal-number-{number:02}"


@pytest.mark.timeout(180)
def test_a_hostile_principal_takes_at_most_a_tenth_from_the_others(tmp_path: Path):
    """The throughput that 180 clients of nine principals keep."""
    arguments = (str(HERE / "upstream.py"), "server0", "good")
    fleet = fleet_of(tmp_path, {"server0": arguments}, server0={"concurrency": 200, "lazy": False})
    tables = [f'[gateway.tokens.p{n}]\ntoken = "{token_of(n)}"\n' for n in range(PRINCIPALS)]
    with fleet.config.open("a", encoding="utf-8") as file:
        file.write("".join(tables))
    with serving(fleet) as gateway:
        assert becomes(lambda: is_ready(gateway), STARTING_SECONDS), list(gateway.lines)
        asyncio.run(compare(gateway))


async def compare(gateway: Gateway) -> None:
    """Measure the honest clients alone, and then beside the hostile one."""
    clients = CLIENTS_EACH * (PRINCIPALS - 1)
    connecting = asyncio.Semaphore(CONNECTING_AT_ONCE)
    phases = [asyncio.Barrier(clients + 1) for _ in range(4)]
    """The begin and the end of both measurements."""
    alone, attacked = Measurement(), Measurement()

    async def live(number: int) -> None:
        async with AsyncExitStack() as stack:
            async with connecting:
                client = await stack.enter_async_context(connected(gateway, number))
                await client.call_tool("tool_call", ECHO)  # until everything has been used once
            for phase, measurement in enumerate((alone, attacked)):
                await phases[2 * phase].wait()
                await measurement.ask(f"p{number}", client)
                await phases[2 * phase + 1].wait()

    async with asyncio.TaskGroup() as group:
        for number in range(1, PRINCIPALS):
            for _ in range(CLIENTS_EACH):
                group.create_task(live(number))
        await phases[0].wait()
        await phases[1].wait()
        before = footprint(gateway)
        command = [str(HERE / "hostile.py"), gateway.url, token_of(0), str(SECONDS + 2)]
        attack = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE
        )
        await asyncio.sleep(1)
        await phases[2].wait()
        await phases[3].wait()
        answers, _ = await attack.communicate()
        after = footprint(gateway)
    share = attacked.answered.total() / alone.answered.total()
    worst = min(attacked.answered[name] / count for name, count in alone.answered.items())
    tell(
        f"{clients} clients of {PRINCIPALS - 1} principals, and one hostile principal",
        calls_without_it=alone,
        calls_with_it=attacked,
        kept=f"{share:.1%}, by the principal that lost most {worst:.1%}",
        answers_to_the_hostile_one=json.loads(answers),
        megabytes=f"{before.megabytes} before, {after.megabytes} after",
    )
    assert share >= KEPT
    assert after.megabytes - before.megabytes < GROWTH_MEGABYTES


class Measurement:
    """The answers of each principal within some seconds, and how long each took."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self._times: list[float] = []

    async def ask(self, name: str, client: Client) -> None:
        """Let one client call and think in turn."""
        end = time.monotonic() + SECONDS
        await asyncio.sleep(random.random() * PAUSE_SECONDS)
        while time.monotonic() < end:
            started = time.monotonic()
            call = {"name": "server0__echo", "arguments": {"text": name}}
            answer = await client.call_tool("tool_call", call)
            assert text_of(answer) == f"server0.echo: {name}"
            if time.monotonic() < end:
                self.answered[name] += 1
                self._times.append(time.monotonic() - started)
            await asyncio.sleep(PAUSE_SECONDS)

    def __str__(self) -> str:
        cuts = quantiles(self._times, n=100)
        times = f"p50 {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms"
        return f"{self.answered.total():,} in {SECONDS:g} s; {times}"


@asynccontextmanager
async def connected(gateway: Gateway, number: int) -> AsyncGenerator[Client]:
    """Connect one client of a principal."""
    headers = {"Authorization": f"Bearer {token_of(number)}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS, verify=False) as http,
        Client(streamable_http_client(gateway.url, http_client=http)) as client,
    ):
        yield client
