"""`OnnxEncoder`: a small transformer tuned on tools, which runs on the CPU.

Needs the `onnx` extra. Nothing is imported or loaded before the first text is encoded.
"""

import importlib
import importlib.util
import os
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from toolscout.encoders.encoder import (
    Encoder,
    Floats,
    Kind,
    check_file,
    hash_file,
    normalize_rows,
    replace_surrogates,
)
from toolscout.errors import MissingExtra

PACKAGE = "toolscout_encoder"
RUNTIME = ("onnxruntime", "tokenizers")
MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
MODEL_SHA256 = "2449c3697545a0428244ba480329baeebbb7508f5eccedf99ff452db6f1e04b7"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
TOKENS = 128
WIDTH = 384

_REMEDY = "Run `pip install --force-reinstall 'toolscout[onnx]'`."


class OnnxEncoder(Encoder):
    """A MiniLM tuned on tools, in int8 (384 dimensions).

    `folder` holds another model and its tokenizer, as `training` exports them.
    """

    family = "minilm"

    def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
        digest = MODEL_SHA256 if folder is None else hash_file(folder / MODEL_FILE)
        self.name = f"toolscout-minilm-int8-{digest[:12]}"
        self._folder = folder
        self._threads = threads
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
        """Return the mean of each text's token states, at unit length."""
        with self._lock:
            tokenizer, session = self._loaded
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        encodings = tokenizer.encode_batch(list(map(replace_surrogates, texts)))
        # One by one: in int8 a text's numbers depend slightly on its batch, which is no faster.
        for row, encoding in zip(vectors, encodings, strict=True):
            row[:] = session.run(None, {"input_ids": np.array([encoding.ids], np.int64)})[0][0]
        return normalize_rows(vectors)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """The tokenizer and the inference session."""
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it would report to its maker
        try:
            runtime: Any = importlib.import_module("onnxruntime")
        except ImportError:
            raise MissingExtra("onnxruntime", extra="onnx") from None
        tokenizers: Any = importlib.import_module("tokenizers")
        folder = self._folder or find_package_folder()
        if self._folder is None:
            check_file(folder / MODEL_FILE, MODEL_SHA256, remedy=_REMEDY)
            check_file(folder / TOKENIZER_FILE, TOKENIZER_SHA256, remedy=_REMEDY)
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        tokenizer.enable_truncation(TOKENS)
        tokenizer.no_padding()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        return tokenizer, runtime.InferenceSession(str(folder / MODEL_FILE), options)


def need_onnx() -> None:
    """Raise `MissingExtra` unless the model and what runs it are installed; imports neither."""
    for name in (PACKAGE, *RUNTIME):
        if importlib.util.find_spec(name) is None:
            raise MissingExtra(name, extra="onnx")


def find_package_folder() -> Path:
    """Return the folder of the installed package that holds the weights."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra(PACKAGE, extra="onnx")
    return Path(spec.origin).parent
