"""`MemoryStore` keeps values as long as the object lives.

It behaves exactly like the other stores, and several threads may use it.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import count
from operator import itemgetter
from typing import Self


class MemoryStore:
    """A store in the memory of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, bytes]] = {}
        self._logs: dict[str, list[tuple[int, bytes]]] = {}
        self._numbers = count(1)

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        with self._lock:
            return self._values.get(kind, {}).get(key)

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Write a value over the previous one; None deletes it."""
        with self._lock:
            held = self._values.setdefault(kind, {})
            if value is None:
                held.pop(key, None)
            else:
                held[key] = value

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        with self._lock:
            return sorted(self._values.get(kind, ()))

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to the log of a kind, with a higher number than every value before it."""
        with self._lock:
            self._logs.setdefault(kind, []).append((next(self._numbers), value))

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers above `after`, oldest first."""
        with self._lock:
            log = self._logs.get(kind, [])
            found = log[bisect_right(log, after, key=itemgetter(0)) :]
        yield from found

    def scan_back(self, kind: str, before: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers below `before`, newest first."""
        with self._lock:
            log = self._logs.get(kind, [])
            end = len(log) if before is None else bisect_left(log, before, key=itemgetter(0))
            found = log[:end]
        yield from reversed(found)

    def trim(self, kind: str, keep: int, *, through: int | None = None) -> None:
        """Delete all but the newest `keep` values of a log; their numbers are never reused.

        Values with a higher number than `through` stay.
        """
        with self._lock:
            log = self._logs.get(kind, [])
            count = max(len(log) - max(keep, 0), 0)
            if through is not None:
                count = min(count, bisect_right(log, through, key=itemgetter(0)))
            del log[:count]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
