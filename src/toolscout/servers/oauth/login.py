"""Log in to servers over HTTP, and send the tokens with each request.

A person logs in once with `log_in`; `tokens` and `encrypted_logins` keep the result.
`find_login_state` says what a server's login is worth, `make_auth` decides whether requests carry
tokens, and `BearerAuth` adds and renews them.
"""

import asyncio
import secrets
import shlex
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.exceptions import OAuthRegistrationError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

from toolscout.config.servers import Grant, ServerConfig, Transport, has_own_token
from toolscout.errors import InvalidConfig, LoginFailed
from toolscout.names import to_one_line
from toolscout.options import join_keys
from toolscout.schemas import Json
from toolscout.servers.oauth.callback import PORT, LoginRefused, format_callback_url
from toolscout.servers.oauth.tokens import (
    HTTP_SECONDS,
    Answer,
    LoginStorage,
    MemoryTokenStorage,
    Redirect,
    StoredLogin,
    TokenFile,
    can_renew,
    client_from_config,
    make_provider,
    renew_tokens,
)

CLAIM_SECONDS = 2 * HTTP_SECONDS
"""How long a process may take to renew tokens before another one does."""
CLAIM_LOOK_SECONDS = 0.2
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
ASK_OPERATOR = "Report this to the operator of the server."
ACCEPT = {"Accept": "application/json, text/event-stream"}
_UNUSABLE = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError)
"""Errors for answers that cannot be read, or that name an address that cannot be used."""


class LoginNeeded(Exception):
    """A server needs a person to log in."""

    def __init__(self, server: str, principal: str = "") -> None:
        super().__init__(f"run `{format_login_command(server, principal)}`")


class LoginState(StrEnum):
    """How toolscout proves to a server who it is."""

    NONE = "none"
    TOKEN = "token"
    """The configuration holds a token or an authorization header."""
    MACHINE = "client credentials"
    LOGGED_IN = "logged in"
    EXPIRED = "expired"
    """The tokens have expired and cannot be renewed."""
    NEEDED = "needed"


def format_login_command(server: str, principal: str = "") -> str:
    """Return the command with which a person, or a principal, logs in to a server."""
    command = f"toolscout servers login {shlex.quote(server)}"
    return f"{command} --principal {shlex.quote(principal)}" if principal else command


def find_login_state(config: ServerConfig, folder: Path, now: float) -> LoginState:
    """Return the state of a server's login without asking the server."""
    if has_own_token(config):
        return LoginState.TOKEN
    if config.oauth_grant is Grant.CLIENT_CREDENTIALS:
        return LoginState.MACHINE
    stored = TokenFile(folder, config).read()
    if stored is None:
        return LoginState.NEEDED if config.oauth else LoginState.NONE
    is_usable = not stored.is_over(now) or can_renew(config, stored)
    return LoginState.LOGGED_IN if is_usable else LoginState.EXPIRED


def check_login(config: ServerConfig) -> None:
    """Raise `InvalidConfig` if a person cannot log in to this server."""
    key = join_keys("servers", config.name)
    if config.transport not in (Transport.HTTP, Transport.SSE):
        problem = f"uses the transport {config.transport}, which has no login"
        raise InvalidConfig(key, problem, remedy="Pass its credentials with 'env' or 'headers'.")
    if has_own_token(config):
        problem = "has a token of its own in the configuration"
        raise InvalidConfig(key, problem, remedy="Remove the token to log in instead.")
    if config.oauth_grant is Grant.CLIENT_CREDENTIALS:
        remedy = f"Run `toolscout servers test {shlex.quote(config.name)}` to try them."
        raise InvalidConfig(key, "uses client credentials and needs no person", remedy=remedy)


async def log_in(
    config: ServerConfig,
    storage: LoginStorage,
    *,
    callback: str,
    redirect: Redirect,
    answer: Answer,
) -> bool:
    """Have a person log in and store the tokens; return False if the server needs no login.

    `redirect` sends the person to a web page, `answer` returns what came back to `callback`.
    Earlier tokens stay until the new ones work. Raises `LoginFailed`.
    """

    async def redirect_checked(url: str) -> None:
        # The address comes from a server, and opening anything but a web page might run code.
        is_web = urlsplit(url).scheme in ("http", "https") and url.isascii() and url.isprintable()
        if not is_web:
            reason = "it leads to an address that is not a web page"
            raise LoginFailed(config.name, reason, remedy=ASK_OPERATOR)
        await redirect(url)

    given = MemoryTokenStorage(client=client_from_config(config, callback))
    provider = make_provider(config, given, callback, redirect_checked, answer)
    try:
        status = await _send_first_request(config, provider)
    except (TimeoutError, LoginRefused, OAuthFlowError, *_UNUSABLE) as error:
        reason, remedy = _explain(error)
        raise LoginFailed(config.name, reason, remedy=remedy) from None
    if given.tokens is None:
        if status >= BAD:
            reason = f"it answers with HTTP {status}"
            raise LoginFailed(config.name, reason, remedy="Check its address.")
        return False
    if status == UNAUTHORIZED:
        remedy = "Ask the operator of the server, or set other 'oauth_scopes'."
        raise LoginFailed(config.name, "it refuses the tokens from its own login", remedy=remedy)
    context = provider.context
    stored = StoredLogin(
        tokens=given.tokens,
        login=secrets.token_hex(8),
        expires_at=context.token_expiry_time,
        client=None if config.oauth_client_id else given.client,
        server=context.oauth_metadata,
        resource=context.protected_resource_metadata,
    )
    await asyncio.to_thread(storage.write, stored)
    return True


