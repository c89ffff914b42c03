"""ASGI middleware for every HTTP request: authentication and limits.

`Authenticator` turns a bearer token into a `Principal`, and checks Host and Origin, so that foreign
web pages cannot use the gateway. Without configured tokens, everybody who can reach the loopback
address is the anonymous principal, which sees everything. Errors are JSON and say what to do next,
but never which part of a secret was wrong.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import math
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from toolscout.config.gateway import ALL, GatewayConfig, Profile
from toolscout.errors import InvalidConfig
from toolscout.gateway.issuers import Issuers, VerifiedToken, find_profile_name

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = ("0.0.0.0", "::", "")
PRINCIPAL = "toolscout.principal"
"""Key of the principal in a request's scope."""
SIZE_PROBLEM = "toolscout.size_problem"
"""Key of the answer to a body that grows too large for a request of its kind, in its scope."""
LISTENING = "subscriptions/listen"
BURST_SHARE = 0.1
"""The part of a minute's requests that may come at once."""
REQUEST_BYTES = 64 << 10
"""The part of a body that counts as one more request; reading JSON takes time."""
REFUSED_SECONDS = 1.0
"""How long an answer waits that refuses one request too many, so that a flood costs little."""
WRONG_TOKENS_PER_SECOND = 20.0
"""Refused tokens that are answered at once; further answers wait for `REFUSED_SECONDS`."""
REFUSALS_NOTED = 30
"""Refused tokens that are reported each minute, so that a flood does not fill the log."""
DIGEST_CHARS = 16
VERIFIED = "toolscout.verified"
"""Key, in a request's scope, of why no issuer knows its token; empty if one does."""
MCP_PATH = "/mcp"
MESSAGES_PATH = "/messages/"
"""Where clients with a stream of `/sse` send their messages."""
METADATA_PATH = "/.well-known/oauth-protected-resource"
METADATA_PATHS = (METADATA_PATH, f"{METADATA_PATH}{MCP_PATH}")
UNAUTHORIZED = 401
TOKEN_CHARS = 24
"""The shortest token that is accepted where other machines can reach the gateway."""
MAKE_TOKEN = "openssl rand -hex 32"
TOO_LARGE = 413
TOO_MANY = 429
NO_PROFILE = "its claims give it no profile"
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
    "too_many_requests": "This token has made more than {limit} requests in a minute. Wait, or "
    "raise 'gateway.max_requests'.",
    "too_many_calls": "{limit} requests with this token are being answered. Wait for one of them, "
    "or raise 'gateway.max_calls'.",
    "too_many_sessions": "This token has {limit} sessions or streams open. End some, or raise "
    "'gateway.max_sessions'.",
    "hello_too_large": "An 'initialize' request may have {limit} bytes. Send fewer capabilities.",
    "too_large": "The request is larger than {limit} bytes. Send less at once, or raise "
    "'gateway.max_body_bytes'.",
    "not_found": "There is nothing at this path. MCP is served at /mcp, and at /sse for older "
    "clients.",
    "no_page": "There is nothing at this path. The page is at /, its API at /api/openapi.json.",
    "wrong_method": "This path does not accept this method. Use GET.",
    "store_down": "The gateway cannot reach its store. Try again shortly.",
    "stopping": "The gateway is stopping. Try again shortly.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who uses the gateway."""

    name: str
    profile: Profile | None = None
    """Limits the tools that it sees; without a profile it sees all."""
    profile_name: str = ""
    reads_metrics: bool = False
    """Whether it may read figures of the whole gateway although it has a profile."""


ANONYMOUS = Principal(name="anonymous")


