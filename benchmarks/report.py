"""Tables and plots of the figures that the benchmarks measured.

The command line prints the same tables (`Table`) that `report.md` contains. Plots are written as
SVG and PNG by matplotlib, which comes with the extra `bench` and is imported for the first plot.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.fitting import Standing
from benchmarks.leads import Leads, compute_leads
from benchmarks.replies import ReplyCosts
from benchmarks.speed import BASELINE, Pace, Speed
from benchmarks.workloads import NEW_TOOLS
from toolscout.cli.evaluate import HEADLINE
from toolscout.cli.tokens import GATEWAY, Costs
from toolscout.errors import MissingExtra
from toolscout.evaluate.quality import (
    METRICS,
    Quality,
    Table,
    summarize,
    tabulate_metric,
    tabulate_outcomes,
)
from toolscout.schemas import Json

PLOT_INCHES = (8.0, 4.5)
PLOT_FORMATS = ("svg", "png")


def tabulate_leads(first: str, leads: Leads) -> Table:
    """Return how far the first system is ahead of each other one."""
    return Table(
        title=f"Lead of {first}, macro, paired by query",
        head=("over", *(metric.title for metric in METRICS.values())),
        rows=tuple(
            (system, *(f"{e.mean:+.3f} [{e.low:+.3f}, {e.high:+.3f}]" for e in lead.values()))
            for system, lead in leads.items()
        ),
    )


def tabulate_quality(quality: Quality) -> list[Table]:
    """Return all tables of a quality report."""
    tables = [summarize(quality)]
    tables += [tabulate_metric(quality, metric) for metric in METRICS]
    leads = compute_leads(quality)
    if leads:
        tables.append(tabulate_leads(next(iter(quality.macro)), leads))
    return [
        *tables,
        tabulate_outcomes(
            quality, "Tokens of a reply", lambda outcome: f"{outcome.reply_tokens:.0f}"
        ),
        tabulate_outcomes(
            quality,
            "Search time in ms, p50 / p99",
            lambda outcome: f"{outcome.ms.p50:.2f} / {outcome.ms.p99:.2f}",
        ),
    ]


def tabulate_fit(left_out: Mapping[str, Standing]) -> Table:
    """Return the figures of each dataset with a fusion fitted on the others."""
    names = ("ndcg@10", "recall@5", "hit@1")
    rows = [(name, *(f"{one.metrics[n]:.3f}" for n in names)) for name, one in left_out.items()]
    if left_out:
        means = (sum(one.metrics[n] for one in left_out.values()) / len(left_out) for n in names)
        rows.append(("macro", *(f"{mean:.3f}" for mean in means)))
    return Table(title="Each dataset left out in turn", head=("dataset", *names), rows=tuple(rows))


def tabulate_costs(costs: Costs, replies: ReplyCosts | None) -> Table:
    """Return the token costs of a catalogue and of replies, one row per figure."""
    library = max(count for way, count in costs.requests.items() if way != GATEWAY)
    rows = [
        (f"all {costs.tools:,} definitions of {costs.servers:,} servers", costs.definitions),
        ("three meta-tools", max(costs.meta_tools.values())),
        ("listing", costs.listing),
        ("instructions", costs.instructions),
        ("pinned definitions", costs.pinned),
        ("every request through the gateway", costs.requests[GATEWAY]),
        ("every request with the library, at most", library),
    ]
    if replies:
        rows += [
            (f"reply, median of {replies.queries:,} queries", round(replies.median)),
            ("reply, 95 of 100 at most", replies.p95),
            ("reply, longest", replies.most),
            ("replies over their budget", replies.over_budget),
        ]
    shown = tuple((label, f"{number:,}") for label, number in rows)
    return Table(title=f"Tokens ({costs.encoding})", head=("", "tokens"), rows=shown)


def tabulate_hops(hops: Json) -> list[Table]:
    """Return the times of calls and searches, directly and through gateways, by transport."""
    tables = [_transit_table(name, hops) for name in hops["transits"]]
    told = [
        ("start to first answer", f"{hops['first_answer_seconds']:.2f} s"),
        (
            "the same with a gateway in the background",
            f"{hops['daemon_answer_seconds']:.2f} s",
        ),
        ("requests of each kind", str(hops["requests"])),
    ]
    if hops["fastmcp_requests"]:
        told.append(("of FastMCP's, which lists all tools at each", str(hops["fastmcp_requests"])))
    return [*tables, Table(title="How it was measured", head=("", ""), rows=tuple(told))]


def tabulate_trust(found: Json) -> Table:
    """Return what rules, audit and approval cost a call."""
    rows = (
        ("a call without them", f"{found['bare_ms']:.2f} ms"),
        (f"with {found['rules']} rules, audit and approval", f"{found['guarded_ms']:.2f} ms"),
        ("ratio", f"{found['ratio']:.3f}"),
        ("calls of each", str(found["requests"])),
    )
    return Table(title="Through the gateway, stdio", head=("", "median"), rows=rows)


def tabulate_sharing(found: Json) -> Table:
    """Return what clients cost that have a gateway each, and that share one."""
    labels = {
        "processes": ("processes", "{:,}"),
        "megabytes": ("memory", "{:,.0f} MB"),
        "first_seconds": ("first answer, first client", "{:.2f} s"),
        "next_seconds": ("first answer, the others", "{:.2f} s"),
        "call_ms": ("a call", "{:.2f} ms"),
    }
    rows = tuple(
        (label, form.format(found["alone"][key]), form.format(found["shared"][key]))
        for key, (label, form) in labels.items()
    )
    title = f"{found['clients']} clients over stdio, {found['servers']} servers"
    return Table(title=title, head=("", "--no-daemon", "shared"), rows=rows)


def _transit_table(transport: str, hops: Json) -> Table:
    figures, tools = hops["transits"][transport], f"{hops['tools']:,} tools"
    labels = {
        "direct_ms": "a call made directly",
        "gateway_ms": "the same call through toolscout",
        "daemon_ms": "the same call through toolscout in the background",
        "fastmcp_ms": "the same call through FastMCP's proxy",
        "trivial_ms": "a direct call of a trivial tool",
        "search_ms": f"a search over {tools} through toolscout",
        "daemon_search_ms": f"a search over {tools} through toolscout in the background",
        "fastmcp_search_ms": f"a search over {tools} through FastMCP's proxy",
    }
    rows = [(label, f"{figures[key]:.2f} ms") for key, label in labels.items() if figures[key]]
    rows += [(label, f"{ratio:.2f}") for label, ratio in figures["ratios"].items()]
    title = f"Through the gateway, {transport}"
    return Table(title=title, head=("", "median"), rows=tuple(rows))


def tabulate_speed(speed: Speed) -> list[Table]:
    """Return a table for each size, and one for the cost of importing."""
    tables = [_size_table(speed, size) for size in speed.sizes]
    if speed.skipped:
        rows = tuple(speed.skipped.items())
        tables.append(Table(title="Not installed", head=("system", "what to do"), rows=rows))
    if speed.importing:
        loaded = speed.importing
        figures = (f"{loaded.ms:.0f}", ", ".join(loaded.optional()) or "none")
        tables.append(
            Table(
                title="Importing toolscout",
                head=("", "ms", "optional modules loaded"),
                rows=(("import toolscout", *figures),),
            )
        )
    return tables


def write_quality_report(quality: Quality, folder: Path, *, command: str) -> None:
    """Write `report.md` and a plot of the macro nDCG@10 into a folder, which may be new."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, "Search quality", command, "ndcg", quality.versions, tabulate_quality(quality))
    _save(_ndcg_plot(quality), folder / "ndcg")