async def _send_first_request(config: ServerConfig, provider: OAuthClientProvider) -> int:
    """Trigger the login with a first request; return the status of the last response."""
    from toolscout.servers.transport import HttpClient  # which takes long to import

    method, body = ("GET", None) if config.transport is Transport.SSE else ("POST", HELLO)
    headers = {**config.headers, **ACCEPT}
    async with HttpClient(auth=provider, headers=headers, timeout=HTTP_SECONDS) as http:
        async with http.stream(method, config.url, json=body) as response:
            status, session = response.status_code, response.headers.get(SESSION_HEADER)
        if session:
            # The request was only for the login, so end the session that it opened.
            with suppress(httpx2.HTTPError):
                await http.delete(config.url, headers={SESSION_HEADER: session})
        return status


def _explain(error: Exception) -> tuple[str, str]:
    """Return why a login failed, and the remedy."""
    said = to_one_line(str(error) or type(error).__name__, SAID_CHARS)
    match error:
        case TimeoutError():
            return "nobody answered in time", "Run the command again."
        case LoginRefused():
            return f"the answer was no ({said})", "Run the command again to agree."
        case OAuthRegistrationError():
            return said, (
                "If it does not register clients itself, register toolscout there with the "
                f"redirect address {format_callback_url(PORT)} and set 'oauth_client_id'."
            )
        case OAuthFlowError():
            return said, ASK_OPERATOR
        case httpx2.HTTPError():
            return f"no answer ({said})", "Check its address and the network."
        case _:
            return f"its answer cannot be used ({said})", ASK_OPERATOR


def make_auth(config: ServerConfig, login: LoginStorage) -> httpx2.Auth | None:
    """Return the `Auth` that adds a server's tokens to requests, or None if it uses no OAuth.

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
    return BearerAuth(config, login) if needs_tokens(config, login) else None


def needs_decision(config: ServerConfig) -> bool:
    """Return whether a person logs in to a server, and nobody has said whom the login serves."""
    is_by_person = config.oauth_grant is Grant.AUTHORIZATION_CODE and not has_own_token(config)
    return config.oauth and is_by_person and not config.login


def needs_tokens(config: ServerConfig, login: LoginStorage) -> bool:
    """Return whether requests to a server carry the tokens of somebody's login."""
    if config.oauth_grant is Grant.CLIENT_CREDENTIALS or has_own_token(config):
        return False
    return config.oauth or login.read() is not None


class BearerAuth(httpx2.Auth):
    """Sends the tokens of a login with each request, and renews them when they expire.

    It reads the login for each request, so that a login, a logout or a renewal by another process
    takes effect at once. It raises `LoginNeeded` where only a person can help.
    """

    def __init__(
        self, config: ServerConfig, storage: LoginStorage, *, now: Callable[[], float] = time.time
    ) -> None:
        self._config = config
        self._storage = storage
        self._now = now
        self._renewing: asyncio.Task[StoredLogin] | None = None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request, and repeat it with new tokens if the server refuses the first ones."""
        stored = self._read_login()
        if stored.is_over(self._now()):
            stored = await self._get_renewed(stored)
        for is_last in (False, True):
            request.headers["Authorization"] = f"Bearer {stored.tokens.access_token}"
            response = yield request
            if response.status_code != UNAUTHORIZED:
                return
            if not is_last:
                stored = await self._get_renewed(stored)
        raise self._make_error()

    def _read_login(self) -> StoredLogin:
        stored = self._storage.read()
        if stored is None:
            raise self._make_error()
        return stored

    def _make_error(self) -> LoginNeeded:
        return LoginNeeded(self._config.name, self._storage.principal)

    async def _get_renewed(self, spent: StoredLogin) -> StoredLogin:
        """Return tokens other than the spent ones; the first caller renews them for all."""
        stored = self._read_login()
        if stored.tokens.access_token != spent.tokens.access_token:
            return stored
        if self._renewing is None:
            # In a task, because a cancelled call must not lose tokens that the server has replaced.
            self._renewing = asyncio.create_task(self._renew(stored))
            self._renewing.add_done_callback(self._finish_renewal)
        return await asyncio.shield(self._renewing)

    def _finish_renewal(self, task: asyncio.Task[StoredLogin]) -> None:
        self._renewing = None
        if not task.cancelled():
            task.exception()  # avoids asyncio's warning if nobody waits any more

    async def _renew(self, spent: StoredLogin) -> StoredLogin:
        """Renew the tokens, one process at a time: many servers accept a refresh token once."""
        while True:
            is_ours = await asyncio.to_thread(self._storage.claim, CLAIM_SECONDS)
            stored = await asyncio.to_thread(self._storage.load)
            if stored is None or stored.tokens.access_token != spent.tokens.access_token or is_ours:
                break
            await asyncio.sleep(CLAIM_LOOK_SECONDS)
        if not is_ours:
            return await self._exchange(spent, stored)
        try:
            return await self._exchange(spent, stored)
        finally:
            await asyncio.to_thread(self._storage.claim, 0.0)

    async def _exchange(self, spent: StoredLogin, stored: StoredLogin | None) -> StoredLogin:
        if stored is not None and stored.tokens.access_token != spent.tokens.access_token:
            return stored  # another process renewed them first
        if stored is None or not can_renew(self._config, spent):
            raise self._make_error()
        tokens, expires_at = await renew_tokens(self._config, spent)
        if tokens is not None:
            stored = spent.model_copy(update={"tokens": tokens, "expires_at": expires_at})
            await asyncio.to_thread(self._storage.write, stored)
            return stored
        stored = await asyncio.to_thread(self._storage.load)
        if stored is None or stored.tokens.access_token == spent.tokens.access_token:
            raise self._make_error()
        return stored  # another process renewed them meanwhile
