"""The curve of a run."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as pyplot
import numpy as np

from training.places import read_jsons

SMOOTH = 20


def draw(log_file: Path, picture: Path, *, title: str) -> None:
    """Draw the loss of every step and its running mean."""
    rows = read_jsons(log_file)
    steps = [row["step"] for row in rows]
    losses = np.array([row["loss"] for row in rows])
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(steps, losses, ".", alpha=0.3, label="a step")
    if len(losses) > SMOOTH:
        mean = np.convolve(losses, np.ones(SMOOTH) / SMOOTH, mode="valid")
        axes.plot(steps[SMOOTH - 1 :], mean, label=f"mean of {SMOOTH}")
    axes.set(title=title, xlabel="step", ylabel="loss")
    axes.legend()
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)
