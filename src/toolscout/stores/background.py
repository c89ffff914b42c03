"""`BackgroundStore` keeps a slow database from holding up an event loop.

Writes return at once, and one thread makes them in batches. A value can be read as soon as `write`
has returned. It survives a crash once it is written, which `wait_written` waits for. Changes that
no answer promises are gathered for a moment, so that many of them share one trip to the database.
Every other read blocks, so an event loop makes it with `run_in_thread`.

While the store fails, changes wait and are tried again. What no longer fits is dropped, oldest
first, counted and reported.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from toolscout.stores.store import Append, Change, Merge, OnChange, Put, Store, Trim, Version

WAIT_SECONDS = 0.03
"""How long an answer waits until it is stored: what a database that stalls costs it."""
GATHER_SECONDS = 0.2
"""How long changes that nobody waits for are gathered before they are written."""
POLL_SECONDS = 0.05
"""How often `wait_stored` looks again."""
RETRY_SECONDS = 1.0
"""How long after a failure the store is tried again."""
BATCH_CHANGES = 500
BATCH_BYTES = 4 * 1024 * 1024
PENDING_BYTES = 64 * 1024 * 1024
CHANGE_BYTES = 500
"""Roughly what a pending change needs besides its value."""
READING_THREADS = 32
CHECK_SECONDS = 2.0
"""How long a store may take to answer before it counts as unavailable."""
REPORT_SECONDS = 10.0
"""How often the log tells of dropped changes."""
CHECKED = ("check", "check")
"""The kind and key to read in order to see whether the store answers; nothing is stored there."""

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class BackgroundStore:
    """Wraps a store; threads may share it."""

    def __init__(self, store: Store) -> None:
        self.dropped = 0
        """Changes that were never written, because too many had to wait."""
        self._store = store
        self._lock = threading.Lock()
        self._pending: dict[object, Change] = {}
        """Changes by kind and key; those of logs by an object of their own."""
        self._pending_bytes = 0
        self._running: dict[object, Change] = {}
        self._waiting: dict[object, set[asyncio.Future[None]]] = {}
        self._is_failing = False
        self._is_slow = False
        """Whether somebody has waited in vain since the last batch was written."""
        self._is_gathering = False
        """Whether the writer waits for further changes, or is about to."""
        self._is_draining = False
        """Whether the writer will take what is pending without waiting."""
        self._is_urgent = threading.Event()
        self._is_closed = threading.Event()
        self._reported_at = -REPORT_SECONDS
        self._reported = 0
        self._checking: asyncio.Future[object] | None = None
        self._writer = ThreadPoolExecutor(1, "toolscout-store-writer")
        self._readers = ThreadPoolExecutor(READING_THREADS, "toolscout-store-reader")

    @property
    def pending(self) -> int:
        """How many changes are not written yet."""
        return len(self._pending) + len(self._running)

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to write has failed."""
        return self._is_failing

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        change = self._find_change(kind, key)
        return self._store.read(kind, key) if change is None else change.value

    def read_version(self, kind: str, key: str) -> tuple[bytes | None, Version]:
        """Return the value of a key, or None, and its version for a later `Merge`."""
        match self._find_change(kind, key):
            case Merge(value=value, seen=seen):
                return value, seen
            case Put(value=value):
                self.flush()  # until then it has no version
                return value, self._store.read_version(kind, key)[1]
            case None:
                return self._store.read_version(kind, key)

    def read_stored(self, kind: str, key: str) -> bytes | None:
        """Return what the store has, which another process may have written."""
        return self._store.read(kind, key)

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Write a value over the previous one; None deletes it."""
        self.write_all([Put(kind, key, value)])

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        self.flush()
        return self._store.keys(kind)

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to the log of a kind, with a higher number than every value before it."""
        self.write_all([Append(kind, value)])

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers above `after`, oldest first."""
        self.flush()
        yield from self._store.scan(kind, after)

    def scan_back(self, kind: str, before: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers below `before`, newest first."""
        self.flush()
        yield from self._store.scan_back(kind, before)

    def trim(self, kind: str, keep: int, *, through: int | None = None) -> None:
        """Delete all but the newest `keep` values of a log; their numbers are never reused.

        Values with a higher number than `through` stay.
        """
        self.write_all([Trim(kind, keep, through)])

    def write_all(self, changes: Sequence[Change]) -> None:
        """Make several changes soon, each of a key in place of the one before."""
        is_urgent = any(map(_is_urgent, changes))
        with self._lock:
            for change in changes:
                key = _get_key(change)
                before = self._take(key) if key in self._pending else None
                self._put(key, _follow(before, change))
            self._drop_oldest()
            self._start_writing(is_urgent=is_urgent)

    def expire(self, kind: str, seconds: float) -> int:
        """Delete what was last written longer ago, values and log; return how many there were."""
        self.flush()
        return self._store.expire(kind, seconds)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Reserve a name for its owner for some seconds; return False if another one has it."""
        self.flush()  # whoever claims it next has to find what was written under this claim
        return self._store.claim(name, owner, seconds)

    def listen(self, on_change: OnChange) -> bool:
        """Report from now on, in a thread, what other processes change, if the store can tell."""
        return self._store.listen(on_change)

    def close(self) -> None:
        """Write what is pending, then close the store."""
        self.flush()
        self._is_closed.set()
        self._writer.submit(self._give_up).result()
        self._store.close()

    def flush(self) -> None:
        """Wait until everything is written or the store has failed."""
        if self.pending:
            with self._lock:
                self._is_urgent.set()
            self._writer.submit(self._drain).result()

    async def wait_written(self, kind: str, key: str) -> bool:
        """Wait until a value is written or the store fails, but at most `WAIT_SECONDS`.

        Returns whether everything of this key is written that is urgent. Once somebody has waited
        in vain, nobody waits until the store has written something.
        """
        if self._is_written((kind, key)):
            return True
        if self._is_failing or self._is_slow:
            return False
        loop = asyncio.get_running_loop()
        written = loop.create_future()
        with self._lock:
            if not self._is_awaited((kind, key)):
                return True
            self._waiting.setdefault((kind, key), set()).add(written)

        def end() -> None:
            self._is_slow = True
            _finish(written)

        timer = loop.call_later(WAIT_SECONDS, end)
        try:
            await written
        finally:
            timer.cancel()
            with self._lock:
                self._waiting.get((kind, key), set()).discard(written)
        return self._is_written((kind, key))

    async def wait_stored(self, kind: str, key: str, seconds: float) -> bool:
        """Wait until a value is written, however often the store fails, but at most some seconds.

        Returns whether it is written. This is for what a client does rarely.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not await self.wait_written(kind, key):
            if loop.time() > end:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def run_in_thread(self, work: Callable[[], _T]) -> _T:
        """Run work that reads from the store, without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def is_available(self) -> bool:
        """Tell whether the store answers; however often it is asked, only one thread waits."""
        if self._checking is None or self._checking.done():
            loop = asyncio.get_running_loop()
            self._checking = loop.run_in_executor(self._readers, self._store.read, *CHECKED)
            self._checking.add_done_callback(_take_error)
        done, _ = await asyncio.wait((self._checking,), timeout=CHECK_SECONDS)
        return bool(done) and self._checking.exception() is None and not self._is_failing

    def _find_change(self, kind: str, key: str) -> Put | Merge | None:
        with self._lock:
            change = self._pending.get((kind, key)) or self._running.get((kind, key))
        return change if isinstance(change, Put | Merge) else None

    def _is_written(self, key: object) -> bool:
        with self._lock:
            return not self._is_awaited(key)

    def _is_awaited(self, key: object) -> bool:
        """Tell whether a key has an urgent change that is not written yet."""
        changes = (self._pending.get(key), self._running.get(key))
        return any(change is not None and _is_urgent(change) for change in changes)

    def _start_writing(self, *, is_urgent: bool) -> None:
        """Give the writer work, unless it is about to look at what is pending anyway.

        To wake its thread for each change would hold up the answer that is next.
        """
        if self._is_gathering and is_urgent:
            self._is_urgent.set()
        if self._is_gathering or self._is_draining or self._is_failing:
            return  # a store that fails is about to be tried again
        self._is_gathering = not is_urgent
        self._is_draining = is_urgent
        self._writer.submit(self._drain if is_urgent else self._gather)

    def _gather(self) -> None:
        """Wait for further changes, or for one that somebody waits for, and write."""
        if self._pending:  # otherwise they were taken along
            self._is_urgent.wait(GATHER_SECONDS)
        with self._lock:
            self._is_gathering = False
            self._is_draining = True
        self._drain()

    def _drain(self) -> None:
        """Write what is pending, oldest first, until the store fails."""
        while batch := self._take_batch():
            try:
                self._store.write_all(list(batch.values()))
            except Exception as error:
                self._put_back(batch, error)
                return
            with self._lock:
                was_failing = self._is_failing
                self._running = {}
                self._is_failing = self._is_slow = False
                # Otherwise a newer value is about to be written.
                self._wake([key for key in batch if not self._is_awaited(key)])
            if was_failing:
                _log.warning("The store can be written to again.")

    def _take_batch(self) -> dict[object, Change]:
        """Take the oldest changes; while they are written, reads still find them."""
        with self._lock:
            size = 0
            while self._pending and len(self._running) < BATCH_CHANGES and size < BATCH_BYTES:
                key = next(iter(self._pending))
                change = self._take(key)
                size += _measure(change)
                self._running[key] = change
            if not self._running:
                self._is_draining = False
                self._is_urgent.clear()
            return dict(self._running)

    def _put_back(self, batch: dict[object, Change], error: Exception) -> None:
        """Keep what was not written, before what came later, and try again soon."""
        with self._lock:
            if not self._is_failing:
                _log.warning("The store cannot be written to; changes wait in memory: %s", error)
                _log.debug("The store failed.", exc_info=error)
            self._is_failing = True
            self._is_draining = False
            self._running = {}
            later = {key: _follow(batch.get(key), one) for key, one in self._pending.items()}
            self._pending = {key: one for key, one in batch.items() if key not in later} | later
            self._pending_bytes = sum(map(_measure, self._pending.values()))
            self._drop_oldest()
            self._wake(list(self._waiting))
        threading.Thread(target=self._retry, name="toolscout-store-retry", daemon=True).start()

    def _retry(self) -> None:
        if not self._is_closed.wait(RETRY_SECONDS):
            self._writer.submit(self._drain)

    def _drop_oldest(self) -> None:
        while self._pending_bytes > PENDING_BYTES and len(self._pending) > 1:
            self._take(next(iter(self._pending)))
            self.dropped += 1
        self._report_dropped()

    def _give_up(self) -> None:
        """Count what could not be written before the end."""
        with self._lock:
            self.dropped += len(self._pending)
            self._pending = {}
            self._reported_at = -REPORT_SECONDS
            self._report_dropped()

    def _report_dropped(self) -> None:
        now = time.monotonic()
        if self.dropped > self._reported and now - self._reported_at > REPORT_SECONDS:
            _log.error(
                "The store is too slow or not available: %d changes were dropped.",
                self.dropped - self._reported,
            )
            self._reported, self._reported_at = self.dropped, now

    def _wake(self, keys: Iterable[object]) -> None:
        """Go on with whoever waits for some keys; to wake an event loop takes a system call."""
        waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for key in keys:
            for written in self._waiting.pop(key, ()):
                waiting.setdefault(written.get_loop(), []).append(written)
        for loop, all_written in waiting.items():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(_finish, *all_written)

    def _put(self, key: object, change: Change) -> None:
        self._pending[key] = change
        self._pending_bytes += _measure(change)

    def _take(self, key: object) -> Change:
        change = self._pending.pop(key)
        self._pending_bytes -= _measure(change)
        return change


def _get_key(change: Change) -> object:
    return (change.kind, change.key) if isinstance(change, Put | Merge) else object()


def _is_urgent(change: Change) -> bool:
    return isinstance(change, Put) or (isinstance(change, Merge) and change.is_urgent)


def _follow(before: Change | None, change: Change) -> Change:
    """Return a change that replaces another one, and is urgent if either is."""
    if isinstance(change, Merge) and before is not None and _is_urgent(before):
        return replace(change, is_urgent=True)
    return change


def _measure(change: Change) -> int:
    value = None if isinstance(change, Trim) else change.value
    return CHANGE_BYTES + len(value or b"")


def _take_error(future: "asyncio.Future[object]") -> None:
    """Look at an error for which nobody waits any more; otherwise asyncio logs a traceback."""
    if not future.cancelled():
        future.exception()


def _finish(*futures: "asyncio.Future[None]") -> None:
    for written in futures:
        if not written.done():
            written.set_result(None)
