"""`toolscout replay`: recorded queries against a changed catalogue or configuration."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli.inputs import (
    catalog_at,
    config_option,
    index_of,
    known_catalog,
    known_store,
    read_servers,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from toolscout.audit.replay import Move, Replay, Side
    from toolscout.catalog import Catalog

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
"""Fates that are counted and not listed unless asked for."""


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
    help="The catalogue or configuration (.toml) to try; your own configuration unless told.",
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
    help="A tool counts as found among the first N hits.",
)
@click.option(
    "--fail-below",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="End with exit code 1 if a smaller share of the queries finds its tool.",
)
@click.option("--all", "show_all", is_flag=True, help="List also what did not move.")
@click.option(
    "--record",
    "record_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the recording of your gateway's past calls to this file, and stop.",
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
    """Ask recorded queries again and show what moved: for use before a rollout.

    RECORDING holds JSON lines of {"query": "…", "tool": "name"}; --record makes one of what a
    gateway keeps of its past calls.

    \b
    Example:
      toolscout replay --record calls.jsonl
      toolscout replay calls.jsonl --catalog new.json --against old.json
      toolscout replay calls.jsonl --catalog new.json --fail-below 0.9 --json
    """
    if (recording is None) == (record_file is None):
        raise click.UsageError("Say either RECORDING to replay one or --record FILE to make one.")
    if record_file is not None:
        _record(record_file, path)
        return
    assert recording is not None
    done = _replayed(recording, _new(new, path), catalog_at([old]) if old else None, within)
    _give(done, show_all=show_all, as_json=as_json)
    if fail_below is not None and done.found < fail_below:
        click.echo(f"Found {done.found:.1%}, which is below {fail_below:.1%}.", err=True)
        raise click.exceptions.Exit(TOO_FEW)


def _record(file: Path, config_file: Path | None) -> None:
    from toolscout.audit.replay import read_recording
    from toolscout.errors import InvalidFile

    config = read_servers(config_file)
    with known_store(config) as store:
        if store is None:
            remedy = "Run the gateway with `toolscout serve` first."
            raise InvalidFile(
                str(config.source), "has a gateway that kept nothing yet", remedy=remedy
            )
        made = read_recording(store)
    if str(file) == "-":
        click.echo(made.to_lines(), nl=False)
    else:
        file.write_text(made.to_lines(), encoding="utf-8", errors="backslashreplace")
        click.echo(f"Wrote {len(made.probes):,} queries to {file}.", err=True)
    if made.hashed:
        click.echo(
            f"Left out {made.hashed:,} calls whose query is kept as a hash. Set 'hash_queries' to "
            "false under [sessions] to keep queries as they are.",
            err=True,
        )


def _new(new: Path | None, config_file: Path | None) -> "Catalog":
    if new and config_file:
        raise click.UsageError("Say either --catalog or --config.")
    return catalog_at([new]) if new else known_catalog(config_file)


def _replayed(file: Path, new: "Catalog", old: "Catalog | None", within: int) -> "Replay":
    from toolscout.audit import replay as replays
    from toolscout.audit.probes import read_probes
    from toolscout.cli.output import bars

    probes = read_probes(file)
    sides = (_side(new), _side(old) if old is not None else None)
    done = 0
    with bars() as progress:

        def count(more: int) -> None:
            nonlocal done
            done += more
            progress("Asking again", done, len(probes))

        return replays.replay(probes, *sides, within=within, progress=count)


def _side(catalog: "Catalog") -> "Side":
    from toolscout.audit.replay import Side

    return Side(catalog=catalog, index=index_of(catalog))


def _give(done: "Replay", *, show_all: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(done.to_json(), ensure_ascii=False))
        return
    from toolscout.cli.output import show

    show(_pages(done, show_all=show_all))


def _pages(done: "Replay", *, show_all: bool) -> "Iterator[RenderableType]":
    from toolscout.cli.output import styled, table

    quiet = QUIET if done.compared else ("found",)
    moves = [move for move in done.moves if show_all or move.fate not in quiet]
    if moves:
        head = ("", "before", "after", "tool", "query") if sys.stdout.isatty() else ()
        yield table(head or ("",) * 5, map(_row, moves), right=(1, 2))
        yield ""
    counts = done.counts
    told = ", ".join(f"{counts[fate]:,} {fate}" for fate in counts)
    before = "" if done.found_before is None else f" ({done.found_before:.1%} before)"
    yield styled((f"{len(done.moves):,} queries: {told or 'nothing to ask'}.", ""))
    yield styled((f"Found among the first {done.within}: {done.found:.1%}{before}.", "bold"))


def _row(move: "Move") -> list[tuple[str, str]]:
    from toolscout.names import to_one_line

    before, after = ("-" if rank is None else str(rank) for rank in (move.before, move.after))
    return [
        (move.fate, STYLES[move.fate]),
        (before, ""),
        (after, ""),
        (to_one_line(move.tool, 80), "cyan"),
        (to_one_line(move.query, QUERY_SHOWN), ""),
    ]
