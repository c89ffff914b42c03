"""BM25F: the weights of terms over all fields of a tool, saturated once per term.

`Vocabulary` numbers the terms, and `Postings` holds the weight of each term in each of some tools.
A weight depends only on its own tool, because field lengths are compared with fixed typical
lengths and not with the catalogue's mean. Adding or removing a tool therefore changes no other
weight; rarity is applied at search time. `shard` keeps track of which tools still exist.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from toolscout.search.text import (
    STOP_WORDS,
    Field,
    join_name_words,
    split_token,
    split_tokens,
    stem,
)

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
    for fields in texts:
        for text in fields:
            found = vocabulary.number_text(text)
            numbers += found
            lengths.append(len(found))
        names_joined.append(
            [vocabulary.number(text) for text in join_name_words(fields[Field.NAME])]
        )
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
