"""The file in which a login is stored, and the exchange that renews its tokens.

`TokenFile` holds the tokens and everything needed to renew them: when they expire, our
registration and the authorization server's metadata. `make_provider` builds the SDK's OAuth
client for a login, `renew_tokens` uses one without a person.
"""

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, Field, ValidationError, WrapValidator

from toolscout.config.documents import read_document, write_private
from toolscout.config.servers import ServerConfig
from toolscout.errors import UsageError
from toolscout.servers.oauth.callback import PORT, format_callback_url

EARLY_SECONDS = 10.0
"""How early tokens count as expired, so that none expires on its way to the server."""


def _drop_invalid(value: object, validate: Callable[[object], Any]) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


_Lenient = WrapValidator(_drop_invalid)
"""Reads an invalid value as None, so that the tokens beside it can still be used."""


class StoredLogin(BaseModel, frozen=True):
    """The result of one login, with its tokens as last renewed."""

    tokens: OAuthToken = Field(repr=False)
    login: str = ""
    """Identifies the login; renewing the tokens keeps it."""
    expires_at: Annotated[float | None, _Lenient] = None
    """Seconds since 1970; None if the server did not say."""
    client: Annotated[OAuthClientInformationFull | None, _Lenient] = Field(default=None, repr=False)
    """Our registration at the authorization server, unless the configuration holds it."""
    server: Annotated[OAuthMetadata | None, _Lenient] = None
    resource: Annotated[ProtectedResourceMetadata | None, _Lenient] = None

    def is_over(self, now: float) -> bool:
        """Return whether the tokens have expired or are about to."""
        return self.expires_at is not None and now > self.expires_at - EARLY_SECONDS


class LoginStorage(Protocol):
    """Keeps one login at one server."""

    principal: str
    """Whose login it is; empty if everybody's."""

    @property
    def login(self) -> str:
        """The id of the login that gave the tokens; empty without tokens."""
        ...

    def load(self) -> StoredLogin | None:
        """Return the login that is stored now; this may block."""
        ...

    def read(self) -> StoredLogin | None:
        """Return the login without waiting; another process may have changed it since."""
        ...

    def write(self, stored: StoredLogin) -> None:
        """Store a login in place of the one before."""
        ...

    def forget(self) -> bool:
        """Delete the login, and return whether there was one."""
        ...

    def claim(self, seconds: float) -> bool:
        """Reserve the renewal of the tokens for some seconds, or release it with 0.

        Returns False if another gateway renews them; this may block.
        """
        ...


def hash_server(config: ServerConfig) -> str:
    """Return what identifies a server among stored logins: its name and address."""
    return hashlib.sha256(f"{config.name}\n{config.url}".encode()).hexdigest()[:16]


class TokenFile:
    """The file that holds one server's login, readable only by its owner.

    A server with another address has another file.
    """

    principal = ""

    def __init__(self, folder: Path, config: ServerConfig) -> None:
        self.path = folder / f"{hash_server(config)}.json"

    @property
    def login(self) -> str:
        """The id of the login that gave the tokens; empty without tokens."""
        stored = self.read()
        return stored.login if stored is not None else ""

    def read(self) -> StoredLogin | None:
        """Return the stored login, or None if the file is missing or unreadable."""
        try:
            return StoredLogin.model_validate(read_document(self.path).tables)
        except (UsageError, ValidationError):
            return None

    def load(self) -> StoredLogin | None:
        """Do the same as `read`."""
        return self.read()

    def write(self, stored: StoredLogin) -> None:
        """Replace the file atomically."""
        write_private(self.path, stored.model_dump_json(exclude_none=True))

    def forget(self) -> bool:
        """Delete the file, and return whether there was one."""
        with suppress(FileNotFoundError):
            self.path.unlink()
            return True
        return False

    def claim(self, seconds: float) -> bool:
        """Return True: gateways that share a file see that another one has renewed the tokens."""
        return True


HTTP_SECONDS = 30.0
BUSY = 429
BROKEN = 500
"""From here on, a status says nothing about the tokens."""

Redirect = Callable[[str], Awaitable[None]]
Answer = Callable[[], Awaitable[AuthorizationCodeResult]]


@dataclass(slots=True)
class MemoryTokenStorage:
    """Holds what the SDK stores during one exchange."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, if there are any yet."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the tokens."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return our registration at the authorization server."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store our registration at the authorization server."""
        self.client = client_info


def make_provider(
    config: ServerConfig,
    storage: MemoryTokenStorage,
    callback: str,
    redirect: Redirect | None = None,
    answer: Answer | None = None,
) -> OAuthClientProvider:
    """Return the SDK's OAuth client; without `redirect` and `answer` it can only renew tokens."""
    kind = _Metadata if config.oauth_scopes else OAuthClientMetadata
    return OAuthClientProvider(
        server_url=config.url,
        client_metadata=kind(
            client_name="toolscout",
            redirect_uris=[AnyUrl(callback)],
            scope=" ".join(config.oauth_scopes) or None,
        ),
        storage=storage,
        redirect_handler=redirect,
        callback_handler=answer,
    )


def client_from_config(config: ServerConfig, callback: str) -> OAuthClientInformationFull | None:
    """Return the client registration from the configuration, if it holds one."""
    if not config.oauth_client_id:
        return None
    return OAuthClientInformationFull(
        client_id=config.oauth_client_id,
        client_secret=config.oauth_client_secret or None,
        redirect_uris=[AnyUrl(callback)],
        token_endpoint_auth_method="client_secret_post" if config.oauth_client_secret else "none",
        issuer=config.oauth_issuer or None,
    )


def can_renew(config: ServerConfig, stored: StoredLogin) -> bool:
    """Return whether the tokens can be renewed without a person."""
    return bool(stored.tokens.refresh_token and (stored.client or config.oauth_client_id))


async def renew_tokens(
    config: ServerConfig, spent: StoredLogin
) -> tuple[OAuthToken | None, float | None]:
    """Return renewed tokens and when they expire; the tokens are None if refused."""
    from toolscout.servers.transport import HttpClient  # which takes long to import

    callback = format_callback_url(PORT)
    client = client_from_config(config, callback) or spent.client
    storage = MemoryTokenStorage(tokens=spent.tokens, client=client)
    provider = make_provider(config, storage, callback)
    context = provider.context
    # The SDK does not store these: it would treat expired tokens as valid, and look for the
    # authorization server at the address of the MCP server.
    context.token_expiry_time = 1.0
    context.oauth_metadata = spent.server
    context.protected_resource_metadata = spent.resource
    request = httpx2.Request("POST", config.url)
    flow = provider.async_auth_flow(request)
    try:
        sent = await anext(flow)
        async with HttpClient(timeout=HTTP_SECONDS) as http:
            while sent is not request:
                response = await http.send(sent)
                if response.status_code == BUSY or response.status_code >= BROKEN:
                    said = f"its authorization server answers with HTTP {response.status_code}"
                    raise httpx2.ConnectError(said, request=sent)
                sent = await flow.asend(response)
    finally:
        await flow.aclose()
    return context.current_tokens, context.token_expiry_time


class _Metadata(OAuthClientMetadata):
    """Requests the configured scopes, where the SDK would request all that the server names."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "scope" or not self.scope:
            super().__setattr__(name, value)
