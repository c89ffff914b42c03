"""`UsageLog`: how past calls of a scout ended, and what searches learn from it.

Takes the code of each call; gives feedback to searches and a sentence on failures to descriptions.
With a store, the log survives a restart, and scouts that share the store learn from each other.
"""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from toolscout.search.feedback import (
    OK,
    Feedback,
    Forgetting,
    Usage,
    bytes_from_forgetting,
    bytes_from_usage,
    forgetting_from_bytes,
    usage_from_bytes,
)
from toolscout.sessions.events import Defer, run_now
from toolscout.sessions.texts import report_failures
from toolscout.stores.store import Store
from toolscout.tools import Tool

USAGE_KIND = "usage"
USAGE_KEPT = 10_000
TRIMMED_EVERY = 500
REMEMBERED_CALLS = 20
"""Calls of one tool from which its failures are reported."""
MADE = frozenset({OK, "tool_error", "call_failed", "timed_out"})
"""Codes of calls that reached the tool; the others were refused before."""

_log = logging.getLogger(__name__)


class UsageLog:
    """Remembers which query led to which call, and how it ended; threads may share it.

    A call counts from the next search on; `defer` decides when the store has it.
    """

    def __init__(
        self,
        store: Store | None,
        clock: Callable[[], float],
        defer: Defer = run_now,
        *,
        feedback: Feedback | None = None,
    ) -> None:
        self.feedback = Feedback(clock=clock) if feedback is None else feedback
        self._store = store
        self._clock = clock
        self._defer = defer
        self._writer = secrets.token_hex(4)
        self._seen = 0
        self._codes: dict[str, deque[str]] = {}
        self._added = 0
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self.read_news()

    def add(
        self,
        session: str,
        query: str,
        tool: str,
        code: str,
        *,
        principal: str = "",
        chance: float | None = None,
    ) -> None:
        """Note one call, made or refused; `chance` is the score of the search that found it."""
        usage = Usage(
            session=session,
            query=query,
            tool=tool,
            code=code,
            at=self._clock(),
            principal=principal,
            chance=chance,
            writer=self._writer,
        )
        self._remember(usage)
        if self._store is not None:
            self._defer(partial(self._write, usage, self._store))

    def forget(self, *, tool: str = "", request: str = "") -> int:
        """Forget what was learned about a tool, from a request, or at all; return how much it was.

        Scouts that share the store forget it too when they next read the news.
        """
        order = Forgetting(at=self._clock(), tool=tool, request=request, writer=self._writer)
        gone = self.feedback.forget(order)
        if self._store is not None:
            if not (tool or request):
                self._store.trim(USAGE_KIND, 0)
            self._store.append(USAGE_KIND, bytes_from_forgetting(order))
        return gone

    def read_news(self) -> None:
        """Learn from what other processes have written to the store since the last time.

        This reads the store, so an event loop should call it in a thread.
        """
        if self._store is None:
            return
        with self._reading:
            for number, data in self._store.scan(USAGE_KIND, self._seen):
                self._seen = number
                usage = usage_from_bytes(data)
                order = forgetting_from_bytes(data)
                if usage is not None and usage.writer != self._writer:
                    self._remember(usage)
                elif order is not None and order.writer != self._writer:
                    self.feedback.forget(order)

    def describe_failures(self, tool: Tool) -> str:
        """Return a sentence on a tool's recent failures, or an empty text."""
        with self._lock:
            codes = list(self._codes.get(tool.name, ()))
        failed = [code for code in codes if code != OK]
        return report_failures(tool.name, len(codes), failed) if failed else ""

    def _remember(self, usage: Usage) -> None:
        if usage.code not in MADE:
            return  # a refusal says nothing about the tool
        with self._lock:
            codes = self._codes.setdefault(usage.tool, deque(maxlen=REMEMBERED_CALLS))
            codes.append(usage.code)
        if usage.query:
            self.feedback.learn(
                usage.query,
                usage.tool,
                succeeded=usage.succeeded,
                principal=usage.principal,
                chance=usage.chance,
                at=usage.at,
            )

    def _write(self, usage: Usage, store: Store) -> None:
        try:
            store.append(USAGE_KIND, bytes_from_usage(usage))
            with self._lock:
                self._added += 1
                is_due = self._added % TRIMMED_EVERY == 0
            if is_due:
                store.trim(USAGE_KIND, USAGE_KEPT)
        except Exception:
            # The tool may have run: a failing store must not cost the model its result.
            _log.exception("The store could not record how a call ended.")
