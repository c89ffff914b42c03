"""Evidence: what speaks for each candidate of a search, as numbers by `Signal`.

Takes a question, a state of the index and some candidates; gives a matrix, a row for each.
Every sum runs within one row and in an order that does not depend on the others, so that equal
catalogues give equal bits whatever their history.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolscout.search.fusion import Doubles, Signal
from toolscout.search.lexical import (
    DESCRIPTION_BIT,
    NAME_BIT,
    SERVER_BIT,
    Floats,
    entries_between,
)
from toolscout.search.questions import Question
from toolscout.search.semantic import GRID
from toolscout.search.shards import by_shard
from toolscout.search.states import State

COVERAGE = [Signal.NAME, Signal.DESCRIPTION, Signal.SERVER]
"""The signals of `COVERED`, in its order."""
COVERED = (NAME_BIT, DESCRIPTION_BIT, SERVER_BIT)
"""The fields of which it is asked how much a question covers."""
_COVERED_BITS = np.array(COVERED, np.uint8)[None, :, None]


@dataclass(frozen=True, slots=True)
class Matches:
    """Which of the question's terms each candidate has: a row for each candidate."""

    weights: Doubles
    masks: NDArray[np.uint8]
    wholes: Doubles
    """How much all terms of a candidate's `COVERED` fields weigh together."""


def matches_of(question: Question, state: State, places: NDArray[np.int64]) -> Matches:
    """Return what candidates have of the question."""
    shape = len(places), len(question.numbers)
    found = Matches(
        np.zeros(shape), np.zeros(shape, np.uint8), np.zeros((len(places), len(COVERED)))
    )
    order = np.argsort(question.numbers)
    numbers = question.numbers[order]
    for shard, positions, rows in by_shard(state.shards, places):
        owners, entries = shard.postings.entries_of(rows)
        terms, masks = shard.postings.terms[entries], shard.postings.masks[entries]
        rarity = state.rarity[terms]
        for column, bit in enumerate(COVERED):
            inside = rarity * ((masks & bit) > 0)
            found.wholes[positions, column] = np.bincount(owners, inside, len(rows))
        if len(numbers):
            at = np.minimum(np.searchsorted(numbers, terms), len(numbers) - 1)
            asked = np.flatnonzero(numbers[at] == terms)
            row, column = positions[owners[asked]], order[at[asked]]
            found.weights[row, column] = shard.postings.weights[entries[asked]]
            found.masks[row, column] = masks[asked]
    return found


def lexical_evidence(matrix: Doubles, question: Question, state: State, found: Matches) -> None:
    """Fill in the columns that words alone decide."""
    rarities = state.rarity[question.numbers].astype(np.float64)
    gains = rarities * question.gains
    ideal = rarities[question.counted].sum() + question.unknown * state.unknown_rarity
    matrix[:, Signal.BM25] = (found.weights * gains).sum(axis=1) / max(ideal, 1e-9)
    present = (found.masks > 0) & question.counted
    matrix[:, Signal.MATCH] = present.sum(axis=1) / question.distinct
    mentioned = (found.masks[:, None, :] & _COVERED_BITS) > 0
    wholes = np.maximum(found.wholes, 1e-9)
    matrix[:, COVERAGE] = (mentioned * rarities).sum(axis=2) / wholes
    weighed = found.weights * rarities
    by_clause = (weighed[:, None, :] * question.clause_counts).sum(axis=2)
    best = np.maximum(by_clause.max(axis=0, initial=0.0), 1e-9)
    matrix[:, Signal.CLAUSE] = (by_clause / best).max(axis=1)


def meaning_evidence(matrix: Doubles, similar: Doubles) -> None:
    """Fill in the columns of meaning, given similarities with text, plain text and clauses."""
    matrix[:, Signal.MEANING] = similar[0]
    matrix[:, Signal.MEANING_PLAIN] = similar[1]
    clauses = similar[2:]
    matrix[:, Signal.MEANING_CLAUSE] = clauses.max(axis=0)
    gaps = clauses - clauses.max(axis=1, keepdims=True)
    matrix[:, Signal.MEANING_CLAUSE_GAP] = gaps.max(axis=0)


def name_evidence(
    matrix: Doubles, question: Question, state: State, places: NDArray[np.int64], asked: Floats
) -> None:
    """Fill in how much of each name the question comes near; `asked` are its words' vectors."""
    for shard, positions, rows in by_shard(state.shards, places):
        owners, entries = entries_between(shard.name_starts, rows)
        numbers = shard.name_words[entries]
        terms = state.word_terms[numbers]
        near = _nearness(asked, state.word_vectors[numbers])
        near[(terms[:, None] == question.numbers).any(axis=1)] = 1.0
        weights = state.rarity[terms].astype(np.float64)
        whole = np.bincount(owners, weights, len(rows))
        part = np.bincount(owners, weights * near, len(rows))
        matrix[positions, Signal.NAME_MEANING] = part / np.maximum(whole, 1e-9)


def _nearness(asked: Floats, vectors: Floats) -> Doubles:
    """Return how near each vector comes to any asked one, 0 to 1, falling off fast."""
    best = np.zeros(len(vectors), np.float32)
    for word in asked:
        np.maximum(best, np.vecdot(vectors, word), out=best)
    return (best.astype(np.float64) / GRID**2) ** 2