def write_speed_report(speed: Speed, folder: Path, *, command: str) -> None:
    """Write `report.md` and a plot of latency by size into a folder, which may be new."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, "Search speed", command, "latency", speed.versions, tabulate_speed(speed))
    _save(_latency_plot(speed), folder / "latency")


def need_matplotlib() -> ModuleType:
    """Return matplotlib, or raise `MissingExtra`; call it before a long run that ends in a plot."""
    try:
        return import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise MissingExtra("matplotlib", extra="bench") from error


def _write(
    folder: Path,
    title: str,
    command: str,
    plot: str,
    versions: Mapping[str, str],
    tables: Sequence[Table],
) -> None:
    parts = [
        f"# {title}",
        f"Repeat it with `{command}`.",
        f"Versions: {', '.join(f'{name} {number}' for name, number in versions.items())}.",
        f"![{title}]({plot}.svg)",
        *map(to_markdown, tables),
    ]
    (folder / "report.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def to_markdown(table: Table) -> str:
    """Return the table under its title, with figures aligned to the right."""
    rule = ("---", *["---:"] * (len(table.head) - 1))
    lines = [f"| {' | '.join(row)} |" for row in (table.head, rule, *table.rows)]
    return "\n".join((f"## {table.title}", "", *lines))


def _size_table(speed: Speed, size: int) -> Table:
    return Table(
        title=f"{size:,} tools, {speed.queries:,} queries",
        head=(
            *("system", "build ms", f"+{NEW_TOOLS} tools ms", "by", "next search ms"),
            *("p50 ms", "p99 ms", f"p50 / {BASELINE}", "cold p50 ms", f"cold / {BASELINE}"),
            *("RSS MB", "growth MB"),
        ),
        rows=tuple(
            (
                system,
                *_pace_figures(pace, speed.ratio(size, system), speed.cold_ratio(size, system)),
            )
            for system, pace in speed.sizes[size].items()
        ),
    )


def _pace_figures(pace: Pace, ratio: float | None, cold_ratio: float | None) -> tuple[str, ...]:
    memory = pace.memory
    return (
        f"{pace.build_ms:.1f}",
        f"{pace.update.ms:.2f}",
        pace.update.how,
        f"{pace.update.first_search_ms:.2f}",
        f"{pace.ms.p50:.3f}",
        f"{pace.ms.p99:.3f}",
        "-" if ratio is None else f"{ratio:.2f}",
        f"{pace.cold.p50:.3f}",
        "-" if cold_ratio is None else f"{cold_ratio:.2f}",
        "-" if memory is None else f"{memory.rss_mb:.0f}",
        "-" if memory is None else f"{memory.growth_mb:.0f}",
    )


def _figure() -> Any:
    # A bare figure keeps clear of pyplot, whose state is global and may want a display.
    need_matplotlib()
    return import_module("matplotlib.figure").Figure(figsize=PLOT_INCHES, layout="constrained")


def _ndcg_plot(quality: Quality) -> Any:
    found = {system: outcome.metrics[HEADLINE] for system, outcome in quality.macro.items()}
    means = [estimate.mean for estimate in found.values()]
    below = [max(0.0, estimate.mean - estimate.low) for estimate in found.values()]
    above = [max(0.0, estimate.high - estimate.mean) for estimate in found.values()]
    figure = _figure()
    axes = figure.add_subplot()
    axes.barh(list(found), means, xerr=(below, above), capsize=3, color="#4c72b0")
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel(
        f"macro {METRICS[HEADLINE].title} with 95 % interval, {len(quality.datasets)} datasets"
    )
    return figure


def _latency_plot(speed: Speed) -> Any:
    sizes = list(speed.sizes)
    figure = _figure()
    axes = figure.add_subplot()
    for system in speed.sizes[sizes[0]]:
        times = [speed.sizes[size][system].ms.p50 for size in sizes]
        axes.plot(sizes, times, marker="o", label=system)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("tools")
    axes.set_ylabel("median search time, ms")
    if axes.lines:
        axes.legend()
    return figure


def _save(figure: Any, stem: Path) -> None:
    # Without a date and with fixed ids the same figures give the same file.
    with need_matplotlib().rc_context({"svg.hashsalt": "toolscout"}):
        for kind in PLOT_FORMATS:
            metadata = {"Date": None} if kind == "svg" else {}
            figure.savefig(stem.with_suffix(f".{kind}"), metadata=metadata)
