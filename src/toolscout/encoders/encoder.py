"""The `Encoder` protocol, and all encoders but the transformer of `onnx`.

`StaticEncoder`, the default, adds token vectors of a table that ships with the package: nothing
is downloaded, and a query takes a few hundredths of a millisecond. `EndpointEncoder` asks an
OpenAI-compatible service, `CallableEncoder` wraps a function and `Blended` combines two encoders.

For the index, vectors are rounded to a grid on which every dot product is exact in 32 bits, and
`VectorCache` makes sure that no text is encoded twice. How vectors are compared is left to
`search/shard.py`.
"""

import hashlib
import importlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from http.client import HTTPException
from math import sqrt
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toolscout.errors import InvalidEncoder, InvalidFile

Floats = NDArray[np.float32]
Integers = NDArray[np.int16]
Kind = Literal["tool", "question"]
"""What a text is: the description of a tool, or (part of) what a caller searches for."""

ENDPOINT_BATCH = 128
TABLE_FILE = Path(__file__).parent / "static.npz"
TABLE_SHA256 = "10a0f42685a7af9b4f87c7fc0c2494a8e5aaefd833974c7025c87366abe919e0"
TABLE_BATCH = 64
FEW_TEXTS = 8
WORD_MEMORY = 8_192
WORD_WIDTH = 64
ENCODED_AT_ONCE = 64
# |a·b| ≤ GRID² = 2^22 for unit vectors, and float32 holds every integer up to 2^24.
GRID = 2048
_GRID = np.float32(GRID)
_SHORTEST = 1e-12


class Encoder(Protocol):
    """Turns texts into vectors.

    Subclass it and give a `name` and an `encode`:

        class Vowels(Encoder):
            name = "vowels-1"

            def encode(self, texts, *, kind):
                rows = [[text.count(vowel) + 0.1 for vowel in "aeiou"] for text in texts]
                return normalize_rows(rows)

    The other members have defaults that suit most models. `CallableEncoder` takes a plain function
    and also checks and normalises what it returns.
    """

    name: str
    """Identifies the model, its version and its settings. Saved vectors are reused only under the
    same name, so change it whenever the vectors change."""
    family: str = "sentence"
    """Selects the fitted fusion: `static`, `minilm`, or any other word for the general one."""
    leading: int = 0
    """How many leading dimensions are good enough for a first pass over all tools; 0 for all."""
    words: "Encoder | None" = None
    """Encodes the single words of tool names. None stands for the encoder itself if its family is
    `static`, and for toolscout's static table otherwise."""

    def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
        """Return one row of unit length per text, or a row of zeros if nothing can be encoded.

        `kind` tells models that treat tools and questions differently which of them the texts are.
        Several threads may call this at once.
        """
        ...


class EndpointEncoder(Encoder):
    """Asks an OpenAI-compatible `/embeddings` endpoint."""

    def __init__(
        self, url: str, model: str, *, key: str = "", timeout_seconds: float = 30.0
    ) -> None:
        self._url = url.rstrip("/")
        if not self._url.endswith("/embeddings"):
            self._url += "/embeddings"
        if not self._url.startswith(("http://", "https://")):
            raise InvalidEncoder(
                model,
                f"has the address {url!r}",
                remedy="Use one that starts with http:// or https://.",
            )
        self._model = model
        self._key = key
        self._timeout = timeout_seconds
        self.name = f"{self._url}#{model}"

    def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
        """Return the service's vectors at unit length, for tools and questions alike."""
        batches = [texts[i : i + ENDPOINT_BATCH] for i in range(0, len(texts), ENDPOINT_BATCH)]
        rows = [row for batch in batches for row in self._request(batch)]
        return check_vectors(self._model, rows, len(texts))

    def _request(self, texts: Sequence[str]) -> list[Any]:
        # Services refuse empty strings, so a blank stands in.
        body = {"model": self._model, "input": [text or " " for text in texts]}
        try:
            data = post_json(self._url, body, key=self._key, seconds=self._timeout)["data"]
            return [row["embedding"] for row in sorted(data, key=lambda row: row["index"])]
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            HTTPException,
            RecursionError,
        ) as error:
            reason = _describe_failure(error)
        # Not chained: the library quotes a bad header, and the header holds the key.
        raise InvalidEncoder(
            self._model,
            f"did not answer ({reason})",
            remedy="Check the address, the key and the model's name.",
        )


