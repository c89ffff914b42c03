"""One server as the configuration describes it, as a checked value.

How it is started or reached, which of its tools are taken and how they are shown. Secrets stay
references until `resolve`, and show in no `repr` and no error. Files are read by `config`.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Self
from urllib.parse import urlsplit

from toolscout.config.references import expand, expand_path, is_literal
from toolscout.config.secrets import SecretMask, mask_url
from toolscout.errors import InvalidConfig
from toolscout.options import (
    Check,
    as_flag,
    as_mapping,
    as_names,
    as_some_names,
    as_table,
    as_text,
    as_texts,
    check_fields,
    choice,
    key_path,
    number,
    under,
    whole,
)
from toolscout.tools import Effect

EVERYTHING = ("*",)
MAX_NAME = 100

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Transport(StrEnum):
    """How a server is reached."""

    STDIO = "stdio"
    HTTP = "http"
    """Streamable HTTP."""
    SSE = "sse"
    OPENAPI = "openapi"
    """No MCP server: an HTTP interface that an OpenAPI document describes."""


class Grant(StrEnum):
    """By what right an authorization server gives tokens."""

    AUTHORIZATION_CODE = "authorization_code"
    """A person logged in."""
    CLIENT_CREDENTIALS = "client_credentials"
    """The program itself is known there."""


def _no_texts() -> Mapping[str, str]:
    return {}


def _no_effects() -> Mapping[str, Effect]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServerConfig:
    """One server and how it is started, reached and shown.

    Patterns are those of `fnmatch`, over the names that tools have at their server.
    """

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=_no_texts)
    cwd: str = ""
    url: str = ""
    """For `openapi`, the address that all calls go to, whatever the document says."""
    headers: Mapping[str, str] = field(default_factory=_no_texts)
    token: str = ""
    """Sent as a bearer token."""
    oauth: bool = False
    oauth_scopes: tuple[str, ...] = ()
    """What to ask for; without them, what the server names."""
    oauth_grant: Grant = Grant.AUTHORIZATION_CODE
    oauth_client_id: str = ""
    """Needed where nobody can register by a request, and for client credentials."""
    oauth_client_secret: str = ""
    oauth_issuer: str = ""
    """The only authorization server that gets the client's id and secret."""
    spec: str = ""
    """Path or URL of an OpenAPI document."""

    allow: tuple[str, ...] = EVERYTHING
    deny: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=_no_texts)
    pins: tuple[str, ...] = ()
    effects: Mapping[str, Effect] = field(default_factory=_no_effects)
    hints: Mapping[str, str] = field(default_factory=_no_texts)
    hint: str = ""
    """For all tools of the server."""

    start_seconds: float = 30.0
    call_seconds: float = 60.0
    concurrency: int = 8
    """Calls that run at once."""
    lazy: bool = True
    """Whether the server starts with the first call that needs it."""
    idle_stop: float = 600.0
    """Seconds without a call until it is stopped; 0 keeps it running."""
    disabled: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _server_name(self.name))
        with under("servers", self.name):
            check_fields(self, SERVER_CHECKS)
            _check_transport(self)

    def __repr__(self) -> str:
        shown = {"name": self.name, "transport": str(self.transport)}
        shown |= {"command": self.command} if self.command and is_literal(self.command) else {}
        shown |= {"url": mask_url(self.url)} if self.url else {}
        held = [name for name in (*_PLACES, *_SECRET_TABLES) if getattr(self, name)]
        listed = ", ".join(f"{key}={value!r}" for key, value in shown.items())
        return f"ServerConfig({listed}, holding={held})"

    def resolve(self, env: Mapping[str, str] | None = None) -> Self:
        """Return the server with plain values in place of references, to be started at once.

        Variables are those of this process unless others are given.
        """
        env = os.environ if env is None else env
        prefix = key_path("servers", self.name)
        plain: dict[str, Any] = {}
        for name in ("command", "url", "token", "oauth_client_id", "oauth_client_secret"):
            plain[name] = expand(getattr(self, name), env, key=f"{prefix}.{name}")
        for name in ("cwd", "spec"):
            plain[name] = expand_path(getattr(self, name), env, key=f"{prefix}.{name}")
        plain["args"] = tuple(expand(arg, env, key=f"{prefix}.args") for arg in self.args)
        for name in _SECRET_TABLES:
            plain[name] = {
                key: expand(text, env, key=f"{prefix}.{key_path(name, key)}")
                for key, text in getattr(self, name).items()
            }
        return replace(self, **plain)

    def list_secrets(self) -> tuple[str, ...]:
        """Return the values of secret options; of a resolved server, the plain secrets."""
        tables = (value for name in _SECRET_TABLES for value in getattr(self, name).values())
        return tuple(filter(None, (self.token, self.oauth_client_secret, *tables)))

    def build_mask(self, env: Mapping[str, str] | None = None) -> SecretMask:
        """Return a mask for texts that may quote what this server was given.

        If a reference cannot be resolved, the server never received its value, and only plain
        values are masked.
        """
        try:
            plain = self.resolve(env)
        except InvalidConfig:
            plain = self
        return SecretMask(plain.list_secrets(), [plain.url])

    def starts_like(self, other: "ServerConfig") -> bool:
        """Tell whether the two start or reach the same, as far as can be told.

        What is plain in one and a reference in the other counts as the same.
        """
        plain = ("transport", "command", "args", "cwd", "url", "spec")
        if any(getattr(self, name) != getattr(other, name) for name in plain):
            return False
        return (
            _may_equal(self.env, other.env)
            and _may_equal(self.headers, other.headers)
            and _may_equal({"token": self.token}, {"token": other.token})
        )


