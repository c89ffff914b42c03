"""Shards: fixed groups of indexed tools, from which the states of an index are put together.

A shard never changes. Tools that come make a small new shard, tools that go are marked in the
state that holds the shard, and now and then shards are merged, without reading any text again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from toolscout.search.lexical import Floats, Postings, concatenated
from toolscout.search.semantic import Neighbours
from toolscout.tools import Tool


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Some tools with their postings and vectors, row by row."""

    tools: tuple[Tool, ...]
    postings: Postings
    keys: tuple[str, ...]
    """Content keys of the encoded texts; empty without an encoder."""
    vectors: Floats | None
    name_words: tuple[tuple[int, ...], ...]
    """Numbers in the index's table of name words."""
    neighbours: Neighbours | None = None

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each exposed name."""
        return {tool.name: row for row, tool in enumerate(self.tools)}

    @property
    def size(self) -> int:
        """How many rows there are, alive or not."""
        return len(self.tools)


def merged(shards: Sequence[Shard], alive: Sequence[NDArray[np.bool_]], vocabulary: int) -> Shard:
    """Return one shard of all rows that are alive."""
    kept = [np.flatnonzero(mask) for mask in alive]
    parts = list(zip(shards, kept, strict=True))
    vectors = [s.vectors[rows] for s, rows in parts if s.vectors is not None]
    return Shard(
        tools=tuple(s.tools[row] for s, rows in parts for row in rows),
        postings=concatenated(
            [s.postings.take(rows, vocabulary) for s, rows in parts], vocabulary
        ),
        keys=tuple(s.keys[row] for s, rows in parts if s.keys for row in rows),
        vectors=np.concatenate(vectors) if vectors else None,
        name_words=tuple(s.name_words[row] for s, rows in parts for row in rows),
    )
