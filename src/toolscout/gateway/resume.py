"""`Revival`: a client of the handshake era goes on with a session that the SDK has lost.

The SDK keeps sessions in memory, so that after a restart, or a long pause, it answers 404 and the
client would have to begin anew. Here the client is introduced to it again with its own words, and
its request is repeated; the client keeps its session id. Only the principal that opened a session
gets it back, and a client that has ended its session cannot return to it.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscout.gateway.auth import ANONYMOUS, Principal
from toolscout.gateway.guests import HTTP, Guest, Guests
from toolscout.gateway.middleware import PRINCIPAL, headers_of, text_of
from toolscout.schemas import Json

SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
SESSION = "toolscout.session"
"""Where a request's scope tells the session id that the client knows."""
OK, NOT_FOUND = 200, 404
_FIRST_ID = "toolscout-revival"


class Revival:
    """Answers requests of sessions, lost ones included."""

    def __init__(self, app: ASGIApp, guests: Guests) -> None:
        self._app, self._guests = app, guests
        self._inner: dict[str, str] = {}
        """The ids under which the SDK knows sessions that were lost once."""
        self._reviving = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        outer = _session_id(scope)
        if outer is None:
            await self._app(scope, receive, send)
            return
        inner = self._inner.get(outer, outer)
        is_end = scope["method"] == "DELETE"
        attempt = _Attempt(receive, send, outer, holds=is_end)
        await self._app(_renamed(scope, outer, inner), attempt.receive, attempt.hold)
        if is_end:
            await self._ended(scope, outer, is_done=attempt.status == OK)
            await attempt.release()
        elif attempt.status == NOT_FOUND:
            await self._again(scope, attempt, outer, inner)

    async def _ended(self, scope: Scope, outer: str, *, is_done: bool) -> None:
        """Forget a session that its client has ended, before the client is told so."""
        guest = self._guests.read(name_of(outer))
        if is_done or (guest is not None and guest.owner == owner_of(scope)):
            self._inner.pop(outer, None)
            await asyncio.to_thread(self._guests.forget, name_of(outer))

    async def _again(self, scope: Scope, attempt: "_Attempt", outer: str, lost: str) -> None:
        revived = await self._revived(scope, outer, lost)
        if revived is None:
            await attempt.release()
        else:
            await self._app(_renamed(scope, outer, revived), attempt.replay, attempt.send)

    async def _revived(self, scope: Scope, outer: str, lost: str) -> str | None:
        """Return the new id of a lost session, or nothing if it may not come back."""
        guest = self._guests.read(name_of(outer))
        if guest is None or not guest.hello or guest.owner != owner_of(scope):
            return None
        async with self._reviving:
            if self._inner.get(outer, outer) == lost:  # else another request was faster
                inner = await self._introduced(scope, outer, guest)
                if inner is None:
                    return None
                self._inner[outer] = inner
            return self._inner[outer]

    async def _introduced(self, scope: Scope, outer: str, guest: Guest) -> str | None:
        opened = await self._post(scope, outer, _message("initialize", guest.hello, id=_FIRST_ID))
        inner = opened.headers.get(SESSION_HEADER)
        if opened.status != OK or inner is None:
            return None
        known = {SESSION_HEADER: inner, VERSION_HEADER: guest.version}
        for message in _later(guest.resources):
            await self._post(scope, outer, message, known)
        return inner

    async def _post(
        self, scope: Scope, outer: str, message: Json, headers: dict[str, str] | None = None
    ) -> "_Opened":
        said = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        rows = [*_kept(scope), *_rows(said | (headers or {}))]
        opened = _Opened(json.dumps(message).encode())
        inside = {**scope, "method": "POST", "headers": rows, SESSION: outer}
        await self._app(inside, opened.receive, opened.send)
        return opened


class _Attempt:
    """The first try to answer: what came in is kept, and a 404 is held back."""

    def __init__(self, receive: Receive, send: Send, outer: str, *, holds: bool) -> None:
        self.status = 0
        self._receive, self._send, self._outer = receive, send, outer
        self._holds = holds
        self._came: list[Message] = []
        self._held: list[Message] = []

    async def receive(self) -> Message:
        message = await self._receive()
        if self.status == 0:
            self._came.append(message)
        return message

    async def replay(self) -> Message:
        return self._came.pop(0) if self._came else await self._receive()

    async def hold(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        if self._holds or self.status == NOT_FOUND:
            self._held.append(message)
        else:
            self._came.clear()
            await self.send(message)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            if SESSION_HEADER in headers:
                headers[SESSION_HEADER] = self._outer
            message = {**message, "headers": headers.raw}
        await self._send(message)

    async def release(self) -> None:
        for message in self._held:
            await self.send(message)


class _Opened:
    """A request of the gateway's own, and how it was answered."""

    def __init__(self, body: bytes) -> None:
        self.status, self.headers = 0, Headers()
        self._body: bytes | None = body

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()  # nobody hangs up
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], Headers(raw=message["headers"])


def name_of(session_id: str) -> str:
    """Return the name under which a session of streamable HTTP is kept."""
    return f"{HTTP}{session_id}"


def owner_of(scope: Scope) -> str | None:
    """Return whose sessions a request may use."""
    principal: Principal = scope[PRINCIPAL]
    return None if principal is ANONYMOUS else principal.name


def _session_id(scope: Scope) -> str | None:
    headers = headers_of(scope)
    version = text_of(headers, VERSION_HEADER.encode())
    if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return None  # later clients have no session; what they send as its id means nothing
    return text_of(headers, SESSION_HEADER.encode())


def _renamed(scope: Scope, outer: str, inner: str) -> Scope:
    if outer == inner:
        return {**scope, SESSION: outer}
    kept = [row for row in scope["headers"] if row[0] != SESSION_HEADER.encode()]
    return {**scope, SESSION: outer, "headers": [*kept, *_rows({SESSION_HEADER: inner})]}


def _kept(scope: Scope) -> Iterable[tuple[bytes, bytes]]:
    return (row for row in scope["headers"] if row[0] == b"host")


def _rows(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def _message(method: str, params: Json | None = None, **members: Any) -> Json:
    message: Json = {"jsonrpc": "2.0", "method": method, **members}
    return message if params is None else message | {"params": params}


def _later(resources: Sequence[str]) -> Iterable[Json]:
    yield _message("notifications/initialized")
    for number, uri in enumerate(resources):
        yield _message("resources/subscribe", {"uri": uri}, id=f"{_FIRST_ID}-{number}")
