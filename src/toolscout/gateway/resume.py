"""`SessionResumer`: a client of the handshake era goes on with a session that the SDK has lost.

The SDK keeps sessions in memory, so that after a restart, or a long pause, it answers 404 and the
client would have to begin anew. Here the client is introduced to it again with its own words, and
its request is repeated; the client keeps its session id. Only the principal that opened a session
gets it back, and a client that has ended its session cannot return to it.

`KnownClients`: clients of the handshake era, as they introduced themselves.

Such a client is known by a session id that it was given, so it would be a stranger to a gateway
that has been restarted. What it said of itself is kept in the store, with who it was and when it
was last seen; `revivals` lets it go on. Guests that stay away are forgotten, with their sessions.
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
HTTP, SSE = "http:", "sse:"
OWN_SESSION = (HTTP, SSE)
"""How the names of sessions begin that belong to one client."""
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClient:
    """One client of the handshake era."""

    seen: float
    """When it last asked, to the day, in seconds since 1970."""
    owner: str | None = None
    """The principal's name, or nothing where no token is asked for."""
    version: str = ""
    """The protocol that was agreed on."""
    hello: Json = field(default_factory=dict[str, Any])
    """The parameters of its `initialize`; without them it cannot come back."""
    resources: tuple[str, ...] = ()
    """What it is subscribed to."""


