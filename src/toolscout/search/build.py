"""The writer, which turns tools into states of an index, and the file that an index is saved in.

`Writer` owns what outlives a state: the vocabulary, the table of name words and the vectors by
content. Only one thread may write at a time; states already handed out never change. A file written
with other field weights or another layout is stale: it is ignored, and the index is built again.
"""

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from toolscout.catalog import Pace
from toolscout.encoders.encoder import (
    WORD_MEMORY,
    Encoder,
    StaticEncoder,
    VectorCache,
    WordMemory,
    encode_words,
    hash_text,
    take_leading,
)
from toolscout.errors import InvalidFile, MissingExtra
from toolscout.hints.hints import Hints, digest_definition
from toolscout.search import text
from toolscout.search.shard import (
    FIELD_LENGTH_SHARES,
    FIELD_WEIGHTS,
    JOINED_WEIGHT,
    SATURATION,
    TYPICAL_LENGTHS,
    Floats,
    Mask,
    Neighbours,
    Postings,
    Shard,
    SpellingTable,
    State,
    Vocabulary,
    blend_vectors,
    build_postings,
    find_entries,
    merge_shards,
)
from toolscout.search.text import (
    Field,
    build_encoding_text,
    drop_lines,
    drop_stop_words,
    find_shared_lines,
    list_fields,
    split_words,
    stem,
)
from toolscout.tools import Tool

LAYOUT = 4
APPROXIMATE_FROM = 100_000
MERGE_RATIO = 8
"""A shard is merged into the one before it once it has more than an eighth of its size."""
SMALL = 1_000
"""Shards up to this size absorb any later one: that is cheaper than searching another shard."""
DEAD_SHARE = 0.3
NAME_WORDS = 24
HINT_CHARS = 400
"""How much of a tool's hints is searched."""
PIECE = 500
PACED_PIECE = 100
SPARE_VECTORS = 10_000
"""Vectors of tools that are gone which are kept at least, and twice as many at most, because
servers come back."""
SPARE_TERMS = 50_000
"""Terms that only tools which are gone have; beyond that, all of them are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What an index file holds: its tools row by row, and the tables behind them."""

    encoder: str
    """The name of the encoder, or empty."""
    fingerprints: tuple[str, ...]
    """For each row, the fingerprint of its tool and a hash of what else decides what is stored."""
    keys: tuple[str, ...]
    terms: tuple[str, ...]
    """The vocabulary."""
    words: tuple[str, ...]
    """The table of name words."""
    postings: Postings
    name_starts: NDArray[np.int64]
    name_words: NDArray[np.int32]
    vectors: NDArray[np.int16]
    hint_keys: tuple[str, ...]
    hint_vectors: NDArray[np.int16]
    """Empty if no tool has a hint."""
    neighbours: NDArray[np.uint8]
    """The approximate index as usearch writes it, or empty."""


