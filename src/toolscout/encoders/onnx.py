"""The transformer of `toolscout[onnx]`: a small model that was tuned on tools, on the CPU."""

import importlib
import importlib.util
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from toolscout.encoders.encoder import (
    Floats,
    checked_file,
    digest_of,
    plain,
    unit_rows,
)
from toolscout.errors import MissingExtra

PACKAGE = "toolscout_encoder"
MODEL_FILE, TOKENIZER_FILE = "model.onnx", "tokenizer.json"
MODEL_SHA256 = "aa05bb12a03e309b0f29e2d67e66352d033c66dc41e4c6a7a59e2adaa3b699e0"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
TOKENS = 128
WIDTH = 384

_REMEDY = "Run `pip install --force-reinstall 'toolscout[onnx]'`."


class OnnxEncoder:
    """A MiniLM tuned on tools, in int8 (384 dimensions)."""

    family = "minilm"

    def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
        self._given, self._threads = folder, threads
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The model's checksum."""
        digest = MODEL_SHA256 if self._given is None else self._digest
        return f"toolscout-minilm-int8-{digest[:12]}"

    @cached_property
    def _folder(self) -> Path:
        return self._given or package_folder()

    @cached_property
    def _digest(self) -> str:
        return digest_of(self._folder / MODEL_FILE)

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the mean of each text's token states, at unit length."""
        with self._lock:
            tokenizer, session = self._loaded
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        # One by one: in int8 the numbers of a text depend a little on what shares its batch, and a
        # batch is no faster.
        for row, encoding in zip(
            vectors, tokenizer.encode_batch(list(map(plain, texts))), strict=True
        ):
            row[:] = session.run(None, {"input_ids": np.array([encoding.ids], np.int64)})[0][0]
        return unit_rows(vectors)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        runtime = _runtime()
        tokenizers: Any = importlib.import_module("tokenizers")
        if self._given is None:
            checked_file(self._folder / MODEL_FILE, MODEL_SHA256, remedy=_REMEDY)
            checked_file(self._folder / TOKENIZER_FILE, TOKENIZER_SHA256, remedy=_REMEDY)
        tokenizer = tokenizers.Tokenizer.from_file(str(self._folder / TOKENIZER_FILE))
        tokenizer.enable_truncation(TOKENS)
        tokenizer.no_padding()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        return tokenizer, runtime.InferenceSession(str(self._folder / MODEL_FILE), options)


def package_folder() -> Path:
    """Return where the package of the weights lies."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra(PACKAGE, extra="onnx")
    return Path(spec.origin).parent


def _runtime() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        raise MissingExtra("onnxruntime", extra="onnx") from None
