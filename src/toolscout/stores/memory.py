"""`MemoryStore` keeps values as long as the object lives.

It behaves exactly like the other stores, and several threads may use it.
"""

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from typing import Self

from toolscout.stores.store import Append, Change, Merge, OnChange, Put, Trim, Version


@dataclass(frozen=True, slots=True)
class _Value:
    value: bytes
    version: int
    written_at: float


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    value: bytes
    written_at: float


_get_number = attrgetter("number")


class MemoryStore:
    """A store in the memory of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, _Value]] = {}
        self._logs: dict[str, list[_Entry]] = {}
        self._claims: dict[str, tuple[str, float]] = {}
        self._numbers = count(1)

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        with self._lock:
            held = self._values.get(kind, {}).get(key)
        return None if held is None else held.value

    def read_version(self, kind: str, key: str) -> tuple[bytes | None, Version]:
        """Return the value of a key, or None, and its version for a later `Merge`."""
        with self._lock:
            held = self._values.get(kind, {}).get(key)
        return (None, Version()) if held is None else (held.value, Version(held.version))

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Write a value over the previous one; None deletes it."""
        self.write_all([Put(kind, key, value)])

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        with self._lock:
            return sorted(self._values.get(kind, ()))

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to the log of a kind, with a higher number than every value before it."""
        self.write_all([Append(kind, value)])

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers above `after`, oldest first."""
        with self._lock:
            log = self._logs.get(kind, [])
            found = log[bisect_right(log, after, key=_get_number) :]
        yield from ((entry.number, entry.value) for entry in found)

    def scan_back(self, kind: str, before: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers below `before`, newest first."""
        with self._lock:
            log = self._logs.get(kind, [])
            end = len(log) if before is None else bisect_left(log, before, key=_get_number)
            found = log[:end]
        yield from ((entry.number, entry.value) for entry in reversed(found))

    def trim(self, kind: str, keep: int, *, through: int | None = None) -> None:
        """Delete all but the newest `keep` values of a log; their numbers are never reused.

        Values with a higher number than `through` stay.
        """
        self.write_all([Trim(kind, keep, through)])

    def write_all(self, changes: Sequence[Change]) -> None:
        """Make several changes, all of them or none; those of a log in their order."""
        with self._lock:
            for change in changes:
                self._write(change, time.time())

    def expire(self, kind: str, seconds: float) -> int:
        """Delete what was last written longer ago, values and log; return how many there were."""
        before = time.time() - seconds
        with self._lock:
            held = self._values.get(kind, {})
            old = [key for key, row in held.items() if row.written_at < before]
            for key in old:
                del held[key]
            log = self._logs.get(kind, [])
            fresh = [entry for entry in log if entry.written_at >= before]
            self._logs[kind] = fresh
            return len(old) + len(log) - len(fresh)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Reserve a name for its owner for some seconds; return False if another one has it."""
        now = time.time()
        with self._lock:
            holder, until = self._claims.get(name, (owner, 0.0))
            if holder != owner and until > now:
                return False
            self._claims[name] = (owner, now + seconds)
            return True

    def listen(self, on_change: OnChange) -> bool:
        """Return False: no other process can change anything, and threads share the object."""
        return False

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, change: Change, now: float) -> None:
        match change:
            case Put(kind, key, value):
                if value is None:
                    self._values.get(kind, {}).pop(key, None)
                else:
                    self._put(kind, key, value, now)
            case Merge(kind, key, _, seen):
                held = self._values.get(kind, {}).get(key)
                if held is None or held.version == seen.number:
                    value = change.build_value()
                else:
                    value = change.join_value(held.value)
                seen.number = self._put(kind, key, value, now, seen.number)
            case Append(kind, value):
                entry = _Entry(next(self._numbers), value, now)
                self._logs.setdefault(kind, []).append(entry)
            case Trim(kind, keep, through):
                log = self._logs.get(kind, [])
                count = max(len(log) - max(keep, 0), 0)
                if through is not None:
                    count = min(count, bisect_right(log, through, key=_get_number))
                del log[:count]

    def _put(self, kind: str, key: str, value: bytes, now: float, version: int = 0) -> int:
        """Write a value; return its version, which is never one that was seen before."""
        held = self._values.setdefault(kind, {})
        before = held.get(key)
        version = version if before is None else before.version
        held[key] = _Value(value, version + 1, now)
        return version + 1
