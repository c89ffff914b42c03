"""What learning from past calls gives on labelled queries.

A share of the tools, chosen by a hash of their names, never get a call: they show what learning
costs tools without history. Calls for the others are learned from one part of the queries, and the
rest of the queries is asked with and without learning.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

import numpy as np

from toolscout.catalog import Catalog
from toolscout.errors import ModelError, UsageError
from toolscout.evaluate.datasets import SAMPLE_SEED, Dataset, Question
from toolscout.evaluate.learning import find_chance
from toolscout.evaluate.quality import (
    Estimate,
    Table,
    compute_ndcg,
    estimate_means,
    resample,
)
from toolscout.query import Query
from toolscout.schemas import Json
from toolscout.search.feedback import Feedback
from toolscout.search.hits import Result
from toolscout.search.index import Index

DEPTH = 10
SEARCHED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryGain:
    """nDCG@10 of some queries without learning, and what learning adds."""

    queries: int
    alone: float
    gain: Estimate | None

    def to_json(self) -> Json:
        """Return the figures."""
        gain = None if self.gain is None else self.gain.to_json()
        return {"queries": self.queries, "alone": round(self.alone, 6), "gain": gain}


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningFigures:
    """The outcome for one dataset and one number of calls."""

    dataset: str
    encoder: str
    calls: int
    with_history: HistoryGain
    without_history: HistoryGain

    def to_json(self) -> Json:
        """Return the figures."""
        return {
            "dataset": self.dataset,
            "encoder": self.encoder,
            "calls": self.calls,
            "with_history": self.with_history.to_json(),
            "without_history": self.without_history.to_json(),
        }


def measure_learning(
    dataset: Dataset,
    encoder: str,
    *,
    calls: int,
    limit: int,
    held_out: float = 0.5,
    logged: Dataset | None = None,
) -> LearningFigures:
    """Return what `calls` past calls add to at most `limit` other queries of a dataset.

    `held_out` is the share of the tools that never get a call. `logged` gives the past queries
    where the dataset has one query for each tool; it must have the same tools.
    """
    if logged is not None and logged.ids != dataset.ids:
        raise UsageError(f"{logged.name!r} and {dataset.name!r} have different tools.")
    past, asked = _split(dataset, limit, logged)
    index = Index(Catalog(dataset.tools), encoder="none" if encoder == "none" else "static")
    names = dict(zip(dataset.ids, (tool.name for tool in dataset.tools), strict=True))
    group_of = dataset.group_by_name()
    feedback = Feedback(encode=index.encode_questions)
    known: set[int] = set()
    pairs = ((query, names[key]) for query in past for key in query.relevant)
    count = 0
    pairs = ((query, tool) for query, tool in pairs if not _is_held_out(tool, held_out))
    for query, tool in islice(pairs, calls):
        found = _search(index, None, query.text)
        chance = 0.0 if found is None else find_chance(found, tool)
        feedback.learn(query.text, tool, succeeded=True, chance=chance)
        known.add(group_of[tool])
        count += 1
    rows: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for query in asked:
        wanted = frozenset(group_of[names[key]] for key in query.relevant)
        if wanted & known and not wanted <= known:
            continue  # some of its tools have history and some do not
        scores = [
            compute_ndcg([group_of[hit.tool.name] for hit in found or ()], wanted, DEPTH)
            for found in (_search(index, None, query.text), _search(index, feedback, query.text))
        ]
        rows[wanted <= known].append((scores[0], scores[1] - scores[0]))
    return LearningFigures(
        dataset=dataset.name if logged is None else f"{dataset.name} after {logged.name}",
        encoder=encoder,
        calls=count,
        with_history=_summarize(rows[True]),
        without_history=_summarize(rows[False]),
    )


def tabulate_gains(found: Sequence[LearningFigures]) -> Table:
    """Return a row for each dataset and number of calls."""

    def show_gain(one: HistoryGain) -> str:
        if one.gain is None:
            return "-"
        return f"{one.gain.mean:+.3f} [{one.gain.low:+.3f}, {one.gain.high:+.3f}]"

    return Table(
        title="nDCG@10 after past calls",
        head=("dataset", "encoder", "calls", "with history", "gain", "without", "gain"),
        rows=tuple(
            (
                one.dataset,
                one.encoder,
                f"{one.calls:,}",
                f"{one.with_history.alone:.3f} ({one.with_history.queries})",
                show_gain(one.with_history),
                f"{one.without_history.alone:.3f} ({one.without_history.queries})",
                show_gain(one.without_history),
            )
            for one in found
        ),
    )


def _split(
    dataset: Dataset, limit: int, logged: Dataset | None
) -> tuple[Sequence[Question], Sequence[Question]]:
    """Return the queries that were asked in the past, and those to ask now."""
    queries = list(dataset.queries)
    Random(f"{SAMPLE_SEED} learning").shuffle(queries)
    count = min(limit, len(queries) if logged is not None else len(queries) // 2)
    if logged is None:
        return queries[count:], queries[:count]
    past = list(logged.queries)
    Random(f"{SAMPLE_SEED} learning").shuffle(past)
    return past, queries[:count]


def _is_held_out(tool: str, share: float) -> bool:
    """Tell whether a tool never gets a call."""
    digest = hashlib.blake2b(tool.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") < share * 2**32


def _search(index: Index, feedback: Feedback | None, text: str) -> Result | None:
    query = Query(text=text, words=text)  # users write plain words
    try:
        if feedback is None:
            return index.search(query, SEARCHED)
        return feedback.search(index, query, SEARCHED)
    except ModelError:
        return None


def _summarize(rows: Sequence[tuple[float, float]]) -> HistoryGain:
    if not rows:
        return HistoryGain(queries=0, alone=0.0, gain=None)
    values = np.array(rows)
    return HistoryGain(
        queries=len(rows),
        alone=float(values[:, 0].mean()),
        gain=estimate_means([resample(values[:, 1:])])[0],
    )
