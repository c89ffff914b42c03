"""`Subject`: what a console looks at, a live gateway or a catalogue alone."""

from dataclasses import dataclass
from pathlib import Path

from toolscout.config.gateway import GatewayConfig
from toolscout.scout import Scout
from toolscout.servers.pool import Pool
from toolscout.sessions.session import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A scout, and the servers behind it if there are any."""

    scout: Scout
    config: GatewayConfig
    pool: Pool | None = None
    store: Store | None = None
    """Where the hours are kept."""
    tokens: Path | None = None
    """The folder with logins of servers."""

    @property
    def host(self) -> str:
        """What kind it is."""
        return "console" if self.pool is None else "gateway"