def _describe_failure(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"HTTP {error.code}"
    if isinstance(error, OSError):
        return "no connection"
    return "not the shape of an embeddings answer"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, because following one would send the key to another address."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        """Return nothing, so that the redirect is reported as an error."""


_OPENER = urllib.request.build_opener(_NoRedirects())


def post_json(url: str, body: Mapping[str, object], *, key: str, seconds: float) -> Any:
    """Return what an OpenAI-compatible service answers; raises what `urllib` and `json` raise.

    Catch that without chaining it: the library quotes a bad header, and a header holds the key.
    """
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with _OPENER.open(request, timeout=seconds) as answer:
        return json.load(answer)


class CallableEncoder(Encoder):
    """Wraps a function from texts to vectors; the vectors need no particular length."""

    def __init__(self, function: Callable[[list[str]], ArrayLike], *, name: str) -> None:
        self._function = function
        self.name = name

    def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
        """Return the function's vectors at unit length, for tools and questions alike."""
        return check_vectors(self.name, self._function(list(texts)), len(texts))


class Blended(Encoder):
    """Puts the vectors of two encoders side by side.

    A similarity is then the mean of theirs, in which the second counts for `share`.
    """

    def __init__(self, first: Encoder, second: Encoder, *, share: float = 0.5) -> None:
        self._first = first
        self._second = second
        self._share = share
        self.name = f"{first.name}+{share:g}*{second.name}"
        self.family = f"{first.family}+{second.family}"

    def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
        """Return both vectors in one row of unit length."""
        left = self._first.encode(texts, kind=kind) * np.float32(np.sqrt(1 - self._share))
        right = self._second.encode(texts, kind=kind) * np.float32(np.sqrt(self._share))
        return normalize_rows(np.hstack([left, right]))


def check_vectors(name: str, rows: object, count: int) -> Floats:
    """Return a foreign encoder's vectors as unit rows, or raise `InvalidEncoder`."""
    if not count:
        return np.zeros((0, 0), np.float32)
    remedy = "Return one list of finite numbers, all of the same length, for each text."
    try:
        matrix = np.asarray(cast("ArrayLike", rows), np.float32)
    except (TypeError, ValueError):
        raise InvalidEncoder(name, "returned something other than vectors", remedy=remedy) from None
    if matrix.ndim != 2 or len(matrix) != count:
        shape = "x".join(map(str, matrix.shape))
        raise InvalidEncoder(name, f"returned {shape} numbers for {count} texts", remedy=remedy)
    if not np.isfinite(matrix).all():
        raise InvalidEncoder(name, "returned a value that is not finite", remedy=remedy)
    return normalize_rows(matrix)


def normalize_rows(rows: ArrayLike) -> Floats:
    """Return rows scaled to length one; rows of zeros stay as they are."""
    matrix = np.asarray(rows, np.float32)
    lengths = np.sqrt(np.add.reduce(matrix * matrix, axis=1, keepdims=True))
    return np.divide(matrix, np.maximum(lengths, _SHORTEST), dtype=np.float32)


def normalize_row(row: Floats) -> Floats:
    """Return one row scaled to length one; twice as fast as `normalize_rows`."""
    return row / max(sqrt(np.add.reduce(row * row)), _SHORTEST)


def replace_surrogates(text: str) -> str:
    """Return a text that every tokenizer accepts: lone surrogates become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def hash_file(file: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidFile(
            str(file), f"cannot be read ({error.strerror})", remedy="Check the path."
        ) from error


def check_file(file: Path, digest: str, *, remedy: str) -> Path:
    """Return the file if its SHA-256 is as expected; raise `InvalidFile` otherwise."""
    if not file.is_file() or hash_file(file) != digest:
        raise InvalidFile(str(file), "is missing or its checksum is wrong", remedy=remedy)
    return file


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
        self._word_sums = WordMemory(
            lambda words: self._table.add_word_tokens(words), limit=WORD_MEMORY
        )

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
            batch = texts[begin : begin + TABLE_BATCH]
            # One blank between words, as the words of a question are split.
            plain = [" ".join(replace_surrogates(text).split()) for text in batch]
            parts.append(normalize_rows(self._table.add_tokens(plain)))
        return np.concatenate(parts)

    def count_pieces(self, word: str) -> int:
        """Return into how many pieces of the table's vocabulary a word falls."""
        return self._table.count_pieces(word)

    def _add_question(self, words: list[str]) -> Floats:
        if not words:
            return np.zeros(self._table.width, np.float32)
        rows = self._word_sums.get(words)
        if len(rows) == 1:
            return normalize_row(rows[0])
        return normalize_row(np.add.reduce(np.concatenate(rows).reshape(len(rows), -1)))

    @property
    def _table(self) -> "Table":
        with self._lock:
            return self._loaded

    @cached_property
    def _loaded(self) -> "Table":
        if self._file is None:
            check_file(TABLE_FILE, TABLE_SHA256, remedy="Reinstall toolscout.")
        return Table.load(self._file or TABLE_FILE)


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

    def count_pieces(self, word: str) -> int:
        """Return the number of a word's tokens; a common word is one, random letters are many."""
        return len(self._tokenizer.encode(word, add_special_tokens=False).ids)

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


def on_grid(vectors: Floats) -> NDArray[np.int16]:
    """Return unit vectors as whole numbers of 1/2048."""
    return np.rint(vectors * GRID).astype(np.int16)


def hash_text(text: str) -> str:
    """Return the content key of a text: 24 hexadecimal digits."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class VectorCache:
    """The vectors of one encoder by content key, so that no text is encoded twice.

    Only one thread may use a cache at a time.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._known: dict[str, Integers] = {}
        self._width = 0

    @property
    def size(self) -> int:
        """How many vectors there are."""
        return len(self._known)

    def encode(
        self, texts: Sequence[str], keys: Sequence[str], step: Callable[[], None] = lambda: None
    ) -> Integers:
        """Return the vectors of texts on the grid, encoding only the new ones.

        `step` is called between batches.
        """
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        items = list(new.items())
        for begin in range(0, len(items), ENCODED_AT_ONCE):
            self._learn(dict(items[begin : begin + ENCODED_AT_ONCE]))
            step()
        rows = np.zeros((len(keys), self._width), np.int16)
        for row, key in enumerate(keys):
            rows[row] = self._known[key]
        return rows

    def _learn(self, new: dict[str, str]) -> None:
        encoded = on_grid(self.encoder.encode(list(new.values()), kind="tool"))
        if self._width and encoded.shape[1] != self._width:
            raise InvalidEncoder(
                self.encoder.name,
                f"returned {encoded.shape[1]} numbers for a text, and {self._width} before",
                remedy="Give encoders with different vectors different names.",
            )
        self._width = encoded.shape[1]
        self._known.update(zip(new, encoded, strict=True))

    def hold(self, keys: Sequence[str], rows: Integers) -> None:
        """Use the rows of a table: one of an earlier run, or one that exists anyway."""
        self._known.update(zip(keys, rows, strict=True))
        self._width = rows.shape[1] or self._width

    def keep(self, live: Mapping[str, Integers], *, spare: int) -> None:
        """Forget all vectors but the live ones and the newest `spare` others."""
        others = [key for key in self._known if key not in live][-spare:]
        # Copied, because a row would keep the whole table alive that it was taken from.
        self._known = {key: self._known[key].copy() for key in others} | dict(live)


def encode_questions(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """Return query vectors such that a dot product with a row is the cosine times GRID²."""
    rows = encoder.encode(texts, kind="question")
    return np.rint(rows * _GRID).astype(np.float32, copy=False)


def encode_words(encoder: Encoder, words: Sequence[str]) -> Floats:
    """Return short vectors of single words, on the grid, for comparing names with questions."""
    return take_leading(encode_questions(encoder, words), WORD_WIDTH)


def take_leading(vectors: Floats | NDArray[np.int16], width: int) -> Floats:
    """Return the first numbers of each vector as a vector of their own, on the grid."""
    return np.rint(normalize_rows(vectors[:, :width]) * _GRID)


def take_leading_row(vector: Floats, width: int) -> Floats:
    """Return the same for one vector."""
    return np.rint(normalize_row(vector[:width]) * _GRID)
