"""The report: every encoder against the stock one, alone and in its tier, and with hints."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import fitting
from toolscout.encoders.encoder import Blended, Encoder, StaticEncoder
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.evaluate.datasets import Dataset, read_dataset
from toolscout.evaluate.quality import Estimate
from training import judging
from training.judging import NDCG, RECALL, CachedEncoder, LeftOutScores, Values
from training.places import Places
from training.recipe import FOLDS, JUDGED, REQUESTS
from training.stock import StockTable

SHARE = 0.6
"""The weight of the transformer when it is blended with the table."""


class Encoders:
    """Every encoder that is compared, by name; those of folds are chosen by dataset."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._fold_of = {name: fold for fold, names in FOLDS.items() for name in names}
        self._stock_table = CachedEncoder(StockTable())

    def choose_encoder(self, kind: str) -> Callable[[str], Encoder]:
        """Return what gives the encoder of a kind for a dataset that it has not seen."""
        return {
            "stock table": lambda _: self._stock_table,
            "our table": lambda name: self._table(self._fold_of[name]),
            "stock MiniLM": lambda _: self._model("stock"),
            "our MiniLM": lambda name: self._model(self._fold_of[name]),
            "stock both": lambda _: self._both("stock"),
            "our both": lambda name: self._both(self._fold_of[name]),
        }[kind]

    def list_by_fold(self) -> dict[str, Callable[[str], Encoder]]:
        """Return what gives the encoder of a fold, by the name of its family."""
        return {"static": self._table, "minilm": self._model}

    @cache  # noqa: B019
    def _both(self, fold: str) -> Encoder:
        table = self._stock_table if fold == "stock" else self._table(fold)
        return CachedEncoder(Blended(table, self._model(fold), share=SHARE), words=table)

    @cache  # noqa: B019  # lives as long as the report
    def _table(self, fold: str) -> Encoder:
        return CachedEncoder(StaticEncoder(self._places.table(fold)))

    @cache  # noqa: B019
    def _model(self, fold: str) -> Encoder:
        words = self._stock_table if fold == "stock" else self._table(fold)
        return CachedEncoder(OnnxEncoder(self._places.model(fold), threads=1), words=words)


PAIRS = (
    ("our table", "stock table"),
    ("our MiniLM", "stock MiniLM"),
    ("our both", "stock both"),
)


