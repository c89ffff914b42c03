"""`python -m benchmarks`: compare toolscout with other tool searches on your data.

Results go to stdout, progress and remarks to stderr.
"""

import json
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from benchmarks import fitting, report
from benchmarks.daemon import measure_sharing
from benchmarks.footprints import measure_import, measure_memory
from benchmarks.gateway import measure_hops, measure_trust
from benchmarks.hints import measure_hint_costs, tabulate_hint_costs
from benchmarks.leads import compute_leads, json_from_leads
from benchmarks.learning import measure_learning, tabulate_gains
from benchmarks.nonsense import measure_nonsense, tabulate_nonsense
from benchmarks.programs import (
    measure_modes,
    measure_speed_of_programs,
    tabulate_modes,
    tabulate_rounds,
    tabulate_speed,
)
from benchmarks.replies import measure_replies, sample_queries
from benchmarks.scale import (
    Model,
    Site,
    constants_from_json,
    json_from_scale,
    measure_constants,
    replay_day,
    tabulate_constants,
    tabulate_days,
    tabulate_needs,
)
from benchmarks.scanner import measure_catalog, measure_samples, tabulate_scanned
from benchmarks.sdks import compare_sdks, tabulate_comparison
from benchmarks.skills import measure_prompts, measure_skills, tabulate_skills, write_skills
from benchmarks.speed import DEFAULT_SYSTEMS, measure_speed
from benchmarks.systems import PACKAGES, SYSTEM_NAMES, find_installed, make_system
from benchmarks.workloads import read_workload
from toolscout.cli import ErrorGroup
from toolscout.cli.evaluate import (
    HEADLINE,
    figures_option,
    folders_argument,
    limit_option,
    show_tables,
)
from toolscout.cli.inputs import catalog_from_tools
from toolscout.cli.output import show_bar, show_bars
from toolscout.cli.tokens import measure_costs
from toolscout.evaluate.datasets import Dataset, read_dataset, read_datasets
from toolscout.evaluate.quality import Table, measure_quality, summarize, tabulate_metric
from toolscout.scout import Scout
from toolscout.search.fusion import choose_fusion
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
@limit_option
@figures_option
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

    Each DIR holds tools.jsonl (or tools.jsonl.gz) and queries.jsonl, or contains such folders.
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
        {**found.to_json(), "lead": json_from_leads(compute_leads(found))},
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
    help="The signals to weigh: words alone, or also static vectors or MiniLM.",
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
    help="Fit each dataset a second time among 4,000 random tools of this one.",
)
@click.option(
    "--hints",
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR",
    help="Fit with all and half of the hints as well: those in NAME.jsonl.gz, or shipped ones.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Keep the weights of definitions as they are, and fit only those of hints.",
)
@figures_option
def fit(
    folders: tuple[Path, ...],
    encoder: str,
    limit: int,
    strangers: Path | None,
    hints: Path | None,
    keep: bool,
    as_json: bool,
) -> None:
    """Fit the weights and the calibration of the fusion.

    Prints how well weights fitted on the other datasets rank each one, then the numbers fitted on
    all of them, in the form that toolscout/search/fusion.py has them.

    \b
    Example:
      python -m benchmarks fit data/metatool data/azure_mcp --encoder none --limit 200
    """
    datasets = read_datasets(folders)
    foreign: Sequence[Tool] = ()
    if strangers:
        foreign = fitting.sample_strangers(_read_hinted(read_dataset(strangers), hints).tools)
    chosen = fitting.make_encoder(encoder)
    with show_bars() as progress:
        build = partial(
            fitting.build_examples,
            encoder=chosen,
            limit=limit,
            strangers=foreign,
            progress=progress,
        )
        hinted = [_read_hinted(dataset, hints) for dataset in datasets]
        sets = [
            build(dataset, hinting=hinting)
            for dataset in hinted
            for hinting in fitting.Hinting
            if hinting is fitting.Hinting.NONE or any(tool.hint for tool in dataset.tools)
        ]
    family = chosen.family if chosen else ""
    present = choose_fusion(family) if keep else None
    found = fitting.fit(sets, family, present)
    left_out = fitting.cross_validate(sets, family, present) if len(datasets) > 1 else {}
    strangers_option = [strangers] if strangers else []
    _print_figures(
        fitting.to_json(found, left_out),
        [report.tabulate_fit(left_out)],
        command=_repeat_command(
            "fit",
            *folders,
            encoder=[encoder],
            limit=[limit],
            strangers=strangers_option,
            hints=[hints] if hints else [],
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
@figures_option
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

    Without --tools, the demo catalogue is copied under new names until it is large enough. With
    --tools, a size larger than the number of tools means all of them. Systems take turns, so that
    a busy machine slows all of them alike: after each block of queries for p50 and p99, and after
    each query for the cold figures.

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
        tell=_report_progress,
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
        report.tabulate_speed(found),
        command=command,
        as_json=as_json,
        save_file=save_file,
    )
    if report_folder:
        report.write_speed_report(found, report_folder, command=command)


@main.command()
@folders_argument
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=600,
    show_default=True,
    metavar="N",
    help="Make N queries of each kind.",
)
@limit_option
@figures_option
@save_option
def nonsense(
    folders: tuple[Path, ...],
    count: int,
    limit: int | None,
    as_json: bool,
    save_file: Path | None,
) -> None:
    """Measure how much nonsense finds nothing, and how many real queries do.

    Nonsense is random letters, letters of one row of a keyboard, and syllables.

    \b
    Example:
      python -m benchmarks nonsense data/mcp_catalog data/metatool
    """
    datasets = read_datasets(folders, limit=limit)
    found = [measure_nonsense(dataset, count) for dataset in datasets]
    _print_figures(
        {"datasets": [asdict(one) for one in found]},
        [tabulate_nonsense(found)],
        command=_repeat_command("nonsense", *folders, count=[count]),
        as_json=as_json,
        save_file=save_file,
    )