class Writer:
    """Builds states out of tools."""

    def __init__(self, encoder: Encoder | None, hints: Hints, *, approximate: bool | None) -> None:
        self._hints = hints
        self.word_vectors = _build_word_memory(encoder) if encoder else None
        self._vocabulary = Vocabulary()
        self._cache = VectorCache(encoder) if encoder else None
        self._leading = encoder.leading if encoder else 0
        self._approximate = approximate
        self._usearch: Any = None
        if approximate is not False:
            try:
                from usearch import index  # an extra, and slow to import
            except ImportError:
                if approximate:
                    raise MissingExtra("usearch", extra="ann") from None
            else:
                self._usearch = index
        self._words = _WordTable(self._vocabulary, self.word_vectors)
        self._pace = Pace(0)
        self._shared: Mapping[str, frozenset[str]] = {}
        """For each server, the lines that most of its tools have; they are not indexed."""

    def build(self, tools: Sequence[Tool], stored: Stored | None = None) -> State:
        """Return the state of a catalogue with these tools, reusing what is stored of them."""
        self.share(tools)
        known = self._restore(tools, stored) if stored else None
        if known is None:
            return self._build_first(self._build_shard(tools, self._shared))
        state = self._build_first(known)
        new = [tool for tool in tools if tool.name not in known.rows]
        return self.change(state, new, ()) if new else state

    def share(self, tools: Sequence[Tool]) -> None:
        """Note which lines the tools of each server share; these are all tools of their servers."""
        found = {server: find_shared_lines(own) for server, own in _group_by_server(tools).items()}
        self._shared = {server: lines for server, lines in found.items() if lines}

    def store(self, tools: Sequence[Tool]) -> Stored:
        """Return some tools in the form that is stored, without what their servers' tools share."""
        shard = self._build_shard(tools, self._shared)
        return self._export_shard(shard, self._words.words, ())

    def change(self, state: State, added: Sequence[Tool], removed: Sequence[Tool]) -> State:
        """Return a state with some tools added and some removed."""
        self._pace = Pace(len(added) + len(removed))
        shared, siblings = self._share_again(state, added, removed)
        added = (*added, *siblings)
        removed = (*removed, *siblings)
        shards = list(state.shards)
        alive = [mask.copy() for mask in state.alive] if removed else list(state.alive)
        new = self._build_shard(added, shared)
        self._shared = shared
        frequencies = np.bincount(new.postings.terms, minlength=len(self._vocabulary))
        frequencies[: len(state.frequencies)] += state.frequencies
        for shard, mask in zip(shards, alive, strict=True):
            rows = [shard.rows.get(tool.name) for tool in removed]
            gone = np.array([row for row in rows if row is not None and mask[row]], np.int64)
            mask[gone] = False
            _, entries = find_entries(shard.postings.starts, gone)
            np.subtract.at(frequencies, shard.postings.terms[entries], 1)
        if added:
            shards.append(new)
            alive.append(np.ones(len(added), np.bool_))
        changed = self._build_state(*self._tidy(shards, alive), frequencies)
        if len(frequencies) - np.count_nonzero(frequencies) > SPARE_TERMS:
            places: list[int] = changed.places.tolist()
            tools = [changed.tools[place] for place in places]
            changed = self.build(tools, self.export(changed))
        changed.warm_like(state)
        self._forget_vectors(changed)
        return changed

    def _share_again(
        self, state: State, added: Sequence[Tool], removed: Sequence[Tool]
    ) -> tuple[dict[str, frozenset[str]], list[Tool]]:
        """Return what the tools of servers share after a change, and others that this changes."""
        shared = dict(self._shared)
        siblings: list[Tool] = []
        gone = {tool.name for tool in removed}
        new = _group_by_server(added)
        for server in dict.fromkeys((*new, *_group_by_server(removed))):
            kept = [tool for tool in state.list_server(server) if tool.name not in gone]
            before = shared.pop(server, frozenset[str]())
            after = find_shared_lines([*kept, *new.get(server, ())], self._pace.step)
            if after:
                shared[server] = after
            if after != before:
                siblings += [
                    tool
                    for tool in kept
                    if drop_lines(tool, before).description != drop_lines(tool, after).description
                ]
        return shared, siblings

    def refresh_hints(self, state: State, digests: Collection[str]) -> State:
        """Return a state in which the tools with these definitions have their present hints."""
        places: list[int] = state.places.tolist()
        tools = [state.tools[place] for place in places]
        changed = [tool for tool in tools if digest_definition(tool) in digests]
        return self.change(state, changed, changed) if changed else state

    def export(self, state: State) -> Stored:
        """Return a state without what only tools that are gone need."""
        if state.count == 0:
            shard = self._build_piece((), {})
        elif len(state.shards) == 1 and bool(state.open.all()):
            shard = state.shards[0]
        else:
            shard = merge_shards(state.shards, state.alive)
        return self._export_shard(shard, state.words, tuple(map(self.mark, shard.tools)))

    def _export_shard(
        self, shard: Shard, known_words: Sequence[str], marks: tuple[str, ...]
    ) -> Stored:
        terms, postings_terms = np.unique(shard.postings.terms, return_inverse=True)
        words, name_words = np.unique(shard.name_words, return_inverse=True)
        used_terms: list[int] = terms.tolist()
        used_words: list[int] = words.tolist()
        return Stored(
            encoder=self._cache.encoder.name if self._cache else "",
            fingerprints=marks,
            keys=shard.keys,
            terms=tuple(self._vocabulary.terms[number] for number in used_terms),
            words=tuple(known_words[number] for number in used_words),
            postings=replace(shard.postings, terms=postings_terms.astype(np.int32)),
            name_starts=shard.name_starts,
            name_words=name_words.astype(np.int32),
            vectors=_NO_VECTORS if shard.vectors is None else shard.vectors,
            hint_keys=shard.hint_keys,
            hint_vectors=_NO_VECTORS if shard.hint_vectors is None else shard.hint_vectors,
            neighbours=shard.neighbours.to_bytes() if shard.neighbours else np.zeros(0, np.uint8),
        )

    def _restore(self, tools: Sequence[Tool], stored: Stored) -> Shard | None:
        """Return a shard of the tools that are stored, or None if the encoder differs."""
        if stored.encoder != (self._cache.encoder.name if self._cache else ""):
            return None
        self._vocabulary = Vocabulary(stored.terms)
        self._words = _WordTable(self._vocabulary, self.word_vectors)
        self._words.number(stored.words)
        hint_vectors = stored.hint_vectors if len(stored.hint_vectors) else None
        if self._cache:
            self._cache.hold(stored.keys, stored.vectors)
            if hint_vectors is not None:
                self._hold_hints(stored.hint_keys, hint_vectors)
        by_fingerprint = {self.mark(tool): tool for tool in tools}
        found = [by_fingerprint.get(fingerprint) for fingerprint in stored.fingerprints]
        mask = np.array([tool is not None for tool in found], np.bool_)
        if not mask.any():
            return self._build_piece((), {})
        rows = tuple(tool or tools[0] for tool in found)
        whole = Shard(
            tools=rows,
            postings=stored.postings,
            keys=stored.keys,
            vectors=stored.vectors if self._cache else None,
            scanned=self._prepare_scan(stored.vectors) if self._cache else None,
            scanned_blends=self._prepare_blends(stored.vectors, hint_vectors),
            hint_keys=stored.hint_keys,
            hint_vectors=hint_vectors,
            name_starts=stored.name_starts,
            name_words=stored.name_words,
            spellings=SpellingTable.build(rows),
        )
        if not mask.all():
            return self._add_neighbours(merge_shards([whole], [mask]))
        return self._add_neighbours(whole, stored.neighbours)

    def mark(self, tool: Tool) -> str:
        """Return what tells whether a row is still that of a tool."""
        indexed = drop_lines(tool, self._shared.get(tool.server, frozenset()))
        own = "" if indexed is tool else hash_text(indexed.description)
        said = hash_text(tool.instructions) if tool.instructions else ""
        hint = self._find_hint(tool)
        return f"{tool.fingerprint}{said}{own}{hash_text(hint) if hint else ''}"

    def _find_hint(self, tool: Tool) -> str:
        """Return all hints of a tool as one text."""
        return "; ".join(hint.text for hint in self._hints.find(tool))[:HINT_CHARS]

    def _hold_hints(self, keys: Sequence[str], vectors: NDArray[np.int16]) -> None:
        rows = [row for row, key in enumerate(keys) if key]
        if self._cache:
            self._cache.hold([keys[row] for row in rows], vectors[rows])

    def _build_first(self, shard: Shard) -> State:
        frequencies = np.bincount(shard.postings.terms, minlength=len(self._vocabulary))
        return self._build_state([shard], [np.ones(shard.size, np.bool_)], frequencies)

    def _build_state(
        self, shards: list[Shard], alive: list[Mask], frequencies: NDArray[np.int64]
    ) -> State:
        filled = [(s, mask) for s, mask in zip(shards, alive, strict=True) if s.size]
        for shard, _ in filled:
            shard.warm()
        return State(
            vocabulary=self._vocabulary,
            shards=tuple(shard for shard, _ in filled),
            alive=tuple(mask for _, mask in filled),
            frequencies=frequencies,
            words=self._words.words,
            word_terms=self._words.terms,
            word_vectors=self._words.vectors,
        )

    def _tidy(self, shards: list[Shard], alive: list[Mask]) -> tuple[list[Shard], list[Mask]]:
        """Merge small shards into those before them, and drop dead rows where they are many."""
        while len(shards) > 1 and shards[-2].size < max(shards[-1].size * MERGE_RATIO, SMALL):
            shard = self._add_neighbours(merge_shards(shards[-2:], alive[-2:], self._pace.step))
            shards[-2:] = [shard]
            alive[-2:] = [np.ones(shard.size, np.bool_)]
        for place, mask in enumerate(alive):
            if len(mask) and mask.mean() < 1 - DEAD_SHARE:
                shard = merge_shards([shards[place]], [mask], self._pace.step)
                shards[place] = self._add_neighbours(shard)
                alive[place] = np.ones(shard.size, np.bool_)
        return shards, alive

    def _build_shard(self, tools: Sequence[Tool], shared: Mapping[str, frozenset[str]]) -> Shard:
        # Piece by piece, to keep the memory that is needed only while indexing small.
        size = PACED_PIECE if self._pace.is_active else PIECE
        begins = range(0, len(tools), size)
        pieces = [self._build_piece(tools[begin : begin + size], shared) for begin in begins]
        if not pieces:
            return self._build_piece((), shared)
        if len(pieces) == 1:
            return self._add_neighbours(pieces[0])
        masks = [np.ones(piece.size, np.bool_) for piece in pieces]
        whole = merge_shards(pieces, masks, self._pace.step)
        if self._cache and whole.vectors is not None:
            self._cache.hold(whole.keys, whole.vectors)
            if whole.hint_vectors is not None:
                self._hold_hints(whole.hint_keys, whole.hint_vectors)
        return self._add_neighbours(whole)

    def _build_piece(self, tools: Sequence[Tool], shared: Mapping[str, frozenset[str]]) -> Shard:
        texts: list[list[str]] = []
        encoded: list[str] = []
        hints: list[str] = []
        for tool in tools:
            indexed = drop_lines(tool, shared.get(tool.server, frozenset()))
            hints.append(self._find_hint(tool))
            fields = list_fields(indexed, hints[-1])
            texts.append(fields)
            if self._cache:
                encoded.append(build_encoding_text(indexed, fields))
            self._pace.step()
        keys = tuple(map(hash_text, encoded))
        vectors = self._cache.encode(encoded, keys, self._pace.step) if self._cache else None
        hint_keys, hint_vectors = self._encode_hints(hints)
        names = [fields[Field.NAME] for fields in texts]
        name_starts, name_words = self._words.learn(names, self._pace.step)
        return Shard(
            tools=tuple(tools),
            postings=build_postings(texts, self._vocabulary, self._pace.step),
            keys=keys,
            vectors=vectors,
            scanned=self._prepare_scan(vectors),
            scanned_blends=self._prepare_blends(vectors, hint_vectors),
            hint_keys=hint_keys,
            hint_vectors=hint_vectors,
            name_starts=name_starts,
            name_words=name_words,
            spellings=SpellingTable.build(tools, self._pace.step),
        )

    def _encode_hints(
        self, hints: Sequence[str]
    ) -> tuple[tuple[str, ...], NDArray[np.int16] | None]:
        """Return the content keys of hints and their vectors, or nothing if there are no hints."""
        rows = [row for row, hint in enumerate(hints) if hint]
        if not rows or self._cache is None:
            return (), None
        keys = [hash_text(hint) if hint else "" for hint in hints]
        found = self._cache.encode(
            [hints[row] for row in rows], [keys[row] for row in rows], self._pace.step
        )
        vectors = np.zeros((len(hints), found.shape[1]), np.int16)
        vectors[rows] = found
        return tuple(keys), vectors

    def _prepare_scan(self, vectors: NDArray[np.int16] | Floats | None) -> Floats | None:
        if vectors is None:
            return None
        exact = vectors.astype(np.float32)
        return np.asfortranarray(take_leading(exact, self._leading) if self._leading else exact)

    def _prepare_blends(
        self, vectors: NDArray[np.int16] | None, hints: NDArray[np.int16] | None
    ) -> Floats | None:
        if vectors is None or hints is None or self._cache is None:
            return None
        return self._prepare_scan(blend_vectors(vectors, hints))

    def _add_neighbours(self, shard: Shard, saved: NDArray[np.uint8] | None = None) -> Shard:
        is_wanted = self._approximate or shard.size >= APPROXIMATE_FROM
        if not is_wanted or self._usearch is None or shard.vectors is None or not shard.size:
            return shard
        if saved is not None and len(saved):
            return replace(shard, neighbours=Neighbours.from_bytes(saved, self._usearch))
        blended = blend_vectors(shard.vectors, shard.hint_vectors)
        return replace(shard, neighbours=Neighbours.build(blended, self._usearch))

    def _forget_vectors(self, state: State) -> None:
        cache = self._cache
        if cache is None or cache.size <= 2 * (state.count + SPARE_VECTORS):
            return
        live: dict[str, NDArray[np.int16]] = {}
        for shard, mask in zip(state.shards, state.alive, strict=True):
            assert shard.vectors is not None, "an index with a cache has vectors"
            rows: list[int] = np.flatnonzero(mask).tolist()
            live.update((shard.keys[row], shard.vectors[row]) for row in rows)
            if shard.hint_vectors is not None:
                live.update(
                    (shard.hint_keys[row], shard.hint_vectors[row])
                    for row in rows
                    if shard.hint_keys[row]
                )
        cache.keep(live, spare=SPARE_VECTORS)