class Authenticator:
    """Decides who may use the gateway.

    Raises `InvalidConfig` if other machines could use it without a token (R79).
    """

    def __init__(self, config: GatewayConfig, env: Mapping[str, str] | None = None) -> None:
        self._principals: dict[bytes, Principal] = {}
        self.issuers = Issuers()
        self._profiles: Mapping[str, Profile] = {}
        self._is_open = True
        self.reload(config, env)

    def reload(self, config: GatewayConfig, env: Mapping[str, str] | None = None) -> None:
        """Decide by other options from now on; raises `InvalidConfig` and changes nothing."""
        principals: dict[bytes, Principal] = {}
        for name, token in config.tokens.items():
            plain = token.resolve(env, name=name).token.strip()
            if len(plain) < TOKEN_CHARS and not is_loopback(config.host):
                raise InvalidConfig(
                    f"gateway.tokens.{name}",
                    f"is shorter than {TOKEN_CHARS} characters, and other machines can try to "
                    "guess it",
                    remedy=f"Make one with `{MAKE_TOKEN}`.",
                )
            issuer = name.partition(":")[0]
            if ":" in name and issuer in config.issuers:
                raise InvalidConfig(
                    f"gateway.tokens.{name}",
                    f"has the name of somebody who logs in at {issuer!r}",
                    remedy="Choose a name without ':'.",
                )
            digest = _digest(plain)
            if digest in principals:
                raise InvalidConfig(
                    f"gateway.tokens.{name}",
                    f"has the same token as {principals[digest].name!r}",
                    remedy="Give each its own, so that the gateway can tell them apart.",
                )
            profile = config.profiles[token.profile] if token.profile else None
            principals[digest] = Principal(
                name=name,
                profile=profile,
                profile_name=token.profile,
                reads_metrics=token.metrics,
            )
        if not principals and not config.issuers and not self._is_open:
            raise InvalidConfig(
                "gateway.tokens",
                "is empty now, which would let everybody in",
                remedy="Restart the gateway if no token should be needed.",
            )
        if not principals and not config.issuers and not is_loopback(config.host):
            raise InvalidConfig(
                "gateway.host",
                f"is {config.host!r}, which other machines can reach, and there is no token",
                remedy='Add [gateway.tokens.NAME] with token = "${VAR}", or use 127.0.0.1.',
            )
        self._principals = principals
        self._profiles = config.profiles
        self._public_url = config.public_url.rstrip("/")
        self.issuers.reload(config.issuers)
        self._is_open = not principals and not config.issuers
        own = () if config.host in ANY_ADDRESS else (config.host,)
        self._hosts = frozenset(map(_split_host, (*LOOPBACK_NAMES, *own, *config.hosts)))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in config.origins)

    def authenticate(self, authorization: str | None) -> Principal | None:
        """Return the principal for an `Authorization` header, or None if its token is unknown.

        It takes the same time for every token, right or wrong.
        """
        if self._is_open:
            return ANONYMOUS
        token = _read_bearer(authorization)
        given = _digest(token)
        found = None
        for digest, principal in self._principals.items():
            if hmac.compare_digest(digest, given):
                found = principal
        if found is None and (verified := self.issuers.find(token)) is not None:
            found = self._find_bearer(verified)
        return found

    async def verify(self, authorization: str | None) -> str:
        """Check a token that an issuer may have signed, and return what is wrong with it.

        If nothing is, `authenticate` knows it afterwards.
        """
        return await self.issuers.verify(_read_bearer(authorization))

    def _find_bearer(self, token: VerifiedToken) -> Principal | None:
        """Return whom a verified token belongs to; None if its claims give it no profile."""
        profile = find_profile_name(token.config, token.claims)
        name = f"{token.issuer}:{token.claims['sub']}"
        if profile == ALL:
            return Principal(name=name)
        if not profile:
            return None
        return Principal(name=name, profile=self._profiles[profile], profile_name=profile)

    def build_challenge(self, scope: Scope) -> dict[str, str]:
        """Return the header that tells a client without a valid token how to get one."""
        challenge = 'Bearer realm="toolscout"'
        if self.issuers.list_addresses():
            if read_header(scope, b"authorization") is not None:
                challenge += ', error="invalid_token"'
            where = f"{self.find_address(scope)}{METADATA_PATH}{MCP_PATH}"
            challenge += f', resource_metadata="{where}"'
        return {"WWW-Authenticate": challenge}

    def find_address(self, scope: Scope) -> str:
        """Return the address at which a client reaches the gateway, without a path."""
        return find_address(self._public_url, scope)

    def refresh(self, principal: Principal) -> Principal | None:
        """Return a principal as it is now, or None if it may no longer use the gateway."""
        if self._is_open:
            return ANONYMOUS if principal.name == ANONYMOUS.name else None
        bearers = filter(None, map(self._find_bearer, self.issuers.list_verified()))
        known = (*self._principals.values(), *bearers)
        return next((found for found in known if found.name == principal.name), None)

    def admits_host(self, host: str | None, address: str = "") -> bool:
        """Tell whether the gateway serves this `Host`.

        `address` is the one at which the connection came in. A probe or Prometheus names it where
        each replica has an address and no name; a page of another site cannot.
        """
        name, port = _split_host(host or "")
        is_served = not self._hosts.isdisjoint({(name, port), (name, "")})
        return bool(name) and (is_served or name == address)

    def admits_origin(self, origin: str | None, host: str | None) -> bool:
        """Tell whether a page from this `Origin` may use the gateway at this `Host`.

        Programs send no origin. Pages of other ports of this machine are not the gateway's own.
        """
        if origin is None or origin.lower() in self._origins:
            return True
        scheme, _, rest = origin.lower().partition("://")
        return scheme in ("http", "https") and bool(host) and rest == (host or "").lower()


