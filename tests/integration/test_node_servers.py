"""Servers of the older protocol that nobody here wrote: the official ones for Node.

`make .npm-servers/.installed` installs them; without them these tests are skipped.
"""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from foreign import NODE
from serving import eventually
from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig, Transport
from toolscout.schemas import Json
from toolscout.servers.connection import Delays
from toolscout.servers.pool import Pool
from toolscout.stores import MemoryStore

PACKAGES = Path(__file__).parents[2] / ".npm-servers/node_modules/@modelcontextprotocol"
DEADLINE_SECONDS = 120
QUICK = Delays(first_retry=0.01, most_retry=0.1, change=0.01, most_change=0.05)

pytestmark = pytest.mark.skipif(
    not NODE or not PACKAGES.is_dir(), reason="needs Node and `make .npm-servers/.installed`"
)


class Listener:
    """Writes down what a server says during a call."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        self.steps.append(progress)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        return None

    async def ask(self, request: types.InputRequest) -> Any:
        assert isinstance(request, types.ListRootsRequest)
        return types.ListRootsResult(roots=[])


def main_of(package: str) -> str:
    return str(PACKAGES / f"server-{package}" / "dist" / "index.js")


def node(package: str, *args: str, **options: Any) -> ServerConfig:
    return ServerConfig(
        name=package,
        transport=Transport.STDIO,
        command=NODE,
        args=(main_of(package), *args),
        **options,
    )


@asynccontextmanager
async def pool_of(*configs: ServerConfig) -> AsyncGenerator[Pool]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        async with Pool(configs, Catalog(), MemoryStore(), delays=QUICK) as pool:
            yield pool


async def call(pool: Pool, server: str, tool: str, **arguments: Any) -> Json:
    return await pool.request(server, "tools/call", {"name": tool, "arguments": arguments})


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_the_server_of_everything_answers_and_offers_all_kinds():
    async def work() -> None:
        async with pool_of(node("everything")) as pool:
            result = await call(pool, "everything", "get-sum", a=2, b=3)
            kinds = {tool.kind for tool in pool.catalog}

            assert "5" in result["content"][0]["text"]
            assert kinds == {"tool", "resource", "template", "prompt"}

    run(work())


def test_progress_reaches_the_relay_of_its_call():
    async def work() -> None:
        async with pool_of(node("everything")) as pool:
            listener = Listener()
            arguments = {"duration": 0.2, "steps": 2}
            params = {"name": "trigger-long-running-operation", "arguments": arguments}
            await pool.request("everything", "tools/call", params, listener)

            assert listener.steps == [1, 2]

    run(work())


def test_the_file_server_reads_the_folder_that_it_was_given(tmp_path: Path):
    (tmp_path / "note.txt").write_text("hello")

    async def work() -> None:
        async with pool_of(node("filesystem", str(tmp_path))) as pool:
            path = str(tmp_path / "note.txt")
            result = await call(pool, "filesystem", "read_text_file", path=path)

            assert result["content"][0]["text"] == "hello"

    run(work())


def test_the_memory_server_keeps_what_it_is_told(tmp_path: Path):
    async def work() -> None:
        env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
        async with pool_of(node("memory", env=env)) as pool:
            entity = {"name": "Rex", "entityType": "dog", "observations": ["barks"]}
            await call(pool, "memory", "create_entities", entities=[entity])
            result = await call(pool, "memory", "open_nodes", names=["Rex"])

            assert "barks" in result["content"][0]["text"]

    run(work())


def start_web(port: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [NODE, main_of("everything"), "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def is_listening(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def test_a_web_server_that_forgot_the_session_gets_a_new_one_within_the_call():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = [start_web(port)]

    def restart() -> None:
        processes[-1].kill()
        processes[-1].wait()
        processes.append(start_web(port))
        asyncio.run(eventually(lambda: is_listening(port)))

    async def work() -> None:
        await eventually(lambda: is_listening(port))
        url = f"http://127.0.0.1:{port}/mcp"
        web = ServerConfig(name="web", transport=Transport.HTTP, url=url)
        async with pool_of(web) as pool:
            await call(pool, "web", "get-sum", a=1, b=1)
            await asyncio.to_thread(restart)
            result = await call(pool, "web", "get-sum", a=2, b=2)

            assert "4" in result["content"][0]["text"]

    try:
        run(work())
    finally:
        for process in processes:
            process.kill()
            process.wait()
