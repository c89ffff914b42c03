"""`Authenticator`: who is asking, and from where they may ask.

A bearer token makes a `Principal`; without tokens, whoever reaches the loopback address is the
one anonymous principal, which sees everything. Host and Origin are judged here too, so that no
web page reaches the gateway under a name of its own. The wire is `guards`'.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolscout.config.gateway import GatewayConfig, Profile
from toolscout.errors import InvalidConfig

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = ("0.0.0.0", "::", "")
SCHEME = "bearer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who asks."""

    name: str
    profile: Profile | None = None
    """What it sees; without one, everything."""


ANONYMOUS = Principal(name="anonymous")


class Authenticator:
    """Who may come in. Raises `InvalidConfig` where everybody could (R79)."""

    def __init__(self, config: GatewayConfig, env: Mapping[str, str] | None = None) -> None:
        self._read_principals = dict(_read_principals(config, env))
        if not self._read_principals and not is_loopback(config.host):
            raise InvalidConfig(
                "gateway.host",
                f"is {config.host!r}, which other machines can reach, and there is no token",
                remedy='Add [gateway.tokens.NAME] with token = "${VAR}", or use 127.0.0.1.',
            )
        own = () if config.host in ANY_ADDRESS else (config.host,)
        self._hosts = frozenset(map(_split_host, (*LOOPBACK_NAMES, *own, *config.hosts)))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in config.origins)

    @property
    def needs_token(self) -> bool:
        """Whether a request without a token is refused."""
        return bool(self._read_principals)

    def authenticate(self, authorization: str | None) -> Principal | None:
        """Return who sent an `Authorization` header, or nothing for somebody unknown.

        Takes as long for every token, right or wrong.
        """
        if not self._read_principals:
            return ANONYMOUS
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip() if scheme.lower() == SCHEME else "")
        found = None
        for digest, principal in self._read_principals.items():
            if hmac.compare_digest(digest, given):
                found = principal
        return found

    def admits_host(self, host: str | None) -> bool:
        """Tell whether a request may be sent to this `Host`."""
        name, port = _split_host(host or "")
        return bool(name) and not self._hosts.isdisjoint({(name, port), (name, "")})

    def admits_origin(self, origin: str | None) -> bool:
        """Tell whether a page of this `CallKey` may ask; programs send none."""
        if origin is None or origin.lower() in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.hostname in LOOPBACK_NAMES


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _read_principals(
    config: GatewayConfig, env: Mapping[str, str] | None
) -> Iterator[tuple[bytes, Principal]]:
    names: dict[bytes, str] = {}
    for name, token in config.tokens.items():
        digest = _digest(token.resolve(env, name=name).token.strip())
        if digest in names:
            raise InvalidConfig(
                f"gateway.tokens.{name}",
                f"has the same token as {names[digest]!r}",
                remedy="Give each its own, so that it is clear who asks.",
            )
        names[digest] = name
        profile = config.profiles[token.profile] if token.profile else None
        yield digest, Principal(name=name, profile=profile)


def _digest(token: str) -> bytes:
    # Digests are of one length, so that a comparison does not tell that of the token.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _split_host(host: str) -> tuple[str, str]:
    """Return name and port of a `Host`; a port that is left out, or `*`, is empty."""
    host = host.strip().lower()
    if host.count(":") > 1 and not host.startswith("["):
        return host, ""
    name, bracket, rest = host.rpartition("]")
    if bracket:
        return name.lstrip("["), rest.removeprefix(":").replace("*", "")
    name, _, port = host.partition(":")
    return name, port.replace("*", "")
