"""A gateway as a process of its own, and what the system tells of it: memory, files, children.

Every process that a gateway starts carries a mark in its environment, by which it is found again
whoever its parent has become. Works where there is `/proc`.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

MARK = "TOOLSCOUT_LOAD_RUN"
START_SECONDS = 20.0
STOP_SECONDS = 40.0
LOOK_SECONDS = 0.05
KILOBYTE = 1024
SERVERS_FILE = Path(__file__).parents[1] / "benchmarks" / "servers.py"
OFFERING = ("-P", str(SERVERS_FILE), "many", "--tools", "20")

_ADDRESS = re.compile(r"Serving MCP at (\S+)\.$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Servers behind a gateway: the file that describes them, and the mark of their processes."""

    config: Path
    mark: str

    @property
    def command(self) -> list[str]:
        """What starts the gateway."""
        arguments = ["-m", "toolscout", "serve", "--no-daemon", "--config", str(self.config)]
        return [sys.executable, *arguments, "--cache", str(self.config.parent)]

    @property
    def env(self) -> dict[str, str]:
        """The environment of the gateway."""
        return {**os.environ, MARK: self.mark}

    def processes(self) -> set[int]:
        """Return the gateway and all that it has started and that still lives."""
        wanted = f"{MARK}={self.mark}".encode()
        return {pid for pid in _pids() if wanted in _environment(pid)}


@dataclass(slots=True, kw_only=True)
class Gateway:
    """A gateway that serves HTTP."""

    fleet: Fleet
    process: subprocess.Popen[str]
    url: str = ""
    lines: deque[str] = field(default_factory=lambda: deque[str](maxlen=200))
    """What it wrote to stderr last."""
    is_up: threading.Event = field(default_factory=threading.Event)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self.process.pid

    def listen(self) -> None:
        """Read stderr until it ends."""
        for line in self.process.stderr or ():
            self.lines.append(line.rstrip())
            found = _ADDRESS.search(line.rstrip())
            if found:
                self.url = found[1]
                self.is_up.set()


def fleet_of(
    folder: Path, servers: Mapping[str, tuple[str, ...]], **settings: Mapping[str, object]
) -> Fleet:
    """Write a configuration of Python servers; `settings` are further keys of some of them."""
    mark = uuid.uuid4().hex
    lines = ["[gateway]", "port = 0"]
    for name, arguments in servers.items():
        keys = {"command": sys.executable, "args": list(arguments), **settings.get(name, {})}
        lines += [f"[servers.{name}]", f'env = {{ {MARK} = "{mark}" }}']
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    config = folder / "toolscout.toml"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Fleet(config=config, mark=mark)


@contextlib.contextmanager
def serving(fleet: Fleet) -> Generator[Gateway]:
    """Serve a fleet over HTTP; ends with the gateway stopped and nothing of it left."""
    command = [*fleet.command, "--http"]
    process = subprocess.Popen(command, env=fleet.env, stderr=subprocess.PIPE, text=True)
    gateway = Gateway(fleet=fleet, process=process)
    listening = threading.Thread(target=gateway.listen)
    listening.start()
    try:
        assert gateway.is_up.wait(START_SECONDS), list(gateway.lines)
        yield gateway
    finally:
        _end(process)
        listening.join(STOP_SECONDS)
        if process.stderr is not None:
            process.stderr.close()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def is_ready(gateway: Gateway, *, pending: int = 0) -> bool:
    """Tell whether all servers but some have started or failed."""
    answer = httpx2.get(gateway.url.removesuffix("/mcp") + "/readyz")
    return answer.json()["pending"] <= pending


def text_of(result: Any) -> str:
    """Return the text of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


def becomes(is_so: Callable[[], bool], seconds: float) -> bool:
    """Tell whether something becomes true within some seconds."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        threading.Event().wait(LOOK_SECONDS)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a process takes of the machine."""

    megabytes: float
    cpu_seconds: float
    """Of itself, without its children."""
    files: int
    processes: int
    """Itself and all that it started."""
    zombies: int
    """Children that have ended and were not waited for."""


def footprint(gateway: Gateway) -> Footprint:
    """Measure a gateway."""
    pid = gateway.pid
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    size = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return Footprint(
        megabytes=round(int(size.split()[1]) / KILOBYTE, 1),
        cpu_seconds=sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK"),
        files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        processes=len(gateway.fleet.processes()),
        zombies=sum(_is_zombie(child, pid) for child in _pids()),
    )


def tell(title: str, **figures: object) -> None:
    """Print figures on one line each."""
    rows = "".join(f"  {name.replace('_', ' ')}: {value}\n" for name, value in figures.items())
    sys.stdout.write(f"\n{title}\n{rows}")


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _environment(pid: int) -> bytes:
    with contextlib.suppress(OSError):  # it ended, or is somebody else's
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _is_zombie(pid: int, parent: int) -> bool:
    with contextlib.suppress(OSError):
        state, its_parent, *_ = _stat(pid)
        return state == "Z" and int(its_parent) == parent
    return False


def _stat(pid: int) -> list[str]:
    """Return what stands after the name of a process, which may hold blanks."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return text.rpartition(")")[2].split()
