"""Fit the fusion from labelled queries: the weights of the signals, and the calibration.

Every dataset has the same weight. Each query is also ranked among tools of other catalogues,
because real catalogues are larger than test sets. For calibration it is also ranked without its
answers and with few candidates, so that no score looks certain only because rivals are missing.
A dataset whose tools have hints is ranked without them, with all of them and with half of them, so
that tools with a hint and tools without one do not crowd each other out.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolscout.catalog import Catalog
from toolscout.encoders.encoder import Encoder, StaticEncoder
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.errors import UsageError
from toolscout.evaluate.datasets import Dataset, make_names_unique
from toolscout.evaluate.quality import METRICS, Progress, compute_scores
from toolscout.hints.hints import HintPack
from toolscout.search.fusion import (
    CERTAINTY,
    GATED,
    LENGTHENED,
    LEXICAL,
    WEIGHTS,
    Fusion,
    Signal,
    compute_gate,
    compute_level,
    confidence_from_chance,
)
from toolscout.search.index import Index
from toolscout.tools import Tool

Doubles = NDArray[np.float64]
Block = tuple[Doubles, NDArray[np.bool_], Doubles, Doubles]

SEED = 20261115
STRANGERS = 4_000
RIDGE = 1e-3
CALIBRATION_SIZES = (1, 3, 10, 40, 150)
HINTED_WEIGHT = 0.7
"""How much a dataset with hints counts, compared with the same one without."""
OBLIQUE_WEIGHT = 0.3
"""How much a dataset of requests without any of the tool's words counts: agents know better."""
BARE_WEIGHT = 2.0
"""How much a query for a tool without a hint counts where half of the tools have one: less, and
such tools lose."""
UNANSWERED_WEIGHT = 0.25
"""How much a query with its answers taken away counts: agents mostly ask for what exists."""
ROUNDS = 12
HINT_COLUMNS = [
    column
    for column, signal in enumerate([*Signal, *LENGTHENED, *GATED])
    if signal >= Signal.HINTED
]
"""The weights that count only where a tool has a hint."""


