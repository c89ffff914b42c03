"""Encoders: texts in, one unit vector for each out.

`EndpointEncoder` asks an OpenAI-compatible service, `CallableEncoder` wraps any function,
`Blended` puts two encoders side by side; toolscout's own are in `tables` (the default) and
`transformers`. Each names itself by content, so that vectors kept on disk are never taken for
another encoder's. Storing and comparing vectors is `semantic`'s part.
"""

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from math import sqrt
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toolscout.errors import InvalidEncoder, InvalidFile

Floats = NDArray[np.float32]

ENDPOINT_BATCH = 128
_SHORTEST = 1e-12


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
    return np.divide(matrix, np.maximum(lengths, _SHORTEST), dtype=np.float32)


def unit_row(row: Floats) -> Floats:
    """Return the same of one row, which takes half as many steps."""
    return row / max(sqrt(np.add.reduce(row * row)), _SHORTEST)


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def checked_file(file: Path, digest: str, *, remedy: str) -> Path:
    """Return a file that is what it should be, by its SHA-256."""
    if not file.is_file() or digest_of(file) != digest:
        raise InvalidFile(str(file), "is missing or its checksum is wrong", remedy=remedy)
    return file


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
