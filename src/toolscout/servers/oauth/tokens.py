"""`TokenFile`: what a login at a server gave, in a file that its owner alone may read.

Beside the tokens it holds all that renewing them takes: when they end, what the authorization
server registered us as, and where it is. Asking for tokens and renewing them is `logins`' work.

One exchange with an authorization server, done by the SDK's client.

`make_provider` makes the client that a login goes through, `renew_tokens` renews tokens without a
person. Nothing is kept here: the results of an exchange are in its `MemoryTokenStorage` and in the
SDK's context.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from toolscout.config.documents import is_file, read_document, write_private
from toolscout.config.servers import ServerConfig
from toolscout.errors import UsageError
from toolscout.schemas import Json, is_object
from toolscout.servers.oauth.callback import PORT, format_callback_url

EARLY_SECONDS = 10.0
"""How long before their end tokens count as over, so that none ends on its way."""

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoredLogin:
    """What one login gave, as it was last renewed."""

    tokens: OAuthToken
    login: str = ""
    """Another one for each login; renewing keeps it."""
    expires_at: float | None = None
    """Seconds since 1970; nothing where the server did not say."""
    client: OAuthClientInformationFull | None = None
    """What the authorization server registered us as, unless the configuration says it."""
    server: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    def is_over(self, now: float) -> bool:
        """Tell whether the tokens have ended, or are about to."""
        return self.expires_at is not None and now > self.expires_at - EARLY_SECONDS


class TokenFile:
    """Keeps the tokens of one server; another address is another server."""

    def __init__(self, folder: Path, config: ServerConfig) -> None:
        digest = hashlib.sha256(f"{config.name}\n{config.url}".encode()).hexdigest()[:16]
        self.path = folder / f"{digest}.json"

    @property
    def login(self) -> str:
        """Which login the tokens come from; empty without tokens."""
        kept = self.read()
        return kept.login if kept is not None else ""

    def read(self) -> StoredLogin | None:
        """Return what is kept; a file that cannot be read is as good as none."""
        row = self._read_row()
        tokens = _validate_model(OAuthToken, row.get("tokens"))
        if tokens is None:
            return None
        ends: object = row.get("expires_at")
        return StoredLogin(
            tokens=tokens,
            login=str(row.get("login", "")),
            expires_at=float(ends) if isinstance(ends, int | float) else None,
            client=_validate_model(OAuthClientInformationFull, row.get("client")),
            server=_validate_model(OAuthMetadata, row.get("server")),
            resource=_validate_model(ProtectedResourceMetadata, row.get("resource")),
        )

    def write(self, kept: StoredLogin) -> None:
        """Keep this in place of what was kept, all or nothing."""
        row = {
            "login": kept.login,
            "tokens": _to_json(kept.tokens),
            "expires_at": kept.expires_at,
            "client": _to_json(kept.client),
            "server": _to_json(kept.server),
            "resource": _to_json(kept.resource),
        }
        write_private(self.path, json.dumps(row))

    def forget(self) -> bool:
        """Delete the file, and tell whether there was one."""
        with suppress(FileNotFoundError):
            self.path.unlink()
            return True
        return False

    def _read_row(self) -> Json:
        if not is_file(self.path):
            return {}
        try:
            return read_document(self.path).tables
        except UsageError:
            return {}


def _to_json(model: BaseModel | None) -> Json | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _validate_model(kind: type[_Model], value: object) -> _Model | None:
    if not is_object(value):
        return None
    try:
        return kind.model_validate(value)
    except ValidationError:
        return None


HTTP_SECONDS = 30.0
BUSY = 429
BROKEN = 500
"""From here on, a status tells nothing about the tokens."""

Redirect = Callable[[str], Awaitable[None]]
Answer = Callable[[], Awaitable[AuthorizationCodeResult]]


@dataclass(slots=True)
class MemoryTokenStorage:
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


def make_provider(
    config: ServerConfig,
    wallet: MemoryTokenStorage,
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


def client_from_config(config: ServerConfig, callback: str) -> OAuthClientInformationFull | None:
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


def can_renew(config: ServerConfig, kept: StoredLogin) -> bool:
    """Tell whether tokens can be renewed without a person."""
    return bool(kept.tokens.refresh_token and (kept.client or config.oauth_client_id))


async def renew_tokens(
    config: ServerConfig, spent: StoredLogin
) -> tuple[OAuthToken | None, float | None]:
    """Return renewed tokens and when they end; nothing where the server gives none."""
    callback = format_callback_url(PORT)
    client = client_from_config(config, callback) or spent.client
    provider = make_provider(
        config, MemoryTokenStorage(tokens=spent.tokens, client=client), callback
    )
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
                sent = await flow.asend(await _send_checked(http, sent))
    finally:
        await flow.aclose()
    return context.current_tokens, context.token_expiry_time


class _Metadata(OAuthClientMetadata):
    """Asks for the configured scopes; the SDK would ask for all that the server names."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "scope" or not self.scope:
            super().__setattr__(name, value)


async def _send_checked(http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    response = await http.send(request)
    if response.status_code == BUSY or response.status_code >= BROKEN:
        said = f"its authorization server answers with HTTP {response.status_code}"
        raise httpx2.ConnectError(said, request=request)
    return response
