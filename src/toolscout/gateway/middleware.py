"""ASGI middleware for every HTTP request: authentication, limits, and an orderly stop.

`Authenticator` turns a bearer token into a `Principal`. Without configured tokens, everybody who
can reach the loopback address is the anonymous principal, which sees everything. It also checks
Host and Origin, so that foreign web pages cannot use the gateway. `RequestGuard` refuses requests
that it does not admit. `StoppableApp` ends open requests when the gateway stops. Errors are JSON
and say what to do next, but never which part of a secret was wrong.
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
PRINCIPAL = "toolscout.principal"
"""Key of the principal in a request's scope."""
LISTENING = "subscriptions/listen"
TOO_LARGE = 413
FLUSH_SECONDS = 0.1
OPEN_PATHS = ("/healthz", "/readyz")
"""Paths for probes, which send an IP address as the host and no token."""
TEXTS = {
    "wrong_host": "The gateway does not serve this host name. Use localhost, or add the name to "
    "'gateway.hosts'.",
    "wrong_origin": "Pages from this origin may not use the gateway. Add the origin to "
    "'gateway.origins'.",
    "unauthorized": "A valid token is needed. Send 'Authorization: Bearer TOKEN' with one of "
    "'gateway.tokens'.",
    "limited": "This page covers all servers. Use a token without a profile.",
    "too_large": "The request is larger than {limit} bytes. Send less at once, or raise "
    "'gateway.max_body_bytes'.",
    "not_found": "There is nothing at this path. MCP is served at /mcp, and at /sse for older "
    "clients.",
    "no_page": "There is nothing at this path. The page is at /, its API at /api/openapi.json.",
    "wrong_method": "This path does not accept this method. Use GET.",
    "stopping": "The gateway is stopping. Try again shortly.",
}

FirstHeaders = Mapping[bytes, bytes]
"""The first header of each name, in lower case."""

_HEADERS = "toolscout.headers"
"""Key of the headers by name in a request's scope, with the list that they were read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who uses the gateway."""

    name: str
    profile: Profile | None = None
    """Limits the tools that it sees; without a profile it sees all."""


ANONYMOUS = Principal(name="anonymous")


class Authenticator:
    """Decides who may use the gateway.

    Raises `InvalidConfig` if other machines could use it without a token (R79).
    """

    def __init__(self, config: GatewayConfig, env: Mapping[str, str] | None = None) -> None:
        self._principals = dict(_read_principals(config, env))
        if not self._principals and not is_loopback(config.host):
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
        return bool(self._principals)

    def authenticate(self, authorization: str | None) -> Principal | None:
        """Return the principal for an `Authorization` header, or None if its token is unknown.

        It takes the same time for every token, right or wrong.
        """
        if not self._principals:
            return ANONYMOUS
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip() if scheme.lower() == SCHEME else "")
        found = None
        for digest, principal in self._principals.items():
            if hmac.compare_digest(digest, given):
                found = principal
        return found

    def admits_host(self, host: str | None) -> bool:
        """Tell whether the gateway serves this `Host`."""
        name, port = _split_host(host or "")
        return bool(name) and not self._hosts.isdisjoint({(name, port), (name, "")})

    def admits_origin(self, origin: str | None) -> bool:
        """Tell whether a page from this `Origin` may use the gateway; programs send none."""
        if origin is None or origin.lower() in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.hostname in LOOPBACK_NAMES


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
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
                remedy="Give each its own, so that the gateway can tell them apart.",
            )
        names[digest] = name
        profile = config.profiles[token.profile] if token.profile else None
        yield digest, Principal(name=name, profile=profile)


def _digest(token: str) -> bytes:
    # Digests have one length, so that comparing them does not reveal the length of a token.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _split_host(host: str) -> tuple[str, str]:
    """Return the name and port of a `Host`; a missing port and `*` give an empty one."""
    host = host.strip().lower()
    if host.count(":") > 1 and not host.startswith("["):
        return host, ""
    name, bracket, rest = host.rpartition("]")
    if bracket:
        return name.lstrip("["), rest.removeprefix(":").replace("*", "")
    name, _, port = host.partition(":")
    return name, port.replace("*", "")


