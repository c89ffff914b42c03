"""A query as the rankers need it: term numbers, clauses, and the texts to encode.

Made once for each search against one vocabulary; holds nothing of the catalogue.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, tanh

import numpy as np
from numpy.typing import NDArray

from toolscout.search.text import (
    drop_stop_words,
    pair_term,
    remove_values,
    split_clauses,
    split_words,
    stem,
)

WORD_LIMIT = 300
"""Distinct words of one query that are ranked; a longer text is cut, not refused."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, in numbers."""

    words: tuple[str, ...]
    """Distinct content words, as typed but folded."""
    numbers: tuple[int, ...]
    """Distinct known terms in the order of their text, so that sums run in one order however
    terms came to be numbered."""
    parts: NDArray[np.float32] | None
    """What each counts for by how often it occurs, 1 for once and towards 2 for many; then a line
    for each clause: how often each occurs in it, or all 1 for a lone clause. None where all of
    these are 1."""
    counted: tuple[float, ...]
    """1, or 0 for a pair of words written as one: it helps, but is no word of its own."""
    distinct: int
    """Distinct terms, known or not."""
    unknown: int
    text: str
    plain: str
    """The text without values."""
    clauses: tuple[str, ...]

    @property
    def gains(self) -> Sequence[float]:
        """What each term counts for by how often it occurs."""
        return (1.0,) * len(self.numbers) if self.parts is None else self.parts[0].tolist()

    @property
    def length(self) -> float:
        """How long the question is: -1 for a word or two, 0 at seven, towards 1 for a page."""
        return tanh(log(self.distinct) - 2)


def read_question(
    text: str,
    numbered: Callable[[Iterable[str]], dict[str, int]],
    corrected: Mapping[str, str] | None = None,
) -> Question:
    """Return a text as a question; `numbered` gives the numbers of terms that some tool has.

    `corrected` gives words to read in place of others.
    """
    swap = corrected or {}
    read = split_words(text)
    whole = drop_stop_words([swap.get(word, word) for word in read] if swap else read)
    distinct = list(dict.fromkeys(whole))
    if len(distinct) > WORD_LIMIT:
        distinct = distinct[:WORD_LIMIT]
        listed = set(distinct)
        whole = [word for word in whole if word in listed]
    terms = _count_terms(whole)
    pairs = {pair_term(*both) for both in pairwise(distinct)} - terms.keys()
    known = numbered((*terms, *pairs))
    order, once = sorted(known), len(terms) == len(whole)
    parts = split_clauses(text)
    return Question(
        words=tuple(distinct),
        numbers=tuple([known[t] for t in order]),
        parts=None if once and len(parts) == 1 else _count_parts(terms, order, parts, swap),
        counted=tuple([1.0 if t in terms else 0.0 for t in order]),
        distinct=max(len(terms), 1),
        unknown=len(terms.keys() - known.keys()),
        text=text,
        plain=remove_values(text),
        clauses=tuple(parts),
    )


def _count_parts(
    terms: Mapping[str, int], order: list[str], parts: list[str], swap: Mapping[str, str]
) -> NDArray[np.float32]:
    counts = np.ones((1 + len(parts), len(order)), np.float32)
    counts[0] = [2 - 2 / (terms.get(t, 1) + 1) for t in order]
    if len(parts) > 1:
        counts[1:] = _count_clauses(parts, order, swap)
    return counts


def _count_clauses(parts: list[str], order: list[str], swap: Mapping[str, str]) -> list[list[int]]:
    counted = [_count_terms([swap.get(word, word) for word in split_words(part)]) for part in parts]
    return [[counts.get(t, 0) for t in order] for counts in counted]


def _count_terms(listed: list[str]) -> dict[str, int]:
    """Return how often each term occurs; a `Counter` takes three times as long for a few."""
    counts: dict[str, int] = {}
    for word in listed:
        one = stem(word)
        counts[one] = counts.get(one, 0) + 1
    return counts
