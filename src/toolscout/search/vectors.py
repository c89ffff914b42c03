"""Vectors of tools and questions, compared exactly or approximately.

Their numbers are on a grid, see `encoder`, so a similarity has the same bits whatever the order of
rows, the library or the machine. `Neighbours` finds near rows among very many without comparing all
of them. What a similarity means for the rank is left to `rank`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import GRID, Floats

PRODUCT_SIZE = 1 << 18
_PRODUCT_STEP = np.float32(1 / GRID**2)  # a power of two: products stay exact


def compare_vectors(rows: Floats, queries: Floats) -> Floats:
    """Return the cosine of every row with every query: one line for each query.

    Many rows are compared fastest if the numbers of each dimension lie side by side (Fortran
    order). Products stay below the size from which BLAS uses threads: those are faster on an idle
    machine, but took thirty times as long while another process kept one of the cores busy.
    """
    scaled = queries * _PRODUCT_STEP
    if len(queries) == 1:
        scaled = scaled.repeat(2, axis=0)  # a lone line would be another, threaded, routine
    step = max(PRODUCT_SIZE // max(scaled.size, 1), 1)
    if len(rows) <= step:
        return np.matmul(scaled, rows.T)[: len(queries)]
    found = np.empty((len(scaled), len(rows)), np.float32)
    for begin in range(0, len(rows), step):
        part = slice(begin, begin + step)
        np.matmul(scaled, rows[part].T, out=found[:, part])
    return found[: len(queries)]


class Neighbours:
    """An approximate index over fixed rows (usearch, HNSW)."""

    def __init__(self, index: Any) -> None:
        self._index = index

    @classmethod
    def build(cls, rows: Floats, engine: Any) -> "Neighbours":
        """Build an index of vectors on the grid; `engine` is the usearch module."""
        index = engine.Index(ndim=rows.shape[1], metric="ip", dtype="f16")
        index.add(np.arange(len(rows)), rows / np.float32(GRID))
        return cls(index)

    @classmethod
    def from_bytes(cls, saved: NDArray[np.uint8], engine: Any) -> "Neighbours":
        """Return the index that `to_bytes` wrote."""
        return cls(engine.Index.restore(saved.tobytes()))

    def to_bytes(self) -> NDArray[np.uint8]:
        """Return the index as usearch writes it."""
        return np.frombuffer(self._index.save(), np.uint8)

    def find(self, query: Floats, count: int) -> NDArray[np.int64]:
        """Return about the `count` nearest rows, best first."""
        found = self._index.search(query / np.float32(GRID), count)
        return np.asarray(found.keys, np.int64)
