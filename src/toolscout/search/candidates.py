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
from toolscout.search.semantic import leading, rough_similarities, similarities
from toolscout.search.shards import by_shard
from toolscout.search.states import Mask, State

CANDIDATES = 64
ROUGH_CANDIDATES = 200


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
            parts.append(rough_similarities(scanned, wanted))
        found = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return _meaning([found[0], found[0], *(found[1:] if len(found) > 1 else found)])

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


def lexical_scores(state: State, question: Question) -> Floats:
    """Return the BM25F score of every place."""
    scores = np.zeros(len(state.open), np.float32)
    gains = state.rarity[question.numbers] * question.gains
    for number, gain in zip(question.numbers.tolist(), gains, strict=True):
        for places, weights in state.occurrences(number):
            scores[places] += weights * gain
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
    places = best_by_name(state, shares[some] + _meaning(lines), some, also)
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


def _best_places(scores: Floats, places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return about `count` places of highest score, with all that tie at the cut."""
    if len(places) <= count:
        return places
    mine = scores if len(places) == len(scores) else scores[places]
    cut = np.partition(mine, len(mine) - count)[len(mine) - count]
    return places[mine >= cut]


def best_by_name(
    state: State, scores: Floats, places: NDArray[np.int64], also: Sequence[int] = ()
) -> NDArray[np.int64]:
    """Return the best places; where scores tie at the cut, names decide."""
    if len(places) > CANDIDATES:
        cut = np.partition(scores, len(scores) - CANDIDATES)[len(scores) - CANDIDATES]
        above = places[scores > cut]
        level = places[scores == cut]
        if len(above) + len(level) > CANDIDATES:
            level = np.array(state.by_name(level)[: CANDIDATES - len(above)], np.int64)
        places = np.concatenate([above, level])
    return np.union1d(places, np.array(also, np.int64)) if also else places
