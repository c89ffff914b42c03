"""Writer: makes the states of an index out of tools.

Owns what outlives a state: the vocabulary, the table of name words, the vectors by content.
One thread at a time may write; states already given out stay as they are.

Storage: an index as one file, so that nothing is read or encoded twice across runs.

`write` and `read` move a `Stored` value to and from disk, at once or not at all. A file made by
other field weights or another layout is stale, which is no error: the index is made anew.
"""

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import Encoder
from toolscout.encoders.static import WORD_MEMORY, StaticEncoder, WordMemory
from toolscout.errors import InvalidFile, MissingExtra
from toolscout.search import lexical, text
from toolscout.search.lexical import Floats, Postings, Vocabulary, postings_of
from toolscout.search.shard import Mask, Shard, State, merged
from toolscout.search.text import (
    Field,
    build_encoding_text,
    drop_stop_words,
    list_fields,
    split_words,
    stem,
)
from toolscout.search.vectors import Neighbours, VectorCache, encode_words, hash_text, take_leading
from toolscout.tools import Tool

LAYOUT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What an index keeps of its tools, row by row, and the tables behind it."""

    encoder: str
    """The name of the encoder, empty without one."""
    fingerprints: tuple[str, ...]
    """Of the tool of each row."""
    keys: tuple[str, ...]
    terms: tuple[str, ...]
    """The vocabulary."""
    words: tuple[str, ...]
    """The table of name words."""
    postings: Postings
    name_starts: NDArray[np.int64]
    name_words: NDArray[np.int32]
    vectors: NDArray[np.int16]
    neighbours: NDArray[np.uint8]
    """The approximate index, as its library writes it; empty where there is none."""


def analysis() -> str:
    """Return a digest of all that decides what is stored for a tool."""
    numbers = (lexical.FIELD_WEIGHTS, lexical.FIELD_LENGTH_SHARES, lexical.TYPICAL_LENGTHS)
    parts = [LAYOUT, lexical.SATURATION, lexical.JOINED_WEIGHT, sorted(text.STOP_WORDS)]
    said = json.dumps([*parts, *(array.tolist() for array in numbers)])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def write(path: Path, stored: Stored) -> None:
    """Write an index file in place of what was there."""
    lists = {
        "analysis": analysis(),
        "encoder": stored.encoder,
        "fingerprints": stored.fingerprints,
        "keys": stored.keys,
        "terms": stored.terms,
        "words": stored.words,
    }
    header = json.dumps(lists).encode()
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
                name_starts=stored.name_starts,
                name_words=stored.name_words,
                vectors=stored.vectors,
                neighbours=stored.neighbours,
            )
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(path: Path) -> Stored | None:
    """Return what a file holds, nothing if it is stale, or raise `InvalidFile`."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            header: dict[str, Any] = json.loads(bytes(arrays["header"]))
            if header["analysis"] != analysis():
                return None
            stored = _stored(header, arrays)
    except FileNotFoundError:
        raise InvalidFile(
            str(path), "does not exist", remedy="Write it first with `index.save(path)`."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise _broken(path) from error
    if not _is_sound(stored):
        raise _broken(path)
    return stored


def _broken(path: Path) -> InvalidFile:
    return InvalidFile(
        str(path), "is not a whole index file", remedy="Delete it; it can be made anew."
    )


def _stored(header: dict[str, Any], arrays: Any) -> Stored:
    return Stored(
        encoder=header["encoder"],
        fingerprints=tuple(header["fingerprints"]),
        keys=tuple(header["keys"]),
        terms=tuple(header["terms"]),
        words=tuple(header["words"]),
        postings=Postings(
            starts=arrays["starts"],
            terms=arrays["entries"],
            weights=arrays["weights"],
            masks=arrays["masks"],
        ),
        name_starts=arrays["name_starts"],
        name_words=arrays["name_words"],
        vectors=arrays["vectors"],
        neighbours=arrays["neighbours"],
    )


def _is_sound(stored: Stored) -> bool:
    """Tell whether the parts fit each other, so that no search meets a number out of range."""
    rows, postings = len(stored.fingerprints), stored.postings
    return (
        len(postings.starts) == len(stored.name_starts) == rows + 1
        and len(postings.terms) == len(postings.weights) == len(postings.masks)
        and int(postings.starts[-1]) == len(postings.terms)
        and int(stored.name_starts[-1]) == len(stored.name_words)
        and bool((np.diff(postings.starts) >= 0).all() and (np.diff(stored.name_starts) >= 0).all())
        and _within(postings.terms, len(stored.terms))
        and _within(stored.name_words, len(stored.words))
        and (not stored.encoder or len(stored.vectors) == len(stored.keys) == rows)
    )


def _within(numbers: NDArray[np.int32], size: int) -> bool:
    return not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) < size)


APPROXIMATE_FROM = 100_000
MERGE_RATIO = 8
"""A shard is merged into its elder when it has grown to more than an eighth of it."""
SMALL = 1_000
"""Elders up to this size take in any shard: that costs less than asking one shard more does."""
DEAD_SHARE = 0.3
NAME_WORDS = 24
PIECE = 500


