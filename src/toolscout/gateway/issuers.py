"""`Issuers`: checks JSON Web Tokens that somebody else has signed.

Takes a token; gives its claims if a configured issuer signed it for this gateway and it is valid
now. The keys of an issuer are fetched when a token needs one, kept for an hour, and fetched again
for a key that is not known, at most twice a minute. `middleware` turns claims into principals.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from jwt import PyJWKClient

from toolscout.config.gateway import IssuerConfig
from toolscout.names import to_one_line

KEYS_SECONDS = 3_600
REFETCH_SECONDS = 30.0
FETCH_SECONDS = 5.0
TOKENS_KEPT = 2_000
TOKEN_CHARS = 16_384
REASON_CHARS = 200
UNKNOWN = "it is not known"
SUBJECT_CHARS = 255
"""The longest name of a person, which OpenID Connect limits in the same way."""
NEEDED = ["exp", "iss", "aud", "sub"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedToken:
    """What a valid token says, and until when."""

    issuer: str
    """The name of the issuer in the configuration."""
    config: IssuerConfig
    claims: Mapping[str, Any]
    expires: float


class Issuers:
    """The issuers of one gateway, and the tokens of theirs that were checked already."""

    def __init__(self) -> None:
        self._configs: Mapping[str, IssuerConfig] = {}
        self._clients: dict[str, PyJWKClient] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._verified: OrderedDict[bytes, VerifiedToken] = OrderedDict()

    def reload(self, configs: Mapping[str, IssuerConfig]) -> None:
        """Trust other issuers from now on; tokens of unchanged ones stay valid."""
        kept = {name: one for name, one in self._configs.items() if configs.get(name) == one}
        self._configs = configs
        for digest, token in list(self._verified.items()):
            if token.issuer not in kept:
                del self._verified[digest]
        for name in [name for name in self._clients if name not in kept]:
            del self._clients[name]

    def list_addresses(self) -> list[str]:
        """Return the addresses of the issuers, for clients that have to log in."""
        return [config.issuer for config in self._configs.values()]

    def find(self, token: str) -> VerifiedToken | None:
        """Return a token that was verified before and has not expired."""
        digest = _digest(token)
        found = self._verified.get(digest)
        if found is None or time.time() >= found.expires:
            return None
        self._verified.move_to_end(digest)
        return found

    def list_verified(self) -> list[VerifiedToken]:
        """Return the verified tokens that have not expired."""
        now = time.time()
        return [token for token in self._verified.values() if now < token.expires]

    async def verify(self, token: str) -> str:
        """Check a token, and return why it is not valid; otherwise `find` returns it afterwards."""
        if not self._configs or token.count(".") != 2 or len(token) > TOKEN_CHARS:
            return UNKNOWN
        try:
            unverified: Any = jwt.decode(token, options={"verify_signature": False})
            named = unverified.get("iss")
            names = [name for name, config in self._configs.items() if config.issuer == named]
            if not names:
                raise jwt.InvalidIssuerError("The issuer is not configured")
            verified = await self._verify(names[0], token)
        except jwt.PyJWTError as error:
            return to_one_line(str(error), REASON_CHARS) or type(error).__name__
        self._verified[_digest(token)] = verified
        while len(self._verified) > TOKENS_KEPT:
            self._verified.popitem(last=False)
        return ""

    async def _verify(self, name: str, token: str) -> VerifiedToken:
        config = self._configs[name]
        algorithm = jwt.get_unverified_header(token).get("alg")
        if algorithm not in config.algorithms:
            raise jwt.InvalidAlgorithmError("The algorithm is not one that the issuer may use")
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = PyJWKClient(
                config.jwks_url,
                lifespan=KEYS_SECONDS,
                timeout=FETCH_SECONDS,
                cooldown_duration=REFETCH_SECONDS,
            )
        async with self._locks.setdefault(name, asyncio.Lock()):
            key = await asyncio.to_thread(client.get_signing_key_from_jwt, token)
        claims: Any = jwt.decode(
            token,
            key,
            algorithms=list(config.algorithms),
            audience=config.audience,
            issuer=config.issuer,
            leeway=config.skew_seconds,
            options={"require": NEEDED},
        )
        subject: str = claims["sub"]
        if not 0 < len(subject) <= SUBJECT_CHARS or not subject.isprintable():
            raise jwt.InvalidTokenError("The subject is empty, too long or not printable")
        expires = float(claims["exp"]) + config.skew_seconds
        return VerifiedToken(issuer=name, config=config, claims=claims, expires=expires)


def find_profile_name(config: IssuerConfig, claims: Mapping[str, Any]) -> str | None:
    """Return the profile that some claims give; None if they give none."""
    found: Any = claims.get(config.profile_claim) if config.profile_claim else None
    values = found.split() if isinstance(found, str) else found
    for value, profile in config.profiles.items():
        if isinstance(values, list) and value in values:
            return profile
    return config.profile or None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
