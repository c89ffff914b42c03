"""`python -m benchmarks`: compare tool searches, ours and others', on your data.

Reads options, runs a benchmark, prints tables or JSON. Only results go to stdout; progress and
remarks go to stderr.
"""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import fitting, report
from benchmarks.footprints import measure_import, measure_memory
from benchmarks.gateway import measure_hops
from benchmarks.sdks import compare_sdks, comparison_tables
from benchmarks.speed import DEFAULT_SYSTEMS, measure_speed
from benchmarks.systems import PACKAGES, SYSTEM_NAMES, find_installed, make_system
from benchmarks.workloads import read_workload
from toolscout.catalog import Catalog
from toolscout.cli import ErrorGroup
from toolscout.cli.evaluate import HEADLINE, folders_argument, show_tables
from toolscout.cli.output import show_bar, show_bars
from toolscout.evaluate.costs import measure_costs, sample_queries
from toolscout.evaluate.datasets import read_dataset, read_datasets
from toolscout.evaluate.quality import Table, measure_quality, summarize, tabulate_metric
from toolscout.scout import Scout
from toolscout.tools import Tool

ALL_SYSTEMS = "all"
QUALITY_SYSTEMS = (
    "toolscout",
    "toolscout-lexical",
    "oh-my-pi",
    "claude-code-best",
    "dirge",
    "cortex",
    "deer-flow",
)


@click.group(cls=ErrorGroup)
def main() -> None:
    """Compare tool searches: how well they find, how fast they are and what they cost."""


json_option = click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
report_option = click.option(
    "--report",
    "report_folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write report.md and its plots into this folder.",
)
save_option = click.option(
    "--save",
    "save_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the JSON to this file as well.",
)
system_option = click.option(
    "--system",
    "systems",
    multiple=True,
    metavar="NAME",
    help="Compare only this system; may be repeated. `all` means every installed one.",
)


def _read_sizes(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{value!r} is not a list of sizes such as 1000,10000.")
    return tuple(int(part) for part in parts)


@main.command()
@folders_argument
@system_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ask only N queries of each dataset, always the same ones.",
)
@json_option
@report_option
@save_option
def quality(
    folders: tuple[Path, ...],
    systems: tuple[str, ...],
    limit: int | None,
    as_json: bool,
    report_folder: Path | None,
    save_file: Path | None,
) -> None:
    """Measure how well systems find the right tools.

    Each DIR holds tools.jsonl (or tools.jsonl.gz) and queries.jsonl, or it holds such folders.
    Without --system, toolscout is compared with the five searches that it replaces.

    \b
    Example:
      python -m benchmarks quality data/metatool --system toolscout --system bm25s --limit 500
    """
    if report_folder:
        report.need_matplotlib()
    datasets = read_datasets(folders, limit=limit)
    names = _choose_systems(systems or QUALITY_SYSTEMS, datasets[0].tools)
    with show_bars() as progress:
        found = measure_quality(
            datasets, names, make=make_system, packages=PACKAGES, progress=progress
        )
    command = _repeat_command("quality", *folders, system=systems, limit=[limit] if limit else [])
    _print_figures(
        found.to_json(),
        [summarize(found), tabulate_metric(found, HEADLINE)],
        command=command,
        as_json=as_json,
        save_file=save_file,
    )
    if report_folder:
        report.write_quality_report(found, report_folder, command=command)


