"""The gateway's own part of the configuration, as checked values.

How it listens, who may come in, what they see and how much it takes on. Which servers stand
behind it is told by `servers`; the file is read by `config`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self, TypeVar

from toolscout.config.references import expand
from toolscout.config.servers import EVERYTHING, is_matched
from toolscout.errors import InvalidConfig
from toolscout.names import find_near_names
from toolscout.options import (
    Check,
    as_flag,
    as_names,
    as_some_names,
    as_table,
    as_text,
    check_fields,
    choice,
    from_table,
    key_path,
    number,
    under,
    whole,
)
from toolscout.tools import Effect

_Value = TypeVar("_Value")


class GatewayMode(StrEnum):
    """Which tools the gateway lists."""

    SEARCH = "search"
    """The meta-tools."""
    DIRECT = "direct"
    """All tools of all servers."""
    DYNAMIC = "dynamic"
    """The meta-tools, and those that were found."""
    AUTO = "auto"
    """All while they are few, else the meta-tools."""


class LogFormat(StrEnum):
    """How a line of the log looks."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least important line that is still logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named part of the catalogue."""

    servers: tuple[str, ...] = EVERYTHING
    tools: tuple[str, ...] = EVERYTHING
    """Patterns over exposed names."""
    effects: tuple[Effect, ...] = tuple(Effect)

    def __post_init__(self) -> None:
        check_fields(self, PROFILE_CHECKS)

    def admits(self, server: str, name: str, effect: Effect) -> bool:
        """Tell whether a tool is in the profile."""
        visible = is_matched(server, self.servers) and is_matched(name, self.tools)
        return visible and effect in self.effects


def _as_effect_list(key: str, value: object) -> tuple[Effect, ...]:
    return tuple(choice(Effect)(key, word) for word in as_some_names(key, value))


PROFILE_CHECKS: Mapping[str, Check] = {
    "servers": as_some_names,
    "tools": as_some_names,
    "effects": _as_effect_list,
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TokenConfig:
    """A bearer token that the gateway accepts."""

    token: str = ""
    profile: str = ""
    """What its bearer sees; without one, everything."""

    def __post_init__(self) -> None:
        check_fields(self, TOKEN_CHECKS)

    def __repr__(self) -> str:
        return f"TokenConfig(profile={self.profile!r})"

    def resolve(self, env: Mapping[str, str] | None = None) -> Self:
        """Return it with the plain token; an empty one is refused."""
        env = os.environ if env is None else env
        return replace(self, token=expand(self.token, env, key="gateway.tokens"))

    def list_secrets(self) -> tuple[str, ...]:
        """Return the values of secret options."""
        return (self.token,)


def _as_token(key: str, value: object) -> str:
    token = as_text(key, value)
    if not token.strip():
        # An empty token would let everybody in.
        raise InvalidConfig(key, "is empty", remedy="Write ${VAR} or ${file:PATH}.")
    return token


TOKEN_CHECKS: Mapping[str, Check] = {"token": _as_token, "profile": as_text}


def _no_tokens() -> Mapping[str, TokenConfig]:
    return {}


def _no_profiles() -> Mapping[str, Profile]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """How the gateway itself behaves."""

    mode: GatewayMode = GatewayMode.SEARCH
    split_calls: bool = False
    """Whether `tool_read`, `tool_write` and `tool_destroy` stand in place of `tool_call`."""
    host: str = "127.0.0.1"
    port: int = 8765
    """0 takes any that is free."""
    hosts: tuple[str, ...] = ()
    """Further `Host` headers that requests may carry."""
    origins: tuple[str, ...] = ()
    """Further `CallKey` headers that requests may carry."""
    tokens: Mapping[str, TokenConfig] = field(default_factory=_no_tokens)
    profiles: Mapping[str, Profile] = field(default_factory=_no_profiles)
    cache: str = ""
    """The SQLite file of what is kept between runs; by default in the user's cache folder."""
    store: str = ""
    """A PostgreSQL database in place of that file, where several gateways share their state:
    `postgresql://…`, best as a reference."""
    log: LogFormat = LogFormat.TEXT
    log_level: LogLevel = LogLevel.INFO
    queue: int = 64
    """Calls that may wait for one server."""
    max_result_tokens: int = 25_000
    """The longest result that is handed on whole where `sessions.result_tokens` does not hold."""
    answer_seconds: float = 600.0
    """How long a client may take to answer what a server asks; not counted in `call_seconds`."""
    max_body_bytes: int = 8 << 20
    """The largest request over HTTP."""
    session_days: float = 30.0
    """How long what a client has loaded is kept after it last asked, where it has a session of
    its own over HTTP."""
    stop_seconds: float = 10.0
    """How long running calls may go on when the gateway stops."""

    def __post_init__(self) -> None:
        check_fields(self, GATEWAY_CHECKS)
        for name, token in self.tokens.items():
            if token.profile and token.profile not in self.profiles:
                near = find_near_names(token.profile, self.profiles, limit=1)
                remedy = f"Use {near[0]!r}." if near else "Add it under [gateway.profiles]."
                key = key_path("tokens", name, "profile")
                raise InvalidConfig(key, "names no profile", remedy=remedy)

    def database(self, env: Mapping[str, str] | None = None) -> str:
        """Return the plain address of the database; empty where there is none."""
        env = os.environ if env is None else env
        address = expand(self.store, env, key="gateway.store")
        if address and not address.startswith(("postgresql://", "postgres://")):
            remedy = "Write postgresql://user@host/name, or leave it out for a file."
            raise InvalidConfig("gateway.store", "is no PostgreSQL address", remedy=remedy)
        return address


def _as_values(kind: type[_Value], checks: Mapping[str, Check]) -> Check:
    def check(key: str, value: object) -> Mapping[str, _Value]:
        found: dict[str, _Value] = {}
        for name, table in as_table(key, value).items():
            with under(key, name):
                is_value = isinstance(table, kind)
                found[name] = table if is_value else from_table(kind, table, checks)
        return found

    return check


GATEWAY_CHECKS: Mapping[str, Check] = {
    "mode": choice(GatewayMode),
    "split_calls": as_flag,
    "host": as_text,
    "port": whole(0, 65_535),
    "hosts": as_names,
    "origins": as_names,
    "profiles": _as_values(Profile, PROFILE_CHECKS),
    "tokens": _as_values(TokenConfig, TOKEN_CHECKS),
    "cache": as_text,
    "store": as_text,
    "log": choice(LogFormat),
    "log_level": choice(LogLevel),
    "queue": whole(0, 100_000),
    "max_result_tokens": whole(100, 10_000_000),
    "answer_seconds": number(0.1, 86_400),
    "max_body_bytes": whole(1_024, 1 << 30),
    "session_days": number(0.01, 36_500),
    "stop_seconds": number(0, 3_600),
}
