"""A gateway as a process of its own, which serves HTTP and can be killed and started again."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import httpx2

from serving import served
from toolscout.config.file import read_config
from toolscout.stores.sqlite import SqliteStore

DEADLINE_SECONDS = 120.0
PAUSE_SECONDS = 0.02


def fill_cache(config: Path) -> Path:
    """Have all servers of a configuration listed into its cache, and return that file.

    A thread serves them, which costs less than a process; a gateway that then reads the file knows
    all tools from its start.
    """
    read = read_config(config)
    file = Path(read.gateway.cache)
    with SqliteStore(file) as store, served(*read.servers, store=store) as running:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (told := httpx2.get(f"{running.url}/readyz")).json()["pending"]:
            assert time.monotonic() < deadline, told.text
            time.sleep(PAUSE_SECONDS)
        assert told.json()["failed"] == 0, told.text
    return file


class Running:
    """One gateway at one address. Use it as a context manager."""

    def __init__(self, config: Path) -> None:
        self.config, self.url = config, ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, at the same address if it has run before."""
        port = self.url.rpartition(":")[2] or "0"
        words = ["serve", "--http", "--port", port, "--config", str(self.config)]
        log = self.config.with_suffix(".log")
        with log.open("wb") as written:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "toolscout", *words], stderr=written
            )
        said = self.wait_for_line("Serving MCP at")
        announced = next(line for line in said.splitlines() if "Serving MCP at" in line)
        self.url = announced.split()[-1].removesuffix("/mcp.")

    def wait_for_line(self, part: str) -> str:
        """Return the log of this process once it contains some text."""
        log = self.config.with_suffix(".log")
        deadline = time.monotonic() + DEADLINE_SECONDS
        while part not in (said := log.read_text(encoding="utf-8")):
            assert self.process is not None
            assert self.process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(PAUSE_SECONDS)  # the process needs the processor more
        return said

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
