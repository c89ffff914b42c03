"""Requests take the short way, and nothing that the SDK's own way offers is lost on it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving import TIME, eventually
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import CallFailed
from toolscout.servers.connection import Delays
from toolscout.servers.mcp import McpConnection
from toolscout.servers.process import InstallSlots, ProcessReaper

DEADLINE_SECONDS = 120
IS_COUNTED: ContextVar[bool] = ContextVar("is_counted", default=False)


class Web:
    """A server over streamable HTTP in this process."""

    def __init__(self, wrap: Callable[[ASGIApp], ASGIApp] = lambda app: app) -> None:
        self.began = asyncio.Event()
        self.was_cancelled = asyncio.Event()
        server = MCPServer("web")

        @server.tool()
        async def wait() -> str:  # pyright: ignore[reportUnusedFunction]
            self.began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.was_cancelled.set()
                raise
            return "never"

        @server.tool()
        async def report(context: Context) -> str:  # pyright: ignore[reportUnusedFunction]
            await context.report_progress(1, 2, "half")
            return "done"

        app = wrap(server.streamable_http_app())
        options = uvicorn.Config(app, port=0, log_level="error")
        self._server = uvicorn.Server(options)

    async def start(self) -> str:
        self._running = asyncio.create_task(self._server.serve())
        await eventually(lambda: self._server.started)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/mcp"

    async def stop(self) -> None:
        self._server.should_exit = True
        await self._running


class Client:
    """A relay that notes progress."""

    def __init__(self) -> None:
        self.progress: list[object] = []
        self.noted = asyncio.Event()

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        self.progress.append((progress, total, message))
        self.noted.set()

    async def log(self, params: object) -> None: ...

    async def ask(self, request: object) -> Any: ...


@asynccontextmanager
async def connected(config: ServerConfig) -> AsyncGenerator[McpConnection]:
    delays = Delays()
    reaper = ProcessReaper()
    connection = McpConnection(
        config,
        on_change=lambda: None,
        on_line=lambda line: None,
        reaper=reaper,
        installs=InstallSlots(delays.install),
        delays=delays,
    )
    async with asyncio.timeout(DEADLINE_SECONDS):
        await connection.open()
        try:
            yield connection
        finally:
            await connection.close()
            reaper.close()


@asynccontextmanager
async def web(
    wrap: Callable[[ASGIApp], ASGIApp] = lambda app: app,
) -> AsyncGenerator[tuple[Web, McpConnection]]:
    server = Web(wrap)
    url = await server.start()
    try:
        config = ServerConfig(name="web", transport=Transport.HTTP, url=url)
        async with connected(config) as connection:
            yield server, connection
    finally:
        await server.stop()


async def list_tasks(work: Coroutine[Any, Any, Any]) -> list[str]:
    """Return the tasks that work starts, wherever it starts them."""
    started: list[Any] = []
    loop = asyncio.get_running_loop()

    def make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        if IS_COUNTED.get():
            started.append(work)
        return asyncio.Task(work, loop=loop, **options)

    counted = copy_context()
    counted.run(IS_COUNTED.set, True)
    task = loop.create_task(work, context=counted)
    loop.set_task_factory(make_task)
    try:
        await task
    finally:
        loop.set_task_factory(None)
    return [work.__qualname__ for work in started]


@pytest.mark.parametrize(
    ("transport", "needed"), [("stdio", []), ("http", ["ClientRequest.write_bytes"])]
)
def test_a_call_starts_no_task_but_that_in_which_aiohttp_writes(transport: str, needed: list[str]):
    async def call_web() -> list[str]:
        async with web() as (_, connection):
            call: Any = {"name": "report", "arguments": {}}
            await connection.request("tools/call", call)  # which opens a connection
            return await list_tasks(connection.request("tools/call", call))

    async def call_process() -> list[str]:
        config = TIME
        async with connected(config) as connection:
            call: Any = {"name": "get_current_time", "arguments": {"timezone": "UTC"}}
            return await list_tasks(connection.request("tools/call", call))

    assert asyncio.run(call_web() if transport == "http" else call_process()) == needed


def test_progress_of_a_posted_call_arrives():
    async def call() -> list[object]:
        async with web() as (_, connection):
            client = Client()
            await connection.request("tools/call", {"name": "report", "arguments": {}}, client)
            await client.noted.wait()
            return client.progress

    assert asyncio.run(call()) == [(1.0, 2.0, "half")]


def test_a_server_notices_that_a_posted_call_was_cancelled():
    async def call() -> None:
        async with web() as (server, connection):
            waiting = asyncio.create_task(
                connection.request("tools/call", {"name": "wait", "arguments": {}})
            )
            await server.began.wait()
            waiting.cancel()
            await server.was_cancelled.wait()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(call())


def test_a_posted_call_fails_when_its_connection_is_closed():
    async def call() -> None:
        async with web() as (server, connection):
            waiting = asyncio.create_task(
                connection.request("tools/call", {"name": "wait", "arguments": {}})
            )
            await server.began.wait()
            await connection.close()
            with pytest.raises(CallFailed, match="may still have had an effect"):
                await waiting

    asyncio.run(call())


def answer_calls(answer: Callable[[ASGIApp], ASGIApp]) -> Callable[[ASGIApp], ASGIApp]:
    """Let an application answer calls of tools; the server itself answers the rest."""

    def wrap(app: ASGIApp) -> ASGIApp:
        other = answer(app)

        async def choose(scope: Scope, receive: Receive, send: Send) -> None:
            headers = dict(scope.get("headers", ()))
            is_call = headers.get(b"mcp-method") == b"tools/call"
            await (other if is_call else app)(scope, receive, send)

        return choose

    return wrap


def compress(app: ASGIApp) -> ASGIApp:
    return GZipMiddleware(app, minimum_size=1)


def send_in_parts(app: ASGIApp) -> ASGIApp:
    """Answer without a length."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_part(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [row for row in message["headers"] if row[0] != b"content-length"]
                message = {**message, "headers": kept}
            await send(message)

        await app(scope, receive, send_part)

    return answer


