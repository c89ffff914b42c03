"""OAuth for servers behind HTTP: the SDK's client, with tokens in a file of their own.

Tokens are used and renewed here. Where a person has to log in, `LoginNeeded` says so: a gateway
has nobody before it who could. `auth_for` is for the gateway; with a way to send a person to an
address and to hear the answer, the same makes the tokens in the first place.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from toolscout.errors import UsageError
from toolscout.schemas import Json, is_object
from toolscout.upstream.documents import is_file, read_document, write_private
from toolscout.upstream.servers import ServerConfig

CALLBACK_URL = "http://127.0.0.1:8975/callback"

Redirect = Callable[[str], Awaitable[None]]
Answer = Callable[[], Awaitable[AuthorizationCodeResult]]
_Kept = TypeVar("_Kept", OAuthToken, OAuthClientInformationFull)


class LoginNeeded(Exception):
    """A server wants a person to log in."""

    def __init__(self) -> None:
        super().__init__("a person has to log in")


class TokenFile:
    """Keeps the tokens of one server, and what it registered us as, in a file of mode 600."""

    def __init__(self, folder: Path, config: ServerConfig) -> None:
        digest = hashlib.sha256(f"{config.name}\n{config.url}".encode()).hexdigest()[:16]
        self.path = folder / f"{digest}.json"

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, or nothing."""
        return _as(OAuthToken, self._read().get("tokens"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        self._write("tokens", tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return what the server registered us as, or nothing."""
        return _as(OAuthClientInformationFull, self._read().get("client"))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep what the server registered us as."""
        self._write("client", client_info)

    def _read(self) -> Json:
        if not is_file(self.path):
            return {}
        try:
            return read_document(self.path).tables
        except UsageError:  # as good as none: it is written anew at the next login
            return {}

    def _write(self, key: str, value: OAuthToken | OAuthClientInformationFull) -> None:
        content = {**self._read(), key: value.model_dump(mode="json", exclude_none=True)}
        write_private(self.path, json.dumps(content))


def auth_for(
    config: ServerConfig,
    folder: Path,
    *,
    redirect: Redirect | None = None,
    answer: Answer | None = None,
) -> httpx2.Auth:
    """Return what adds a server's tokens to requests; without `redirect`, nobody can log in."""
    metadata = OAuthClientMetadata(
        client_name="toolscout",
        redirect_uris=[AnyUrl(CALLBACK_URL)],
        scope=" ".join(config.oauth_scopes) or None,
    )
    return OAuthClientProvider(
        server_url=config.url,
        client_metadata=metadata,
        storage=TokenFile(folder, config),
        redirect_handler=redirect or _nobody_here,
        callback_handler=answer or _no_answer,
    )


async def _nobody_here(url: str) -> None:
    raise LoginNeeded


async def _no_answer() -> AuthorizationCodeResult:
    raise LoginNeeded


def _as(kind: type[_Kept], value: object) -> _Kept | None:
    if not is_object(value):
        return None
    try:
        return kind.model_validate(value)
    except ValidationError:
        return None
