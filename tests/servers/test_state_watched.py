"""Watched resources of a server behind HTTP, which comes and goes without a word."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from serving import eventually
from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig, Transport
from toolscout.servers.connection import Delays
from toolscout.servers.pool import Pool
from toolscout.stores import MemoryStore

NOTEBOOK = Path(__file__).parents[1] / "gateway" / "notebook.py"
DEADLINE_SECONDS = 120
QUICK = Delays(first_retry=0.01, most_retry=0.1, change=0.01, most_change=0.05, drain=1.0)
TOUCH = {"name": "touch", "arguments": {"uri": "note://a"}}

pytestmark = pytest.mark.timeout(300)


class Notebook:
    """The server of `notebook.py` at a port, to be started and ended at will."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._ledger = folder / "ledger"
        self._command = [sys.executable, NOTEBOOK, "modern", self._ledger, str(self.port)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def lines(self) -> list[str]:
        return self._ledger.read_text(encoding="utf-8").splitlines()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@asynccontextmanager
async def notebook_and_pool(folder: Path) -> AsyncGenerator[tuple[Notebook, Pool]]:
    notebook = Notebook(folder)
    config = ServerConfig(
        name="notes", transport=Transport.HTTP, url=f"http://127.0.0.1:{notebook.port}/mcp"
    )
    try:
        notebook.start()
        await eventually(notebook.is_listening)
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            Pool((config,), Catalog(), MemoryStore(), delays=QUICK) as pool,
        ):
            yield notebook, pool
    finally:
        notebook.stop()


def test_a_server_that_was_away_is_asked_again_and_its_resources_count_as_changed(tmp_path: Path):
    async def work() -> None:
        async with notebook_and_pool(tmp_path) as (notebook, pool):
            heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
            pool.watched.on_update = lambda server, uri: heard.put_nowait((server, uri))
            agreed = await pool.watch("notes", {"note://a"})
            await pool.request("notes", "tools/call", TOUCH)
            first = await heard.get()
            notebook.stop()
            notebook.start()
            missed = await heard.get()
            while not heard.empty():
                heard.get_nowait()
            await pool.request("notes", "tools/call", TOUCH)

            assert agreed == {"note://a"}
            assert [first, missed, await heard.get()] == [("notes", "note://a")] * 3
            assert notebook.lines.count("listen note://a") == 2

    asyncio.run(work())


def test_a_change_is_told_once(tmp_path: Path):
    async def work() -> None:
        async with notebook_and_pool(tmp_path) as (_, pool):
            heard: asyncio.Queue[str] = asyncio.Queue()
            pool.watched.on_update = lambda server, uri: heard.put_nowait(uri)
            uris = ["note://a", "note://b"]
            await pool.watch("notes", set(uris))
            told: list[str] = []
            for uri in uris * 2:
                params = {"name": "touch", "arguments": {"uri": uri}}
                await pool.request("notes", "tools/call", params)
                told.append(await heard.get())

            assert told == uris * 2

    asyncio.run(work())


def test_what_nobody_wants_any_more_is_not_told(tmp_path: Path):
    async def work() -> None:
        async with notebook_and_pool(tmp_path) as (notebook, pool):
            await pool.watch("notes", {"note://a"})
            none = await pool.watch("notes", set())
            await eventually(lambda: notebook.lines[-1] == "end note://a")

            assert none == frozenset()
            assert pool.watched.get_wanted("notes") == frozenset()

    asyncio.run(work())
