"""An authorization server and MCP servers that want its tokens, of the SDK's own parts.

They run on loopback in a thread of their own, each at a port of its own. The test holds the
`Authority` and decides what it says.
"""

import asyncio
import secrets
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    ProviderTokenVerifier,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

DEADLINE_SECONDS = 120.0
SCOPE = "use"
MORE = "admin"
MACHINE = ("machine", "machine-secret")


@dataclass
class Authority(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Registers everyone, asks nobody, and remembers what it gave out."""

    url: str = ""
    person: str = "somebody"
    """Who sits before the browser."""
    denies: bool = False
    """Whether the person before it says no."""
    token_status: int = 0
    """What the token endpoint answers in place of tokens, if not 0."""
    clients: dict[str, OAuthClientInformationFull] = field(
        default_factory=dict[str, OAuthClientInformationFull]
    )
    codes: dict[str, AuthorizationCode] = field(default_factory=dict[str, AuthorizationCode])
    access: dict[str, AccessToken] = field(default_factory=dict[str, AccessToken])
    refresh: dict[str, RefreshToken] = field(default_factory=dict[str, RefreshToken])
    asked: list[AuthorizationParams] = field(default_factory=list[AuthorizationParams])
    renewals: int = 0
    token_requests: int = 0
    called: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released once for each call of the tool that tells who is logged in."""
    may_answer: threading.Event = field(default_factory=threading.Event)
    """Unset, tokens are renewed but not told."""

    def __post_init__(self) -> None:
        self.may_answer.set()

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        self.asked.append(params)
        if self.denies:
            raise AuthorizeError("access_denied", "The person said no")
        code = secrets.token_urlsafe(24)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=self.person,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        code = self.codes.pop(authorization_code.code)
        return self.give(client.client_id, code.scopes, code.resource, code.subject)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        # Each may be used once, as the specification wants it.
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        resource, subject = refresh_token.resource, refresh_token.subject
        tokens = self.give(client.client_id, scopes, resource, subject)
        self.renewals += 1
        await asyncio.to_thread(self.may_answer.wait, DEADLINE_SECONDS)
        return tokens

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    def give(
        self, client: str, scopes: list[str], resource: str | None, subject: str | None = None
    ) -> OAuthToken:
        """Return new tokens."""
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.access[access] = AccessToken(
            token=access, client_id=client, scopes=scopes, resource=resource, subject=subject
        )
        self.refresh[refresh] = RefreshToken(
            token=refresh, client_id=client, scopes=scopes, resource=resource, subject=subject
        )
        return OAuthToken(
            access_token=access,
            refresh_token=refresh,
            expires_in=3600,
            scope=" ".join(scopes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is running: the authority, and the addresses of its MCP servers."""

    authority: Authority
    urls: tuple[str, ...]

    @property
    def url(self) -> str:
        """The address of the first server."""
        return self.urls[0]


@contextmanager
def oauth_world(
    servers: int = 1, *, registers: bool = True, transport: str = "http", tells: bool = False
) -> Generator[World]:
    """Run an authorization server and MCP servers until the end of the block.

    With `tells`, the servers have a tool that tells whose login a call uses.
    """
    begun: Future[tuple[World, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def work() -> None:
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(servers + 1)]
        bases = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
        authority = Authority(url=bases[0])
        apps = [_authority_app(authority, registers)]
        apps += [_mcp_app(authority, base, transport, tells) for base in bases[1:]]
        running = [
            _Quiet(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1))
            for app in apps
        ]
        tasks = [
            asyncio.create_task(server.serve([each]))
            for server, each in zip(running, sockets, strict=True)
        ]
        path = "/sse" if transport == "sse" else "/mcp"
        stop = asyncio.Event()
        world = World(authority=authority, urls=tuple(base + path for base in bases[1:]))
        begun.set_result((world, asyncio.get_running_loop(), stop))
        await stop.wait()
        for server in running:
            server.should_exit = True
        await asyncio.gather(*tasks)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    world, loop, stop = begun.result(DEADLINE_SECONDS)
    try:
        yield world
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


class _Quiet(uvicorn.Server):
    """Leaves signals to the test."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _authority_app(authority: Authority, registers: bool) -> ASGIApp:
    routes = create_auth_routes(
        authority,
        AnyHttpUrl(authority.url),
        client_registration_options=ClientRegistrationOptions(
            enabled=registers, valid_scopes=[SCOPE, MORE], default_scopes=[SCOPE]
        ),
    )
    app = Starlette(routes=routes)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/token":
            request = Request(scope, receive)
            body = await request.body()
            early = _early(authority, request, body)
            if early is not None:
                await early(scope, receive, send)
                return

            async def again() -> dict[str, object]:
                return {"type": "http.request", "body": body, "more_body": False}

            await app(scope, again, send)
            return
        await app(scope, receive, send)

    return answer


def _early(authority: Authority, request: Request, body: bytes) -> Response | None:
    """Answer what the SDK's token endpoint does not: trouble, and programs known by a secret."""
    authority.token_requests += 1
    if authority.token_status:
        return JSONResponse({"error": "server_error"}, status_code=authority.token_status)
    form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
    if form.get("grant_type") != "client_credentials":
        return None
    given = b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
    if tuple(given.split(":")) != MACHINE:
        return JSONResponse({"error": "invalid_client"}, status_code=401)
    tokens = authority.give(MACHINE[0], [SCOPE], form.get("resource"))
    return JSONResponse(tokens.model_dump(exclude_none=True, exclude={"refresh_token"}))


def _mcp_app(authority: Authority, base: str, transport: str, tells: bool) -> ASGIApp:
    path = "/sse" if transport == "sse" else "/mcp"
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(authority.url),
        resource_server_url=AnyHttpUrl(base + path),
        required_scopes=[SCOPE],
        validate_token_resource=True,
    )
    server = MCPServer(
        "web", auth=settings, token_verifier=ProviderTokenVerifier(authority), log_level="CRITICAL"
    )

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def whoami(seconds: float = 0.0) -> str:
        """Tell who is logged in, after some seconds."""
        authority.called.release()
        await asyncio.sleep(seconds)
        token = get_access_token()
        return f"You are {token.subject}." if token is not None else "You are nobody."

    async def whoami_now() -> str:
        """Tell who is logged in."""
        return await whoami()

    server.add_tool(add)
    if tells:
        server.add_tool(whoami)
        server.resource("who://ami")(whoami_now)
    return server.sse_app() if transport == "sse" else server.streamable_http_app()
