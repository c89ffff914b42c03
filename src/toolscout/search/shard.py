"""Shards: fixed groups of indexed tools, from which the states of an index are put together.

A shard never changes. Tools that come make a small new shard, tools that go are marked in the
state that holds the shard, and now and then shards are merged, without reading any text again.

A state of the index: what one search looks at from beginning to end.

States are values. A change of the catalogue makes a new one that shares the shards it can.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from toolscout.catalog import Spelling, list_spellings, read_spellings
from toolscout.names import fold_name
from toolscout.search.lexical import (
    Floats,
    Ints,
    Postings,
    Vocabulary,
    concatenated,
    entries_between,
    rarities,
)
from toolscout.search.vectors import Neighbours
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
        listed = [list_spellings(tool) for tool in self.tools]
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
        return [row for row in found if spelling in list_spellings(self.tools[row])]

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


Mask = NDArray[np.bool_]
Occurrences = tuple[NDArray[np.int32], Floats]
"""Places that have a term, and its weight in each."""


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
    def places(self) -> NDArray[np.int64]:
        """The places that are alive."""
        return np.flatnonzero(self.open)

    @cached_property
    def count(self) -> int:
        """How many tools there are."""
        return int(self.open.sum())

    @cached_property
    def is_approximate(self) -> bool:
        """Whether only near tools are looked at, where nothing is filtered."""
        return any(shard.neighbours for shard in self.shards)

    @cached_property
    def rarity(self) -> Floats:
        """How rare each term is."""
        return rarities(self.frequencies, self.count)

    def rarities_of(self, numbers: Sequence[int]) -> list[float]:
        """Return how rare some terms are: of a few, plain numbers take less time than arrays."""
        rarity = self.rarity.item
        return [rarity(number) for number in numbers]

    @cached_property
    def wholes(self) -> NDArray[np.float64]:
        """How much all terms of the `COVERED` fields of each place weigh together, never 0."""
        parts = [shard.postings.wholes(self.rarity) for shard in self.shards]
        whole = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return np.maximum(whole, 1e-9, out=whole)

    @cached_property
    def name_words(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Where each place begins in a list of numbers of name words, and the list."""
        if len(self.shards) == 1:
            return self.shards[0].name_starts, self.shards[0].name_words
        lengths = [np.diff(shard.name_starts) for shard in self.shards]
        words = [shard.name_words for shard in self.shards]
        return np.cumsum(np.concatenate([[0], *lengths])), np.concatenate(words)

    @cached_property
    def name_wholes(self) -> NDArray[np.float64]:
        """How much all words of each place's name weigh together, never 0."""
        starts, words = self.name_words
        owners = np.arange(len(starts) - 1).repeat(np.diff(starts))
        weights = self.rarity.take(self.word_terms.take(words))
        return np.maximum(np.bincount(owners, weights, len(starts) - 1), 1e-9)

    @cached_property
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
        used = np.zeros(len(self.words), np.bool_)
        for shard, mask in zip(self.shards, self.alive, strict=True):
            used[shard.name_words[np.repeat(mask, np.diff(shard.name_starts))]] = True
        numbers: list[int] = used.nonzero()[0].tolist()
        return tuple(sorted(self.words[number] for number in numbers))

    @cached_property
    def live_names(self) -> tuple[str, ...]:
        """The exposed names of tools that are alive, sorted."""
        listed: list[int] = self.places.tolist()
        return tuple(sorted(self.tools[place].name for place in listed))

    @cached_property
    def live_servers(self) -> dict[str, str]:
        """Folded to real names of servers with a tool that is alive."""
        alive = self.open
        return {fold_name(name): name for name, at in self.servers.items() if alive[at].any()}

    def find(self, term: str) -> int | None:
        """Return the number of a term that some living tool has."""
        return self.numbered((term,)).get(term)

    def numbered(self, terms: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those terms that some living tool has."""
        known = self.vocabulary.known(terms)
        frequency, size = self.frequencies.item, len(self.frequencies)
        return {term: n for term, n in known.items() if n < size and frequency(n)}

    def place_of(self, name: str) -> int | None:
        """Return the place of a living tool."""
        for offset, shard, mask in self._parts:
            row = shard.rows.get(name)
            if row is not None and mask[row]:
                return offset + row
        return None

    def resolve(self, text: str) -> list[int]:
        """Return the places of the tools that a name may mean, as `Catalog.resolve` does."""
        exposed = self.place_of(text)
        if exposed is not None:
            return [exposed]
        for spelling in read_spellings(text):
            if found := self._called(spelling):
                return self.by_name(found)
        return []

    def _called(self, spelling: Spelling) -> list[int]:
        found: list[int] = []
        for offset, shard, mask in self._parts:
            if rows := shard.rows_called(spelling):
                found += [offset + row for row in rows if mask[row]]
        return found

    @cached_property
    def _parts(self) -> tuple[tuple[int, Shard, Mask], ...]:
        """Each shard with its first place and which of its rows are alive."""
        firsts = accumulate((shard.size for shard in self.shards), initial=0)
        return tuple(zip(firsts, self.shards, self.alive, strict=False))

    def by_name(self, places: Iterable[int] | NDArray[np.int64]) -> list[int]:
        """Return places in the order of their tools' names."""
        listed: list[int] = places.tolist() if isinstance(places, np.ndarray) else list(places)
        names = [self.tools[place].name for place in listed]
        return [listed[i] for i in sorted(range(len(listed)), key=names.__getitem__)]

    def occurrences(self, number: int) -> Iterator[Occurrences]:
        """Return, shard by shard, where a term occurs."""
        offset = 0
        for shard in self.shards:
            found = shard.postings.by_term
            [(begin, end)] = found.spans_of([number])
            if begin < end:
                rows = found.rows[begin:end]
                places = rows + np.int32(offset) if offset else rows
                yield places, found.weights[begin:end]
            offset += shard.size

    def having(self, number: int) -> Mask:
        """Return the places that have a term."""
        mask = np.zeros(len(self.open), np.bool_)
        for places, _ in self.occurrences(number):
            mask[places] = True
        return mask

    def accepted(self, accepts: Callable[[Tool], bool]) -> Mask:
        """Return the places whose tools a predicate accepts, asking only of living ones."""
        mask = np.zeros(len(self.open), np.bool_)
        listed: list[int] = self.places.tolist()
        for place in listed:
            mask[place] = accepts(self.tools[place])
        return mask
