"""`Experience`: what past calls of a scout teach, and where they are kept.

Takes the code of each call; gives feedback to searches and a sentence on failures to
descriptions. With a store, it is there again after a restart.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from toolscout.search.feedback import OK, Feedback, Usage, bytes_from_usage, usage_from_bytes
from toolscout.sessions.events import Defer, run_now
from toolscout.sessions.session import Store
from toolscout.tools import Tool

USAGE_KIND = "usage"
USAGE_KEPT = 10_000
TRIMMED_EVERY = 500
REMEMBERED_CALLS = 20
"""Calls of one tool from which its failures are told."""
MADE = frozenset({OK, "tool_error", "call_failed", "timed_out"})
"""Codes of calls that reached the tool; the others were refused before."""

_log = logging.getLogger(__name__)


class Experience:
    """Remembers which query led to which call, and how it ended; threads may share it.

    What was learnt counts from the next search on; the store has it when `defer` runs.
    """

    def __init__(
        self, store: Store | None, clock: Callable[[], float], defer: Defer = run_now
    ) -> None:
        self.feedback = Feedback()
        self._store, self._clock, self._defer = store, clock, defer
        self._codes: dict[str, deque[str]] = {}
        self._added = 0
        self._lock = threading.Lock()
        for _, data in store.scan(USAGE_KIND) if store is not None else ():
            usage = usage_from_bytes(data)
            if usage is not None:
                self._remember(usage)

    def learn(self, session: str, query: str, tool: str, code: str) -> None:
        """Take note of one call or refusal."""
        usage = Usage(session=session, query=query, tool=tool, code=code, at=self._clock())
        self._remember(usage)
        if self._store is not None:
            self._defer(partial(self._keep, usage, self._store))

    def _keep(self, usage: Usage, store: Store) -> None:
        try:
            store.append(USAGE_KIND, bytes_from_usage(usage))
            with self._lock:
                self._added += 1
                is_due = self._added % TRIMMED_EVERY == 0
            if is_due:
                store.trim(USAGE_KIND, USAGE_KEPT)
        except Exception:
            # The tool may have run: a store that fails now must not cost the model its result.
            _log.exception("A store could not keep how a call ended.")

    def failures(self, tool: Tool) -> str:
        """Return what is known of a tool's failures, as a sentence or nothing."""
        with self._lock:
            codes = list(self._codes.get(tool.name, ()))
        failed = [code for code in codes if code != OK]
        if not failed:
            return ""
        kinds = ", ".join(dict.fromkeys(failed))
        return f"Of the last {len(codes)} calls of {tool.name}, {len(failed)} failed: {kinds}."

    def _remember(self, usage: Usage) -> None:
        if usage.code not in MADE:
            return  # a refusal says nothing of the tool
        with self._lock:
            codes = self._codes.setdefault(usage.tool, deque(maxlen=REMEMBERED_CALLS))
            codes.append(usage.code)
        if usage.query:
            self.feedback.learn(usage.query, usage.tool, succeeded=usage.succeeded)
