"""Shards: fixed groups of indexed tools, from which the states of an index are put together.

A shard never changes. Tools that come make a small new shard, tools that go are marked in the
state that holds the shard, and now and then shards are merged, without reading any text again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from toolscout.search.lexical import Floats, Ints, Postings, concatenated, entries_between
from toolscout.search.vectors import Neighbours
from toolscout.spellings import Spelling, spellings_of
from toolscout.tools import Tool


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Some tools with their postings and vectors, row by row."""

    tools: tuple[Tool, ...]
    postings: Postings
    keys: tuple[str, ...]
    """Content keys of the encoded texts; empty without an encoder."""
    vectors: NDArray[np.int16] | None
    """On the grid."""
    scanned: Floats | None
    """What every search looks at: the vectors, or their first dimensions where those will do.
    In Fortran order, see `similarities`."""
    name_starts: NDArray[np.int64]
    """Where each row begins in `name_words`; one more than there are rows."""
    name_words: NDArray[np.int32]
    """Numbers in the index's table of name words."""
    neighbours: Neighbours | None = None

    @cached_property
    def exact(self) -> Floats:
        """The vectors as they are compared. Made when first asked for: it is of few tools alone."""
        assert self.vectors is not None, "only what has vectors is compared"
        return self.vectors.astype(np.float32)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each exposed name."""
        return {tool.name: row for row, tool in enumerate(self.tools)}

    @cached_property
    def name_table(self) -> NDArray[np.int32]:
        """The same as `name_words` with a line for each row, filled up with -1."""
        lengths = np.diff(self.name_starts)
        table = np.full((self.size, max(1, lengths.max(initial=0))), -1, np.int32)
        table[np.arange(table.shape[1]) < lengths[:, None]] = self.name_words
        return table

    @cached_property
    def spellings(self) -> tuple[NDArray[np.int64], Ints, bytes]:
        """Hashes of all spellings of the tools' names, ascending; the row of each; their marks.

        Marks tell at once that most texts call no tool: a byte that is not 0 at the end of each
        hash, among at least eight times as many bytes as there are spellings.
        """
        listed = [spellings_of(tool) for tool in self.tools]
        hashes = np.array([hash(one) for found in listed for one in found], np.int64)
        rows = np.repeat(np.arange(len(listed), dtype=np.int32), [len(found) for found in listed])
        order = np.argsort(hashes, kind="stable")
        marks = np.zeros(8 << len(hashes).bit_length(), np.uint8)
        marks[hashes & len(marks) - 1] = 1
        return hashes[order], rows[order], marks.tobytes()

    def rows_called(self, spelling: Spelling) -> list[int]:
        """Return the rows of the tools that may be called so."""
        hashes, rows, marks = self.spellings
        wanted = hash(spelling)
        if not marks[wanted & len(marks) - 1]:
            return []
        span = slice(hashes.searchsorted(wanted), hashes.searchsorted(wanted, "right"))
        found: list[int] = rows[span].tolist()
        return [row for row in found if spelling in spellings_of(self.tools[row])]

    @property
    def size(self) -> int:
        """How many rows there are, alive or not."""
        return len(self.tools)


def merged(shards: Sequence[Shard], alive: Sequence[NDArray[np.bool_]]) -> Shard:
    """Return one shard of all rows that are alive."""
    kept = [np.flatnonzero(mask) for mask in alive]
    parts = list(zip(shards, kept, strict=True))
    vectors = [s.vectors[rows] for s, rows in parts if s.vectors is not None]
    scanned = [s.scanned[rows] for s, rows in parts if s.scanned is not None]
    lengths = [np.diff(s.name_starts)[rows] for s, rows in parts]
    name_words = [s.name_words[entries_between(s.name_starts, rows)[1]] for s, rows in parts]
    return Shard(
        tools=tuple(s.tools[row] for s, rows in parts for row in rows),
        postings=concatenated([s.postings.take(rows) for s, rows in parts]),
        keys=tuple(s.keys[row] for s, rows in parts if s.keys for row in rows),
        vectors=np.concatenate(vectors) if vectors else None,
        scanned=_in_columns(scanned) if scanned else None,
        name_starts=np.concatenate([[0], np.cumsum(np.concatenate(lengths))]),
        name_words=np.concatenate(name_words),
    )


def _in_columns(parts: Sequence[Floats]) -> Floats:
    rows = np.empty((sum(map(len, parts)), parts[0].shape[1]), np.float32, order="F")
    return np.concatenate(parts, out=rows)


def by_shard(
    shards: Sequence[Shard], places: NDArray[np.int64]
) -> list[tuple[Shard, Ints | slice, NDArray[np.int64]]]:
    """Return, for each shard concerned, the positions of its candidates and their rows."""
    if len(shards) == 1:
        return [(shards[0], slice(None), places)]
    parts: list[tuple[Shard, Ints | slice, NDArray[np.int64]]] = []
    offset = 0
    for shard in shards:
        mine = np.flatnonzero((places >= offset) & (places < offset + shard.size))
        if len(mine):
            parts.append((shard, mine.astype(np.int32), places[mine] - offset))
        offset += shard.size
    return parts
