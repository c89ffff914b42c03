"""Choose the candidates: the tools that are worth a close look for a question.

A rough score from words and vectors picks some of many tools, and an exact comparison picks the
best of those; a small catalogue is compared exactly from the start. A very large one can ask an
approximate index for near vectors instead of scanning all of them. `evidence` does the close look.
"""

from collections.abc import Iterable, Sequence
from operator import mul
from typing import cast

import numpy as np
from numpy.typing import NDArray

from toolscout.search.lexical import Floats
from toolscout.search.question import Question
from toolscout.search.shard import Mask, Shard, State, group_by_shard
from toolscout.search.vectors import compare_vectors, take_leading_row

CANDIDATES = 48
ROUGH_CANDIDATES = 96
FEW = 512
"""Up to this many tools are all compared exactly, which is faster than picking some of them."""


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
        parts = [cast("Floats", shard.scanned) for shard in self._state.shards]
        vectors = self._take_leading_lines(lines, parts[0].shape[1])
        if len(lines) == 1:
            vectors *= 2  # the question is its only clause, so both parts of the score are equal
        found = [compare_vectors(rows, vectors) for rows in parts]
        whole, *rest = found[0] if len(found) == 1 else np.concatenate(found, axis=1)
        return _score_meaning([whole, whole, *rest]) if rest else whole

    def _take_leading_lines(self, lines: Iterable[int], width: int) -> Floats:
        vectors = [self._vectors[line] for line in lines]
        if width < len(vectors[0]):
            vectors = [take_leading_row(vector, width) for vector in vectors]
        return np.array(vectors)

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
        weights = np.concatenate([listed.weights[begin:end] for begin, end in spans])
        weights *= gains.repeat([end - begin for begin, end in spans])
        rows = np.concatenate([listed.rows[begin:end] for begin, end in spans])
        np.add.at(mine, rows, weights)
        offset += shard.size
    return scores


def count_candidates(wanted: int) -> int:
    """Return how many candidates to choose when a search wants this many hits."""
    return CANDIDATES if wanted <= CANDIDATES else ROUGH_CANDIDATES


def choose_candidates(
    state: State,
    lexical: Floats,
    similar: Similarities,
    mask: Mask,
    also: Sequence[int],
    count: int,
) -> tuple[NDArray[np.int64], Floats]:
    """Return the `count` places worth a close look, with their similarities.

    A rough score picks some of many places, and an exact one the best of those. Places in `also`
    are always included.
    """
    best = np.maximum.reduce(lexical)
    shares = lexical / best if best > 0 else lexical
    # A filter could remove all of the few near vectors, so a filtered search scans every place.
    if state.is_approximate and mask is state.open:
        some = _find_near_places(shares, similar, mask)
    else:
        some = state.places if mask is state.open else mask.nonzero()[0]
        if len(some) > FEW:
            rough = similar.score_roughly()
            rough += shares
            some = _find_best_places(rough, some, ROUGH_CANDIDATES)
    if also:
        some = np.union1d(some, also)
    found = similar.compare(some)
    if len(some) <= count:
        return some, similar.expand_lines(found)
    scores = shares.take(some) + similar.score_exactly(found)
    best_rows = find_best(state, scores, some, also, count=count)
    return some.take(best_rows), similar.expand_lines(found.take(best_rows, axis=1))


def _find_near_places(shares: Floats, similar: Similarities, mask: Mask) -> NDArray[np.int64]:
    """Return the places with near vectors and those with the best lexical scores."""
    chosen = np.zeros(len(mask), np.bool_)
    chosen[similar.find_near()] = True
    chosen[_find_best_places(shares, shares.nonzero()[0], CANDIDATES)] = True
    return (chosen & mask).nonzero()[0]


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
        return _find_best_rows(scores, count)
    return places.take(_find_best_rows(scores.take(places), count))


def _find_best_rows(scores: Floats, count: int) -> NDArray[np.int64]:
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
    best_rows = _find_best_rows(scores, count)
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
