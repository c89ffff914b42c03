"""Shards, which are fixed groups of indexed tools, and the states that are made of them.

A shard never changes. New tools go into a small new shard, removed tools are marked as dead in the
state that holds their shard, and shards are merged now and then without reading any text again. A
`State` is what one search looks at from beginning to end. States are values: a change of the
catalogue makes a new one that shares as many shards as it can. `build` makes both.

Words are weighed by BM25F: over all fields of a tool, saturated once per term. `Vocabulary` numbers
the terms, and `Postings` holds the weight of each term in each of some tools. A weight depends only
on its own tool, because field lengths are compared with fixed typical lengths and not with the
catalogue's mean. Adding or removing a tool therefore changes no other weight; rarity is applied at
search time.

The numbers of vectors are on a grid, see `encoder`, so a similarity has the same bits whatever the
order of rows, the library or the machine. `Neighbours` finds near rows among very many without
comparing all of them. What a similarity means for the rank is left to `rank`.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import GRID
from toolscout.names import Spelling, fold_name, list_server_spellings, read_spellings
from toolscout.search.text import (
    STOP_WORDS,
    Field,
    join_name_words,
    split_token,
    split_tokens,
    stem,
)
from toolscout.tools import Tool

Mask = NDArray[np.bool_]
Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

# By `Field`. Fitted on the dev sets, which have no instructions; docs/search.md has the figures.
# A hint weighs nothing here: it is evidence of its own.
FIELD_WEIGHTS = np.array([2.1, 2.1, 0.7, 0.42, 0.3, 0.28, 1.4, 1.0, 0.2, 0.0])
FIELD_LENGTH_SHARES = np.array([0.75, 0.9, 0.75, 0.75, 0.6, 0.6, 0.6, 0.75, 0.75, 0.75])
TYPICAL_LENGTHS = np.array([3.0, 1.6, 11.0, 5.0, 25.0, 8.0, 6.0, 3.0, 25.0, 12.0])
ROUGH_HINT = 0.3
"""What a word of a hint adds to its weight where candidates are chosen."""
SATURATION = 1.2
JOINED_WEIGHT = 1.0

_FIELD_BITS = np.array([field.bit for field in Field], np.uint8)
COVERED = (Field.NAME.bit, Field.DESCRIPTION.bit, Field.SERVER.bit)
"""The fields for which evidence says how much of them a question covers."""
_MEMO_LIMIT = 30_000
_PIECE = 2_000

MERGED_AT_ONCE = 1_000
PRODUCT_SIZE = 1 << 18
_PRODUCT_STEP = np.float32(1 / GRID**2)  # a power of two: products stay exact


# Words.


class Vocabulary:
    """Numbers terms. It only grows, so a number always means the same term."""

    def __init__(self, terms: Iterable[str] = ()) -> None:
        self.terms: list[str] = list(terms)
        self._numbers = {text: number for number, text in enumerate(self.terms)}
        self._memo: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.terms)

    def find(self, texts: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those terms that are known."""
        numbers = self._numbers
        return {text: numbers[text] for text in texts if text in numbers}

    def number(self, text: str) -> int:
        """Return the number of a term, and assign one to a new term."""
        found = self._numbers.get(text)
        if found is None:
            with self._lock:
                found = self._numbers.get(text)
                if found is None:
                    found = len(self.terms)
                    self.terms.append(text)
                    self._numbers[text] = found
        return found

    def number_text(self, text: str) -> list[int]:
        """Return the term numbers of a text, without stop words unless there is nothing else."""
        content: list[int] = []
        whole: list[int] = []
        for token in split_tokens(text):
            both = self._memo.get(token) or self._learn(token)
            content += both[0]
            whole += both[1]
        return content or whole

    def _learn(self, token: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        parts = split_token(token)
        whole = tuple(self.number(stem(word)) for word in parts)
        content = tuple(n for n, word in zip(whole, parts, strict=True) if word not in STOP_WORDS)
        if len(self._memo) >= _MEMO_LIMIT:
            self._memo.clear()
        self._memo[token] = content, whole
        return content, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ByTerm:
    """Postings sorted by term, then row."""

    starts: NDArray[np.int64]
    """Where the entries of each term begin, and finally where the last ones end."""
    rows: Ints
    weights: Floats
    rough: Floats
    """The weights by which candidates are chosen: words of hints count there."""
    masks: NDArray[np.uint8]

    def find_spans(self, numbers: Iterable[int]) -> list[tuple[int, int]]:
        """Return where the rows of some terms begin and end."""
        start = self.starts.item
        last = len(self.starts) - 1
        # A term that is newer than these postings occurs in none of their tools.
        return [(start(n), start(n + 1)) if n < last else (0, 0) for n in numbers]


@dataclass(frozen=True, kw_only=True)
class Postings:
    """Term weights of some tools, a row for each tool in the order given."""

    starts: NDArray[np.int64]
    """Where each row begins in `terms`, `weights` and `masks`, and finally where the last ends."""
    terms: Ints
    weights: Floats
    masks: NDArray[np.uint8]
    """The bits of the fields that the term occurs in."""

    @cached_property
    def by_term(self) -> ByTerm:
        """The same entries sorted by term, as a search reads them; built on first use."""
        rows = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))
        order = np.argsort(self.terms, kind="stable")
        counts = np.bincount(self.terms)
        weights = self.weights[order]
        masks = self.masks[order]
        hinted = (masks & Field.HINT.bit) > 0
        return ByTerm(
            starts=np.concatenate([[0], np.cumsum(counts)]),
            rows=rows[order],
            weights=weights,
            rough=weights + np.float32(ROUGH_HINT) * hinted if hinted.any() else weights,
            masks=masks,
        )

    def sum_fields(self, rarity: Floats) -> NDArray[np.float64]:
        """Return the summed rarity of the terms in each of a row's `COVERED` fields."""
        found = np.zeros((len(self.starts) - 1, len(COVERED)))
        filled = np.flatnonzero(np.diff(self.starts))
        for begin in range(0, len(filled), _PIECE):  # in pieces, to keep temporary arrays small
            rows = filled[begin : begin + _PIECE]
            entries = slice(self.starts[rows[0]], self.starts[rows[-1] + 1])
            weights = rarity[self.terms[entries]]
            masks = self.masks[entries]
            starts = self.starts[rows] - entries.start
            for column, bit in enumerate(COVERED):
                inside = weights * ((masks & bit) > 0)
                found[rows, column] = np.add.reduceat(inside, starts, dtype=np.float64)
        return found

    def take(self, rows: NDArray[np.integer]) -> "Postings":
        """Return the postings of only some rows."""
        _, entries = find_entries(self.starts, rows)
        return Postings(
            starts=_compute_starts(np.diff(self.starts)[rows]),
            terms=self.terms[entries],
            weights=self.weights[entries],
            masks=self.masks[entries],
        )


