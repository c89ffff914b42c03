"""Evidence: what speaks for each candidate of a search, as numbers by `Signal`.

Takes a question, a state of the index and some candidates; gives a matrix, a row for each.
Candidates come sorted by name, so that equal catalogues give equal bits whatever their history.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolscout.search.fusion import Doubles, Signal
from toolscout.search.lexical import DESCRIPTION_BIT, NAME_BIT, SERVER_BIT, Floats, Ints
from toolscout.search.questions import Question
from toolscout.search.semantic import GRID
from toolscout.search.shards import Shard


@dataclass(frozen=True, slots=True)
class Words:
    """Term entries of the candidates, and which of them the question asks for."""

    owners: Ints
    terms: Ints
    masks: NDArray[np.uint8]
    slots: NDArray[np.int64]
    """Place of the term in the question, or -1."""
    weights: Floats
    """Candidates by question terms; 0 where a candidate lacks one."""


@dataclass(frozen=True, slots=True)
class NameWords:
    """The candidates' name words, for those near in meaning to the question's."""

    owners: Ints
    terms: Ints
    nearness: Doubles
    """How near each comes to any word of the question, 0 to 1."""


def words_of(question: Question, shards: Sequence[Shard], places: NDArray[np.int64]) -> Words:
    """Return the term entries of candidates given as places over all shards."""
    owners: list[Ints] = []
    terms: list[Ints] = []
    masks: list[NDArray[np.uint8]] = []
    weights: list[Floats] = []
    for shard, positions, rows in by_shard(shards, places):
        mine, entries = shard.postings.entries_of(rows)
        owners.append(positions[mine])
        terms.append(shard.postings.terms[entries])
        masks.append(shard.postings.masks[entries])
        weights.append(shard.postings.weights[entries])
    owner, term = np.concatenate(owners), np.concatenate(terms)
    slots = _slots(question.numbers, term)
    found = np.zeros((len(places), len(question.numbers)), np.float32)
    asked = slots >= 0
    found[owner[asked], slots[asked]] = np.concatenate(weights)[asked]
    return Words(owner, term, np.concatenate(masks), slots, found)


def by_shard(
    shards: Sequence[Shard], places: NDArray[np.int64]
) -> list[tuple[Shard, Ints, NDArray[np.int64]]]:
    """Return, for each shard concerned, the positions of its candidates and their rows."""
    parts: list[tuple[Shard, Ints, NDArray[np.int64]]] = []
    offset = 0
    for shard in shards:
        mine = np.flatnonzero((places >= offset) & (places < offset + shard.size))
        if len(mine):
            parts.append((shard, mine.astype(np.int32), places[mine] - offset))
        offset += shard.size
    return parts


def _slots(numbers: Ints, terms: Ints) -> NDArray[np.int64]:
    if not len(numbers):
        return np.full(len(terms), -1)
    order = np.argsort(numbers)
    places = np.searchsorted(numbers, terms, sorter=order)
    places[places == len(numbers)] = 0
    slots = order[places]
    return np.where(numbers[slots] == terms, slots, -1)


def lexical_evidence(
    matrix: Doubles, question: Question, found: Words, rarity: Floats, unknown_rarity: float
) -> None:
    """Fill in the columns that words alone decide."""
    rarities = rarity[question.numbers].astype(np.float64)
    weights = found.weights.astype(np.float64)
    gains = rarities * (2 * question.counts / (question.counts + 1))
    ideal = rarities[question.counted].sum() + question.unknown * unknown_rarity
    matrix[:, Signal.BM25] = (weights * gains).sum(axis=1) / max(ideal, 1e-9)
    present = (weights > 0) & question.counted
    matrix[:, Signal.MATCH] = present.sum(axis=1) / question.distinct
    for signal, bit in (
        (Signal.NAME, NAME_BIT),
        (Signal.DESCRIPTION, DESCRIPTION_BIT),
        (Signal.SERVER, SERVER_BIT),
    ):
        matrix[:, signal] = _coverage(found, bit, rarity, len(matrix))
    clause_scores = (weights * rarities) @ question.clause_counts.T.astype(np.float64)
    best = np.maximum(clause_scores.max(axis=0, initial=0.0), 1e-9)
    matrix[:, Signal.CLAUSE] = (clause_scores / best).max(axis=1)


def _coverage(found: Words, bit: int, rarity: Floats, count: int) -> Doubles:
    """Return which share of a field's weight the question mentions."""
    inside = (found.masks & bit) > 0
    owners, weights = found.owners[inside], rarity[found.terms[inside]]
    whole = np.bincount(owners, weights, count)
    asked = np.bincount(owners, weights * (found.slots[inside] >= 0), count)
    return asked / np.maximum(whole, 1e-9)


def meaning_evidence(matrix: Doubles, similar: Doubles) -> None:
    """Fill in the columns of meaning, given similarities with text, plain text and clauses."""
    matrix[:, Signal.MEANING] = similar[0]
    matrix[:, Signal.MEANING_PLAIN] = similar[1]
    clauses = similar[2:]
    matrix[:, Signal.MEANING_CLAUSE] = clauses.max(axis=0)
    gaps = clauses - clauses.max(axis=1, keepdims=True)
    matrix[:, Signal.MEANING_CLAUSE_GAP] = gaps.max(axis=0)


def name_words_of(
    question: Question,
    shards: Sequence[Shard],
    places: NDArray[np.int64],
    table: Floats,
    table_terms: Ints,
    asked: Floats,
) -> NameWords:
    """Return how near the words of each candidate's name come to the question's words."""
    owners: list[int] = []
    numbers: list[int] = []
    for shard, positions, rows in by_shard(shards, places):
        for position, row in zip(positions.tolist(), rows.tolist(), strict=True):
            mine = shard.name_words[row]
            numbers += mine
            owners += [position] * len(mine)
    unique, back = np.unique(np.array(numbers, np.int64), return_inverse=True)
    near = (asked @ table[unique].T).max(axis=0, initial=0.0).astype(np.float64) / GRID**2
    near = np.clip(near, 0, 1) ** 2
    terms = table_terms[unique]
    near[np.isin(terms, question.numbers)] = 1.0
    return NameWords(np.array(owners, np.int32), terms[back], near[back])


def name_evidence(matrix: Doubles, names: NameWords, rarity: Floats) -> None:
    """Fill in how much of each name the question comes near."""
    weights = rarity[names.terms].astype(np.float64)
    whole = np.bincount(names.owners, weights, len(matrix))
    near = np.bincount(names.owners, weights * names.nearness, len(matrix))
    matrix[:, Signal.NAME_MEANING] = near / np.maximum(whole, 1e-9)
