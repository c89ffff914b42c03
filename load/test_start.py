"""How soon a gateway in front of many servers answers, with and without a cache."""

import asyncio
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from load.gateways import OFFERING, Fleet, becomes, fleet_of, is_ready, serving, tell, text_of

SERVERS = tuple(f"server{number}" for number in range(50))
ECHOES = [f"{name}__echo" for name in SERVERS]
EVERYWHERE = {"queries": [f"select:{','.join(ECHOES)}"], "detail": "names"}

FIRST_SEARCH_SECONDS = 1.0
FIRST_ANSWER_SECONDS = 1.5
WARM_SEARCH_SECONDS = 0.3
LEARNING_SECONDS = 240.0
STARTS = 3
"""The quickest counts: what else the machine does only adds time."""

_PENDING = re.compile(r"Still connecting, may have more: (.*?)(?: and (\d+) more)?\.$", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The first search of a fresh gateway, over stdin and stdout."""

    seconds_to_connect: float
    """From the start of the process to the end of the handshake."""
    seconds_to_search: float
    """From the first search to its reply."""
    pending: int
    found: int
    processes: int
    """The gateway and all that it had started when it replied."""

    @property
    def seconds(self) -> float:
        """From the start of the process to the first reply."""
        return self.seconds_to_connect + self.seconds_to_search


@pytest.mark.requirement("R45")
@pytest.mark.timeout(120)
def test_with_an_empty_cache_the_first_search_names_what_is_pending(tmp_path: Path):
    """R45"""
    fleets = [_fleet(tmp_path / str(number)) for number in range(STARTS)]

    start = _quickest(fleets)
    tell(f"first search, {len(SERVERS)} servers, empty cache", **_figures(start))

    assert start.pending + start.found == len(SERVERS)
    assert start.seconds_to_search < FIRST_SEARCH_SECONDS
    assert start.seconds < FIRST_ANSWER_SECONDS
    assert not any(fleet.processes() for fleet in fleets)


@pytest.mark.requirement("R86")
@pytest.mark.timeout(LEARNING_SECONDS + 120)
def test_with_a_filled_cache_the_first_search_finds_everything_and_starts_nothing(tmp_path: Path):
    """R86"""
    fleet = _fleet(tmp_path / "0")
    began = time.perf_counter()
    with serving(fleet) as gateway:
        assert becomes(lambda: is_ready(gateway), LEARNING_SECONDS)
        learned = time.perf_counter() - began

    start = _quickest([fleet] * STARTS)
    figures = _figures(start) | {"filling_the_cache": f"{learned:.1f} s"}
    tell(f"first search, {len(SERVERS)} servers, filled cache", **figures)

    assert (start.found, start.pending, start.processes) == (len(SERVERS), 0, 1)
    assert start.seconds_to_search < WARM_SEARCH_SECONDS
    assert start.seconds_to_connect < FIRST_ANSWER_SECONDS


def _fleet(folder: Path) -> Fleet:
    folder.mkdir()
    return fleet_of(folder, dict.fromkeys(SERVERS, OFFERING))


def _quickest(fleets: list[Fleet]) -> Start:
    starts = [asyncio.run(_started(fleet)) for fleet in fleets]
    return min(starts, key=lambda start: start.seconds)


async def _started(fleet: Fleet) -> Start:
    command, *arguments = fleet.command
    server = StdioServerParameters(command=command, args=arguments, env=fleet.env)
    began = time.perf_counter()
    async with Client(server) as client:
        connected = time.perf_counter()
        text = text_of(await client.call_tool("tool_search", EVERYWHERE))
        answered = time.perf_counter()
        return Start(
            seconds_to_connect=connected - began,
            seconds_to_search=answered - connected,
            pending=_pending(text),
            found=sum(f"- {name} " in text for name in ECHOES),
            processes=len(fleet.processes()),
        )


def _pending(text: str) -> int:
    told = _PENDING.search(text)
    return 0 if told is None else len(told[1].split(", ")) + int(told[2] or 0)


def _figures(start: Start) -> dict[str, Any]:
    return {
        "process_start_to_first_reply": f"{start.seconds:.3f} s",
        "of_that_until_connected": f"{start.seconds_to_connect:.3f} s",
        "of_that_the_search": f"{start.seconds_to_search:.3f} s",
        "servers_found": start.found,
        "servers_pending": start.pending,
        "processes": start.processes,
    }
