"""What a gateway costs: the same call made directly and through it, in turns.

Gives medians and their ratios over stdio and over HTTP: a call of `mcp-server-time` directly,
through toolscout and, where it is installed, through FastMCP's proxy with its BM25 transform; a
search over many tools; and how long a fresh process takes to its first answer.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, get_args

from mcp.client import Client

from toolscout.bench.routes import READY_SECONDS, Routes, Transport
from toolscout.errors import MissingExtra
from toolscout.schemas import Json

TOOL, ARGUMENTS = "get_current_time", {"timezone": "Europe/Berlin"}
QUERY = "open a pull request"
BLOCK = 25
PEER_BLOCK = 3
PEER_ROUNDS = 3
"""FastMCP's proxy asks its servers for their tools again at every call, which takes a while. It
takes its turns among the others in the first rounds, and is left out of the later ones."""
PEER = "fastmcp"

Ask = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transit:
    """Medians over one transport in milliseconds, and how they compare."""

    direct_ms: float
    gateway_ms: float
    search_ms: float
    """Over all tools, through the gateway."""
    trivial_ms: float
    """A direct call of a tool that does nothing."""
    fastmcp_ms: float | None = None
    fastmcp_search_ms: float | None = None
    ratios: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Hops:
    """What calls and searches take, by transport."""

    transits: dict[Transport, Transit]
    tools: int
    first_answer_seconds: float
    """From the start of a process, over stdio, with a filled cache."""
    requests: int
    """How many each median is of."""
    fastmcp_requests: int
    """How many each of FastMCP's medians is of."""

    def to_json(self) -> Json:
        """Return the figures as plain JSON."""
        return asdict(self)


def measure_hops(*, rounds: int = 8, tools: int = 500) -> Hops:
    """Measure everything in one run."""
    if find_spec("mcp_server_time") is None:
        raise MissingExtra("mcp-server-time", extra="demo")
    return asyncio.run(_measure(rounds, tools))


async def _measure(rounds: int, tools: int) -> Hops:
    with tempfile.TemporaryDirectory(prefix="toolscout-") as folder:
        transits: dict[Transport, Transit] = {}
        for transport in get_args(Transport):
            async with AsyncExitStack() as stack:
                routes = Routes(transport, Path(folder), stack, tools=tools)
                await routes.open()
                transits[transport] = _transit(await _in_turns(await _asks(routes), rounds))
        first = await _first_answer(Path(folder), tools)
    has_peer = transits["stdio"].fastmcp_ms is not None
    return Hops(
        transits=transits,
        tools=tools,
        first_answer_seconds=first,
        requests=rounds * BLOCK,
        fastmcp_requests=min(rounds, PEER_ROUNDS) * PEER_BLOCK if has_peer else 0,
    )


def _transit(times: dict[str, list[float]]) -> Transit:
    found = {name: median(values) for name, values in times.items()}
    return Transit(
        direct_ms=found["direct"],
        gateway_ms=found["gateway"],
        search_ms=found["search"],
        trivial_ms=found["trivial"],
        fastmcp_ms=found.get(PEER),
        fastmcp_search_ms=found.get(f"{PEER} search"),
        ratios=_ratios(found),
    )


def _ratios(found: dict[str, float]) -> Json:
    pairs = {
        "gateway / direct": ("gateway", "direct"),
        "search / trivial": ("search", "trivial"),
        "fastmcp / direct": (PEER, "direct"),
        "fastmcp search / trivial": (f"{PEER} search", "trivial"),
    }
    return {
        label: round(found[first] / found[second], 2)
        for label, (first, second) in pairs.items()
        if first in found
    }


async def _asks(routes: Routes) -> dict[str, Ask]:
    direct, trivial = await routes.server("time"), await routes.server("many")
    gateway = await routes.toolscout()
    await _until_found(gateway)
    target = {"name": f"time__{TOOL}", "arguments": ARGUMENTS}
    asks: dict[str, Ask] = {
        "direct": lambda: direct.call_tool(TOOL, ARGUMENTS),
        "gateway": lambda: gateway.call_tool("tool_call", target),
        "trivial": lambda: trivial.call_tool("echo", {}),
        "search": lambda: gateway.call_tool("tool_search", {"queries": [QUERY]}),
    }
    peer = await routes.fastmcp()
    if peer is not None:
        named = {"name": f"time_{TOOL}", "arguments": ARGUMENTS}
        asks[PEER] = lambda: peer.call_tool("call_tool", named)
        asks[f"{PEER} search"] = lambda: peer.call_tool("search_tools", {"query": QUERY})
    return asks


async def _until_found(gateway: Client) -> None:
    """Wait until both servers are known, so that what is timed is a call and not a start."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            reply = await gateway.call_tool(
                "tool_search", {"queries": ["server:time", "server:many"]}
            )
            text = "".join(getattr(block, "text", "") for block in reply.content)
            if "time__" in text and "many__" in text:
                return


async def _in_turns(asks: dict[str, Ask], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in asks}
    for name in [*asks] * 2:  # untimed, so that everything is warm
        await _timed(asks[name])
    for number in range(rounds):
        for name, ask in asks.items():
            times[name] += [await _timed(ask) for _ in range(_block(name, number))]
    return times


def _block(name: str, number: int) -> int:
    if not name.startswith(PEER):
        return BLOCK
    return PEER_BLOCK if number < PEER_ROUNDS else 0


async def _timed(ask: Ask) -> float:
    started = time.perf_counter()
    reply = await ask()
    if reply.is_error:
        raise RuntimeError(f"A call that is measured failed: {reply.content}")
    return (time.perf_counter() - started) * 1e3


async def _first_answer(folder: Path, tools: int) -> float:
    """Return the seconds from starting a gateway to its first search reply, with a warm cache."""
    async with AsyncExitStack() as stack:
        routes = Routes("stdio", folder, stack, tools=tools)
        await routes.open()
        started = time.perf_counter()
        gateway = await routes.toolscout()
        await gateway.call_tool("tool_search", {"queries": [QUERY]})
        return time.perf_counter() - started
