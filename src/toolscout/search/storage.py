"""Storage: an index as one file, so that nothing is read or encoded twice across runs.

`write` and `read` move a `Stored` value to and from disk, at once or not at all. A file made by
other field weights or another layout is stale, which is no error: the index is made anew.
"""

import hashlib
import json
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from toolscout.errors import InvalidFile
from toolscout.search import lexical, text
from toolscout.search.lexical import Postings

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
