"""Connections to servers that nobody here wrote, over stdio, streamable HTTP and SSE."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from serving import TIME, eventually
from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import CallFailed, CallTimedOut, ServerUnavailable
from toolscout.schemas import Json
from toolscout.servers.connection import (
    Delays,
    Relay,
    call_failed_from_error,
    follow_task,
    make_unavailable_error,
)
from toolscout.servers.pool import Pool
from toolscout.servers.state import Phase
from toolscout.stores import MemoryStore

WEB = Path(__file__).with_name("webserver.py")
DEADLINE_SECONDS = 120
QUICK = Delays(first_retry=0.01, most_retry=0.1, change=0.01, most_change=0.05, drain=1.0)


@asynccontextmanager
async def pool_of(*configs: ServerConfig) -> AsyncGenerator[Pool]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        async with Pool(configs, Catalog(), MemoryStore(), delays=QUICK) as pool:
            yield pool


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def module(name: str, *args: str) -> ServerConfig:
    return ServerConfig(
        name=name.removeprefix("mcp_server_"),
        transport=Transport.STDIO,
        command=sys.executable,
        args=("-m", name, *args),
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def is_listening(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


class WebServer:
    """The server of `webserver.py`, to be started and ended at will."""

    def __init__(self, transport: str, *given: str) -> None:
        self.port = free_port()
        self._command = [sys.executable, str(WEB), str(self.port), transport, *given]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)
        asyncio.run(eventually(lambda: is_listening(self.port)))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def web_server(transport: str, *given: str) -> Generator[WebServer]:
    server = WebServer(transport, *given)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def web(port: int, transport: Transport = Transport.HTTP, **options: Any) -> ServerConfig:
    path = "sse" if transport is Transport.SSE else "mcp"
    url = f"http://127.0.0.1:{port}/{path}"
    return ServerConfig(name="web", transport=transport, url=url, **options)


@pytest.mark.parametrize("server", [module("mcp_server_time"), TIME], ids=["real", "ours"])
def test_the_time_server_starts_lists_and_answers(server: ServerConfig):
    async def work() -> None:
        async with pool_of(server) as pool:
            arguments = {"timezone": "Europe/Berlin"}
            params = {"name": "get_current_time", "arguments": arguments}
            result = await pool.request("time", "tools/call", params)
            manifest = pool.servers["time"].manifest

            assert result["structuredContent"]["timezone"] == "Europe/Berlin"
            assert manifest is not None
            assert manifest.protocol == "2026-07-28"
            assert {t["name"] for t in manifest.tools} == {"get_current_time", "convert_time"}

    run(work())


def test_the_git_server_answers_about_a_repository(tmp_path: Path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)

    async def work() -> None:
        async with pool_of(module("mcp_server_git")) as pool:
            params = {"name": "git_status", "arguments": {"repo_path": str(tmp_path)}}
            result = await pool.request("git", "tools/call", params)

            assert not result["isError"]
            assert pool.catalog.get("git__git_status") is not None

    run(work())


def test_the_fetch_server_offers_its_tool_and_its_prompt():
    async def work() -> None:
        async with pool_of(module("mcp_server_fetch")) as pool:
            await eventually(lambda: pool.catalog.get("fetch__fetch"))
            kinds = {tool.kind for tool in pool.catalog if tool.server == "fetch"}

            assert kinds == {"tool", "prompt"}

    run(work())


@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
def test_a_web_server_lists_and_answers(transport: Transport):
    async def work(port: int) -> None:
        async with pool_of(web(port, transport)) as pool:
            params = {"name": "add", "arguments": {"a": 2, "b": 3}}
            result = await pool.request("web", "tools/call", params)

            assert result["structuredContent"] == {"result": 5}

    with web_server(transport.value) as server:
        run(work(server.port))


@pytest.mark.requirement("R82")
def test_a_server_of_the_newest_protocol_notifies_of_changed_lists():
    """R82"""

    async def work(port: int) -> None:
        async with pool_of(web(port, changes="allow")) as pool:
            await pool.request("web", "tools/call", {"name": "grow", "arguments": {}})
            await eventually(lambda: pool.catalog.get("web__grown"))

    with web_server("http") as server:
        run(work(server.port))


@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
def test_a_web_server_that_refuses_the_credentials_needs_a_login(transport: Transport):
    async def work(port: int) -> None:
        async with pool_of(web(port, transport, token="wrong-token")) as pool:
            await eventually(lambda: pool.servers["web"].phase is Phase.NEEDS_LOGIN)

            assert pool.servers["web"].reason == "it refused the credentials"

    with web_server(transport.value, "right-token") as server:
        run(work(server.port))


def test_a_web_server_takes_the_configured_token():
    async def work(port: int) -> None:
        async with pool_of(web(port, token="right-token")) as pool:
            await eventually(lambda: pool.catalog.get("web__add"))

    with web_server("http", "right-token") as server:
        run(work(server.port))


def test_a_web_server_that_is_not_there_fails():
    async def work() -> None:
        async with pool_of(web(free_port())) as pool:
            with pytest.raises(ServerUnavailable):
                await pool.request("web", "tools/call", {"name": "add", "arguments": {}})

    run(work())


@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
def test_a_web_server_that_was_restarted_is_reached_again(transport: Transport):
    params = {"name": "add", "arguments": {"a": 1, "b": 1}}

    async def work(server: WebServer) -> None:
        async with pool_of(web(server.port, transport)) as pool:
            await pool.request("web", "tools/call", params)
            await asyncio.to_thread(server.stop)
            with pytest.raises((ServerUnavailable, CallFailed)):
                await pool.request("web", "tools/call", params)
            await asyncio.to_thread(server.start)
            await pool.start("web")
            result = await pool.request("web", "tools/call", params)

            assert result["structuredContent"] == {"result": 2}

    with web_server(transport.value) as server:
        run(work(server))


def test_what_a_server_answers_as_an_error_keeps_its_lines_and_its_end():
    cause = "Caused by: connection refused"
    error = MCPError(code=-32000, message="Query failed\n" + "at frame\n" * 900 + cause)

    failed = call_failed_from_error("a__b", error)

    assert len(failed.said) <= 1_200
    assert failed.said.startswith("Query failed\nat frame\n")
    assert " … " in failed.said
    assert failed.said.endswith(f"\n{cause} (code -32000)")


def test_a_long_reason_of_a_server_keeps_its_end():
    config = ServerConfig(name="a", transport=Transport.STDIO, command="x")

    error = make_unavailable_error(config, "it said:\n" + "word " * 200 + "connection refused")

    assert len(error.reason) <= 300
    assert error.reason.startswith("it said: word")
    assert error.reason.endswith("connection refused")


def test_a_reason_shows_no_secret_of_its_server():
    config = ServerConfig(
        name="a",
        transport=Transport.HTTP,
        url="http://localhost/mcp",
        headers={"X-Key": "abcdef-1234"},
        token="longer-secret-abcdef-1234",
    )

    error = make_unavailable_error(config, "sent abcdef-1234 and longer-secret-abcdef-1234")

    assert error.reason == "sent … and …"


@pytest.mark.parametrize(("failures", "is_given_up"), [(4, False), (5, True)])
def test_a_task_outlives_some_unanswered_requests_in_a_row(failures: int, is_given_up: bool):
    task = {"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 0}
    answers = [CallTimedOut("tasks/get", 1.0)] * failures

    async def send(method: str, params: Json, relay: Relay | None) -> Json:
        assert (method, params) == ("tasks/get", {"taskId": "t"})
        if answers:
            raise answers.pop()
        return {"status": "completed", "result": {"content": []}}

    follow = follow_task(send, task, None)
    if is_given_up:
        with pytest.raises(CallTimedOut):
            asyncio.run(follow)
    else:
        assert asyncio.run(follow) == {"content": []}
