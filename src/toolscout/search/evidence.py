"""Evidence: what speaks for each candidate of a search, as numbers by `Signal`.

Takes a question, a state of the index and some candidates; fills a table, a line for each signal
and a column for each candidate. Every sum runs within one column and in an order that does not
depend on the others, so that equal catalogues give equal bits whatever their history.
"""

import numpy as np
from numpy.typing import NDArray

from toolscout.search.fusion import Doubles, Signal
from toolscout.search.lexical import COVERED, ByTerm, Floats, Ints, entries_between
from toolscout.search.questions import Question
from toolscout.search.semantic import similarities
from toolscout.search.shards import by_shard
from toolscout.search.states import State

_MATCHED_BITS = np.array([0xFF, *COVERED], np.uint8)[:, None, None]
"""Any field, then each that a question covers: what `MATCH` to `SERVER` look at, in their order."""

Matches = tuple[Doubles, NDArray[np.uint8]]
"""The weights and field bits of the question's terms, a line each, in candidates, a column each."""


def matches_of(question: Question, state: State, places: NDArray[np.int64]) -> Matches:
    """Return what candidates have of the question."""
    shape = len(question.numbers), len(places)
    weights, masks = np.zeros(shape), np.zeros(shape, np.uint8)
    for shard, positions, rows in by_shard(state.shards, places):
        listed = shard.postings.by_term
        if len(listed.rows):
            at, found = _entries(listed, question.numbers, rows.astype(np.int32))
            weights[:, positions] = found * listed.weights.take(at, mode="clip")
            masks[:, positions] = found * listed.masks.take(at, mode="clip")
    return weights, masks


def _entries(
    listed: ByTerm, numbers: Ints, rows: Ints
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return where each row's entry for each term is or would be, and whether it is there.

    The rows of a term ascend, so that a few halvings find each; most terms of a tool are not
    asked for and stay unread.
    """
    begins, ends = listed.spans_of(numbers)
    at = np.empty((len(numbers), len(rows)), np.int64)
    for line, begin, end in zip(at, begins.tolist(), ends.tolist(), strict=True):
        np.add(listed.rows[begin:end].searchsorted(rows), begin, out=line)
    return at, (at < ends[:, None]) & (listed.rows.take(at, mode="clip") == rows)


def lexical_evidence(
    table: Doubles, question: Question, state: State, places: NDArray[np.int64]
) -> None:
    """Fill in the lines that words alone decide."""
    weights, masks = matches_of(question, state, places)
    rarities = state.rarity[question.numbers].astype(np.float64)
    ideal = float(rarities @ question.counted) + question.unknown * state.unknown_rarity
    weights *= rarities[:, None]
    whole, *by_clause = (weights * question.parts[:, :, None]).sum(axis=1)
    table[Signal.BM25] = whole / max(ideal, 1e-9)
    table[Signal.CLAUSE] = by_clause[0] / max(by_clause[0].max(), 1e-9)
    for clause in by_clause[1:]:
        np.maximum(table[Signal.CLAUSE], clause / max(clause.max(), 1e-9), out=table[Signal.CLAUSE])
    worth = np.empty((len(_MATCHED_BITS), len(rarities), 1))
    worth[0, :, 0], worth[1:, :, 0] = question.counted, rarities
    matched = (((masks & _MATCHED_BITS) != 0) * worth).sum(axis=1)
    matched[0] /= question.distinct
    matched[1:] /= np.maximum(state.wholes[places], 1e-9).T
    table[Signal.MATCH : Signal.SERVER + 1] = matched


def meaning_evidence(table: Doubles, similar: Floats) -> None:
    """Fill in the lines of meaning, given similarities with text, plain text and clauses."""
    clauses = similar[2:]
    table[Signal.MEANING : Signal.MEANING_PLAIN + 1] = similar[:2]
    table[Signal.MEANING_CLAUSE] = clauses.max(axis=0)
    table[Signal.MEANING_CLAUSE_GAP] = (clauses - clauses.max(axis=1, keepdims=True)).max(axis=0)


def name_evidence(
    table: Doubles, question: Question, state: State, places: NDArray[np.int64], asked: Floats
) -> None:
    """Fill in how much of each name the question comes near; `asked` are its words' vectors."""
    for shard, positions, rows in by_shard(state.shards, places):
        owners, entries = entries_between(shard.name_starts, rows)
        numbers = shard.name_words[entries]
        terms = state.word_terms[numbers]
        near = _nearness(asked, state.word_vectors.take(numbers, axis=0))
        near[(terms == question.numbers[:, None]).any(axis=0)] = 1.0
        weights = state.rarity[terms]
        whole = np.bincount(owners, weights, len(rows))
        part = np.bincount(owners, weights * near, len(rows))
        table[Signal.NAME_MEANING, positions] = part / np.maximum(whole, 1e-9)


def _nearness(asked: Floats, vectors: Floats) -> Doubles:
    """Return how near each vector comes to any asked one, 0 to 1, falling off fast."""
    best = similarities(vectors, asked).max(axis=0, initial=0.0).astype(np.float64)
    return best * best
