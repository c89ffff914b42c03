"""What every HTTP request passes before it is answered, and the errors that it may meet.

`Guard` lets nobody in whom `Access` does not; `Ending` ends what still runs when the gateway
stops. Errors are JSON and say what to do next, but never which part of a secret was wrong.
"""

import asyncio
import contextlib
from collections.abc import Generator, Mapping

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscout.gateway.access import Access, Principal

PRINCIPAL = "toolscout.principal"
"""Where a request's scope tells who sent it."""
MAX_BODY_BYTES = 4 << 20
LISTENING = "subscriptions/listen"
FLUSH_SECONDS = 0.1
OPEN_PATHS = ("/healthz", "/readyz")
"""Asked by probes, which come by address and have no token."""


class Guard:
    """Refuses a request to a wrong host, from a wrong page, without a token or too large."""

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            refusal = self._refusal(scope, Headers(scope=scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        if not self._access.admits_host(headers.get("host")):
            return problem("wrong_host", 421)
        if not self._access.admits_origin(headers.get("origin")):
            return problem("wrong_origin", 403)
        if _is_too_large(headers.get("content-length", "")):
            return problem("too_large", 413)
        if _is_preflight(scope, headers):  # browsers ask without the token
            return None
        principal = self._access.principal(headers.get("authorization"))
        if principal is None:
            challenge = {"WWW-Authenticate": 'Bearer realm="toolscout"'}
            return problem("unauthorized", 401, headers=challenge)
        self._admit(scope, principal)
        return None

    def _admit(self, scope: Scope, principal: Principal) -> None:
        scope[PRINCIPAL] = principal
        if self._access.needs_token:
            # The SDK lets a session be used only by the one who opened it; this is how it tells.
            token = AccessToken(token="", client_id=principal.name, scopes=[])
            scope["user"] = AuthenticatedUser(token)


class Traffic:
    """Knows what is being worked on, so that a gateway can stop without losing an answer."""

    def __init__(self) -> None:
        self.idle, self.stopped = asyncio.Event(), asyncio.Event()
        self.idle.set()
        self._running = 0

    @contextlib.contextmanager
    def counted(self) -> Generator[None]:
        """Count something that should end before the gateway does."""
        self._running += 1
        self.idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self.idle.set()

    async def stop(self, seconds: float) -> None:
        """End all requests once nothing runs any more, or when the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.idle.wait()
                # Older clients get answers over a stream that stays open; let the last one out.
                await asyncio.sleep(FLUSH_SECONDS)
        self.stopped.set()


class Ending:
    """Ends requests when the gateway stops; without it, one open stream would hold it up."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app, self._traffic = app, traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or as much of it as there is time for."""
        with self._traffic.counted() if _is_work(scope) else contextlib.nullcontext():
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send)
        work = asyncio.ensure_future(_done(self._app, scope, receive, answer.send))
        stop = asyncio.ensure_future(self._traffic.stopped.wait())
        try:
            await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            is_over = work.done()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        if is_over:
            work.result()
        elif not answer.is_begun:
            await problem("stopping", 503)(scope, receive, send)
        elif not answer.is_complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Answer:
    """How far an answer has got."""

    def __init__(self, send: Send) -> None:
        self.is_begun = self.is_complete = False
        self._send = send

    async def send(self, message: Message) -> None:
        self.is_begun = True
        is_body = message["type"] == "http.response.body"
        self.is_complete = is_body and not message.get("more_body", False)
        await self._send(message)


async def _done(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


TEXTS = {
    "wrong_host": "This name is not one of the gateway's. Use localhost, or add it to "
    "'gateway.hosts'.",
    "wrong_origin": "Pages of this origin may not ask. Add it to 'gateway.origins'.",
    "unauthorized": "A valid token is needed. Send 'Authorization: Bearer TOKEN' with one of "
    "'gateway.tokens'.",
    "limited": "This tells about all servers. Use a token without a profile.",
    "too_large": f"The request is larger than {MAX_BODY_BYTES:,} bytes. Send less at once.",
    "not_found": "There is nothing here. MCP is served at /mcp, and at /sse for older clients.",
    "wrong_method": "This method is not served here. Read it with GET.",
    "stopping": "The gateway is stopping. Try again shortly.",
}


def problem(code: str, status: int, *, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an error as JSON."""
    body = {"error": {"code": code, "message": TEXTS[code]}}
    return JSONResponse(body, status, headers)


def _is_too_large(length: str) -> bool:
    # A body of unknown length is counted by the SDK while it is read.
    return length.isdecimal() and (len(length) > 18 or int(length) > MAX_BODY_BYTES)


def _is_work(scope: Scope) -> bool:
    """Tell whether a request ends by itself; streams and waiting for news do not."""
    waits = Headers(scope=scope).get("mcp-method") == LISTENING
    return scope["method"] == "POST" and not waits


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["method"] == "OPTIONS" and "access-control-request-method" in headers
