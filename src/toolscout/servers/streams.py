"""What the SDK expects of the two ends of a connection besides receiving and sending.

A transport of our own writes `receive` or `send`; whoever opened the pipes closes them.
"""

from typing import Self

import anyio
from mcp.shared.message import SessionMessage


class Stream:
    """One end of a connection; leaving it closes nothing."""

    async def aclose(self) -> None:
        """Do nothing: whoever opened the pipes closes them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class Receiving(Stream):
    """The end at which messages arrive, to be read one by one or in a loop."""

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or raise `EndOfStream`."""
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None
