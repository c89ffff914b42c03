"""What the SDK expects of the two ends of a connection besides receiving and sending.

A transport of our own writes `receive` or `send`; whoever opened the pipes closes them.

Streams of messages from a server, seen through a `ListingFilter`, which tell when they end.

`ListingFilter`: takes unusable entries out of a server's lists before the SDK looks at them.

The SDK refuses a whole list for one entry that breaks the protocol. A server with a thousand
tools would be lost for one without a name.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, ValidationError

from toolscout.names import to_one_line
from toolscout.schemas import is_list, is_object


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


NAME_CHARS = 60

_ENTRIES: Mapping[str, type[BaseModel]] = {
    "tools": types.Tool,
    "resources": types.Resource,
    "resourceTemplates": types.ResourceTemplate,
    "prompts": types.Prompt,
}


class ListingFilter:
    """Looks at all that one server sends."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        """What was taken out, and why."""

    def sift(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Return a message without the entries that nobody could use."""
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCResponse):
            for key in _ENTRIES.keys() & message.result.keys():
                self._sift(message.result, key)
        return item

    def _sift(self, result: dict[str, Any], key: str) -> None:
        entries: object = result[key]
        if is_list(entries):
            result[key] = [entry for entry in entries if self._is_usable(entry, key)]

    def _is_usable(self, entry: object, key: str) -> bool:
        try:
            _ENTRIES[key].model_validate(entry, by_name=False)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "it"
            name = entry.get("name") if is_object(entry) else None
            shown = to_one_line(str(name or "without a name"), NAME_CHARS)
            self.problems.append(f"One of its {key} was left out: {shown!r}, for {where!r}.")
            return False
        return True


class Sifted:
    """A stream of messages through a sieve, which tells when it is left."""

    def __init__(self, stream: Any, over: Callable[[], None], sieve: ListingFilter) -> None:
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
    streams: AbstractAsyncContextManager[Any], over: Callable[[], None], sieve: ListingFilter
) -> AsyncGenerator[Any]:
    """Open streams whose reading end goes through a sieve; `over` is called when it is left."""
    async with streams as (read, write):
        yield Sifted(read, over, sieve), write
