"""`Store`: the protocol that every store implements, and the changes that it writes.

A store keeps values by kind and key, and a log for each kind. Every method may block and may raise
`UsageError` if the store cannot be used; `BackgroundStore` keeps both from an event loop.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

Join = Callable[[bytes, bytes], bytes]
"""Takes the value that another process has written, and ours; returns what both say."""
OnChange = Callable[[Mapping[str, Set[str]] | None], None]
"""Takes the keys that another process has changed, by kind; no keys if any of the kind may have
changed, and None if anything may have."""


@dataclass(slots=True)
class Version:
    """The version of a value that its owner has seen, which counts its changes; 0 is no value."""

    number: int = 0
    foreign: deque[bytes] = field(default_factory=deque[bytes])
    """What others have written and the owner has not taken over yet; whoever does removes it."""


@dataclass(frozen=True, slots=True)
class Put:
    """Write a value over the previous one; None deletes it."""

    kind: str
    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Merge:
    """Write a value if its key still has the version that was seen; otherwise join both.

    `seen` becomes the version that was written, and gets what others had written.
    """

    kind: str
    key: str
    value: bytes
    seen: Version
    join: Join
    is_urgent: bool = True
    """Whether an answer promises it; otherwise `BackgroundStore` gathers it with other changes."""

    def build_value(self) -> bytes:
        """Return the value with what others have written since its owner made it."""
        value = self.value
        for theirs in list(self.seen.foreign):
            value = self.join(theirs, value)
        return value

    def join_value(self, theirs: bytes) -> bytes:
        """Return the value joined with what another process has written."""
        self.seen.foreign.append(theirs)
        return self.build_value()


@dataclass(frozen=True, slots=True)
class Append:
    """Add a value to the log of a kind."""

    kind: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Trim:
    """Delete all but the newest `keep` values of a log, but none numbered above `through`."""

    kind: str
    keep: int
    through: int | None = None


Change = Put | Merge | Append | Trim


class Store(Protocol):
    """Keeps values by kind and key, and logs by kind."""

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        ...

    def read_version(self, kind: str, key: str) -> tuple[bytes | None, Version]:
        """Return the value of a key, or None, and its version for a later `Merge`."""
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
        """Yield the values of a log with their numbers above `after`, oldest first.

        Whoever goes on after the last number misses nothing, however many processes write.
        """
        ...

    def scan_back(self, kind: str, before: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers below `before`, newest first."""
        ...

    def trim(self, kind: str, keep: int, *, through: int | None = None) -> None:
        """Delete all but the newest `keep` values of a log; their numbers are never reused.

        Values with a higher number than `through` stay.
        """
        ...

    def write_all(self, changes: Sequence[Change]) -> None:
        """Make several changes, all of them or none; those of a log in their order."""
        ...

    def expire(self, kind: str, seconds: float) -> int:
        """Delete what was last written longer ago, values and log; return how many there were."""
        ...

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Reserve a name for its owner for some seconds; return False if another one has it.

        The owner may claim it again, and releases it with 0 seconds.
        """
        ...

    def listen(self, on_change: OnChange) -> bool:
        """Report from now on, in a thread, what other processes change.

        Returns False if this store cannot tell, so that its user has to look from time to time.
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
