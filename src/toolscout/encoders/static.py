"""`StaticEncoder`: a table of token vectors, the default encoder.

A text's vector is the sum of its tokens' vectors, which were distilled from the transformer of
`toolscout[onnx]` (see training/README.md). The table ships with the package: nothing is
downloaded, and a query takes a few hundredths of a millisecond.
"""

import importlib
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import (
    Encoder,
    Floats,
    Kind,
    check_file,
    hash_file,
    normalize_row,
    normalize_rows,
    replace_surrogates,
)
from toolscout.errors import InvalidFile

TABLE_FILE = Path(__file__).parent / "static.npz"
TABLE_SHA256 = "cff5a019008383a9da41d82c2d5b4b7942857e1373e3f891a4d2acf9e46d1b0e"
TABLE_BATCH = 64
FEW_TEXTS = 8
WORD_MEMORY = 8_192


class WordMemory:
    """Remembers what a function returned for each word, up to a limit.

    Threads may share it: a full memory is replaced as a whole, and threads that still read the old
    one are not disturbed.
    """

    def __init__(self, function: Callable[[list[str]], Floats], *, limit: int) -> None:
        self._function = function
        self._limit = limit
        self._known: dict[str, Floats] = {}

    def get(self, words: Sequence[str]) -> list[Floats]:
        """Return the value of each word; the function is called once for all new ones."""
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


class StaticEncoder(Encoder):
    """Sums the token vectors of a table (256 dimensions).

    `file` is another table, as `training` exports it.
    """

    family = "static"
    # The table's axes are ordered by how much they tell.
    leading = 32

    def __init__(self, file: Path | None = None) -> None:
        digest = TABLE_SHA256 if file is None else hash_file(file)
        self.name = f"toolscout-static-{digest[:12]}"
        self._file = file
        self._lock = threading.Lock()
        self._word_sums = WordMemory(self._add_words, limit=WORD_MEMORY)

    def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
        """Return the sum of each text's token vectors, at unit length.

        Questions are short, so their words are looked up one by one and remembered.
        """
        if kind == "question" and texts:
            rows = [self._add_question(replace_surrogates(text).split()) for text in texts]
            return np.array(rows)
        parts: list[Floats] = [np.zeros((0, self._table.width), np.float32)]
        # In batches: the tokenizer keeps far more of each text than the numbers needed here.
        for begin in range(0, len(texts), TABLE_BATCH):
            batch = [_normalize_blanks(text) for text in texts[begin : begin + TABLE_BATCH]]
            parts.append(normalize_rows(self._table.add_tokens(batch)))
        return np.concatenate(parts)

    def _add_question(self, words: list[str]) -> Floats:
        if not words:
            return np.zeros(self._table.width, np.float32)
        rows = self._word_sums.get(words)
        if len(rows) == 1:
            return normalize_row(rows[0])
        return normalize_row(np.add.reduce(np.concatenate(rows).reshape(len(rows), -1)))

    def _add_words(self, words: Sequence[str]) -> Floats:
        return self._table.add_word_tokens(words)

    @property
    def _table(self) -> "Table":
        with self._lock:
            return self._loaded

    @cached_property
    def _loaded(self) -> "Table":
        if self._file is None:
            check_file(TABLE_FILE, TABLE_SHA256, remedy="Reinstall toolscout.")
        return Table.load(self._file or TABLE_FILE)


def _normalize_blanks(text: str) -> str:
    """Return a text with one blank between words, as a question's words are split."""
    return " ".join(replace_surrogates(text).split())


class Table:
    """Whole numbers per token, the size of each, and the tokenizer."""

    def __init__(
        self, numbers: NDArray[np.int8], sizes: NDArray[np.float32], tokenizer: Any
    ) -> None:
        self._numbers = numbers
        self._sizes = sizes
        self._tokenizer = tokenizer
        self._pieces: Callable[[str], list[Any]] = tokenizer.model.tokenize

    @property
    def width(self) -> int:
        """The number of dimensions."""
        return self._numbers.shape[1]

    @classmethod
    def load(cls, file: Path) -> "Table":
        """Read a table as `training` writes it."""
        try:
            with np.load(file, allow_pickle=False) as parts:
                numbers = parts["numbers"]
                sizes = parts["sizes"].astype(np.float32)
                tokens = parts["vocabulary"].tobytes().decode().split("\n")
        except (OSError, ValueError, KeyError) as error:
            raise InvalidFile(
                str(file), f"is not a table of vectors ({error})", remedy="Reinstall toolscout."
            ) from error
        return cls(numbers, sizes, _build_tokenizer(tokens))

    def add_tokens(self, texts: Sequence[str]) -> Floats:
        """Return the sum of the vectors of each text's tokens."""
        if len(texts) <= FEW_TEXTS:  # a batch goes to threads, which take time to wake
            found: Any = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        else:
            found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        sums = np.zeros((len(texts), self.width), np.float32)
        for row, encoding in zip(sums, found, strict=True):
            ids: list[int] = encoding.ids
            if ids:
                np.matmul(self._sizes[ids], self._numbers[ids], out=row)
        return sums

    def add_word_tokens(self, words: Sequence[str]) -> Floats:
        """Return the same for single words, most of which are plain and many a single token."""
        sums = np.zeros((len(words), self.width), np.float32)
        for row, word in zip(sums, words, strict=True):
            if not (word.isascii() and word.isalnum()):
                row[:] = self.add_tokens([word])[0]
                continue
            # The tokenizer would only lower the case before it looks for pieces.
            ids: list[int] = [piece.id for piece in self._pieces(word.lower())]
            if len(ids) == 1:
                np.multiply(self._numbers[ids[0]], self._sizes[ids[0]], out=row)
            else:
                np.matmul(self._sizes[ids], self._numbers[ids], out=row)
        return sums


def _build_tokenizer(tokens: Sequence[str]) -> Any:
    """Return a WordPiece tokenizer that lowers case and drops accents."""
    library: Any = importlib.import_module("tokenizers")  # heavy, and only half typed
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = library.Tokenizer(library.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    return tokenizer
