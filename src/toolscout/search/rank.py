"""Rank the candidates of a question, and explain a ranking.

`read_question` turns the words of a query into a `Question`, once per search and without looking at
any tool. `choose_candidates` scores every tool roughly and compares the best ones exactly, the
`fill_` functions fill a table of evidence with a row for each `Signal`, and `fusion` turns the
table into scores. Every sum stays within the column of one candidate, in an order that does not
depend on the others, so that equal catalogues give bit-identical results whatever their history.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import log, tanh
from operator import mul
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import OSA

from toolscout.encoders.encoder import (
    Encoder,
    StaticEncoder,
    WordMemory,
    take_leading_row,
)
from toolscout.search.fusion import (
    LATIN_FAMILIES,
    LIKELY,
    WORTH_FLOOR,
    WORTH_SHARE,
    Doubles,
    Fusion,
    Signal,
    choose_fusion,
    compute_gate,
    count_worth_showing,
)
from toolscout.search.hits import Why
from toolscout.search.shard import (
    COVERED,
    ByTerm,
    Floats,
    Ints,
    Mask,
    Shard,
    State,
    compare_vectors,
    group_by_shard,
)
from toolscout.search.text import (
    OPPOSITES,
    STOP_WORDS,
    Field,
    drop_stop_words,
    name_values,
    pair_term,
    remove_values,
    split_clauses,
    split_words,
    stem,
    stem_name,
)
from toolscout.search.translate import Lexicon
from toolscout.tools import Tool

WORD_LIMIT = 300
"""How many distinct words of a query count; the rest of a longer one is ignored."""


class Question(NamedTuple):
    """What a query asks for, as numbers."""

    words: tuple[str, ...]
    """Distinct content words, folded but not stemmed."""
    numbers: tuple[int, ...]
    """Distinct known terms, sorted by their text so that sums do not depend on the numbering."""
    parts: NDArray[np.float32] | None
    """The first row holds the gain of each term: 1 if it occurs once, approaching 2 for many
    times. Then a row for each clause says how often each term occurs in it; for a single clause,
    all are 1. None if everything is 1."""
    counted: tuple[float, ...]
    """1, or 0 for a pair of words joined into one: it helps, but does not count as a word."""
    distinct: int
    """Distinct terms, known or not."""
    unknown: int
    text: str
    plain: str
    """The text without values."""
    clauses: tuple[str, ...]

    @property
    def gains(self) -> Sequence[float]:
        """The gain of each term, which grows with how often it occurs."""
        return (1.0,) * len(self.numbers) if self.parts is None else self.parts[0].tolist()

    @property
    def length(self) -> float:
        """The length from -1 (one or two words) through 0 (about seven) towards 1 (a page)."""
        return tanh(log(self.distinct) - 2)


def read_question(
    text: str,
    numbered: Callable[[Iterable[str]], dict[str, int]],
    corrected: Mapping[str, str] | None = None,
) -> Question:
    """Return the question that a text asks.

    `numbered` returns the numbers of those terms that occur in some tool; `corrected` maps words
    to the words to read instead.
    """
    swap = corrected or {}
    text = name_values(text)
    read = split_words(text)
    whole = drop_stop_words([swap.get(word, word) for word in read] if swap else read)
    distinct = list(dict.fromkeys(whole))
    if len(distinct) > WORD_LIMIT:
        distinct = distinct[:WORD_LIMIT]
        listed = set(distinct)
        whole = [word for word in whole if word in listed]
    terms = _count_terms(whole)
    pairs = {pair_term(*both) for both in pairwise(distinct)} - terms.keys()
    known = numbered((*terms, *pairs))
    order = sorted(known)
    once = len(terms) == len(whole)
    parts = split_clauses(text)
    return Question(
        words=tuple(distinct),
        numbers=tuple([known[t] for t in order]),
        parts=None if once and len(parts) == 1 else _count_parts(terms, order, parts, swap),
        counted=tuple([1.0 if t in terms else 0.0 for t in order]),
        distinct=max(len(terms), 1),
        unknown=len(terms.keys() - known.keys()),
        text=text,
        plain=remove_values(text),
        clauses=tuple(parts),
    )


def _count_parts(
    terms: Mapping[str, int], order: list[str], parts: list[str], swap: Mapping[str, str]
) -> NDArray[np.float32]:
    counts = np.ones((1 + len(parts), len(order)), np.float32)
    counts[0] = [2 - 2 / (terms.get(t, 1) + 1) for t in order]
    if len(parts) > 1:
        for row, part in enumerate(parts, 1):
            found = _count_terms([swap.get(word, word) for word in split_words(part)])
            counts[row] = [found.get(t, 0) for t in order]
    return counts


def _count_terms(listed: list[str]) -> dict[str, int]:
    """Return how often each term occurs; for a few words, a `Counter` takes three times as long."""
    counts: dict[str, int] = {}
    for word in listed:
        one = stem(word)
        counts[one] = counts.get(one, 0) + 1
    return counts


_HINT = np.uint8(Field.HINT.bit)
_LOOKED_AT = np.array([~_HINT, *COVERED], np.uint8)[:, None]
_HAS = ((np.arange(256, dtype=np.uint8) & _LOOKED_AT) != 0).astype(np.float64)
"""For each possible byte of field bits, a column each: whether it has any field of the definition,
then whether it has each of `COVERED`. The rows are in the order of the signals `MATCH` to
`SERVER`."""

Matches = tuple[Floats, NDArray[np.uint8]]
"""Weights and field bits: a row for each term of the question, a column for each candidate."""


def find_matches(question: Question, state: State, places: NDArray[np.int64]) -> Matches:
    """Return the weights and field bits of the question's terms in some candidates."""
    parts = group_by_shard(state.shards, places)
    if len(parts) == 1:
        shard, _, rows = parts[0]
        return _find_matches_in_shard(shard.postings.by_term, question.numbers, rows)
    shape = len(question.numbers), len(places)
    weights = np.zeros(shape, np.float32)
    masks = np.zeros(shape, np.uint8)
    for shard, positions, rows in parts:
        found = _find_matches_in_shard(shard.postings.by_term, question.numbers, rows)
        weights[:, positions], masks[:, positions] = found
    return weights, masks