class Writer:
    """Indexes tools."""

    def __init__(self, encoder: Encoder | None, *, approximate: bool | None) -> None:
        self.vocabulary = Vocabulary()
        self.cache = VectorCache(encoder) if encoder else None
        self._leading = encoder.leading if encoder else 0
        self._approximate = approximate
        self._near: Any = (
            _usearch(required=approximate is True) if approximate is not False else None
        )
        self.word_vectors = _word_vectors(encoder) if encoder else None
        self._words = _WordTable(self.vocabulary, self.word_vectors)

    def built(self, tools: Sequence[Tool], stored: Stored | None = None) -> State:
        """Return the state of a catalogue with these tools, reusing what is stored of them."""
        known = self._restored(tools, stored) if stored else None
        if known is None:
            return self._state_of(self._shard(tools))
        state = self._state_of(known)
        new = [tool for tool in tools if tool.name not in known.rows]
        return self.changed(state, new, ()) if new else state

    def _restored(self, tools: Sequence[Tool], stored: Stored) -> Shard | None:
        """Return a shard of the tools that are stored, or nothing where the encoder differs."""
        if stored.encoder != (self.cache.encoder.name if self.cache else ""):
            return None
        self.vocabulary = Vocabulary(stored.terms)
        self._words = _WordTable(self.vocabulary, self.word_vectors)
        self._words.number(stored.words)
        if self.cache:
            self.cache = VectorCache(
                self.cache.encoder, dict(zip(stored.keys, stored.vectors, strict=True))
            )
        by_fingerprint = {tool.fingerprint: tool for tool in tools}
        known = [by_fingerprint.get(fingerprint) for fingerprint in stored.fingerprints]
        mask = np.array([tool is not None for tool in known], np.bool_)
        whole = Shard(
            tools=tuple(tool or tools[0] for tool in known) if tools else (),
            postings=stored.postings,
            keys=stored.keys,
            vectors=stored.vectors if self.cache else None,
            scanned=self._scanned(stored.vectors) if self.cache else None,
            name_starts=stored.name_starts,
            name_words=stored.name_words,
        )
        if not mask.all() or not len(mask):
            return self._with_neighbours(merged([whole], [mask])) if mask.any() else self._shard(())
        return self._with_neighbours(whole, stored.neighbours)

    def stored(self, state: State) -> Stored:
        """Return what of a state is worth keeping."""
        if state.count == 0:
            shard = self._piece(())
        elif len(state.shards) == 1 and bool(state.open.all()):
            shard = state.shards[0]
        else:
            shard = merged(state.shards, state.alive)
        return Stored(
            encoder=self.cache.encoder.name if self.cache else "",
            fingerprints=tuple(tool.fingerprint for tool in shard.tools),
            keys=shard.keys,
            terms=tuple(self.vocabulary.terms),
            words=state.words,
            postings=shard.postings,
            name_starts=shard.name_starts,
            name_words=shard.name_words,
            vectors=np.zeros((0, 0), np.int16) if shard.vectors is None else shard.vectors,
            neighbours=shard.neighbours.to_bytes() if shard.neighbours else np.zeros(0, np.uint8),
        )

    def _state_of(self, shard: Shard) -> State:
        frequencies = shard.postings.frequencies(len(self.vocabulary))
        return self._state([shard], [np.ones(shard.size, np.bool_)], frequencies)

    def changed(self, state: State, added: Sequence[Tool], removed: Sequence[Tool]) -> State:
        """Return a state with some tools more and some less."""
        shards = list(state.shards)
        alive = [mask.copy() for mask in state.alive] if removed else list(state.alive)
        new = self._shard(added)
        frequencies = new.postings.frequencies(len(self.vocabulary))
        frequencies[: len(state.frequencies)] += state.frequencies
        for shard, mask in zip(shards, alive, strict=True):
            gone = _rows_of(removed, shard, mask)
            mask[gone] = False
            _, entries = shard.postings.entries_of(gone)
            np.subtract.at(frequencies, shard.postings.terms[entries], 1)
        if added:
            shards.append(new)
            alive.append(np.ones(len(added), np.bool_))
        return self._state(*self._tidied(shards, alive), frequencies)

    def _tidied(self, shards: list[Shard], alive: list[Mask]) -> tuple[list[Shard], list[Mask]]:
        """Merge small shards into their elders, and drop the dead where they are many."""
        while len(shards) > 1 and shards[-2].size < max(shards[-1].size * MERGE_RATIO, SMALL):
            self._merge(shards, alive, 2)
        for place, mask in enumerate(alive):
            if len(mask) and mask.mean() < 1 - DEAD_SHARE:
                one, kept = [shards[place]], [mask]
                self._merge(one, kept, 1)
                shards[place], alive[place] = one[0], kept[0]
        return shards, alive

    def _merge(self, shards: list[Shard], alive: list[Mask], count: int) -> None:
        shard = merged(shards[-count:], alive[-count:])
        shards[-count:] = [self._with_neighbours(shard)]
        alive[-count:] = [np.ones(shard.size, np.bool_)]

    def _state(
        self, shards: list[Shard], alive: list[Mask], frequencies: NDArray[np.int64]
    ) -> State:
        kept = [(s, mask) for s, mask in zip(shards, alive, strict=True) if s.size]
        for shard, _ in kept:
            # Now: no search shall wait for them.
            _ = shard.postings.by_term, shard.spellings, shard.name_table
        return State(
            vocabulary=self.vocabulary,
            shards=tuple(shard for shard, _ in kept),
            alive=tuple(mask for _, mask in kept),
            frequencies=frequencies,
            words=self._words.words,
            word_terms=self._words.terms,
            word_vectors=self._words.vectors,
        )

    def _shard(self, tools: Sequence[Tool]) -> Shard:
        # Piece by piece: what is needed only while indexing stays small.
        pieces = [
            self._piece(tools[begin : begin + PIECE]) for begin in range(0, len(tools), PIECE)
        ] or [self._piece(())]
        if len(pieces) == 1:
            return self._with_neighbours(pieces[0])
        whole = merged(pieces, [np.ones(piece.size, np.bool_) for piece in pieces])
        if self.cache and whole.vectors is not None:
            self.cache.hold(whole.keys, whole.vectors)
        return self._with_neighbours(whole)

    def _piece(self, tools: Sequence[Tool]) -> Shard:
        texts = [list_fields(tool) for tool in tools]
        encoded = [build_encoding_text(tool, f) for tool, f in zip(tools, texts, strict=True)]
        keys = tuple(map(hash_text, encoded)) if self.cache else ()
        vectors = self.cache.vectors(encoded, keys) if self.cache else None
        name_starts, name_words = self._words.learn([fields[Field.NAME] for fields in texts])
        return Shard(
            tools=tuple(tools),
            postings=postings_of(texts, self.vocabulary),
            keys=keys,
            vectors=vectors,
            scanned=self._scanned(vectors),
            name_starts=name_starts,
            name_words=name_words,
        )

    def _scanned(self, vectors: NDArray[np.int16] | None) -> Floats | None:
        if vectors is None:
            return None
        wanted = (
            take_leading(vectors, self._leading) if self._leading else vectors.astype(np.float32)
        )
        return np.asfortranarray(wanted)

    def _with_neighbours(self, shard: Shard, saved: NDArray[np.uint8] | None = None) -> Shard:
        wanted = self._approximate or shard.size >= APPROXIMATE_FROM
        if not wanted or self._near is None or shard.vectors is None or not shard.size:
            return shard
        if saved is not None and len(saved):
            return replace(shard, neighbours=Neighbours.from_bytes(saved, self._near))
        return replace(shard, neighbours=Neighbours.of(shard.vectors, self._near))


