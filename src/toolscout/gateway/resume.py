"""`SessionResumer`: resumes sessions of handshake-era clients that the SDK has lost.

The SDK keeps sessions in memory. After a restart or a long pause it answers 404, and the client
would have to start over. `KnownClients` therefore stores each client's `initialize` parameters, its
principal and when it was last seen. The resumer sends them to the SDK again and repeats the
request; the client keeps its session id. Only the principal that opened a session can resume it,
and a session that its client has ended stays ended.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscout.gateway.middleware import ANONYMOUS, PRINCIPAL, Principal, read_header, read_headers
from toolscout.schemas import Json, is_object
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.stores.store import Store

GUEST_KIND = "guest"
HTTP = "http:"
SSE = "sse:"
OWN_SESSION = (HTTP, SSE)
"""Prefixes of the names of sessions that belong to one client."""
DAY_SECONDS = 86_400.0
SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
SESSION = "toolscout.session"
"""Key of the session id that the client uses, in a request's scope."""
OK = 200
NOT_FOUND = 404
_FIRST_ID = "toolscout-revival"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClient:
    """One client of the handshake era."""

    seen: float
    """When it last sent a request, in seconds since 1970, accurate to the day."""
    owner: str | None = None
    """The principal's name, or None if the gateway needs no token."""
    version: str = ""
    """The negotiated protocol version."""
    hello: Json = field(default_factory=dict[str, Any])
    """The parameters of its `initialize` request; without them its session cannot be resumed."""
    resources: tuple[str, ...] = ()
    """The URIs that it is subscribed to."""


class KnownClients:
    """Stores clients by the names of their sessions. `forget_session` deletes a session."""

    def __init__(
        self,
        store: Store,
        days: float,
        forget_session: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._clock = clock
        self._seconds = days * DAY_SECONDS
        self._forget_session = forget_session
        self._fresh: set[str] = set()

    def read(self, name: str) -> KnownClient | None:
        """Return a client, or None if it is unknown or stayed away for too long."""
        client = self._read(name)
        if client is None or self._clock() - client.seen > self._seconds:
            return None
        return client

    def remember(self, name: str, *, owner: str | None, version: str, hello: Json) -> None:
        """Store a client's `initialize` parameters; its subscriptions are kept."""
        before = self._read(name)
        self._fresh.add(name)
        client = KnownClient(
            seen=self._clock(),
            owner=owner,
            version=version,
            hello=hello,
            resources=before.resources if before is not None else (),
        )
        self._write(name, client)

    def subscribe(self, name: str, uri: str, *, wanted: bool) -> None:
        """Add a resource to a client's subscriptions, or remove it if it is no longer wanted."""
        client = self._read(name)
        if client is not None:
            others = tuple(known for known in client.resources if known != uri)
            self._write(name, replace(client, resources=(*others, uri) if wanted else others))

    def touch(self, name: str) -> None:
        """Note that a client has sent a request; writes to the store once a day."""
        if name in self._fresh:
            return
        self._fresh.add(name)
        client = self._read(name) or KnownClient(seen=0.0)
        if self._clock() - client.seen > DAY_SECONDS:
            self._write(name, replace(client, seen=self._clock()))

    def forget(self, name: str) -> None:
        """Delete a client and its session."""
        self._fresh.discard(name)
        self._store.write(GUEST_KIND, name, None)
        self._forget_session(name)

    def sweep(self) -> int:
        """Delete all clients that stayed away for too long; return how many."""
        self._fresh.clear()
        known = set(self._store.keys(GUEST_KIND))
        for name in self._store.keys(SESSION_KIND):
            if name.startswith(OWN_SESSION) and name not in known:
                self._write(name, KnownClient(seen=self._clock()))  # its age counts from now
        old = [name for name in known if self.read(name) is None]
        for name in old:
            self.forget(name)
        return len(old)

    def _read(self, name: str) -> KnownClient | None:
        data = self._store.read(GUEST_KIND, name)
        try:
            value: object = json.loads(data) if data is not None else None
            return _client_from_json(value) if is_object(value) else None
        except (ValueError, TypeError):
            return None  # written by another version; the client has to initialize again

    def _write(self, name: str, client: KnownClient) -> None:
        self._store.write(GUEST_KIND, name, json.dumps(asdict(client)).encode())


def _client_from_json(value: Json) -> KnownClient:
    members: Json = value | {"resources": tuple(value["resources"])}
    return KnownClient(**members)


class SessionResumer:
    """An ASGI application that resumes lost sessions before it passes requests on to `app`."""

    def __init__(self, app: ASGIApp, clients: KnownClients) -> None:
        self._app = app
        self._clients = clients
        self._inner: dict[str, str] = {}
        """The SDK's ids of resumed sessions, by the ids that their clients use."""
        self._resuming = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        outer = _read_session_id(scope)
        if outer is None:
            await self._app(scope, receive, send)
            return
        inner = self._inner.get(outer, outer)
        is_end = scope["method"] == "DELETE"
        attempt = _Attempt(receive, send, outer, holds=is_end)
        await self._app(_rename_session(scope, outer, inner), attempt.receive, attempt.hold)
        if is_end:
            await self._end_session(scope, outer, is_done=attempt.status == OK)
            await attempt.release()
        elif attempt.status == NOT_FOUND:
            await self._retry(scope, attempt, outer, inner)

    async def _end_session(self, scope: Scope, outer: str, *, is_done: bool) -> None:
        """Delete a session that its client has ended, before the client receives the answer."""
        client = self._clients.read(name_session(outer))
        if is_done or (client is not None and client.owner == read_owner(scope)):
            self._inner.pop(outer, None)
            await asyncio.to_thread(self._clients.forget, name_session(outer))

    async def _retry(self, scope: Scope, attempt: "_Attempt", outer: str, lost: str) -> None:
        resumed = await self._resume(scope, outer, lost)
        if resumed is None:
            await attempt.release()
        else:
            await self._app(_rename_session(scope, outer, resumed), attempt.replay, attempt.send)

    async def _resume(self, scope: Scope, outer: str, lost: str) -> str | None:
        """Return the new id of a lost session, or None if it cannot be resumed."""
        client = self._clients.read(name_session(outer))
        if client is None or not client.hello or client.owner != read_owner(scope):
            return None
        async with self._resuming:
            if self._inner.get(outer, outer) == lost:  # else another request has resumed it
                inner = await self._introduce(scope, outer, client)
                if inner is None:
                    return None
                self._inner[outer] = inner
            return self._inner[outer]

    async def _introduce(self, scope: Scope, outer: str, client: KnownClient) -> str | None:
        opened = await self._post(
            scope, outer, _build_message("initialize", client.hello, id=_FIRST_ID)
        )
        inner = opened.headers.get(SESSION_HEADER)
        if opened.status != OK or inner is None:
            return None
        headers = {SESSION_HEADER: inner, VERSION_HEADER: client.version}
        for message in _build_follow_ups(client.resources):
            await self._post(scope, outer, message, headers)
        return inner

    async def _post(
        self, scope: Scope, outer: str, message: Json, headers: dict[str, str] | None = None
    ) -> "_Opened":
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **(headers or {}),
        }
        host = [row for row in scope["headers"] if row[0] == b"host"]
        rows = [*host, *_encode_headers(headers)]
        opened = _Opened(json.dumps(message).encode())
        inside = {**scope, "method": "POST", "headers": rows, SESSION: outer}
        await self._app(inside, opened.receive, opened.send)
        return opened


