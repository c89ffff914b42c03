"""`Index`: the catalogue made searchable, and kept in step with it.

Follows a catalogue's changes; `search` takes a query and gives a `Result`. A search works on one
state from beginning to end, whatever other threads change meanwhile. It keeps no memory of what
was searched, and it never changes the catalogue.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import EllipsisType
from typing import Any, cast

import numpy as np
import re2
from numpy.typing import NDArray

from toolscout.catalog import Catalog, Change
from toolscout.errors import UnknownServer, UsageError
from toolscout.names import fold_name, near_names
from toolscout.query import PATTERN_MEMORY_BYTES, Query, query_from_text
from toolscout.search import spelling
from toolscout.search.encoders import Encoder, StaticEncoder
from toolscout.search.evidence import (
    lexical_evidence,
    matches_of,
    meaning_evidence,
    name_evidence,
)
from toolscout.search.explanations import explain
from toolscout.search.fusion import (
    LATIN_FAMILIES,
    LIKELY,
    Doubles,
    Fusion,
    Signal,
    confidence_of,
    fusion_for,
    worth_showing,
)
from toolscout.search.hits import Confidence, Hit, Missing, Result, Why
from toolscout.search.lexical import Floats
from toolscout.search.questions import Question, question_of
from toolscout.search.semantic import (
    leading,
    query_vectors,
    rough_similarities,
    similarities,
)
from toolscout.search.shards import by_shard
from toolscout.search.states import Mask, Occurrences, State
from toolscout.search.text import term, words
from toolscout.search.writer import Writer
from toolscout.tools import Tool

CANDIDATES = 64
ROUGH_CANDIDATES = 200
PATTERN_TEXT_LIMIT = 4_000
DEFAULT_LIMIT = 10
ASKED_WORDS = 64
"""Words of a question that are compared with the words of names."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates of one question, with what speaks for each."""

    question: Question
    places: NDArray[np.int64]
    evidence: Doubles
    fusion: Fusion
    scores: Doubles
    order: list[int]
    """Candidates by falling score; those of equal score by name."""
    total: int

    @property
    def top_chance(self) -> float:
        """How likely the best candidate is wanted; 0 without one."""
        return float(self.chances(1)[0]) if self.order else 0.0

    def chances(self, count: int) -> Doubles:
        """Return how likely the first candidates are wanted, never rising."""
        first = self.order[:count]
        rivals = self.scores[self.order]
        found = self.fusion.chances(self.evidence[first], rivals[:count], rivals)
        return np.minimum.accumulate(found)


