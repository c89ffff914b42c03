"""`ServerNotifications`: the changes of lists and resources that a running server announces.

A server of the handshake era tells changed lists unasked, and resources that were subscribed to
one by one. A later one tells either over a stream that was opened for it. Who wants to hear is
not known here, nor what becomes of it after a restart.

`WatchedResources`: which resources of which servers are watched, whatever becomes of the servers.

A server is asked once for each resource. After a restart it is asked again, and because nobody
knows what changed meanwhile, every resource then counts as changed. Who wants to know is the
gateway's business; starting servers is the pool's.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from mcp.client import Client as SdkClient
from mcp.client.subscriptions import ListenNotSupportedError, ResourceUpdated, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolscout.errors import CallTimedOut, ToolscoutError
from toolscout.schemas import Json
from toolscout.servers.connection import Connection, Delays

Heard = Callable[[str], None]
"""Is told the address of a resource that changed."""
Send = Callable[[str, Json], Awaitable[Json]]
"""Sends a request to the server."""

_NONE: frozenset[str] = frozenset()


class ServerNotifications:
    """The ear for one connection. One `watch` at a time."""

    def __init__(self, delays: Delays, on_change: Callable[[], None]) -> None:
        self._delays, self._on_change = delays, on_change
        self._on_update: Heard | None = None
        self._asked = self._agreed = _NONE
        self._stream: asyncio.Task[None] | None = None

    async def hear(self, message: Any) -> None:
        """Take note of a notice; the SDK shows those of a stream here as well."""
        method = getattr(message, "method", "")
        if method.endswith("/list_changed"):
            self._on_change()
        elif method == "notifications/resources/updated" and self._stream is None:
            self._updated(str(message.params.uri))

    async def follow_lists(self, client: SdkClient) -> None:
        """Hear of changed lists from servers that tell them to subscribers only."""
        offers = client.server_capabilities
        tools, resources, prompts = (
            bool(offer and offer.list_changed)
            for offer in (offers.tools, offers.resources, offers.prompts)
        )
        while tools or resources or prompts:
            try:
                async with client.listen(
                    tools_list_changed=tools,
                    resources_list_changed=resources,
                    prompts_list_changed=prompts,
                ) as changes:
                    async for _ in changes:
                        self._on_change()
            except (MCPError, ListenNotSupportedError):
                return
            except SubscriptionLost:
                self._on_change()
            await asyncio.sleep(self._delays.most_change)

    async def watch(
        self, client: SdkClient, send: Send, uris: Set[str], on_update: Heard
    ) -> frozenset[str]:
        """Hear of changes of these resources and no others; return those the server agreed to."""
        offer = client.server_capabilities.resources
        if offer is None or not offer.subscribe:
            return _NONE
        self._on_update = on_update
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await self._reopen(client, frozenset(uris))
        else:
            await self._subscribe(send, frozenset(uris))
        return self._agreed

    def close(self) -> None:
        """End the stream, if there is one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    async def _subscribe(self, send: Send, uris: frozenset[str]) -> None:
        for uri in sorted(uris - self._agreed):
            with contextlib.suppress(MCPError):
                await send("resources/subscribe", {"uri": uri})
                self._agreed |= {uri}
        for uri in sorted(self._agreed - uris):
            self._agreed -= {uri}
            with contextlib.suppress(MCPError):
                await send("resources/unsubscribe", {"uri": uri})

    async def _reopen(self, client: SdkClient, uris: frozenset[str]) -> None:
        """Have one stream for all resources, in place of the one before."""
        if uris == self._asked:
            return
        if not uris:
            self.close()
            self._asked = self._agreed = _NONE
            return
        opened: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        stream = asyncio.create_task(self._follow(client, uris, opened))
        try:
            agreed = await opened
        except (MCPError, SubscriptionLost):
            return
        except asyncio.CancelledError:
            stream.cancel()
            raise
        # The old stream ends only here, so that no change falls between the two.
        self.close()
        self._stream, self._asked, self._agreed = stream, uris, agreed

    async def _follow(
        self, client: SdkClient, uris: frozenset[str], opened: asyncio.Future[frozenset[str]]
    ) -> None:
        pause = self._delays.first_retry
        while True:
            try:
                async with client.listen(resource_subscriptions=sorted(uris)) as events:
                    pause = self._delays.first_retry
                    self._join(frozenset(events.honored.resource_subscriptions or ()), opened)
                    async for event in events:
                        if isinstance(event, ResourceUpdated):
                            self._updated(event.uri)
            except (MCPError, SubscriptionLost) as error:
                if not opened.done():
                    opened.set_exception(error)
                    return
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._delays.most_change)

    def _join(self, agreed: frozenset[str], opened: asyncio.Future[frozenset[str]]) -> None:
        if not opened.done():
            opened.set_result(agreed)
            return
        # Nobody was told what changed while there was no stream.
        for uri in sorted(agreed):
            self._updated(uri)

    def _updated(self, uri: str) -> None:
        if self._on_update is not None:
            self._on_update(uri)


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agreement:
    connection: Connection
    uris: frozenset[str]


class WatchedResources:
    """The watched resources of a pool, by server."""

    def __init__(self) -> None:
        self.on_update: Callable[[str, str], None] = _nobody
        """Is told server and address of a resource that changed, watched or not."""
        self._wanted: dict[str, frozenset[str]] = {}
        self._agreements: dict[str, _Agreement] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def get_wanted(self, server: str) -> frozenset[str]:
        """Return the resources of a server that are to be watched."""
        return self._wanted.get(server, _NONE)

    def get_agreed(self, server: str) -> frozenset[str]:
        """Return the resources that a server last agreed to tell of."""
        agreement = self._agreements.get(server)
        return _NONE if agreement is None else agreement.uris & self.get_wanted(server)

    def set_wanted(self, server: str, uris: Set[str]) -> bool:
        """Make these the resources to be watched, and tell whether some are new."""
        is_more = not uris <= self.get_wanted(server)
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
                agreed = await connection.watch(
                    self.get_wanted(server), partial(self._updated, server)
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
            _log.warning("Server %s no longer tells changes of %r.", server, uri)
        for uri in sorted(before & agreed):
            self.on_update(server, uri)

    def _updated(self, server: str, uri: str) -> None:
        self.on_update(server, uri)


def _nobody(server: str, uri: str) -> None:
    """Hear of a change before anybody wants to."""
