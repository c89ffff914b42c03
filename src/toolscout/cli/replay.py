"""`toolscout replay`: recorded queries against a changed catalogue or configuration."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType

from toolscout.cli import ExitCode, inputs
from toolscout.cli.output import (
    Cell,
    echo_json,
    make_table,
    show,
    show_bar,
    style,
    write_text,
)
from toolscout.cli.search import build_scout
from toolscout.errors import InvalidFile
from toolscout.lint import replay as replays
from toolscout.lint.probes import read_probes
from toolscout.lint.replay import Replay, read_recording
from toolscout.names import to_one_line

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


@click.command()
@click.argument("recording", required=False, type=inputs.EXISTING_FILE)
@inputs.path_option(
    "--catalog",
    "new",
    metavar="NEW",
    help="The file or folder of tools to try. Default: your own configuration.",
)
@inputs.path_option(
    "--against",
    "old",
    metavar="OLD",
    help="The file or folder of tools, or configuration (.toml), to compare with.",
)
@inputs.number_option(
    "--within",
    type=click.IntRange(1, 50),
    default=5,
    help="Count a tool as found if it is among the first N hits.",
)
@click.option(
    "--fail-below",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Exit with code 1 if a smaller share of the queries finds its tool.",
)
@inputs.flag_option("--all", "show_all", help="Also list queries whose result did not change.")
@inputs.file_option(
    "--record",
    "record_file",
    type=inputs.FILE_OR_DASH,
    help="Write the past calls of your gateway to this file instead.",
)
@inputs.config_option
@inputs.json_option
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
    """Replay recorded queries and show what changed.

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
    if new:
        after = inputs.choose_catalog([new], path).catalog
    else:
        after = inputs.read_known_catalog(inputs.read_servers(path))
    before = inputs.read_catalog_or_config(old) if old else None
    probes = read_probes(recording)
    changed = build_scout(after, "static")
    original = build_scout(before, "static") if before is not None else None
    with show_bar("Replaying", len(probes)) as step:
        done = replays.replay(probes, changed, original, within=within, progress=step)
    if as_json:
        echo_json(done.to_json())
    else:
        show(_render(done, show_all=show_all))
    if fail_below is not None and done.found < fail_below:
        click.echo(f"Found {done.found:.1%}, below the required {fail_below:.1%}.", err=True)
        raise click.exceptions.Exit(ExitCode.FAILED)


def _record(file: Path, config_file: Path | None) -> None:
    config = inputs.read_servers(config_file)
    with inputs.open_known_store(config) as store:
        if store is None:
            problem = "belongs to a gateway that has recorded nothing yet"
            remedy = "Run the gateway with `toolscout serve` first."
            raise InvalidFile(str(config.source), problem, remedy=remedy)
        made = read_recording(store)
    write_text(file, made.to_lines(), what=f"{len(made.probes):,} queries")
    if made.hashed:
        remedy = "Set 'hash_queries' to false under [sessions] to store queries as text."
        problem = f"Skipped {made.hashed:,} calls whose query is stored as a hash."
        click.echo(f"{problem} {remedy}", err=True)


def _render(done: Replay, *, show_all: bool) -> Iterator[RenderableType]:
    quiet = "same" if done.compared else "found"
    moves = [move for move in done.moves if show_all or move.fate != quiet]
    if moves:
        rows: list[list[Cell | str]] = []
        for move in moves:
            ranks = ["-" if rank is None else str(rank) for rank in (move.before, move.after)]
            tool = (to_one_line(move.tool, 80), "cyan")
            query = to_one_line(move.query, QUERY_SHOWN)
            rows.append([(move.fate, STYLES[move.fate]), *ranks, tool, query])
        head = ("", "before", "after", "tool", "query") if sys.stdout.isatty() else ("",) * 5
        yield make_table(head, rows, right=(1, 2))
        yield ""
    counts = ", ".join(f"{count:,} {fate}" for fate, count in done.counts.items())
    before = "" if done.found_before is None else f" ({done.found_before:.1%} before)"
    noun = "query" if len(done.moves) == 1 else "queries"
    yield style((f"{len(done.moves):,} {noun}: {counts or 'nothing to ask'}.", ""))
    yield style((f"Found among the first {done.within}: {done.found:.1%}{before}.", "bold"))