def _find_matches_in_shard(
    listed: ByTerm, numbers: Sequence[int], places: NDArray[np.int64]
) -> Matches:
    """Return the weights and field bits of some terms in some rows of one shard.

    The rows of a term are sorted, so binary search finds each row without reading the other terms
    of a tool.
    """
    shape = (len(numbers), len(places))
    rows = places.astype(np.int32)
    if not numbers or not len(listed.rows):
        return np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
    spans = listed.find_spans(numbers)
    # Leaving out a term's last row makes every row beyond the others point at the last one.
    at = np.concatenate([listed.rows[a : b - 1].searchsorted(rows) for a, b in spans])
    at = at.reshape(shape)
    at += np.array([begin for begin, _ in spans])[:, None]
    found = listed.rows.take(at, mode="clip") == rows
    for line in [line for line, (begin, end) in enumerate(spans) if begin == end]:
        found[line] = False
    return found * listed.weights.take(at, mode="clip"), found * listed.masks.take(at, mode="clip")


def fill_lexical(
    table: Doubles, question: Question, state: State, places: NDArray[np.int64]
) -> None:
    """Fill in the signals that depend on words alone."""
    found, masks = find_matches(question, state, places)
    listed = state.list_rarities(question.numbers)
    ideal = sum(map(mul, listed, question.counted)) + question.unknown * state.unknown_rarity
    rarities: Doubles = np.array(listed)
    weights = found * rarities[:, None]
    if question.parts is None:
        whole = first = np.add.reduce(weights)
        others: list[Doubles] = []
    else:
        whole, first, *others = np.add.reduce(weights * question.parts[:, :, None], axis=1)
    np.divide(whole, max(ideal, 1e-9), out=table[Signal.BM25])
    standing = first / max(np.maximum.reduce(first), 1e-9)
    for clause in others:
        np.maximum(standing, clause / max(np.maximum.reduce(clause), 1e-9), out=standing)
    table[Signal.CLAUSE] = standing
    lines = table[Signal.MATCH : Signal.SERVER + 1]
    worth = np.empty((len(_HAS), 1, len(rarities)))
    worth[0] = question.counted
    worth[1:] = rarities
    # Rarities have half the precision of these sums, so nothing is rounded in any order.
    has = _HAS.take(masks, axis=1)
    own = masks & ~_HINT
    instructed = own == Field.INSTRUCTIONS.bit
    if instructed.any():
        # All tools of a server have its instructions: a word counts half where some have it
        # themselves.
        is_own = np.logical_or.reduce(own & ~np.uint8(Field.INSTRUCTIONS.bit), axis=1)
        has[0] -= 0.5 * (instructed & is_own[:, None])
    np.matmul(worth, has, out=lines[:, None])
    table[Signal.MATCH] /= question.distinct
    table[Signal.NAME : Signal.SERVER + 1] /= state.wholes.take(places, axis=0).T
    is_hinted = state.find_hinted(places)
    if is_hinted is not None:
        table[Signal.HINTED] = is_hinted
        hinted = (masks & _HINT) > 0
        counted = rarities * question.counted
        np.matmul(counted, hinted, out=table[Signal.HINT_WORDS])
        np.matmul(counted, hinted & (own == 0), out=table[Signal.HINT_ONLY])
        table[Signal.HINT_WORDS : Signal.HINT_ONLY + 1] /= max(ideal, 1e-9)


