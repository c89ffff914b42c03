"""Compute the evidence for each candidate of a search, one number per `Signal`.

The functions fill a table with a row for each signal and a column for each candidate; `fusion`
turns it into scores. Every sum stays within one column, in an order that does not depend on other
columns, so that equal catalogues give bit-identical results whatever their history.
"""

from collections.abc import Sequence
from operator import mul

import numpy as np
from numpy.typing import NDArray

from toolscout.search.fusion import Doubles, Signal
from toolscout.search.lexical import COVERED, ByTerm, Floats, Ints
from toolscout.search.question import Question
from toolscout.search.shard import State, group_by_shard
from toolscout.search.vectors import compare_vectors

_LOOKED_AT = np.array([0xFF, *COVERED], np.uint8)[:, None]
_HAS = ((np.arange(256, dtype=np.uint8) & _LOOKED_AT) != 0).astype(np.float64)
"""For each possible byte of field bits, a column each: whether it has any field, then whether it
has each of `COVERED`. The rows are in the order of the signals `MATCH` to `SERVER`."""

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
    whole, first, *others = _add_clauses(found * rarities[:, None], question.parts)
    np.divide(whole, max(ideal, 1e-9), out=table[Signal.BM25])
    standing = first / max(np.maximum.reduce(first), 1e-9)
    for clause in others:
        np.maximum(standing, clause / max(np.maximum.reduce(clause), 1e-9), out=standing)
    table[Signal.CLAUSE] = standing
    _judge_coverage(table[Signal.MATCH : Signal.SERVER + 1], question, rarities, masks)
    table[Signal.MATCH] /= question.distinct
    table[Signal.NAME : Signal.SERVER + 1] /= state.wholes.take(places, axis=0).T


def _add_clauses(weights: Doubles, parts: Floats | None) -> Sequence[Doubles]:
    """Return the summed weights for the whole question, then for each clause."""
    if parts is None:
        whole = np.add.reduce(weights)
        return whole, whole
    return tuple(np.add.reduce(weights * parts[:, :, None], axis=1))


def _judge_coverage(
    lines: Doubles, question: Question, rarities: Doubles, masks: NDArray[np.uint8]
) -> None:
    """Fill in how much of the question occurs in any field, then in each of `COVERED`."""
    worth = np.empty((len(_HAS), 1, len(rarities)))
    worth[0] = question.counted
    worth[1:] = rarities
    # Rarities have half the precision of these sums, so nothing is rounded in any order.
    np.matmul(worth, _HAS.take(masks, axis=1), out=lines[:, None])


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


def fill_name_meaning(
    table: Doubles, question: Question, state: State, places: NDArray[np.int64], asked: Floats
) -> None:
    """Fill in how much of each name is close to the question.

    `asked` holds the vectors of the question's words.
    """
    listed = _list_name_words(state, places)
    at = (listed >= 0).ravel().nonzero()[0]
    words = listed.take(at)
    terms = state.word_terms.take(words)
    near = _compare_words(asked, state.word_vectors.take(words, axis=0))
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


def _compare_words(asked: Floats, vectors: Floats) -> Doubles:
    """Return each vector's squared similarity, 0 to 1, with the nearest word of the question."""
    best = np.maximum.reduce(compare_vectors(vectors, asked), initial=0.0)
    return np.square(best, dtype=np.float64)
