"""What our clients make of the answers of a hostile web server, without a network.

The official SDK and our own code run as they do in a gateway, except that `answer_requests` takes
the place of the network and that waiting takes no time. An input holds all answers of one server.
"""

import asyncio
import json
import re
import selectors
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import httpx2
from mcp.shared.exceptions import MCPError

from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import CallFailed, UpstreamError
from toolscout.servers import transport
from toolscout.servers.connection import Delays
from toolscout.servers.listings import build_entries
from toolscout.servers.mcp import McpConnection
from toolscout.servers.oauth.callback import PORT, PendingAnswer, format_callback_url
from toolscout.servers.oauth.login import BearerAuth, LoginNeeded, log_in
from toolscout.servers.oauth.tokens import StoredLogin
from toolscout.servers.process import InstallSlots, ProcessReaper

URL = "https://b.example/mcp"
MOST_REQUESTS = 400
"""More requests to one server, for one call within its time, are a failure."""
CALL_SECONDS = 60.0
EVENTS = "text/event-stream"
THE_ID = b'"@"'
"""Stands for the id of the request that is answered."""

Answer = Callable[[httpx2.Request], httpx2.Response]
_STATUS = re.compile(rb"([1-5][0-9][0-9]) ")


class _HurriedSelector(selectors.DefaultSelector):
    """Never waits for a time; skips to it."""

    skipped_seconds = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.skipped_seconds += timeout
        return ready


class _HurriedLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time."""

    def __init__(self) -> None:
        self._hurried = _HurriedSelector()
        super().__init__(self._hurried)

    def time(self) -> float:
        return super().time() + self._hurried.skipped_seconds

    async def shutdown_default_executor(self, *_: float | None) -> None:
        """Let threads end however long it takes: Python 3.12 and later would skip to a timeout."""
        await super().shutdown_default_executor()


def _run(work: Callable[[], Awaitable[object]]) -> None:
    async def bound() -> None:
        await work()

    with asyncio.Runner(loop_factory=_HurriedLoop) as runner:
        runner.run(bound())


_make_tls = cache(ssl.create_default_context)  # which reads all certificates of this machine


@contextmanager
def answer_requests(answer: Answer) -> Generator[None]:
    """Answer all requests of HTTP clients in place of the network."""
    count = 0

    async def handle(_: object, request: httpx2.Request) -> httpx2.Response:
        nonlocal count
        count += 1
        if count > MOST_REQUESTS:
            raise AssertionError(f"more than {MOST_REQUESTS} requests")
        await request.aread()
        return answer(request)

    with (
        patch.object(ssl, "create_default_context", _make_tls),
        patch.object(transport, "make_transport", lambda: None),
        patch.object(httpx2.AsyncHTTPTransport, "handle_async_request", handle),
    ):
        yield
    assert count <= MOST_REQUESTS, f"more than {MOST_REQUESTS} requests"


def read_streams(data: bytes) -> None:
    """Connect to a server that answers with event streams; list and call its tools."""
    transport = Transport.SSE if data.startswith(b"event: endpoint") else Transport.HTTP
    config = ServerConfig(name="s", transport=transport, url=URL)
    parts = data.split(b"\n\n\n")
    left = iter(parts)
    stream: asyncio.Queue[bytes] = asyncio.Queue()

    async def follow_stream(first: bytes) -> AsyncGenerator[bytes]:
        yield first
        while True:
            yield await stream.get()

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": EVENTS, "mcp-session-id": "1"}
        if request.method != "POST":
            part = next(left, b"")
            if transport is Transport.SSE:
                return httpx2.Response(200, headers=headers, content=follow_stream(part + b"\n\n"))
            return httpx2.Response(200, headers=headers, content=part + b"\n\n")
        message = json.loads(request.content)
        if "id" not in message or "method" not in message:
            return httpx2.Response(202)
        body = next(left, parts[-1]).replace(THE_ID, json.dumps(message["id"]).encode()) + b"\n\n"
        if transport is Transport.SSE:
            stream.put_nowait(body)
            return httpx2.Response(202)
        return httpx2.Response(200, headers=headers, content=body)

    async def use() -> None:
        connection = McpConnection(
            config,
            on_change=lambda: None,
            on_line=lambda line: None,
            reaper=ProcessReaper(),
            installs=InstallSlots(1.0),
            delays=Delays(),
        )
        try:
            await connection.open()
            async with asyncio.timeout(CALL_SECONDS):
                build_entries(config, await connection.read_manifest())
            async with asyncio.timeout(CALL_SECONDS):
                await connection.request("tools/call", {"name": "t", "arguments": {}})
        except (UpstreamError, CallFailed, MCPError, TimeoutError):
            pass
        finally:
            await connection.close()

    with answer_requests(answer):
        _run(use)


class _MemoryLogin:
    """Keeps a login for one input."""

    principal = ""
    login = ""

    def __init__(self) -> None:
        self.stored: StoredLogin | None = None

    def load(self) -> StoredLogin | None:
        return self.stored

    def read(self) -> StoredLogin | None:
        return self.stored

    def write(self, stored: StoredLogin) -> None:
        # As it would come back from a file.
        plain = stored.model_dump_json(exclude_none=True)
        self.stored = StoredLogin.model_validate_json(plain)

    def forget(self) -> bool:
        return False

    def claim(self, seconds: float) -> bool:
        return True


def log_in_somewhere(data: bytes) -> None:
    """Log in to a server, renew the tokens, and send a request with them.

    The lines are its challenge, the two documents of metadata, a registration, tokens, and what
    comes back from the browser; a line may begin with a status.
    """
    lines = [*data.split(b"\n"), *([b""] * 6)]
    challenge, resource, service, registration, tokens, came_back = lines[:6]
    config = ServerConfig(name="s", transport=Transport.HTTP, url=URL, oauth=True)
    callback = format_callback_url(PORT)

    def answer(request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if "oauth-protected-resource" in path:
            return _make_response(resource)
        if "oauth-authorization-server" in path or "openid-configuration" in path:
            return _make_response(service)
        if b"grant_type=" in request.content:
            return _make_response(tokens)
        if b"redirect_uris" in request.content:
            return _make_response(registration)
        if request.headers.get("authorization") is None:
            return _make_response(b"401 ", {b"www-authenticate": challenge})
        return httpx2.Response(200, json={})

    async def use() -> None:
        pending = PendingAnswer()

        async def redirect(url: str) -> None:
            pending.expect(url)
            pending.take(came_back.decode("utf-8", "replace"))
            pending.take(f"{callback}?code=c&state={pending.state}")

        login = _MemoryLogin()
        try:
            await log_in(
                config,
                login,
                callback=callback,
                redirect=redirect,
                answer=lambda: pending.answer(CALL_SECONDS),
            )
            auth = BearerAuth(config, login, now=lambda: 1e15)
            async with httpx2.AsyncClient(auth=auth) as client:
                await client.post(URL)
        except (UpstreamError, LoginNeeded, httpx2.HTTPError):
            pass

    with answer_requests(answer):
        _run(use)


def _make_response(line: bytes, headers: dict[bytes, bytes] | None = None) -> httpx2.Response:
    status = _STATUS.match(line)
    body = line[4:] if status else line
    place = {b"location": body} if status and status[1].startswith(b"3") else {}
    sent = list({b"content-type": b"application/json", **place, **(headers or {})}.items())
    return httpx2.Response(int(status[1]) if status else 200, headers=sent, content=body)
