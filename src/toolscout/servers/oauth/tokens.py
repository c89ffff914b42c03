"""`TokenFile`: what a login at a server gave, in a file that its owner alone may read.

Beside the tokens it holds all that renewing them takes: when they end, what the authorization
server registered us as, and where it is. Asking for tokens and renewing them is `logins`' work.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel, ValidationError

from toolscout.config.documents import is_file, read_document, write_private
from toolscout.config.servers import ServerConfig
from toolscout.errors import UsageError
from toolscout.schemas import Json, is_object

EARLY_SECONDS = 10.0
"""How long before their end tokens count as over, so that none ends on its way."""

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Kept:
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

    def read(self) -> Kept | None:
        """Return what is kept; a file that cannot be read is as good as none."""
        row = self._row()
        tokens = _as(OAuthToken, row.get("tokens"))
        if tokens is None:
            return None
        ends: object = row.get("expires_at")
        return Kept(
            tokens=tokens,
            login=str(row.get("login", "")),
            expires_at=float(ends) if isinstance(ends, int | float) else None,
            client=_as(OAuthClientInformationFull, row.get("client")),
            server=_as(OAuthMetadata, row.get("server")),
            resource=_as(ProtectedResourceMetadata, row.get("resource")),
        )

    def write(self, kept: Kept) -> None:
        """Keep this in place of what was kept, all or nothing."""
        row = {
            "login": kept.login,
            "tokens": _plain(kept.tokens),
            "expires_at": kept.expires_at,
            "client": _plain(kept.client),
            "server": _plain(kept.server),
            "resource": _plain(kept.resource),
        }
        write_private(self.path, json.dumps(row))

    def forget(self) -> bool:
        """Delete the file, and tell whether there was one."""
        with suppress(FileNotFoundError):
            self.path.unlink()
            return True
        return False

    def _row(self) -> Json:
        if not is_file(self.path):
            return {}
        try:
            return read_document(self.path).tables
        except UsageError:
            return {}


def _plain(model: BaseModel | None) -> Json | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _as(kind: type[_Model], value: object) -> _Model | None:
    if not is_object(value):
        return None
    try:
        return kind.model_validate(value)
    except ValidationError:
        return None
