"""One exchange with an authorization server, done by the SDK's client.

`provider_for` makes the client that a login goes through, `fresh_tokens` renews tokens without a
person. Nothing is kept here: what came of an exchange is in its `Wallet` and in the SDK's context.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from toolscout.config.servers import ServerConfig
from toolscout.servers.oauth.callback import PORT, callback_url
from toolscout.servers.oauth.tokens import Kept

HTTP_SECONDS = 30.0
BUSY = 429
BROKEN = 500
"""From here on, a status tells nothing about the tokens."""

Redirect = Callable[[str], Awaitable[None]]
Answer = Callable[[], Awaitable[AuthorizationCodeResult]]


@dataclass(slots=True)
class Wallet:
    """What the SDK keeps during one exchange."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, if there are any yet."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Take tokens."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return what the authorization server knows us as."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Take what the authorization server registered us as."""
        self.client = client_info


def provider_for(
    config: ServerConfig,
    wallet: Wallet,
    callback: str,
    redirect: Redirect | None = None,
    answer: Answer | None = None,
) -> OAuthClientProvider:
    """Return the SDK's client; without `redirect` and `answer` it can only renew."""
    kind = _Metadata if config.oauth_scopes else OAuthClientMetadata
    return OAuthClientProvider(
        server_url=config.url,
        client_metadata=kind(
            client_name="toolscout",
            redirect_uris=[AnyUrl(callback)],
            scope=" ".join(config.oauth_scopes) or None,
        ),
        storage=wallet,
        redirect_handler=redirect,
        callback_handler=answer,
    )


def configured_client(config: ServerConfig, callback: str) -> OAuthClientInformationFull | None:
    """Return what the configuration says that we are registered as."""
    if not config.oauth_client_id:
        return None
    return OAuthClientInformationFull(
        client_id=config.oauth_client_id,
        client_secret=config.oauth_client_secret or None,
        redirect_uris=[AnyUrl(callback)],
        token_endpoint_auth_method="client_secret_post" if config.oauth_client_secret else "none",
        issuer=config.oauth_issuer or None,
    )


def can_renew(config: ServerConfig, kept: Kept) -> bool:
    """Tell whether tokens can be renewed without a person."""
    return bool(kept.tokens.refresh_token and (kept.client or config.oauth_client_id))


async def fresh_tokens(config: ServerConfig, spent: Kept) -> tuple[OAuthToken | None, float | None]:
    """Return renewed tokens and when they end; nothing where the server gives none."""
    callback = callback_url(PORT)
    client = configured_client(config, callback) or spent.client
    provider = provider_for(config, Wallet(tokens=spent.tokens, client=client), callback)
    context = provider.context
    # The SDK forgets these between runs: it would take old tokens for good ones, and would look
    # for the authorization server at the address of the MCP server.
    context.token_expiry_time = 1.0
    context.oauth_metadata, context.protected_resource_metadata = spent.server, spent.resource
    request = httpx2.Request("POST", config.url)
    flow = provider.async_auth_flow(request)
    try:
        sent = await anext(flow)
        async with httpx2.AsyncClient(timeout=HTTP_SECONDS) as http:
            while sent is not request:
                sent = await flow.asend(await _judged(http, sent))
    finally:
        await flow.aclose()
    return context.current_tokens, context.token_expiry_time


class _Metadata(OAuthClientMetadata):
    """Asks for the configured scopes; the SDK would ask for all that the server names."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "scope" or not self.scope:
            super().__setattr__(name, value)


async def _judged(http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    response = await http.send(request)
    if response.status_code == BUSY or response.status_code >= BROKEN:
        said = f"its authorization server answers with HTTP {response.status_code}"
        raise httpx2.ConnectError(said, request=request)
    return response
