"""A gateway as a process of its own, which serves HTTP and can be killed and started again."""

import subprocess
import sys
from pathlib import Path
from typing import Self


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
        while "Serving MCP at" not in (said := log.read_text(encoding="utf-8")):
            assert self.process.poll() is None, said
        announced = next(line for line in said.splitlines() if "Serving MCP at" in line)
        self.url = announced.split()[-1].removesuffix("/mcp.")

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
