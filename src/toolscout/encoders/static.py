"""A table of token vectors: the encoder that needs no model.

A text's vector is the sum of its tokens' vectors, which were distilled from the transformer of
`toolscout[onnx]` (training/README.md tells how). The table lies in this package: nothing is
fetched, and a query takes some hundredths of a millisecond.
"""

import importlib
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import Floats, checked_file, digest_of, plain, unit_row, unit_rows
from toolscout.errors import InvalidFile

TABLE_FILE = Path(__file__).parent / "static.npz"
TABLE_SHA256 = "cff5a019008383a9da41d82c2d5b4b7942857e1373e3f891a4d2acf9e46d1b0e"
TABLE_BATCH = 64
FEW_TEXTS = 8
WORD_MEMORY = 8_192


class Remembered:
    """What a function gives for each of some words, kept for those met before.

    Safe under threads: what is forgotten goes as a whole, and others go on with the old.
    """

    def __init__(self, function: Callable[[list[str]], Floats], *, limit: int) -> None:
        self._function, self._limit = function, limit
        self._known: dict[str, Floats] = {}

    def of(self, words: Sequence[str]) -> list[Floats]:
        """Return the value of each word, asking once for all new ones."""
        known = self._known
        new = [word for word in words if word not in known]
        if not new:
            return [known[word] for word in words]
        new = list(dict.fromkeys(new))
        made = dict(zip(new, self._function(new), strict=True))
        found = [made[word] if word in made else known[word] for word in words]
        if len(known) + len(made) > self._limit:
            known = self._known = {}
        known.update(made)
        return found


class StaticEncoder:
    """Sums token vectors of a table (256 dimensions)."""

    family = "static"
    leading = 32
    """The axes are ordered by how much they tell: the first 32 serve alone, less finely."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._word_sums = Remembered(self._new_sums, limit=WORD_MEMORY)

    @property
    def name(self) -> str:
        """The table's checksum."""
        return f"toolscout-static-{(TABLE_SHA256 if self._file is None else self._digest)[:12]}"

    @cached_property
    def _digest(self) -> str:
        return digest_of(self._file or TABLE_FILE)

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the sum of each text's token vectors, at unit length."""
        parts: list[Floats] = [np.zeros((0, self._table.width), np.float32)]
        # Piece by piece: the tokenizer keeps far more of a text than the numbers wanted here.
        for begin in range(0, len(texts), TABLE_BATCH):
            piece = texts[begin : begin + TABLE_BATCH]
            parts.append(unit_rows(self._table.sums([_spaced(text) for text in piece])))
        return np.concatenate(parts)

    def encode_question(self, texts: Sequence[str]) -> Floats:
        """Return the same for a few short texts, from the sums of words met before."""
        return np.array([unit_row(self._sum(plain(text).split())) for text in texts])

    def _sum(self, words: list[str]) -> Floats:
        if not words:
            return np.zeros(self._table.width, np.float32)
        rows = self._word_sums.of(words)
        return np.add.reduce(np.concatenate(rows).reshape(len(rows), -1)) if rows[1:] else rows[0]

    def _new_sums(self, words: Sequence[str]) -> Floats:
        return self._table.word_sums(words)

    @property
    def _table(self) -> "Table":
        with self._lock:
            return self._loaded

    @cached_property
    def _loaded(self) -> "Table":
        if self._file is None:
            checked_file(TABLE_FILE, TABLE_SHA256, remedy="Reinstall toolscout.")
        return Table.load(self._file or TABLE_FILE)


def _spaced(text: str) -> str:
    """Return a text with its words apart as `encode_question` sees them."""
    return " ".join(plain(text).split())


class Table:
    """Whole numbers for each token, their size, and what splits a text into tokens."""

    def __init__(
        self, numbers: NDArray[np.int8], sizes: NDArray[np.float32], tokenizer: Any
    ) -> None:
        self._numbers, self._sizes, self._tokenizer = numbers, sizes, tokenizer
        self._pieces: Callable[[str], list[Any]] = tokenizer.model.tokenize

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self._numbers.shape[1]

    @classmethod
    def load(cls, file: Path) -> "Table":
        """Read a table as `training` writes it."""
        try:
            with np.load(file, allow_pickle=False) as parts:
                numbers, sizes = parts["numbers"], parts["sizes"].astype(np.float32)
                tokens = parts["vocabulary"].tobytes().decode().split("\n")
        except (OSError, ValueError, KeyError) as error:
            raise InvalidFile(
                str(file), f"is no table of vectors ({error})", remedy="Reinstall toolscout."
            ) from error
        return cls(numbers, sizes, word_pieces(tokens))

    def sums(self, texts: Sequence[str]) -> Floats:
        """Return the sum of the vectors of each text's tokens."""
        if len(texts) <= FEW_TEXTS:  # a batch goes to threads, which must first be woken
            found: Any = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        else:
            found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        sums = np.zeros((len(texts), self.width), np.float32)
        for row, encoding in zip(sums, found, strict=True):
            ids: list[int] = encoding.ids
            if ids:
                np.matmul(self._sizes[ids], self._numbers[ids], out=row)
        return sums

    def word_sums(self, words: Sequence[str]) -> Floats:
        """Return the same for single words, of which most are plain and many are one token."""
        sums = np.zeros((len(words), self.width), np.float32)
        for row, word in zip(sums, words, strict=True):
            if not (word.isascii() and word.isalnum()):
                row[:] = self.sums([word])[0]
                continue
            # Lower case is all that the tokenizer would change before it looks for pieces.
            ids: list[int] = [piece.id for piece in self._pieces(word.lower())]
            if len(ids) == 1:
                np.multiply(self._numbers[ids[0]], self._sizes[ids[0]], out=row)
            else:
                np.matmul(self._sizes[ids], self._numbers[ids], out=row)
        return sums


def word_pieces(tokens: Sequence[str]) -> Any:
    """Return a tokenizer of lower-cased words, without accents, in pieces of a vocabulary."""
    library: Any = importlib.import_module("tokenizers")  # heavy, and only half typed
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = library.Tokenizer(library.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    return tokenizer
