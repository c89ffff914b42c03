"""Candidates: which tools are worth a close look for a question.

Every tool gets a rough score out of its words and its vector; the best are compared exactly, as
all are where they are few, and the best of those go on to `evidence`. Very large catalogues are
asked for near vectors instead of being looked through.
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
"""So many tools are all compared exactly, which takes less time than to pick some of them."""


class Similarities:
    """Similarities of a question's texts with tools.

    Every tool is looked at, by the leading dimensions where the encoder has such, unless the
    state has an approximate index; `at` is exact in any case.
    """

    def __init__(self, state: State, vectors: Floats, lines: list[int]) -> None:
        self._state, self._vectors, self._lines = state, vectors, lines

    def score_roughly(self) -> Floats:
        """Return a rough score of every place, see `_score_meaning`."""
        # The text without its values says little that the text and its clauses do not.
        text, _, *clauses = self._lines
        lines = dict.fromkeys((text, *clauses) if len(clauses) > 1 else (text,))
        parts = [cast("Floats", shard.scanned) for shard in self._state.shards]
        vectors = self._take_leading_lines(lines, parts[0].shape[1])
        if len(lines) == 1:
            vectors *= 2  # the question is its own clause: both parts of the score are the same
        found = [compare_vectors(rows, vectors) for rows in parts]
        whole, *rest = found[0] if len(found) == 1 else np.concatenate(found, axis=1)
        return _score_meaning([whole, whole, *rest]) if rest else whole

    def _take_leading_lines(self, lines: Iterable[int], width: int) -> Floats:
        vectors = [self._vectors[line] for line in lines]
        if width < len(vectors[0]):
            vectors = [take_leading_row(vector, width) for vector in vectors]
        return np.array(vectors)

    def compare(self, places: NDArray[np.int64]) -> Floats:
        """Return a line for each distinct text, a column for each place."""
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
        """Return lines of distinct texts as one for text, plain text and each clause."""
        return found.take(self._lines, axis=0)

    def score_exactly(self, found: Floats) -> Floats:
        """Return the exact score of each place (see `_score_meaning`) given `compare`'s lines."""
        listed = list(found)
        return _score_meaning([listed[line] for line in self._lines])

    def find_near(self) -> NDArray[np.int64]:
        """Return the places that an approximate index finds near, and all that it does not know."""
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
    # All rows of a shard stand in order.
    return shard.exact if len(rows) == shard.size else shard.exact.take(rows, axis=0)


def score_lexically(state: State, question: Question) -> Floats:
    """Return the BM25F score of every place."""
    scores = np.zeros(len(state.open), np.float32)
    rarities = state.list_rarities(question.numbers)
    gains = np.array(list(map(mul, rarities, question.gains)), np.float32)
    offset = 0
    for shard in state.shards if rarities else ():
        mine, listed = scores[offset : offset + shard.size], shard.postings.by_term
        spans = listed.find_spans(question.numbers)
        weights = np.concatenate([listed.weights[begin:end] for begin, end in spans])
        weights *= gains.repeat([end - begin for begin, end in spans])
        rows = np.concatenate([listed.rows[begin:end] for begin, end in spans])
        np.add.at(mine, rows, weights)
        offset += shard.size
    return scores


def count_candidates(wanted: int) -> int:
    """Return how many candidates there are to be for so many hits."""
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

    A rough score picks some of many places, an exact one the best of those.
    """
    best = np.maximum.reduce(lexical)
    shares = lexical / best if best > 0 else lexical
    # Near vectors are few: a filter could leave none of them, so filtered searches look at all.
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
    kept = find_best(state, scores, some, also, count=count)
    return some.take(kept), similar.expand_lines(found.take(kept, axis=1))


def _find_near_places(shares: Floats, similar: Similarities, mask: Mask) -> NDArray[np.int64]:
    """Return the places of near vectors and those of the highest shares."""
    chosen = np.zeros(len(mask), np.bool_)
    chosen[similar.find_near()] = True
    chosen[_find_best_places(shares, shares.nonzero()[0], CANDIDATES)] = True
    return (chosen & mask).nonzero()[0]


def _score_meaning(lines: Sequence[Floats] | Floats) -> Floats:
    """Return the similarity with the whole question plus how well a place does for any clause.

    Only differences between places mean something.
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
    """Return about `count` places of highest score, with all that tie at the cut."""
    if len(places) <= count:
        return places
    if len(places) == len(scores):
        return _find_best_rows(scores, count)
    return places.take(_find_best_rows(scores.take(places), count))


def _find_best_rows(scores: Floats, count: int) -> NDArray[np.int64]:
    """Return where the `count` highest of more scores stand, with all that tie at the cut."""
    if len(scores) <= 16 * count:
        return (scores >= _find_cut(scores, count)).nonzero()[0]
    # What the best of `count` groups reach, at least `count` scores do, and few more: the rest
    # need not be ordered.
    size, groups = len(scores) // (4 * count), 4 * count
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
    """Return where the best places stand among some; where scores tie at the cut, names decide."""
    if len(places) <= count:
        return np.arange(len(places))
    kept = _find_best_rows(scores, count)
    if len(kept) > count:
        cut = scores[kept].min()
        above, level = (scores > cut).nonzero()[0], (scores == cut).nonzero()[0]
        named = state.sort_by_name(places[level])[: count - len(above)]
        kept = np.concatenate([above, level[np.isin(places[level], named)]])
    return np.union1d(kept, np.isin(places, also).nonzero()[0]) if also else kept


def _find_cut(scores: Floats, count: int) -> np.float32:
    """Return the score that the `count` best reach, of at least so many."""
    ordered = scores.copy()
    place = len(ordered) - count
    ordered.partition(place)
    return ordered[place]
