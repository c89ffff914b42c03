"""`Trial`: one server started to see whether it works, and stopped again.

Tells what it offers and how long that took, or what went wrong and what mends it. What it offers
is kept where a gateway looks for it, so that the next search knows its tools.
"""

import asyncio
import shlex
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp.shared.exceptions import MCPError

from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import ServerUnavailable, ToolscoutError, UsageError
from toolscout.servers.connection import NEEDS_LOGIN, Connection, Dial, unavailable
from toolscout.servers.intake import config_key
from toolscout.servers.manifest import MANIFEST_KIND, Manifest
from toolscout.servers.oauth.login import has_own_token, login_command
from toolscout.servers.offers import offers_of
from toolscout.sessions.session import Store

LINES_SHOWN = 3
MISSING = "not found"


def _no_counts() -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How one server did."""

    server: str
    seconds: float
    counts: Mapping[str, int] = field(default_factory=_no_counts)
    """What gets through to clients, by kind."""
    protocol: str = ""
    notes: tuple[str, ...] = ()
    """What of it cannot be used, or what it wrote last before it failed."""
    problem: str = ""
    remedy: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether the server works."""
        return not self.problem


async def tried(config: ServerConfig, dial: Dial, store: Store | None = None) -> Trial:
    """Start a server, ask what it offers and stop it; with a store, keep what it offers."""
    began, lines = time.monotonic(), deque[str](maxlen=LINES_SHOWN)
    try:
        manifest = await _manifest(config, dial, lines)
    except (ToolscoutError, MCPError) as error:
        problem, remedy = _explained(config, error)
        seconds = time.monotonic() - began
        return Trial(
            server=config.name,
            seconds=seconds,
            problem=problem,
            remedy=remedy,
            notes=tuple(lines),
        )
    seconds, offers = time.monotonic() - began, offers_of(config, manifest)
    if store is not None:
        store.write(MANIFEST_KIND, config.name, manifest.to_bytes(config_key(config)))
    return Trial(
        server=config.name,
        seconds=seconds,
        counts=Counter(tool.kind for tool in offers.tools),
        protocol=manifest.protocol,
        notes=offers.problems,
    )


async def _manifest(config: ServerConfig, dial: Dial, lines: deque[str]) -> Manifest:
    connection = dial(config.resolved(), on_change=lambda: None, on_line=lines.append)
    try:
        await connection.open()
        return await _listed(config, connection)
    finally:
        await connection.close()


async def _listed(config: ServerConfig, connection: Connection) -> Manifest:
    try:
        async with asyncio.timeout(config.start_seconds):
            return await connection.manifest()
    except TimeoutError:
        raise unavailable(config, f"no lists within {config.start_seconds:g} s") from None


def _explained(config: ServerConfig, error: Exception) -> tuple[str, str]:
    """Return what went wrong and what mends it."""
    if isinstance(error, UsageError):
        return str(error), ""
    if isinstance(error, MCPError):
        return f"it refused to tell its tools: {error.error.message}", "Ask whoever runs it."
    if not isinstance(error, ServerUnavailable):
        return str(error), ""
    reason = error.reason or error.state
    if error.state == NEEDS_LOGIN and not has_own_token(config):
        return "it wants a login", f"Run `{login_command(config.name)}`."
    if error.state == NEEDS_LOGIN:
        return reason, "Put the right token into its configuration."
    if config.transport is not Transport.STDIO:
        return reason, "Check its address, and whether it is running."
    if MISSING in reason:
        return reason, f"Install {shlex.quote(config.command)}, or name another command."
    return reason, "Run its command by hand to see more."
