"""Measure how much time a gateway adds: the same call directly and through it, in turns.

Compares calls of `mcp-server-time` directly, through toolscout and through FastMCP's proxy (if it
is installed), searches over many tools, and the time to the first answer of a fresh process. Over
HTTP, the gateways reach their servers over HTTP too, so that every hop uses one transport. Over
stdio, toolscout is measured as a gateway of its own and as the client of one in the background.
"""

import asyncio
import json
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import tomlkit
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from toolscout.errors import MissingExtra
from toolscout.schemas import Json

Transport = Literal["stdio", "http"]
READY_SECONDS = 30.0
STOP_SECONDS = 10.0
ALONE = ("--no-daemon",)
SHARED: tuple[str, ...] = ()
"""What makes `toolscout serve` a gateway, and what makes it a client of one in the background."""
DAEMON: Json = {"daemon_seconds": 1}
"""A gateway in the background ends by itself, soon after its last client."""

_SERVERS = ("-P", str(Path(__file__).with_name("servers.py")))
_FASTMCP = """
import asyncio, json, logging, sys
from fastmcp import Client
from fastmcp.server import create_proxy
from fastmcp.server.transforms.search import BM25SearchTransform

async def main():
    logging.disable(logging.CRITICAL)
    # Connected clients are kept; otherwise each call would start its server again.
    async with Client(json.loads(sys.argv[1])) as servers:
        proxy = create_proxy(servers)
        proxy.add_transform(BM25SearchTransform())
        await proxy.run_async(show_banner=False, **json.loads(sys.argv[2]))

asyncio.run(main())
"""


class Routes:
    """Clients of the servers and gateways over one transport; the stack ends their processes."""

    def __init__(
        self, transport: Transport, folder: Path, stack: AsyncExitStack, *, tools: int
    ) -> None:
        self._transport, self._stack = transport, stack
        self._config = folder / f"{transport}.json"
        self._servers: dict[str, tuple[str, ...]] = {
            "time": ("-m", "mcp_server_time") if transport == "stdio" else (*_SERVERS, "time"),
            "many": (*_SERVERS, "many", "--tools", str(tools)),
        }
        self._rows: dict[str, Json] = {}

    async def open(self) -> None:
        """Start the HTTP servers, and write the configuration of the gateways."""
        for name, words in self._servers.items():
            row: Json = {"command": sys.executable, "args": list(words)}
            if self._transport == "http":
                row = {"type": "http", "url": await self._started(words)}
            self._rows[name] = row
        text = json.dumps({"mcpServers": self._rows})
        await asyncio.to_thread(self._config.write_text, text, encoding="utf-8")

    async def server(self, name: str) -> Client:
        """Return a client of a server itself."""
        row = self._rows[name]
        return await self._entered(row["url"] if "url" in row else _process(row["args"]))

    async def toolscout(
        self, name: str = "", options: Json | None = None, *, way: Sequence[str] = ALONE
    ) -> Client:
        """Return a client of a fresh gateway; with options, it has a configuration of its own."""
        folder = self._config.parent / name
        config = self._config
        if options is not None:
            config = folder / "toolscout.toml"
            text = tomlkit.dumps({"servers": self._rows, "gateway": options})
            folder.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(config.write_text, text, encoding="utf-8")
        cache = ("--cache", str(folder))
        words = ("-m", "toolscout", "serve", *way, "--config", str(config), *cache)
        if self._transport == "stdio":
            # The background is that of a user with a home of its own.
            return await self._entered(_process(words, home=self._config.parent))
        return await self._entered(await self._started((*words, "--http")))

    async def fastmcp(self) -> Client | None:
        """Return a client of FastMCP's proxy, if FastMCP is installed."""
        if find_spec("fastmcp") is None:
            return None
        words = ("-c", _FASTMCP, json.dumps({"mcpServers": self._rows}))
        if self._transport == "stdio":
            return await self._entered(_process((*words, "{}")))
        port = _free_port()
        options = json.dumps({"transport": "http", "host": "127.0.0.1", "port": port})
        return await self._entered(await self._listening((*words, options), port))

    async def _entered(self, server: str | StdioServerParameters) -> Client:
        return await self._stack.enter_async_context(Client(server))

    async def _started(self, words: Sequence[str]) -> str:
        port = _free_port()
        return await self._listening((*words, "--port", str(port)), port)

    async def _listening(self, words: Sequence[str], port: int) -> str:
        """Start a process and return its address once it listens."""
        nowhere = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )
        self._stack.push_async_callback(_end, process)
        async with asyncio.timeout(READY_SECONDS):
            while not await _is_listening(port):
                if process.returncode is not None:
                    raise RuntimeError(f"A server that is measured ended: {' '.join(words[:2])}.")
                await asyncio.sleep(0.05)
        return f"http://127.0.0.1:{port}/mcp"