def _read_bearer(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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


def read_header(scope: Scope, name: bytes) -> str | None:
    """Return the first header with a name in lower case, or None if it was not sent."""
    for key, value in scope["headers"]:  # a request has few; every other way takes longer
        if key == name:
            return value.decode("latin-1")
    return None


def find_address(public_url: str, scope: Scope) -> str:
    """Return the address at which a client reaches the gateway, without a path."""
    own = f"{scope.get('scheme', 'http')}://{read_header(scope, b'host')}"
    return public_url.rstrip("/") or own


def read_principal_name(request: Any) -> str:
    """Return the name of whoever made a request; empty over stdio and without tokens."""
    principal = request.scope[PRINCIPAL] if request is not None else ANONYMOUS
    return "" if principal is ANONYMOUS else principal.name


class _Bucket:
    """The requests that one principal may still make; it fills up with time."""

    def __init__(self, most: float, now: float) -> None:
        self.left = most
        self.at = now

    def take(self, rate: float, most: float, now: float) -> bool:
        self.left = min(most, self.left + (now - self.at) * rate)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def charge(self, amount: float) -> None:
        """Take more than was asked for; the next requests wait until it has filled up again."""
        self.left -= amount


class Limiter:
    """Counts what each principal has open, so that none takes what the others need.

    The anonymous principal has no limits: it is everybody who uses this machine.
    """

    def __init__(self, config: GatewayConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        """Those of principals who made a request lately, who came last at the end."""
        self._open: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.turns = _Turns()
        self.reload(config)

    def reload(self, config: GatewayConfig) -> None:
        """Count by other limits from now on."""
        self._requests = config.max_requests
        self._limits = {
            "too_many_calls": config.max_calls,
            "too_many_sessions": config.max_sessions,
            "streams": config.max_sessions,
        }

    def take_request(self, name: str) -> JSONResponse | None:
        """Count a request; return the answer if it is one too many."""
        rate = self._requests / 60
        most = max(1.0, self._requests * BURST_SHARE)
        if self._find_bucket(name, rate, most).take(rate, most, self._clock()):
            return None
        return _refuse_more("too_many_requests", self._requests, math.ceil(1 / rate))

    def _find_bucket(self, name: str, rate: float, most: float) -> _Bucket:
        """Return the bucket of a principal, and forget some that are full again."""
        now = self._clock()
        bucket = self._buckets.setdefault(name, _Bucket(most, now))
        self._buckets.move_to_end(name)
        while True:
            oldest, kept = next(iter(self._buckets.items()))
            if kept is bucket or kept.left + (now - kept.at) * rate < most:
                return bucket
            del self._buckets[oldest]

    def charge_body(self, name: str, size: int) -> None:
        """Count a part of a body: `REQUEST_BYTES` of it weigh as much as a request."""
        if name in self._buckets:  # else it was full a moment ago
            self._buckets[name].charge(size / REQUEST_BYTES)

    def find_problem(self, name: str, kind: str) -> JSONResponse | None:
        """Return the answer to a principal who has as much of a kind as it may have."""
        limit = self._limits[kind]
        if name not in self._open or self._open[name][kind] < limit:
            return None
        return _refuse_more("too_many_sessions" if kind == "streams" else kind, limit, 1)

    def add(self, name: str, kind: str) -> None:
        """Count something that a principal has opened; `remove` when it ends."""
        self._open[name][kind] += 1

    def remove(self, name: str, kind: str) -> None:
        """Count something that has ended."""
        counts = self._open[name]
        counts[kind] -= 1
        if not counts[kind]:
            del counts[kind]
        if not counts:
            del self._open[name]

    def count_principals(self) -> int:
        """Return of how many principals something is remembered."""
        return len(self._buckets.keys() | self._open.keys())

    @contextmanager
    def take_slots(self, name: str, wanted: int) -> Generator[int]:
        """Count further calls of a request while this is entered; return how many may run at once.

        Each of them weighs as much as a request.
        """
        if not name:
            yield wanted
            return
        kind = "too_many_calls"
        opened = self._open[name][kind] if name in self._open else 0
        taken = max(0, min(wanted, self._limits[kind] - opened))
        if name in self._buckets:
            self._buckets[name].charge(wanted)
        with ExitStack() as stack:
            for _ in range(taken):
                stack.enter_context(self.count(name, kind))
            yield taken

    @contextmanager
    def count(self, name: str, kind: str) -> Generator[None]:
        """Count something while this is entered."""
        self.add(name, kind)
        try:
            yield
        finally:
            self.remove(name, kind)


class _Turns:
    """Lets requests begin one after the other, one in each round of the event loop.

    The principals with waiting requests take turns, so that one who sends many waits for its own.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """The requests of each principal, in the order of their turns."""
        self._is_taken = False

    async def wait(self, name: str) -> None:
        """Return when a request of a principal may begin, at once if no other has just begun."""
        loop = asyncio.get_running_loop()
        if not self._is_taken:
            self._is_taken = True
            loop.call_soon(self._pass_on, loop)
            return
        turn = loop.create_future()
        self._waiting.setdefault(name, deque()).append(turn)
        await turn

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the turn to the next principal."""
        self._is_taken = bool(self._waiting)
        if not self._waiting:
            return
        name, turns = next(iter(self._waiting.items()))
        turn = turns.popleft()
        if not turn.done():  # else its client has left
            turn.set_result(None)
        if turns:
            self._waiting.move_to_end(name)
        else:
            del self._waiting[name]
        loop.call_soon(self._pass_on, loop)


def _refuse_more(code: str, limit: int, seconds: int) -> JSONResponse:
    retry = {"Retry-After": str(seconds)}
    return build_problem(code, TOO_MANY, headers=retry, limit=f"{limit:,}")


class RequestGuard:
    """Refuses requests with a wrong host, a foreign origin, no valid token or too large a body."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        limiter: Limiter,
        max_body_bytes: int,
        is_public: Callable[[str], bool] | None = None,
        on_refused: Callable[[str, str, str, int], None] | None = None,
    ) -> None:
        """`on_refused` gets the source, digest and reason of a refused token.

        The number is that of refused tokens before it that were not reported.
        """
        self._on_refused = on_refused
        now = time.monotonic()
        self._wrong_tokens = _Bucket(WRONG_TOKENS_PER_SECOND, now)
        self._noted = _Bucket(REFUSALS_NOTED, now)
        self._unnoted = 0
        self._app = app
        self._limiter = limiter
        self._authenticator = authenticator
        self._max_bytes = max_body_bytes
        self._is_public = is_public

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        app = self._app
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            problem = self._check_request(scope)
            if problem is not None:
                if problem.status_code != UNAUTHORIZED:
                    return problem(scope, receive, send)
                if VERIFIED not in scope:
                    return self._verify(scope, receive, send)
                return self._refuse_token(problem, scope, receive, send)
            if scope.get(PRINCIPAL, ANONYMOUS) is not ANONYMOUS:
                return self._run_limited(scope, receive, send)
            if scope["method"] == "POST" and read_header(scope, b"content-length") is None:
                send = self._explain_size(scope, receive, send)
        return app(scope, receive, send)

    async def _verify(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose token may be one that an issuer signed."""
        scope[VERIFIED] = await self._authenticator.verify(read_header(scope, b"authorization"))
        await self(scope, receive, send)

    async def _refuse_token(
        self, problem: JSONResponse, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Refuse a request without a valid token; later if there are many."""
        now = time.monotonic()
        authorization = read_header(scope, b"authorization")
        if authorization is not None:
            if self._noted.take(REFUSALS_NOTED / 60, REFUSALS_NOTED, now):
                source, _ = scope.get("client") or ("", 0)
                digest = _digest(_read_bearer(authorization)).hex()[:DIGEST_CHARS]
                reason = scope[VERIFIED] or NO_PROFILE
                if self._on_refused is not None:
                    self._on_refused(source, digest, reason, self._unnoted)
                self._unnoted = 0
            else:
                self._unnoted += 1
        if not self._wrong_tokens.take(WRONG_TOKENS_PER_SECOND, WRONG_TOKENS_PER_SECOND, now):
            await asyncio.sleep(REFUSED_SECONDS)
        await problem(scope, receive, send)

    async def _run_limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a principal who has made few enough."""
        name = scope[PRINCIPAL].name
        is_call = scope["method"] != "GET" and read_header(scope, b"mcp-method") != LISTENING
        # A call over SSE is counted until it is answered, which this request does not wait for.
        is_short = scope["path"].startswith(MESSAGES_PATH)
        kind = "too_many_calls" if is_call and not is_short else "streams"
        problem = self._limiter.take_request(name) or self._limiter.find_problem(name, kind)
        if problem is not None:
            await asyncio.sleep(REFUSED_SECONDS)
            await problem(scope, receive, send)
            return
        if is_call:
            send = self._explain_size(scope, receive, send)
            receive = self._charge_body(scope, receive)
        with self._limiter.count(name, kind):
            await self._limiter.turns.wait(name)
            await self._app(scope, receive, send)

    def _charge_body(self, scope: Scope, receive: Receive) -> Receive:
        """Charge a principal for the body of a request, at once if its length is known."""
        name = scope[PRINCIPAL].name
        length = read_header(scope, b"content-length") or ""
        if length.isdecimal():
            self._limiter.charge_body(name, int(length))
            return receive

        async def receive_part() -> Message:
            message = await receive()
            self._limiter.charge_body(name, len(message.get("body", b"")))
            return message

        return receive_part

    def _explain_size(self, scope: Scope, receive: Receive, send: Send) -> Send:
        """Return a `send` that replaces the SDK's answer to a body that grows too large."""
        is_replaced = False

        async def explain(message: Message) -> None:
            nonlocal is_replaced
            if message.get("status") == TOO_LARGE:
                is_replaced = True
                problem = scope.get(SIZE_PROBLEM) or self._refuse_size()
                await problem(scope, receive, send)
            elif not is_replaced:
                await send(message)

        return explain

    def _refuse_size(self) -> JSONResponse:
        return build_problem("too_large", TOO_LARGE, limit=f"{self._max_bytes:,}")

    def _check_request(self, scope: Scope) -> JSONResponse | None:
        host = read_header(scope, b"host")
        address, _ = scope.get("server") or ("", None)
        if not self._authenticator.admits_host(host, address):
            return build_problem("wrong_host", 421)
        if not self._authenticator.admits_origin(read_header(scope, b"origin"), host):
            return build_problem("wrong_origin", 403)
        # The SDK counts a body of unknown length while it reads it.
        length = read_header(scope, b"content-length") or ""
        if length.isdecimal() and (len(length) > 18 or int(length) > self._max_bytes):
            return self._refuse_size()
        is_preflight = read_header(scope, b"access-control-request-method") is not None
        if is_preflight and scope["method"] == "OPTIONS":
            return None  # browsers send preflight requests without the token
        if scope["path"] in METADATA_PATHS:
            return None  # a client that has to log in reads there where
        if self._is_public is not None and self._is_public(scope["path"]):
            return None  # browsers load a page without the token, and the page then asks for it
        principal = self._authenticator.authenticate(read_header(scope, b"authorization"))
        if principal is None:
            challenge = self._authenticator.build_challenge(scope)
            return build_problem("unauthorized", UNAUTHORIZED, headers=challenge)
        scope[PRINCIPAL] = principal
        if principal is not ANONYMOUS:
            # The SDK lets only this user go on with a session that it has opened.
            token = AccessToken(token="", client_id=principal.name, scopes=[])
            scope["user"] = AuthenticatedUser(token)
        return None


def build_problem(
    code: str, status: int, *, headers: Mapping[str, str] | None = None, **facts: str
) -> JSONResponse:
    """Return a JSON response with the text for an error code."""
    body = {"error": {"code": code, "message": TEXTS[code].format(**facts)}}
    return JSONResponse(body, status, headers)


async def serve_healthz(request: Request) -> Response:
    """Answer a probe."""
    return JSONResponse({"alive": True})


def build_exception_handlers(not_found: str) -> dict[Any, ExceptionHandler]:
    """Return Starlette's handlers for unknown paths, with the code to answer, and wrong methods."""

    async def refuse_path(request: Request, error: Exception) -> Response:
        return build_problem(not_found, 404)

    async def refuse_method(request: Request, error: Exception) -> Response:
        allowed = error.headers if isinstance(error, HTTPException) else None
        return build_problem("wrong_method", 405, headers=allowed or {"Allow": "GET"})

    return {404: refuse_path, 405: refuse_method}
