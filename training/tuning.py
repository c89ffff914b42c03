"""Tune the transformer: a question's answer must stand above all other texts of its batch.

A run keeps a checkpoint and a log; started again with the same recipe it goes on where it
stopped, and a finished run is left as it is.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional

from training.batches import Batch, Batches
from training.models import Model
from training.recipe import Recipe

CHECKPOINT_STEPS = 50
LONGEST_STEP = 1.0


class Run:
    """One training run and the folder that it is kept in."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self._recipe = folder, recipe
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def weights_file(self) -> Path:
        """Where the tuned weights end up."""
        return self.folder / "weights.pt"

    @property
    def log_file(self) -> Path:
        """One line of JSON for each step."""
        return self.folder / "log.jsonl"

    @property
    def is_done(self) -> bool:
        """Whether the weights of this recipe are there."""
        return self.weights_file.exists() and self._read_record() == self._recipe.key()

    def _read_record(self) -> str:
        file = self.folder / "recipe.json"
        return json.loads(file.read_text())["key"] if file.exists() else ""

    def begin(self) -> dict[str, Any] | None:
        """Return the checkpoint to go on from; a run of another recipe is forgotten."""
        checkpoint = self.folder / "checkpoint.pt"
        if self._read_record() == self._recipe.key():
            return torch.load(checkpoint) if checkpoint.exists() else None
        for file in (checkpoint, self.weights_file, self.log_file):
            file.unlink(missing_ok=True)
        record = {"key": self._recipe.key(), **asdict(self._recipe)}
        (self.folder / "recipe.json").write_text(json.dumps(record, indent=2))
        return None

    def keep(self, state: dict[str, Any]) -> None:
        """Write a checkpoint, whole or not at all."""
        part = self.folder / "checkpoint.part"
        torch.save(state, part)
        part.replace(self.folder / "checkpoint.pt")

    def finish(self, weights: dict[str, torch.Tensor]) -> None:
        """Write the weights and drop the checkpoint."""
        torch.save(weights, self.weights_file)
        (self.folder / "checkpoint.pt").unlink(missing_ok=True)


def tune(
    run: Run, recipe: Recipe, batches: Batches, *, checkpoint_steps: int = CHECKPOINT_STEPS
) -> Iterator[tuple[int, float]]:
    """Train to the end, yielding each step's number and loss."""
    model = Model()
    optimiser = torch.optim.AdamW(model.network.parameters(), lr=recipe.rate, weight_decay=0.01)
    first = _restore(run.begin(), model, optimiser)
    model.network.train()
    with run.log_file.open("a", encoding="utf-8") as log:
        for step in range(first, recipe.steps):
            began = time.perf_counter()
            torch.manual_seed(recipe.seed + step)  # dropout too is the same after a restart
            batch = batches.at(step)
            for group in optimiser.param_groups:
                group["lr"] = recipe.rate * pace(step, recipe)
            loss = _step(model, optimiser, batch, recipe)
            row = {"step": step + 1, "loss": round(loss, 4), "source": batch.source}
            seconds = round(time.perf_counter() - began, 2)
            log.write(json.dumps({**row, "seconds": seconds}) + "\n")
            if (step + 1) % checkpoint_steps == 0:
                log.flush()
                state = {"step": step + 1, "optimiser": optimiser.state_dict()}
                run.keep({**state, "weights": model.network.state_dict()})
            yield step + 1, loss
    run.finish(model.weights())


def _restore(state: dict[str, Any] | None, model: Model, optimiser: torch.optim.AdamW) -> int:
    if state is None:
        return 0
    model.take(state["weights"])
    optimiser.load_state_dict(state["optimiser"])
    return state["step"]


def pace(step: int, recipe: Recipe) -> float:
    """Return the share of the full rate at a step: up in a straight line, then down to 0."""
    warm = max(recipe.warm_up * recipe.steps, 1)
    return min(1.0, (step + 1) / warm) * (1 - step / recipe.steps)


def _step(model: Model, optimiser: torch.optim.AdamW, batch: Batch, recipe: Recipe) -> float:
    # Half precision takes half the time; weights and their changes stay in 32 bits.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        questions = model.vectors(batch.questions, recipe.question_tokens)
        texts = model.vectors(batch.texts, recipe.text_tokens)
        hinted = [row for row, hint in enumerate(batch.hints) if hint]
        hints = (
            model.vectors([batch.hints[row] for row in hinted], recipe.question_tokens)
            if hinted
            else None
        )
    texts = texts.float()
    if hints is not None:
        both = functional.normalize(texts[hinted] + hints.float(), dim=1)
        texts = texts.index_copy(0, torch.tensor(hinted), both)
    questions = questions.float()
    loss = contrast(questions @ texts.T / recipe.temperature, batch.forbidden)
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.network.parameters(), LONGEST_STEP)
    optimiser.step()
    return loss.item()


def contrast(scores: torch.Tensor, forbidden: torch.Tensor) -> torch.Tensor:
    """Return how badly questions find their texts and, where there are no siblings, texts theirs.

    Lower is better; what also answers a question counts neither for nor against it.
    """
    scores = scores.masked_fill(forbidden, float("-inf"))
    right = torch.arange(len(scores))
    forward = functional.cross_entropy(scores, right)
    if scores.shape[0] != scores.shape[1]:
        return forward
    return (forward + functional.cross_entropy(scores.T, right)) / 2
