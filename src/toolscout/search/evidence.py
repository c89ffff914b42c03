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

_LOOKED_AT = np.array([0xFF, *COVERED], np.uint8)[:, None]
_HAS = ((np.arange(256, dtype=np.uint8) & _LOOKED_AT) != 0).astype(np.float64)
"""Whether field bits, a column each, hold any field, then each that a question covers: what
`MATCH` to `SERVER` look at, in their order."""

Matches = tuple[Floats, NDArray[np.uint8]]
"""The weights and field bits of the question's terms, a line each, in candidates, a column each."""


def matches_of(question: Question, state: State, places: NDArray[np.int64]) -> Matches:
    """Return what candidates have of the question."""
    parts = by_shard(state.shards, places)
    if len(parts) == 1:
        shard, _, rows = parts[0]
        return _matches(shard.postings.by_term, question.numbers, rows)
    shape = len(question.numbers), len(places)
    weights, masks = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
    for shard, positions, rows in parts:
        found = _matches(shard.postings.by_term, question.numbers, rows)
        weights[:, positions], masks[:, positions] = found
    return weights, masks


def _matches(listed: ByTerm, numbers: Ints, places: NDArray[np.int64]) -> Matches:
    """Return what rows of one shard have of some terms.

    The rows of a term ascend, so that a few halvings find each; most terms of a tool are not
    asked for and stay unread.
    """
    shape, rows = (len(numbers), len(places)), places.astype(np.int32)
    if not len(numbers) or not len(listed.rows):
        return np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
    begins, ends = listed.spans_of(numbers)
    spans = zip(begins.tolist(), ends.tolist(), strict=True)
    at = np.concatenate([listed.rows[a:b].searchsorted(rows) for a, b in spans]).reshape(shape)
    at += begins[:, None]
    found = (at < ends[:, None]) & (listed.rows.take(at, mode="clip") == rows)
    return found * listed.weights.take(at, mode="clip"), found * listed.masks.take(at, mode="clip")


def lexical_evidence(
    table: Doubles, question: Question, state: State, places: NDArray[np.int64]
) -> None:
    """Fill in the lines that words alone decide."""
    found, masks = matches_of(question, state, places)
    rarities = state.rarity.take(question.numbers).astype(np.float64)
    ideal = float(rarities @ question.counted) + question.unknown * state.unknown_rarity
    weights = found * rarities[:, None]
    whole, *by_clause = (weights * question.parts[:, :, None]).sum(axis=1)
    np.divide(whole, max(ideal, 1e-9), out=table[Signal.BM25])
    np.divide(by_clause[0], max(by_clause[0].max(), 1e-9), out=table[Signal.CLAUSE])
    for clause in by_clause[1:]:
        np.maximum(table[Signal.CLAUSE], clause / max(clause.max(), 1e-9), out=table[Signal.CLAUSE])
    _judge_coverage(table[Signal.MATCH : Signal.SERVER + 1], question, rarities, masks)
    table[Signal.MATCH] /= question.distinct
    table[Signal.NAME : Signal.SERVER + 1] /= state.wholes.take(places, axis=0).T


def _judge_coverage(
    lines: Doubles, question: Question, rarities: Doubles, masks: NDArray[np.uint8]
) -> None:
    """Fill in how much of the question stands in any field, and in each that it covers."""
    worth = np.empty((len(_HAS), 1, len(rarities)))
    worth[0], worth[1:] = question.counted, rarities
    # Rarities have half the digits of these sums: nothing is rounded, in whatever order.
    np.matmul(worth, _HAS.take(masks, axis=1), out=lines[:, None])


def meaning_evidence(table: Doubles, similar: Floats) -> None:
    """Fill in the lines of meaning, given similarities with text, plain text and clauses."""
    table[Signal.MEANING : Signal.MEANING_CLAUSE + 1] = similar[:3]
    clauses = similar[2:]
    gaps = clauses - clauses.max(axis=1, keepdims=True)
    if len(clauses) > 1:
        clauses.max(axis=0, out=table[Signal.MEANING_CLAUSE])
        gaps = gaps.max(axis=0)
    table[Signal.MEANING_CLAUSE_GAP] = gaps


def name_evidence(
    table: Doubles, question: Question, state: State, places: NDArray[np.int64], asked: Floats
) -> None:
    """Fill in how much of each name the question comes near; `asked` are its words' vectors."""
    starts, words = state.name_words
    owners, entries = entries_between(starts, places)
    numbers = words.take(entries)
    terms = state.word_terms.take(numbers)
    near = _nearness(asked, state.word_vectors.take(numbers, axis=0))
    near[(terms == question.numbers[:, None]).any(axis=0)] = 1.0
    weights = state.rarity.take(terms)
    part = np.bincount(owners, weights * near, len(places))
    np.divide(part, state.name_wholes.take(places), out=table[Signal.NAME_MEANING])


def _nearness(asked: Floats, vectors: Floats) -> Doubles:
    """Return how near each vector comes to any asked one, 0 to 1, falling off fast."""
    best = similarities(vectors, asked).max(axis=0, initial=0.0).astype(np.float64)
    return best * best