def redirect(app: ASGIApp) -> ASGIApp:
    """Send the client to another path of the same server."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"] != b"again":
            await RedirectResponse("/mcp?again", 307)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


def require_cookie(app: ASGIApp) -> ASGIApp:
    """Give the first call a cookie, and refuse further ones without it."""
    is_given = False

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal is_given
        cookie = dict(scope["headers"]).get(b"cookie")
        if is_given and cookie != b"route=a":
            await Response("the cookie is missing", 403)(scope, receive, send)
            return
        is_given = True

        async def send_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = (b"set-cookie", b"route=a")
                message = {**message, "headers": [*message["headers"], given]}
            await send(message)

        await app(scope, receive, send_cookie)

    return answer


@pytest.mark.parametrize("answer", [compress, send_in_parts, redirect, require_cookie])
def test_answers_that_are_not_plain_json_are_read_all_the_same(
    answer: Callable[[ASGIApp], ASGIApp],
):
    async def call() -> list[Any]:
        async with web(answer_calls(answer)) as (_, connection):
            asked: Any = {"name": "report", "arguments": {}}
            return [await connection.request("tools/call", asked) for _ in range(3)]

    results = asyncio.run(call())
    assert [result["content"][0]["text"] for result in results] == ["done"] * 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Response("{", media_type="application/json"), "Failed to parse JSON response"),
        (JSONResponse({"jsonrpc": "2.0"}), "Failed to parse JSON response"),
        (Response("broken", 500), "Server returned an error response"),
        (Response("hello", media_type="text/plain"), "Unexpected content type"),
        (Response(status_code=202), "202 Accepted"),
    ],
)
def test_what_is_no_answer_fails_the_call_and_the_next_one_is_made(answer: Response, said: str):
    is_broken = True

    def break_once(app: ASGIApp) -> ASGIApp:
        async def choose(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal is_broken
            was_broken, is_broken = is_broken, False
            await (answer if was_broken else app)(scope, receive, send)

        return choose

    async def call() -> Any:
        async with web(answer_calls(break_once)) as (_, connection):
            asked: Any = {"name": "report", "arguments": {}}
            with pytest.raises(MCPError, match=said):
                await connection.request("tools/call", asked)
            return await connection.request("tools/call", asked)

    assert asyncio.run(call())["content"][0]["text"] == "done"