def fill_meaning(table: Doubles, similar: Floats) -> None:
    """Fill in the signals of meaning from similarities with text, plain text and clauses."""
    table[Signal.MEANING : Signal.MEANING_CLAUSE + 1] = similar[:3]
    clauses = similar[2:]
    if len(clauses) == 1:
        gap = np.subtract(similar[2], np.maximum.reduce(similar[2]))
        table[Signal.MEANING_CLAUSE_GAP] = gap
        return
    clauses.max(axis=0, out=table[Signal.MEANING_CLAUSE])
    gaps = clauses - clauses.max(axis=1, keepdims=True)
    gaps.max(axis=0, out=table[Signal.MEANING_CLAUSE_GAP])


def fill_hint_meaning(table: Doubles, hints: Floats, blended: Floats) -> None:
    """Fill in what hints add to the signals of `fill_meaning`.

    The similarities are those with hints, and with definitions and hints together.
    """
    table[Signal.HINT_MEANING] = hints[0]
    table[Signal.HINT_DEFINITION] = table[Signal.MEANING] * table[Signal.HINTED]
    table[Signal.HINT_GAIN] = blended[0] - table[Signal.MEANING]
    best = blended[2:].max(axis=0)
    table[Signal.HINT_CLAUSE_GAIN] = best - table[Signal.MEANING_CLAUSE]
    gaps = blended[2:] - blended[2:].max(axis=1, keepdims=True)
    table[Signal.HINT_GAP_GAIN] = gaps.max(axis=0) - table[Signal.MEANING_CLAUSE_GAP]


