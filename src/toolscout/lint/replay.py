"""Replay recorded queries on a changed catalogue to see which tools moved in the ranking.

A recording is a list of probes: a query, the tool that was called after it, and how often. It comes
from the calls that a gateway has stored, or from a file. Ranks come from search without feedback,
which would hide the effect of a change.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

from toolscout.lint.probes import FOUND_WITHIN, Probe, find_rank
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.search.feedback import is_hashed, usage_from_bytes
from toolscout.sessions.usage import USAGE_KIND
from toolscout.stores.store import Store


class Fate(StrEnum):
    """What happened to the tool of a query, worst first."""

    GONE = "gone"
    """The new catalogue does not have it."""
    MISSING = "missing"
    """It was found before and is not found now."""
    LOWER = "lower"
    UNFOUND = "unfound"
    """It is not found now, and was not before, or there is no old catalogue."""
    HIGHER = "higher"
    FOUND = "found"
    """It is found now and was not before."""
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Move:
    """One query and the rank of its tool before and after."""

    query: str
    tool: str
    times: int
    before: int | None
    """The rank in the old catalogue, or None if not found or if there is no old catalogue."""
    after: int | None
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The effect of a change of the catalogue on recorded queries."""

    moves: tuple[Move, ...]
    within: int
    """The rank up to which a tool counts as found."""
    compared: bool
    """Whether there was an old catalogue."""

    @property
    def found(self) -> float:
        """The share of recorded queries whose tool is found, weighted by how often they ran."""
        return self._compute_share(move.after for move in self.moves)

    @property
    def found_before(self) -> float | None:
        """The same for the old catalogue, or None without one."""
        return self._compute_share(move.before for move in self.moves) if self.compared else None

    @property
    def counts(self) -> Counter[Fate]:
        """How many queries have each fate."""
        return Counter(move.fate for move in self.moves)

    def to_json(self) -> Json:
        """Return the replay as plain JSON."""
        return {
            "queries": len(self.moves),
            "within": self.within,
            "found": round(self.found, 4),
            "found_before": None if self.found_before is None else round(self.found_before, 4),
            "counts": {fate.value: self.counts[fate] for fate in Fate if self.counts[fate]},
            "moves": [asdict(move) for move in self.moves],
        }

    def _compute_share(self, ranks: Iterable[int | None]) -> float:
        asked = sum(move.times for move in self.moves)
        pairs = zip(self.moves, ranks, strict=True)
        hit = sum(move.times for move, rank in pairs if rank is not None and rank <= self.within)
        return hit / asked if asked else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Probes made from the calls that a gateway has stored."""

    probes: tuple[Probe, ...]
    hashed: int
    """How many calls were left out because only the hash of their query is stored."""

    def to_lines(self) -> str:
        """Return JSON lines that `probes.read_probes` can read."""
        rows = [{"query": p.query, "tool": p.tools[0], "times": p.times} for p in self.probes]
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def read_recording(store: Store) -> Recording:
    """Return the successful calls in a gateway's store, each with the query that led to it."""
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


def replay(
    probes: Iterable[Probe],
    new: Scout,
    old: Scout | None = None,
    *,
    within: int = FOUND_WITHIN,
    progress: Callable[[int], None] = lambda done: None,
) -> Replay:
    """Run recorded queries again and compare the ranks of their tools; worst fates come first.

    `progress` is called with 1 after each query.
    """
    moves: list[Move] = []
    for probe in probes:
        before = _rank(old, probe) if old else None
        after = _rank(new, probe)
        fate = Fate.GONE
        if any(map(new.catalog.resolve, probe.tools)):
            fate = _decide_fate(before, after, within, compared=old is not None)
        moves.append(Move(probe.query, probe.tools[0], probe.times, before, after, fate))
        progress(1)
    order = list(Fate)
    moves.sort(key=lambda move: (order.index(move.fate), -move.times, move.query, move.tool))
    return Replay(moves=tuple(moves), within=within, compared=old is not None)


def _rank(scout: Scout, probe: Probe) -> int | None:
    """Return the best rank of a probe's tools, if one is among the first hits."""
    wanted = {tool.name for name in probe.tools for tool in scout.catalog.resolve(name)}
    return find_rank(scout.index, probe.query, wanted)[0] if wanted else None


def _decide_fate(before: int | None, after: int | None, within: int, *, compared: bool) -> Fate:
    was = before is not None and before <= within
    now = after is not None and after <= within
    if not compared:
        return Fate.FOUND if now else Fate.UNFOUND
    if was != now:
        return Fate.FOUND if now else Fate.MISSING
    if before == after or not now:
        return Fate.SAME if now else Fate.UNFOUND
    return Fate.LOWER if (after or 0) > (before or 0) else Fate.HIGHER
