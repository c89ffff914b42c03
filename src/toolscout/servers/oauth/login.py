"""Logins at servers behind HTTP: a person logs in once, and the tokens are kept in a file.

`log_in` does that, `find_login_state` tells what came of it. Sending and renewing tokens is done by
`bearers`, talking to the authorization server by `exchanges`.

`BearerAuth`: sends the tokens of a login with each request, and renews them.

`make_auth` decides whether a server is called with tokens at all. Where only a person could help,
`LoginNeeded` says so: a gateway has none before it.
"""

import asyncio
import secrets
import shlex
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.exceptions import OAuthRegistrationError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

from toolscout.config.servers import Grant, ServerConfig, Transport
from toolscout.errors import InvalidConfig, LoginFailed
from toolscout.names import to_one_line
from toolscout.options import join_keys
from toolscout.schemas import Json
from toolscout.servers.oauth.callback import PORT, LoginRefused, format_callback_url
from toolscout.servers.oauth.tokens import (
    HTTP_SECONDS,
    Answer,
    MemoryTokenStorage,
    Redirect,
    StoredLogin,
    TokenFile,
    can_renew,
    client_from_config,
    make_provider,
    renew_tokens,
)

SAID_CHARS = 300
BAD = 400
UNAUTHORIZED = 401
SESSION_HEADER = "mcp-session-id"
HELLO: Json = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "toolscout", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


class LoginNeeded(Exception):
    """A server wants a person to log in."""

    def __init__(self, server: str) -> None:
        super().__init__(f"run `{format_login_command(server)}`")


class LoginState(StrEnum):
    """How toolscout proves to a server who it is."""

    NONE = "none"
    TOKEN = "token"
    """By a token or header of the configuration."""
    MACHINE = "client credentials"
    LOGGED_IN = "logged in"
    EXPIRED = "expired"
    """The tokens have ended and cannot be renewed."""
    NEEDED = "needed"


def format_login_command(server: str) -> str:
    """Return what a person types to log in to a server."""
    return f"toolscout servers login {shlex.quote(server)}"


def find_login_state(config: ServerConfig, folder: Path, now: float) -> LoginState:
    """Return what is known of a server's login without asking it."""
    if has_own_token(config):
        return LoginState.TOKEN
    if config.oauth_grant is Grant.CLIENT_CREDENTIALS:
        return LoginState.MACHINE
    kept = TokenFile(folder, config).read()
    if kept is None:
        return LoginState.NEEDED if config.oauth else LoginState.NONE
    is_usable = not kept.is_over(now) or can_renew(config, kept)
    return LoginState.LOGGED_IN if is_usable else LoginState.EXPIRED


def has_own_token(config: ServerConfig) -> bool:
    """Tell whether the configuration itself says how to be let in."""
    return bool(config.token) or "authorization" in map(str.lower, config.headers)


def check_login(config: ServerConfig) -> None:
    """Raise `InvalidConfig` for a server at which no person can log in."""
    key = join_keys("servers", config.name)
    if config.transport not in (Transport.HTTP, Transport.SSE):
        problem = f"is reached by {config.transport}, which knows no login"
        raise InvalidConfig(key, problem, remedy="Give it what it needs with 'env' or 'headers'.")
    if has_own_token(config):
        problem = "has a token of its own in the configuration"
        raise InvalidConfig(key, problem, remedy="Remove it to log in instead.")
    if config.oauth_grant is Grant.CLIENT_CREDENTIALS:
        remedy = f"Run `toolscout servers test {shlex.quote(config.name)}` to try them."
        raise InvalidConfig(key, "uses client credentials and needs no person", remedy=remedy)


async def log_in(
    config: ServerConfig,
    folder: Path,
    *,
    callback: str,
    redirect: Redirect,
    answer: Answer,
) -> bool:
    """Have a person log in and keep the tokens; false where the server wants no login.

    `redirect` sends the person to an address, `answer` tells what came back to `callback`. What
    was kept before stays until there is something better. Raises `LoginFailed`.
    """
    wallet = MemoryTokenStorage(client=client_from_config(config, callback))
    provider = make_provider(config, wallet, callback, redirect, answer)
    status = await _request_login(config, provider)
    if wallet.tokens is None:
        _check_welcome(config, status)
        return False
    if status == UNAUTHORIZED:
        remedy = "Ask whoever runs it, or set other 'oauth_scopes'."
        raise LoginFailed(config.name, "it refuses the tokens that it led to", remedy=remedy)
    context = provider.context
    kept = StoredLogin(
        tokens=wallet.tokens,
        login=secrets.token_hex(8),
        expires_at=context.token_expiry_time,
        client=None if config.oauth_client_id else wallet.client,
        server=context.oauth_metadata,
        resource=context.protected_resource_metadata,
    )
    TokenFile(folder, config).write(kept)
    return True


def _check_welcome(config: ServerConfig, status: int) -> None:
    if status >= BAD:
        remedy = "Check its address."
        raise LoginFailed(config.name, f"it answers with HTTP {status}", remedy=remedy)