@main.command()
@folders_argument
@click.option(
    "--encoder",
    type=click.Choice(["none", "static", "minilm"]),
    default="static",
    show_default=True,
    help="Whose signals to weigh: words alone, static vectors, MiniLM, or both kinds of vectors.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=400,
    show_default=True,
    metavar="N",
    help="Learn from N queries of each dataset.",
)
@click.option(
    "--strangers",
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR",
    help="A dataset whose tools, 4,000 at random, join each catalogue a second time.",
)
@json_option
def fit(
    folders: tuple[Path, ...], encoder: str, limit: int, strangers: Path | None, as_json: bool
) -> None:
    """Fit the fusion's weights and calibration, each dataset checked with it left out.

    Prints how each dataset fares under weights fitted on the others, then the numbers fitted on
    all of them, as they stand in toolscout/search/fusion.py.

    \b
    Example:
      python -m benchmarks fit data/metatool data/azure_mcp --encoder none --limit 200
    """
    datasets = read_datasets(folders)
    foreign = fitting.sampled(read_dataset(strangers).tools) if strangers else ()
    chosen = fitting.encoder_named(encoder)
    with show_bars() as progress:
        sets = [
            fitting.examples_of(dataset, chosen, limit=limit, strangers=foreign, progress=progress)
            for dataset in datasets
        ]
    found = fitting.fit(sets, chosen.family if chosen else "")
    left_out = fitting.left_out(sets, chosen.family if chosen else "") if len(sets) > 1 else {}
    strangers_option = [strangers] if strangers else []
    _print_figures(
        fitting.to_json(found, left_out),
        [report.fit_table(left_out)],
        command=_repeat_command(
            "fit", *folders, encoder=[encoder], limit=[limit], strangers=strangers_option
        ),
        as_json=as_json,
    )
    if not as_json:
        click.echo(f"\nweights      {found.weights}\ncalibration  {found.calibration}")


@main.command()
@click.option(
    "--sizes",
    default="1000,10000",
    show_default=True,
    callback=_read_sizes,
    metavar="N,…",
    help="Numbers of tools in the catalogue.",
)
@click.option(
    "--tools",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A file of tools or a dataset folder to take tools from; may be repeated.",
)
@system_option
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    metavar="N",
    help="Queries at each size.",
)
@json_option
@report_option
@save_option
def speed(
    sizes: tuple[int, ...],
    paths: tuple[Path, ...],
    systems: tuple[str, ...],
    queries: int,
    as_json: bool,
    report_folder: Path | None,
    save_file: Path | None,
) -> None:
    """Measure building, updating, searching and memory as the catalogue grows.

    Without --tools, the demo catalogue is copied under new names until it is large enough.
    With it, a size beyond the tools that there are means all of them.
    Systems take turns, so that a busy machine slows all of them alike: after each block of
    queries for p50 and p99, after each query for the cold figures.

    \b
    Example:
      python -m benchmarks speed --sizes 1000,10000 --system toolscout --system bm25s
    """
    if report_folder:
        report.need_matplotlib()
    asked = SYSTEM_NAMES if ALL_SYSTEMS in systems else systems or DEFAULT_SYSTEMS
    workload = read_workload(paths)
    found = measure_speed(
        workload,
        list(dict.fromkeys(asked)),
        sizes=sizes,
        queries=queries,
        memory=measure_memory,
        importing=measure_import(),
        tell=_make_teller(),
    )
    command = _repeat_command(
        "speed",
        sizes=[",".join(map(str, sizes))],
        tools=paths,
        system=systems,
        queries=[queries],
    )
    _print_figures(
        found.to_json(),
        report.speed_tables(found),
        command=command,
        as_json=as_json,
        save_file=save_file,
    )
    if report_folder:
        report.write_speed_report(found, report_folder, command=command)


@main.command()
@click.argument("catalogue", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--queries",
    "folders",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A dataset whose queries are asked; may be repeated.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    metavar="N",
    help="Ask N queries in all, always the same ones.",
)
@json_option
@save_option
def tokens(
    catalogue: Path,
    folders: tuple[Path, ...],
    sample: int,
    as_json: bool,
    save_file: Path | None,
) -> None:
    """Count the tokens of replies, and of what every request carries.

    DIR holds the tools; each query is asked in a session of its own, at the default limit.

    \b
    Example:
      python -m benchmarks tokens data/mcp_catalog --queries data/metatool --sample 500
    """
    datasets = read_datasets(folders)
    by_server: dict[str, list[Tool]] = {}
    for tool in read_dataset(catalogue).tools:
        by_server.setdefault(tool.server, []).append(tool)
    catalog = Catalog(by_server)
    queries = sample_queries(datasets, sample)
    with show_bar("Counting tokens", len(catalog) + len(queries)) as step:
        costs = measure_costs(Scout(catalog), queries, step)
    command = _repeat_command("tokens", catalogue, queries=folders, sample=[sample])
    _print_figures(
        costs.to_json(),
        [report.costs_table(costs)],
        command=command,
        as_json=as_json,
        save_file=save_file,
    )


