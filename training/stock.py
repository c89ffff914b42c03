"""The stock table that ours is compared with: wordllama's token vectors, summed."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from toolscout.encoders.encoder import Encoder, Floats, Kind, normalize_rows, replace_surrogates


class StockTable(Encoder):
    """wordllama's 256 dimensions (MIT), read from its wheel."""

    name = "wordllama-l2-supercat-256"
    family = "static"
    leading = 32

    def __init__(self) -> None:
        spec = importlib.util.find_spec("wordllama")
        if spec is None or spec.origin is None:
            raise SystemExit("wordllama is missing. Install training/requirements.txt.")
        folder = Path(spec.origin).parent
        self._tokenizer = Tokenizer.from_file(
            str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
        )
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._table = load_file(folder / "weights" / "l2_supercat_256.safetensors")[
            "embedding.weight"
        ]

    def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
        """Return the sum of each text's token vectors, at unit length."""
        sums = np.zeros((len(texts), self._table.shape[1]), np.float32)
        for row, text in zip(sums, texts, strict=True):
            plain = replace_surrogates(text).lower()
            ids = self._tokenizer.encode(plain, add_special_tokens=False).ids
            if ids:
                row += self._table[ids].sum(axis=0, dtype=np.float32)
        return normalize_rows(sums)
