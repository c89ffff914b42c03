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
    by_shard,
    lexical_evidence,
    meaning_evidence,
    name_evidence,
    name_words_of,
    words_of,
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
from toolscout.search.semantic import query_vectors, similarities
from toolscout.search.states import Mask, State
from toolscout.search.text import term, words
from toolscout.search.writer import Writer
from toolscout.tools import Tool

CANDIDATES = 150
PATTERN_TEXT_LIMIT = 4_000
DEFAULT_LIMIT = 10


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates of one question, sorted by name, with what speaks for each."""

    question: Question
    places: NDArray[np.int64]
    evidence: Doubles
    fusion: Fusion
    scores: Doubles
    chances: Doubles
    total: int


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
            if better.chances.max(initial=0) > ranking.chances.max(initial=0):
                ranking = better
            else:
                corrected = {}
        exact = self._named(state, query.words, mask) if query.words else []
        return _result(state, query, ranking, exact, limit, corrected)

    def _corrections(self, state: State, ranking: Ranking) -> Mapping[str, str]:
        """Return how to read words that no tool has, if nothing matched well as written."""
        if not ranking.question.unknown or ranking.chances.max(initial=0) >= LIKELY:
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
        lexical = _lexical_scores(state, question)
        lexical[~mask] = 0
        matched = int((lexical > 0).sum())
        speaks = self._encoder is not None and not (
            matched and self._latin_only and not _is_latin(text)
        )
        if not speaks:
            places = _top(state, lexical, mask & (lexical > 0), also)
            return self._judged(state, question, places, None, matched)
        similar = self._similar(state, question)
        places = _top(state, *_first_look(lexical, similar, mask), also)
        return self._judged(state, question, places, similar, max(matched, len(places)))

    def _similar(self, state: State, question: Question) -> "Similar":
        texts = list(dict.fromkeys((question.text, question.plain, *question.clauses)))
        vectors = query_vectors(cast("Encoder", self._encoder), texts)
        lines = [texts.index(t) for t in (question.text, question.plain, *question.clauses)]
        return Similar(state, vectors, lines)

    def _judged(
        self,
        state: State,
        question: Question,
        places: NDArray[np.int64],
        similar: "Similar | None",
        total: int,
    ) -> Ranking:
        evidence = np.zeros((len(places), len(Signal)))
        fusion = self._fusion if similar is not None else fusion_for("")
        if len(places):
            found = words_of(question, state.shards, places)
            lexical_evidence(evidence, question, found, state.rarity, state.unknown_rarity)
            if similar is not None:
                meaning_evidence(evidence, similar.at(places))
                self._judge_names(state, question, places, evidence)
        scores = np.round(fusion.scores(evidence, question.length), 9)
        chances = fusion.chances(evidence, scores)
        return Ranking(question, places, evidence, fusion, scores, chances, total)

    def _judge_names(
        self, state: State, question: Question, places: NDArray[np.int64], evidence: Doubles
    ) -> None:
        if not question.words:
            return
        asked = np.stack([self._word_vectors(word) for word in question.words[:64]])
        names = name_words_of(
            question, state.shards, places, state.word_vectors, state.word_terms, asked
        )
        name_evidence(evidence, names, state.rarity)


class Similar:
    """Similarities of a question's texts with tools: of all, or of those looked at."""

    def __init__(self, state: State, vectors: Floats, lines: list[int]) -> None:
        self._state, self._vectors, self._lines = state, vectors, lines
        self.near: NDArray[np.int64] | None = None
        """The places worth a look, where not all were compared."""
        self._all: Floats | None = None
        if any(shard.neighbours for shard in state.shards):
            self.near = self._nearest()
        else:
            parts = [similarities(cast("Floats", s.vectors), vectors) for s in state.shards]
            empty = np.zeros((len(vectors), 0), np.float32)
            self._all = np.concatenate([empty, *parts], axis=1)

    def everywhere(self) -> Floats:
        """Return one row for text, plain text and each clause, one column for each place."""
        return cast("Floats", self._all)[self._lines]

    def at(self, places: NDArray[np.int64]) -> Doubles:
        """Return the same for some places."""
        if self._all is not None:
            return self._all[:, places][self._lines].astype(np.float64)
        found = np.zeros((len(self._vectors), len(places)))
        for shard, positions, rows in by_shard(self._state.shards, places):
            found[:, positions] = similarities(cast("Floats", shard.vectors)[rows], self._vectors)
        return found[self._lines]

    def _nearest(self) -> NDArray[np.int64]:
        found: list[NDArray[np.int64]] = []
        offset = 0
        for shard in self._state.shards:
            if shard.neighbours is None:
                found.append(np.arange(shard.size) + offset)
            else:
                found += [shard.neighbours.near(v, CANDIDATES) + offset for v in self._vectors]
            offset += shard.size
        return np.unique(np.concatenate(found))


