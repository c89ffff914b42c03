"""What a gateway costs: the same call made directly and through it, in turns.

Gives medians and their ratios for stdio: a call of `mcp-server-time` directly, through toolscout
and, where it is installed, through FastMCP's proxy with its BM25 transform; a search over many
tools; and how long a fresh process takes to its first answer.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from toolscout.errors import MissingExtra
from toolscout.schemas import Json

TOOL, ARGUMENTS = "get_current_time", {"timezone": "Europe/Berlin"}
QUERY = "open a pull request"
BLOCK = 25
PEER_BLOCK = 3
"""FastMCP's proxy asks its servers for their tools again at every call, which takes a while."""
READY_SECONDS = 30.0

_FASTMCP = """
import asyncio, json, logging, sys
from fastmcp import Client
from fastmcp.server import create_proxy
from fastmcp.server.transforms.search import BM25SearchTransform

async def main():
    logging.disable(logging.CRITICAL)
    # A client that is connected already is kept; otherwise each call would start its server anew.
    async with Client(json.loads(sys.argv[1])) as servers:
        proxy = create_proxy(servers)
        proxy.add_transform(BM25SearchTransform())
        await proxy.run_async(show_banner=False)

asyncio.run(main())
"""

Ask = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hops:
    """Medians in milliseconds, and how they compare."""

    direct_ms: float
    gateway_ms: float
    search_ms: float
    """Over `tools` tools, through the gateway."""
    trivial_ms: float
    """A direct call of a tool that does nothing."""
    tools: int
    first_answer_seconds: float
    fastmcp_ms: float | None = None
    fastmcp_search_ms: float | None = None
    rounds: int = 0
    ratios: Json = field(default_factory=dict[str, Any])

    def to_json(self) -> Json:
        """Return the figures as plain JSON."""
        return asdict(self)


def measure_hops(*, rounds: int = 8, tools: int = 500) -> Hops:
    """Measure everything in one run."""
    if find_spec("mcp_server_time") is None:
        raise MissingExtra("mcp-server-time", extra="gateway")
    return asyncio.run(_measure(rounds, tools))


async def _measure(rounds: int, tools: int) -> Hops:
    with tempfile.TemporaryDirectory(prefix="toolscout-") as folder:
        config, text = _configuration(Path(folder), tools)
        async with AsyncExitStack() as stack:
            asks = await _asks(stack, config, text, tools)
            times = await _in_turns(asks, rounds)
        first = await _first_answer(config)
    found = {name: median(values) for name, values in times.items()}
    return Hops(
        direct_ms=found["direct"],
        gateway_ms=found["gateway"],
        search_ms=found["search"],
        trivial_ms=found["trivial"],
        tools=tools,
        first_answer_seconds=first,
        fastmcp_ms=found.get("fastmcp"),
        fastmcp_search_ms=found.get("fastmcp search"),
        rounds=rounds,
        ratios=_ratios(found),
    )


def _ratios(found: dict[str, float]) -> Json:
    pairs = {
        "gateway / direct": ("gateway", "direct"),
        "search / trivial": ("search", "trivial"),
        "fastmcp / direct": ("fastmcp", "direct"),
        "fastmcp search / trivial": ("fastmcp search", "trivial"),
    }
    return {
        label: round(found[first] / found[second], 2)
        for label, (first, second) in pairs.items()
        if first in found
    }


def _configuration(folder: Path, tools: int) -> tuple[Path, str]:
    servers = {"time": ("-m", "mcp_server_time"), "many": _many(tools)}
    rows = {
        name: {"command": sys.executable, "args": list(arguments)}
        for name, arguments in servers.items()
    }
    path = folder / "servers.json"
    text = json.dumps({"mcpServers": rows})
    path.write_text(text, encoding="utf-8")
    return path, text


def _many(tools: int) -> tuple[str, ...]:
    return ("-m", "toolscout.bench.offering", "--tools", str(tools))


async def _asks(stack: AsyncExitStack, config: Path, text: str, tools: int) -> dict[str, Ask]:
    direct = await _opened(stack, "-m", "mcp_server_time")
    trivial = await _opened(stack, *_many(tools))
    gateway = await _opened(stack, *_serving(config))
    await _until_found(gateway)
    target = {"name": f"time__{TOOL}", "arguments": ARGUMENTS}
    asks: dict[str, Ask] = {
        "direct": lambda: direct.call_tool(TOOL, ARGUMENTS),
        "gateway": lambda: gateway.call_tool("tool_call", target),
        "trivial": lambda: trivial.call_tool("echo", {}),
        "search": lambda: gateway.call_tool("tool_search", {"queries": [QUERY]}),
    }
    if find_spec("fastmcp") is not None:
        peer = await _opened(stack, "-c", _FASTMCP, text)
        named = {"name": f"time_{TOOL}", "arguments": ARGUMENTS}
        asks["fastmcp"] = lambda: peer.call_tool("call_tool", named)
        asks["fastmcp search"] = lambda: peer.call_tool("search_tools", {"query": QUERY})
    return asks


def _serving(config: Path) -> tuple[str, ...]:
    return ("-m", "toolscout", "serve", "--config", str(config), "--cache", str(config.parent))


async def _opened(stack: AsyncExitStack, *arguments: str) -> Client:
    parameters = StdioServerParameters(command=sys.executable, args=list(arguments))
    return await stack.enter_async_context(Client(parameters))


async def _until_found(gateway: Client) -> None:
    """Wait until both servers are known, so that what is timed is a call and not a start."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            reply = await gateway.call_tool("tool_search", {"queries": ["server:time", QUERY]})
            text = "".join(getattr(block, "text", "") for block in reply.content)
            if TOOL in text and "create_pull_request" in text:
                return


async def _in_turns(asks: dict[str, Ask], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in asks}
    for name in [*asks] * 2:  # untimed, so that everything is warm
        await _timed(asks[name])
    for _ in range(rounds):
        for name, ask in asks.items():
            block = PEER_BLOCK if name.startswith("fastmcp") else BLOCK
            times[name] += [await _timed(ask) for _ in range(block)]
    return times


async def _timed(ask: Ask) -> float:
    started = time.perf_counter()
    reply = await ask()
    if reply.is_error:
        raise RuntimeError(f"A call that is measured failed: {reply.content}")
    return (time.perf_counter() - started) * 1e3


async def _first_answer(config: Path) -> float:
    """Return the seconds from starting a gateway to its first search reply, with a warm cache."""
    started = time.perf_counter()
    async with AsyncExitStack() as stack:
        gateway = await _opened(stack, *_serving(config))
        await gateway.call_tool("tool_search", {"queries": [QUERY]})
        return time.perf_counter() - started
