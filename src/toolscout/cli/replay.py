"""`toolscout replay` and `toolscout learned`: what the calls of a gateway say about its searches.

`replay` runs recorded queries against a changed catalogue or configuration; `learned` shows what
searches have learned from calls, and makes them forget it.
"""

import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path

import click
from rich.console import RenderableType

from toolscout.cli import ExitCode, Group, inputs
from toolscout.cli.output import (
    Cell,
    echo_json,
    format_count,
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
from toolscout.search.feedback import Feedback, Learned
from toolscout.sessions.usage import UsageLog
from toolscout.settings import Learning

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
        chosen = inputs.choose_catalog([new], path)
    else:
        chosen = inputs.choose_configured(inputs.read_servers(path))
    before = inputs.read_catalog_or_config(old) if old else None
    probes = read_probes(recording)
    with inputs.open_hints(chosen) as hints:
        build = partial(build_scout, encoder="static", hints=hints, settings=chosen.settings)
        changed = build(chosen.catalog)
        original = build(before) if before is not None else None
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


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def learned(ctx: click.Context) -> None:
    """Show what searches have learned from calls, and forget it.

    A request after which a tool was called with success raises that tool for similar requests.
    Without a command, lists such requests. To learn nothing at all, set 'learning' to "off" under
    [sessions].
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_)


@learned.command("list")
@inputs.config_option
@inputs.json_option
def list_(path: Path | None = None, as_json: bool = False) -> None:
    """List the tools that calls have raised, with the requests that lead to them.

    Each request comes with its strength (successes minus failures, which fade), the last call and
    the number of tokens or users it came from.

    \b
    Example:
      toolscout learned list
      toolscout learned list --json
    """
    with _open_log(path) as log:
        rows = [] if log is None else log.feedback.list_learned()
    if as_json:
        echo_json({"learned": [asdict(row) for row in rows]})
    elif rows:
        show([_make_learned_table(rows)])
    else:
        click.echo("Nothing has been learned yet.")


@learned.command()
@click.argument("tool", required=False)
@click.option("--request", default="", metavar="TEXT", help="Forget this request for all tools.")
@inputs.flag_option("--all", "everything", help="Forget everything.")
@inputs.config_option
def forget(tool: str | None, request: str, everything: bool, path: Path | None) -> None:
    """Forget what was learned about a tool, from a request, or at all.

    Running gateways notice within seconds. --all also removes the calls from the log; otherwise
    they leave it as new calls arrive.

    \b
    Example:
      toolscout learned forget github__create_issue
      toolscout learned forget --request "open a ticket"
      toolscout learned forget --all
    """
    if [bool(tool), bool(request), everything].count(True) != 1:
        raise click.UsageError("Name a TOOL, or use --request TEXT or --all.")
    with _open_log(path) as log:
        gone = 0 if log is None else log.forget(tool=tool or "", request=request)
    click.echo(f"Forgot {format_count(gone, 'request')}.")
    if not gone and not everything:
        click.echo("See `toolscout learned` for what there is.", err=True)
        raise click.exceptions.Exit(ExitCode.NOT_FOUND)


@contextmanager
def _open_log(path: Path | None) -> Generator[UsageLog | None]:
    """Give the log of a gateway's calls; gives nothing if there is none yet."""
    config = inputs.read_servers(path)
    with inputs.open_known_store(config) as store:
        # Whatever the gateway is set to now, what it has logged is shown.
        is_off = config.sessions.learning is Learning.OFF
        learning = Learning.OWN if is_off else config.sessions.learning
        feedback = Feedback(learning=learning)
        yield None if store is None else UsageLog(store, time.time, feedback=feedback)


def _make_learned_table(rows: list[Learned]) -> RenderableType:
    cells: list[list[Cell | str]] = []
    for row in rows:
        when = datetime.fromtimestamp(row.at).astimezone()
        cells.append(
            [
                (to_one_line(row.tool, 80), "cyan"),
                f"{row.strength:.2f}",
                f"{when:%Y-%m-%d %H:%M}",
                str(row.principals),
                to_one_line(row.request, QUERY_SHOWN),
            ]
        )
    head = ("tool", "strength", "last call", "from", "request")
    return make_table(head if sys.stdout.isatty() else ("",) * 5, cells, right=(1, 3))