def _lexical_scores(state: State, question: Question) -> Floats:
    scores = np.zeros(len(state.open), np.float32)
    gains = state.rarity[question.numbers] * (2 * question.counts / (question.counts + 1))
    for number, gain in zip(question.numbers.tolist(), gains.tolist(), strict=True):
        for offset, rows, weights in state.rows_with(number):
            scores[offset + rows if offset else rows] += weights * np.float32(gain)
    return scores


def _first_look(lexical: Floats, similar: Similar, mask: Mask) -> tuple[Floats, Mask]:
    """Return a rough score by which candidates are chosen, and which places may be chosen."""
    best = lexical.max(initial=0)
    rough = lexical / best if best > 0 else lexical.copy()
    if similar.near is not None:
        chosen = np.zeros(len(mask), np.bool_)
        chosen[similar.near] = True
        if best > 0:
            count = min(CANDIDATES, len(rough)) - 1
            chosen |= rough >= max(np.partition(rough, -count - 1)[-count - 1], 1e-9)
        places = np.flatnonzero(chosen & mask)
        lines = similar.at(places).astype(np.float32)
        rough[places] += _meaning(lines)
        return rough, chosen & mask
    rough += _meaning(similar.everywhere(), mask)
    return rough, mask


def _meaning(lines: Floats, mask: Mask | None = None) -> Floats:
    whole = (lines[0] + lines[1]) / 2
    if len(lines) <= 3:
        return whole * 2  # one clause: its gap is the similarity less a constant
    clauses = lines[2:]
    tops = clauses.max(axis=1, keepdims=True, where=True if mask is None else mask, initial=-1)
    return whole + (clauses - tops).max(axis=0)


def _top(
    state: State, scores: Floats, mask: Mask, also: Sequence[int] = ()
) -> NDArray[np.int64]:
    """Return the best places sorted by name; where scores tie at the cut, names decide."""
    places = np.flatnonzero(mask)
    if len(places) > CANDIDATES:
        open_scores = scores[places]
        cut = np.partition(open_scores, len(places) - CANDIDATES)[len(places) - CANDIDATES]
        above = places[open_scores > cut]
        level = _by_name(state, places[open_scores == cut])[: CANDIDATES - len(above)]
        places = np.concatenate([above, np.array(level, np.int64)])
    chosen = dict.fromkeys([*places.tolist(), *also])
    return np.array(_by_name(state, chosen), np.int64)


def _by_name(state: State, places: Iterable[int] | NDArray[np.int64]) -> list[int]:
    listed = places.tolist() if isinstance(places, np.ndarray) else places
    return sorted(listed, key=lambda place: state.tools[place].name)


def _result(
    state: State,
    query: Query,
    ranking: Ranking,
    exact: list[int],
    limit: int,
    corrected: Mapping[str, str],
) -> Result:
    order = np.argsort(-ranking.scores, kind="stable")
    chances = np.minimum.accumulate(ranking.chances[order])
    row_of = {int(place): row for row, place in enumerate(ranking.places)}
    first = sorted(exact, key=lambda p: (-ranking.scores[row_of[p]] if p in row_of else 0.0, state.tools[p].name))
    hits = [_certain(state, place, ranking, row_of.get(place)) for place in first]
    named = set(first)
    for row, chance in zip(order.tolist(), chances.tolist(), strict=True):
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
    letters = [char for char in text[:2_000] if char.isalpha()]
    return 2 * sum(char < "\u0250" for char in letters) >= len(letters)
