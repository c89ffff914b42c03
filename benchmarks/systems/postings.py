"""Inverted lists: which documents contain a term, and with what weight.

A query adds up all documents at once. Several of the compared systems walk over every document
instead; the sums are the same, only slower.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.intp]
Weights = NDArray[np.float64]


class Postings:
    """An inverted list of weighted terms."""

    def __init__(self, documents: Sequence[Mapping[str, float]]) -> None:
        lists: dict[str, tuple[list[int], list[float]]] = {}
        for number, document in enumerate(documents):
            for term, weight in document.items():
                ids, weights = lists.setdefault(term, ([], []))
                ids.append(number)
                weights.append(weight)
        self.size = len(documents)
        self._lists: dict[str, tuple[Ids, Weights]] = {
            term: (np.array(ids, dtype=np.intp), np.array(weights, dtype=np.float64))
            for term, (ids, weights) in lists.items()
        }

    def terms_with(self, part: str) -> list[str]:
        """Return the terms that contain this part."""
        return [term for term in self._lists if part in term]

    def ids(self, term: str) -> Ids:
        """Return the documents that contain a term, in order."""
        return self._lists[term][0] if term in self._lists else np.empty(0, dtype=np.intp)

    def dot(self, query: Mapping[str, float]) -> Weights:
        """Return, for each document, the sum over terms of query weight times document weight."""
        sums = np.zeros(self.size)
        for ids, weights, factor in self._matching(query):
            sums[ids] += weights * factor
        return sums

    def overlap(self, query: Mapping[str, float]) -> Weights:
        """Return, for each document, the size of the multiset that it shares with the query."""
        sums = np.zeros(self.size)
        for ids, weights, count in self._matching(query):
            sums[ids] += np.minimum(weights, count)
        return sums

    def _matching(self, query: Mapping[str, float]) -> Iterable[tuple[Ids, Weights, float]]:
        for term, factor in query.items():
            if term in self._lists:
                yield *self._lists[term], factor


def best_first(scores: Weights | NDArray[np.float32], limit: int) -> list[int]:
    """Return the documents that score above zero, best first, equal ones in their order."""
    kept = np.flatnonzero(scores > 0)
    order: Ids = kept[np.argsort(-scores[kept], kind="stable")]
    return [int(number) for number in order[: max(limit, 0)]]