def measure_encoders(places: Places, data: Path, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Return all figures."""
    datasets = judging.read_samples(data, JUDGED)
    strangers = fitting.sample_strangers(read_dataset(data / "mcp_catalog").tools)
    encoders = Encoders(places)
    report: dict[str, Any] = {"sets": list(JUDGED), "queries": judging.SAMPLE, "rows": []}
    for pair in PAIRS:
        alone: dict[str, dict[str, Values]] = {}
        tier: dict[str, dict[str, Values]] = {}
        for kind in pair:
            say(f"judging {kind}")
            encoder_of = encoders.choose_encoder(kind)
            alone[kind] = {
                one.name: judging.score_alone(one, encoder_of(one.name)) for one in datasets
            }
            tier[kind], fusion = judging.score_in_tier(datasets, encoder_of, strangers=strangers)
            report.setdefault("fusions", {})[kind] = {
                "weights": fusion.weights,
                "calibration": fusion.calibration,
            }
        report["rows"] += [
            _row("vectors alone", *pair, alone),
            _row("with words", *pair, tier),
        ]
    return report


def measure_tiers(
    places: Places, data: Path, hints: Path, *, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return the figures of both tiers without and with hints, and the fusions fitted on all."""
    datasets = [_add_hints(read_dataset(data / name), hints) for name in (*JUDGED, *REQUESTS)]
    strangers = fitting.sample_strangers(
        _add_hints(read_dataset(data / "mcp_catalog"), hints).tools
    )
    parts = list(judging.list_left_out(datasets, limit=judging.SAMPLE))
    report: dict[str, Any] = {}
    for family, encoder_of in Encoders(places).list_by_fold().items():
        sets = judging.build_left_out(parts, encoder_of, strangers=strangers, say=say)
        found = judging.score_left_out(sets, family)
        fusion = fitting.fit(sets, family)
        report[family] = {
            "figures": _collect_tier_figures(found),
            "weights": fusion.weights,
            "calibration": fusion.calibration,
        }
    return report


def _add_hints(dataset: Dataset, hints: Path) -> Dataset:
    return fitting.add_hints(dataset, fitting.read_hints(dataset, hints))


def _collect_tier_figures(found: LeftOutScores) -> dict[str, Any]:
    """Return the nDCG@10 of each dataset by how many tools have hints, with intervals."""
    none = fitting.Hinting.NONE
    figures: dict[str, Any] = {}
    for (name, hinting), scores in found.items():
        [mean, *_] = judging.estimates({name: scores.metrics[:, [NDCG]]})
        own: dict[str, Any] = figures.setdefault(name, {})
        own[hinting] = mean.to_json()
        if hinting is fitting.Hinting.HALF:
            gains = scores.metrics[:, NDCG] - found[name, none].metrics[:, NDCG]
            own["half, tools without"] = _mean(gains[scores.is_bare])
            own["half, tools with"] = _mean(gains[~scores.is_bare])
    bare = {name: found[name, none].metrics[:, [NDCG]] for name in JUDGED if (name, none) in found}
    figures["dev sets"] = {none: judging.estimates(bare)[0].to_json()}
    return figures


def _mean(values: Values) -> float | None:
    return round(float(values.mean()), 4) if len(values) else None


def tabulate_tiers(report: Mapping[str, Any]) -> str:
    """Return the figures of both tiers as a table in Markdown."""
    head: Sequence[str] = (*fitting.Hinting, "half, tools without", "half, tools with")
    lines = [
        f"| Tier | Dataset | {' | '.join(head)} |",
        f"|---|---|{'---:|' * len(head)}",
    ]
    for family, one in report.items():
        for name, figures in one["figures"].items():
            cells = [_format_figure(figures.get(column)) for column in head]
            lines.append(f"| {family} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _format_figure(figure: Any) -> str:
    if figure is None:
        return ""
    if isinstance(figure, float):
        return f"{figure:+.3f}"
    return f"{figure['mean']:.3f} ({figure['low']:.3f} to {figure['high']:.3f})"


def _row(how: str, ours: str, stock: str, found: Mapping[str, Mapping[str, Values]]) -> Any:
    gains = judging.differences(found[ours], found[stock])
    return {
        "how": how,
        "ours": ours,
        "stock": stock,
        "ndcg@10": _figures(found, ours, stock, NDCG),
        "recall@5": _figures(found, ours, stock, RECALL),
        "gain": gains[NDCG].to_json(),
        "sets": {
            name: [round(float(found[kind][name][:, NDCG].mean()), 4) for kind in (ours, stock)]
            for name in found[ours]
        },
    }


def _figures(
    found: Mapping[str, Mapping[str, Values]], ours: str, stock: str, metric: int
) -> dict[str, float]:
    return {
        kind: round(judging.estimates(found[name])[metric].mean, 4)
        for kind, name in (("ours", ours), ("stock", stock))
    }


def table(report: Mapping[str, Any]) -> str:
    """Return the report as a table in Markdown."""
    lines = [
        "| Encoder | Used | Stock | Ours | Gain | 95 % |",
        "|---|---|---:|---:|---:|---|",
    ]
    for row in report["rows"]:
        gain = Estimate(**row["gain"])
        noise = ", noise" if gain.low <= 0 <= gain.high else ""
        value = row["ndcg@10"]
        lines.append(
            f"| {row['ours']} | {row['how']} | {value['stock']:.3f} | {value['ours']:.3f} "
            f"| {gain.mean:+.3f} | {gain.low:+.3f} to {gain.high:+.3f}{noise} |"
        )
    return "\n".join(lines)