class _Attempt:
    """The first attempt to answer: records the request, and holds back a 404 answer.

    With `holds` it holds back every answer until `release`.
    """

    def __init__(self, receive: Receive, send: Send, outer: str, *, holds: bool) -> None:
        self.status = 0
        self._receive = receive
        self._send = send
        self._outer = outer
        self._holds = holds
        self._received: list[Message] = []
        self._held: list[Message] = []

    async def receive(self) -> Message:
        message = await self._receive()
        if self.status == 0:
            self._received.append(message)
        return message

    async def replay(self) -> Message:
        return self._received.pop(0) if self._received else await self._receive()

    async def hold(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        if self._holds or self.status == NOT_FOUND:
            self._held.append(message)
        else:
            self._received.clear()
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
    """A request that the gateway itself sends to the SDK, and the head of its answer."""

    def __init__(self, body: bytes) -> None:
        self.status = 0
        self.headers = Headers()
        self._body: bytes | None = body

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()  # this client never disconnects
        body = self._body
        self._body = None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = Headers(raw=message["headers"])


def name_session(session_id: str) -> str:
    """Return the name under which a session of streamable HTTP is stored."""
    return f"{HTTP}{session_id}"


def read_owner(scope: Scope) -> str | None:
    """Return the principal whose sessions a request may use; None if it is anonymous."""
    principal: Principal = scope[PRINCIPAL]
    return None if principal is ANONYMOUS else principal.name


def _read_session_id(scope: Scope) -> str | None:
    headers = read_headers(scope)
    version = read_header(headers, VERSION_HEADER.encode())
    if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return None  # later clients have no session, so an id that they send means nothing
    return read_header(headers, SESSION_HEADER.encode())


def _rename_session(scope: Scope, outer: str, inner: str) -> Scope:
    if outer == inner:
        return {**scope, SESSION: outer}
    kept = [row for row in scope["headers"] if row[0] != SESSION_HEADER.encode()]
    return {**scope, SESSION: outer, "headers": [*kept, *_encode_headers({SESSION_HEADER: inner})]}


def _encode_headers(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def _build_message(method: str, params: Json | None = None, **members: Any) -> Json:
    message: Json = {"jsonrpc": "2.0", "method": method, **members}
    return message if params is None else message | {"params": params}


def _build_follow_ups(resources: Sequence[str]) -> Iterable[Json]:
    yield _build_message("notifications/initialized")
    for number, uri in enumerate(resources):
        yield _build_message("resources/subscribe", {"uri": uri}, id=f"{_FIRST_ID}-{number}")
