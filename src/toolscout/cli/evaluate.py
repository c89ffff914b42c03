"""`toolscout evaluate`: how well toolscout finds the tools of your own catalogue."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from toolscout.cli.output import make_table, show, show_bars, style
from toolscout.errors import MissingExtra
from toolscout.evaluate.datasets import read_datasets
from toolscout.evaluate.quality import Table, Tier, measure_quality, summarize, tabulate_metric
from toolscout.tools import Tool

ENCODERS = ("static", "none", "onnx")
HEADLINE = "ndcg@10"

folders_argument = click.argument(
    "folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR…"
)

limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ask only N queries of each dataset, always the same ones.",
)

figures_option = click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")


@click.command()
@folders_argument
@click.option(
    "--encoder",
    "encoders",
    multiple=True,
    type=click.Choice(ENCODERS),
    help="Measure only this encoder; may be repeated. Default: every installed one.",
)
@limit_option
@figures_option
def evaluate(
    folders: tuple[Path, ...], encoders: tuple[str, ...], limit: int | None, as_json: bool
) -> None:
    """Measure how well toolscout finds the right tools.

    Each DIR holds tools.jsonl (or tools.jsonl.gz) and queries.jsonl, or contains such folders.
    The encoders are `static` (toolscout's default), `none` (words only) and `onnx`.

    \b
    Example:
      toolscout evaluate my-queries
      toolscout evaluate my-queries --encoder static --encoder onnx --limit 200 --json
    """
    datasets = read_datasets(folders, limit=limit)
    chosen = list(dict.fromkeys(encoders)) or _find_installed(datasets[0].tools)
    with show_bars() as progress:
        found = measure_quality(datasets, chosen, make=Tier, progress=progress)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        show_tables([summarize(found), tabulate_metric(found, HEADLINE)])


def show_tables(tables: Iterable[Table]) -> None:
    """Print tables with figures aligned to the right."""
    for place, one in enumerate(tables):
        numbers = range(1, len(one.head))
        title = style((one.title, "bold"))
        show([*([""] if place else []), title, make_table(one.head, one.rows, right=numbers)])


def _find_installed(tools: Sequence[Tool]) -> list[str]:
    """Return the encoders that work here; say what the others need."""
    installed: list[str] = []
    for name in ENCODERS:
        try:
            Tier(name).build(tools[:1])
            installed.append(name)
        except MissingExtra as error:
            click.echo(f"Skipping {name}: {error}", err=True)
    return installed
