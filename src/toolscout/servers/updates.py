"""`Updates`: what a running server is asked to tell by itself, its lists and its resources.

A server of the handshake era tells changed lists unasked, and resources that were subscribed to
one by one. A later one tells either over a stream that was opened for it. Who wants to hear is
not known here, nor what becomes of it after a restart.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Set
from typing import Any

from mcp.client import Client as SdkClient
from mcp.client.subscriptions import ListenNotSupportedError, ResourceUpdated, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolscout.schemas import Json
from toolscout.servers.delays import Delays

Heard = Callable[[str], None]
"""Is told the address of a resource that changed."""
Send = Callable[[str, Json], Awaitable[Json]]
"""Sends a request to the server."""

_NONE: frozenset[str] = frozenset()


class Updates:
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
