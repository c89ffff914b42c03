"""Evidence: what speaks for each candidate of a search, as numbers by `Signal`.

Takes a question, a state of the index and some candidates; fills a table, a line for each signal
and a column for each candidate. Every sum runs within one column and in an order that does not
depend on the others, so that equal catalogues give equal bits whatever their history.
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
"""Whether field bits, a column each, hold any field, then each that a question covers: what
`MATCH` to `SERVER` look at, in their order."""

Matches = tuple[Floats, NDArray[np.uint8]]
"""The weights and field bits of the question's terms, a line each, in candidates, a column each."""


def find_matches(question: Question, state: State, places: NDArray[np.int64]) -> Matches:
    """Return what candidates have of the question."""
    parts = group_by_shard(state.shards, places)
    if len(parts) == 1:
        shard, _, rows = parts[0]
        return _find_matches_in_shard(shard.postings.by_term, question.numbers, rows)
    shape = len(question.numbers), len(places)
    weights, masks = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
    for shard, positions, rows in parts:
        found = _find_matches_in_shard(shard.postings.by_term, question.numbers, rows)
        weights[:, positions], masks[:, positions] = found
    return weights, masks


def _find_matches_in_shard(
    listed: ByTerm, numbers: Sequence[int], places: NDArray[np.int64]
) -> Matches:
    """Return what rows of one shard have of some terms.

    The rows of a term ascend, so that a few halvings find each; most terms of a tool are not
    asked for and stay unread.
    """
    shape, rows = (len(numbers), len(places)), places.astype(np.int32)
    if not numbers or not len(listed.rows):
        return np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
    spans = listed.find_spans(numbers)
    # A term's last row is left out: what lies beyond the others is then given its place.
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
    """Fill in the lines that words alone decide."""
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
    """Return what candidates have of the whole question, then of each clause."""
    if parts is None:
        whole = np.add.reduce(weights)
        return whole, whole
    return tuple(np.add.reduce(weights * parts[:, :, None], axis=1))


def _judge_coverage(
    lines: Doubles, question: Question, rarities: Doubles, masks: NDArray[np.uint8]
) -> None:
    """Fill in how much of the question stands in any field, and in each that it covers."""
    worth = np.empty((len(_HAS), 1, len(rarities)))
    worth[0], worth[1:] = question.counted, rarities
    # Rarities have half the digits of these sums: nothing is rounded, in whatever order.
    np.matmul(worth, _HAS.take(masks, axis=1), out=lines[:, None])


def fill_meaning(table: Doubles, similar: Floats) -> None:
    """Fill in the lines of meaning, given similarities with text, plain text and clauses."""
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
    """Fill in how much of each name the question comes near; `asked` are its words' vectors."""
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
    """Return the numbers of each candidate's name words, a line each, filled up with -1."""
    if len(state.shards) == 1:
        return state.shards[0].name_table.take(places, axis=0)
    width = max(shard.name_table.shape[1] for shard in state.shards)
    listed = np.full((len(places), width), -1, np.int32)
    for shard, positions, rows in group_by_shard(state.shards, places):
        listed[positions, : shard.name_table.shape[1]] = shard.name_table.take(rows, axis=0)
    return listed


def _compare_words(asked: Floats, vectors: Floats) -> Doubles:
    """Return how near each vector comes to any asked one, 0 to 1, falling off fast."""
    best = np.maximum.reduce(compare_vectors(vectors, asked), initial=0.0)
    return np.square(best, dtype=np.float64)
