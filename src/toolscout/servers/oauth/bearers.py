"""`Bearer`: sends the tokens of a login with each request, and renews them.

`auth_for` decides whether a server is called with tokens at all. Where only a person could help,
`LoginNeeded` says so: a gateway has none before it.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

from toolscout.config.servers import Grant, ServerConfig
from toolscout.servers.oauth.exchanges import Wallet, can_renew, fresh_tokens
from toolscout.servers.oauth.login import UNAUTHORIZED, LoginNeeded, has_own_token
from toolscout.servers.oauth.tokens import Kept, TokenFile


def auth_for(config: ServerConfig, folder: Path) -> httpx2.Auth | None:
    """Return what adds a server's tokens to requests; nothing where no OAuth is in use.

    Without `oauth` in the configuration, tokens are sent once a person has logged in.
    """
    if config.oauth_grant is Grant.CLIENT_CREDENTIALS:
        return ClientCredentialsOAuthProvider(
            server_url=config.url,
            storage=Wallet(),
            client_id=config.oauth_client_id,
            client_secret=config.oauth_client_secret,
            scope=" ".join(config.oauth_scopes) or None,
            issuer=config.oauth_issuer,
        )
    file = TokenFile(folder, config)
    wants_tokens = config.oauth or file.read() is not None
    return Bearer(config, file) if wants_tokens and not has_own_token(config) else None


class Bearer(httpx2.Auth):
    """Sends the tokens of a file with each request, and renews them once they are over.

    The file is looked at for each request: a login, a logout or another process that renewed
    the tokens counts at once.
    """

    def __init__(
        self, config: ServerConfig, file: TokenFile, *, now: Callable[[], float] = time.time
    ) -> None:
        self._config, self._file, self._now = config, file, now
        self._renewing: asyncio.Task[Kept] | None = None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request, and once more where new tokens may help."""
        kept = self._kept()
        if kept.is_over(self._now()):
            kept = await self._renewed(kept)
        response = yield _signed(request, kept)
        if response.status_code != UNAUTHORIZED:
            return
        response = yield _signed(request, await self._renewed(kept))
        if response.status_code == UNAUTHORIZED:
            raise LoginNeeded(self._config.name)

    def _kept(self) -> Kept:
        kept = self._file.read()
        if kept is None:
            raise LoginNeeded(self._config.name)
        return kept

    async def _renewed(self, spent: Kept) -> Kept:
        """Return tokens other than those that were no good; whoever asks first renews for all."""
        kept = self._kept()
        if kept.tokens.access_token != spent.tokens.access_token:
            return kept
        if self._renewing is None:
            # A task: a call that is given up must not lose tokens that the server has replaced.
            self._renewing = asyncio.create_task(self._renew(kept))
            self._renewing.add_done_callback(self._was_renewed)
        return await asyncio.shield(self._renewing)

    def _was_renewed(self, task: asyncio.Task[Kept]) -> None:
        self._renewing = None
        if not task.cancelled():
            task.exception()  # looked at, even if nobody waits for it any more

    async def _renew(self, spent: Kept) -> Kept:
        if not can_renew(self._config, spent):
            raise LoginNeeded(self._config.name)
        tokens, expires_at = await fresh_tokens(self._config, spent)
        if tokens is not None:
            kept = replace(spent, tokens=tokens, expires_at=expires_at)
            self._file.write(kept)
            return kept
        kept = self._kept()
        if kept.tokens.access_token == spent.tokens.access_token:
            raise LoginNeeded(self._config.name)
        return kept  # another process was faster


def _signed(request: httpx2.Request, kept: Kept) -> httpx2.Request:
    request.headers["Authorization"] = f"Bearer {kept.tokens.access_token}"
    return request
