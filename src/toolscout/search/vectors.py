"""Vectors of tools and questions, compared exactly or approximately.

Vectors are rounded to a grid on which every dot product is exact in 32 bits, so a similarity has
the same bits whatever the order of rows, the library or the machine. `VectorCache` makes sure that
no text is encoded twice; `Neighbours` finds near rows among very many without comparing all of
them. What a similarity means for the rank is left to `rank`.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import Encoder, normalize_row, normalize_rows
from toolscout.errors import InvalidEncoder

Floats = NDArray[np.float32]
Integers = NDArray[np.int16]

# |a·b| ≤ GRID² = 2^22 for unit vectors, and float32 holds every integer up to 2^24.
GRID = 2048
PRODUCT_SIZE = 1 << 18
_GRID = np.float32(GRID)
_PRODUCT_STEP = np.float32(1 / GRID**2)  # a power of two: products stay exact
WORD_WIDTH = 64
ENCODED_AT_ONCE = 64


def on_grid(vectors: Floats) -> NDArray[np.int16]:
    """Return unit vectors as whole numbers of 1/2048."""
    return np.rint(vectors * GRID).astype(np.int16)


def hash_text(text: str) -> str:
    """Return the content key of a text: 24 hexadecimal digits."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class VectorCache:
    """The vectors of one encoder by content key, so that no text is encoded twice.

    Only one thread may use a cache at a time.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._known: dict[str, Integers] = {}
        self._width = 0

    @property
    def size(self) -> int:
        """How many vectors there are."""
        return len(self._known)

    def encode(
        self, texts: Sequence[str], keys: Sequence[str], step: Callable[[], None] = lambda: None
    ) -> Integers:
        """Return the vectors of texts on the grid, encoding only the new ones.

        `step` is called between batches.
        """
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        items = list(new.items())
        for begin in range(0, len(items), ENCODED_AT_ONCE):
            self._learn(dict(items[begin : begin + ENCODED_AT_ONCE]))
            step()
        rows = np.zeros((len(keys), self._width), np.int16)
        for row, key in enumerate(keys):
            rows[row] = self._known[key]
        return rows

    def _learn(self, new: dict[str, str]) -> None:
        encoded = on_grid(self.encoder.encode(list(new.values()), kind="tool"))
        if self._width and encoded.shape[1] != self._width:
            raise InvalidEncoder(
                self.encoder.name,
                f"returned {encoded.shape[1]} numbers for a text, and {self._width} before",
                remedy="Give encoders with different vectors different names.",
            )
        self._width = encoded.shape[1]
        self._known.update(zip(new, encoded, strict=True))

    def hold(self, keys: Sequence[str], rows: Integers) -> None:
        """Use the rows of a table: one of an earlier run, or one that exists anyway."""
        self._known.update(zip(keys, rows, strict=True))
        self._width = rows.shape[1] or self._width

    def keep(self, live: Mapping[str, Integers], *, spare: int) -> None:
        """Forget all vectors but the live ones and the newest `spare` others."""
        others = [key for key in self._known if key not in live][-spare:]
        # Copied, because a row would keep the whole table alive that it was taken from.
        self._known = {key: self._known[key].copy() for key in others} | dict(live)


def encode_questions(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """Return query vectors such that a dot product with a row is the cosine times GRID²."""
    rows = encoder.encode(texts, kind="question")
    return np.rint(rows * _GRID).astype(np.float32, copy=False)


def encode_words(encoder: Encoder, words: Sequence[str]) -> Floats:
    """Return short vectors of single words, on the grid, for comparing names with questions."""
    return take_leading(encode_questions(encoder, words), WORD_WIDTH)


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


def take_leading(vectors: Floats | NDArray[np.int16], width: int) -> Floats:
    """Return the first numbers of each vector as a vector of their own, on the grid."""
    return np.rint(normalize_rows(vectors[:, :width]) * _GRID)


def take_leading_row(vector: Floats, width: int) -> Floats:
    """Return the same for one vector."""
    return np.rint(normalize_row(vector[:width]) * _GRID)


class Neighbours:
    """An approximate index over fixed rows (usearch, HNSW)."""

    def __init__(self, index: Any) -> None:
        self._index = index

    @classmethod
    def build(cls, rows: NDArray[np.int16], engine: Any) -> "Neighbours":
        """Build an index of vectors on the grid; `engine` is the usearch module."""
        index = engine.Index(ndim=rows.shape[1], metric="ip", dtype="f16")
        index.add(np.arange(len(rows)), rows.astype(np.float32) / GRID)
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