def read_headers(scope: Scope) -> FirstHeaders:
    """Return the headers of a request by name; starlette searches all of them for each name."""
    rows = scope["headers"]
    cached = scope.get(_HEADERS)
    if cached is None or cached[0] is not rows:  # other middleware may have replaced the headers
        cached = (rows, dict(reversed(list(rows))))
        scope[_HEADERS] = cached
    return cached[1]


def read_header(headers: FirstHeaders, name: bytes) -> str | None:
    """Return the value of a header, or None if it was not sent."""
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


class RequestGuard:
    """Refuses requests with a wrong host, a foreign origin, no valid token or too large a body."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        max_body_bytes: int,
        is_public: Callable[[str], bool] | None = None,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._max_bytes = max_body_bytes
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
        """Return a `send` that replaces the SDK's answer to a body that is too large."""
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
        # The SDK counts a body of unknown length while it reads it.
        length = read_header(headers, b"content-length") or ""
        if length.isdecimal() and (len(length) > 18 or int(length) > self._max_bytes):
            return self._refuse_size()
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            return None  # browsers send preflight requests without the token
        if self._is_public is not None and self._is_public(scope["path"]):
            return None  # browsers load a page without the token, and the page then asks for it
        principal = self._authenticator.authenticate(read_header(headers, b"authorization"))
        if principal is None:
            challenge = {"WWW-Authenticate": 'Bearer realm="toolscout"'}
            return build_problem("unauthorized", 401, headers=challenge)
        self._admit(scope, principal)
        return None

    def _admit(self, scope: Scope, principal: Principal) -> None:
        scope[PRINCIPAL] = principal
        if self._authenticator.needs_token:
            # The SDK lets only this user go on with a session that it has opened.
            token = AccessToken(token="", client_id=principal.name, scopes=[])
            scope["user"] = AuthenticatedUser(token)


class RunningRequests:
    """Keeps track of running requests, so that a gateway can stop without losing an answer."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self.is_stopped = False
        self.counted = _Counted(self.idle)
        """A context for work that should be finished before the gateway stops."""
        self._open: set[asyncio.Task[Any]] = set()

    @contextlib.contextmanager
    def cancel_on_stop(self) -> Generator[None]:
        """Return a context whose body is cancelled when the gateway stops."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self.is_stopped:
                raise
            task.uncancel()  # cancelled by `stop`; the task goes on to answer the client
        finally:
            self._open.discard(task)

    async def stop(self, seconds: float) -> None:
        """Cancel all open requests once no work is running, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.idle.wait()
                # Older clients get answers over a stream that stays open; let the last be sent.
                await asyncio.sleep(FLUSH_SECONDS)
        self.is_stopped = True
        for task in self._open:
            task.cancel()


class _Counted:
    """Counts how often it is entered; cheaper than a generator for every request."""

    def __init__(self, idle: asyncio.Event) -> None:
        self._idle = idle
        self._running = 0

    def __enter__(self) -> None:
        self._running += 1
        self._idle.clear()

    def __exit__(self, *error: object) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()


class StoppableApp:
    """Ends requests when the gateway stops; otherwise an open stream would keep it running."""

    def __init__(self, app: ASGIApp, running: RunningRequests) -> None:
        self._app = app
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, at least in part."""
        # A POST request ends by itself, unless it opens a stream of notifications.
        is_work = (
            scope["method"] == "POST"
            and read_header(read_headers(scope), b"mcp-method") != LISTENING
        )
        with self._running.counted if is_work else contextlib.nullcontext():
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send)
        if not self._running.is_stopped:
            # Runs in the request's own task, which is cheaper than two more tasks per request.
            with self._running.cancel_on_stop():
                await self._app(scope, receive, answer.send)
                return
        if not answer.is_begun:
            await build_problem("stopping", 503)(scope, receive, send)
        elif not answer.is_complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Answer:
    """Records how much of an answer has been sent."""

    def __init__(self, send: Send) -> None:
        self.is_begun = False
        self.is_complete = False
        self._send = send

    async def send(self, message: Message) -> None:
        self.is_begun = True
        is_body = message["type"] == "http.response.body"
        self.is_complete = is_body and not message.get("more_body", False)
        await self._send(message)


def build_problem(
    code: str, status: int, *, headers: Mapping[str, str] | None = None, **facts: str
) -> JSONResponse:
    """Return a JSON response with the text for an error code."""
    body = {"error": {"code": code, "message": TEXTS[code].format(**facts)}}
    return JSONResponse(body, status, headers)
