"""Compare an encoder with the stock one on datasets that it has not seen.

Each dataset is judged with the encoder of the fold that left it out. Vectors alone rank all
tools by cosine; a tier ranks as the product does, under a fusion that was fitted on the other
datasets with their own left-out encoders. Differences are paired by query and carry bootstrap
intervals; one whose interval holds 0 is noise.

Of the datasets that share one catalogue, each fold is judged on the questions to the servers that
it left out, and those are left out of the fusion together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from training.corpora import assign_folds, to_text
from training.recipe import FOLDS, REQUESTS

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A dataset, or some of its questions, and the fold that has seen nothing of them."""

    dataset: Dataset
    fold: str
    group: str
    """What is left out of the fusion together."""


def list_left_out(datasets: Sequence[Dataset], *, limit: int) -> Iterator[LeftOut]:
    """Yield what each fold left out of some datasets, with at most `limit` questions of each."""
    for dataset in datasets:
        if dataset.name not in REQUESTS:
            [fold] = [fold for fold, names in FOLDS.items() if dataset.name in names]
            yield LeftOut(dataset=dataset.sample(limit), fold=fold, group=dataset.name)
            continue
        hidden_in = dict(zip(dataset.ids, assign_folds(dataset), strict=True))
        for fold in FOLDS:
            own = [
                one for one in dataset.queries if {hidden_in[key] for key in one.relevant} == {fold}
            ]
            part = replace(dataset, queries=tuple(own)).sample(limit // len(FOLDS))
            yield LeftOut(dataset=part, fold=fold, group=f"requests {fold}")


def build_left_out(
    parts: Sequence[LeftOut],
    encoder_of: Callable[[str], Encoder | None],
    *,
    strangers: Sequence[Tool] = (),
    say: Callable[[str], None] = lambda text: None,
) -> list[fitting.Examples]:
    """Return the evidence for questions that the encoder of their fold has not seen.

    Tools that have hints are ranked without them, with all of them and with half of them.
    """
    found: list[fitting.Examples] = []
    for part in parts:
        dataset = part.dataset
        # The catalogue of requests is large, and strangers would be copies of its tools.
        others = () if dataset.name in REQUESTS else strangers
        for hinting in fitting.Hinting:
            if hinting is fitting.Hinting.NONE or any(tool.hint for tool in dataset.tools):
                examples = fitting.build_examples(
                    dataset,
                    encoder_of(part.fold),
                    limit=len(dataset.queries),
                    strangers=others,
                    hinting=hinting,
                )
                found.append(replace(examples, group=part.group))
        say(f"{dataset.name} without what fold {part.fold} has seen")
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What was measured on the questions of a dataset."""

    metrics: Values
    is_bare: NDArray[np.bool_]
    """Whether no answer of a question has a hint."""


LeftOutScores = dict[tuple[str, fitting.Hinting], Scores]
"""By dataset and how many of its tools have hints."""


def score_left_out(sets: Sequence[fitting.Examples], family: str) -> LeftOutScores:
    """Return the metrics of each question with a fusion fitted without its group."""
    found: dict[tuple[str, fitting.Hinting], list[Scores]] = {}
    for group in dict.fromkeys(one.left_out_with for one in sets):
        fusion = fitting.fit([one for one in sets if one.left_out_with != group], family)
        for one in sets:
            if one.left_out_with == group:
                rows = [
                    compute_scores(fitting.rank_groups(example, fusion), example.relevant)
                    for example in one.alone
                ]
                bare = np.array([example.is_bare for example in one.alone], np.bool_)
                found.setdefault((one.name, one.hinting), []).append(Scores(np.array(rows), bare))
    return {
        key: Scores(
            np.concatenate([part.metrics for part in parts]),
            np.concatenate([part.is_bare for part in parts]),
        )
        for key, parts in found.items()
    }


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
