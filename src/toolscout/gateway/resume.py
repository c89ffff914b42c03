"""`SessionResumer`: resumes sessions of handshake-era clients that the SDK has lost.

The SDK keeps sessions in memory. After a restart or a long pause it answers 404, and the client
would have to start over. The resumer sends the `initialize` parameters that `KnownClients` stores
to the SDK again and repeats the request; the client keeps its session id. Only the principal that
opened a session can resume it, and a session that its client has ended stays ended.
"""

import asyncio
import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from typing import Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscout.calls.results import KIND as RESULT_KIND
from toolscout.calls.results import Results
from toolscout.errors import ToolscoutError
from toolscout.gateway.middleware import ANONYMOUS, PRINCIPAL, Principal, read_header
from toolscout.schemas import Json
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.stores.background import BackgroundStore
from toolscout.stores.store import KeyLocks, Store

CLIENT_KIND = "guest"  # the name under which existing stores have them
HTTP = "http:"
SSE = "sse:"
STDIO = "stdio-"
"""Of clients that share a gateway in the background."""
PRINCIPALS = "principal:"
SWEPT = (HTTP, SSE, STDIO, PRINCIPALS)
"""Prefixes of the names of sessions that are deleted when nobody uses them."""
DAY_SECONDS = 86_400.0
SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
SESSION = "toolscout.session"
"""Key of the session id that the client uses, in a request's scope."""
OK = 200
NOT_FOUND = 404
_FIRST_ID = "toolscout-resume"

_log = logging.getLogger(__name__)


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


_STORED = TypeAdapter(KnownClient)


