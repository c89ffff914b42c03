"""Replays: recorded queries asked again of a changed catalogue, to see what moved.

A recording is a list of probes: a query, the tool that was then called, and how often. It comes
from what a gateway keeps of past calls, or from a file. Ranks are those of the search alone: what
past calls teach is left out, because it would hide what a change does.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from toolscout.audit.probes import Probe
from toolscout.catalog import Catalog
from toolscout.errors import ModelError
from toolscout.schemas import Json
from toolscout.search.feedback import is_hashed, usage_from_bytes
from toolscout.search.index import Index
from toolscout.sessions.usage import USAGE_KIND
from toolscout.stores.store import Store

FOUND_WITHIN = 5
LOOKED_AT = 50

Report = Callable[[int], None]


class Fate(StrEnum):
    """What became of a query's tool, worst first."""

    GONE = "gone"
    """It is not in the new catalogue."""
    MISSING = "missing"
    """It was found before, and is not."""
    LOWER = "lower"
    UNFOUND = "unfound"
    """It is not found, and was not before or nothing is known of before."""
    HIGHER = "higher"
    FOUND = "found"
    """It is found, and was not before."""
    SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One query, and where its tool stands."""

    query: str
    tool: str
    times: int
    before: int | None
    """The rank in the old catalogue; nothing if not found, or if there is no old one."""
    after: int | None
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a change of the catalogue does to recorded queries."""

    moves: tuple[Move, ...]
    within: int
    """The rank up to which a tool counts as found."""
    compared: bool
    """Whether there was an old catalogue."""

    @property
    def found(self) -> float:
        """The share of recorded queries whose tool is found, each as often as it was asked."""
        return self._share([move.after for move in self.moves])

    @property
    def found_before(self) -> float | None:
        """The same for the old catalogue."""
        return self._share([move.before for move in self.moves]) if self.compared else None

    @property
    def counts(self) -> Counter[Fate]:
        """How many queries met each fate."""
        return Counter(move.fate for move in self.moves)

    def to_json(self) -> Json:
        """Return the replay as plain JSON."""
        return {
            "queries": len(self.moves),
            "within": self.within,
            "found": round(self.found, 4),
            "found_before": None if self.found_before is None else round(self.found_before, 4),
            "counts": {fate.value: self.counts[fate] for fate in Fate if self.counts[fate]},
            "moves": [
                {
                    "query": move.query,
                    "tool": move.tool,
                    "times": move.times,
                    "before": move.before,
                    "after": move.after,
                    "fate": move.fate.value,
                }
                for move in self.moves
            ],
        }

    def _share(self, ranks: Sequence[int | None]) -> float:
        asked = sum(move.times for move in self.moves)
        pairs = zip(self.moves, ranks, strict=True)
        hit = sum(move.times for move, rank in pairs if rank is not None and rank <= self.within)
        return hit / asked if asked else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What past calls say should be found."""

    probes: tuple[Probe, ...]
    hashed: int
    """Calls whose query is kept as its hash alone, which cannot be asked again."""

    def to_lines(self) -> str:
        """Return JSON lines that `audit.read_probes` reads."""
        rows = [{"query": p.query, "tool": p.tools[0], "times": p.times} for p in self.probes]
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def read_recording(store: Store) -> Recording:
    """Return the successful calls that a gateway keeps, each with the query that led to it."""
    counts: Counter[tuple[str, str]] = Counter()
    hashed = 0
    for _, data in store.scan(USAGE_KIND):
        usage = usage_from_bytes(data)
        if usage is None or not usage.query or not usage.succeeded:
            continue
        if is_hashed(usage.query):
            hashed += 1
        else:
            counts[usage.query, usage.tool] += 1
    probes = (Probe(query=q, tools=(tool,), times=n) for (q, tool), n in counts.items())
    return Recording(probes=tuple(probes), hashed=hashed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the catalogues that are compared."""

    catalog: Catalog
    index: Index

    def rank(self, probe: Probe) -> int | None:
        """Return the best rank of a probe's tools, if one is among the first hits."""
        wanted = self.find_wanted(probe)
        try:
            hits = self.index.search(probe.query, LOOKED_AT).hits if wanted else ()
        except ModelError:  # a query that cannot be read finds nothing
            hits = ()
        return next((at for at, hit in enumerate(hits, 1) if hit.tool.name in wanted), None)

    def find_wanted(self, probe: Probe) -> set[str]:
        """Return the exposed names that a probe's tools have here."""
        return {tool.name for name in probe.tools for tool in self.catalog.resolve(name)}


def replay(
    probes: Iterable[Probe],
    new: Side,
    old: Side | None = None,
    *,
    within: int = FOUND_WITHIN,
    progress: Report = lambda done: None,
) -> Replay:
    """Ask recorded queries again; those that fared worst come first."""
    moves: list[Move] = []
    for probe in probes:
        before, after = old.rank(probe) if old else None, new.rank(probe)
        moves.append(
            Move(
                query=probe.query,
                tool=probe.tools[0],
                times=probe.times,
                before=before,
                after=after,
                fate=_decide_fate(
                    before, after, within, is_known=bool(new.find_wanted(probe)), old=old
                ),
            )
        )
        progress(1)
    order = list(Fate)
    moves.sort(key=lambda move: (order.index(move.fate), -move.times, move.query, move.tool))
    return Replay(moves=tuple(moves), within=within, compared=old is not None)


def _decide_fate(
    before: int | None, after: int | None, within: int, *, is_known: bool, old: Side | None
) -> Fate:
    was, now = (rank is not None and rank <= within for rank in (before, after))
    if not is_known:
        return Fate.GONE
    if old is None:
        return Fate.FOUND if now else Fate.UNFOUND
    if was != now:
        return Fate.FOUND if now else Fate.MISSING
    if before == after or not now:
        return Fate.SAME if now else Fate.UNFOUND
    return Fate.LOWER if (after or 0) > (before or 0) else Fate.HIGHER