_PLACES = ("args", "cwd", "token", "oauth_client_secret", "spec")
_SECRET_TABLES = ("env", "headers")


def is_matched(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether one of some patterns matches a name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _may_equal(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    if first.keys() != second.keys():
        return False
    pairs = ((text, second[key]) for key, text in first.items())
    return all(a == b or not (is_literal(a) and is_literal(b)) for a, b in pairs)


def _server_name(value: object) -> str:
    name = as_text("servers", value)
    if not name.strip() or len(name) > MAX_NAME or _CONTROL.search(name):
        raise InvalidConfig(
            "servers",
            "holds a name that no server can have",
            remedy=f"Use 1 to {MAX_NAME} characters on one line.",
        )
    return name


def _as_env(key: str, value: object) -> Mapping[str, str]:
    variables = as_mapping(key, value)
    if any("=" in name for name in variables):
        raise InvalidConfig(key, "holds a name with '='", remedy="Write NAME = 'value'.")
    return variables


def _as_headers(key: str, value: object) -> Mapping[str, str]:
    headers = as_mapping(key, value)
    for name, text in headers.items():
        if not _HEADER_NAME.fullmatch(name) or _CONTROL.search(text):
            problem = "is no header" if _CONTROL.search(text) else "has a name that no header has"
            raise InvalidConfig(
                f"{key}.{key_path(name)}", problem, remedy="Use one line of plain text."
            )
    return headers


def _as_url(key: str, value: object) -> str:
    url = as_text(key, value)
    if url and is_literal(url) and not _is_web_address(url):
        raise InvalidConfig(key, "is no web address", remedy="Begin it with https:// or http://.")
    return url


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _as_renames(key: str, value: object) -> Mapping[str, str]:
    renames = as_mapping(key, value)
    if not all(new.strip() for new in renames.values()):
        raise InvalidConfig(key, "holds an empty name", remedy="Leave it out.")
    if len(set(renames.values())) < len(renames):
        raise InvalidConfig(key, "gives two tools one name", remedy="Use a name for each.")
    return renames


def _as_effects(key: str, value: object) -> Mapping[str, Effect]:
    check = choice(Effect)
    return {name: check(f"{key}.{key_path(name)}", e) for name, e in as_table(key, value).items()}


SERVER_CHECKS: Mapping[str, Check] = {
    "transport": choice(Transport),
    **dict.fromkeys(("command", "cwd", "token", "spec", "hint"), as_text),
    **dict.fromkeys(("oauth_client_id", "oauth_client_secret"), as_text),
    "oauth_grant": choice(Grant),
    **dict.fromkeys(("url", "oauth_issuer"), _as_url),
    **dict.fromkeys(("args", "oauth_scopes"), as_texts),
    "allow": as_some_names,
    **dict.fromkeys(("deny", "pins"), as_names),
    "env": _as_env,
    "headers": _as_headers,
    "renames": _as_renames,
    "effects": _as_effects,
    "hints": as_mapping,
    **dict.fromkeys(("oauth", "lazy", "disabled"), as_flag),
    "start_seconds": number(0.1, 3_600),
    "call_seconds": number(0.001, 86_400),
    "concurrency": whole(1, 1_000),
    "idle_stop": number(0, 604_800),
}

_NEEDED = {
    Transport.STDIO: ("command",),
    Transport.HTTP: ("url",),
    Transport.SSE: ("url",),
    Transport.OPENAPI: ("spec", "url"),
}
_OF_OAUTH = ("oauth", "oauth_scopes", "oauth_client_id", "oauth_client_secret", "oauth_issuer")
_OVER_HTTP = ("url", "headers", "token", *_OF_OAUTH)
_OF_A_PROCESS = ("command", "args", "env", "cwd")
_FOREIGN = {
    Transport.STDIO: (*_OVER_HTTP, "spec"),
    Transport.HTTP: (*_OF_A_PROCESS, "spec"),
    Transport.SSE: (*_OF_A_PROCESS, "spec"),
    Transport.OPENAPI: _OF_A_PROCESS,
}


def _check_transport(server: ServerConfig) -> None:
    for name in _NEEDED[server.transport]:
        if not getattr(server, name).strip():
            raise InvalidConfig(
                name, f"is missing, and transport {server.transport} needs it", remedy="Add it."
            )
    for name in _FOREIGN[server.transport]:
        if getattr(server, name):
            problem = f"does not go with transport {server.transport}"
            raise InvalidConfig(name, problem, remedy="Leave it out, or change the transport.")
    _check_grant(server)


def _check_grant(server: ServerConfig) -> None:
    if server.oauth_grant is not Grant.CLIENT_CREDENTIALS:
        return
    for name in ("url", "oauth_client_id", "oauth_client_secret", "oauth_issuer"):
        if not getattr(server, name).strip():
            problem = f"is missing, and grant {server.oauth_grant} needs it"
            raise InvalidConfig(name, problem, remedy="Add it.")
