"""`Store`: the protocol that every store implements."""

import threading
from collections.abc import Iterator
from typing import Protocol
from weakref import WeakValueDictionary


class Store(Protocol):
    """Keeps values by kind and key, and logs by kind."""

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        ...

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Write a value over the previous one; None deletes it."""
        ...

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        ...

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to the log of a kind, with a higher number than every value before it."""
        ...

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers above `after`, oldest first."""
        ...

    def scan_back(self, kind: str, before: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers below `before`, newest first."""
        ...

    def trim(self, kind: str, keep: int, *, through: int | None = None) -> None:
        """Delete all but the newest `keep` values of a log; their numbers are never reused.

        Values with a higher number than `through` stay.
        """
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...


class KeyLocks:
    """A lock for each key, so that slow work on one key does not hold up the others."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()
        self._lock = threading.Lock()

    def __getitem__(self, key: str) -> threading.RLock:
        with self._lock:
            return self._locks.setdefault(key, threading.RLock())
