"""Write models as the product loads them: ONNX in int8, tables in int8."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic

from training.distilling import Floats, quantise
from training.models import Model, find_stock_folder

OPSET = 17


class Pooled(torch.nn.Module):
    """The network with its pooling, so that a program gets vectors and no token states."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self._network = network

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the mean of the token states of each text; all have the same length."""
        mask = torch.ones_like(input_ids)
        return self._network(input_ids=input_ids, attention_mask=mask).last_hidden_state.mean(1)


def export_model(model: Model, folder: Path) -> None:
    """Write `model.onnx` in int8 and `tokenizer.json` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    full = folder / "full.onnx"
    model.network.eval()
    with warnings.catch_warnings():
        # The newer exporter needs one more package and writes the same graph.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Pooled(model.network),
            (torch.ones(2, 8, dtype=torch.long),),
            str(full),
            input_names=["input_ids"],
            output_names=["vectors"],
            dynamic_axes={"input_ids": {0: "texts", 1: "tokens"}},
            opset_version=OPSET,
            dynamo=False,
        )
    # Seven bits for weights: with eight, processors without VNNI overflow and give other vectors.
    quantize_dynamic(
        full,
        folder / "model.onnx",
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=True,
    )
    full.unlink()
    shutil.copyfile(find_stock_folder() / "tokenizer.json", folder / "tokenizer.json")


def export_table(table: Floats, file: Path, tokenizer_file: Path) -> None:
    """Write a table with its vocabulary."""
    vocabulary: dict[str, int] = json.loads(tokenizer_file.read_text())["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    known = np.array([not (token.startswith("[") and len(token) > 1) for token in tokens])
    numbers, sizes = quantise(table * known[:, None])  # unknown tokens and non-words get no vector
    text: NDArray[np.uint8] = np.frombuffer("\n".join(tokens).encode(), np.uint8)
    np.savez(file, numbers=numbers, sizes=sizes, vocabulary=text)
