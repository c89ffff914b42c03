"""`toolscout init`: the servers that other programs already have, in one file for the gateway.

Reads options, calls `toolscout.upstream.sources`, prints and asks. What it prints holds no value
of a variable, header or token.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli import ExitCode

if TYPE_CHECKING:
    from toolscout.upstream.sources import Finding, Findings, Machine

NOTHING = "No MCP servers were found. Name a file that lists some with --from PATH."


@click.command()
@click.option(
    "--config",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file to write. Without it, ./toolscout.toml if there is one, else the user's own.",
)
@click.option(
    "--from",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="PATH",
    help="A file that lists servers; may be given again. Without it, all known places.",
)
@click.option("--yes", "-y", is_flag=True, help="Write without asking.")
@click.option("--dry-run", is_flag=True, help="Show what was found and write nothing.")
@click.option("--force", is_flag=True, help="Replace the file; the old one becomes FILE.bak.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def init(
    target: Path | None,
    paths: tuple[Path, ...],
    yes: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Find the MCP servers of this machine and write one configuration file.

    Looks into the files of Claude Desktop, Claude Code, Cursor, VS Code, Codex and Windsurf.
    Starts nothing and changes none of them. The file can be read by its owner alone, because
    secrets are written as they were found.

    \b
    Example:
      toolscout init
      toolscout init --from .mcp.json --config toolscout.toml --yes
    """
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json asks no questions. Add --yes or --dry-run.")
    machine = _this_machine()
    place = (target or machine.config_file).absolute()
    if not dry_run:
        _check_free(place, force)
    findings = _found(machine, place, paths)
    if not as_json:
        _show(findings, place)
    wanted = bool(findings.found) and not dry_run and (yes or _agreed(place))
    if wanted:
        _write(findings, place)
    if as_json:
        click.echo(json.dumps(_to_json(findings, place, wanted), ensure_ascii=False))
    elif wanted:
        click.echo(f"Wrote {place}.\nNext: toolscout serve --config {place}")
    if not findings.found:
        _end_without_servers()


def _this_machine() -> "Machine":
    from toolscout.upstream.sources import Machine

    return Machine(home=Path.home(), platform=sys.platform, env=os.environ, cwd=Path.cwd())


def _found(machine: "Machine", place: Path, paths: tuple[Path, ...]) -> "Findings":
    from toolscout.upstream.sources import OWN, Source, found_servers, known_files

    named = [Source(program="", path=path.absolute()) for path in paths]
    usual = [Source(program=OWN, path=place), *known_files(machine)]
    return found_servers(named or usual, cwd=machine.cwd)


def _check_free(place: Path, force: bool) -> None:
    from toolscout.errors import InvalidFile

    if place.exists() and not force:
        remedy = f"Say --force to replace it; the old one becomes {place.name}.bak."
        raise InvalidFile(str(place), "exists already", remedy=remedy)


def _show(findings: "Findings", place: Path) -> None:
    for source in findings.sources:
        rows = [_row(finding) for finding in findings.found if finding.source == source]
        if rows:
            click.echo(f"{source.program or 'Named'}: {source.path}")
            click.echo("\n".join(_table(rows)))
    notes = _notes(findings)
    if notes:
        click.echo("\nNotes:")
        click.echo("\n".join(f"- {note}" for note in notes))
    if findings.found:
        count = len(findings.found)
        click.echo(f"\n{count} server{'s' if count > 1 else ''} for {place}")


def _row(finding: "Finding") -> tuple[str, str, str]:
    from toolscout.names import one_line

    server = finding.server
    off = " (disabled)" if server.disabled else ""
    return one_line(server.name, 40), str(server.transport), _started(finding) + off


def _started(finding: "Finding") -> str:
    from toolscout.upstream.masks import shown_command, shown_url

    server = finding.server
    return shown_url(server.url) if server.url else shown_command(server.command, server.args)


def _table(rows: list[tuple[str, str, str]]) -> list[str]:
    width = max(len(name) for name, _, _ in rows)
    return [f"  {name:<{width}}  {transport:<7}  {what}" for name, transport, what in rows]


def _notes(findings: "Findings") -> list[str]:
    from toolscout.names import clean_text
    from toolscout.upstream.sources import secret_notes

    notes = [*findings.notes, *secret_notes(finding.server for finding in findings.found)]
    return [" ".join(clean_text(note, 2_000).split()) for note in notes]


def _agreed(place: Path) -> bool:
    try:
        agreed = click.confirm(f"Write {place}?", err=True)
    except click.Abort:
        raise click.UsageError("There is nobody to ask. Add --yes.") from None
    if not agreed:
        click.echo("Nothing was written.", err=True)
    return agreed


def _write(findings: "Findings", place: Path) -> None:
    from toolscout.upstream.config import to_toml
    from toolscout.upstream.documents import keep_backup, write_private
    from toolscout.upstream.sources import new_config

    text = to_toml(new_config(findings, place))
    keep_backup(place)
    write_private(place, text)


def _to_json(findings: "Findings", place: Path, written: bool) -> dict[str, object]:
    return {
        "config": str(place),
        "written": written,
        "servers": [_server_json(finding) for finding in findings.found],
        "notes": _notes(findings),
    }


def _server_json(finding: "Finding") -> dict[str, object]:
    from toolscout.upstream.sources import secret_places

    return {
        "name": finding.server.name,
        "transport": str(finding.server.transport),
        "starts": _started(finding),
        "disabled": finding.server.disabled,
        "program": finding.source.program,
        "file": str(finding.source.path),
        "secrets": secret_places(finding.server),
    }


def _end_without_servers() -> None:
    click.echo(f"Error: {NOTHING}", err=True)
    raise click.exceptions.Exit(ExitCode.NOT_FOUND)
