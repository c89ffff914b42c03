"""Learn from past calls which tools to rank higher (R37).

`Usage` records how one call ended and which query led to it. `Feedback` remembers such queries with
their vectors, and raises the tools that served similar ones. What one principal asked helps only
that principal, unless learning is shared. A tool that the caller may not see stays hidden (R77),
and an exact hit stays first. Others decide who stores usages, for how long, and whether their
queries are hashed.
"""

import hashlib
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import exp, fsum, log, sqrt
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import GRID, Floats, normalize_row, take_leading_row
from toolscout.errors import InvalidQuery
from toolscout.query import Query, query_from_text
from toolscout.schemas import Json, is_object
from toolscout.search.fusion import confidence_from_chance, count_worth_showing
from toolscout.search.hits import Confidence, Hit, Result, Why
from toolscout.search.index import SearchIndex
from toolscout.search.rank import CANDIDATES
from toolscout.search.shard import compare_vectors
from toolscout.search.text import drop_stop_words, name_values, split_words, stem
from toolscout.settings import Learning
from toolscout.tools import Tool

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
    principal: str = ""
    """Who made the call; empty in the library and over stdio."""
    chance: float | None = None
    """The score that the search gave the tool before it was raised, if that is known."""
    writer: str = ""
    """The process that wrote the row, so that it does not learn from it twice."""

    @property
    def succeeded(self) -> bool:
        """Whether the call succeeded."""
        return self.code == OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """An order to forget what was learned: of a tool, of a request, or everything."""

    at: float
    """Seconds since the epoch; what was learned later stays."""
    tool: str = ""
    request: str = ""
    writer: str = ""


def bytes_from_usage(usage: Usage) -> bytes:
    """Return a usage as JSON."""
    return json.dumps(asdict(usage), separators=(",", ":")).encode()


def usage_from_bytes(data: bytes) -> Usage | None:
    """Return the usage in some JSON, ignoring unknown members, or None if there is no usage."""
    row = _read_row(data)
    texts = [row.get(name) for name in ("session", "query", "tool", "code")]
    at = row.get("at")
    if not _is_number(at) or not all(isinstance(text, str) for text in texts):
        return None
    session, query, tool, code = map(str, texts)
    chance = row.get("chance")
    return Usage(
        session=session,
        query=query,
        tool=tool,
        code=code,
        at=float(at),
        principal=_get_text(row, "principal"),
        chance=min(max(float(chance), 0.0), 1.0) if _is_number(chance) else None,
        writer=_get_text(row, "writer"),
    )


def bytes_from_forgetting(order: Forgetting) -> bytes:
    """Return an order to forget as JSON."""
    return json.dumps({"forget": True, **asdict(order)}, separators=(",", ":")).encode()


def forgetting_from_bytes(data: bytes) -> Forgetting | None:
    """Return the order in some JSON, or None if there is none."""
    row = _read_row(data)
    at = row.get("at")
    if row.get("forget") is not True or not _is_number(at):
        return None
    return Forgetting(
        at=float(at),
        tool=_get_text(row, "tool"),
        request=_get_text(row, "request"),
        writer=_get_text(row, "writer"),
    )


def _read_row(data: bytes) -> Json:
    try:
        row = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return row if is_object(row) else {}


