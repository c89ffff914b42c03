"""Measure what clients save that share one gateway in the background.

Several clients over stdio use the same ten servers, first with a gateway each (`--no-daemon`) and
then with one for all. Counts processes and memory when every client has called every server, and
times how long a client waits for its first answer.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from toolscout.errors import MissingExtra, UsageError
from toolscout.schemas import Json

READY_SECONDS = 120.0
CALLS = 50
QUERY = "what time is it in Tokyo"
_NPM = Path(__file__).parents[1] / ".npm-servers/node_modules/@modelcontextprotocol"
_NOW = ("get_current_time", {"timezone": "Europe/Berlin"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What one way to serve the clients costs."""

    processes: int
    """All that the clients started, directly or not."""
    megabytes: float
    """Their memory, each shared page counted once (PSS; elsewhere than on Linux, USS)."""
    first_seconds: float
    """From the start of the first client to its `tools/list` and its first search."""
    next_seconds: float
    """The same for the others, median."""
    call_ms: float
    """A call of `mcp-server-time`, median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The same clients and servers, without and with a gateway that they share."""

    clients: int
    servers: int
    alone: Way
    shared: Way

    def to_json(self) -> Json:
        """Return the figures as plain JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Server:
    command: str
    args: tuple[str, ...]
    tool: str
    arguments: Json


def measure_sharing(clients: int = 5, servers: int = 10) -> Sharing:
    """Measure both ways in one run, with a filled cache; raises `UsageError`."""
    for module in ("mcp_server_time", "mcp_server_git"):
        if find_spec(module) is None:
            raise MissingExtra(module.replace("_", "-"), extra="demo")
    with tempfile.TemporaryDirectory(prefix="ts-") as folder:  # a socket's address is short
        chosen = _choose_servers(Path(folder), servers)
        return asyncio.run(_measure(Path(folder), chosen, clients))


def _choose_servers(folder: Path, count: int) -> dict[str, _Server]:
    """Return servers with a tool of each, and write the configuration."""
    node = shutil.which("node") or "node"
    repository = folder / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)

    def python(module: str, tool: str, arguments: Json) -> _Server:
        return _Server(sys.executable, ("-m", module), tool, arguments)

    def npm(package: str, tool: str, arguments: Json, *args: str) -> _Server:
        program = str(_NPM / f"server-{package}" / "dist/index.js")
        return _Server(node, (program, *args), tool, arguments)

    found = {
        "time": python("mcp_server_time", *_NOW),
        "git": python("mcp_server_git", "git_status", {"repo_path": str(repository)}),
        "time-2": python("mcp_server_time", *_NOW),
        "git-2": python("mcp_server_git", "git_status", {"repo_path": str(repository)}),
        "time-3": python("mcp_server_time", *_NOW),
        "everything": npm("everything", "echo", {"message": "hello"}),
        "files": npm("filesystem", "list_allowed_directories", {}, str(folder)),
        "files-2": npm("filesystem", "list_allowed_directories", {}, str(repository)),
        "memory": npm("memory", "read_graph", {}),
        "memory-2": npm("memory", "read_graph", {}),
    }
    found = dict(list(found.items())[:count])
    if any(one.command == node for one in found.values()) and not _NPM.exists():
        raise UsageError("The npm servers are not installed. Run `make .npm-servers/.installed`.")
    rows = {name: {"command": one.command, "args": list(one.args)} for name, one in found.items()}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": rows}), encoding="utf-8")
    return found


async def _measure(folder: Path, servers: dict[str, _Server], clients: int) -> Sharing:
    command = ("serve", "--config", str(folder / "mcp.json"), "--cache", str(folder / "cache"))
    await _measure_way(folder, servers, (*command, "--no-daemon"), 1)  # fills the cache
    alone = await _measure_way(folder, servers, (*command, "--no-daemon"), clients)
    try:
        shared = await _measure_way(folder, servers, command, clients)
    finally:
        words = [sys.executable, "-m", "toolscout", "stop", "--all"]
        await asyncio.to_thread(
            subprocess.run, words, env=_make_env(folder), check=True, stdout=subprocess.DEVNULL
        )
    return Sharing(clients=clients, servers=len(servers), alone=alone, shared=shared)


async def _measure_way(
    folder: Path, servers: dict[str, _Server], command: Sequence[str], count: int
) -> Way:
    words = ["-m", "toolscout", *command]
    server = StdioServerParameters(command=sys.executable, args=words, env=_make_env(folder))
    firsts: list[float] = []
    clients: list[Client] = []
    async with AsyncExitStack() as stack, asyncio.timeout(READY_SECONDS * count):
        for _ in range(count):
            started = time.perf_counter()
            client = await stack.enter_async_context(Client(server))
            await client.list_tools()
            await client.call_tool("tool_search", {"queries": [QUERY]})
            firsts.append(time.perf_counter() - started)
            clients.append(client)
        for client in clients:
            for name, one in servers.items():
                await _call(client, f"{name}__{one.tool}", one.arguments)
        processes = psutil.Process().children(recursive=True)
        used = sum(map(_measure_bytes, processes))
        times = [await _time_call(clients[-1]) for _ in range(CALLS)]
    return Way(
        processes=len(processes),
        megabytes=round(used / 1e6, 1),
        first_seconds=firsts[0],
        next_seconds=median(firsts[1:] or firsts),
        call_ms=median(times) * 1e3,
    )


async def _call(client: Client, name: str, arguments: Json) -> None:
    """Call a tool; at first, its server may not be known yet."""
    while True:
        result: Any = await client.call_tool("tool_call", {"name": name, "arguments": arguments})
        if not result.is_error:
            return
        await asyncio.sleep(0.1)


async def _time_call(client: Client) -> float:
    started = time.perf_counter()
    await _call(client, f"time__{_NOW[0]}", _NOW[1])
    return time.perf_counter() - started


def _measure_bytes(process: psutil.Process) -> int:
    try:
        found: Any = process.memory_full_info()
    except psutil.Error:  # it has ended, or is about to
        return 0
    return getattr(found, "pss", found.uss)


def _make_env(folder: Path) -> dict[str, str]:
    """Return the environment of a user with an empty home."""
    return {"HOME": str(folder), "PATH": os.environ["PATH"], "TOOLSCOUT_LOG": "error"}