@main.command()
@click.option("--encoder", type=click.Choice(["static", "onnx"]), default="static")
@figures_option
@save_option
def skills(encoder: Literal["static", "onnx"], as_json: bool, save_file: Path | None) -> None:
    """Measure how well 500 skills are found, and what they cost in every prompt.

    \b
    Example:
      python -m benchmarks skills --encoder onnx
    """
    with tempfile.TemporaryDirectory() as place:
        quality = measure_skills(write_skills(Path(place)).tools, encoder=encoder)
    costs = measure_prompts()
    _print_figures(
        {"quality": list(map(asdict, quality)), "prompts": list(map(asdict, costs))},
        tabulate_skills(quality, costs),
        command=_repeat_command("skills", encoder=[encoder]),
        as_json=as_json,
        save_file=save_file,
    )


@main.command()
@click.argument("catalog", type=click.Path(path_type=Path, exists=True))
@click.argument("queries", type=click.Path(path_type=Path, exists=True))
@click.option("--limit", type=click.IntRange(min=1), default=400, show_default=True, metavar="N")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, metavar="N")
@figures_option
def hints(catalog: Path, queries: Path, limit: int, rounds: int, as_json: bool) -> None:
    """Measure what the shipped hints cost a search over CATALOG.

    Asks N queries of the dataset QUERIES, with and without hints in turns.

    \b
    Example:
      python -m benchmarks hints data/mcp_catalog data/mcp_zero
    """
    texts = [query.text for query in read_dataset(queries).sample(limit).queries]
    found = measure_hint_costs(read_dataset(catalog), texts, rounds)
    _print_figures(
        asdict(found),
        [tabulate_hint_costs(found)],
        command=_repeat_command("hints", catalog, queries, limit=[limit], rounds=[rounds]),
        as_json=as_json,
    )


@main.command()
@folders_argument
@limit_option
@figures_option
@save_option
def programs(
    folders: tuple[Path, ...], limit: int | None, as_json: bool, save_file: Path | None
) -> None:
    """Measure what programs cost and save, compared with calls one by one.

    Simulates an agent that makes no mistakes, on tasks whose tools are known, with generated
    results, and measures how fast programs are on this machine.

    \b
    Example:
      python -m benchmarks programs data/nestful data/bfcl_multi_turn data/seal_tools --limit 200
    """
    found = [
        row
        for dataset in read_datasets(folders)
        for row in measure_modes(dataset, limit=limit or len(dataset.queries))
    ]
    speed = measure_speed_of_programs()
    _print_figures(
        {"modes": [row.to_json() for row in found], "speed": speed.to_json()},
        [
            tabulate_modes(found, wants_all=False),
            tabulate_modes(found, wants_all=True),
            tabulate_rounds(found),
            tabulate_speed(speed),
        ],
        command=_repeat_command("programs", *folders, limit=[limit] if limit else []),
        as_json=as_json,
        save_file=save_file,
    )


