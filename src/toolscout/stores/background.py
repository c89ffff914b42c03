"""`BackgroundStore` keeps a slow database from holding up an event loop.

Writes return at once, and one thread makes them in order. A value can be read as soon as `write`
has returned. It survives a crash once it is written, which `wait_written` waits for. Every other
read blocks, so an event loop makes it with `run_in_thread`.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from toolscout.stores.store import Store

WAIT_SECONDS = 0.2
"""How long an answer waits until it is stored: what a stalled database costs each answer."""
GATHER_SECONDS = 0.05
"""How long values of logs, which nobody waits for, are gathered before they are written."""
PENDING_BYTES = 64 * 1024 * 1024
WRITE_BYTES = 500
"""Roughly what a pending write needs besides its value."""
READING_THREADS = 32
CHECK_SECONDS = 2.0
"""How long a store may take to answer before it counts as unavailable."""
CHECKED = ("check", "check")
"""The kind and key to read in order to see whether the store answers; nothing is stored there."""

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Write:
    run: Callable[[], None]
    value: bytes | None

    @property
    def size(self) -> int:
        return WRITE_BYTES + len(self.value or b"")


class BackgroundStore:
    """Wraps a store; threads may share it.

    A value that the store fails to write is kept and tried again with the next write.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._pending: dict[object, _Write] = {}
        self._pending_bytes = 0
        self._running: tuple[object, _Write] | None = None
        self._waiting: dict[object, set[asyncio.Future[None]]] = {}
        self._is_failing = False
        self._is_gathering = False
        self._is_urgent = threading.Event()
        self._checking: asyncio.Future[object] | None = None
        self._writer = ThreadPoolExecutor(1, "toolscout-store-writer")
        self._readers = ThreadPoolExecutor(READING_THREADS, "toolscout-store-reader")

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        with self._lock:
            write = self._find_write((kind, key))
        return self._store.read(kind, key) if write is None else write.value

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Write a value over the previous one; None deletes it."""
        self._add((kind, key), partial(self._store.write, kind, key, value), value)

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        self.flush()
        return self._store.keys(kind)

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to the log of a kind, with a higher number than every value before it."""
        self._add(object(), partial(self._store.append, kind, value), value, is_urgent=False)

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
        self._add(object(), partial(self._store.trim, kind, keep, through=through), None)

    def close(self) -> None:
        """Write what is pending, then close the store."""
        self.flush()
        self._store.close()

    def flush(self) -> None:
        """Wait until everything is written or the store has failed."""
        if self._pending or self._running is not None:
            self._is_urgent.set()
            self._writer.submit(self._drain).result()

    async def wait_written(self, kind: str, key: str) -> None:
        """Wait until a value is written or the store fails, but at most `WAIT_SECONDS`."""
        with self._lock:
            if self._is_failing or self._find_write((kind, key)) is None:
                return
            loop = asyncio.get_running_loop()
            written = loop.create_future()
            self._waiting.setdefault((kind, key), set()).add(written)
        timer = loop.call_later(WAIT_SECONDS, _finish, written)
        try:
            await written
        finally:
            timer.cancel()
            with self._lock:
                self._waiting.get((kind, key), set()).discard(written)

    async def run_in_thread(self, work: Callable[[], _T]) -> _T:
        """Run work that reads from the store, without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def is_available(self) -> bool:
        """Tell whether the store answers; however often it is asked, only one thread waits."""
        if self._checking is None or self._checking.done():
            loop = asyncio.get_running_loop()
            self._checking = loop.run_in_executor(self._readers, self._store.read, *CHECKED)
        done, _ = await asyncio.wait((self._checking,), timeout=CHECK_SECONDS)
        return bool(done) and self._checking.exception() is None and not self._is_failing

    def _find_write(self, key: object) -> _Write | None:
        if self._running is not None and self._running[0] == key:
            return self._pending.get(key, self._running[1])
        return self._pending.get(key)

    def _add(
        self,
        key: object,
        run: Callable[[], None],
        value: bytes | None,
        *,
        is_urgent: bool = True,
    ) -> None:
        with self._lock:
            is_gathering = self._is_gathering
            self._is_gathering = is_gathering or not is_urgent
            if key in self._pending:
                self._take(key)
            self._put(key, _Write(run, value))
            while self._pending_bytes > PENDING_BYTES:
                self._take(next(iter(self._pending)))
                _log.warning("The store is too slow: dropped the oldest value to be written.")
        if is_urgent:
            self._is_urgent.set()
            self._writer.submit(self._drain)
        elif not is_gathering:
            # To wake the thread for each value would hold up the answer that is next.
            self._writer.submit(self._gather)

    def _gather(self) -> None:
        """Wait for further values of logs, or for a value that somebody waits for, and write."""
        self._is_urgent.wait(GATHER_SECONDS)
        with self._lock:
            self._is_gathering = False
        self._drain()

    def _drain(self) -> None:
        """Write what is pending, oldest first, until the store fails."""
        self._is_urgent.clear()
        while (job := self._take_next()) is not None:
            key, write = job
            try:
                write.run()
            except Exception:
                _log.warning("The store failed; the next write tries again.", exc_info=True)
                with self._lock:
                    self._running = None
                    self._is_failing = True
                    if key not in self._pending:
                        self._put(key, write)
                    for waiting in list(self._waiting):
                        self._wake(waiting)
                return
            with self._lock:
                self._running = None
                self._is_failing = False
                if key not in self._pending:  # otherwise a newer value is about to be written
                    self._wake(key)

    def _take_next(self) -> tuple[object, _Write] | None:
        with self._lock:
            key = next(iter(self._pending), None)
            self._running = None if key is None else (key, self._take(key))
            return self._running

    def _wake(self, key: object) -> None:
        for written in self._waiting.pop(key, ()):
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                written.get_loop().call_soon_threadsafe(_finish, written)

    def _put(self, key: object, write: _Write) -> None:
        self._pending[key] = write
        self._pending_bytes += write.size

    def _take(self, key: object) -> _Write:
        write = self._pending.pop(key)
        self._pending_bytes -= write.size
        return write


def _finish(written: "asyncio.Future[None]") -> None:
    if not written.done():
        written.set_result(None)
