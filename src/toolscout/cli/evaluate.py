"""`toolscout evaluate`: how well toolscout finds the tools of your own catalogue."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from toolscout.cli import inputs
from toolscout.cli.output import echo_json, make_table, show, show_bar, show_bars, style
from toolscout.cli.search import build_scout
from toolscout.errors import InvalidFile, MissingExtra
from toolscout.evaluate.datasets import read_dataset, read_datasets
from toolscout.evaluate.learning import read_usages, replay_usages, tabulate_learning
from toolscout.evaluate.quality import Table, Tier, measure_quality, summarize, tabulate_metric
from toolscout.search.feedback import Usage, usage_from_bytes
from toolscout.sessions.usage import USAGE_KIND
from toolscout.settings import Learning
from toolscout.tools import Tool

STORED = "-"
"""Stands for the log in the store of the gateway."""
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
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="DIR…")
@click.option(
    "--learned",
    is_flag=False,
    flag_value=STORED,
    metavar="[LOG]",
    help="Replay a log of calls instead, and show how much learning from it would have helped.",
)
@inputs.config_option
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
    folders: tuple[Path, ...],
    learned: str | None,
    path: Path | None,
    encoders: tuple[str, ...],
    limit: int | None,
    as_json: bool,
) -> None:
    """Measure how well toolscout finds the right tools.

    Each DIR holds tools.jsonl (or tools.jsonl.gz) and queries.jsonl, or contains such folders.
    The encoders are `static` (toolscout's default), `none` (words only) and `onnx`.

    With --learned, searches again for each successful call of a log, without learning and with
    what earlier calls taught. LOG has a JSON object on each line, with "query" and "tool", and
    optionally "code", "at" and "principal"; without it, your gateway's own log is used. Without a
    DIR, the tools are those of your configuration.

    \b
    Example:
      toolscout evaluate my-queries
      toolscout evaluate --learned
      toolscout evaluate --learned calls.jsonl my-queries
      toolscout evaluate my-queries --encoder static --encoder onnx --limit 200 --json
    """
    if learned is not None:
        _evaluate_learning(learned, folders, path, encoders, limit, as_json=as_json)
        return
    if not folders:
        raise click.UsageError("Name a DIR with queries, or use --learned.")
    datasets = read_datasets(folders, limit=limit)
    chosen = list(dict.fromkeys(encoders)) or _find_installed(datasets[0].tools)
    with show_bars() as progress:
        found = measure_quality(datasets, chosen, make=Tier, progress=progress)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        show_tables([summarize(found), tabulate_metric(found, HEADLINE)])


def _evaluate_learning(
    log: str,
    folders: Sequence[Path],
    path: Path | None,
    encoders: Sequence[str],
    limit: int | None,
    *,
    as_json: bool,
) -> None:
    if len(folders) > 1 or len(encoders) > 1:
        raise click.UsageError("--learned takes at most one DIR and one --encoder.")
    usages = _read_stored_usages(path) if log == STORED else read_usages(Path(log))
    if folders:
        catalog = inputs.catalog_from_tools(read_dataset(folders[0]).tools)
        learning = Learning.OWN
    else:
        config = inputs.read_servers(path)
        catalog = inputs.read_known_catalog(config)
        learning = config.sessions.learning
    scout = build_scout(catalog, encoders[0] if encoders else "static")
    chosen = usages[-limit:] if limit else usages
    with show_bar("Replaying", len(chosen)) as step:
        found = replay_usages(
            chosen,
            scout.index,
            names=lambda name: catalog.get(name) is not None,
            learning=Learning.OWN if learning is Learning.OFF else learning,
            progress=step,
        )
    if as_json:
        echo_json(found.to_json())
        return
    show_tables([tabulate_learning(found)])
    for count, problem in ((found.hashed, "have a hashed query"), (found.gone, "are of no tool")):
        if count:
            click.echo(f"Left out: {count:,} calls that {problem}.", err=True)


def _read_stored_usages(path: Path | None) -> list[Usage]:
    """Return the calls in the store of the gateway."""
    config = inputs.read_servers(path)
    with inputs.open_known_store(config) as store:
        if store is None:
            problem = "belongs to a gateway that has recorded nothing yet"
            remedy = "Run the gateway with `toolscout serve` first, or name a LOG."
            raise InvalidFile(str(config.source), problem, remedy=remedy)
        found = [usage_from_bytes(data) for _, data in store.scan(USAGE_KIND)]
    return [usage for usage in found if usage is not None]


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
