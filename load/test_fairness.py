"""Ten principals, one of them hostile: the other nine are served as before, thanks to the limits.

The honest clients think for so long between two calls that the gateway is busy for a part of the
time, which is measured first: the figures then say as much on a slow machine as on a fast one. They
write requests by hand, so that the gateway has more to do than they have. Rounds without and with
the attack alternate within one run. `FAIRNESS_ROUNDS` is how many there are of each, 1 by default.

The limits are the default ones, and the attack is measured from its first request on.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles

import pytest

from load.gateways import Gateway, becomes, fleet_of, footprint, is_ready, serving, tell
from load.hostile import Attacker

HERE = Path(__file__).parent
PRINCIPALS = 10
CLIENTS_EACH = 20
ROUNDS = int(os.environ.get("FAIRNESS_ROUNDS", "1"))
ROUND_SECONDS = 10.0
CALIBRATION_SECONDS = 3.0
CALIBRATION_PAUSE_SECONDS = 0.2
SHORTEST_PAUSE_SECONDS = 0.45
"""Twenty clients that think for so long stay within `max_requests`."""
BUSY = 0.6
"""The part of the calls that the gateway can answer which the honest clients make."""
STARTING_SECONDS = 30.0
KEPT = 0.9
"""The part of their throughput that the nine keep at least."""
GROWTH_MEGABYTES = 150.0
DEADLINE_SECONDS = 30.0
NO_LIMITS = "max_requests = 10000000\nmax_calls = 100000\nmax_sessions = 1000000\n"


def token_of(number: int) -> str:
    """Return the token of one principal."""
    return f"token-of-principal-number-{number:02}"


@pytest.mark.timeout(90)
def test_a_hostile_principal_takes_at_most_a_tenth_from_the_others(tmp_path: Path):
    """The throughput that 180 clients of nine principals keep."""
    share, growth = measure(tmp_path, "")

    assert share >= KEPT
    assert growth < GROWTH_MEGABYTES


@pytest.mark.timeout(90)
def test_without_the_limits_it_takes_more(tmp_path: Path):
    """The same attack, so that the figures above are those of the limits."""
    share, _ = measure(tmp_path, NO_LIMITS)

    assert share < KEPT


def measure(folder: Path, limits: str) -> tuple[float, float]:
    """Return the part of their throughput that the nine keep, and how the gateway has grown."""
    arguments = (str(HERE / "upstream.py"), "server0", "good")
    fleet = fleet_of(folder, {"server0": arguments}, server0={"concurrency": 200, "lazy": False})
    tables = [f'[gateway.tokens.p{n}]\ntoken = "{token_of(n)}"\n' for n in range(PRINCIPALS)]
    text = fleet.config.read_text(encoding="utf-8").replace("port = 0\n", f"port = 0\n{limits}")
    fleet.config.write_text(text + "".join(tables), encoding="utf-8")
    with serving(fleet) as gateway:
        assert becomes(lambda: is_ready(gateway), STARTING_SECONDS), list(gateway.lines)
        return asyncio.run(compare(gateway, "off" if limits == NO_LIMITS else "on"))


async def compare(gateway: Gateway, limits: str) -> tuple[float, float]:
    """Measure the honest clients alone and beside the hostile one, in turn."""
    clients = [
        HonestClient(gateway.url, number)
        for number in range(1, PRINCIPALS)
        for _ in range(CLIENTS_EACH)
    ]
    await ask(clients, 1.0, SHORTEST_PAUSE_SECONDS, Measurement())  # everything was used once
    most = Measurement()
    await ask(clients, CALIBRATION_SECONDS, CALIBRATION_PAUSE_SECONDS, most)
    pause = max(SHORTEST_PAUSE_SECONDS, len(clients) / (BUSY * most.rate))
    alone, attacked = Measurement(), Measurement()
    answers: Counter[str] = Counter()
    before = footprint(gateway)
    for _ in range(ROUNDS):
        await ask(clients, ROUND_SECONDS, pause, alone, gateway)
        async with attacking(gateway, answers):
            await ask(clients, ROUND_SECONDS, pause, attacked, gateway)
    after = footprint(gateway)
    share = attacked.rate / alone.rate
    worst = min(attacked.answered[name] / count for name, count in alone.answered.items())
    tell(
        f"{len(clients)} clients of {PRINCIPALS - 1} principals, one hostile, limits {limits}",
        calls_without_it=alone,
        calls_with_it=attacked,
        kept=f"{share:.1%}, by the principal that lost most {worst:.1%}",
        thinking=f"{pause:.2f} s, since {most.rate:.0f} calls/s were possible",
        answers_to_the_hostile_one=dict(sorted(answers.items())),
        megabytes=f"{before.megabytes} before, {after.megabytes} after",
    )
    return share, after.megabytes - before.megabytes


async def ask(
    clients: "list[HonestClient]",
    seconds: float,
    pause: float,
    measurement: "Measurement",
    gateway: Gateway | None = None,
) -> None:
    """Let all clients call and think in turn for some seconds."""
    cpu = footprint(gateway).cpu_seconds if gateway is not None else 0.0
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.ask(seconds, pause, measurement))
    measurement.seconds += seconds
    if gateway is not None:
        measurement.cpu_seconds += footprint(gateway).cpu_seconds - cpu


@asynccontextmanager
async def attacking(gateway: Gateway, answers: Counter[str]) -> AsyncGenerator[None]:
    """Let a hostile principal attack, from before this is entered until it is left."""
    command = [
        str(HERE / "hostile.py"),
        gateway.url,
        token_of(0),
        str(ROUND_SECONDS + 1),
    ]
    attack = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    assert attack.stdout is not None
    await attack.stdout.readline()  # it says that it has begun
    yield
    told, _ = await attack.communicate()
    answers.update(json.loads(told))


class Measurement:
    """The answers of each principal within some seconds, and how long each took."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self.refused = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        """What the gateway used meanwhile."""
        self.times: list[float] = []

    @property
    def rate(self) -> float:
        """Answers in a second."""
        return self.answered.total() / self.seconds

    def __str__(self) -> str:
        cuts = quantiles(self.times, n=100)
        times = f"p50 {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms"
        busy = f"{self.cpu_seconds / self.seconds:.0%} of a core"
        return f"{self.rate:.0f}/s in {self.seconds:g} s, {self.refused} refused; {times}; {busy}"


class HonestClient:
    """A client that makes one call after the other over one connection."""

    def __init__(self, url: str, number: int) -> None:
        self._name = f"p{number}"
        attacker = Attacker(url, token_of(number), 0)
        self._place = attacker.place
        self._request = attacker.build_request(*attacker.build_call(self._name))

    async def ask(self, seconds: float, pause: float, measurement: Measurement) -> None:
        """Call and think in turn; every answer must be the right one."""
        end = time.monotonic() + seconds
        await asyncio.sleep(random.random() * pause)
        reader, writer = await asyncio.open_connection(*self._place)
        try:
            while time.monotonic() < end:
                started = time.monotonic()
                async with asyncio.timeout(DEADLINE_SECONDS):
                    writer.write(self._request)
                    status, body = await read_answer(reader)
                is_answered = status == b"200" and b"server_busy" not in body
                if is_answered:
                    assert f"server0.echo: {self._name}".encode() in body, body
                else:
                    measurement.refused += 1
                if is_answered and time.monotonic() < end:
                    measurement.answered[self._name] += 1
                    measurement.times.append(time.monotonic() - started)
                await asyncio.sleep(pause * (0.5 + random.random()))
        finally:
            writer.close()


async def read_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one answer; return its status and its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, found, rest = head.partition(b"content-length:")
    if found:
        return head.split()[1], await reader.readexactly(int(rest.split()[0]))
    return head.split()[1], await reader.readuntil(b"\r\n0\r\n\r\n")