def find_entries(
    starts: NDArray[np.int64], rows: NDArray[np.integer]
) -> tuple[Ints, NDArray[np.int64]]:
    """Return the entries of some rows of a ragged table, after the row each belongs to."""
    ends = starts.take(rows + 1)
    lengths = ends - starts.take(rows)
    owners = np.arange(len(rows), dtype=np.int32).repeat(lengths)
    entries = np.arange(len(owners)) + (ends - lengths.cumsum()).take(owners)
    return owners, entries


def build_postings(
    texts: Sequence[Sequence[str]], vocabulary: Vocabulary, step: Callable[[], None] = lambda: None
) -> Postings:
    """Return the postings of tools, given as texts by `Field`; calls `step` after each tool."""
    numbers: list[int] = []
    lengths: list[int] = []
    names_joined: list[list[int]] = []
    for own in texts:
        for text in own:
            found = vocabulary.number_text(text)
            numbers += found
            lengths.append(len(found))
        names_joined.append([vocabulary.number(text) for text in join_name_words(own[Field.NAME])])
        step()
    return _weigh_terms(
        np.array(numbers, np.int64),
        np.array(lengths, np.int64).reshape(len(texts), len(Field)),
        names_joined,
        len(vocabulary),
    )


def _weigh_terms(
    numbers: NDArray[np.int64], lengths: NDArray[np.int64], names_joined: list[list[int]], size: int
) -> Postings:
    """Sum each term's occurrences over the fields of its tool, then saturate."""
    tools, fields = lengths.shape
    slots = np.repeat(np.arange(tools * fields, dtype=np.int64), lengths.ravel())
    # One key sorts by tool, term and field at once. Sums then run in field order, so that a tool's
    # weights are bit-identical whatever else is indexed with it.
    keys = (slots // fields * size + numbers) * fields + slots % fields
    unique, counts = np.unique(keys, return_counts=True)
    pairs, field = np.divmod(unique, fields)
    tool = pairs // size
    norms = 1 - FIELD_LENGTH_SHARES + FIELD_LENGTH_SHARES * lengths / TYPICAL_LENGTHS
    shares = FIELD_WEIGHTS[field] * counts / norms[tool, field]
    extra = np.repeat(np.arange(tools, dtype=np.int64), [len(row) for row in names_joined])
    extra_pairs = extra * size + np.array([n for row in names_joined for n in row], np.int64)
    all_pairs = np.concatenate([pairs, np.setdiff1d(extra_pairs, pairs)])
    shares = np.concatenate([shares, np.full(len(all_pairs) - len(pairs), JOINED_WEIGHT)])
    bits = np.zeros(len(all_pairs), np.uint8)
    bits[: len(pairs)] = _FIELD_BITS[field]
    order = np.argsort(all_pairs, kind="stable")
    all_pairs = all_pairs[order]
    shares = shares[order]
    bits = bits[order]
    first = np.flatnonzero(np.diff(all_pairs, prepend=-1))
    total = np.add.reduceat(shares, first) if len(first) else shares
    masks = np.bitwise_or.reduceat(bits, first) if len(first) else bits
    own, terms = np.divmod(all_pairs[first], max(size, 1))
    return Postings(
        starts=_compute_starts(np.bincount(own, minlength=tools)),
        terms=terms.astype(np.int32),
        weights=(total / (SATURATION + total)).astype(np.float32),
        masks=masks,
    )


def _compute_starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def concatenate_postings(parts: Sequence[Postings]) -> Postings:
    """Return the postings of several groups of tools as one."""
    return Postings(
        starts=_compute_starts(np.concatenate([np.diff(part.starts) for part in parts])),
        terms=np.concatenate([part.terms for part in parts]),
        weights=np.concatenate([part.weights for part in parts]),
        masks=np.concatenate([part.masks for part in parts]),
    )


def compute_rarities(frequencies: NDArray[np.int64], count: int) -> Floats:
    """Return each term's inverse document frequency, positive even in a catalogue of one (R28)."""
    return np.log1p((count - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)


# Vectors.


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


# Shards and states.


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
    """What every search looks at: the vectors, or their first dimensions where those will do. In
    Fortran order, see `compare_vectors`."""
    scanned_blends: Floats | None
    """The same for definition and hint together; None if no tool has a hint."""
    hint_keys: tuple[str, ...]
    """Content keys of the encoded hints, empty for a tool without one; empty if no tool has one."""
    hint_vectors: NDArray[np.int16] | None
    """On the grid, zeros for a tool without a hint; None if no tool has one."""
    name_starts: NDArray[np.int64]
    """Where each row begins in `name_words`; one more than there are rows."""
    name_words: NDArray[np.int32]
    """Numbers in the index's table of name words."""
    spellings: "SpellingTable"
    neighbours: Neighbours | None = None

    def get_scanned_blends(self) -> Floats | None:
        """Return what to scan for definition and hint together, whether or not there are hints."""
        return self.scanned if self.scanned_blends is None else self.scanned_blends

    @cached_property
    def exact(self) -> Floats:
        """The vectors as floats, computed on first use; only small shards need them."""
        assert self.vectors is not None, "only what has vectors is compared"
        return self.vectors.astype(np.float32)

    @cached_property
    def exact_hints(self) -> Floats:
        """The same for hints."""
        assert self.hint_vectors is not None, "only what has hints is compared"
        return self.hint_vectors.astype(np.float32)

    @cached_property
    def blend_scales(self) -> Floats:
        """What makes the sum of a tool's two vectors a vector of length one; 1 without a hint."""
        if self.hint_vectors is None or self.vectors is None:
            return np.ones(self.size, np.float32)
        return compute_blend_scales(self.vectors, self.hint_vectors)

    @cached_property
    def hinted(self) -> Mask:
        """Which rows have a hint."""
        masks = self.postings.masks & Field.HINT.bit > 0
        found = np.zeros(self.size, np.bool_)
        found[np.repeat(np.arange(self.size), np.diff(self.postings.starts))[masks]] = True
        return found

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
    def context(self) -> Mask:
        """Which rows are resources or prompts."""
        return np.array([tool.is_context for tool in self.tools], np.bool_)

    @cached_property
    def servers(self) -> dict[str, list[int]]:
        """The rows of each server's tools."""
        rows: dict[str, list[int]] = {}
        for row, tool in enumerate(self.tools):
            rows.setdefault(tool.server, []).append(row)
        return rows

    @cached_property
    def server_rows(self) -> dict[tuple[int, str], list[int]]:
        """The same by every spelling of the server."""
        found: dict[tuple[int, str], list[int]] = {}
        for server, rows in self.servers.items():
            for spelling in list_server_spellings(server):
                found.setdefault(spelling, []).extend(rows)
        return found

    def find_rows(self, spelling: Spelling) -> list[int]:
        """Return the rows of the tools that may be called so."""
        found = self.spellings.find(spelling)
        return [row for row in found if spelling in self.tools[row].spellings]

    def get_hint_key(self, row: int) -> str:
        """Return the content key of a row's hint, or an empty text."""
        return self.hint_keys[row] if self.hint_keys else ""

    def take_hint_vectors(self, rows: NDArray[np.integer]) -> NDArray[np.int16]:
        """Return the hint vectors of some rows: zeros where there is no hint."""
        if self.hint_vectors is not None:
            return self.hint_vectors[rows]
        width = 0 if self.vectors is None else self.vectors.shape[1]
        return np.zeros((len(rows), width), np.int16)

    def warm(self) -> None:
        """Compute what every search reads, so that no search has to."""
        _ = self.postings.by_term, self.name_table, self.server_rows, self.context
        _ = self.hinted, self.blend_scales

    @property
    def size(self) -> int:
        """How many rows there are, alive or not."""
        return len(self.tools)


@dataclass(frozen=True, slots=True)
class SpellingTable:
    """The hashes of all spellings of some tools' names, ascending, with the row of each.

    Marks show at once that most texts call no tool: a byte other than 0 at the end of each hash,
    among at least eight times as many bytes as there are spellings.
    """

    hashes: NDArray[np.int64]
    rows: Ints
    marks: bytes

    @classmethod
    def build(cls, tools: Sequence[Tool], step: Callable[[], None] = lambda: None) -> Self:
        """Return the table of some tools; calls `step` for each."""
        hashes: list[int] = []
        rows: list[int] = []
        for row, tool in enumerate(tools):
            found = [hash(spelling) for spelling in tool.spellings]
            hashes += found
            rows += [row] * len(found)
            step()
        return cls._sort(np.array(hashes, np.int64), np.array(rows, np.int32))

    @classmethod
    def merge(
        cls, parts: Sequence[tuple["SpellingTable", NDArray[np.int64]]], sizes: Sequence[int]
    ) -> Self:
        """Return the table of the given rows of several tables, of which `sizes` are the rows."""
        hashes: list[NDArray[np.int64]] = []
        rows: list[Ints] = []
        offset = 0
        for (table, chosen), size in zip(parts, sizes, strict=True):
            new_rows = np.full(size, -1, np.int32)
            new_rows[chosen] = np.arange(offset, offset + len(chosen), dtype=np.int32)
            moved = new_rows[table.rows]
            hashes.append(table.hashes[moved >= 0])
            rows.append(moved[moved >= 0])
            offset += len(chosen)
        return cls._sort(np.concatenate(hashes), np.concatenate(rows))

    @classmethod
    def _sort(cls, hashes: NDArray[np.int64], rows: Ints) -> Self:
        order = np.argsort(hashes, kind="stable")
        marks = np.zeros(8 << len(hashes).bit_length(), np.uint8)
        marks[hashes & len(marks) - 1] = 1
        return cls(hashes[order], rows[order], marks.tobytes())

    def find(self, spelling: Spelling) -> list[int]:
        """Return the rows whose tools have a spelling with the same hash."""
        wanted = hash(spelling)
        if not self.marks[wanted & len(self.marks) - 1]:
            return []
        begin = self.hashes.searchsorted(wanted)
        return self.rows[begin : self.hashes.searchsorted(wanted, "right")].tolist()


def merge_shards(
    shards: Sequence[Shard], alive: Sequence[Mask], step: Callable[[], None] = lambda: None
) -> Shard:
    """Return one shard of all rows that are alive; calls `step` now and then."""
    parts = [(s, np.flatnonzero(mask)) for s, mask in zip(shards, alive, strict=True)]
    tools: list[Tool] = []
    keys: list[str] = []
    for shard, rows in parts:
        for begin in range(0, len(rows), MERGED_AT_ONCE):
            listed: list[int] = rows[begin : begin + MERGED_AT_ONCE].tolist()
            tools += [shard.tools[row] for row in listed]
            if shard.keys:
                keys += [shard.keys[row] for row in listed]
            step()
    vectors = [s.vectors[rows] for s, rows in parts if s.vectors is not None]
    scanned = [s.scanned[rows] for s, rows in parts if s.scanned is not None]
    has_hints = any(s.hint_vectors is not None for s in shards)
    blends = [b[rows] for s, rows in parts if (b := s.get_scanned_blends()) is not None]
    hint_vectors = [s.take_hint_vectors(rows) for s, rows in parts] if has_hints else []
    lengths = [np.diff(s.name_starts)[rows] for s, rows in parts]
    name_words = [s.name_words[find_entries(s.name_starts, rows)[1]] for s, rows in parts]
    step()
    return Shard(
        tools=tuple(tools),
        postings=concatenate_postings([s.postings.take(rows) for s, rows in parts]),
        keys=tuple(keys),
        vectors=np.concatenate(vectors) if vectors else None,
        scanned=_concatenate_columns(scanned) if scanned else None,
        scanned_blends=_concatenate_columns(blends) if blends and has_hints else None,
        hint_keys=tuple(s.get_hint_key(row) for s, rows in parts for row in rows.tolist())
        if has_hints
        else (),
        hint_vectors=np.concatenate(hint_vectors) if hint_vectors else None,
        name_starts=np.concatenate([[0], np.cumsum(np.concatenate(lengths))]),
        name_words=np.concatenate(name_words),
        spellings=SpellingTable.merge(
            [(s.spellings, rows) for s, rows in parts], [s.size for s in shards]
        ),
    )


def _concatenate_columns(parts: Sequence[Floats]) -> Floats:
    rows = np.empty((sum(map(len, parts)), parts[0].shape[1]), np.float32, order="F")
    return np.concatenate(parts, out=rows)


def compute_blend_scales(vectors: NDArray[np.int16], hints: NDArray[np.int16]) -> Floats:
    """Return for each row what makes the sum of its two vectors a vector of length one.

    A row whose second vector is zero gets 1. Products are exact, so that a scale does not depend
    on the other rows.
    """
    scales = np.ones(len(vectors), np.float32)
    rows = np.flatnonzero(np.logical_or.reduce(hints, axis=1))
    for begin in range(0, len(rows), MERGED_AT_ONCE):
        some = rows[begin : begin + MERGED_AT_ONCE]
        both = vectors[some].astype(np.int64) + hints[some]
        lengths = np.sqrt((both * both).sum(axis=1).astype(np.float64))
        scales[some] = GRID / np.maximum(lengths, 1.0)
    return scales


def blend_vectors(vectors: NDArray[np.int16], hints: NDArray[np.int16] | None) -> Floats:
    """Return the sums of the vectors of definitions and hints, at unit length, on the grid."""
    if hints is None:
        return vectors.astype(np.float32)
    scales = compute_blend_scales(vectors, hints)[:, None]
    return np.rint((vectors.astype(np.float32) + hints) * scales)


def group_by_shard(
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

    def warm_like(self, other: "State") -> None:
        """Compute what searches have read of another state, so that the next search need not."""
        if self.shards:
            for name in vars(other).keys() - {field.name for field in fields(other)}:
                getattr(self, name)

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
    def hinted(self) -> Mask | None:
        """Which places have a hint; None if there are none."""
        masks = [shard.hinted for shard in self.shards]
        return np.concatenate(masks) if any(mask.any() for mask in masks) else None

    def find_hinted(self, places: NDArray[np.int64]) -> Mask | None:
        """Return which of some places have a hint; None if none of them does."""
        if self.hinted is None:
            return None
        found = self.hinted.take(places)
        return found if np.logical_or.reduce(found) else None

    @cached_property
    def blend_scales(self) -> Floats:
        """What makes the sum of a place's two vectors a vector of length one."""
        return np.concatenate([shard.blend_scales for shard in self.shards])

    @cached_property
    def rarity(self) -> Floats:
        """How rare each term is."""
        return compute_rarities(self.frequencies, self.count)

    def list_rarities(self, numbers: Sequence[int]) -> list[float]:
        """Return how rare some terms are: of a few, plain numbers take less time than arrays."""
        rarity = self.rarity.item
        return [rarity(number) for number in numbers]

    @cached_property
    def wholes(self) -> NDArray[np.float64]:
        """How much all terms of the `COVERED` fields of each place weigh together, never 0."""
        parts = [shard.postings.sum_fields(self.rarity) for shard in self.shards]
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
    def context(self) -> Mask | None:
        """Which places are resources or prompts; None if there are none."""
        masks = [shard.context for shard in self.shards]
        return np.concatenate(masks) if any(mask.any() for mask in masks) else None

    @cached_property
    def servers(self) -> dict[str, NDArray[np.int64]]:
        """The places of each server's tools, alive or not."""
        places: dict[str, list[int]] = {}
        for offset, shard, _ in self._parts:
            for server, rows in shard.servers.items():
                places.setdefault(server, []).extend(offset + row for row in rows)
        return {server: np.array(found) for server, found in places.items()}

    def list_server(self, server: str) -> list[Tool]:
        """Return the living tools of a server."""
        return [
            shard.tools[row]
            for _, shard, mask in self._parts
            for row in shard.servers.get(server, ())
            if mask[row]
        ]

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
        return self.number_terms((term,)).get(term)

    def number_terms(self, terms: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those terms that some living tool has."""
        known = self.vocabulary.find(terms)
        frequency = self.frequencies.item
        size = len(self.frequencies)
        return {term: n for term, n in known.items() if n < size and frequency(n)}

    def find_place(self, name: str) -> int | None:
        """Return the place of a living tool."""
        for offset, shard, mask in self._parts:
            row = shard.rows.get(name)
            if row is not None and mask[row]:
                return offset + row
        return None

    def resolve(self, text: str) -> list[int]:
        """Return the places of the tools that a name may mean, as `Catalog.resolve` does."""
        exposed = self.find_place(text)
        if exposed is not None:
            return [exposed]
        for spelling in read_spellings(text):
            found: list[int] = []
            for offset, shard, mask in self._parts:
                if rows := shard.find_rows(spelling):
                    found += [offset + row for row in rows if mask[row]]
            if found:
                return self.sort_by_name(found)
        return []

    def find_server_places(self, text: str, mask: Mask) -> list[int]:
        """Return the places in a mask of the tools of the server that a text names, by name."""
        for spelling in list_server_spellings(text):
            found: list[int] = []
            for offset, shard, _ in self._parts:
                rows = shard.server_rows.get(spelling, ())
                found += [offset + row for row in rows if mask[offset + row]]
            if found:
                return self.sort_by_name(found)
        return []

    @cached_property
    def _parts(self) -> tuple[tuple[int, Shard, Mask], ...]:
        """Each shard with its first place and which of its rows are alive."""
        firsts = accumulate((shard.size for shard in self.shards), initial=0)
        return tuple(zip(firsts, self.shards, self.alive, strict=False))

    def sort_by_name(self, places: Iterable[int] | NDArray[np.int64]) -> list[int]:
        """Return places in the order of their tools' names."""
        listed: list[int] = places.tolist() if isinstance(places, np.ndarray) else list(places)
        names = [self.tools[place].name for place in listed]
        return [listed[i] for i in sorted(range(len(listed)), key=names.__getitem__)]

    def find_fields(self, number: int) -> NDArray[np.uint8]:
        """Return for each place which fields have a term, one bit for each `Field`."""
        fields = np.zeros(len(self.open), np.uint8)
        for offset, shard, _ in self._parts:
            found = shard.postings.by_term
            [(begin, end)] = found.find_spans([number])
            fields[found.rows[begin:end] + offset] = found.masks[begin:end]
        return fields

    def mask_accepted(self, accepts: Callable[[Tool], bool]) -> Mask:
        """Return the places whose tools a predicate accepts, asking only of living ones."""
        mask = np.zeros(len(self.open), np.bool_)
        listed: list[int] = self.places.tolist()
        for place in listed:
            mask[place] = accepts(self.tools[place])
        return mask