class Index:
    """Search over a catalogue.

    `encoder` is left out for the default static vectors, None for words alone, or any `Encoder`.
    `approximate` looks at near vectors only instead of all; left out, it does so from 100,000
    tools on, where the `ann` extra is installed.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        encoder: Encoder | None | EllipsisType = ...,
        approximate: bool | None = None,
        fusion: Fusion | None = None,
    ) -> None:
        self._encoder = StaticEncoder() if isinstance(encoder, EllipsisType) else encoder
        family = self._encoder.family if self._encoder else ""
        self._fusion = fusion or fusion_for(family)
        self._latin_only = family in LATIN_FAMILIES
        self._catalog = catalog
        self._writing = threading.Lock()
        self._writer = Writer(self._encoder, approximate=approximate)
        self._word_vectors = lru_cache(maxsize=20_000)(self._writer.word_vector)
        # Subscribing first and catching up afterwards loses no change between the two.
        self._unsubscribe = catalog.subscribe(self._follow)
        self._catch_up()

    @property
    def encoder(self) -> Encoder | None:
        """What turns texts into vectors, if anything does."""
        return self._encoder

    def __len__(self) -> int:
        return self._state.count

    def close(self) -> None:
        """Stop following the catalogue."""
        self._unsubscribe()

    def search(
        self,
        query: str | Query,
        limit: int = DEFAULT_LIMIT,
        *,
        allowed: Callable[[Tool], bool] | None = None,
    ) -> Result:
        """Return the best tools for a query, exact names first.

        `allowed` says which tools this caller may see; others leave no trace in the result.
        Raises a `ModelError` for a query that cannot be read or names no server.
        """
        if limit < 1:
            raise UsageError(f"A limit of {limit} gives no result. Use 1 or more.")
        state = self._state
        asked = query_from_text(query) if isinstance(query, str) else query
        mask = self._mask(state, asked, allowed)
        if asked.select:
            return self._selected(state, asked, mask)
        if asked.pattern:
            return _listed(state, asked, _pattern_places(state, asked.pattern, mask), limit)
        if asked.prefix:
            return _listed(state, asked, _prefix_places(state, asked.prefix, mask), limit)
        text = " ".join((asked.words, *asked.required)).strip()
        if not text:
            return _listed(state, asked, _by_name(state, np.flatnonzero(mask)), limit)
        return self._ranked(state, asked, text, mask, limit)

    def search_many(
        self,
        queries: Iterable[str | Query],
        limit: int = DEFAULT_LIMIT,
        *,
        allowed: Callable[[Tool], bool] | None = None,
    ) -> list[Result]:
        """Return the result of each query, in order."""
        return [self.search(query, limit, allowed=allowed) for query in queries]

    def explain(self, query: str | Query, name: str) -> Why:
        """Say what speaks for and against one tool, found or not, for a query of words."""
        state = self._state
        asked = query_from_text(query) if isinstance(query, str) else query
        place = state.place_of(name)
        if place is None:
            near = ", ".join(near_names(name, state.live_names)) or "none"
            raise UsageError(f"There is no tool {name!r}. Near: {near}.")
        text = " ".join((asked.words or asked.text, *asked.required)).strip()
        ranking = self._ranking(state, text, state.open, also=(place,))
        return explain(state, ranking, int(np.flatnonzero(ranking.places == place)[0]))

    def evidence(self, text: str, *, hidden: Iterable[str] = ()) -> tuple[tuple[Tool, ...], Doubles, float]:
        """Return the candidates for a text, the signals of each, and the text's length.

        This is what a fusion is fitted on; `hidden` names tools to leave out.
        """
        state = self._state
        mask = state.open.copy()
        for name in hidden:
            place = state.place_of(name)
            if place is not None:
                mask[place] = False
        ranking = self._ranking(state, text, mask)
        tools = tuple(state.tools[place] for place in ranking.places.tolist())
        return tools, ranking.evidence, ranking.question.length

    def _catch_up(self) -> None:
        with self._writing:
            snapshot = self._catalog.snapshot()
            self._version = snapshot.version
            self._state = self._writer.built(snapshot.tools)

    def _follow(self, change: Change) -> None:
        with self._writing:
            if change.version <= self._version:
                return
            self._state = self._writer.changed(self._state, change.added, change.removed)
            self._version = change.version

    def _mask(
        self, state: State, query: Query, allowed: Callable[[Tool], bool] | None
    ) -> Mask:
        mask = state.open
        if query.servers:
            mask = mask & _server_mask(state, query.servers)
        if allowed is not None:
            mask = mask & state.accepted(allowed)
        if query.effects or query.kinds:
            mask = mask & state.accepted(partial(_passes, query))
        for required in query.required:
            mask = mask & _term_mask(state, required)
        for excluded in query.excluded:
            mask = mask & ~_term_mask(state, excluded)
        return mask

    def _selected(self, state: State, query: Query, mask: Mask) -> Result:
        places: dict[int, None] = {}
        missing: list[Missing] = []
        for name in query.select:
            found = self._named(state, name, mask)
            places.update(dict.fromkeys(found))
            if not found:
                visible = [n for n in state.live_names if mask[cast("int", state.place_of(n))]]
                missing.append(Missing(name=name, near=tuple(near_names(name, visible))))
        result = _listed(state, query, list(places), len(places) or 1)
        return Result(
            query=query,
            hits=result.hits,
            worth=len(result.hits),
            total=len(result.hits),
            missing=tuple(missing),
        )

    def _named(self, state: State, name: str, mask: Mask) -> list[int]:
        found = (state.place_of(tool.name) for tool in self._catalog.resolve(name))
        return [place for place in found if place is not None and mask[place]]

    def _ranked(self, state: State, query: Query, text: str, mask: Mask, limit: int) -> Result:
        ranking = self._ranking(state, text, mask)
        corrected = self._corrections(state, ranking)
        if corrected:
            better = self._ranking(state, text, mask, corrected=corrected)
            if better.top_chance > ranking.top_chance:
                ranking = better
            else:
                corrected = {}
        exact = self._named(state, query.words, mask) if query.words else []
        return _result(state, query, ranking, exact, limit, corrected)

    def _corrections(self, state: State, ranking: Ranking) -> Mapping[str, str]:
        """Return how to read words that no tool has, if nothing matched well as written."""
        if not ranking.question.unknown or ranking.top_chance >= LIKELY:
            return {}
        unknown = [w for w in ranking.question.words if state.find(term(w)) is None]
        return spelling.corrections(unknown, state.live_words)

    def _ranking(
        self,
        state: State,
        text: str,
        mask: Mask,
        *,
        also: Sequence[int] = (),
        corrected: Mapping[str, str] | None = None,
    ) -> Ranking:
        question = question_of(text, state.find, corrected)
        occurrences = [list(state.occurrences(n)) for n in question.numbers.tolist()]
        lexical = _lexical_scores(state, question, occurrences)
        if mask is not state.open or state.count < len(mask):
            lexical *= mask
        matched = int(np.count_nonzero(lexical))
        speaks = self._encoder is not None and not (
            matched and self._latin_only and not _is_latin(text)
        )
        if not speaks:
            found = np.flatnonzero(lexical)
            places = _top(state, lexical[found], found, also)
            return self._judged(state, question, occurrences, places, None, matched)
        similar = self._similar(state, question)
        places, lines = _candidates(state, lexical, similar, mask, also)
        total = max(matched, len(places))
        return self._judged(state, question, occurrences, places, lines, total)

    def _similar(self, state: State, question: Question) -> "Similar":
        texts = list(dict.fromkeys((question.text, question.plain, *question.clauses)))
        vectors = query_vectors(cast("Encoder", self._encoder), texts)
        lines = [texts.index(t) for t in (question.text, question.plain, *question.clauses)]
        return Similar(state, vectors, lines)

    def _judged(
        self,
        state: State,
        question: Question,
        occurrences: list[list[Occurrences]],
        places: NDArray[np.int64],
        lines: Floats | None,
        total: int,
    ) -> Ranking:
        evidence = np.zeros((len(places), len(Signal)))
        fusion = self._fusion if lines is not None else fusion_for("")
        if len(places):
            found = matches_of(occurrences, places, len(state.open))
            lexical_evidence(evidence, question, state, found, places)
            if lines is not None:
                meaning_evidence(evidence, lines.astype(np.float64))
                self._judge_names(state, question, places, evidence)
        scores = np.round(fusion.scores(evidence, question.length), 9)
        order = _falling(state, places, scores)
        return Ranking(question, places, evidence, fusion, scores, order, total)

    def _judge_names(
        self, state: State, question: Question, places: NDArray[np.int64], evidence: Doubles
    ) -> None:
        if not question.words:
            return
        asked = np.stack([self._word_vectors(word) for word in question.words[:ASKED_WORDS]])
        name_evidence(evidence, question, state, places, asked)


class Similar:
    """Similarities of a question's texts with tools.

    Every tool is looked at, by the leading dimensions where the encoder has such, unless the
    state has an approximate index; `at` is exact in any case.
    """

    def __init__(self, state: State, vectors: Floats, lines: list[int]) -> None:
        self._state, self._vectors, self._lines = state, vectors, lines

    @property
    def is_approximate(self) -> bool:
        """Whether only near tools are looked at."""
        return any(shard.neighbours for shard in self._state.shards)

    def rough(self) -> Floats:
        """Return a rough score of every place, see `_meaning`."""
        parts: list[Floats] = []
        for shard in self._state.shards:
            scanned = cast("Floats", shard.scanned)
            narrow = scanned.shape[1] < self._vectors.shape[1]
            wanted = leading(self._vectors, scanned.shape[1]) if narrow else self._vectors
            parts.append(rough_similarities(scanned, wanted))
        found = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return _meaning([found[line] for line in self._lines])

    def at(self, places: NDArray[np.int64]) -> Floats:
        """Return one row for text, plain text and each clause, one column for each place."""
        found = np.zeros((len(self._vectors), len(places)), np.float32)
        for shard, positions, rows in by_shard(self._state.shards, places):
            vectors = cast("NDArray[np.int16]", shard.vectors)[rows].astype(np.float32)
            found[:, positions] = similarities(vectors, self._vectors)
        return found[self._lines]

    def near(self) -> NDArray[np.int64]:
        """Return the places that an approximate index finds near, and all that it does not know."""
        found: list[NDArray[np.int64]] = []
        offset = 0
        for shard in self._state.shards:
            if shard.neighbours is None:
                found.append(np.arange(shard.size) + offset)
            else:
                count = min(CANDIDATES, shard.size)
                found += [shard.neighbours.near(v, count) + offset for v in self._vectors]
            offset += shard.size
        return np.unique(np.concatenate(found))


def _lexical_scores(
    state: State, question: Question, occurrences: list[list[Occurrences]]
) -> Floats:
    scores = np.zeros(len(state.open), np.float32)
    gains = state.rarity[question.numbers] * (2 * question.counts / (question.counts + 1))
    for gain, found in zip(gains, occurrences, strict=True):
        for places, weights, _ in found:
            scores[places] += weights * gain
    return scores


def _candidates(
    state: State, lexical: Floats, similar: Similar, mask: Mask, also: Sequence[int]
) -> tuple[NDArray[np.int64], Floats]:
    """Return the places worth a close look, with their similarities.

    A rough score picks some of all places, an exact one the best of those.
    """
    best = lexical.max(initial=0)
    shares = lexical / best if best > 0 else lexical
    if similar.is_approximate:
        chosen = np.zeros(len(mask), np.bool_)
        chosen[similar.near()] = True
        if best > 0:
            chosen[_best_places(shares, np.flatnonzero(shares), CANDIDATES)] = True
        some = np.flatnonzero(chosen & mask)
    else:
        some = state.places if mask is state.open else np.flatnonzero(mask)
        if len(some) > ROUGH_CANDIDATES:
            some = _best_places(shares + similar.rough(), some, ROUGH_CANDIDATES)
    if also:
        some = np.union1d(some, also)
    lines = similar.at(some)
    places = _top(state, shares[some] + _meaning(lines), some, also)
    # `some` is ascending, so that each place is found where it was.
    return places, lines[:, np.searchsorted(some, places)]


def _meaning(lines: Sequence[Floats] | Floats) -> Floats:
    """Return the similarity with the whole question plus how well a place does for any clause."""
    text, plain, *clauses = lines
    whole = text if text is plain else (text + plain) / 2
    best = clauses[0] - clauses[0].max(initial=-1)
    for clause in clauses[1:]:
        np.maximum(best, clause - clause.max(initial=-1), out=best)
    best += whole
    return best


def _best_places(
    scores: Floats, places: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return about `count` places of highest score, with all that tie at the cut."""
    if len(places) <= count:
        return places
    mine = scores if len(places) == len(scores) else scores[places]
    cut = np.partition(mine, len(mine) - count)[len(mine) - count]
    return places[mine >= cut]


