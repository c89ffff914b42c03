"""`Watches`: which resources of which servers are watched, whatever becomes of the servers.

A server is asked once for each resource. After a restart it is asked again, and because nobody
knows what changed meanwhile, every resource then counts as changed. Who wants to know is the
gateway's business; starting servers is the pool's.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import partial

from mcp.shared.exceptions import MCPError

from toolscout.errors import CallTimedOut, ToolscoutError
from toolscout.servers.connection import Connection

_log = logging.getLogger(__name__)
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agreement:
    connection: Connection
    uris: frozenset[str]


class Watches:
    """The watched resources of a pool, by server."""

    def __init__(self) -> None:
        self.on_update: Callable[[str, str], None] = _nobody
        """Is told server and address of a resource that changed, watched or not."""
        self._wanted: dict[str, frozenset[str]] = {}
        self._agreements: dict[str, _Agreement] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def of(self, server: str) -> frozenset[str]:
        """Return the resources of a server that are to be watched."""
        return self._wanted.get(server, _NONE)

    def agreed(self, server: str) -> frozenset[str]:
        """Return the resources that a server last agreed to tell of."""
        agreement = self._agreements.get(server)
        return _NONE if agreement is None else agreement.uris & self.of(server)

    def want(self, server: str, uris: Set[str]) -> bool:
        """Make these the resources to be watched, and tell whether some are new."""
        is_more = not uris <= self.of(server)
        self._wanted[server] = frozenset(uris)
        return is_more

    async def apply(self, server: str, connection: Connection, seconds: float) -> frozenset[str]:
        """Ask a running server for what is wanted of it; return what it agreed to."""
        async with self._locks[server]:
            return await self._apply(server, connection, seconds)

    async def renew(self, server: str, connection: Connection, seconds: float) -> None:
        """Ask a server that has started again for what it was asked before."""
        if server not in self._agreements:
            return
        try:
            await self.apply(server, connection, seconds)
        except (ToolscoutError, MCPError) as error:
            _log.warning("The resources of server %s are not watched: %s", server, error)

    async def _apply(self, server: str, connection: Connection, seconds: float) -> frozenset[str]:
        try:
            async with asyncio.timeout(seconds):
                agreed = await connection.watch(self.of(server), partial(self._updated, server))
        except TimeoutError:
            raise CallTimedOut("resources/subscribe", seconds) from None
        before = self._agreements.get(server)
        self._agreements[server] = _Agreement(connection=connection, uris=agreed)
        if before is not None and before.connection is not connection:
            self._catch_up(server, before.uris & self.of(server), agreed)
        return agreed

    def _catch_up(self, server: str, before: frozenset[str], agreed: frozenset[str]) -> None:
        for uri in sorted(before - agreed):
            _log.warning("Server %s no longer tells changes of %r.", server, uri)
        for uri in sorted(before & agreed):
            self.on_update(server, uri)

    def _updated(self, server: str, uri: str) -> None:
        self.on_update(server, uri)


def _nobody(server: str, uri: str) -> None:
    """Hear of a change before anybody wants to."""