def _process(words: Sequence[str], *, home: Path | None = None) -> StdioServerParameters:
    env = {"HOME": str(home)} if home is not None else None
    return StdioServerParameters(command=sys.executable, args=list(words), env=env)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


async def _is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


TOOL, ARGUMENTS = "get_current_time", {"timezone": "Europe/Berlin"}
QUERY = "open a pull request"
BLOCK = 25
PEER_BLOCK = 3
PEER_ROUNDS = 3
"""FastMCP's proxy asks its servers for their tools again at every call, which takes a while. It
takes its turns among the others in the first rounds, and is left out of the later ones."""
PEER = "fastmcp"
STARTS = 7
"""Clients of a gateway in the background whose first answer is timed."""

BARE: Json = {"audit": False, "changes": "allow"}
GUARDED: Json = {
    "rules": {
        f"rule-{number}": {
            "permission": "deny",
            "principals": ["ci-*"],
            "tools": [f"*__delete_{number}*"],
            "arguments": {"name": "prod-*"},
        }
        for number in range(19)
    }
    | {"last": {"permission": "allow", "tools": ["time__*"], "arguments": {"timezone": "Europe/*"}}}
}
"""Twenty rules, of which the last one decides; audit and held changes are on by default."""

Ask = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transit:
    """Medians over one transport in milliseconds, and their ratios."""

    direct_ms: float
    gateway_ms: float
    search_ms: float
    """Over all tools, through the gateway."""
    trivial_ms: float
    """A direct call of a tool that does nothing."""
    daemon_ms: float | None = None
    """The same call through a gateway in the background, over stdio."""
    daemon_search_ms: float | None = None
    fastmcp_ms: float | None = None
    fastmcp_search_ms: float | None = None
    ratios: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Hops:
    """The times of calls and searches, by transport."""

    transits: dict[Transport, Transit]
    tools: int
    first_answer_seconds: float
    """From the start of a process, over stdio, with a filled cache."""
    daemon_answer_seconds: float
    """The same if a gateway runs in the background, median."""
    requests: int
    """How many each median is of."""
    fastmcp_requests: int
    """How many each of FastMCP's medians is of."""

    def to_json(self) -> Json:
        """Return the figures as plain JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What rules, the audit record and approval of definitions cost a call, over stdio."""

    bare_ms: float
    """Median without any of them."""
    guarded_ms: float
    rules: int
    requests: int
    ratio: float

    def to_json(self) -> Json:
        """Return the figures as plain JSON."""
        return asdict(self)


def measure_hops(*, rounds: int = 8, tools: int = 500) -> Hops:
    """Measure everything in one run."""
    if find_spec("mcp_server_time") is None:
        raise MissingExtra("mcp-server-time", extra="demo")
    return asyncio.run(_measure(rounds, tools))


def measure_trust(*, rounds: int = 20) -> Trust:
    """Measure what rules, the audit record and held changes add to a call through the gateway."""
    if find_spec("mcp_server_time") is None:
        raise MissingExtra("mcp-server-time", extra="demo")
    return asyncio.run(_measure_trust(rounds))


