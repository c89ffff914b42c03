"""`Listener`: what one client wants to hear of, and what it has not been told yet.

A change is a hint to look again, so that one which is still to be told is not told twice. How it
gets to the client is for `subscriptions`.
"""

import asyncio
from collections.abc import Set

from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from toolscout.sessions.session import Session

ALL_LISTS: frozenset[ServerEvent] = frozenset(
    {ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()}
)
PENDING_LIMIT = 1_000
"""Events beyond which parts of a resource are told as the whole."""


class Listener:
    """One client that listens. `grows` tells whether its list of tools grows by what it finds."""

    def __init__(self, session: Session, lists: Set[ServerEvent], *, grows: bool = False) -> None:
        self.session, self.grows = session, grows
        self.places: dict[tuple[str, str], str] = {}
        """Server and address there of each resource, and the address that the client uses."""
        self._lists = lists
        self._pending: dict[ServerEvent, None] = {}
        self._news = asyncio.Event()
        self._is_closed = False

    def asked_for(self, server: str, own: str) -> str | None:
        """Return the address by which the client asked for a resource, or for what it is part of.

        The longest one, if it asked for both.
        """
        covering = [p for p in self.places if p[0] == server and _covers(p[1], own)]
        return self.places[max(covering, key=lambda place: len(place[1]))] if covering else None

    def tell(self, event: ServerEvent) -> None:
        """Have the client told of a change, if it wants to hear of it."""
        if event in self._lists or isinstance(event, ResourceUpdated):
            self._pending[event] = None
            self._news.set()

    def tell_update(self, asked: str, changed: str) -> None:
        """Have the client told of a resource that it asked for, or of a changed part of it."""
        is_whole = asked.rstrip("/") == changed.rstrip("/") or len(self._pending) >= PENDING_LIMIT
        self.tell(ResourceUpdated(uri=asked if is_whole else changed))

    def close(self) -> None:
        """Have `next` give what is left, and then nothing."""
        self._is_closed = True
        self._news.set()

    async def next(self) -> ServerEvent | None:
        """Return the next event, or nothing at the end."""
        while not self._pending and not self._is_closed:
            self._news.clear()
            await self._news.wait()
        event = next(iter(self._pending), None)
        if event is not None:
            del self._pending[event]
        return event


def _covers(asked: str, own: str) -> bool:
    """Tell whether a resource is the one that was asked for, or a part of it."""
    whole = asked.rstrip("/")
    return own.rstrip("/") == whole or own.startswith((f"{whole}/", f"{whole}#", f"{whole}?"))