def _top(
    state: State, scores: Floats, places: NDArray[np.int64], also: Sequence[int] = ()
) -> NDArray[np.int64]:
    """Return the best places; where scores tie at the cut, names decide."""
    if len(places) > CANDIDATES:
        cut = np.partition(scores, len(scores) - CANDIDATES)[len(scores) - CANDIDATES]
        above = places[scores > cut]
        level = places[scores == cut]
        if len(above) + len(level) > CANDIDATES:
            level = np.array(_by_name(state, level)[: CANDIDATES - len(above)], np.int64)
        places = np.concatenate([above, level])
    return np.union1d(places, np.array(also, np.int64)) if also else places


def _falling(state: State, places: NDArray[np.int64], scores: Doubles) -> list[int]:
    """Return rows by falling score, those of equal score by name."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    if (ranked[1:] < ranked[:-1]).all():
        return order.tolist()
    tools = state.tools
    names = [tools[place].name for place in places.tolist()]
    return sorted(range(len(names)), key=lambda row: (-scores[row], names[row]))


def _by_name(state: State, places: Iterable[int] | NDArray[np.int64]) -> list[int]:
    listed: list[int] = places.tolist() if isinstance(places, np.ndarray) else list(places)
    tools = state.tools
    names = [tools[place].name for place in listed]
    return [listed[i] for i in sorted(range(len(listed)), key=names.__getitem__)]


def _result(
    state: State,
    query: Query,
    ranking: Ranking,
    exact: list[int],
    limit: int,
    corrected: Mapping[str, str],
) -> Result:
    named = set(exact)
    rows = {p: row for row in ranking.order if (p := int(ranking.places[row])) in named} if named else {}
    # Tools of one leaf come in the order of the ranking, then those it did not look at, by name.
    first = [*rows, *_by_name(state, named - rows.keys())]
    hits = [_certain(state, place, ranking, rows.get(place)) for place in first]
    chances = ranking.chances(limit + len(named)).tolist()
    for row, chance in zip(ranking.order, chances, strict=False):
        if len(hits) >= limit:
            break
        if int(ranking.places[row]) not in named:
            hits.append(_hit(state, ranking, row, chance))
    hits = hits[:limit]
    return Result(
        query=query,
        hits=tuple(hits),
        worth=worth_showing([hit.score for hit in hits]),
        total=max(ranking.total, len(hits)),
        corrected=dict(corrected),
    )


def _hit(state: State, ranking: Ranking, row: int, chance: float) -> Hit:
    return Hit(
        tool=state.tools[int(ranking.places[row])],
        score=round(chance, 6),
        confidence=confidence_of(chance),
        explain=partial(explain, state, ranking, row),
    )


def _certain(state: State, place: int, ranking: Ranking | None, row: int | None) -> Hit:
    why = Why(matched={}, shares={"exact name": 1.0}, held_back=())
    if ranking is not None and row is not None:
        why = Why(
            matched=explain(state, ranking, row).matched, shares=why.shares, held_back=()
        )
    return Hit(
        tool=state.tools[place], score=1.0, confidence=Confidence.EXACT, explain=lambda: why
    )


def _listed(state: State, query: Query, places: list[int], limit: int) -> Result:
    hits = tuple(_certain(state, place, None, None) for place in places[:limit])
    return Result(query=query, hits=hits, worth=len(hits), total=len(places))


def _server_mask(state: State, servers: Sequence[str]) -> Mask:
    mask = np.zeros(len(state.open), np.bool_)
    for server in servers:
        name = state.live_servers.get(fold_name(server))
        if name is None:
            raise UnknownServer(server, near_names(server, state.live_servers.values()))
        mask[state.servers[name]] = True
    return mask


def _passes(query: Query, tool: Tool) -> bool:
    if query.effects and tool.effect not in query.effects:
        return False
    return not query.kinds or tool.kind.casefold() in {kind.casefold() for kind in query.kinds}


def _term_mask(state: State, text: str) -> Mask:
    """Return the places that have every word of a term in any field."""
    mask = state.open
    listed = words(text)
    for word in listed:
        number = state.find(term(word))
        mask = mask & (state.having(number) if number is not None else np.False_)
    if not listed:  # only symbols, such as an emoji: look at the texts themselves
        mask = state.accepted(lambda tool: text in f"{tool.leaf} {tool.description}")
    return mask


def _pattern_places(state: State, source: str, mask: Mask) -> list[int]:
    """Return tools whose name matches, then those whose description does, each by name."""
    engine: Any = re2  # its module is only half typed
    options = engine.Options()
    options.max_mem = PATTERN_MEMORY_BYTES
    options.log_errors = False
    options.case_sensitive = False
    pattern = engine.compile(source, options)
    named: list[int] = []
    described: list[int] = []
    for place in _by_name(state, np.flatnonzero(mask)):
        tool = state.tools[place]
        if pattern.search(tool.name) or pattern.search(tool.leaf):
            named.append(place)
        elif pattern.search(tool.description[:PATTERN_TEXT_LIMIT]):
            described.append(place)
    return named + described


def _prefix_places(state: State, prefix: str, mask: Mask) -> list[int]:
    begin = prefix.casefold().removeprefix("mcp__")
    found = [
        place
        for place in np.flatnonzero(mask).tolist()
        if state.tools[place].name.casefold().startswith((begin, prefix.casefold()))
        or state.tools[place].leaf.casefold().startswith(prefix.casefold())
    ]
    return _by_name(state, found)


def _is_latin(text: str) -> bool:
    """Tell whether most letters of a text are Latin."""
    if text.isascii():
        return True
    letters = [char for char in text[:2_000] if char.isalpha()]
    return 2 * sum(char < "\u0250" for char in letters) >= len(letters)