class KnownClients:
    """Stores clients by the names of their sessions. `forget_session` deletes a session."""

    def __init__(
        self,
        store: Store,
        days: float,
        forget_session: Callable[[str], None],
        *,
        kept: int = 1_000,
        max_bytes: int = 64 << 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`kept` and `max_bytes` bound the stored sessions and results of one owner.

        The oldest are deleted first.
        """
        self.kept = kept
        self.max_bytes = max_bytes
        self._results: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """The keys and bytes of each owner's long results, oldest first."""
        self._counting = threading.Lock()
        self._owned: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """The names of each owner's sessions, oldest first."""
        self._store = store
        self._clock = clock
        self.days = days
        self._forget_session = forget_session
        self._fresh: set[str] = set()
        self._locks = KeyLocks()

    def read(self, name: str) -> KnownClient | None:
        """Return a client, or None if it is unknown or stayed away for too long."""
        client = self._read(name)
        if client is None or self._clock() - client.seen > self.days * DAY_SECONDS:
            return None
        return client

    def remember(self, name: str, *, owner: str | None, version: str, hello: Json) -> None:
        """Store a new client with its `initialize` parameters."""
        self._fresh.add(name)
        client = KnownClient(seen=self._clock(), owner=owner, version=version, hello=hello)
        self._write(name, client)
        if owner is not None:
            self._count_session(owner, name)

    def count_result(self, owner: str, key: str, size: int) -> None:
        """Count a stored result of an owner, and delete the oldest if they are too large."""
        with self._counting:
            results = self._results[owner]
            results.pop(key, None)
            results[key] = size
            if sum(results.values()) > self.max_bytes:
                # Sessions delete results of their own, and end.
                sessions = {result.rpartition("/")[0] for result in results}
                listed = {one: Results(self._store, one).list_sizes() for one in sessions}
                known = {result for sizes in listed.values() for result in sizes}
                results = {result: kept for result, kept in results.items() if result in known}
                while len(results) > 1 and sum(results.values()) > self.max_bytes:
                    oldest = next(iter(results))
                    del results[oldest]
                    self._store.write(RESULT_KIND, oldest, None)
                self._results[owner] = results

    def _count_session(self, owner: str, name: str) -> None:
        owned = self._owned[owner]
        owned[name] = None
        for old in list(owned)[: -self.kept]:
            self.forget(old)
            owned.pop(old, None)

    def subscribe(self, name: str, uri: str, *, wanted: bool) -> None:
        """Add a resource to a client's subscriptions, or remove it if it is no longer wanted."""
        with self._locks[name]:
            client = self._read(name)
            if client is not None:
                others = tuple(known for known in client.resources if known != uri)
                self._write(name, replace(client, resources=(*others, uri) if wanted else others))

    def is_fresh(self, name: str) -> bool:
        """Tell whether a client was touched since the last sweep."""
        return name in self._fresh

    def touch(self, name: str, owner: str | None = None) -> None:
        """Note that a client has sent a request; writes to the store once a day."""
        self._fresh.add(name)
        with self._locks[name]:
            client = self._read(name) or KnownClient(seen=0.0, owner=owner)
            if self._clock() - client.seen > DAY_SECONDS:
                self._write(name, replace(client, seen=self._clock()))
        if owner is not None and name.startswith(SSE):
            self._count_session(owner, name)

    def forget(self, name: str) -> None:
        """Delete a client and its session."""
        self._fresh.discard(name)
        self._store.write(CLIENT_KIND, name, None)
        self._forget_session(name)

    def sweep(self) -> int:
        """Delete all clients that stayed away for too long; return how many."""
        self._fresh.clear()
        known = set(self._store.keys(CLIENT_KIND))
        for name in self._store.keys(SESSION_KIND):
            if name.startswith(SWEPT) and name not in known:
                self._write(name, KnownClient(seen=self._clock()))  # its age counts from now
        old = [name for name in known if self.read(name) is None]
        for name in old:
            self.forget(name)
        self._note_owners(known - set(old))
        for key in self._store.keys(RESULT_KIND):
            if self._store.read(SESSION_KIND, key.rpartition("/")[0] or key) is None:
                self._store.write(RESULT_KIND, key, None)  # its session is gone
        return len(old)

    def _note_owners(self, names: Set[str]) -> None:
        clients = [(name, client) for name in names if (client := self._read(name)) is not None]
        self._owned.clear()
        results: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for name, client in sorted(clients, key=lambda row: row[1].seen):
            if client.owner is not None:
                results[client.owner] |= Results(self._store, name).list_sizes()
                if not name.startswith(PRINCIPALS):
                    self._owned[client.owner][name] = None
        with self._counting:
            self._results = results

    def _read(self, name: str) -> KnownClient | None:
        return read_client(self._store, name)

    def _write(self, name: str, client: KnownClient) -> None:
        self._store.write(CLIENT_KIND, name, _STORED.dump_json(client))


def read_client(store: Store, name: str) -> KnownClient | None:
    """Return the client of a session, however long it stayed away; None if it is unknown."""
    data = store.read(CLIENT_KIND, name)
    try:
        return _STORED.validate_json(data) if data is not None else None
    except ValidationError:
        return None  # written by another version; the client has to initialize again


async def sweep_daily(clients: KnownClients, store: BackgroundStore) -> None:
    """Remove the sessions of clients that stayed away, at the start and then daily."""
    while True:
        try:
            removed = await store.run_in_thread(clients.sweep)
        except ToolscoutError as error:
            _log.warning("Could not remove old sessions: %s", error)
        else:
            if removed:
                _log.info("Removed %d old sessions.", removed)
        await asyncio.sleep(DAY_SECONDS)


class SessionResumer:
    """An ASGI application that resumes lost sessions before it passes requests on to `app`."""

    def __init__(self, app: ASGIApp, clients: KnownClients, store: BackgroundStore) -> None:
        self._app = app
        self._clients = clients
        self._store = store
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
            is_done = attempt.status == OK
            name = name_session(outer)
            client = await self._store.run_in_thread(lambda: self._clients.read(name))
            if is_done or (client is not None and client.owner == read_owner(scope)):
                self._inner.pop(outer, None)
                await self._store.run_in_thread(lambda: self._clients.forget(name))
                await self._store.wait_written(SESSION_KIND, name)
        elif attempt.status == NOT_FOUND:
            resumed = await self._resume(scope, outer, inner)
            if resumed is not None:
                scope = _rename_session(scope, outer, resumed)
                await self._app(scope, attempt.replay, attempt.send)
                return
        await attempt.release()

    async def _resume(self, scope: Scope, outer: str, lost: str) -> str | None:
        """Return the new id of a lost session, or None if it cannot be resumed."""
        name = name_session(outer)
        client = await self._store.run_in_thread(lambda: self._clients.read(name))
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
        """Open a session for a client at the SDK; return its id, or None if the SDK refuses."""
        hello = {"method": "initialize", "params": client.hello, "id": _FIRST_ID}
        opened = await self._post(scope, outer, hello)
        inner = Headers(raw=opened["headers"]).get(SESSION_HEADER)
        if opened["status"] != OK or inner is None:
            return None
        headers = {SESSION_HEADER: inner, VERSION_HEADER: client.version}
        await self._post(scope, outer, {"method": "notifications/initialized"}, headers)
        for number, uri in enumerate(client.resources):
            subscription = {
                "method": "resources/subscribe",
                "params": {"uri": uri},
                "id": f"{_FIRST_ID}-{number}",
            }
            await self._post(scope, outer, subscription, headers)
        return inner

    async def _post(
        self, scope: Scope, outer: str, message: Json, headers: dict[str, str] | None = None
    ) -> Message:
        """Send a message to the SDK; return the head of its answer."""
        own = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **(headers or {}),
        }
        host = [row for row in scope["headers"] if row[0] == b"host"]
        rows = [*host, *Headers(own).raw]
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        requests = [{"type": "http.request", "body": body, "more_body": False}]
        head: Message = {"status": 0, "headers": []}

        async def receive() -> Message:
            if not requests:
                await asyncio.Event().wait()  # this client never disconnects
            return requests.pop()

        async def send(part: Message) -> None:
            if part["type"] == "http.response.start":
                head.update(part)

        inside = {**scope, "method": "POST", "headers": rows, SESSION: outer}
        await self._app(inside, receive, send)
        return head


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


def name_session(session_id: str) -> str:
    """Return the name under which a session of streamable HTTP is stored."""
    return f"{HTTP}{session_id}"


def read_owner(scope: Scope) -> str | None:
    """Return the principal whose sessions a request may use; None if it is anonymous."""
    principal: Principal = scope[PRINCIPAL]
    return None if principal is ANONYMOUS else principal.name


def _read_session_id(scope: Scope) -> str | None:
    version = read_header(scope, VERSION_HEADER.encode())
    if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return None  # later clients have no session, so an id that they send means nothing
    return read_header(scope, SESSION_HEADER.encode())


def _rename_session(scope: Scope, outer: str, inner: str) -> Scope:
    if outer == inner:
        return {**scope, SESSION: outer}
    headers = MutableHeaders(raw=list(scope["headers"]))
    headers[SESSION_HEADER] = inner
    return {**scope, SESSION: outer, "headers": headers.raw}