@main.command()
@folders_argument
@click.option(
    "--log",
    "log_folder",
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR",
    help="A dataset of the same tools whose queries were asked in the past.",
)
@click.option(
    "--encoder",
    "encoders",
    multiple=True,
    type=click.Choice(["static", "none"]),
    help="Measure only this encoder; may be repeated.",
)
@click.option(
    "--calls",
    "counts",
    multiple=True,
    type=click.IntRange(min=1),
    default=(1_000, 5_000),
    show_default=True,
    metavar="N",
    help="Learn from N past calls; may be repeated.",
)
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    metavar="SHARE",
    help="The share of the tools that never get a call.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=600,
    show_default=True,
    metavar="N",
    help="Ask N queries of each dataset, always the same ones.",
)
@figures_option
@save_option
def learning(
    folders: tuple[Path, ...],
    log_folder: Path | None,
    encoders: tuple[str, ...],
    counts: tuple[int, ...],
    held_out: float,
    limit: int,
    as_json: bool,
    save_file: Path | None,
) -> None:
    """Measure what learning from past calls gives, and what it costs tools without any.

    Some tools never get a call. Past calls come from one part of each dataset's queries,
    or from --log; the others are asked with and without learning.

    \b
    Example:
      python -m benchmarks learning data/metatool data/azure_mcp --calls 1000
      python -m benchmarks learning data/mcp_requests_search --log data/mcp_requests_task
    """
    logged = read_dataset(log_folder) if log_folder else None
    found = [
        measure_learning(
            dataset, encoder, calls=calls, limit=limit, held_out=held_out, logged=logged
        )
        for dataset in read_datasets(folders)
        for encoder in dict.fromkeys(encoders or ("static", "none"))
        for calls in counts
    ]
    _print_figures(
        {"learning": [one.to_json() for one in found]},
        [tabulate_gains(found)],
        command=_repeat_command(
            "learning",
            *folders,
            log=[log_folder] if log_folder else [],
            encoder=encoders,
            calls=counts,
            held_out=[held_out],
            limit=[limit],
        ),
        as_json=as_json,
        save_file=save_file,
    )


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
@figures_option
@save_option
def tokens(
    catalogue: Path,
    folders: tuple[Path, ...],
    sample: int,
    as_json: bool,
    save_file: Path | None,
) -> None:
    """Count the tokens of replies, and the tokens that every request carries.

    DIR holds the tools. Each query is asked in a new session, with the default limit.

    \b
    Example:
      python -m benchmarks tokens data/mcp_catalog --queries data/metatool --sample 500
    """
    datasets = read_datasets(folders)
    catalog = catalog_from_tools(read_dataset(catalogue).tools)
    queries = sample_queries(datasets, sample)
    scout = Scout(catalog)
    with show_bar("Counting tokens", len(catalog) + len(queries)) as step:
        costs = measure_costs(scout, step)
        replies = measure_replies(scout, queries, step)
    command = _repeat_command("tokens", catalogue, queries=folders, sample=[sample])
    _print_figures(
        {**costs.to_json(), "replies": replies and asdict(replies)},
        [report.tabulate_costs(costs, replies)],
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
    help="Rounds; in each, every kind of request is sent 25 times.",
)
@click.option(
    "--tools",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    metavar="N",
    help="Number of tools to search.",
)
@figures_option
@save_option
def gateway(rounds: int, tools: int, as_json: bool, save_file: Path | None) -> None:
    """Measure how much time the gateway adds to a call.

    Compares calls through the gateway with the same calls made directly, over stdio and then over
    HTTP. If FastMCP is installed, its proxy with BM25 search is measured too, with fewer requests
    because each takes long.

    \b
    Example:
      python -m benchmarks gateway --rounds 4
    """
    _report_progress("Starting servers and gateways …")
    hops = measure_hops(rounds=rounds, tools=tools)
    command = _repeat_command("gateway", rounds=[rounds], tools=[tools])
    _print_figures(
        hops.to_json(),
        report.tabulate_hops(hops.to_json()),
        command=command,
        as_json=as_json,
        save_file=save_file,
    )


