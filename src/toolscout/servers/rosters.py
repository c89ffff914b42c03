"""The roster: all configured servers, and what is known of them without starting any."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from toolscout.config.file import Config
from toolscout.config.references import expand
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig
from toolscout.servers.intake import config_key
from toolscout.servers.manifest import MANIFEST_KIND, manifest_from_bytes
from toolscout.servers.oauth.login import LoginState, login_state
from toolscout.servers.offers import TOOL, offers_of
from toolscout.sessions.session import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One server of the roster."""

    server: ServerConfig
    file: Path
    """Where it is configured."""
    tools: int | None
    """How many get through to clients; nothing while they are unknown."""
    login: LoginState

    @property
    def state(self) -> str:
        """Whether its tools are known."""
        if self.server.disabled:
            return "disabled"
        return "unknown" if self.tools is None else "known"


def roster(
    config: Config, store: Store | None, tokens: Path, *, env: Mapping[str, str], now: float
) -> tuple[Entry, ...]:
    """Return all servers in the order of the configuration.

    `store` is that of the gateway, `tokens` its folder of tokens.
    """
    return tuple(
        Entry(
            server=server,
            file=config.origins.get(server.name, config.source),
            tools=_known_tools(server, store),
            login=_login(server, tokens, env, now),
        )
        for server in config.servers
    )


def _known_tools(server: ServerConfig, store: Store | None) -> int | None:
    data = store.read(MANIFEST_KIND, server.name) if store is not None else None
    manifest = manifest_from_bytes(data, config_key(server)) if data is not None else None
    if manifest is None:
        return None
    return sum(tool.kind == TOOL for tool in offers_of(server, manifest).tools)


def _login(server: ServerConfig, tokens: Path, env: Mapping[str, str], now: float) -> LoginState:
    if server.transport is Transport.STDIO:
        return LoginState.NONE
    try:
        url = expand(server.url, env)
    except InvalidConfig:  # nobody can have logged in at an address that is not known
        url = server.url
    return login_state(replace(server, url=url), tokens, now)
