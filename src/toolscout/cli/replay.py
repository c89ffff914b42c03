"""`toolscout replay`: recorded queries against a changed catalogue or configuration."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType

from toolscout.audit import replay as replays
from toolscout.audit.probes import read_probes
from toolscout.audit.replay import Move, Replay, Side, read_recording
from toolscout.catalog import Catalog
from toolscout.cli.inputs import (
    build_index,
    config_option,
    open_known_store,
    read_catalog_or_config,
    read_known_catalog,
    read_servers,
)
from toolscout.cli.output import make_table, show, show_bar, style
from toolscout.errors import InvalidFile
from toolscout.names import to_one_line

TOO_FEW = 1
QUERY_SHOWN = 60
STYLES = {
    "gone": "bold red",
    "missing": "bold red",
    "lower": "yellow",
    "unfound": "red",
    "higher": "green",
    "found": "bold green",
    "same": "dim",
}
QUIET = ("same",)
"""Outcomes that are counted, and listed only with --all."""


@click.command()
@click.argument(
    "recording",
    required=False,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
)
@click.option(
    "--catalog",
    "new",
    type=click.Path(path_type=Path, exists=True),
    metavar="NEW",
    help="The catalogue or configuration (.toml) to try. Default: your own configuration.",
)
@click.option(
    "--against",
    "old",
    type=click.Path(path_type=Path, exists=True),
    metavar="OLD",
    help="The catalogue or configuration to compare with.",
)
@click.option(
    "--within",
    type=click.IntRange(1, 50),
    default=5,
    show_default=True,
    metavar="N",
    help="Count a tool as found if it is among the first N hits.",
)
@click.option(
    "--fail-below",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Exit with code 1 if a smaller share of the queries finds its tool.",
)
@click.option(
    "--all", "show_all", is_flag=True, help="Also list queries whose result did not change."
)
@click.option(
    "--record",
    "record_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the past calls of your gateway to this file instead.",
)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def replay(
    recording: Path | None,
    new: Path | None,
    old: Path | None,
    within: int,
    fail_below: float | None,
    show_all: bool,
    record_file: Path | None,
    path: Path | None,
    as_json: bool,
) -> None:
    """Run recorded queries again and show what moved.

    Use it before a new catalogue goes live. RECORDING holds JSON lines of {"query": "…", "tool":
    "name"}; --record makes one from the past calls of a gateway.

    \b
    Example:
      toolscout replay --record calls.jsonl
      toolscout replay calls.jsonl --catalog new.json --against old.json
      toolscout replay calls.jsonl --catalog new.json --fail-below 0.9 --json
    """
    if (recording is None) == (record_file is None):
        raise click.UsageError("Give either a RECORDING to replay or --record FILE to make one.")
    if record_file is not None:
        _record(record_file, path)
        return
    assert recording is not None
    done = _run_replay(
        recording,
        _choose_new_catalog(new, path),
        read_catalog_or_config([old]) if old else None,
        within,
    )
    _print_replay(done, show_all=show_all, as_json=as_json)
    if fail_below is not None and done.found < fail_below:
        click.echo(f"Found {done.found:.1%}, below the required {fail_below:.1%}.", err=True)
        raise click.exceptions.Exit(TOO_FEW)


def _record(file: Path, config_file: Path | None) -> None:
    config = read_servers(config_file)
    with open_known_store(config) as store:
        if store is None:
            remedy = "Run the gateway with `toolscout serve` first."
            raise InvalidFile(
                str(config.source),
                "belongs to a gateway that has recorded nothing yet",
                remedy=remedy,
            )
        made = read_recording(store)
    if str(file) == "-":
        click.echo(made.to_lines(), nl=False)
    else:
        file.write_text(made.to_lines(), encoding="utf-8", errors="backslashreplace")
        click.echo(f"Wrote {len(made.probes):,} queries to {file}.", err=True)
    if made.hashed:
        click.echo(
            f"Skipped {made.hashed:,} calls whose query is stored as a hash. Set 'hash_queries' to "
            "false under [sessions] to store queries as text.",
            err=True,
        )


def _choose_new_catalog(new: Path | None, config_file: Path | None) -> Catalog:
    if new and config_file:
        raise click.UsageError("Use either --catalog or --config, not both.")
    return read_catalog_or_config([new]) if new else read_known_catalog(config_file)


def _run_replay(file: Path, new: Catalog, old: Catalog | None, within: int) -> Replay:
    probes = read_probes(file)
    sides = (_make_side(new), _make_side(old) if old is not None else None)
    with show_bar("Replaying", len(probes)) as step:
        return replays.replay(probes, *sides, within=within, progress=step)


def _make_side(catalog: Catalog) -> Side:
    return Side(catalog=catalog, index=build_index(catalog))


def _print_replay(done: Replay, *, show_all: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(done.to_json(), ensure_ascii=False))
        return

    show(_render(done, show_all=show_all))


def _render(done: Replay, *, show_all: bool) -> Iterator[RenderableType]:
    quiet = QUIET if done.compared else ("found",)
    moves = [move for move in done.moves if show_all or move.fate not in quiet]
    if moves:
        head = ("", "before", "after", "tool", "query") if sys.stdout.isatty() else ()
        yield make_table(head or ("",) * 5, map(_make_row, moves), right=(1, 2))
        yield ""
    counts = done.counts
    told = ", ".join(f"{counts[fate]:,} {fate}" for fate in counts)
    before = "" if done.found_before is None else f" ({done.found_before:.1%} before)"
    yield style((f"{len(done.moves):,} queries: {told or 'nothing to ask'}.", ""))
    yield style((f"Found among the first {done.within}: {done.found:.1%}{before}.", "bold"))


def _make_row(move: Move) -> list[tuple[str, str]]:
    before, after = ("-" if rank is None else str(rank) for rank in (move.before, move.after))
    return [
        (move.fate, STYLES[move.fate]),
        (before, ""),
        (after, ""),
        (to_one_line(move.tool, 80), "cyan"),
        (to_one_line(move.query, QUERY_SHOWN), ""),
    ]