def _is_number(value: object) -> TypeGuard[float]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _get_text(row: Json, key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def hash_query(query: str) -> str:
    """Return a query's hash as `#` and 16 hexadecimal digits, ignoring case and extra spaces.

    A query that is already a hash is returned unchanged.
    """
    if is_hashed(query):
        return query
    return "#" + hashlib.sha256(_fold(query).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_hashed(query: str) -> bool:
    """Tell whether a query is a hash."""
    return _HASHED.fullmatch(query) is not None


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


# What is remembered.

PAIRS = 10_000
"""How many pairs of request and tool to remember, of all principals together."""
REQUESTS_PER_TOOL = 32
"""How many requests to remember for one tool; the weakest are forgotten first."""
FADING = 0.9
"""Each new outcome of a request multiplies the strength of its earlier ones by this."""
HALF_LIFE_SECONDS = 90 * 86_400.0
_FADE_PER_SECOND = -log(2) / HALF_LIFE_SECONDS
UNKNOWN_CHANCE = 0.5
"""Stands for the chance of a tool where a usage does not say it."""

# How requests are compared.

NEAR = 16
"""How many of the nearest past requests count in a search."""
LEADING = 64
"""Many requests are compared by this many dimensions first."""
COMPARED_WHOLE = 512
ROUGH_NEAR = 128
ROUGHLY_ALIKE = 0.3
WORD_WIDTH = 512
"""The bits of a hash."""
ENCODED_AT_ONCE = 64
ENCODED_PER_SEARCH = 2_048

# How much past calls raise a tool; docs/search.md has the figures.

MOST_LIFT = 6.0
"""The most that past calls can raise a chance, in log-odds."""
LEAST_CHANCE = 0.005
"""Counts as the chance of a tool that the search thinks less of, if nearly the same request has led
to it several times."""
NEARNESS_STEP = 0.06
"""A past request that is less similar by this counts e times less."""
WEIGHTS = (10.0, 3.0, 7.0, -15.0)
"""What the lift in log-odds consists of: how much nearer the past request is than the nearest
definition, the logarithm of the tool's share among similar requests, how unlikely the search alone
found the tool then, and the root of the score that it gives now to a tool without history."""
ALIKE = (0.7, 0.9)
"""Similarities from and above which requests count as the same."""
REPEATED = (0.5, 0.75)
"""Strengths after one call and after about three."""
EXPLAINED = 3
"""Past requests that an explanation names."""

SHARED = ""
"""The principal under whom everything is remembered if learning is shared."""

Encode = Callable[[Sequence[str]], Sequence[Floats]]
"""Returns the vectors of questions, on the grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A past request that raises a tool."""

    tool: str
    request: str
    """The text, or its hash."""
    strength: float
    """Successes minus failures, faded; each principal counts for less than 1."""
    at: float
    """When it was last called."""
    principals: int


@dataclass(slots=True)
class _Voice:
    """What one principal's calls say about a request and a tool."""

    strength: float
    at: float

    def weigh(self, now: float) -> float:
        """Return between -1 and 1 how much it counts now."""
        faded = self.strength * exp(_FADE_PER_SECOND * max(now - self.at, 0.0))
        return faded / (1 + abs(faded))


@dataclass(slots=True)
class _Pair:
    """A request and a tool that was called after it."""

    chance: float
    voices: dict[str, _Voice] = field(default_factory=dict[str, _Voice])

    @property
    def at(self) -> float:
        return max(voice.at for voice in self.voices.values())

    def weigh(self, now: float) -> float:
        return fsum(voice.weigh(now) for voice in self.voices.values())


@dataclass(slots=True, eq=False)
class _Request:
    """A past request; `row` is the place of its vector, or None before it is encoded."""

    text: str
    row: int | None = None
    pairs: dict[str, _Pair] = field(default_factory=dict[str, _Pair])


class _Memory:
    """The requests that one principal, or all of them together, have made."""

    def __init__(self) -> None:
        self.requests: dict[str, _Request] = {}
        self.by_tool: dict[str, dict[str, None]] = {}
        self.waiting: dict[str, None] = {}
        """Requests that have yet to be encoded."""
        self._rows: list[_Request] = []
        self._exact = np.zeros((0, 0), np.int16)
        self._leading = np.zeros((LEADING, 0), np.float32)

    def get_pair(self, key: str, text: str, tool: str) -> _Pair:
        """Return the pair of a request and a tool, which may be new."""
        request = self.requests.get(key)
        if request is None:
            request = self.requests[key] = _Request(text)
            if not is_hashed(text):
                self.waiting[key] = None
        self.by_tool.setdefault(tool, {})[key] = None
        return request.pairs.setdefault(tool, _Pair(UNKNOWN_CHANCE))

    def remove_pair(self, key: str, tool: str) -> None:
        """Forget a pair, and its request if it has no other."""
        request = self.requests[key]
        del request.pairs[tool]
        del self.by_tool[tool][key]
        if not self.by_tool[tool]:
            del self.by_tool[tool]
        if not request.pairs:
            del self.requests[key]
            self.waiting.pop(key, None)
            self._remove_row(request)

    def add_vector(self, key: str, vector: Floats) -> None:
        """Note the vector of a request; one of zeros is found by its own text only."""
        if key not in self.waiting:
            return  # it was forgotten meanwhile, or another thread was faster
        del self.waiting[key]
        if not vector.any():
            return
        request = self.requests[key]
        self._make_room(len(vector))
        request.row = len(self._rows)
        self._exact[request.row] = vector
        leading = take_leading_row(vector, LEADING)
        self._leading[: len(leading), request.row] = leading
        self._rows.append(request)

    def find_near(self, vector: Floats, keys: Iterable[str]) -> list[tuple[float, _Request]]:
        """Return the nearest past requests with their similarity; those in `keys` are equal."""
        found = {id(r): (1.0, r) for key in keys if (r := self.requests.get(key)) is not None}
        for similarity, row in self._compare(vector):
            request = self._rows[row]
            found.setdefault(id(request), (similarity, request))
        return list(found.values())

    def _compare(self, vector: Floats) -> list[tuple[float, int]]:
        count = len(self._rows)
        if not count or not vector.any():
            return []
        if count > COMPARED_WHOLE:
            leading = take_leading_row(vector, LEADING)[None]
            rough = compare_vectors(self._leading[: leading.shape[1], :count].T, leading)[0]
            rows = (rough >= ROUGHLY_ALIKE).nonzero()[0]
            rows = _keep_highest(rows, rough.take(rows), ROUGH_NEAR)
        else:
            rows = np.arange(count)
        exact = self._exact.take(rows, axis=0).astype(np.float32)
        similar = compare_vectors(exact, vector[None])[0]
        best = similar.argsort(kind="stable")[::-1][:NEAR]
        return [(float(similar[place]), int(rows[place])) for place in best]

    def _make_room(self, width: int) -> None:
        count = len(self._rows)
        room = self._leading.shape[1]
        if count < room and self._exact.shape[1] == width:
            return
        exact = np.zeros((max(2 * room, 64), width), np.int16)
        leading = np.zeros((LEADING, len(exact)), np.float32)
        exact[:room, : self._exact.shape[1]] = self._exact
        leading[:, :room] = self._leading
        self._exact = exact
        self._leading = leading

    def _remove_row(self, request: _Request) -> None:
        """Put the last row in the place of a request's own."""
        row = request.row
        if row is None:
            return
        last = self._rows.pop()
        if last is not request:
            self._exact[row] = self._exact[len(self._rows)]
            self._leading[:, row] = self._leading[:, len(self._rows)]
            self._rows[row] = last
            last.row = row


def _keep_highest(rows: NDArray[np.int64], values: Floats, count: int) -> NDArray[np.int64]:
    if len(rows) <= count:
        return rows
    return rows.take(values.argpartition(len(rows) - count)[len(rows) - count :])


@dataclass(slots=True)
class _Support:
    """What the requests near a query say about one tool."""

    similarity: float = 0.0
    voices: dict[str, float] = field(default_factory=dict[str, float])
    """For each principal, the nearest of its successes minus the nearest of its failures."""
    surprise: float = 0.0
    weight: float = 0.0
    strength: float = 0.0
    proof: float = 0.0
    """Between 0 and 1: whether nearly the same request has led to the tool more than once."""
    requests: list[str] = field(default_factory=list[str])

    @property
    def mass(self) -> float:
        return fsum(self.voices.values())

    def add_voice(self, name: str, weight: float) -> None:
        """Count a call of a principal; several that agree count as the nearest of them."""
        before = self.voices.get(name, 0.0)
        if before * weight < 0:
            self.voices[name] = before + weight
        elif abs(weight) > abs(before):
            self.voices[name] = weight


@dataclass(frozen=True, slots=True)
class _Lift:
    log_odds: float
    proof: float
    requests: tuple[str, ...]


class Feedback:
    """Remembers which tools served which requests; safe to share between threads.

    `encode` returns the vectors of texts; without it, requests are compared by their words. Vectors
    are computed at the next search, never where a call is noted.
    """

    def __init__(
        self,
        *,
        encode: Encode | None = None,
        learning: Learning = Learning.OWN,
        clock: Callable[[], float] = time.time,
        pairs: int = PAIRS,
    ) -> None:
        self._encode = encode or _project_words
        self._learning = learning
        self._clock = clock
        self._most_pairs = pairs
        self._lock = threading.Lock()
        self._memories: dict[str, _Memory] = {}
        self._owned: dict[str, dict[tuple[str, str], None]] = {}
        """The request and the tool of each principal's voices, the oldest first."""
        self._voices = 0
        self.is_empty = True
        """Whether nothing is known, so that no result would change."""

    def learn(
        self,
        query: str,
        tool: str,
        *,
        succeeded: bool,
        principal: str = "",
        chance: float | None = None,
        at: float | None = None,
    ) -> None:
        """Learn from one call.

        `chance` is the score that the search gave the tool before it was raised. A hashed query
        helps only equal queries. A query that names tools or that cannot be parsed is ignored.
        """
        text = _read_request(query)
        if not text or self._learning is Learning.OFF:
            return
        key = _fold(text)
        at = self._clock() if at is None else at
        with self._lock:
            memory = self._memories.setdefault(self._choose_audience(principal), _Memory())
            pair = memory.get_pair(key, text, tool)
            if chance is not None:
                pair.chance = chance
            for other in memory.requests[key].pairs.values():
                if principal in other.voices:
                    other.voices[principal].strength *= FADING
            if principal not in pair.voices:
                pair.voices[principal] = _Voice(0.0, at)
                self._voices += 1
                self.is_empty = False
            voice = pair.voices[principal]
            voice.strength += 1.0 if succeeded else -1.0
            voice.at = max(voice.at, at)
            owned = self._owned.setdefault(principal, {})
            owned.pop((key, tool), None)
            owned[key, tool] = None
            self._forget_excess(memory, tool)

    def search(
        self,
        index: SearchIndex,
        query: str | Query,
        limit: int,
        *,
        allowed: Callable[[Tool], bool] | None = None,
        principal: str = "",
    ) -> Result:
        """Return what an index finds, after raising what past calls support.

        A supported tool that the index alone does not find is judged with the others.
        """
        result = index.search(query, limit, allowed=allowed)
        lifts = self._find_lifts(result, principal)
        if not lifts:
            return result
        found = {hit.tool.name for hit in result}
        absent = [name for name in lifts if name not in found]
        if absent:
            wide = max(limit, CANDIDATES) + len(absent)
            result = index.search(query, wide, allowed=allowed, also=absent)
        return _lift_result(result, lifts, limit)

    def apply(self, result: Result, limit: int, *, principal: str = "") -> Result:
        """Return the `limit` best hits of a result after raising those that past calls support.

        The result should have more hits than `limit`, so that there is something to raise. Hits
        with equal chances keep their order.
        """
        if result.query.select:
            return result  # tools selected by name are all returned, whatever the limit
        lifts = self._find_lifts(result, principal)
        if not lifts and len(result) <= limit:
            return result
        return _lift_result(result, lifts, limit)

    def encode_waiting(self, limit: int | None = None) -> None:
        """Compute the vectors of requests that have none yet, at most `limit` of each principal."""
        with self._lock:
            memories = list(self._memories.values())
        for memory in memories:
            self._encode_memory(memory, limit)

    def list_learned(self) -> list[Learned]:
        """Return what raises tools now, by tool, the strongest requests first."""
        now = self._clock()
        rows: dict[tuple[str, str], list[_Pair]] = {}
        with self._lock:
            for memory in self._memories.values():
                for request in memory.requests.values():
                    for tool, pair in request.pairs.items():
                        rows.setdefault((tool, request.text), []).append(pair)
            found = [
                Learned(
                    tool=tool,
                    request=text,
                    strength=fsum(pair.weigh(now) for pair in pairs),
                    at=max(pair.at for pair in pairs),
                    principals=len({name for pair in pairs for name in pair.voices}),
                )
                for (tool, text), pairs in rows.items()
            ]
        return sorted(found, key=lambda row: (row.tool, -row.strength, row.request))

    def forget(self, order: Forgetting) -> int:
        """Forget a tool, a request or everything; return how many pairs are gone."""
        keys = {_fold(order.request), hash_query(order.request)} if order.request else None
        gone = 0
        with self._lock:
            for memory in self._memories.values():
                pairs = [
                    (key, tool, pair)
                    for key, request in memory.requests.items()
                    for tool, pair in request.pairs.items()
                ]
                for key, tool, pair in pairs:
                    is_meant = order.tool in ("", tool) and (keys is None or key in keys)
                    if is_meant and pair.at <= order.at:
                        self._remove(memory, key, tool)
                        gone += 1
        return gone

    def _choose_audience(self, principal: str) -> str:
        return SHARED if self._learning is Learning.SHARED else principal

    def _forget_excess(self, memory: _Memory, tool: str) -> None:
        keys = memory.by_tool[tool]
        if len(keys) > REQUESTS_PER_TOOL:
            now = self._clock()

            def rate(key: str) -> tuple[float, float]:
                pair = memory.requests[key].pairs[tool]
                return pair.weigh(now), pair.at

            self._remove(memory, min(keys, key=rate), tool)
        while self._voices > self._most_pairs:
            # Whoever has taught most loses its oldest, so that nobody pushes the others out.
            principal = max(self._owned, key=lambda name: len(self._owned[name]))
            key, oldest = next(iter(self._owned[principal]))
            audience = self._memories[self._choose_audience(principal)]
            pair = audience.requests[key].pairs[oldest]
            if len(pair.voices) == 1:
                self._remove(audience, key, oldest)
            else:
                del pair.voices[principal]
                self._remove_voice(principal, key, oldest)

    def _remove(self, memory: _Memory, key: str, tool: str) -> None:
        for principal in list(memory.requests[key].pairs[tool].voices):
            self._remove_voice(principal, key, tool)
        memory.remove_pair(key, tool)

    def _remove_voice(self, principal: str, key: str, tool: str) -> None:
        del self._owned[principal][key, tool]
        if not self._owned[principal]:
            del self._owned[principal]
        self._voices -= 1
        self.is_empty = not self._voices

    def _encode_memory(self, memory: _Memory, limit: int | None) -> None:
        with self._lock:
            # The newest first: they are the likeliest to matter.
            keys = list(memory.waiting)[::-1][:limit]
            texts = [memory.requests[key].text for key in keys]
        for begin in range(0, len(keys), ENCODED_AT_ONCE):
            part = slice(begin, begin + ENCODED_AT_ONCE)
            vectors = self._encode([name_values(text) for text in texts[part]])
            with self._lock:
                for key, vector in zip(keys[part], vectors, strict=True):
                    memory.add_vector(key, vector)

    def _find_lifts(self, result: Result, principal: str) -> dict[str, _Lift]:
        """Return how much past calls raise each tool that they support."""
        memory = self._memories.get(self._choose_audience(principal))
        text = _read_asked(result)
        if memory is None or not memory.requests or not text:
            return {}
        self._encode_memory(memory, ENCODED_PER_SEARCH)
        vector = self._encode([name_values(text)])[0]
        with self._lock:
            near = memory.find_near(vector, (_fold(text), hash_query(result.query.text)))
            supports = _sum_supports(near, self._clock())
        if not supports:
            return {}
        unknown = (hit.score for hit in result if hit.tool.name not in memory.by_tool)
        rival = next(unknown, 0.0)
        total = fsum(max(support.mass, 0.0) for support in supports.values())
        # Where several principals share what is learned, it takes two to raise a tool fully.
        needed = 1.0 if self._learning is Learning.SHARED else 0.5
        found: dict[str, _Lift] = {}
        for tool, support in supports.items():
            lift = _compute_lift(support, total, result.nearest, rival)
            if lift > 0:
                lift *= min(support.strength / needed, 1.0)
                plain = [text for text in support.requests if not is_hashed(text)]
                found[tool] = _Lift(lift, support.proof, tuple(plain[:EXPLAINED]))
        return found


def _read_request(query: str) -> str:
    """Return the text to remember of a query, or nothing if it asks no question."""
    if is_hashed(query):
        return query
    with suppress(InvalidQuery):
        return _join_words(query_from_text(query))
    return ""


def _read_asked(result: Result) -> str:
    text = _join_words(result.query)
    if not result.corrected:
        return text
    return " ".join(result.corrected.get(word, word) for word in split_words(text))


def _join_words(query: Query) -> str:
    # A query without words only lists tools, so a later call says nothing about it.
    return " ".join((query.words, *query.required)).strip()


def _project_words(texts: Sequence[str]) -> Sequence[Floats]:
    """Return vectors such that texts with equal words are equal and others nearly orthogonal.

    Each word has a direction of its own, made of the bits of its hash.
    """
    return [_add_directions(drop_stop_words(split_words(text))) for text in texts]


def _add_directions(words: Sequence[str]) -> Floats:
    terms = [term.encode("utf-8", "surrogatepass") for term in set(map(stem, words))]
    hashed = b"".join([hashlib.blake2b(term).digest() for term in terms])
    bits = np.unpackbits(np.frombuffer(hashed, np.uint8)).reshape(len(terms), WORD_WIDTH)
    # Adding whole numbers gives the same vector in any order.
    vector = 2 * np.add.reduce(bits, dtype=np.float32) - len(terms)
    return np.rint(normalize_row(vector) * np.float32(GRID))


def _sum_supports(near: Iterable[tuple[float, _Request]], now: float) -> dict[str, _Support]:
    """Return what past requests say about their tools.

    However many calls a principal makes, its nearest request is its only voice for a tool.
    """
    supports: dict[str, _Support] = {}
    # In a fixed order, because sums depend on it.
    for similarity, request in sorted(near, key=lambda item: (-item[0], item[1].text)):
        nearness = exp((similarity - 1) / NEARNESS_STEP)
        for tool, pair in request.pairs.items():
            support = supports.get(tool)
            if support is None:
                support = supports[tool] = _Support()
            total = strength = 0.0
            for name, voice in pair.voices.items():
                weight = voice.weigh(now)
                total += weight
                strength += min(weight, 0.5)
                support.add_voice(name, nearness * weight)
            if total > 0:
                support.similarity = max(support.similarity, similarity)
                support.surprise += nearness * (1 - pair.chance)
                support.weight += nearness
                support.strength = max(support.strength, strength)
                proof = _measure_between(similarity, *ALIKE) * _measure_between(total, *REPEATED)
                support.proof = max(support.proof, proof)
                support.requests.append(request.text)
    return supports


def _measure_between(value: float, low: float, high: float) -> float:
    """Return 0 up to the low value, 1 from the high one on, and what is between in between."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _compute_lift(support: _Support, total: float, nearest: float, rival: float) -> float:
    """Return the log-odds that past requests add to a tool, at most `MOST_LIFT`.

    A tool rises if the past request is nearer than every definition, if similar requests agree on
    it, and if the search alone was unsure of it then. So a request that is a bit similar to
    everything raises nothing, and neither does one that the search answers anyway. `rival` is the
    score of the best hit that was never called: the surer the search is of it, the less others
    rise, because nobody can tell yet how its requests sound. Only a request that has led to another
    tool again and again outweighs it.
    """
    mass = support.mass
    if mass <= 0 or not support.weight:
        return 0.0  # a call may fail because of its arguments, so failures never lower a tool
    nearer, agreed, surprised, unknown = WEIGHTS
    lift = nearer * (support.similarity - nearest) + unknown * sqrt(rival) * (1 - support.proof)
    lift += agreed * log(mass / total) + surprised * support.surprise / support.weight
    return min(max(lift, 0.0), MOST_LIFT)


def _lift_result(result: Result, lifts: Mapping[str, _Lift], limit: int) -> Result:
    hits = [_lift_hit(hit, lifts.get(hit.tool.name)) for hit in result.hits]
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


def _lift_hit(hit: Hit, lift: _Lift | None) -> Hit:
    if hit.confidence is Confidence.EXACT or lift is None:
        return hit
    factor = exp(lift.log_odds)
    base = max(hit.score, LEAST_CHANCE * lift.proof)
    chance = round(base * factor / (1 - base + base * factor), 6)
    if chance <= hit.score:
        return hit
    return replace(
        hit,
        score=chance,
        raised_from=hit.score,
        confidence=confidence_from_chance(chance),
        explain=partial(_explain_lift, hit.explain, hit.score / chance, lift.requests),
    )


def _explain_lift(explain: Callable[[], Why], found: float, requests: tuple[str, ...]) -> Why:
    """Return an explanation in which the search has the share `found` and past calls the rest."""
    why = explain()
    shares = {name: share * found for name, share in why.shares.items()}
    shares["past calls"] = 1 - fsum(shares.values())
    return replace(why, shares=shares, asked_before=requests)
