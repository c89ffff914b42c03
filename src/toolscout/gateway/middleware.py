"""What every HTTP request passes before it is answered, and the errors that it may meet.

`RequestGuard` refuses a request that `Authenticator` does not admit; `StoppableApp` ends open
requests when the gateway stops. Errors are JSON and say what to do next, but never which part of a
secret was wrong.

`Authenticator`: who is asking, and from where they may ask.

A bearer token makes a `Principal`; without tokens, whoever reaches the loopback address is the
one anonymous principal, which sees everything. Host and Origin are judged here too, so that no
web page reaches the gateway under a name of its own. The wire is `guards`'.
"""

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscout.config.gateway import GatewayConfig, Profile
from toolscout.errors import InvalidConfig

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = ("0.0.0.0", "::", "")
SCHEME = "bearer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who asks."""

    name: str
    profile: Profile | None = None
    """What it sees; without one, everything."""


ANONYMOUS = Principal(name="anonymous")


class Authenticator:
    """Who may come in. Raises `InvalidConfig` where everybody could (R79)."""

    def __init__(self, config: GatewayConfig, env: Mapping[str, str] | None = None) -> None:
        self._read_principals = dict(_read_principals(config, env))
        if not self._read_principals and not is_loopback(config.host):
            raise InvalidConfig(
                "gateway.host",
                f"is {config.host!r}, which other machines can reach, and there is no token",
                remedy='Add [gateway.tokens.NAME] with token = "${VAR}", or use 127.0.0.1.',
            )
        own = () if config.host in ANY_ADDRESS else (config.host,)
        self._hosts = frozenset(map(_split_host, (*LOOPBACK_NAMES, *own, *config.hosts)))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in config.origins)

    @property
    def needs_token(self) -> bool:
        """Whether a request without a token is refused."""
        return bool(self._read_principals)

    def authenticate(self, authorization: str | None) -> Principal | None:
        """Return who sent an `Authorization` header, or nothing for somebody unknown.

        Takes as long for every token, right or wrong.
        """
        if not self._read_principals:
            return ANONYMOUS
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip() if scheme.lower() == SCHEME else "")
        found = None
        for digest, principal in self._read_principals.items():
            if hmac.compare_digest(digest, given):
                found = principal
        return found

    def admits_host(self, host: str | None) -> bool:
        """Tell whether a request may be sent to this `Host`."""
        name, port = _split_host(host or "")
        return bool(name) and not self._hosts.isdisjoint({(name, port), (name, "")})

    def admits_origin(self, origin: str | None) -> bool:
        """Tell whether a page of this `CallKey` may ask; programs send none."""
        if origin is None or origin.lower() in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.hostname in LOOPBACK_NAMES


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _read_principals(
    config: GatewayConfig, env: Mapping[str, str] | None
) -> Iterator[tuple[bytes, Principal]]:
    names: dict[bytes, str] = {}
    for name, token in config.tokens.items():
        digest = _digest(token.resolve(env, name=name).token.strip())
        if digest in names:
            raise InvalidConfig(
                f"gateway.tokens.{name}",
                f"has the same token as {names[digest]!r}",
                remedy="Give each its own, so that it is clear who asks.",
            )
        names[digest] = name
        profile = config.profiles[token.profile] if token.profile else None
        yield digest, Principal(name=name, profile=profile)


def _digest(token: str) -> bytes:
    # Digests are of one length, so that a comparison does not tell that of the token.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _split_host(host: str) -> tuple[str, str]:
    """Return name and port of a `Host`; a port that is left out, or `*`, is empty."""
    host = host.strip().lower()
    if host.count(":") > 1 and not host.startswith("["):
        return host, ""
    name, bracket, rest = host.rpartition("]")
    if bracket:
        return name.lstrip("["), rest.removeprefix(":").replace("*", "")
    name, _, port = host.partition(":")
    return name, port.replace("*", "")


PRINCIPAL = "toolscout.principal"
"""Where a request's scope tells who sent it."""
LISTENING = "subscriptions/listen"
TOO_LARGE = 413
FLUSH_SECONDS = 0.1
OPEN_PATHS = ("/healthz", "/readyz")
"""Asked by probes, which come by address and have no token."""


FirstHeaders = Mapping[bytes, bytes]
"""The first header of each name, in lower case."""


_HEADERS = "toolscout.headers"
"""Where a request's scope keeps its headers by name, with the list that they were read from."""


def read_headers(scope: Scope) -> FirstHeaders:
    """Return the headers of a request; starlette's look through all of them for each name."""
    listed = scope["headers"]
    kept = scope.get(_HEADERS)
    if kept is None or kept[0] is not listed:  # a request that was changed on its way
        kept = scope[_HEADERS] = (listed, dict(reversed(list(listed))))
    return kept[1]


def read_header(headers: FirstHeaders, name: bytes) -> str | None:
    """Return the text of a header, if it was sent."""
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


