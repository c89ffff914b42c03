"""`MemoryStore`: what is kept lives as long as the object.

Behaves like every other store, number for number, and may be used from several threads.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterator
from itertools import count
from operator import itemgetter
from typing import Self


class MemoryStore:
    """Keeps values in this process."""

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
        """Keep a value in place of the one before; None deletes."""
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
        """Add a value to the log of a kind, under a number above all given so far."""
        with self._lock:
            self._logs.setdefault(kind, []).append((next(self._numbers), value))

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the numbered values of a log, oldest first, from the first above `after`."""
        with self._lock:
            log = self._logs.get(kind, [])
            found = log[bisect_right(log, after, key=itemgetter(0)) :]
        yield from found

    def trim(self, kind: str, keep: int) -> None:
        """Forget all but the newest values of a log; their numbers are not given again."""
        with self._lock:
            log = self._logs.get(kind, [])
            del log[: max(len(log) - max(keep, 0), 0)]

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