async def _request_login(config: ServerConfig, provider: OAuthClientProvider) -> int:
    """Knock at a server, which leads to the login; return the status of its last answer."""
    try:
        return await _send_first_request(config, provider)
    except (TimeoutError, LoginRefused, OAuthFlowError, httpx2.HTTPError) as error:
        reason, remedy = _explain(error)
        raise LoginFailed(config.name, reason, remedy=remedy) from None


async def _send_first_request(config: ServerConfig, provider: OAuthClientProvider) -> int:
    is_stream = config.transport is Transport.SSE
    method, body = ("GET", None) if is_stream else ("POST", HELLO)
    headers = {**config.headers, **ACCEPT}
    async with httpx2.AsyncClient(auth=provider, headers=headers, timeout=HTTP_SECONDS) as http:
        async with http.stream(method, config.url, json=body) as response:
            status, session = response.status_code, response.headers.get(SESSION_HEADER)
        if session:
            # Only the login was wanted of it.
            with suppress(httpx2.HTTPError):
                await http.delete(config.url, headers={SESSION_HEADER: session})
        return status


def _explain(error: Exception) -> tuple[str, str]:
    """Return why a login failed and what to do."""
    said = to_one_line(str(error) or type(error).__name__, SAID_CHARS)
    match error:
        case TimeoutError():
            return "nobody answered in time", "Run the command again."
        case LoginRefused():
            return f"the answer was no ({said})", "Run the command again to agree."
        case OAuthRegistrationError():
            return said, (
                "If it registers nobody, register toolscout there with the redirect address "
                f"{format_callback_url(PORT)} and set 'oauth_client_id'."
            )
        case OAuthFlowError():
            return said, "Tell whoever runs the server."
        case _:
            return f"no answer ({said})", "Check its address and the network."


def make_auth(config: ServerConfig, folder: Path) -> httpx2.Auth | None:
    """Return what adds a server's tokens to requests; nothing where no OAuth is in use.

    Without `oauth` in the configuration, tokens are sent once a person has logged in.
    """
    if config.oauth_grant is Grant.CLIENT_CREDENTIALS:
        return ClientCredentialsOAuthProvider(
            server_url=config.url,
            storage=MemoryTokenStorage(),
            client_id=config.oauth_client_id,
            client_secret=config.oauth_client_secret,
            scope=" ".join(config.oauth_scopes) or None,
            issuer=config.oauth_issuer,
        )
    file = TokenFile(folder, config)
    wants_tokens = config.oauth or file.read() is not None
    return BearerAuth(config, file) if wants_tokens and not has_own_token(config) else None


class BearerAuth(httpx2.Auth):
    """Sends the tokens of a file with each request, and renews them once they are over.

    The file is looked at for each request: a login, a logout or another process that renewed
    the tokens counts at once.
    """

    def __init__(
        self, config: ServerConfig, file: TokenFile, *, now: Callable[[], float] = time.time
    ) -> None:
        self._config, self._file, self._now = config, file, now
        self._renewing: asyncio.Task[StoredLogin] | None = None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request, and once more where new tokens may help."""
        kept = self._read_login()
        if kept.is_over(self._now()):
            kept = await self._get_renewed(kept)
        response = yield _sign(request, kept)
        if response.status_code != UNAUTHORIZED:
            return
        response = yield _sign(request, await self._get_renewed(kept))
        if response.status_code == UNAUTHORIZED:
            raise LoginNeeded(self._config.name)

    def _read_login(self) -> StoredLogin:
        kept = self._file.read()
        if kept is None:
            raise LoginNeeded(self._config.name)
        return kept

    async def _get_renewed(self, spent: StoredLogin) -> StoredLogin:
        """Return tokens other than those that were no good; whoever asks first renews for all."""
        kept = self._read_login()
        if kept.tokens.access_token != spent.tokens.access_token:
            return kept
        if self._renewing is None:
            # A task: a call that is given up must not lose tokens that the server has replaced.
            self._renewing = asyncio.create_task(self._renew(kept))
            self._renewing.add_done_callback(self._was_renewed)
        return await asyncio.shield(self._renewing)

    def _was_renewed(self, task: asyncio.Task[StoredLogin]) -> None:
        self._renewing = None
        if not task.cancelled():
            task.exception()  # looked at, even if nobody waits for it any more

    async def _renew(self, spent: StoredLogin) -> StoredLogin:
        if not can_renew(self._config, spent):
            raise LoginNeeded(self._config.name)
        tokens, expires_at = await renew_tokens(self._config, spent)
        if tokens is not None:
            kept = replace(spent, tokens=tokens, expires_at=expires_at)
            self._file.write(kept)
            return kept
        kept = self._read_login()
        if kept.tokens.access_token == spent.tokens.access_token:
            raise LoginNeeded(self._config.name)
        return kept  # another process was faster


def _sign(request: httpx2.Request, kept: StoredLogin) -> httpx2.Request:
    request.headers["Authorization"] = f"Bearer {kept.tokens.access_token}"
    return request