@main.command()
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Rounds; in each, both gateways get 25 calls.",
)
@figures_option
@save_option
def trust(rounds: int, as_json: bool, save_file: Path | None) -> None:
    """Measure what rules, the audit record and approval add to a call.

    Two gateways take turns: one without any of them, and one with twenty rules.

    \b
    Example:
      python -m benchmarks trust --rounds 40
    """
    _report_progress("Starting two gateways …")
    found = measure_trust(rounds=rounds)
    _print_figures(
        found.to_json(),
        [report.tabulate_trust(found.to_json())],
        command=_repeat_command("trust", rounds=[rounds]),
        as_json=as_json,
        save_file=save_file,
    )


@main.command()
@click.option(
    "--clients",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    metavar="N",
    help="Number of clients over stdio.",
)
@click.option(
    "--servers",
    type=click.IntRange(1, 10),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of servers; five are from PyPI and five from npm.",
)
@figures_option
@save_option
def daemon(clients: int, servers: int, as_json: bool, save_file: Path | None) -> None:
    """Measure what clients save that share one gateway in the background.

    Each client calls a tool of each server. Processes, memory and the time to the first
    answer are measured with a gateway for each client, and then with one for all.

    \b
    Example:
      python -m benchmarks daemon --clients 3
    """
    _report_progress("Starting all servers for each client …")
    found = measure_sharing(clients, servers)
    _print_figures(
        found.to_json(),
        [report.tabulate_sharing(found.to_json())],
        command=_repeat_command("daemon", clients=[clients], servers=[servers]),
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
@figures_option
@save_option
def sdks(folders: tuple[Path, ...], limit: int, as_json: bool, save_file: Path | None) -> None:
    """Compare the searches of agent SDKs with toolscout's adapters inside them.

    A scripted model searches once for each query. Its next request is measured: the tools and the
    reply that it receives, and the time until then. SDKs that are not installed are skipped.

    \b
    Example:
      python -m benchmarks sdks data/metatool --limit 50
    """
    with show_bars() as progress:
        found = compare_sdks(read_datasets(folders, limit=limit), progress=progress)
    _report_skipped(found.missing)
    command = _repeat_command("sdks", *folders, limit=[limit])
    _print_figures(
        found.to_json(),
        tabulate_comparison(found),
        command=command,
        as_json=as_json,
        save_file=save_file,
    )


@main.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[DIR]…")
@figures_option
@save_option
def scanner(folders: tuple[Path, ...], as_json: bool, save_file: Path | None) -> None:
    """Measure how many attacks the scanner finds, and what it holds wrongly.

    Scans our own attacks and harmless definitions in tests/security, and the tools of each DIR.
    There it also counts the definitions that redaction would change. The JSON says why tools were
    held.

    \b
    Example:
      python -m benchmarks scanner data/mcp_catalog
    """
    found = [*measure_samples(), *map(measure_catalog, folders)]
    _print_figures(
        {"sets": [asdict(one) | {"held_wrongly": one.wrong} for one in found]},
        [tabulate_scanned(found)],
        command=_repeat_command("scanner", *folders),
        as_json=as_json,
        save_file=save_file,
    )


@main.command()
@click.option(
    "--sizes",
    default="5000,20000",
    show_default=True,
    callback=_read_sizes,
    metavar="N,N",
    help="Numbers of tools of which the difference shows what one tool costs.",
)
@click.option(
    "--tools",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A file of tools or a dataset folder to take tools from; may be repeated.",
)
@click.option(
    "--catalog",
    "catalogs",
    default="10000,200000,1000000,10000000",
    show_default=True,
    callback=_read_sizes,
    metavar="N,…",
    help="Tools of the sites to compute.",
)
@click.option(
    "--principals",
    default="1000,100000",
    show_default=True,
    callback=_read_sizes,
    metavar="N,…",
    help="Principals of the sites to compute.",
)
@click.option(
    "--constants",
    "constants_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Measure nothing, and take the constants of an earlier run from its JSON.",
)
@figures_option
@save_option
def scale(
    sizes: tuple[int, ...],
    paths: tuple[Path, ...],
    catalogs: tuple[int, ...],
    principals: tuple[int, ...],
    constants_file: Path | None,
    as_json: bool,
    save_file: Path | None,
) -> None:
    """Compute what many tools and principals need, and replay a day of their requests.

    Measures what a tool, a session, a search and a call cost on this machine first. A day is
    replayed for each site whose searches and memory fit.

    \b
    Example:
      python -m benchmarks scale --catalog 10000,1000000 --principals 100000
    """
    if constants_file:
        saved = json.loads(constants_file.read_text(encoding="utf-8"))
        constants = constants_from_json(saved["constants"])
    else:
        _report_progress("Measuring two catalogues and a gateway …")
        constants = measure_constants(read_workload(paths), sizes)
    model = Model(constants)
    sites = [Site(tools=tools, principals=people) for tools in catalogs for people in principals]
    needs = [model.find_need(site) for site in sites]
    days = [(need.site, replay_day(model, need.site)) for need in needs if not need.limit]
    _print_figures(
        json_from_scale(constants, needs, days),
        [tabulate_constants(constants), tabulate_needs(needs), tabulate_days(days)],
        command=_repeat_command(
            "scale",
            sizes=[",".join(map(str, sizes))],
            tools=paths,
            catalog=[",".join(map(str, catalogs))],
            principals=[",".join(map(str, principals))],
        ),
        as_json=as_json,
        save_file=save_file,
    )


@main.command()
@click.option(
    "--url",
    required=True,
    metavar="URL",
    help="A PostgreSQL database with the extension vector; it is filled if it has no tools.",
)
@click.option(
    "--catalog",
    "size",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(min=1_000),
    metavar="N",
    help="Tools to fill the database with.",
)
@click.option(
    "--tools",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A file of tools or a dataset folder to take and vary tools from; may be repeated.",
)
@click.option(
    "--ask",
    "asked",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="A dataset folder to take queries from; may be repeated.",
)
@click.option(
    "--queries",
    default=200,
    show_default=True,
    type=click.IntRange(min=10),
    metavar="N",
    help="Queries to measure.",
)
@figures_option
@save_option
def large(
    url: str,
    size: int,
    paths: tuple[Path, ...],
    asked: tuple[Path, ...],
    queries: int,
    as_json: bool,
    save_file: Path | None,
) -> None:
    """Search a catalogue in PostgreSQL, and compare it with a ranking of all tools in memory.

    The exact ranking needs about 5 KB of memory for each tool.

    \b
    Example:
      python -m benchmarks large --url postgresql:///tools --tools data/mcp_catalog --ask data/asked
    """
    # The only benchmark that needs the extra `postgres`.
    from benchmarks.large import WARMED_UP, load_catalog, measure_large, tabulate_large

    workload = read_workload(paths)
    _report_progress(f"Filling the database with {size:,} tools …")
    load_catalog(url, workload.tools, size)
    questions = read_workload(asked) if asked else workload
    _report_progress("Searching …")
    found = measure_large(url, questions.draw_queries(workload.tools, queries + WARMED_UP))
    _print_figures(
        asdict(found),
        [tabulate_large([found])],
        command=_repeat_command(
            "large", url=["URL"], catalog=[size], tools=paths, ask=asked, queries=[queries]
        ),
        as_json=as_json,
        save_file=save_file,
    )


def _choose_systems(systems: Sequence[str], tools: Sequence[Tool]) -> list[str]:
    """Return the named systems; for `all`, every installed one, and say what the others need."""
    if ALL_SYSTEMS not in systems:
        return list(dict.fromkeys(systems))
    installed, missing = find_installed(SYSTEM_NAMES, tools[:10])
    _report_skipped(missing)
    return installed


def _report_skipped(missing: Mapping[str, str]) -> None:
    for name, remedy in missing.items():
        click.echo(f"Skipping {name}: {remedy}", err=True)


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


def _read_hinted(dataset: Dataset, folder: Path | None) -> Dataset:
    """Return a dataset with the hints that a folder has for it, or with the shipped ones."""
    if folder is None:
        return dataset
    return fitting.add_hints(dataset, fitting.read_hints(dataset, folder))


def _repeat_command(name: str, *arguments: Path, **options: Iterable[object]) -> str:
    """Return the command line that repeats this run; an option appears once for each value."""
    words = ["python", "-m", "benchmarks", name, *map(str, arguments)]
    for option, values in options.items():
        for value in values:
            words += [f"--{option.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _report_progress(text: str) -> None:
    """Print a line if a person is watching.

    Not a spinner: its thread would take time from the code that is timed.
    """
    if sys.stderr.isatty():
        click.secho(text, err=True, dim=True)
