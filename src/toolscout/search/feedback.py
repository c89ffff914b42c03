"""Learn from past calls which tools to rank higher (R37).

`Usage` records the outcome of one call and the query that led to it. `Feedback` learns from such
outcomes and raises tools that served similar queries. It only reorders the hits of a search, so
a tool that the caller may not see stays hidden (R77), and it never displaces an exact hit.
Others decide who stores usages, for how long, and whether their queries are hashed.
"""

import hashlib
import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import exp, fsum

from toolscout.errors import InvalidQuery
from toolscout.query import Query, query_from_text
from toolscout.search.fusion import confidence_from_chance, count_worth_showing
from toolscout.search.hits import Confidence, Hit, Result, Why
from toolscout.search.text import drop_stop_words, split_words, stem

OK = "ok"

_HASHED = re.compile(r"#[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One call of one tool."""

    session: str
    query: str
    """The query of the search before the call, plain or hashed; empty if there was none."""
    tool: str
    """The exposed name."""
    code: str
    """`ok`, or the code of the error."""
    at: float
    """Seconds since the epoch."""

    @property
    def succeeded(self) -> bool:
        """Whether the call succeeded."""
        return self.code == OK


def bytes_from_usage(usage: Usage) -> bytes:
    """Return a usage as JSON."""
    return json.dumps(asdict(usage), separators=(",", ":")).encode()


def usage_from_bytes(data: bytes) -> Usage | None:
    """Return the usage in some JSON, ignoring unknown members, or None if there is no usage."""
    try:
        row = json.loads(data)
        texts = [row[name] for name in ("session", "query", "tool", "code")]
        at = row["at"]
        is_time = isinstance(at, int | float) and not isinstance(at, bool) and math.isfinite(at)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
        return None
    if not is_time or not all(isinstance(text, str) for text in texts):
        return None
    session, query, tool, code = texts
    return Usage(session=session, query=query, tool=tool, code=code, at=float(at))


def hash_query(query: str) -> str:
    """Return a query's hash as `#` and 16 hexadecimal digits, ignoring case and extra spaces.

    A query that is already a hash is returned unchanged.
    """
    if is_hashed(query):
        return query
    plain = " ".join(query.casefold().split())
    return "#" + hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_hashed(query: str) -> bool:
    """Tell whether a query is a hash."""
    return _HASHED.fullmatch(query) is not None


PAIRS = 10_000
"""How many pairs of query and tool to remember; the oldest are forgotten first."""
TERM_LIMIT = 64
"""How many distinct terms of a query are compared."""
MOST_LIFT = 2.0
"""The most that past calls can raise a chance, in log-odds."""
FADING = 0.9
"""Each new outcome of a query multiplies the weight of its earlier ones by this."""

Terms = frozenset[str]
"""The terms of a query, or only its hash, which no term can equal because it starts with `#`."""


class Feedback:
    """Remembers which tools served which queries; safe to share between threads.

    `past` gives the query, the tool and whether the call succeeded, oldest call first.
    """

    def __init__(self, past: Iterable[tuple[str, str, bool]] = (), *, pairs: int = PAIRS) -> None:
        self._most_pairs = pairs
        self._lock = threading.Lock()
        self._standings: dict[Terms, dict[str, float]] = {}
        self._having: dict[str, set[Terms]] = {}
        self._pairs: dict[tuple[Terms, str], None] = {}
        self.is_empty = True
        """Whether nothing has been learnt yet, so that no result would change."""
        for query, tool, succeeded in past:
            self.learn(query, tool, succeeded=succeeded)

    def learn(self, query: str, tool: str, *, succeeded: bool) -> None:
        """Learn from one call.

        A hashed query helps only equal queries. A query that names tools or that cannot be parsed
        is ignored.
        """
        asked = _read_learnt_terms(query)
        if asked:
            self.is_empty = False
            with self._lock:
                outcome = 1.0 if succeeded else -1.0
                standing = self._standings.setdefault(asked, {})
                for known in standing:
                    standing[known] *= FADING
                standing[tool] = standing.get(tool, 0.0) + outcome
                for each in asked:
                    self._having.setdefault(each, set()).add(asked)
                self._pairs.pop((asked, tool), None)
                self._pairs[asked, tool] = None
                while len(self._pairs) > self._most_pairs:
                    self._forget(*next(iter(self._pairs)))

    def apply(self, result: Result, limit: int) -> Result:
        """Return the `limit` best hits of a result after raising those that past calls support.

        The result should have more hits than `limit`, so that there is something to raise. Hits
        with equal chances keep their order.
        """
        if result.query.select:
            return result  # tools selected by name are all returned, whatever the limit
        lifts = self._compute_lifts(result)
        if not lifts and len(result) <= limit:
            return result
        hits = [_lift_hit(hit, lifts.get(hit.tool.name, 0.0)) for hit in result.hits]
        if lifts:
            keeps_kinds = not result.query.wants_context
            hits.sort(
                key=lambda hit: (
                    hit.confidence is not Confidence.EXACT,
                    keeps_kinds and hit.tool.is_context,
                    -hit.score,
                )
            )
        best = tuple(hits[:limit])
        return replace(result, found=best, worth=count_worth_showing([hit.score for hit in best]))

    def _forget(self, asked: Terms, tool: str) -> None:
        del self._pairs[asked, tool], self._standings[asked][tool]
        if self._standings[asked]:
            return
        del self._standings[asked]
        for each in asked:
            self._having[each].discard(asked)
            if not self._having[each]:
                del self._having[each]

    def _compute_lifts(self, result: Result) -> dict[str, float]:
        """Return the lift, in log-odds, of each tool that past calls of similar queries support."""
        with self._lock:
            if not self._standings:
                return {}
            past = [
                (nearness, self._standings[learnt])
                for asked in _list_asked_terms(result)
                for learnt in self._find_similar(asked)
                if (nearness := _compare_terms(asked, learnt)) > 0
            ]
            if not past:
                return {}  # reading the hits would make all of them
            found = {hit.tool.name: _compute_lift(hit.tool.name, past) for hit in result.hits}
        return {name: lift for name, lift in found.items() if lift > 0}

    def _find_similar(self, asked: Terms) -> set[Terms]:
        """Return the past queries that may share more than half of the terms.

        Such a query has at least one term of any half, so only the rarest half is looked up.
        """
        rarest = sorted(asked, key=lambda each: len(self._having.get(each, ())))
        tried = rarest[: len(asked) - len(asked) // 2]
        return set[Terms]().union(*(self._having.get(each, ()) for each in tried))


def _read_learnt_terms(query: str) -> Terms:
    if is_hashed(query):
        return frozenset((query,))
    with suppress(InvalidQuery):
        asked = query_from_text(query)
        return _stem_words(_split_query(asked)) or _hash_terms(asked)
    return frozenset()


def _list_asked_terms(result: Result) -> Sequence[Terms]:
    understood = [result.corrected.get(word, word) for word in _split_query(result.query)]
    return [both for both in (_stem_words(understood), _hash_terms(result.query)) if both]


def _split_query(query: Query) -> list[str]:
    return split_words(" ".join((query.words, *query.required)))


def _stem_words(listed: list[str]) -> Terms:
    return frozenset(list(dict.fromkeys(map(stem, drop_stop_words(listed))))[:TERM_LIMIT])


def _hash_terms(query: Query) -> Terms:
    # A query without words only lists tools, so a later call says nothing about it.
    return frozenset((hash_query(query.text),)) if query.words or query.required else frozenset()


def _compare_terms(asked: Terms, learnt: Terms) -> float:
    """Return 1 for equal terms, and 0 if at most half of the longer query's terms are shared.

    Half is often only the verb: 'create issue' says nothing about 'create channel'.
    """
    return max(0.0, 2 * len(asked & learnt) / max(len(asked), len(learnt)) - 1)


def _compute_lift(tool: str, past: Sequence[tuple[float, dict[str, float]]]) -> float:
    """Return the log-odds that past queries add: up to `MOST_LIFT` times the best nearness."""
    known = [(nearness, standing[tool]) for nearness, standing in past if tool in standing]
    # `past` comes from sets, so its order varies; `fsum` gives the same sum for any order.
    support = fsum(nearness * strength for nearness, strength in known)
    if support <= 0:
        return 0.0  # a call may fail because of its arguments, so failures never lower a tool
    nearest = max(nearness for nearness, strength in known if strength > 0)
    return MOST_LIFT * nearest * support / (support + 1)


def _lift_hit(hit: Hit, lift: float) -> Hit:
    if hit.confidence is Confidence.EXACT or not lift:
        return hit
    factor = exp(lift)
    chance = round(hit.score * factor / (1 - hit.score + hit.score * factor), 6)
    if chance <= hit.score:
        return hit
    explain = partial(_explain_lift, hit.explain, hit.score / chance)
    return replace(hit, score=chance, confidence=confidence_from_chance(chance), explain=explain)


def _explain_lift(explain: Callable[[], Why], found: float) -> Why:
    """Return an explanation in which the search has the share `found` and past calls the rest."""
    why = explain()
    shares = {name: share * found for name, share in why.shares.items()}
    return replace(why, shares={**shares, "past calls": 1 - fsum(shares.values())})