class _WordTable:
    """The words of tool names with their term and vector.

    It grows by whole copies, so states that hold an older table stay valid.
    """

    def __init__(self, vocabulary: Vocabulary, word_vectors: WordMemory | None) -> None:
        self._vocabulary = vocabulary
        self._word_vectors = word_vectors
        self._numbers: dict[str, int] = {}
        self.words: tuple[str, ...] = ()
        self.terms: NDArray[np.int32] = np.zeros(0, np.int32)
        self.vectors: Floats = np.zeros((0, 0), np.float32)

    def learn(
        self, names: Sequence[str], step: Callable[[], None]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return where each name begins, and the numbers of the distinct content words of all."""
        listed: list[list[str]] = []
        for name in names:
            distinct = dict.fromkeys(drop_stop_words(split_words(name)))
            listed.append(list(distinct)[:NAME_WORDS])
            step()
        self.number(word for row in listed for word in row)
        numbers = [self._numbers[word] for row in listed for word in row]
        return np.cumsum([0, *map(len, listed)]), np.array(numbers, np.int32)

    def number(self, listed: Iterable[str]) -> None:
        """Number each word that has no number yet, in order."""
        new = list(dict.fromkeys(word for word in listed if word not in self._numbers))
        if not new:
            return
        first = len(self.words)
        self._numbers.update(zip(new, range(first, first + len(new)), strict=True))
        self.words += tuple(new)
        terms = np.array([self._vocabulary.number(stem(word)) for word in new], np.int32)
        self.terms = np.concatenate([self.terms, terms])
        if self._word_vectors is not None:
            vectors = np.array(self._word_vectors.get(new))
            self.vectors = np.concatenate([self.vectors, vectors]) if first else vectors


def _group_by_server(tools: Sequence[Tool]) -> dict[str, list[Tool]]:
    found: dict[str, list[Tool]] = {}
    for tool in tools:
        found.setdefault(tool.server, []).append(tool)
    return found


def _build_word_memory(encoder: Encoder) -> WordMemory:
    own = encoder if encoder.family == "static" else None
    static = encoder.words or own or StaticEncoder()
    return WordMemory(partial(encode_words, static), limit=WORD_MEMORY)


_NO_VECTORS = np.zeros((0, 0), np.int16)
_LISTS = ("fingerprints", "keys", "terms", "words", "hint_keys")
_ARRAYS = ("name_starts", "name_words", "vectors", "hint_vectors", "neighbours")


def hash_analysis() -> str:
    """Return a digest of every setting that decides what is stored for a tool."""
    numbers = (FIELD_WEIGHTS, FIELD_LENGTH_SHARES, TYPICAL_LENGTHS)
    parts = [LAYOUT, SATURATION, JOINED_WEIGHT, sorted(text.STOP_WORDS)]
    settings = json.dumps([*parts, *(array.tolist() for array in numbers)])
    return hashlib.sha256(settings.encode()).hexdigest()[:16]


def write_stored(path: Path, stored: Stored) -> None:
    """Write an index file, replacing the old one only when the new one is complete."""
    lists = {name: getattr(stored, name) for name in _LISTS}
    texts = {"analysis": hash_analysis(), "encoder": stored.encoder, **lists}
    header = json.dumps(texts).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(
                cast("IO[bytes]", file),
                header=np.frombuffer(header, np.uint8),
                starts=stored.postings.starts,
                entries=stored.postings.terms,
                weights=stored.postings.weights,
                masks=stored.postings.masks,
                **{name: getattr(stored, name) for name in _ARRAYS},
            )
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


_UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile),
    *(MemoryError, RecursionError),
)
"""What reading a file raises that somebody has damaged or made up."""
_KINDS = {"starts": "i", "terms": "i", "weights": "f", "masks": "u"}
"""The kinds of numbers in the postings, as numpy calls them."""


def read_stored(path: Path) -> Stored | None:
    """Return the content of an index file, or None if it is stale; raises `InvalidFile`."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            header: dict[str, Any] = json.loads(bytes(arrays["header"]))
            if header["analysis"] != hash_analysis():
                return None
            postings = Postings(
                starts=arrays["starts"],
                terms=arrays["entries"],
                weights=arrays["weights"],
                masks=arrays["masks"],
            )
            lists = {name: tuple(header[name]) for name in _LISTS}
            tables: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
            stored = Stored(encoder=header["encoder"], postings=postings, **lists, **tables)
            if not _is_sound(stored):
                raise ValueError("the parts do not fit together")
    except FileNotFoundError:
        raise InvalidFile(
            str(path), "does not exist", remedy="Write it first with `index.save(path)`."
        ) from None
    except _UNREADABLE as error:
        raise InvalidFile(
            str(path), "is not a complete index file", remedy="Delete it and save the index again."
        ) from error
    return stored


def _is_sound(stored: Stored) -> bool:
    """Tell whether the parts fit together, so that no search meets a number out of range."""
    rows = len(stored.fingerprints)
    postings = stored.postings
    lists = [getattr(stored, name) for name in _LISTS]
    texts: list[object] = [stored.encoder, *(text for texts in lists for text in texts)]
    return (
        all(isinstance(text, str) for text in texts)
        and len(set(stored.fingerprints)) == rows
        and all(getattr(postings, name).dtype.kind == kind for name, kind in _KINDS.items())
        and stored.name_words.dtype.kind == stored.name_starts.dtype.kind == "i"
        and stored.vectors.dtype.kind in "if"
        and postings.masks.dtype.itemsize == 1
        and stored.hint_vectors.dtype.kind in "if"
        and bool(np.isfinite(postings.weights).all() and np.isfinite(stored.vectors).all())
        and bool(np.isfinite(stored.hint_vectors).all())
        and len(postings.starts) == len(stored.name_starts) == rows + 1
        and len(postings.terms) == len(postings.weights) == len(postings.masks)
        and int(postings.starts[-1]) == len(postings.terms)
        and int(stored.name_starts[-1]) == len(stored.name_words)
        and bool((np.diff(postings.starts) >= 0).all() and (np.diff(stored.name_starts) >= 0).all())
        and _is_within(postings.terms, len(stored.terms))
        and _is_within(stored.name_words, len(stored.words))
        and (not stored.encoder or len(stored.vectors) == len(stored.keys) == rows)
        and len(stored.hint_keys) == len(stored.hint_vectors)
        and (not len(stored.hint_vectors) or stored.hint_vectors.shape == stored.vectors.shape)
    )


def _is_within(numbers: NDArray[np.int32], size: int) -> bool:
    return not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) < size)