class KnownClients:
    """Keeps guests by the names of their sessions. `forget_session` ends one for good."""

    def __init__(
        self,
        store: Store,
        days: float,
        forget_session: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._clock = store, clock
        self._seconds = days * DAY_SECONDS
        self._forget_session = forget_session
        self._fresh: set[str] = set()

    def read(self, name: str) -> KnownClient | None:
        """Return a guest, unless it is unknown or stayed away for too long."""
        guest = self._read(name)
        return None if guest is None or self._is_old(guest) else guest

    def remember(self, name: str, *, owner: str | None, version: str, hello: Json) -> None:
        """Keep what a client said of itself."""
        before = self._read(name)
        self._fresh.add(name)
        guest = KnownClient(
            seen=self._clock(),
            owner=owner,
            version=version,
            hello=hello,
            resources=before.resources if before is not None else (),
        )
        self._write(name, guest)

    def subscribe(self, name: str, uri: str, *, wanted: bool) -> None:
        """Note what a guest wants to hear of, or no longer does."""
        guest = self._read(name)
        if guest is not None:
            others = tuple(known for known in guest.resources if known != uri)
            self._write(name, replace(guest, resources=(*others, uri) if wanted else others))

    def touch(self, name: str) -> None:
        """Note that a client has asked; written down once a day."""
        if name in self._fresh:
            return
        self._fresh.add(name)
        guest = self._read(name) or KnownClient(seen=0.0)
        if self._clock() - guest.seen > DAY_SECONDS:
            self._write(name, replace(guest, seen=self._clock()))

    def forget(self, name: str) -> None:
        """Forget a guest and its session."""
        self._fresh.discard(name)
        self._store.write(GUEST_KIND, name, None)
        self._forget_session(name)

    def sweep(self) -> int:
        """Forget whoever stayed away for too long; return how many."""
        self._fresh.clear()
        known = set(self._store.keys(GUEST_KIND))
        for name in self._store.keys(SESSION_KIND):
            if name.startswith(OWN_SESSION) and name not in known:
                self._write(name, KnownClient(seen=self._clock()))  # its time begins here
        old = [name for name in known if self.read(name) is None]
        for name in old:
            self.forget(name)
        return len(old)

    def _is_old(self, guest: KnownClient) -> bool:
        return self._clock() - guest.seen > self._seconds

    def _read(self, name: str) -> KnownClient | None:
        data = self._store.read(GUEST_KIND, name)
        try:
            value: object = json.loads(data) if data is not None else None
            return _client_from_json(value) if is_object(value) else None
        except (ValueError, TypeError):
            return None  # of another version; the client introduces itself again

    def _write(self, name: str, guest: KnownClient) -> None:
        self._store.write(GUEST_KIND, name, json.dumps(asdict(guest)).encode())


def _client_from_json(value: Json) -> KnownClient:
    members: Json = value | {"resources": tuple(value["resources"])}
    return KnownClient(**members)


SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
SESSION = "toolscout.session"
"""Where a request's scope tells the session id that the client knows."""
OK, NOT_FOUND = 200, 404
_FIRST_ID = "toolscout-revival"


class SessionResumer:
    """Answers requests of sessions, lost ones included."""

    def __init__(self, app: ASGIApp, guests: KnownClients) -> None:
        self._app, self._clients = app, guests
        self._inner: dict[str, str] = {}
        """The ids under which the SDK knows sessions that were lost once."""
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
        """Forget a session that its client has ended, before the client is told so."""
        guest = self._clients.read(name_session(outer))
        if is_done or (guest is not None and guest.owner == read_owner(scope)):
            self._inner.pop(outer, None)
            await asyncio.to_thread(self._clients.forget, name_session(outer))

    async def _retry(self, scope: Scope, attempt: "_Attempt", outer: str, lost: str) -> None:
        revived = await self._resume(scope, outer, lost)
        if revived is None:
            await attempt.release()
        else:
            await self._app(_rename_session(scope, outer, revived), attempt.replay, attempt.send)

    async def _resume(self, scope: Scope, outer: str, lost: str) -> str | None:
        """Return the new id of a lost session, or nothing if it may not come back."""
        guest = self._clients.read(name_session(outer))
        if guest is None or not guest.hello or guest.owner != read_owner(scope):
            return None
        async with self._resuming:
            if self._inner.get(outer, outer) == lost:  # else another request was faster
                inner = await self._introduce(scope, outer, guest)
                if inner is None:
                    return None
                self._inner[outer] = inner
            return self._inner[outer]

    async def _introduce(self, scope: Scope, outer: str, guest: KnownClient) -> str | None:
        opened = await self._post(
            scope, outer, _build_message("initialize", guest.hello, id=_FIRST_ID)
        )
        inner = opened.headers.get(SESSION_HEADER)
        if opened.status != OK or inner is None:
            return None
        known = {SESSION_HEADER: inner, VERSION_HEADER: guest.version}
        for message in _build_follow_ups(guest.resources):
            await self._post(scope, outer, message, known)
        return inner

    async def _post(
        self, scope: Scope, outer: str, message: Json, headers: dict[str, str] | None = None
    ) -> "_Opened":
        said = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        rows = [*_keep_host(scope), *_encode_headers(said | (headers or {}))]
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


def name_session(session_id: str) -> str:
    """Return the name under which a session of streamable HTTP is kept."""
    return f"{HTTP}{session_id}"


def read_owner(scope: Scope) -> str | None:
    """Return whose sessions a request may use."""
    principal: Principal = scope[PRINCIPAL]
    return None if principal is ANONYMOUS else principal.name


def _read_session_id(scope: Scope) -> str | None:
    headers = read_headers(scope)
    version = read_header(headers, VERSION_HEADER.encode())
    if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return None  # later clients have no session; what they send as its id means nothing
    return read_header(headers, SESSION_HEADER.encode())


def _rename_session(scope: Scope, outer: str, inner: str) -> Scope:
    if outer == inner:
        return {**scope, SESSION: outer}
    kept = [row for row in scope["headers"] if row[0] != SESSION_HEADER.encode()]
    return {**scope, SESSION: outer, "headers": [*kept, *_encode_headers({SESSION_HEADER: inner})]}


def _keep_host(scope: Scope) -> Iterable[tuple[bytes, bytes]]:
    return (row for row in scope["headers"] if row[0] == b"host")


def _encode_headers(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def _build_message(method: str, params: Json | None = None, **members: Any) -> Json:
    message: Json = {"jsonrpc": "2.0", "method": method, **members}
    return message if params is None else message | {"params": params}


def _build_follow_ups(resources: Sequence[str]) -> Iterable[Json]:
    yield _build_message("notifications/initialized")
    for number, uri in enumerate(resources):
        yield _build_message("resources/subscribe", {"uri": uri}, id=f"{_FIRST_ID}-{number}")
