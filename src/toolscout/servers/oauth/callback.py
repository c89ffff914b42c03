"""`Callback`, the local address to which a browser brings the authorization server's answer.

It listens on loopback while it is open; a `PendingAnswer` takes one that arrives elsewhere. An
answer counts only if it carries the state that was sent out, so another page can neither end a
login nor inject its own code. An address pasted by hand goes through the same checks. The page
that the browser shows is fixed text.
"""

import asyncio
import errno
import secrets
from contextlib import suppress
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import AuthorizationCodeResult

from toolscout.errors import InvalidConfig
from toolscout.names import to_one_line

HOST = "127.0.0.1"
PORT = 8975
PATH = "/callback"
HEAD_BYTES = 16 << 10
HEAD_SECONDS = 10.0
SAID_CHARS = 200
MAX_FIELDS = 32

_PAGES = {
    200: "You are logged in. Close this page and go back to the terminal.",
    400: "This is not the answer that the login is waiting for. Go back to the terminal.",
    403: "You are not logged in. The terminal shows why.",
    404: "There is nothing here.",
}


class LoginRefused(Exception):
    """The authorization server, or the person logging in, refused."""


class PendingAnswer:
    """The answer that one login waits for. Make it in an event loop."""

    def __init__(self) -> None:
        self._state = ""
        self._answer: asyncio.Future[AuthorizationCodeResult] = (
            asyncio.get_running_loop().create_future()
        )

    @property
    def state(self) -> str:
        """The state that the answer has to carry; empty before `expect`."""
        return self._state

    def expect(self, authorization_url: str) -> None:
        """Remember the state that the answer has to carry."""
        self._state = _read_parameters(authorization_url).get("state", "")

    def take(self, url: str) -> bool:
        """Accept an address that a person pasted; return whether it is the answer."""
        status = self._judge(url)
        self._settle(url, status)
        return status in (200, 403)

    async def answer(self, seconds: float) -> AuthorizationCodeResult:
        """Wait for the answer; raises `LoginRefused` or `TimeoutError`."""
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._answer)

    def _judge(self, url: str) -> int:
        """Return the HTTP status with which to respond to an address."""
        try:
            path = urlsplit(url).path
        except ValueError:
            return 400
        if path != PATH:
            return 404
        found = _read_parameters(url)
        state = found.get("state", "")
        if not self._state or not secrets.compare_digest(state.encode(), self._state.encode()):
            return 400
        if found.get("error"):
            return 403
        return 200 if found.get("code") else 400

    def _settle(self, url: str, status: int) -> None:
        if self._answer.done():
            return
        found = _read_parameters(url)
        if status == 200:
            answer = AuthorizationCodeResult(
                code=found["code"], state=found["state"], iss=found.get("iss")
            )
            self._answer.set_result(answer)
        elif status == 403:
            said = f"{found['error']} {found.get('error_description', '')}"
            self._answer.set_exception(LoginRefused(to_one_line(said, SAID_CHARS)))


class Callback(PendingAnswer):
    """Receives one answer at one address. Use it as an asynchronous context manager.

    Without `port` it listens on the default port, or on any free one if that is in use.
    """

    def __init__(self, port: int | None = None) -> None:
        super().__init__()
        self._port = port
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await self._start_listening()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        if self._answer.done() and not self._answer.cancelled():
            self._answer.exception()  # avoids asyncio's warning if nobody waited for it

    @property
    def url(self) -> str:
        """The redirect address."""
        port = self._server.sockets[0].getsockname()[1] if self._server else PORT
        return format_callback_url(port)

    async def _start_listening(self) -> asyncio.Server:
        wanted = PORT if self._port is None else self._port
        try:
            return await asyncio.start_server(self._handle_request, HOST, wanted, limit=HEAD_BYTES)
        except OSError as error:
            if self._port is None and error.errno == errno.EADDRINUSE:
                return await asyncio.start_server(self._handle_request, HOST, 0, limit=HEAD_BYTES)
            problem = f"cannot be listened on ({error.strerror or error})"
            remedy = "Choose another port, or 0 for any free one."
            raise InvalidConfig("--port", problem, remedy=remedy) from None

    async def _handle_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, _, rest = head.partition(" ")
                target = rest.partition(" ")[0] if method == "GET" else ""
                status = self._judge(target)
                writer.write(_render_page(status))
                await writer.drain()
            # Settle last: the program may exit as soon as the login is done.
            self._settle(target, status)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def format_callback_url(port: int) -> str:
    """Return the redirect address, as it has to be registered."""
    return f"http://{HOST}:{port}{PATH}"


def _read_parameters(url: str) -> dict[str, str]:
    try:
        found = parse_qs(urlsplit(url).query, max_num_fields=MAX_FIELDS)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items()}


def _render_page(status: int) -> bytes:
    body = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>toolscout</title>"
        f"<p>{_PAGES[status]}</p></html>"
    ).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Content-Security-Policy: default-src 'none'\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
