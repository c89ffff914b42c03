"""`Relays`: whom to ask what a server asks for while it works on calls.

A server's question does not say which call it belongs to. With several calls running, the answer
of one client could reach the call of another, so nobody is asked then.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT

from toolscout.servers.connection import Relay

NOBODY = "No call is being worked on."
SEVERAL = "Several calls are being worked on, and it is not known which one asks."


class Relays:
    """The relays of running calls; the methods are callbacks of the SDK."""

    def __init__(self) -> None:
        self._relays: list[Relay] = []

    @contextmanager
    def joined(self, relay: Relay) -> Generator[None]:
        """Have a relay among those that may be asked."""
        self._relays.append(relay)
        try:
            yield
        finally:
            self._relays.remove(relay)

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        """Have a client's model complete a message."""
        relay = self._only()
        return await relay.sample(params) if relay else self._refusal()

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> Any:
        """Ask a client's user."""
        relay = self._only()
        return await relay.elicit(params) if relay else self._refusal()

    async def roots(self, context: Any) -> Any:
        """Ask for a client's roots."""
        relay = self._only()
        return await relay.roots() if relay else self._refusal()

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Pass on a log message, if it is clear whose it is."""
        relay = self._only()
        if relay is not None:
            await relay.log(params)

    def _only(self) -> Relay | None:
        return self._relays[0] if len(self._relays) == 1 else None

    def _refusal(self) -> types.ErrorData:
        message = SEVERAL if self._relays else NOBODY
        return types.ErrorData(code=types.INVALID_REQUEST, message=message)


def progress_to(relay: Relay) -> ProgressFnT:
    """Return what tells a relay how far its call is."""

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        await relay.progress(progress, total, message)

    return heard