async def _measure_trust(rounds: int) -> Trust:
    target = {"name": f"time__{TOOL}", "arguments": ARGUMENTS}
    with tempfile.TemporaryDirectory(prefix="toolscout-") as folder:
        async with AsyncExitStack() as stack:
            routes = Routes("stdio", Path(folder), stack, tools=20)
            await routes.open()
            asks: dict[str, Ask] = {}
            for name, options in (("bare", BARE), ("guarded", GUARDED)):
                client = await routes.toolscout(name, options)
                await _until_found(client)
                asks[name] = partial(client.call_tool, "tool_call", target)
            times = await _in_turns(asks, rounds)
    bare, guarded = median(times["bare"]), median(times["guarded"])
    return Trust(
        bare_ms=bare,
        guarded_ms=guarded,
        rules=len(GUARDED["rules"]),
        requests=rounds * BLOCK,
        ratio=round(guarded / bare, 3),
    )


async def _measure(rounds: int, tools: int) -> Hops:
    # The gateway in the background may still be ending.
    with tempfile.TemporaryDirectory(prefix="ts-", ignore_cleanup_errors=True) as folder:
        transits: dict[Transport, Transit] = {}
        for transport in get_args(Transport):
            async with AsyncExitStack() as stack:
                routes = Routes(transport, Path(folder), stack, tools=tools)
                await routes.open()
                asks = await _asks(routes, has_daemon=transport == "stdio")
                transits[transport] = _transit(await _in_turns(asks, rounds))
        await _first_answer(Path(folder), tools)  # fills the cache
        first = await _first_answer(Path(folder), tools)
        shared = await _first_shared_answer(Path(folder), tools)
    has_peer = transits["stdio"].fastmcp_ms is not None
    return Hops(
        transits=transits,
        tools=tools,
        first_answer_seconds=first,
        daemon_answer_seconds=shared,
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
        daemon_ms=found.get("daemon"),
        daemon_search_ms=found.get("daemon search"),
        fastmcp_ms=found.get(PEER),
        fastmcp_search_ms=found.get(f"{PEER} search"),
        ratios=_ratios(found),
    )


def _ratios(found: dict[str, float]) -> Json:
    pairs = {
        "gateway / direct": ("gateway", "direct"),
        "daemon / direct": ("daemon", "direct"),
        "search / trivial": ("search", "trivial"),
        "daemon search / trivial": ("daemon search", "trivial"),
        "fastmcp / direct": (PEER, "direct"),
        "fastmcp search / trivial": (f"{PEER} search", "trivial"),
    }
    return {
        label: round(found[first] / found[second], 2)
        for label, (first, second) in pairs.items()
        if first in found
    }


async def _asks(routes: Routes, *, has_daemon: bool = False) -> dict[str, Ask]:
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
    if has_daemon:
        shared = await routes.toolscout("shared", DAEMON, way=SHARED)
        await _until_found(shared)
        asks["daemon"] = lambda: shared.call_tool("tool_call", target)
        asks["daemon search"] = lambda: shared.call_tool("tool_search", {"queries": [QUERY]})
    peer = await routes.fastmcp()
    if peer is not None:
        named = {"name": f"time_{TOOL}", "arguments": ARGUMENTS}
        asks[PEER] = lambda: peer.call_tool("call_tool", named)
        asks[f"{PEER} search"] = lambda: peer.call_tool("search_tools", {"query": QUERY})
    return asks


async def _until_found(gateway: Client) -> None:
    """Wait until both servers are known, so that calls are timed and not their start."""
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


async def _first_shared_answer(folder: Path, tools: int) -> float:
    """Return the same for clients of a gateway that runs in the background already."""
    times: list[float] = []
    async with AsyncExitStack() as stack:
        routes = Routes("stdio", folder, stack, tools=tools)
        await routes.open()
        await _until_found(await routes.toolscout("shared", DAEMON, way=SHARED))
        for _ in range(STARTS):
            started = time.perf_counter()
            client = await routes.toolscout("shared", DAEMON, way=SHARED)
            await client.call_tool("tool_search", {"queries": [QUERY]})
            times.append(time.perf_counter() - started)
    return median(times)
