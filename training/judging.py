"""Compare an encoder with the stock one on datasets that it has not seen.

Each dataset is judged with the encoder of the fold that left it out. Vectors alone rank all
tools by cosine; a tier ranks as the product does, under a fusion that was fitted on the other
datasets with their own left-out encoders. Differences are paired by query and carry bootstrap
intervals; one whose interval holds 0 is noise.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import fitting
from benchmarks.leads import estimate_differences
from toolscout.encoders.encoder import Encoder, Floats, Kind
from toolscout.evaluate.datasets import Dataset, read_dataset
from toolscout.evaluate.quality import (
    METRICS,
    Estimate,
    Resampled,
    compute_scores,
    estimate_means,
    resample,
)
from toolscout.search.fusion import Fusion
from toolscout.tools import Tool
from training.corpora import to_text

SAMPLE = 400
DEPTH = 10
NDCG = list(METRICS).index("ndcg@10")
RECALL = list(METRICS).index("recall@5")

Values = NDArray[np.float64]


class CachedEncoder(Encoder):
    """An encoder that caches its vectors, because every comparison encodes the same texts."""

    def __init__(self, encoder: Encoder, *, words: Encoder | None = None) -> None:
        self.name = encoder.name
        self.family = encoder.family
        self.leading = encoder.leading
        self.words = words
        self._encoder = encoder
        self._known: dict[str, Floats] = {}

    def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
        """Return the encoder's vectors, encoding each text once: as a tool, whatever its kind."""
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if new:
            self._known.update(zip(new, self._encoder.encode(new, kind="tool"), strict=True))
        return np.stack([self._known[text] for text in texts])


def score_alone(dataset: Dataset, encoder: Encoder) -> Values:
    """Return all metrics of each query where vectors alone rank the tools."""
    tools = encoder.encode([to_text(tool) for tool in dataset.tools], kind="tool")
    queries = encoder.encode([query.text for query in dataset.queries], kind="question")
    found = queries @ tools.T
    rows: list[list[float]] = []
    for row, wanted in zip(found, dataset.find_relevant_groups(), strict=True):
        best = np.argsort(-row, kind="stable")[:DEPTH]
        rows.append(compute_scores([dataset.groups[i] for i in best], wanted))
    return np.array(rows)


def score_in_tier(
    datasets: Sequence[Dataset],
    encoder_of: Callable[[str], Encoder | None],
    *,
    strangers: Sequence[Tool] = (),
) -> tuple[dict[str, Values], Fusion]:
    """Return each query's metrics with the fusion fitted on the other sets, and the one on all."""
    sets = [
        fitting.build_examples(one, encoder_of(one.name), limit=SAMPLE, strangers=strangers)
        for one in datasets
    ]
    encoder = encoder_of(datasets[0].name)
    family = encoder.family if encoder else ""
    found: dict[str, Values] = {}
    for one in sets:
        fusion = fitting.fit([other for other in sets if other is not one], family)
        rows = [
            compute_scores(fitting.rank_groups(example, fusion), example.relevant)
            for example in one.alone
        ]
        found[one.name] = np.array(rows)
    return found, fitting.fit(sets, family)


def read_samples(data: Path, names: Sequence[str], *, limit: int = SAMPLE) -> list[Dataset]:
    """Return samples of datasets, the same each time."""
    return [read_dataset(data / name).sample(limit) for name in names]


def estimates(found: Mapping[str, Values]) -> list[Estimate]:
    """Return the macro mean of every metric."""
    return estimate_means(_resample_each(found))


def differences(found: Mapping[str, Values], stock: Mapping[str, Values]) -> list[Estimate]:
    """Return the macro gain of every metric over the stock encoder, paired by query."""
    return estimate_differences(_resample_each(found), _resample_each(stock))


def _resample_each(found: Mapping[str, Values]) -> list[Resampled]:
    return [resample(found[name], stream=i) for i, name in enumerate(sorted(found))]
