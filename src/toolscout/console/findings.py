"""`Findings`: what `lints` says about the tools of a catalogue, worked out once for each content.

Linting a large catalogue takes a while, so that nobody waits for it: until it is done there are
no findings, and then `on_ready` is told.
"""

import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from toolscout.audit import Finding, Near, findings, near
from toolscout.catalog import Catalog
from toolscout.console.views import View
from toolscout.schemas import Json
from toolscout.search.index import Index
from toolscout.tools import Tool

MANY_TOOLS = 5_000
FEW_PROBED = 500
"""Tools of such a catalogue for which a search is tried: searches of a person go first."""
TURN_SECONDS = 1e-4
WAIT_SECONDS = 0.05
NEAR_TRIED = 50
"""Nearest tools among which a caller's own are looked for."""


class Findings:
    """Findings by tool; threads may share it."""

    def __init__(
        self,
        catalog: Catalog,
        index: Index,
        on_ready: Callable[[], None],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._catalog, self._index, self._on_ready = catalog, index, on_ready
        self._is_busy = is_busy
        self._found: tuple[str, dict[str, list[Finding]]] = ("", {})
        self._working = ""
        self._lock = threading.Lock()

    def counts(self, view: View, tools: Sequence[Tool]) -> list[int | None]:
        """Return how many findings each tool has, or nothing while that is worked out."""
        found = self._ready()
        if found is None:
            return [None] * len(tools)
        return [len(_visible(found.get(tool.name, []), view)) for tool in tools]

    def of(self, view: View, tool: Tool) -> list[Json]:
        """Return the findings of one tool, worst first; none while they are worked out."""
        found = self._ready() or {}
        return [_row(finding) for finding in _visible(found.get(tool.name, []), view)]

    def near(self, view: View, tool: Tool, count: int) -> list[Near]:
        """Return the visible tools nearest in meaning to one, nearest first."""
        if not view.is_limited:
            return list(near(self._index, tool.name, count))
        tried = near(self._index, tool.name, NEAR_TRIED)
        return [one for one in tried if view.sees_tool(one.name)][:count]

    def _ready(self) -> dict[str, list[Finding]] | None:
        fingerprint = self._catalog.fingerprint
        with self._lock:
            if self._found[0] == fingerprint:
                return self._found[1]
            if self._working != fingerprint:
                self._working = fingerprint
                threading.Thread(target=self._work, args=(fingerprint,), daemon=True).start()
        return None

    def _work(self, fingerprint: str) -> None:
        most = FEW_PROBED if len(self._catalog) > MANY_TOOLS else MANY_TOOLS
        with _giving_way():
            found = findings(
                self._catalog, self._index, most_probed=most, progress=self._wait_while_busy
            )
        with self._lock:
            self._found = (fingerprint, found)
        self._on_ready()

    def _wait_while_busy(self, stage: str, done: int, total: int) -> None:
        """Stand aside while somebody types."""
        while self._is_busy():
            time.sleep(WAIT_SECONDS)


@contextmanager
def _giving_way() -> Generator[None]:
    """Let other threads in often: a search that a person waits for takes many short turns.

    At 22,665 tools a key took 243 ms with Python's usual turns of 5 ms, and 92 ms with these.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _visible(found: Sequence[Finding], view: View) -> list[Finding]:
    """Return the findings that name no tool which the caller may not know."""
    if not view.is_limited:
        return list(found)
    return [finding for finding in found if all(map(view.sees_tool, finding.others))]


def _row(finding: Finding) -> Json:
    told = finding.to_json()
    return {key: told[key] for key in ("code", "severity", "message", "remedy", "others")}
