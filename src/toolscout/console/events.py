"""`Feed`: what happens, told to many readers as server-sent events.

Each reader has a queue of its own that does not grow without bound: one that reads too slowly is
told to look at everything again (`resync`) and is let go. Whoever comes back with the id of the
last event that it saw gets what it missed, as far as that is still known.
"""

import asyncio
import json
import secrets
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from toolscout.gateway.auth import Principal
from toolscout.schemas import Json

KEPT = 1_000
WAITING = 256
"""Events that may wait for one reader."""
HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": alive\n\n"
RESYNC = "resync"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulletin:
    """One event, and who may hear of it."""

    number: int
    kind: str
    tell: Callable[[], Json]
    """Gives what is told, when somebody reads it: most of the time nobody does."""
    audience: Callable[[Principal], bool] | None = None

    def is_for(self, principal: Principal) -> bool:
        """Tell whether somebody may hear of it."""
        return self.audience is None or self.audience(principal)


class _Reader:
    """One stream: what waits for it, and how to wake it."""

    def __init__(self, principal: Principal, limit: int) -> None:
        self.principal = principal
        self.waiting: deque[Bulletin] = deque()
        self.is_lost = False
        """Whether it was too slow."""
        self.is_ended = False
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._something = asyncio.Event()

    def offer(self, bulletin: Bulletin) -> None:
        """Let an event wait for the reader; from any thread."""
        if self.is_lost:
            return
        if len(self.waiting) >= self._limit:
            self.is_lost = True
            self.waiting.clear()
        else:
            self.waiting.append(bulletin)
        self.wake()

    def end(self) -> None:
        """Have the stream end."""
        self.is_ended = True
        self.wake()

    def wake(self) -> None:
        """Let the reader look; a loop that is gone has no reader any more."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._something.set)

    async def look(self, seconds: float) -> bool:
        """Wait until there is something, or for a time; tell whether there is."""
        try:
            async with asyncio.timeout(seconds):
                await self._something.wait()
        except TimeoutError:
            return False
        self._something.clear()
        return True


class Feed:
    """Publishes to all readers; threads may publish, loops read."""

    def __init__(
        self,
        *,
        kept: int = KEPT,
        waiting: int = WAITING,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._boot = secrets.token_hex(4)
        self._past: deque[Bulletin] = deque(maxlen=kept)
        self._number = 0
        self._readers: set[_Reader] = set()
        self._limit, self._seconds = waiting, heartbeat_seconds
        self._lock = threading.Lock()
        self._is_closed = False

    def publish(
        self,
        kind: str,
        tell: Callable[[], Json] = dict,
        audience: Callable[[Principal], bool] | None = None,
    ) -> None:
        """Tell something to everybody in the audience."""
        with self._lock:
            self._number += 1
            bulletin = Bulletin(number=self._number, kind=kind, tell=tell, audience=audience)
            self._past.append(bulletin)
            readers = [reader for reader in self._readers if bulletin.is_for(reader.principal)]
        for reader in readers:
            reader.offer(bulletin)

    def close(self) -> None:
        """End all streams, and those that would still begin."""
        with self._lock:
            self._is_closed = True
            readers = list(self._readers)
        for reader in readers:
            reader.end()

    async def stream(self, principal: Principal, last_id: str = "") -> AsyncGenerator[bytes]:
        """Yield what happens from here on, or after an event that was seen before."""
        reader = _Reader(principal, self._limit)
        first = self._joined(reader, last_id)
        try:
            yield first
            while not reader.is_ended:
                told = HEARTBEAT if not await reader.look(self._seconds) else b""
                while reader.waiting:
                    told += self._written(reader.waiting.popleft())
                if reader.is_lost:
                    yield told + self._resync()
                    return
                if told:
                    yield told
        finally:
            with self._lock:
                self._readers.discard(reader)

    def _joined(self, reader: _Reader, last_id: str) -> bytes:
        """Let a reader in; return what it is told at once."""
        with self._lock:
            self._readers.add(reader)
            reader.is_ended = self._is_closed
            if not last_id:
                return f"id: {self._id(self._number)}\n".encode() + HEARTBEAT
            boot, _, number = last_id.partition("-")
            oldest = self._past[0].number if self._past else self._number + 1
            is_known = boot == self._boot and number.isdecimal() and len(number) < 18
            if not is_known or int(number) < oldest - 1:
                return self._resync()
            missed = [bulletin for bulletin in self._past if bulletin.number > int(number)]
        told = [self._written(n) for n in missed if n.is_for(reader.principal)]
        return b"".join(told) or HEARTBEAT

    def _written(self, bulletin: Bulletin) -> bytes:
        # JSON has no line breaks of its own, so one line holds it.
        data = json.dumps(bulletin.tell(), ensure_ascii=True, separators=(",", ":"))
        return f"id: {self._id(bulletin.number)}\nevent: {bulletin.kind}\ndata: {data}\n\n".encode()

    def _resync(self) -> bytes:
        return f"id: {self._id(self._number)}\nevent: {RESYNC}\ndata: {{}}\n\n".encode()

    def _id(self, number: int) -> str:
        return f"{self._boot}-{number}"
