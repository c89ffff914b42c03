"""Turn the words of a query into a `Question`: term numbers, clauses and texts to encode.

A question is built once per search, against one vocabulary. It knows nothing about the tools.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import log, tanh
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolscout.search.text import (
    drop_stop_words,
    name_values,
    pair_term,
    remove_values,
    split_clauses,
    split_words,
    stem,
)

WORD_LIMIT = 300
"""How many distinct words of a query count; the rest of a longer one is ignored."""


class Question(NamedTuple):
    """What a query asks for, as numbers."""

    words: tuple[str, ...]
    """Distinct content words, folded but not stemmed."""
    numbers: tuple[int, ...]
    """Distinct known terms, sorted by their text so that sums do not depend on the numbering."""
    parts: NDArray[np.float32] | None
    """The first row holds the gain of each term: 1 if it occurs once, approaching 2 for many
    times. Then a row for each clause says how often each term occurs in it; for a single clause,
    all are 1. None if everything is 1."""
    counted: tuple[float, ...]
    """1, or 0 for a pair of words joined into one: it helps, but does not count as a word."""
    distinct: int
    """Distinct terms, known or not."""
    unknown: int
    text: str
    plain: str
    """The text without values."""
    clauses: tuple[str, ...]

    @property
    def gains(self) -> Sequence[float]:
        """The gain of each term, which grows with how often it occurs."""
        return (1.0,) * len(self.numbers) if self.parts is None else self.parts[0].tolist()

    @property
    def length(self) -> float:
        """The length from -1 (one or two words) through 0 (about seven) towards 1 (a page)."""
        return tanh(log(self.distinct) - 2)


def read_question(
    text: str,
    numbered: Callable[[Iterable[str]], dict[str, int]],
    corrected: Mapping[str, str] | None = None,
) -> Question:
    """Return the question that a text asks.

    `numbered` returns the numbers of those terms that occur in some tool; `corrected` maps words
    to the words to read instead.
    """
    swap = corrected or {}
    text = name_values(text)
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
    order = sorted(known)
    once = len(terms) == len(whole)
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
        for row, part in enumerate(parts, 1):
            found = _count_terms([swap.get(word, word) for word in split_words(part)])
            counts[row] = [found.get(t, 0) for t in order]
    return counts


def _count_terms(listed: list[str]) -> dict[str, int]:
    """Return how often each term occurs; for a few words, a `Counter` takes three times as long."""
    counts: dict[str, int] = {}
    for word in listed:
        one = stem(word)
        counts[one] = counts.get(one, 0) + 1
    return counts
