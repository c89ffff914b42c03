"""The audit record for a person: its entries, newest first, and whether it is complete.

It tells what everybody did, so only a token without a profile may read it. A page of entries looks
at a bounded number of them; the whole record is read by one thread at a time.
"""

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping

from toolscout.catalog import Pace
from toolscout.config.gateway import GatewayConfig
from toolscout.console.activity import format_time
from toolscout.console.views import ApiError, View
from toolscout.gateway.audit import (
    KIND,
    entry_from_line,
    is_wanted,
    parse_since,
    read_entries,
    verify,
)
from toolscout.schemas import Json
from toolscout.stores.store import Store

PAGE_SIZE = 50
PAGE_SIZE_MAX = 200
ENTRIES_READ = 20_000
"""How many entries a request looks at; the next one goes on from there."""
FAULTS_SHOWN = 20
WAIT_SECONDS = 5.0
"""How long a request waits until the record is checked."""
PATTERN_CHARS = 200


class AuditTable:
    """The audit record in the store of one gateway."""

    def __init__(self, store: Store, config: GatewayConfig) -> None:
        self._store = store
        self._config = config
        self._checking: asyncio.Future[Json] | None = None
        self._is_closing = threading.Event()

    def list_page(
        self, view: View, wanted: Mapping[str, str], *, since: str, before: str, limit: int
    ) -> Json:
        """Return the newest entries that fit, older than `before`; this reads from the store.

        `wanted` has patterns by the names of `FILTERS`. `older` of the answer is the `before` of
        the next page.
        """
        view.refuse_limited("The audit record is")
        patterns = {name: text[:PATTERN_CHARS] for name, text in wanted.items() if text}
        start = parse_since(since) if since else ""
        found, older = self._find(patterns, start, _parse_place(before), limit)
        config = self._config
        return {
            "entries": found,
            "older": older,
            "recorded": config.audit,
            "days": config.audit_days,
            "with_arguments": config.audit_arguments,
            "with_queries": config.audit_queries,
            "file": bool(config.audit_file),
        }

    def _find(
        self, patterns: Mapping[str, str], since: str, place: tuple[int, int] | None, limit: int
    ) -> tuple[list[Json], str]:
        found: list[Json] = []
        looked_at = 0
        pace = Pace(ENTRIES_READ)
        for number, block in self._store.scan_back(KIND, None if place is None else place[0] + 1):
            entries = list(map(entry_from_line, block.split(b"\n")))
            if all(str(entry.get("time", since)) < since for entry in entries):
                break
            if place is not None and place[0] == number:
                entries = entries[: place[1]]
            for at in reversed(range(len(entries))):
                pace.step()
                if len(found) == limit or looked_at == ENTRIES_READ:
                    return found, f"{number}.{at + 1}"
                looked_at += 1
                if is_wanted(entries[at], patterns, since):
                    found.append(entries[at])
        return found, ""

    async def check(self, view: View, *, again: bool) -> Json:
        """Return whether the record is complete, as it was checked last or is checked now."""
        view.refuse_limited("The audit record is")
        if self._checking is None or (again and self._checking.done()):
            self._checking = asyncio.ensure_future(asyncio.to_thread(self._verify))
        done, _ = await asyncio.wait((self._checking,), timeout=WAIT_SECONDS)
        if not done:
            return {"state": "checking"}
        if self._checking.exception() is not None:
            failed, self._checking = self._checking, None
            return failed.result()  # raises it
        return self._checking.result()

    def close(self) -> None:
        """Give up a check that is under way."""
        self._is_closing.set()

    def _verify(self) -> Json:
        found = verify(self._read_slowly())
        return {
            "state": "faulty" if found.faults else "complete",
            "time": format_time(time.time()),
            "entries": found.entries,
            "runs": found.chains,
            "open_runs": found.open_chains,
            "faults": found.faults[:FAULTS_SHOWN],
            "more_faults": max(0, len(found.faults) - FAULTS_SHOWN),
        }

    def _read_slowly(self) -> Iterator[Json]:
        pace = Pace(ENTRIES_READ)
        for entry in read_entries(self._store):
            if self._is_closing.is_set():
                raise ApiError(503, "stopping", "The gateway stops.", "Ask again later.")
            pace.step()
            yield entry


def _parse_place(text: str) -> tuple[int, int] | None:
    """Return a number in the log and how many entries of that block are meant, or None."""
    number, _, count = text.partition(".")
    parts = (number, count)
    if not text:
        return None
    if not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts):
        hint = "Use the `older` of the page before."
        raise ApiError(400, "no_place", f"The parameter 'before' is {text[:40]!r}.", hint)
    return int(number), int(count)
