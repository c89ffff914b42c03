"""The report: every encoder against the stock one, alone and in its tier."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import fitting
from toolscout.encoders.encoder import Blended, Encoder, StaticEncoder
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.evaluate.datasets import read_dataset
from toolscout.evaluate.quality import Estimate
from training import judging
from training.judging import NDCG, RECALL, CachedEncoder, Values
from training.places import Places
from training.recipe import FOLDS, JUDGED
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