class RequestGuard:
    """Refuses a request to a wrong host, from a wrong page, without a token or too large."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        max_body_bytes: int,
        is_public: Callable[[str], bool] | None = None,
    ) -> None:
        self._app, self._authenticator, self._max_bytes = app, authenticator, max_body_bytes
        self._is_public = is_public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            refusal = self._check_request(scope, read_headers(scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            send = self._wrap_send(scope, receive, send)
        await self._app(scope, receive, send)

    def _wrap_send(self, scope: Scope, receive: Receive, send: Send) -> Send:
        """Return a sender that says more where the SDK found a body to be too large."""
        is_replaced = False

        async def explain(message: Message) -> None:
            nonlocal is_replaced
            if message.get("status") == TOO_LARGE:
                is_replaced = True
                await self._refuse_size()(scope, receive, send)
            elif not is_replaced:
                await send(message)

        return explain

    def _refuse_size(self) -> JSONResponse:
        return build_problem("too_large", TOO_LARGE, limit=f"{self._max_bytes:,}")

    def _check_request(self, scope: Scope, headers: FirstHeaders) -> JSONResponse | None:
        if not self._authenticator.admits_host(read_header(headers, b"host")):
            return build_problem("wrong_host", 421)
        if not self._authenticator.admits_origin(read_header(headers, b"origin")):
            return build_problem("wrong_origin", 403)
        if _is_larger(read_header(headers, b"content-length") or "", self._max_bytes):
            return self._refuse_size()
        if _is_preflight(scope, headers):  # browsers ask without the token
            return None
        if self._is_public is not None and self._is_public(scope["path"]):
            return None  # browsers load a page without the token, which the page then asks for
        principal = self._authenticator.authenticate(read_header(headers, b"authorization"))
        if principal is None:
            challenge = {"WWW-Authenticate": 'Bearer realm="toolscout"'}
            return build_problem("unauthorized", 401, headers=challenge)
        self._admit(scope, principal)
        return None

    def _admit(self, scope: Scope, principal: Principal) -> None:
        scope[PRINCIPAL] = principal
        if self._authenticator.needs_token:
            # The SDK lets a session be used only by the one who opened it; this is how it tells.
            token = AccessToken(token="", client_id=principal.name, scopes=[])
            scope["user"] = AuthenticatedUser(token)


class RunningRequests:
    """Knows what is being worked on, so that a gateway can stop without losing an answer."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self.is_stopped = False
        self.counted = _Counted(self.idle)
        """Counts, while it is entered, something that should end before the gateway does."""
        self._open: set[asyncio.Task[Any]] = set()

    @contextlib.contextmanager
    def cancel_on_stop(self) -> Generator[None]:
        """Let what runs within be cut short when the gateway stops."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self.is_stopped:
                raise
            task.uncancel()  # it was cancelled below, and goes on to say so
        finally:
            self._open.discard(task)

    async def stop(self, seconds: float) -> None:
        """End all requests once nothing runs any more, or when the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.idle.wait()
                # Older clients get answers over a stream that stays open; let the last one out.
                await asyncio.sleep(FLUSH_SECONDS)
        self.is_stopped = True
        for task in self._open:
            task.cancel()


class _Counted:
    """Counts how often it is entered; a generator would be made anew for every request."""

    def __init__(self, idle: asyncio.Event) -> None:
        self._idle, self._running = idle, 0

    def __enter__(self) -> None:
        self._running += 1
        self._idle.clear()

    def __exit__(self, *error: object) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()


class StoppableApp:
    """Ends requests when the gateway stops; without it, one open stream would hold it up."""

    def __init__(self, app: ASGIApp, traffic: RunningRequests) -> None:
        self._app, self._traffic = app, traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or as much of it as there is time for."""
        with self._traffic.counted if _is_work(scope) else contextlib.nullcontext():
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send)
        if not self._traffic.is_stopped:
            # In the request's own task: one for it and one to wait would be made each time.
            with self._traffic.cancel_on_stop():
                await self._app(scope, receive, answer.send)
                return
        if not answer.is_begun:
            await build_problem("stopping", 503)(scope, receive, send)
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


TEXTS = {
    "wrong_host": "This name is not one of the gateway's. Use localhost, or add it to "
    "'gateway.hosts'.",
    "wrong_origin": "Pages of this origin may not ask. Add it to 'gateway.origins'.",
    "unauthorized": "A valid token is needed. Send 'Authorization: Bearer TOKEN' with one of "
    "'gateway.tokens'.",
    "limited": "This tells about all servers. Use a token without a profile.",
    "too_large": "The request is larger than {limit} bytes. Send less at once, or raise "
    "'gateway.max_body_bytes'.",
    "not_found": "There is nothing here. MCP is served at /mcp, and at /sse for older clients.",
    "no_page": "There is nothing here. The page is at /, its API at /api/openapi.json.",
    "wrong_method": "This method is not served here. Read it with GET.",
    "stopping": "The gateway is stopping. Try again shortly.",
}


def build_problem(
    code: str, status: int, *, headers: Mapping[str, str] | None = None, **facts: str
) -> JSONResponse:
    """Return an error as JSON."""
    body = {"error": {"code": code, "message": TEXTS[code].format(**facts)}}
    return JSONResponse(body, status, headers)


def _is_larger(length: str, limit: int) -> bool:
    # A body of unknown length is counted by the SDK while it is read.
    return length.isdecimal() and (len(length) > 18 or int(length) > limit)


def _is_work(scope: Scope) -> bool:
    """Tell whether a request ends by itself; streams and waiting for news do not."""
    return (
        scope["method"] == "POST" and read_header(read_headers(scope), b"mcp-method") != LISTENING
    )


def _is_preflight(scope: Scope, headers: FirstHeaders) -> bool:
    return scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