class Hinting(StrEnum):
    """How many tools of a catalogue have hints."""

    NONE = "none"
    ALL = "all"
    HALF = "half"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One query: its candidates' evidence, and which of them answer it."""

    evidence: Doubles
    length: float
    groups: tuple[int, ...]
    """Candidates of one group are one answer."""
    relevant: frozenset[int]
    is_bare: bool = False
    """Whether no answer has a hint."""

    @property
    def gate(self) -> float:
        """The value that some weights depend on."""
        return compute_gate(self.evidence)

    @property
    def wanted(self) -> NDArray[np.bool_]:
        """Which candidates answer the query."""
        return np.array([group in self.relevant for group in self.groups], np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """The queries of one dataset, alone and among strangers."""

    name: str
    alone: tuple[Example, ...]
    crowded: tuple[Example, ...]
    hinting: Hinting = Hinting.NONE
    group: str = ""
    """What is left out together with this; the name if empty."""

    @property
    def weight(self) -> float:
        """How much the dataset counts for the weights."""
        by_hints = 1.0 if self.hinting is Hinting.NONE else HINTED_WEIGHT
        return by_hints * (OBLIQUE_WEIGHT if "oblique" in self.name else 1.0)

    @property
    def left_out_with(self) -> str:
        """What is left out together when a fusion is tried on what it was not fitted on."""
        return self.group or self.name

    @property
    def label(self) -> str:
        """The name, and how many tools have hints."""
        return self.name if self.hinting is Hinting.NONE else f"{self.name}, {self.hinting} hinted"

    @property
    def both(self) -> tuple[Example, ...]:
        """All examples."""
        return self.alone + self.crowded


def build_examples(
    dataset: Dataset,
    encoder: Encoder | None,
    *,
    limit: int,
    strangers: Sequence[Tool] = (),
    hinting: Hinting = Hinting.NONE,
    progress: Progress = lambda stage, done, total: None,
) -> Examples:
    """Return the evidence for a sample of a dataset's queries.

    `hinting` says how many tools keep their hints.
    """
    sample = dataset.sample(limit)
    own = thin_hints(sample.tools, hinting)
    alone = tuple(_examples(sample, own, encoder, progress))
    mixed = make_names_unique([*own, *thin_hints(strangers, hinting)]) if strangers else ()
    crowded = tuple(_examples(sample, mixed, encoder, progress)) if mixed else ()
    return Examples(name=dataset.name, alone=alone, crowded=crowded, hinting=hinting)


def thin_hints(tools: Sequence[Tool], hinting: Hinting) -> Sequence[Tool]:
    """Return tools of which all, half or none have their hints."""
    if hinting is Hinting.ALL:
        return tools
    rng = Random(SEED)
    kept = [hinting is Hinting.HALF and rng.random() < 0.5 for _ in tools]
    return [
        tool if keep or not tool.hint else replace(tool, hint="")
        for tool, keep in zip(tools, kept, strict=True)
    ]


def add_hints(dataset: Dataset, hints: Mapping[str, str]) -> Dataset:
    """Return a dataset whose tools have hints, given by their ids."""
    tools = [
        replace(tool, hint=hints.get(key, ""))
        for tool, key in zip(dataset.tools, dataset.ids, strict=True)
    ]
    return replace(dataset, tools=tuple(tools))


def read_hints(dataset: Dataset, folder: Path) -> dict[str, str]:
    """Return the hints of a dataset's tools by their ids: those of a file, or the shipped ones."""
    file = folder / f"{dataset.name}.jsonl.gz"
    if file.exists():
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        return {row["id"]: row["hint"] for row in rows}
    pack = HintPack.load_shipped()
    found = [pack.find(tool) for tool in dataset.tools]
    return {key: hint for key, hint in zip(dataset.ids, found, strict=True) if hint}


def _examples(
    dataset: Dataset,
    tools: Sequence[Tool],
    encoder: Encoder | None,
    progress: Progress,
) -> Iterator[Example]:
    catalog = Catalog()
    by_server: dict[str, list[Tool]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(tool)
    for server, its_tools in by_server.items():
        catalog.add(server, its_tools)
    index = Index(catalog, encoder=encoder, hints=None)
    hinted = {dataset.groups[i] for i, tool in enumerate(tools[: len(dataset.tools)]) if tool.hint}
    # Strangers come after the dataset's own tools and answer nothing.
    group_of = {
        tool.name: dataset.groups[i] if i < len(dataset.tools) else -1 - i
        for i, tool in enumerate(tools)
    }
    wanted = dataset.find_relevant_groups()
    for count, query in enumerate(dataset.queries):
        found, evidence, length = index.collect_evidence(query.text)
        yield Example(
            evidence=evidence,
            length=length,
            groups=tuple(group_of[tool.name] for tool in found),
            relevant=wanted[count],
            is_bare=hinted.isdisjoint(wanted[count]),
        )
        progress(dataset.name, count + 1, len(dataset.queries))


def fit(sets: Sequence[Examples], family: str, keep: Fusion | None = None) -> Fusion:
    """Return the fusion that fits these sets best.

    With `keep`, everything that does not concern hints stays as it is there.
    """
    used = _list_used_columns(family)
    weights = np.zeros(WEIGHTS)
    if keep is not None:
        used = [column for column in used if column in HINT_COLUMNS]
        weights[:] = keep.weights
        weights[HINT_COLUMNS] = 0
    weights[used] = _fit_weights(sets, used, weights)
    plain = Fusion(weights=tuple(weights), calibration=(0.0,) * (2 + len(CERTAINTY)))
    calibration = _fit_calibration(sets, plain, family, keep)
    return Fusion(
        weights=tuple(round(float(w), 4) for w in weights),
        calibration=tuple(round(float(c), 4) for c in calibration),
    )


def _list_used_columns(family: str) -> list[int]:
    if family:
        return list(range(WEIGHTS))
    # The gate lets meaning step in for words; by words alone it gains nothing.
    lengthened = [i for i, signal in enumerate(LENGTHENED) if signal in LEXICAL]
    return [*map(int, LEXICAL), *(len(Signal) + i for i in lengthened)]


def _fit_weights(sets: Sequence[Examples], used: list[int], fixed: Doubles) -> Doubles:
    """Maximise the log share of the answers among the candidates, by Newton's method.

    `fixed` has the weights of all columns that are not used.
    """
    weighed = [(_block(one, used, fixed), one.weight) for one in sets]
    weighed = [(block, weight) for block, weight in weighed if len(block[0])]
    if not weighed:
        raise UsageError("No query has its answer among the candidates. Give larger datasets.")
    every = [x.reshape(-1, len(used)) for (x, *_), _ in weighed]
    spread = np.concatenate(every).std(axis=0) + 1e-6
    total = sum(weight for _, weight in weighed)
    # The targets of all blocks add up to one.
    blocks = [
        (x / spread, open_, target * (weight / total / target.sum()), known)
        for (x, open_, target, known), weight in weighed
    ]
    weights = np.zeros(len(used))
    loss, slope, bend = _loss(blocks, weights)
    for _ in range(ROUNDS):
        step = np.linalg.solve(bend, slope)
        # A full step from far away overshoots: halve it until it helps.
        while (found := _loss(blocks, weights - step))[0] > loss and np.abs(step).max() > 1e-6:
            step = step / 2
        weights = weights - step
        loss, slope, bend = found
    return weights / spread


def _loss(blocks: Sequence[Block], weights: Doubles) -> tuple[float, Doubles, Doubles]:
    """Return the loss with its first and second derivative."""
    loss = RIDGE * float(weights @ weights)
    slope, bend = 2 * RIDGE * weights, 2 * RIDGE * np.eye(len(weights))
    for x, open_, target, known in blocks:
        logits = np.where(open_, x @ weights + known, -np.inf)
        logits -= logits.max(axis=1, keepdims=True)
        shares = np.exp(logits)
        total = shares.sum(axis=1, keepdims=True)
        shares /= total
        loss -= float((target * np.where(open_, logits - np.log(total), 0)).sum())
        weights_of = target.sum(axis=1, keepdims=True)
        slope += np.einsum("qcf,qc->f", x, shares * weights_of - target)
        means = np.einsum("qcf,qc->qf", x, shares)
        flat = x.reshape(-1, x.shape[2])
        bend += (flat * (shares * weights_of).reshape(-1, 1)).T @ flat
        bend -= (means * weights_of).T @ means
    return loss, slope, bend


def _block(examples: Examples, used: list[int], fixed: Doubles) -> Block:
    """Return the answered examples as one padded array, which cells count, and the targets.

    Last comes what the fixed weights of the other columns give each candidate.
    """
    bare_weight = BARE_WEIGHT if examples.hinting is Hinting.HALF else 1.0
    answered = [e for e in examples.both if e.wanted.any()]
    width = max((len(e.groups) for e in answered), default=0)
    x = np.zeros((len(answered), width, len(used)))
    open_ = np.zeros((len(answered), width), np.bool_)
    target = np.zeros((len(answered), width))
    known = np.zeros((len(answered), width))
    for row, example in enumerate(answered):
        count = len(example.groups)
        columns = build_columns(example.evidence, example.length)
        x[row, :count] = columns[:, used]
        known[row, :count] = columns @ fixed
        open_[row, :count] = True
        weight = bare_weight if example.is_bare else 1.0
        target[row, :count] = weight * example.wanted / example.wanted.sum()
    return x, open_, target, known


def build_columns(evidence: Doubles, length: float) -> Doubles:
    """Return the evidence with extra columns for the weights that depend on the question."""
    by_length = evidence[:, LENGTHENED] * length
    return np.concatenate(
        [evidence, by_length, evidence[:, GATED] * compute_gate(evidence)], axis=1
    )


def build_certainty(evidence: Doubles, scores: Doubles, rivals: Doubles) -> Doubles:
    """Return the inputs of the calibration for some candidates, given the scores of all."""
    found = np.empty((len(scores), 2 + len(CERTAINTY)))
    found[:, 0] = 1
    found[:, 1] = scores - compute_level(rivals)
    found[:, 2:] = evidence.T.take(CERTAINTY, axis=0).T
    return found


def _fit_calibration(
    sets: Sequence[Examples], fusion: Fusion, family: str, keep: Fusion | None
) -> Doubles:
    """Fit the chance that a candidate among the first five is wanted, by logistic regression."""
    rows: list[Doubles] = []
    wanted: list[Doubles] = []
    weights: list[Doubles] = []
    for examples in sets:
        x, y, w = _calibration_rows(examples, fusion)
        rows.append(x)
        wanted.append(y)
        weights.append(w / w.sum())
    x, y, w = np.concatenate(rows), np.concatenate(wanted), np.concatenate(weights)
    lexical = [2 + i for i, signal in enumerate(CERTAINTY) if signal in LEXICAL]
    used = list(range(x.shape[1])) if family else [0, 1, *lexical]
    found = np.zeros(x.shape[1])
    if keep is not None:
        hints = [2 + i for i, signal in enumerate(CERTAINTY) if signal >= Signal.HINTED]
        used = [column for column in used if column in hints]
        found[:] = keep.calibration
        found[hints] = 0
    found[used] = _logistic(x[:, used], y, w, x @ found)
    return found


def _calibration_rows(examples: Examples, fusion: Fusion) -> tuple[Doubles, Doubles, Doubles]:
    rows: list[Doubles] = []
    wanted: list[Doubles] = []
    weights: list[Doubles] = []
    rng = Random(SEED)
    for example in examples.both:
        for answered in (True, False):
            kept = _thinned(example, rng, answered)
            if not len(kept):
                continue
            evidence = example.evidence[kept]
            found = fusion.score(evidence, example.length, compute_gate(evidence))
            first = np.argsort(-found, kind="stable")[:5]
            rows.append(build_certainty(evidence[first], found[first], found))
            wanted.append(example.wanted[kept][first].astype(np.float64))
            weights.append(np.full(len(first), 1.0 if answered else UNANSWERED_WEIGHT))
    return np.concatenate(rows), np.concatenate(wanted), np.concatenate(weights)


def _thinned(example: Example, rng: Random, answered: bool) -> NDArray[np.int64]:
    """Return some candidates: the answers with some others, or only others."""
    wanted = example.wanted
    others = np.flatnonzero(~wanted)
    size = rng.choice(CALIBRATION_SIZES)
    some = np.array(sorted(rng.sample(others.tolist(), min(size, len(others)))), np.int64)
    return np.sort(np.concatenate([np.flatnonzero(wanted), some])) if answered else some


def _logistic(x: Doubles, y: Doubles, w: Doubles, known: Doubles) -> Doubles:
    """Return the coefficients of a logistic regression on top of known log-odds."""
    found = np.zeros(x.shape[1])
    for _ in range(ROUNDS):
        chance = 1 / (1 + np.exp(-np.clip(x @ found + known, -30, 30)))
        slope = x.T @ (w * (y - chance)) - 2 * RIDGE * found
        bend = (x * (w * chance * (1 - chance))[:, None]).T @ x + 2 * RIDGE * np.eye(x.shape[1])
        found = found + np.linalg.solve(bend, slope)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The figures of a fusion on one dataset."""

    metrics: dict[str, float]
    crowded: dict[str, float]
    """The same among strangers; empty without them."""
    reliability: dict[str, tuple[float, int]]
    """For each label of the first hit: how often it was wanted, out of how many."""


def compute_standing(examples: Examples, fusion: Fusion) -> Standing:
    """Measure a fusion on one dataset."""
    return Standing(
        metrics=_means(examples.alone, fusion),
        crowded=_means(examples.crowded, fusion) if examples.crowded else {},
        reliability=_reliability(examples.both, fusion),
    )


def _means(examples: Sequence[Example], fusion: Fusion) -> dict[str, float]:
    rows = [compute_scores(rank_groups(example, fusion), example.relevant) for example in examples]
    return dict(zip(METRICS, np.array(rows).mean(axis=0).tolist(), strict=True))


def rank_groups(example: Example, fusion: Fusion) -> list[int]:
    """Return the groups of the ten best candidates, best first."""
    if not example.groups:
        return []
    found = fusion.score(example.evidence, example.length, example.gate)
    return [example.groups[i] for i in np.argsort(-found, kind="stable")[:10]]


def _reliability(examples: Sequence[Example], fusion: Fusion) -> dict[str, tuple[float, int]]:
    seen: dict[str, list[bool]] = {}
    for example in examples:
        if not example.groups:
            continue
        found = fusion.score(example.evidence, example.length, example.gate)
        best = int(np.argmax(found))
        one = slice(best, best + 1)
        chance = float(fusion.predict_chances(example.evidence[one], found[one], found)[0])
        seen.setdefault(confidence_from_chance(chance), []).append(bool(example.wanted[best]))
    return {label: (float(np.mean(hits)), len(hits)) for label, hits in sorted(seen.items())}


def cross_validate(
    sets: Sequence[Examples], family: str, keep: Fusion | None = None
) -> dict[str, Standing]:
    """Return the figures of each dataset with the fusion fitted on all the others."""
    found: dict[str, Standing] = {}
    for group in dict.fromkeys(one.left_out_with for one in sets):
        fusion = fit([one for one in sets if one.left_out_with != group], family, keep)
        own = [one for one in sets if one.left_out_with == group]
        found |= {one.label: compute_standing(one, fusion) for one in own}
    return found


def to_json(fusion: Fusion, left_out_sets: dict[str, Standing]) -> dict[str, Any]:
    """Return a fusion and its figures on the sets left out."""
    return {
        "weights": fusion.weights,
        "calibration": fusion.calibration,
        "left_out": {
            name: {
                "metrics": standing.metrics,
                "crowded": standing.crowded,
                "reliability": standing.reliability,
            }
            for name, standing in left_out_sets.items()
        },
    }


def sample_strangers(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return some tools at random, the same each time."""
    return tuple(Random(SEED).sample(list(tools), min(STRANGERS, len(tools))))


def make_encoder(name: str) -> Encoder | None:
    """Return an encoder to fit for: none, static, or minilm."""
    makers: dict[str, Callable[[], Encoder]] = {
        "static": StaticEncoder,
        "minilm": OnnxEncoder,
    }
    return makers[name]() if name in makers else None
