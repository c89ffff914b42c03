"""Distil a table of token vectors from a teacher.

A text's vector is the sum of its tokens' vectors, so the table must hold in each token what the
teacher makes of it: it starts from the teacher's vectors of single tokens, weighted by rarity, and
learns from texts and questions, by nearness to the teacher's vector and to the
teacher's similarities within a batch. Axes are ordered by how much they tell, so that the first
ones serve alone in the index's first scan.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from tokenizers import Tokenizer

from toolscout.encoders.encoder import Encoder

Floats = NDArray[np.float32]

RARITY = 1e-3
"""A token as frequent as this has half the weight of a rare one at the start."""
LIKENESS = 8.0
"""The weight of similarities within a batch, relative to nearness to the teacher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distilling:
    """The numbers of a distillation."""

    width: int = 256
    epochs: int = 9
    batch: int = 512
    rate: float = 3e-3
    tokens: int = 160
    seed: int = 20261116


def load_plain_tokenizer(tokenizer_file: Path) -> Tokenizer:
    """Return the transformer's tokenizer without padding and cutting."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def start_from_teacher(
    teacher: Encoder, tokenizer: Tokenizer, texts: Sequence[Sequence[int]]
) -> Floats:
    """Return the teacher's vector of every token, weighted by rarity in the texts."""
    size = tokenizer.get_vocab_size()
    names = [(tokenizer.id_to_token(i) or "").removeprefix("##") for i in range(size)]
    vectors = teacher.encode(names, kind="tool")
    counts = Counter(token for text in texts for token in text)
    total = sum(counts.values())
    shares = np.array([counts[i] / total for i in range(size)])
    return (vectors * (RARITY / (RARITY + shares))[:, None]).astype(np.float32)


def find_main_axes(vectors: Floats, width: int) -> Floats:
    """Return the directions that tell most of some vectors, best first, as columns."""
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    return np.ascontiguousarray(directions[:, ::-1][:, :width], np.float32)


class Student:
    """The table while it learns."""

    def __init__(self, start: Floats, settings: Distilling) -> None:
        torch.manual_seed(settings.seed)
        self._settings = settings
        self._bag = torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(start), freeze=False, mode="sum"
        )
        self._optimiser = torch.optim.Adam(self._bag.parameters(), lr=settings.rate)

    @property
    def table(self) -> Floats:
        """The vectors of all tokens."""
        return self._bag.weight.detach().numpy()

    def vectors(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return one unit vector for each tokenized text."""
        ends = np.cumsum([0, *(len(text) for text in texts[:-1])])
        flat = torch.tensor([token for text in texts for token in text], dtype=torch.long)
        return functional.normalize(self._bag(flat, torch.from_numpy(ends)), dim=1)

    def learn(self, texts: Sequence[Sequence[int]], taught: Floats) -> Iterator[float]:
        """Go over all texts, again and again, yielding the loss of each step."""
        settings = self._settings
        rng = np.random.default_rng(settings.seed)
        steps = settings.epochs * -(-len(texts) // settings.batch)
        done = 0
        for _ in range(settings.epochs):
            order = rng.permutation(len(texts))
            for begin in range(0, len(order), settings.batch):
                part = order[begin : begin + settings.batch]
                for group in self._optimiser.param_groups:
                    group["lr"] = settings.rate * (1 - done / steps)
                yield self._step([texts[i] for i in part], torch.from_numpy(taught[part]))
                done += 1

    def _step(self, texts: Sequence[Sequence[int]], taught: torch.Tensor) -> float:
        found = self.vectors(texts)
        apart = (1 - (found * taught).sum(1)).mean()
        unlike = ((found @ found.T - taught @ taught.T) ** 2).mean()
        loss = apart + LIKENESS * unlike
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        return loss.item()


def order_axes(table: Floats, texts: Sequence[Sequence[int]]) -> Floats:
    """Return the table with its axes ordered by what they tell of texts; cosines stay."""
    sums = np.zeros((len(texts), table.shape[1]), np.float32)
    for row, text in enumerate(texts):
        sums[row] = table[list(text)].sum(axis=0)
    sums /= np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    return table @ find_main_axes(sums, table.shape[1])


def quantise(table: Floats) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Return the table in whole numbers and the size of one for each token."""
    sizes = (np.abs(table).max(axis=1) / 127).astype(np.float16)
    sizes = np.maximum(sizes, np.float16(1e-6))
    return np.rint(table / sizes[:, None].astype(np.float32)).clip(-127, 127).astype(np.int8), sizes


def distil(
    teacher: Encoder,
    tokenizer_file: Path,
    texts: Sequence[str],
    taught: Floats,
    settings: Distilling,
) -> Iterator[tuple[float, Any]]:
    """Yield the loss of each step with nothing, and at last 0 with the table."""
    tokenizer = load_plain_tokenizer(tokenizer_file)
    found = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    ids = [one.ids[: settings.tokens] or [0] for one in found]
    axes = find_main_axes(taught, settings.width)
    cut = taught @ axes
    cut /= np.linalg.norm(cut, axis=1, keepdims=True)
    student = Student(start_from_teacher(teacher, tokenizer, ids) @ axes, settings)
    for loss in student.learn(ids, cut.astype(np.float32)):
        yield loss, None
    yield 0.0, order_axes(student.table, ids)
