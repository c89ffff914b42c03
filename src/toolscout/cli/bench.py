"""`toolscout bench`: compare tool searches, ours and others', on your data.

Reads options, calls `toolscout.bench`, prints tables or JSON. Only results go to stdout; progress
and remarks go to stderr. Everything heavy is imported when a command runs.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli import Group
from toolscout.cli.figures import (
    command_line,
    give,
    json_option,
    query_bars,
    report_option,
    save_option,
    status,
)
from toolscout.cli.sdks import sdks

if TYPE_CHECKING:
    from toolscout.tools import Tool

ALL_SYSTEMS = "all"
QUALITY_SYSTEMS = (
    *("toolscout", "toolscout-lexical"),
    *("oh-my-pi", "claude-code-best", "dirge", "cortex", "deer-flow"),
)


@click.group(cls=Group)
def bench() -> None:
    """Compare tool searches: how well they find, and how fast."""


def _sizes(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{value!r} is not a list of sizes such as 1000,10000.")
    return tuple(int(part) for part in parts)


system_option = click.option(
    "--system",
    "systems",
    multiple=True,
    metavar="NAME",
    help="Compare only this one; may be given again. `all` means every installed one.",
)


@bench.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR…")
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
      toolscout bench quality data/metatool --system toolscout --system bm25s --limit 500
    """
    from toolscout.bench import report
    from toolscout.bench.datasets import labelled_folders, read_dataset
    from toolscout.bench.quality import measure_quality

    if report_folder:
        report.need_matplotlib()
    datasets = [read_dataset(inner) for folder in folders for inner in labelled_folders(folder)]
    names = _chosen(systems or QUALITY_SYSTEMS, datasets[0].tools)
    if limit is not None:
        datasets = [dataset.sample(limit) for dataset in datasets]
    with query_bars() as progress:
        found = measure_quality(datasets, names, progress=progress)
    command = command_line("quality", *folders, system=systems, limit=[limit] if limit else [])
    summary = report.summary_table(found)
    give(
        {**found.to_json(), "command": command},
        [summary, report.metric_table(found, report.HEADLINE, intervals=True)],
        as_json=as_json,
        save_file=save_file,
    )
    if report_folder:
        report.write_quality_report(found, report_folder, command=command)


@bench.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR…")
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
      toolscout bench fit data/metatool data/azure_mcp --encoder none --limit 200
    """
    from toolscout.bench import fitting, report
    from toolscout.bench.datasets import labelled_folders, read_dataset

    datasets = [read_dataset(inner) for folder in folders for inner in labelled_folders(folder)]
    foreign = fitting.sampled(read_dataset(strangers).tools) if strangers else ()
    chosen = fitting.encoder_named(encoder)
    with query_bars() as progress:
        sets = [
            fitting.examples_of(
                dataset,
                chosen,
                limit=limit,
                strangers=foreign,
                progress=partial(progress, dataset.name, encoder) if progress else None,
            )
            for dataset in datasets
        ]
    found = fitting.fit(sets, chosen.family if chosen else "")
    left_out = fitting.left_out(sets, chosen.family if chosen else "") if len(sets) > 1 else {}
    payload = fitting.to_json(found, left_out)
    give(payload, [report.fit_table(left_out)], as_json=as_json, save_file=None)
    if not as_json:
        click.echo(f"\nweights      {found.weights}\ncalibration  {found.calibration}")


@bench.command()
@click.option(
    "--sizes",
    default="1000,10000",
    show_default=True,
    callback=_sizes,
    metavar="N,…",
    help="Numbers of tools in the catalogue.",
)
@click.option(
    "--tools",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A file of tools or a dataset folder to take tools from; may be given again.",
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
      toolscout bench speed --sizes 1000,10000 --system toolscout --system bm25s
    """
    from toolscout.bench import report
    from toolscout.bench.footprints import measure_import, measure_memory
    from toolscout.bench.speed import DEFAULT_SYSTEMS, measure_speed
    from toolscout.bench.systems import SYSTEM_NAMES
    from toolscout.bench.workloads import read_workload

    if report_folder:
        report.need_matplotlib()
    asked = SYSTEM_NAMES if ALL_SYSTEMS in systems else systems or DEFAULT_SYSTEMS
    workload = read_workload(paths)
    with status() as tell:
        found = measure_speed(
            workload,
            list(dict.fromkeys(asked)),
            sizes=sizes,
            queries=queries,
            memory=measure_memory,
            importing=measure_import(),
            tell=tell,
        )
    command = command_line(
        "speed",
        sizes=[",".join(map(str, sizes))],
        tools=paths,
        system=systems,
        queries=[queries],
    )
    give(
        {**found.to_json(), "command": command},
        report.speed_tables(found),
        as_json=as_json,
        save_file=save_file,
    )
    if report_folder:
        report.write_speed_report(found, report_folder, command=command)


@bench.command()
@click.argument("catalogue", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--queries",
    "folders",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A dataset whose queries are asked; may be given again.",
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
      toolscout bench tokens data/mcp_catalog --queries data/metatool --sample 500
    """
    from toolscout.bench import report
    from toolscout.bench.costs import measure_costs, sampled_queries
    from toolscout.bench.datasets import labelled_folders, read_dataset
    from toolscout.catalog import Catalog
    from toolscout.scout import Scout

    datasets = [read_dataset(inner) for folder in folders for inner in labelled_folders(folder)]
    by_server: dict[str, list[Tool]] = {}
    for tool in read_dataset(catalogue).tools:
        by_server.setdefault(tool.server, []).append(tool)
    catalog = Catalog(by_server)
    queries = sampled_queries(datasets, sample)
    with query_bars() as bars:
        done = 0

        def progress(steps: int) -> None:
            nonlocal done
            done += steps
            if bars is not None:
                bars("tokens", "toolscout", done, len(catalog) + len(queries))

        costs = measure_costs(Scout(catalog), queries, progress)
    command = command_line("tokens", catalogue, queries=folders, sample=[sample])
    give(
        {**costs.to_json(), "command": command},
        [report.costs_table(costs)],
        as_json=as_json,
        save_file=save_file,
    )


@bench.command()
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
      toolscout bench gateway --rounds 4
    """
    from toolscout.bench import report
    from toolscout.bench.hops import measure_hops

    with status() as tell:
        tell("Starting servers and gateways …")
        hops = measure_hops(rounds=rounds, tools=tools)
    command = command_line("gateway", rounds=[rounds], tools=[tools])
    give(
        {**hops.to_json(), "command": command},
        report.hops_tables(hops.to_json()),
        as_json=as_json,
        save_file=save_file,
    )


def _chosen(systems: Sequence[str], tools: "Sequence[Tool]") -> list[str]:
    """Return the systems asked for; of `all`, those installed, telling which are not."""
    from toolscout.bench.quality import installed_systems
    from toolscout.bench.systems import SYSTEM_NAMES

    if ALL_SYSTEMS not in systems:
        return list(dict.fromkeys(systems))
    installed, missing = installed_systems(SYSTEM_NAMES, tools[:10])
    for name, remedy in missing.items():
        click.echo(f"Left out {name}: {remedy}", err=True)
    return installed


bench.add_command(sdks)