@main.command()
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    metavar="N",
    help="How often each kind of request takes its turn, 25 requests at a time.",
)
@click.option(
    "--tools",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    metavar="N",
    help="Search over this many tools.",
)
@json_option
@save_option
def gateway(rounds: int, tools: int, as_json: bool, save_file: Path | None) -> None:
    """Measure what a call costs through the gateway, against the same call made directly.

    Over stdio, then over HTTP on all hops. Where FastMCP is installed, its proxy with BM25 search
    is measured beside it, with fewer requests because each takes long.

    \b
    Example:
      python -m benchmarks gateway --rounds 4
    """
    _make_teller()("Starting servers and gateways …")
    hops = measure_hops(rounds=rounds, tools=tools)
    command = _repeat_command("gateway", rounds=[rounds], tools=[tools])
    _print_figures(
        hops.to_json(),
        report.hops_tables(hops.to_json()),
        command=command,
        as_json=as_json,
        save_file=save_file,
    )


@main.command()
@folders_argument
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="Ask N queries of each dataset, always the same ones.",
)
@json_option
@save_option
def sdks(folders: tuple[Path, ...], limit: int, as_json: bool, save_file: Path | None) -> None:
    """Compare the searches of agent SDKs with toolscout's adapters inside them.

    A scripted model searches once for each query. Its next request is what is measured: the tools
    and the reply that it receives, and the time until then. SDKs that are not installed are left
    out.

    \b
    Example:
      python -m benchmarks sdks data/metatool --limit 50
    """
    with show_bars() as progress:
        found = compare_sdks(read_datasets(folders, limit=limit), progress=progress)
    for name, remedy in found.missing.items():
        click.echo(f"Skipping {name}: {remedy}", err=True)
    command = _repeat_command("sdks", *folders, limit=[limit])
    _print_figures(
        found.to_json(),
        comparison_tables(found),
        command=command,
        as_json=as_json,
        save_file=save_file,
    )


def _choose_systems(systems: Sequence[str], tools: Sequence[Tool]) -> list[str]:
    """Return the named systems; for `all`, every installed one, and say what the others need."""
    if ALL_SYSTEMS not in systems:
        return list(dict.fromkeys(systems))
    installed, missing = find_installed(SYSTEM_NAMES, tools[:10])
    for name, remedy in missing.items():
        click.echo(f"Skipping {name}: {remedy}", err=True)
    return installed


def _print_figures(
    figures: Mapping[str, Any],
    tables: Sequence[Table],
    *,
    command: str,
    as_json: bool,
    save_file: Path | None = None,
) -> None:
    """Print tables or JSON, and write the JSON to a file if one is given."""
    text = json.dumps({**figures, "command": command}, indent=2, ensure_ascii=False)
    if save_file:
        save_file.write_text(text + "\n", encoding="utf-8")
    if as_json:
        click.echo(text)
    else:
        show_tables(tables)


def _repeat_command(name: str, *arguments: Path, **options: Iterable[object]) -> str:
    """Return the command line that repeats this run; an option appears once for each value."""
    words = ["python", "-m", "benchmarks", name, *map(str, arguments)]
    for option, values in options.items():
        for value in values:
            words += [f"--{option}", str(value)]
    return shlex.join(words)


def _make_teller() -> Callable[[str], None]:
    """Return a function that prints what is going on, if a person is watching.

    Lines rather than a spinner: a spinner's thread would run beside what is timed.
    """
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: click.secho(text, err=True, dim=True)
