"""`toolscout audit`: the record of what was done through a gateway, and whether it is complete."""

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from rich.console import RenderableType

from toolscout.cli import ErrorGroup, ExitCode, inputs
from toolscout.cli.output import Cell, echo_json, format_count, make_table, show, style
from toolscout.names import to_one_line
from toolscout.schemas import Json

STYLES = {"ok": "green", "refusal": "yellow"}
SHOWN = 40

file_option = inputs.file_option(
    "--file", help="A file of JSON lines to read instead of the gateway's store."
)


@click.group(cls=ErrorGroup, invoke_without_command=True)
@click.option("--principal", metavar="NAME", help="Only entries of this principal; `*` matches.")
@click.option("--session", metavar="ID", help="Only entries of this session, by its short id.")
@click.option("--tool", metavar="NAME", help="Only entries about this tool, by exposed name.")
@click.option("--server", metavar="NAME", help="Only entries about this server.")
@click.option("--event", metavar="NAME", help="Only entries of this kind, such as call.")
@click.option("--outcome", metavar="CODE", help="Only entries with this outcome, such as ok.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Only entries since a time (2026-11-17T09:00) or for a span such as 30m, 12h or 7d.",
)
@inputs.number_option(
    "--limit", type=click.IntRange(1, 1_000_000), default=50, help="Show at most the newest N."
)
@file_option
@inputs.config_option
@inputs.json_option
@click.pass_context
def audit(
    ctx: click.Context,
    since: str | None,
    limit: int,
    file: Path | None,
    path: Path | None,
    as_json: bool,
    **wanted: str | None,
) -> None:
    """Show who called what through your gateway.

    Entries hold names, outcomes and digests of arguments; `audit_arguments` and `audit_queries`
    under [gateway] add the texts.

    \b
    Example:
      toolscout audit --since 24h
      toolscout audit --principal ci --outcome ok --json
      toolscout audit verify
    """
    if ctx.invoked_subcommand is not None:
        return
    from toolscout.gateway.audit import FILTERS, is_wanted, parse_since

    start = parse_since(since) if since else ""
    patterns = {key: value for key, value in wanted.items() if key in FILTERS and value}
    chosen = (entry for entry in _read(file, path) if is_wanted(entry, patterns, start))
    newest = deque(chosen, maxlen=limit)
    if as_json:
        for entry in newest:
            echo_json(entry)
    elif newest:
        show([_tabulate(newest)])
    else:
        click.echo("No entry fits.", err=True)
        raise click.exceptions.Exit(ExitCode.NOT_FOUND)


@audit.command()
@file_option
@inputs.config_option
@inputs.json_option
def verify(file: Path | None, path: Path | None, as_json: bool) -> None:
    """Check that no entry was edited or removed.

    \b
    Example:
      toolscout audit verify
      toolscout audit verify --file audit.jsonl
    """
    from toolscout.gateway import audit as record

    found = record.verify(_read(file, path))
    if as_json:
        echo_json(
            {
                "entries": found.entries,
                "chains": found.chains,
                "open_chains": found.open_chains,
                "faults": found.faults,
            }
        )
    else:
        show(_render_verification(found.entries, found.chains, found.open_chains, found.faults))
    if found.faults:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _render_verification(
    entries: int, chains: int, open_chains: int, faults: list[str]
) -> Iterator[RenderableType]:
    for fault in faults:
        yield style((fault, "red"))
    runs = f"{entries:,} {'entry' if entries == 1 else 'entries'} of {format_count(chains, 'run')}"
    if faults:
        yield style((f"{runs}: {format_count(len(faults), 'fault')}.", "bold red"))
        return
    yield style((f"{runs}: complete.", "bold green"))
    if open_chains:
        yield (
            f"{format_count(open_chains, 'run')} without an end: the gateway still runs or was "
            "killed, or somebody removed its last entries."
        )


def _read(file: Path | None, config: Path | None) -> Iterator[Json]:
    from toolscout.gateway.audit import entry_from_line, read_entries

    if file is not None:
        with file.open("rb") as lines:
            yield from map(entry_from_line, lines)
        return
    with inputs.open_known_store(inputs.read_servers(config)) as store:
        if store is not None:
            yield from read_entries(store)


def _tabulate(entries: Iterable[Json]) -> RenderableType:
    rows: list[list[Cell | str]] = []
    for entry in entries:
        outcome = str(entry.get("outcome", ""))
        what = str(entry.get("tool") or entry.get("server") or entry.get("form") or "")
        spent = entry.get("milliseconds")
        rows.append(
            [
                str(entry.get("time", "damaged"))[:23].replace("T", " "),
                to_one_line(str(entry.get("principal", "")), SHOWN),
                (str(entry.get("event", "")), STYLES.get(str(entry.get("event")), "")),
                (to_one_line(what, SHOWN), "cyan"),
                (outcome, STYLES.get(outcome, "yellow")),
                "" if spent is None else f"{spent:,.1f}",
                to_one_line(str(entry.get("client", "")), SHOWN),
            ]
        )
    return make_table(
        ("time", "principal", "event", "what", "outcome", "ms", "client"), rows, right=(5,)
    )