class _WordTable:
    """Words of names with their term and vector; grows by whole copies, so states stay valid."""

    def __init__(self, vocabulary: Vocabulary, word_vectors: WordMemory | None) -> None:
        self._vocabulary, self._word_vectors = vocabulary, word_vectors
        self._numbers: dict[str, int] = {}
        self.words: tuple[str, ...] = ()
        self.terms: NDArray[np.int32] = np.zeros(0, np.int32)
        self.vectors: Floats = np.zeros((0, 0), np.float32)

    def learn(self, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the numbers of each name's distinct content words, and where each name begins."""
        listed = [
            list(dict.fromkeys(drop_stop_words(split_words(name))))[:NAME_WORDS] for name in names
        ]
        self.number(w for row in listed for w in row)
        numbers = [self._numbers[word] for row in listed for word in row]
        return np.cumsum([0, *map(len, listed)]), np.array(numbers, np.int32)

    def number(self, listed: Iterable[str]) -> None:
        """Give a number to each word that has none, in order."""
        new = list(dict.fromkeys(word for word in listed if word not in self._numbers))
        if not new:
            return
        first = len(self.words)
        self._numbers.update(zip(new, range(first, first + len(new)), strict=True))
        self.words += tuple(new)
        terms = np.array([self._vocabulary.number(stem(word)) for word in new], np.int32)
        self.terms = np.concatenate([self.terms, terms])
        self._add_vectors(new)

    def _add_vectors(self, new: list[str]) -> None:
        if self._word_vectors is not None:
            vectors = np.array(self._word_vectors.get(new))
            self.vectors = np.concatenate([self.vectors, vectors]) if len(self.vectors) else vectors


def _rows_of(tools: Sequence[Tool], shard: Shard, alive: Mask) -> NDArray[np.int64]:
    """Return the living rows of some tools in a shard."""
    rows = (shard.rows.get(tool.name) for tool in tools)
    return np.array([row for row in rows if row is not None and alive[row]], np.int64)


def _word_vectors(encoder: Encoder) -> WordMemory:
    """Return the vectors of single words, for which static ones serve every encoder."""
    own = encoder if encoder.family == "static" else None
    static = encoder.words or own or StaticEncoder()
    return WordMemory(partial(encode_words, static), limit=WORD_MEMORY)


def _usearch(*, required: bool) -> Any:
    try:
        from usearch import index as engine  # an extra, and slow to import
    except ImportError:
        if required:
            raise MissingExtra("usearch", extra="ann") from None
        return None
    return engine
