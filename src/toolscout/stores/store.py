"""`Store`: the protocol that every store implements."""

from collections.abc import Iterator
from typing import Protocol


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

    def trim(self, kind: str, keep: int) -> None:
        """Delete all but the newest `keep` values of a log; their numbers are never reused."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...
