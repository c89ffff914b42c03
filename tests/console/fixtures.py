"""What the browser opens: a gateway with real servers, or a console over a catalogue."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from console.asking import Asker, Json, converse
from console.windows import in_thread
from serving import DEADLINE_SECONDS, TIME, TIME_SERVER, served
from toolscout.config.edits import to_toml
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import ServerConfig
from toolscout.stores.store import Store

UNSETTLED = ("configured", "known", "starting")
GREETING = "ready to tell the time"
GREETED = (
    f"import sys, runpy; print({GREETING!r}, file=sys.stderr); "
    f"runpy.run_path({TIME_SERVER!r}, run_name='__main__')"
)
CLOCK = replace(TIME, args=("-c", GREETED))
GIT = ServerConfig(
    name="git",
    transport=TIME.transport,
    command=sys.executable,
    args=("-m", "mcp_server_git"),
)
NOW = {"name": "time__get_current_time", "arguments": {"timezone": "Europe/Berlin"}}
TALK: list[tuple[str, Json]] = [
    ("tool_search", {"queries": ["what time is it in Berlin"]}),
    ("tool_call", NOW),
    ("tool_search", {"queries": ["show the commit log", "stage files"]}),
    ("tool_describe", {"names": ["git__git_log"]}),
]
TOKENS = {
    "ann": {"token": "open sesame"},
    "bob": {"token": "swordfish", "profile": "some"},
}
PROFILES = {"some": {"tools": ["*convert*"], "servers": ["time"]}}


def write_config(folder: str, config: Config) -> Path:
    path = Path(folder) / "toolscout.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    return path


@contextmanager
def gateway(
    *servers: ServerConfig,
    token: str = "",
    store: Store | None = None,
    logins: Path | None = None,
    **options: Any,
) -> Generator[str]:
    """Serve servers of a file; yields the address once all of them are ready or have failed."""
    config = Config(servers=servers, gateway=GatewayConfig(**options))
    with (
        TemporaryDirectory(prefix="toolscout-") as folder,
        served(
            file=write_config(folder, config), store=store, logins=logins, console=True
        ) as running,
    ):
        assert running.known.wait(DEADLINE_SECONDS)
        asker = Asker(running.url, token)
        with asker.events() as events:
            while any(row["state"] in UNSETTLED for row in asker.get("/servers")):
                next(events)  # the test's own time limit is the deadline
        yield running.url


@contextmanager
def guarded() -> Generator[str]:
    """Serve the time to Ann, who sees everything, and to Bob, who sees one tool."""
    with gateway(CLOCK, token="open sesame", tokens=TOKENS, profiles=PROFILES) as url:
        yield url


def talk(url: str, calls: list[tuple[str, Json]] = TALK, token: str = "") -> None:
    """Make some calls to a gateway in one session."""
    in_thread(lambda: asyncio.run(converse(url, calls, token)))


def wait_for_entries(asker: Asker, count: int, **wanted: str) -> list[Json]:
    """Return entries once there are enough: the gateway writes those of a moment together."""
    until = time.monotonic() + DEADLINE_SECONDS
    found: list[Json] = []
    while len(found) < count and time.monotonic() < until:
        found = asker.get("/audit", **wanted)["entries"]
    return found


@contextmanager
def console(*options: str, env: Mapping[str, str] | None = None) -> Generator[str]:
    """Run `toolscout console`; yields the address that it prints."""
    command = [sys.executable, "-m", "toolscout", "console", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield line.split(" at ")[1].split(" (")[0].removesuffix("/")
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)
