"""A state of the index: what one search looks at from beginning to end.

States are values. A change of the catalogue makes a new one that shares the shards it can.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from toolscout.names import fold_name
from toolscout.search.lexical import Floats, Vocabulary, rarities
from toolscout.search.shards import Shard
from toolscout.tools import Tool

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class State:
    """Shards, which of their rows are alive, and how often each term occurs among those."""

    vocabulary: Vocabulary
    shards: tuple[Shard, ...]
    alive: tuple[Mask, ...]
    frequencies: NDArray[np.int64]
    words: tuple[str, ...]
    """All name words ever numbered, by number."""
    word_terms: NDArray[np.int32]
    word_vectors: Floats

    @cached_property
    def open(self) -> Mask:
        """Which places are alive, over all shards."""
        return np.concatenate(self.alive) if self.alive else np.zeros(0, np.bool_)

    @cached_property
    def count(self) -> int:
        """How many tools there are."""
        return int(self.open.sum())

    @cached_property
    def rarity(self) -> Floats:
        """How rare each term is."""
        return rarities(self.frequencies, self.count)

    @property
    def unknown_rarity(self) -> float:
        """How rare a term is that no tool has."""
        return float(np.log1p((self.count + 0.5) / 0.5))

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """The tool at every place, alive or not."""
        return tuple(tool for shard in self.shards for tool in shard.tools)

    @cached_property
    def servers(self) -> dict[str, NDArray[np.int64]]:
        """The places of each server's tools, alive or not."""
        places: dict[str, list[int]] = {}
        for place, tool in enumerate(self.tools):
            places.setdefault(tool.server, []).append(place)
        return {server: np.array(found) for server, found in places.items()}

    @cached_property
    def live_words(self) -> tuple[str, ...]:
        """The words of the names of tools that are alive, sorted."""
        used = {
            number
            for shard, mask in zip(self.shards, self.alive, strict=True)
            for row in np.flatnonzero(mask).tolist()
            for number in shard.name_words[row]
        }
        return tuple(sorted(self.words[number] for number in used))

    @cached_property
    def live_names(self) -> tuple[str, ...]:
        """The exposed names of tools that are alive, sorted."""
        return tuple(sorted(self.tools[place].name for place in np.flatnonzero(self.open).tolist()))

    @cached_property
    def live_servers(self) -> dict[str, str]:
        """Folded to real names of servers with a tool that is alive."""
        alive = self.open
        return {fold_name(name): name for name, at in self.servers.items() if alive[at].any()}

    def find(self, term: str) -> int | None:
        """Return the number of a term that some living tool has."""
        number = self.vocabulary.find(term)
        if number is None or number >= len(self.frequencies) or not self.frequencies[number]:
            return None
        return number

    def place_of(self, name: str) -> int | None:
        """Return the place of a living tool."""
        offset = 0
        for shard, mask in zip(self.shards, self.alive, strict=True):
            row = shard.rows.get(name)
            if row is not None and mask[row]:
                return offset + row
            offset += shard.size
        return None

    def rows_with(self, number: int) -> Iterator[tuple[int, NDArray[np.int32], Floats]]:
        """Return, shard by shard, its offset, the rows that have a term, and their weights."""
        offset = 0
        for shard in self.shards:
            rows, weights = shard.postings.of_term(number)
            if len(rows):
                yield offset, rows, weights
            offset += shard.size

    def having(self, number: int) -> Mask:
        """Return the places that have a term."""
        mask = np.zeros(len(self.open), np.bool_)
        for offset, rows, _ in self.rows_with(number):
            mask[offset + rows] = True
        return mask

    def accepted(self, accepts: Callable[[Tool], bool]) -> Mask:
        """Return the places whose tools a predicate accepts, asking only of living ones."""
        mask = np.zeros(len(self.open), np.bool_)
        for place in np.flatnonzero(self.open).tolist():
            mask[place] = accepts(self.tools[place])
        return mask


def frequencies_of(shards: Sequence[Shard], alive: Sequence[Mask], size: int) -> NDArray[np.int64]:
    """Count anew in how many living tools each term occurs."""
    total = np.zeros(size, np.int64)
    for shard, mask in zip(shards, alive, strict=True):
        _, entries = shard.postings.entries_of(np.flatnonzero(mask))
        total += np.bincount(shard.postings.terms[entries], minlength=size)
    return total
