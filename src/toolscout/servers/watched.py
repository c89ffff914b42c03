"""`WatchedResources`: the resources that clients watch, by server, across restarts.

A server is asked once for each resource. After a restart it is asked again, and every resource
then counts as changed, because nobody knows what changed meanwhile. The gateway knows who wants
to hear of a change; the pool starts the servers.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass

from mcp.shared.exceptions import MCPError

from toolscout.errors import CallTimedOut, ToolscoutError
from toolscout.servers.connection import Connection

_NONE: frozenset[str] = frozenset()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agreement:
    connection: Connection
    uris: frozenset[str]


class WatchedResources:
    """The watched resources of all servers of a pool."""

    def __init__(self) -> None:
        self.on_update: Callable[[str, str], None] = _ignore_update
        """Called with the server and the URI of a resource that changed, watched or not."""
        self._wanted: dict[str, frozenset[str]] = {}
        self._agreements: dict[str, _Agreement] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def get_wanted(self, server: str) -> frozenset[str]:
        """Return the resources of a server that clients want to watch."""
        return self._wanted.get(server, _NONE)

    def get_agreed(self, server: str) -> frozenset[str]:
        """Return the resources whose changes a server last agreed to announce."""
        agreement = self._agreements.get(server)
        return _NONE if agreement is None else agreement.uris & self.get_wanted(server)

    def set_wanted(self, server: str, uris: Set[str]) -> bool:
        """Set the resources to watch, and tell whether some of them are new."""
        has_new = not uris <= self.get_wanted(server)
        self._wanted[server] = frozenset(uris)
        return has_new

    async def apply(self, server: str, connection: Connection, seconds: float) -> frozenset[str]:
        """Ask a running server to announce changes of the wanted resources; return the agreed."""
        async with self._locks[server]:
            return await self._apply(server, connection, seconds)

    async def renew(self, server: str, connection: Connection, seconds: float) -> None:
        """Ask a restarted server for the resources that it announced before."""
        if server not in self._agreements:
            return
        try:
            await self.apply(server, connection, seconds)
        except (ToolscoutError, MCPError) as error:
            _log.warning("The resources of server %s are not watched: %s", server, error)

    async def _apply(self, server: str, connection: Connection, seconds: float) -> frozenset[str]:
        try:
            async with asyncio.timeout(seconds):
                agreed = await connection.watch(
                    self.get_wanted(server), lambda uri: self.on_update(server, uri)
                )
        except TimeoutError:
            raise CallTimedOut("resources/subscribe", seconds) from None
        before = self._agreements.get(server)
        self._agreements[server] = _Agreement(connection=connection, uris=agreed)
        if before is not None and before.connection is not connection:
            self._catch_up(server, before.uris & self.get_wanted(server), agreed)
        return agreed

    def _catch_up(self, server: str, before: frozenset[str], agreed: frozenset[str]) -> None:
        for uri in sorted(before - agreed):
            _log.warning("Server %s no longer announces changes of %r.", server, uri)
        for uri in sorted(before & agreed):
            self.on_update(server, uri)


def _ignore_update(server: str, uri: str) -> None:
    """Stand in until somebody wants to know of updates."""
