"""Candidates: which tools are worth a close look for a question.

Every tool gets a rough score out of its words and its vector; the best few hundred are compared
exactly, and the best of those go on to `evidence`. Very large catalogues are asked for near
vectors instead of being looked through.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from toolscout.search.lexical import Floats
from toolscout.search.questions import Question
from toolscout.search.semantic import leading, similarities
from toolscout.search.shards import by_shard
from toolscout.search.states import Mask, State

CANDIDATES = 64
ROUGH_CANDIDATES = 128


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
        # The text without its values says little that the text and its clauses do not.
        text, _, *clauses = self._lines
        lines = list(dict.fromkeys((text, *(clauses if len(clauses) > 1 else ()))))
        vectors = self._vectors[lines]
        parts: list[Floats] = []
        for shard in self._state.shards:
            scanned = cast("Floats", shard.scanned)
            narrow = scanned.shape[1] < vectors.shape[1]
            wanted = leading(vectors, scanned.shape[1]) if narrow else vectors
            parts.append(similarities(scanned, wanted))
        found = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return _meaning([found[0], found[0], *(found[1:] if len(found) > 1 else found)])

    def at(self, places: NDArray[np.int64]) -> Floats:
        """Return one line for text, plain text and each clause, one column for each place."""
        found = np.zeros((len(self._vectors), len(places)), np.float32)
        for shard, positions, rows in by_shard(self._state.shards, places):
            vectors = cast("NDArray[np.int16]", shard.vectors).take(rows, axis=0)
            found[:, positions] = similarities(vectors.astype(np.float32), self._vectors)
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


def lexical_scores(state: State, question: Question) -> Floats:
    """Return the BM25F score of every place."""
    scores = np.zeros(len(state.open), np.float32)
    gains = state.rarity[question.numbers] * question.gains
    offset = 0
    for shard in state.shards:
        mine, listed = scores[offset : offset + shard.size], shard.postings.by_term
        begins, ends = listed.spans_of(question.numbers)
        for begin, end, gain in zip(begins.tolist(), ends.tolist(), gains, strict=True):
            np.add.at(mine, listed.rows[begin:end], listed.weights[begin:end] * gain)
        offset += shard.size
    return scores


def candidates(
    state: State, lexical: Floats, similar: Similar, mask: Mask, also: Sequence[int]
) -> tuple[NDArray[np.int64], Floats]:
    """Return the places worth a close look, with their similarities.

    A rough score picks some of all places, an exact one the best of those.
    """
    best = lexical.max(initial=0)
    shares = lexical / best if best > 0 else lexical
    # Near vectors are few: a filter could leave none of them, so filtered searches look at all.
    if similar.is_approximate and mask is state.open:
        some = _near_places(shares, similar, mask)
    else:
        some = state.places if mask is state.open else mask.nonzero()[0]
        if len(some) > ROUGH_CANDIDATES:
            some = _best_places(shares + similar.rough(), some, ROUGH_CANDIDATES)
    if also:
        some = np.union1d(some, also)
    lines = similar.at(some)
    if len(some) <= CANDIDATES:
        return some, lines
    kept = best_by_name(state, shares[some] + _meaning(lines), some, also)
    return some[kept], lines.take(kept, axis=1)


def _near_places(shares: Floats, similar: Similar, mask: Mask) -> NDArray[np.int64]:
    """Return the places of near vectors and those of the highest shares."""
    chosen = np.zeros(len(mask), np.bool_)
    chosen[similar.near()] = True
    chosen[_best_places(shares, shares.nonzero()[0], CANDIDATES)] = True
    return (chosen & mask).nonzero()[0]


def _meaning(lines: Sequence[Floats] | Floats) -> Floats:
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


def _best_places(scores: Floats, places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return about `count` places of highest score, with all that tie at the cut."""
    if len(places) <= count:
        return places
    mine = scores if len(places) == len(scores) else scores[places]
    return places[(mine >= _cut(mine, count)).nonzero()[0]]


def best_by_name(
    state: State, scores: Floats, places: NDArray[np.int64], also: Sequence[int] = ()
) -> NDArray[np.int64]:
    """Return where the best places stand among some; where scores tie at the cut, names decide."""
    if len(places) <= CANDIDATES:
        return np.arange(len(places))
    cut = _cut(scores, CANDIDATES)
    kept = (scores >= cut).nonzero()[0]
    if len(kept) > CANDIDATES:
        above, level = (scores > cut).nonzero()[0], (scores == cut).nonzero()[0]
        named = state.by_name(places[level])[: CANDIDATES - len(above)]
        kept = np.concatenate([above, level[np.isin(places[level], named)]])
    return np.union1d(kept, np.isin(places, also).nonzero()[0]) if also else kept


def _cut(scores: Floats, count: int) -> np.float32:
    """Return the score that the `count` best reach, of at least so many."""
    if len(scores) > 16 * count:
        # What the best of some reach, the best of all reach too; the rest need not be ordered.
        scores = scores[scores >= _cut(scores[::8], count)]
    else:
        scores = scores.copy()
    place = len(scores) - count
    scores.partition(place)
    return scores[place]