def fill_name_meaning(
    table: Doubles, question: Question, state: State, places: NDArray[np.int64], asked: Floats
) -> None:
    """Fill in how much of each name is close to the question.

    `asked` holds the vectors of the question's words.
    """
    listed = _list_name_words(state, places)
    at = (listed >= 0).ravel().nonzero()[0]
    words = listed.take(at)
    if not len(words):
        return
    terms = state.word_terms.take(words)
    # The squared similarity, 0 to 1, of each word with the nearest word of the question.
    similar = compare_vectors(state.word_vectors.take(words, axis=0), asked)
    near = np.square(np.maximum.reduce(similar, initial=0.0), dtype=np.float64)
    numbers = np.array(question.numbers, np.int32)[:, None]
    near[np.logical_or.reduce(terms == numbers)] = 1.0
    near *= state.rarity.take(terms)
    part = np.bincount(at // listed.shape[1], near, len(places))
    np.divide(part, state.name_wholes.take(places), out=table[Signal.NAME_MEANING])


def _list_name_words(state: State, places: NDArray[np.int64]) -> Ints:
    """Return the numbers of each candidate's name words, a row each, padded with -1."""
    if len(state.shards) == 1:
        return state.shards[0].name_table.take(places, axis=0)
    width = max(shard.name_table.shape[1] for shard in state.shards)
    listed = np.full((len(places), width), -1, np.int32)
    for shard, positions, rows in group_by_shard(state.shards, places):
        listed[positions, : shard.name_table.shape[1]] = shard.name_table.take(rows, axis=0)
    return listed


CANDIDATES = 48
ROUGH_CANDIDATES = 96
FEW = 512
"""Up to this many tools are all compared exactly, which is faster than picking some of them."""


class Meaning(NamedTuple):
    """Similarities of candidates: a row each for text, plain text and clauses."""

    definitions: Floats
    hints: Floats | None
    """With the hints, 0 where there is none; None if no tool has one."""
    blended: Floats
    """With definition and hint together; with the definition where there is no hint."""


class Similarities:
    """Compares the texts of a question with tools.

    `vectors` holds the distinct texts; `lines` gives the row of the text, of the text without
    values and of each clause. Rough scores use only the leading dimensions, where the encoder
    supports that; `compare` and `score_exactly` use all of them.
    """

    def __init__(self, state: State, vectors: Floats, lines: list[int]) -> None:
        self._state = state
        self._vectors = vectors
        self._lines = lines

    def score_roughly(self) -> Floats:
        """Return a rough score of every place (see `_score_meaning`)."""
        # The text without values adds little to the text and its clauses.
        text, _, *clauses = self._lines
        lines = dict.fromkeys((text, *clauses) if len(clauses) > 1 else (text,))
        parts = [(cast("Floats", s.scanned), s.scanned_blends) for s in self._state.shards]
        rows = [self._vectors[line] for line in lines]
        width = parts[0][0].shape[1]
        if width < len(rows[0]):
            rows = [take_leading_row(row, width) for row in rows]
        vectors = np.array(rows)
        if len(lines) == 1:
            vectors *= 2  # the question is its only clause, so both parts of the score are equal
        # A hint must not hide a definition that fits without it.
        found = [
            compare_vectors(part, vectors)
            if blends is None
            else np.maximum(compare_vectors(part, vectors), compare_vectors(blends, vectors))
            for part, blends in parts
        ]
        whole, *rest = found[0] if len(found) == 1 else np.concatenate(found, axis=1)
        return _score_meaning([whole, whole, *rest]) if rest else whole

    def compare(self, places: NDArray[np.int64]) -> Floats:
        """Return exact similarities: a row for each distinct text, a column for each place."""
        parts = group_by_shard(self._state.shards, places)
        found = [
            compare_vectors(_take_vectors(shard, rows), self._vectors) for shard, _, rows in parts
        ]
        if len(found) == 1:
            return found[0]
        whole = np.zeros((len(self._vectors), len(places)), np.float32)
        for part, (_, positions, _) in zip(found, parts, strict=True):
            whole[:, positions] = part
        return whole

    def compare_hints(self, places: NDArray[np.int64]) -> Floats | None:
        """Return the same for the hints, 0 where there is none; None if no place has one."""
        is_hinted = self._state.find_hinted(places)
        if is_hinted is None:
            return None
        columns = is_hinted.nonzero()[0]
        whole = np.zeros((len(self._vectors), len(places)), np.float32)
        for shard, positions, rows in group_by_shard(self._state.shards, places.take(columns)):
            if shard.hint_vectors is not None:
                taken = _take_hint_vectors(shard, rows)
                whole[:, columns[positions]] = compare_vectors(taken, self._vectors)
        return whole

    def blend(self, found: Floats, hints: Floats, places: NDArray[np.int64]) -> Floats:
        """Return the similarities with the sum of definition and hint, at unit length."""
        return (found + hints) * self._state.blend_scales.take(places)

    def expand_lines(self, found: Floats) -> Floats:
        """Return the rows of `compare` in the order text, plain text, clauses."""
        return found.take(self._lines, axis=0)

    def score_exactly(self, found: Floats) -> Floats:
        """Return the exact score of each place (see `_score_meaning`) from rows of `compare`."""
        listed = list(found)
        return _score_meaning([listed[line] for line in self._lines])

    def find_near(self) -> NDArray[np.int64]:
        """Return the places that approximate indexes find, and all places that have no index."""
        found: list[NDArray[np.int64]] = []
        offset = 0
        for shard in self._state.shards:
            if shard.neighbours is None:
                found.append(np.arange(shard.size) + offset)
            else:
                count = min(CANDIDATES, shard.size)
                found += [shard.neighbours.find(v, count) + offset for v in self._vectors]
            offset += shard.size
        return np.unique(np.concatenate(found))


def _take_vectors(shard: Shard, rows: NDArray[np.int64]) -> Floats:
    if shard.size > FEW:
        return cast("NDArray[np.int16]", shard.vectors).take(rows, axis=0).astype(np.float32)
    # Rows are in order, so as many as the shard has are all of them.
    return shard.exact if len(rows) == shard.size else shard.exact.take(rows, axis=0)


def _take_hint_vectors(shard: Shard, rows: NDArray[np.int64]) -> Floats:
    if shard.size > FEW:
        return cast("NDArray[np.int16]", shard.hint_vectors).take(rows, axis=0).astype(np.float32)
    return shard.exact_hints if len(rows) == shard.size else shard.exact_hints.take(rows, axis=0)


def score_lexically(state: State, question: Question) -> Floats:
    """Return the BM25F score of every place."""
    scores = np.zeros(len(state.open), np.float32)
    rarities = state.list_rarities(question.numbers)
    gains = np.array(list(map(mul, rarities, question.gains)), np.float32)
    offset = 0
    for shard in state.shards if rarities else ():
        mine = scores[offset : offset + shard.size]
        listed = shard.postings.by_term
        spans = listed.find_spans(question.numbers)
        weights = np.concatenate([listed.rough[begin:end] for begin, end in spans])
        weights *= gains.repeat([end - begin for begin, end in spans])
        rows = np.concatenate([listed.rows[begin:end] for begin, end in spans])
        np.add.at(mine, rows, weights)
        offset += shard.size
    return scores


def choose_candidates(
    state: State,
    lexical: Floats,
    similar: Similarities,
    mask: Mask,
    also: Sequence[int],
    count: int,
) -> tuple[NDArray[np.int64], Meaning]:
    """Return the `count` places worth a close look, with their similarities.

    A rough score picks some of many places, and an exact one the best of those. Places in `also`
    are always included.
    """
    best = np.maximum.reduce(lexical)
    shares = lexical / best if best > 0 else lexical
    # A filter could remove all of the few near vectors, so a filtered search scans every place.
    if state.is_approximate and mask is state.open:
        chosen = np.zeros(len(mask), np.bool_)
        chosen[similar.find_near()] = True
        chosen[_find_best_places(shares, shares.nonzero()[0], CANDIDATES)] = True
        some = (chosen & mask).nonzero()[0]
    else:
        some = state.places if mask is state.open else mask.nonzero()[0]
        if len(some) > FEW:
            rough = similar.score_roughly()
            rough += shares
            some = _find_best_places(rough, some, ROUGH_CANDIDATES)
    if also:
        some = np.union1d(some, also)
    found = similar.compare(some)
    hints = similar.compare_hints(some)
    blended = found if hints is None else similar.blend(found, hints, some)
    if len(some) > count:
        nearer = found if hints is None else np.maximum(found, blended)
        scores = shares.take(some) + similar.score_exactly(nearer)
        best_rows = find_best(state, scores, some, also, count=count)
        some = some.take(best_rows)
        found = found.take(best_rows, axis=1)
        if state.find_hinted(some) is None:
            hints = None
        if hints is not None:
            hints = hints.take(best_rows, axis=1)
            blended = blended.take(best_rows, axis=1)
    expand = similar.expand_lines
    lines = expand(found)
    if hints is None:
        return some, Meaning(lines, None, lines)
    return some, Meaning(lines, expand(hints), expand(blended))


def _score_meaning(lines: Sequence[Floats] | Floats) -> Floats:
    """Return the similarity with the whole question plus the standing for the best clause.

    Only differences between places are meaningful.
    """
    text, plain, *clauses = lines
    whole = text if text is plain else (text + plain) / 2
    if len(clauses) == 1:
        return whole + clauses[0]
    best = clauses[0] - clauses[0].max(initial=-1)
    for clause in clauses[1:]:
        np.maximum(best, clause - clause.max(initial=-1), out=best)
    best += whole
    return best


def _find_best_places(scores: Floats, places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the `count` places with the highest scores, and all that tie with the last one."""
    if len(places) <= count:
        return places
    if len(places) == len(scores):
        return find_best_rows(scores, count)
    return places.take(find_best_rows(scores.take(places), count))


def find_best_rows(scores: Floats, count: int) -> NDArray[np.int64]:
    """Return the rows of the `count` highest scores, and all that tie with the last one."""
    if len(scores) <= 16 * count:
        return (scores >= _find_cut(scores, count)).nonzero()[0]
    # At least `count` scores reach the maximum of the `count`-th best group, and few others do.
    # The rest need not be ordered.
    groups = 4 * count
    size = len(scores) // groups
    highest = np.maximum.reduce(scores[: size * groups].reshape(size, groups))
    some = (scores >= _find_cut(highest, count)).nonzero()[0]
    passed = scores.take(some)
    return some.take((passed >= _find_cut(passed, count)).nonzero()[0])


def find_best(
    state: State,
    scores: Floats,
    places: NDArray[np.int64],
    also: Sequence[int] = (),
    *,
    count: int = CANDIDATES,
) -> NDArray[np.int64]:
    """Return the rows of the `count` best places; ties at the cut are broken by name."""
    if len(places) <= count:
        return np.arange(len(places))
    best_rows = find_best_rows(scores, count)
    if len(best_rows) > count:
        cut = scores[best_rows].min()
        above = (scores > cut).nonzero()[0]
        level = (scores == cut).nonzero()[0]
        named = state.sort_by_name(places[level])[: count - len(above)]
        best_rows = np.concatenate([above, level[np.isin(places[level], named)]])
    return np.union1d(best_rows, np.isin(places, also).nonzero()[0]) if also else best_rows


def _find_cut(scores: Floats, count: int) -> np.float32:
    """Return the lowest of the `count` highest scores; there must be at least that many."""
    ordered = scores.copy()
    place = len(ordered) - count
    ordered.partition(place)
    return ordered[place]


_T = TypeVar("_T")

GUESSES = 3
"""Weak hits that are shown before better ones of a kind that comes last."""
NONSENSE_PIECES = (3.3, 4.0)
"""Letters in a piece, of the whole text and of each word, up to which it may be nonsense."""
NONSENSE_SIMILARITY = (0.18, 0.04)
"""Nonsense is less similar to every tool than this, plus this times the logarithm of the number of
tools: among more tools, one is nearer by chance. docs/search.md has the figures."""
OPPOSITES_CHECKED = 12
"""Candidates among which opposites of what was asked for are looked for."""
SHORTEST = 4
"""Letters of the shortest word that is corrected."""
KNOWN_SHARE = 0.2
"""A question is not translated if tools have more than this share of its foreign words."""
ASKED_WORDS = 64
"""How many words of a question are compared with the words of names."""


class Ranking(NamedTuple):
    """The candidates of one question, with the evidence for each."""

    state: State
    """What the places belong to."""
    question: Question
    places: NDArray[np.int64]
    evidence: Doubles
    fusion: Fusion
    scores: Doubles
    order: NDArray[np.int64]
    """Rows of all candidates, highest score first; equal scores are sorted by name."""
    total: int
    best: NDArray[np.int64]
    """The first rows of `order`, as many as were requested."""
    chances: list[float]
    """How likely each of `best` is the wanted tool, rounded to six digits. They fall, but may rise
    once where what comes last (see `Ranker.rank`) begins."""
    worth: int
    """How many of `best` are worth showing."""

    @property
    def top_chance(self) -> float:
        """How likely the likeliest candidate is the wanted tool; 0 if there is no candidate."""
        return max(self.chances, default=0.0)


Rank = Callable[[str, Mapping[str, str]], Ranking]
"""Ranks a text in which some words, the keys of the mapping, are read as others."""


class Ranker:
    """Ranks with one encoder and one fusion.

    If nothing matches well, it also tries the question in English and with typing errors
    corrected; only whole words of names serve as corrections (R32).
    """

    def __init__(
        self,
        encoder: Encoder | None,
        word_vectors: WordMemory | None,
        fusion: Fusion | None,
        questions: WordMemory | None,
    ) -> None:
        family = encoder.family if encoder else ""
        self._encoder = encoder
        self._fusion = fusion or choose_fusion(family)
        self.latin_only = family in LATIN_FAMILIES
        """Whether the encoder sees only noise in other scripts."""
        self._word_vectors = word_vectors
        self._questions = questions

    def rank_corrected(
        self, rank: Rank, text: str, tools: int
    ) -> tuple[Ranking, Mapping[str, str]]:
        """Return the best ranking of a text and the words that were replaced to get it.

        `rank` ranks a text with some of its words replaced, among that many tools.
        """
        ranking = rank(text, {})
        state = ranking.state
        read: Mapping[str, str] = {}
        if ranking.question.unknown:
            english, read = self._translate(state, ranking.question)
            if read:
                better = rank(english, {})
                if better.top_chance > ranking.top_chance:
                    return better, read
            swap: Mapping[str, str] = {}
            if ranking.top_chance < LIKELY:
                unknown = [w for w in ranking.question.words if state.find(stem(w)) is None]
                swap = find_corrections(unknown, state.live_words)
            if swap:
                better = rank(text, swap)
                if better.top_chance > ranking.top_chance:
                    return better, swap
        if not read and self._is_nonsense(ranking, tools):
            return self.rank(state, text, np.zeros_like(state.open)), {}
        return ranking, {}

    def _is_nonsense(self, ranking: Ranking, tools: int) -> bool:
        """Tell whether a text is only letters: no tool has a word of it, and it means nothing.

        What is no word falls into many short pieces. Those sum up to some vector all the same, but
        to one that is hardly more similar to the nearest of so many tools than any vector is.
        """
        encoder = self._encoder
        words = ranking.question.words[:ASKED_WORDS]
        if not isinstance(encoder, StaticEncoder) or not words or not tools:
            return False
        # A word that only tools of others have must not make a difference (R77).
        if any(ranking.evidence[:, signal].any() for signal in (Signal.MATCH, Signal.HINT_WORDS)):
            return False
        base, slope = NONSENSE_SIMILARITY
        nearest = float(ranking.evidence[:, Signal.MEANING].max(initial=0.0))
        if nearest >= base + slope * log(tools):
            return False
        pieces = [max(encoder.count_pieces(word), 1) for word in words]
        mean, most = NONSENSE_PIECES
        if any(len(word) > most * count for word, count in zip(words, pieces, strict=True)):
            return False
        return len("".join(words)) <= mean * sum(pieces)

    def _translate(self, state: State, question: Question) -> tuple[str, Mapping[str, str]]:
        """Return a question's text in English, and its foreign words with their translations."""
        if self._encoder is not None and not self.latin_only:
            return "", {}  # an encoder that may know the language needs no help
        foreign = [stem(word) for word in question.words if not word.isascii()]
        if len(state.number_terms(foreign)) > KNOWN_SHARE * len(foreign):
            return "", {}  # tools are described in the question's own language

        def is_unknown(word: str) -> bool:
            return not state.number_terms(map(stem, split_words(word)))

        lexicon = Lexicon.load()
        read = lexicon.find_foreign(question.text, is_unknown)
        # Related languages share words with English, but English text has English stop words.
        if is_latin(question.text) and len(read) < sum(
            w in STOP_WORDS for w in split_words(question.text)
        ):
            return "", {}
        return lexicon.translate(question.text, is_unknown), read

    def rank(
        self,
        state: State,
        text: str,
        mask: Mask,
        *,
        wanted: int = 1,
        also: Sequence[int] = (),
        last: Mask | None = None,
        swap: Mapping[str, str] | None = None,
    ) -> Ranking:
        """Return the ranking of a text among the places of a mask.

        Places in `also` are always candidates; those in `last` come after all others that are
        worth showing. `swap` maps words to the words to read instead.
        """
        question = read_question(text, state.number_terms, swap)
        count = CANDIDATES if wanted - len(also) <= CANDIDATES else ROUGH_CANDIDATES
        places, meaning, total = self._find_candidates(state, question, mask, also, count)
        table = np.zeros((len(Signal), len(places)))
        if len(places):
            fill_lexical(table, question, state, places)
            if meaning is not None:
                fill_meaning(table, meaning.definitions)
                if meaning.hints is not None:
                    fill_hint_meaning(table, meaning.hints, meaning.blended)
                if question.words and self._word_vectors:
                    asked = self._word_vectors.get(question.words[:ASKED_WORDS])
                    vectors = np.concatenate(asked).reshape(len(asked), -1)
                    fill_name_meaning(table, question, state, places, vectors)
        fusion = self._fusion if meaning is not None else choose_fusion("")
        scores = fusion.score(table.T, question.length, compute_gate(table.T)).round(9)
        _lift_above_opposites(state, question, places, scores)
        order, rivals = _sort_by_score(state, places, scores)

        is_last = None if last is None else last.take(places.take(order))
        if is_last is None or is_last.all() or not is_last.any():
            best = order[:wanted]
            chances = _predict_chances(fusion, table, scores, best, rivals)
            worth = count_worth_showing(chances)
        else:
            # Those that come first are judged as if the others did not exist.
            first = order[~is_last][:wanted]
            rest = order[is_last][:wanted]
            groups = (
                _predict_chances(fusion, table, scores, first, rivals[~is_last]),
                _predict_chances(fusion, table, scores, rest, rivals),
            )
            shown = _count_both_shown(*groups)
            rows: tuple[list[int], list[int]] = (first.tolist(), rest.tolist())
            best = np.array(_join_groups(*rows, shown)[:wanted])
            chances = _join_groups(*groups, shown)[:wanted]
            worth = min(sum(shown), wanted)
        return Ranking(
            state, question, places, table.T, fusion, scores, order, total, best, chances, worth
        )

    def _find_candidates(
        self, state: State, question: Question, mask: Mask, also: Sequence[int], count: int
    ) -> tuple[NDArray[np.int64], Meaning | None, int]:
        """Return the candidates, their similarities, and how many tools match at all.

        Similarities are None if only words count for this question.
        """
        if not state.shards:
            return np.zeros(0, np.int64), None, 0
        lexical = score_lexically(state, question)
        if mask is not state.open or state.count < len(mask):
            lexical *= mask
        matched = int(np.count_nonzero(lexical > 0))  # much faster on booleans than on floats
        # An encoder trained on English sees only noise in other scripts; matching words are better.
        if self._questions is None or (matched and self.latin_only and not is_latin(question.text)):
            found = lexical.nonzero()[0]
            places = found[find_best(state, lexical[found], found, count=count)]
            return np.union1d(places, also) if also else places, None, matched
        listed = (question.text, question.plain, *question.clauses)
        texts = list(dict.fromkeys(listed))
        vectors = np.array(self._questions.get(texts))
        similar = Similarities(state, vectors, [texts.index(text) for text in listed])
        places, meaning = choose_candidates(state, lexical, similar, mask, also, count)
        return places, meaning, max(matched, len(places))


def _predict_chances(
    fusion: Fusion, table: Doubles, scores: Doubles, rows: NDArray[np.int64], rivals: Doubles
) -> list[float]:
    """Return how likely each of some rows is the wanted tool, never more than the row before."""
    found = fusion.predict_chances(table.take(rows, axis=1).T, scores.take(rows), rivals)
    chances: list[float] = (np.rint(np.minimum.accumulate(found) * 1e6) / 1e6).tolist()
    return chances


def _lift_above_opposites(
    state: State, question: Question, places: NDArray[np.int64], scores: Doubles
) -> None:
    """Exchange the scores of a tool that was asked for and of its opposite above it.

    `delete_issue` and `create_issue` of one server differ in one word; a description that says
    more must not put the wrong one first.
    """
    asked, opposites = find_opposites(question)
    if not opposites or not len(places):
        return
    count = min(OPPOSITES_CHECKED, len(scores))
    near: list[int] = (scores >= np.partition(scores, -count)[-count]).nonzero()[0].tolist()
    tools: dict[int, Tool] = {row: state.tools[places.item(row)] for row in near}
    names = {row: stem_name(tool.leaf) for row, tool in tools.items()}
    wrong = [row for row in near if not names[row].isdisjoint(opposites)]
    if not wrong:
        return
    for row in sorted(names, key=lambda row: tools[row].name):
        rest = names[row] - asked
        if len(rest) == len(names[row]):
            continue
        rivals = [
            other
            for other in wrong
            if tools[other].server == tools[row].server
            and names[other] - opposites == rest
            and names[other].isdisjoint(asked)
            and scores[other] > scores[row]
        ]
        if rivals:
            best = max(rivals, key=lambda other: (scores[other], tools[other].name))
            scores[[row, best]] = scores[[best, row]]


def find_opposites(question: Question) -> tuple[set[str], set[str]]:
    """Return the terms of a question that have opposites, and these; none if both are there."""
    known = {term for term in map(stem, question.words) if term in OPPOSITES}
    asked = {term for term in known if OPPOSITES[term].isdisjoint(known)} if known else known
    return asked, {opposite for term in asked for opposite in OPPOSITES[term]} if asked else asked


def _count_both_shown(first: list[float], rest: list[float]) -> tuple[int, int]:
    """Return how many of what comes first and of the rest are worth showing."""
    count = count_worth_showing(first)
    if first[0] < LIKELY <= rest[0]:
        count = min(count, GUESSES)  # weak hits must not push a good one out of the reply
    floor = max(WORTH_FLOOR, WORTH_SHARE * max(first[0], rest[0]))
    return count, sum(chance >= floor for chance in rest)


def _join_groups(first: list[_T], rest: list[_T], shown: tuple[int, int]) -> list[_T]:
    """Return the shown part of both, then the remainder of both."""
    a, b = shown
    return [*first[:a], *rest[:b], *first[a:], *rest[b:]]


def _sort_by_score(
    state: State, places: NDArray[np.int64], scores: Doubles
) -> tuple[NDArray[np.int64], Doubles]:
    """Return the rows, highest score first and ties by name, and the scores in that order."""
    order = scores.argsort()[::-1]
    ranked = scores.take(order)
    if np.logical_and.reduce(ranked[1:] < ranked[:-1]):
        return order, ranked
    listed: list[int] = places.tolist()
    names = [state.tools[place].name for place in listed]
    by_name = sorted(range(len(names)), key=lambda row: (-scores[row], names[row]))
    return np.array(by_name), ranked


def is_latin(text: str) -> bool:
    """Tell whether most letters of a text are Latin."""
    if text.isascii():
        return True
    letters = [char for char in text[:2_000] if char.isalpha()]
    return 2 * sum(char < "\u0250" for char in letters) >= len(letters)


def find_corrections(typed: Sequence[str], known: Sequence[str]) -> Mapping[str, str]:
    """Return the known word for each typed word that is one edit away from it.

    Words of eight letters or more may be two edits away.
    """
    found: dict[str, str] = {}
    for word in typed:
        if len(word) < SHORTEST:
            continue
        edits = 1 if len(word) < 8 else 2
        # `known` is sorted and the first of equally near words wins, so ties go by name.
        near = process.extractOne(word, known, scorer=OSA.distance, score_cutoff=edits)
        if near is not None:
            found[word] = near[0]
    return found


FIELD_NAMES = {
    Field.NAME: "name",
    Field.SERVER: "server",
    Field.DESCRIPTION: "description",
    Field.PARAMETER: "parameters",
    Field.ENUM: "values",
    Field.HINT: "hint",
    Field.TITLE: "title and tags",
    Field.INSTRUCTIONS: "instructions",
}
FAR = 0.25
"""Below this similarity, an explanation says that the meaning is far from the query."""


def explain(state: State, ranking: Ranking, row: int) -> Why:
    """Return why one candidate of a ranking has its rank."""
    tool = state.tools[int(ranking.places[row])]
    question = ranking.question
    _, found = find_matches(question, state, ranking.places[row : row + 1])
    masks: dict[int | None, int] = dict(zip(question.numbers, found[:, 0].tolist(), strict=True))
    listed = [(word, masks.get(state.find(stem(word)), 0)) for word in question.words]
    by_field = {
        name: tuple(word for word, mask in listed if mask & field.bit)
        for field, name in FIELD_NAMES.items()
    }
    matched = {name: words for name, words in by_field.items() if words}
    return Why(
        matched=matched,
        shares=ranking.fusion.compute_shares(
            ranking.evidence[row], question.length, compute_gate(ranking.evidence)
        ),
        held_back=tuple(_list_drawbacks(ranking, row, tool, matched)),
    )


def _list_drawbacks(
    ranking: Ranking, row: int, tool: Tool, matched: dict[str, tuple[str, ...]]
) -> list[str]:
    drawbacks: list[str] = []
    has = {word for listed in matched.values() for word in listed}
    missing = [word for word in ranking.question.words if word not in has]
    if missing:
        drawbacks.append(f"It does not mention: {', '.join(missing[:8])}.")
    extra = [
        w
        for w in dict.fromkeys(drop_stop_words(split_words(tool.leaf)))
        if stem(w) not in map(stem, has)
    ]
    if extra and ranking.evidence[row, Signal.NAME_MEANING] < 0.99:
        drawbacks.append(f"Its name also says: {', '.join(extra[:8])}.")
    contrary = find_opposites(ranking.question)[1]
    opposite = [word for word in split_words(tool.leaf) if stem(word) in contrary]
    if opposite:
        drawbacks.append(f"Its name says the opposite: {', '.join(opposite)}.")
    if not tool.description:
        drawbacks.append("It has no description.")
    if 0 < ranking.evidence[row, Signal.MEANING] < FAR:
        drawbacks.append("Its meaning is far from the query.")
    better = int(np.sum(ranking.scores > ranking.scores[row]))
    if better:
        fit = "tool fits" if better == 1 else "tools fit"
        drawbacks.append(f"{better} other {fit} better.")
    return drawbacks
