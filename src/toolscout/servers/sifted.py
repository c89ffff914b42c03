"""Streams of messages from a server, seen through a `Sieve`, which tell when they end."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

from toolscout.servers.sieves import Sieve


class Sifted:
    """A stream of messages through a sieve, which tells when it is left."""

    def __init__(self, stream: Any, over: Callable[[], None], sieve: Sieve) -> None:
        self._stream, self._over, self._sieve = stream, over, sieve

    @property
    def last_context(self) -> Any:
        """What the SDK's own streams carry along."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        return self._sieve.sift(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._sieve.sift(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._over()
        await self._stream.__aexit__(*error)


@asynccontextmanager
async def sifted(
    streams: AbstractAsyncContextManager[Any], over: Callable[[], None], sieve: Sieve
) -> AsyncGenerator[Any]:
    """Open streams whose reading end goes through a sieve; `over` is called when it is left."""
    async with streams as (read, write):
        yield Sifted(read, over, sieve), write
