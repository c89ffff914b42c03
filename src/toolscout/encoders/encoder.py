"""The `Encoder` protocol, and the encoders that need no model of ours.

`EndpointEncoder` asks an OpenAI-compatible service, `CallableEncoder` wraps a function and
`Blended` combines two encoders. Toolscout's own models are in `static` (the default) and `onnx`.
Storing and comparing vectors is left to `toolscout.search.vectors`.
"""

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from math import sqrt
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toolscout.errors import InvalidEncoder, InvalidFile

Floats = NDArray[np.float32]
Kind = Literal["tool", "question"]
"""What a text is: the description of a tool, or (part of) what a caller searches for."""

ENDPOINT_BATCH = 128
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
