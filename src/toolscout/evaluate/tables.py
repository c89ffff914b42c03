"""Tables of what `quality` measured, as plain values that any front end can lay out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toolscout.evaluate.metrics import METRICS, Estimate
from toolscout.evaluate.quality import Outcome, Quality

TITLES: Mapping[str, str] = {
    "hit@1": "Hit@1",
    "recall@5": "Recall@5",
    "recall@10": "Recall@10",
    "completeness@10": "Completeness@10",
    "ndcg@5": "nDCG@5",
    "ndcg@10": "nDCG@10",
    "mrr": "MRR",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text in rows; the first column names the row, the others hold figures."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_markdown(self) -> str:
        """Return the table under its title, with figures aligned to the right."""
        rule = ("---", *["---:"] * (len(self.head) - 1))
        lines = [f"| {' | '.join(row)} |" for row in (self.head, rule, *self.rows)]
        return "\n".join((f"## {self.title}", "", *lines))


def summarize(quality: Quality) -> Table:
    """Return one row for each system: every metric, tokens and time, averaged over datasets."""
    return Table(
        title=f"Macro mean, datasets: {len(quality.datasets)}",
        head=("system", *TITLES.values(), "tokens", "p50 ms", "p99 ms"),
        rows=tuple((system, *_format(outcome)) for system, outcome in quality.macro.items()),
    )


def tabulate_metric(quality: Quality, metric: str) -> Table:
    """Return one metric of each dataset and system, with intervals and the macro mean."""
    return tabulate_outcomes(
        quality, TITLES[metric], lambda outcome: format_interval(outcome.metrics[metric])
    )


def tabulate_outcomes(quality: Quality, title: str, cell: Callable[[Outcome], str]) -> Table:
    """Return one figure of each dataset and system, and of the macro mean in the last row."""
    systems = list(quality.macro)
    rows = [*quality.datasets.items(), ("macro", quality.macro)]
    return Table(
        title=title,
        head=("dataset", *systems),
        rows=tuple((name, *(cell(found[system]) for system in systems)) for name, found in rows),
    )


def format_interval(found: Estimate, *, sign: str = "") -> str:
    """Return a mean with its interval; `sign="+"` shows the sign of positive figures."""
    return f"{found.mean:{sign}.3f} [{found.low:{sign}.3f}, {found.high:{sign}.3f}]"


def _format(outcome: Outcome) -> tuple[str, ...]:
    return (
        *(f"{outcome.metrics[metric].mean:.3f}" for metric in METRICS),
        f"{outcome.reply_tokens:.0f}",
        f"{outcome.ms.p50:.2f}",
        f"{outcome.ms.p99:.2f}",
    )
