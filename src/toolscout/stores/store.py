"""`Store`: the protocol that every store implements."""

from collections.abc import Iterator
from typing import Protocol


class Store(Protocol):
    """Keeps values between runs, by kind and key, and logs by kind."""

    def read(self, kind: str, key: str) -> bytes | None:
        """Return a value, or None."""
        ...

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Keep a value; None deletes it."""
        ...

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        ...

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to a log."""
        ...

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield a log's values with their numbers, oldest first."""
        ...

    def trim(self, kind: str, keep: int) -> None:
        """Delete all but the newest values of a log."""
        ...

    def close(self) -> None:
        """Release what is held open."""
        ...
