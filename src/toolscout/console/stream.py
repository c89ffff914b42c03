"""`LiveStream`: what happens, sent to many readers as server-sent events.

Each reader has a bounded queue. A reader that is too slow gets one last event, `resync`, which
asks it to load everything again. A reader that comes back with the id of the last event it saw
gets what it missed, as far back as events are kept.
"""

import asyncio
import json
import secrets
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from toolscout.gateway.middleware import Principal
from toolscout.schemas import Json

EVENTS_KEPT = 1_000
QUEUE_EVENTS_MAX = 256
HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": alive\n\n"
RESYNC = "resync"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEvent:
    """One event, and who may see it."""

    number: int
    kind: str
    build: Callable[[], Json]
    """Builds the data when somebody reads the event; most of the time nobody does."""
    audience: Callable[[Principal], bool] | None = None

    def is_for(self, principal: Principal) -> bool:
        """Tell whether a principal may see the event."""
        return self.audience is None or self.audience(principal)


class LiveStream:
    """Publishes events to all readers; any thread may publish, readers are on event loops."""

    def __init__(self) -> None:
        self._run_id = secrets.token_hex(4)
        self._past: deque[LiveEvent] = deque(maxlen=EVENTS_KEPT)
        self._number = 0
        self._readers: set[_Reader] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def publish(
        self,
        kind: str,
        build: Callable[[], Json] = dict,
        audience: Callable[[Principal], bool] | None = None,
    ) -> None:
        """Send an event to everybody in the audience."""
        with self._lock:
            self._number += 1
            event = LiveEvent(number=self._number, kind=kind, build=build, audience=audience)
            self._past.append(event)
            readers = [reader for reader in self._readers if event.is_for(reader.principal)]
        for reader in readers:
            reader.offer(event)

    def close(self) -> None:
        """End all streams, and those that begin later."""
        with self._lock:
            self._is_closed = True
            readers = list(self._readers)
        for reader in readers:
            reader.end()

    async def read(self, principal: Principal, last_id: str = "") -> AsyncGenerator[bytes]:
        """Yield events from now on, or those after the event `last_id`."""
        reader = _Reader(principal)
        first = self._add_reader(reader, last_id)
        try:
            yield first
            while not reader.is_ended:
                data = b"" if await reader.wait() else HEARTBEAT
                while reader.queue:
                    data += self._encode(reader.queue.popleft())
                if reader.is_too_slow:
                    yield data + self._encode_resync()
                    return
                if data:
                    yield data
        finally:
            with self._lock:
                self._readers.discard(reader)

    def _add_reader(self, reader: "_Reader", last_id: str) -> bytes:
        """Add a reader; return what it gets first."""
        with self._lock:
            self._readers.add(reader)
            reader.is_ended = self._is_closed
            if not last_id:
                return f"id: {self._format_id(self._number)}\n".encode() + HEARTBEAT
            run_id, _, number = last_id.partition("-")
            oldest = self._past[0].number if self._past else self._number + 1
            is_known = run_id == self._run_id and number.isdecimal() and len(number) < 18
            if not is_known or int(number) < oldest - 1:
                return self._encode_resync()
            missed = [event for event in self._past if event.number > int(number)]
        visible = [event for event in missed if event.is_for(reader.principal)]
        return b"".join(map(self._encode, visible)) or HEARTBEAT

    def _encode(self, event: LiveEvent) -> bytes:
        # The format needs one line; JSON written this way has no line breaks.
        data = json.dumps(event.build(), ensure_ascii=True, separators=(",", ":"))
        lines = f"id: {self._format_id(event.number)}\nevent: {event.kind}\ndata: {data}\n\n"
        return lines.encode()

    def _encode_resync(self) -> bytes:
        return f"id: {self._format_id(self._number)}\nevent: {RESYNC}\ndata: {{}}\n\n".encode()

    def _format_id(self, number: int) -> str:
        return f"{self._run_id}-{number}"


class _Reader:
    """The queue of one reader, and how to wake it."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.queue: deque[LiveEvent] = deque()
        self.is_too_slow = False
        self.is_ended = False
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def offer(self, event: LiveEvent) -> None:
        """Queue an event; any thread may call this."""
        if self.is_too_slow:
            return
        if len(self.queue) >= QUEUE_EVENTS_MAX:
            self.is_too_slow = True
            self.queue.clear()
        else:
            self.queue.append(event)
        self._wake()

    def end(self) -> None:
        """End the stream."""
        self.is_ended = True
        self._wake()

    async def wait(self) -> bool:
        """Wait until there is something to read; return False when the time is over."""
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    def _wake(self) -> None:
        if not self._loop.is_closed():  # a closed loop has no readers any more
            self._loop.call_soon_threadsafe(self._woken.set)
