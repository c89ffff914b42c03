"""Notices: what a change of the catalogue did, told to all who follow it.

Changes are posted under the catalogue's lock and told outside it, in the order in which they
were made. A subscriber that fails costs the others nothing.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from toolscout.tools import Tool

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one change did. A tool with new content is in both lists: old removed, new added."""

    version: int
    server: str
    added: tuple[Tool, ...]
    removed: tuple[Tool, ...]


class Notices:
    """Hands changes to subscribers in the order in which they were posted."""

    def __init__(self) -> None:
        self._waiting: deque[Change] = deque()
        self._turn = threading.RLock()
        self._listing = threading.Lock()
        self._delivering = False
        self._subscribers: tuple[tuple[int, Callable[[Change], None]], ...] = ()

    def subscribe(self, callback: Callable[[Change], None], since: int) -> Callable[[], None]:
        """Tell a callback every change after a version; the result ends that."""
        entry = (since, callback)
        with self._listing:
            self._subscribers = (*self._subscribers, entry)

        def unsubscribe() -> None:
            with self._listing:
                self._subscribers = tuple(e for e in self._subscribers if e is not entry)

        return unsubscribe

    def post(self, change: Change) -> None:
        """Put a change behind those that wait."""
        self._waiting.append(change)

    def deliver(self) -> None:
        """Tell all changes that wait, one thread at a time."""
        with self._turn:
            # A callback that changes the catalogue comes back here: its notice waits its turn.
            if self._delivering:
                return
            self._delivering = True
            try:
                while self._waiting:
                    self._tell(self._waiting.popleft())
            finally:
                self._delivering = False

    def _tell(self, change: Change) -> None:
        for since, callback in self._subscribers:
            if change.version <= since:
                continue
            try:
                callback(change)
            except Exception:
                _log.exception("A subscriber failed on change %d.", change.version)
