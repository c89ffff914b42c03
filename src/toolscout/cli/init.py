"""`toolscout init`: one configuration for the gateway, and clients that start toolscout instead.

Reads options, shows the plan and asks; `toolscout.clients` finds servers and rewrites files.
Nothing that is printed contains the value of a variable, header or token.
"""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from toolscout.cli import ExitCode
from toolscout.cli.inputs import get_machine
from toolscout.clients.discovery import (
    OWN,
    Discovery,
    FoundServer,
    Machine,
    Source,
    build_config,
    find_secret_places,
    find_servers,
    format_secret_notes,
    list_known_files,
)
from toolscout.clients.rewrite import Launch, Rewrite, format_diff, plan_rewrite
from toolscout.clients.undo import Undo, explain_conflict, find_undos, put_back, write_rewrite
from toolscout.config.documents import is_file, keep_backup, write_private
from toolscout.config.edits import to_toml
from toolscout.config.file import Config, read_config
from toolscout.config.secrets import mask_command, mask_url
from toolscout.errors import InvalidFile, UsageError
from toolscout.names import clean_text, to_one_line

CLIENTS = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "codex": "Codex",
    "windsurf": "Windsurf",
}
NAMES_SHOWN = 300
DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which clients to change: those named, or all that have servers."""

    named: tuple[str, ...]
    project: bool
    """Whether to include files of this folder, which may be shared with others."""

    def list_sources(self, machine: Machine) -> list[Source]:
        """Return the files of these clients, whether they exist or not."""

        programs = [CLIENTS[name] for name in self.named] or list(CLIENTS.values())
        found = {s.path: s for s in list_known_files(machine) if s.program in programs}
        return [s for s in found.values() if self.project or not _is_shared(s, machine)]


def make_launch(config: Path) -> Launch:
    """Return the command with which clients start this toolscout."""

    args = ("serve", "--config", str(config))
    # A client has its own PATH, which may have another toolscout.
    beside = shutil.which("toolscout", path=str(Path(sys.executable).parent))
    if beside:
        return Launch(command=beside, args=args)
    return Launch(command=sys.executable, args=("-m", "toolscout", *args))


def plan_rewrites(
    choice: Choice, machine: Machine, config: Config, notes: list[str]
) -> list[Rewrite]:
    """Return the files that would change; add a note for each that cannot be changed."""

    launch, plans = make_launch(config.source), list[Rewrite]()
    existing = [source for source in choice.list_sources(machine) if is_file(source.path)]
    for name in choice.named:
        if not any(source.program == CLIENTS[name] for source in existing):
            remedy = "Start the program once, or leave --client out."
            raise InvalidFile(
                CLIENTS[name], "has no configuration file on this machine", remedy=remedy
            )
    for source in existing:
        try:
            always = bool(choice.named)
            plans.append(plan_rewrite(source, launch, config, machine.cwd, always=always))
        except UsageError as error:
            notes.append(str(error))
    return [plan for plan in plans if plan.is_change]


def list_shared_notes(choice: Choice, machine: Machine) -> Iterator[str]:
    """Yield a note for each file that is left alone because it may be shared."""

    if choice.project:
        return
    every = Choice(named=choice.named, project=True).list_sources(machine)
    for source in every:
        if _is_shared(source, machine) and is_file(source.path):
            yield f"{source.path} may be shared with others; add --project to change it too."


def show_plan(plan: Rewrite) -> None:
    """Print what would change in one client's file."""

    source = plan.source
    click.echo(f"\n{source.program} would start toolscout{_format_replaced(plan.taken)}:")
    show_diff(format_diff(source.path, plan.old, plan.new))
    if plan.kept:
        click.echo(f"These servers stay: {_format_names(plan.kept)}.")


def show_diff(lines: Iterable[str]) -> None:
    """Print a diff, in colour on a terminal."""
    for line in lines:
        click.echo(click.style(line, fg=DIFF_STYLES.get(line[:1])))


def ask(question: str) -> bool:
    """Ask a question; raises `UsageError` if nobody can answer."""
    try:
        return click.confirm(question, err=True)
    except click.Abort as error:
        # Both the end of input and Ctrl-C end up here.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise click.UsageError("Not a terminal: pass --yes to confirm.") from None


def change_clients(plans: Sequence[Rewrite], *, yes: bool, quiet: bool) -> dict[Path, Path]:
    """Write the files that the user agrees to; returns where the old ones are kept."""

    backups: dict[Path, Path] = {}
    for plan in plans:
        path = plan.source.path
        if yes or ask(f"Change {path} ({plan.source.program})?"):
            backups[path] = write_rewrite(plan)
            if not quiet:
                click.echo(f"Changed {path}. The old file is kept as {backups[path].name}.")
    return backups


def list_undos(choice: Choice, machine: Machine) -> list[Undo]:
    """Return the files that can be restored."""

    return list(find_undos(Choice(named=choice.named, project=True).list_sources(machine)))


def show_undo(undo: Undo) -> None:
    """Print what restoring a file would change."""

    source = undo.source
    how = "exactly as it was" if undo.is_exact else "keeping later edits"
    if undo.conflicts:
        click.echo(f"{source.program}: {source.path} would be restored only with --force:")
    else:
        click.echo(f"{source.program}: {source.path} would be restored, {how}:")
    try:
        show_diff(format_diff(source.path, undo.current, undo.restored))
    except UsageError as error:
        click.echo(str(error))


def json_from_rewrite(plan: Rewrite, backups: dict[Path, Path]) -> dict[str, object]:
    """Return one client's change as JSON."""

    path = plan.source.path
    return {
        "program": plan.source.program,
        "file": str(path),
        "changed": path in backups,
        "backup": str(backups[path]) if path in backups else None,
        "taken": list(plan.taken),
        "kept": list(plan.kept),
        "diff": format_diff(path, plan.old, plan.new),
    }


def json_from_undo(undo: Undo, *, is_back: bool) -> dict[str, object]:
    """Return one restored file as JSON."""
    return {
        "program": undo.source.program,
        "file": str(undo.source.path),
        "backup": str(undo.backup),
        "restored": is_back,
        "exact": undo.is_exact,
        "conflicts": list(undo.conflicts),
    }


def _format_replaced(names: Sequence[str]) -> str:
    if not names:
        return ""
    count = f"{len(names)} server{'s' if len(names) > 1 else ''}"
    return f" instead of {count} ({_format_names(names)})"


def _format_names(names: Sequence[str]) -> str:
    return to_one_line(", ".join(names), NAMES_SHOWN)


def _is_shared(source: Source, machine: Machine) -> bool:
    """Return whether a file belongs to this folder, and so perhaps to a repository."""
    folders = [machine.cwd / name for name in (".cursor", ".vscode", ".codex")]
    is_here = source.path.parent in (machine.cwd, *folders)
    return is_here and machine.cwd != machine.home


NOTHING = "No MCP servers found. Name a file that lists some with --from PATH."
NOTHING_TO_UNDO = "Nothing to undo: `toolscout init` has changed no file."


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that one run would write."""

    findings: Discovery
    config: Config
    is_new: bool
    """Whether toolscout's own file would change."""
    rewrites: list[Rewrite]
    notes: list[str]


@click.command()
@click.option(
    "--config",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file to write. Default: ./toolscout.toml if it exists, or the one in your "
    "configuration folder.",
)
@click.option(
    "--from",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="PATH",
    help="Read servers from this file and change no client; may be repeated. "
    "Default: the files of all known clients.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=click.Choice(list(CLIENTS)),
    help="Change only this client; may be repeated. Default: all that have servers.",
)
@click.option("--keep-clients", is_flag=True, help="Do not change the files of clients.")
@click.option(
    "--project", is_flag=True, help="Also change files of this folder, such as .mcp.json."
)
@click.option("--undo", is_flag=True, help="Restore the files of clients.")
@click.option("--yes", "-y", is_flag=True, help="Write without asking.")
@click.option("--dry-run", is_flag=True, help="Show what would change without writing anything.")
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite the file, or undo despite conflicts; the old file is kept as FILE.bak.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found and done as JSON.")
def init(
    target: Path | None,
    paths: tuple[Path, ...],
    clients: tuple[str, ...],
    keep_clients: bool,
    project: bool,
    undo: bool,
    yes: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Put the MCP servers of this machine behind toolscout.

    Reads the files of Claude Desktop, Claude Code, Cursor, VS Code, Codex and Windsurf and writes
    their servers into one configuration file. Secrets are copied as they are, so only you can
    read that file. Then shows how each client's file would change to start toolscout instead, and
    asks before changing it. The old file is kept; --undo restores it. Starts no servers.

    \b
    Example:
      toolscout init
      toolscout init --client cursor --dry-run
      toolscout init --undo
      toolscout init --from .mcp.json --config toolscout.toml --yes
    """
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json cannot ask questions: add --yes or --dry-run.")
    if clients and (paths or keep_clients):
        raise click.UsageError("--client cannot be combined with --from or --keep-clients.")
    choice = Choice(named=clients, project=project)
    if undo:
        _undo_clients(choice, yes=yes, dry_run=dry_run, force=force, as_json=as_json)
        return
    machine = get_machine()
    place = (target or machine.config_file).absolute()
    plan = _plan(machine, place, paths, None if paths or keep_clients else choice)
    if plan.is_new and not dry_run:
        _check_free(place, force)
    if not as_json:
        _show_all(plan, place)
    _carry_out(plan, place, yes=yes, dry_run=dry_run, as_json=as_json)
    if not plan.findings.found:
        _end_without_servers()


def _plan(machine: Machine, place: Path, paths: tuple[Path, ...], choice: Choice | None) -> Plan:
    findings = _find_servers(machine, place, paths)
    config = build_config(findings, place)
    notes, rewrites = list(findings.notes), list[Rewrite]()
    if choice is not None and findings.found:
        rewrites = plan_rewrites(choice, machine, config, notes)
        notes += list_shared_notes(choice, machine)
    return Plan(
        findings=findings,
        config=config,
        is_new=bool(findings.found) and not _is_written(config, place),
        rewrites=rewrites,
        notes=notes,
    )


def _is_written(config: Config, place: Path) -> bool:
    """Return whether toolscout's own file already says this, however it is written."""

    try:
        return place.exists() and read_config(place) == config
    except UsageError:
        return False


def _carry_out(plan: Plan, place: Path, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    wanted = plan.is_new and not dry_run and (yes or _confirm_write(place))
    if wanted:
        _write(plan.config, place)
        if not as_json:
            click.echo(f"Wrote {place}.")
    # A client must not start a toolscout that does not know its servers.
    ready = wanted or not (plan.is_new or dry_run)
    backups = change_clients(plan.rewrites, yes=yes, quiet=as_json) if ready else {}
    if as_json:
        shown = _to_json(plan, place, wanted)
        shown["clients"] = [json_from_rewrite(rewrite, backups) for rewrite in plan.rewrites]
        click.echo(json.dumps(shown, ensure_ascii=False))
    elif backups:
        programs = ", ".join(
            dict.fromkeys(r.source.program for r in plan.rewrites if r.source.path in backups)
        )
        click.echo(f"Next: restart {programs}. `toolscout init --undo` restores the old files.")
    elif wanted:
        click.echo(f"Next: toolscout serve --config {place}")
    elif ready and plan.findings.found and not plan.rewrites:
        click.echo("Nothing to change.")


def _undo_clients(choice: Choice, *, yes: bool, dry_run: bool, force: bool, as_json: bool) -> None:
    undos = list_undos(choice, get_machine())
    rows: list[dict[str, object]] = []
    for undo in undos:
        if not as_json:
            show_undo(undo)
        is_back = not dry_run and _put_back(undo, yes=yes, force=force, quiet=as_json)
        rows.append(json_from_undo(undo, is_back=is_back))
    if as_json:
        click.echo(json.dumps({"clients": rows}, ensure_ascii=False))
    elif not undos:
        click.echo(NOTHING_TO_UNDO)
    refused = [undo for undo in undos if undo.conflicts and not force]
    if refused and not dry_run:
        raise explain_conflict(refused[0])


def _put_back(undo: Undo, *, yes: bool, force: bool, quiet: bool) -> bool:
    if undo.conflicts and not force:
        return False
    path = undo.source.path
    if not (yes or ask(f"Restore {path} ({undo.source.program})?")):
        return False
    put_back(undo, force=force)
    if not quiet:
        click.echo(f"Restored {path}. Restart {undo.source.program}.")
    return True


def _find_servers(machine: Machine, place: Path, paths: tuple[Path, ...]) -> Discovery:
    named = [Source(program="", path=path.absolute()) for path in paths]
    usual = [Source(program=OWN, path=place), *list_known_files(machine)]
    return find_servers(named or usual, cwd=machine.cwd)


def _check_free(place: Path, force: bool) -> None:
    if place.exists() and not force:
        remedy = f"Use --force to overwrite it; the old file is kept as {place.name}.bak."
        raise InvalidFile(str(place), "already exists", remedy=remedy)


def _show_all(plan: Plan, place: Path) -> None:
    findings = plan.findings
    for source in findings.sources:
        rows = [_make_row(finding) for finding in findings.found if finding.source == source]
        if rows:
            click.echo(f"{source.program or 'Named'}: {source.path}")
            click.echo("\n".join(_format_table(rows)))
    notes = _list_notes(plan)
    if notes:
        click.echo("\nNotes:")
        click.echo("\n".join(f"- {note}" for note in notes))
    if findings.found:
        count = len(findings.found)
        click.echo(f"\n{count} server{'s' if count > 1 else ''} for {place}")
    for rewrite in plan.rewrites:
        show_plan(rewrite)


def _make_row(finding: FoundServer) -> tuple[str, str, str]:
    server = finding.server
    off = " (disabled)" if server.disabled else ""
    return to_one_line(server.name, 40), str(server.transport), _format_start(finding) + off


def _format_start(finding: FoundServer) -> str:
    server = finding.server
    return mask_url(server.url) if server.url else mask_command(server.command, server.args)


def _format_table(rows: list[tuple[str, str, str]]) -> list[str]:
    width = max(len(name) for name, _, _ in rows)
    return [f"  {name:<{width}}  {transport:<7}  {what}" for name, transport, what in rows]


def _list_notes(plan: Plan) -> list[str]:
    found = (finding.server for finding in plan.findings.found)
    notes = [*plan.notes, *format_secret_notes(found)]
    return [" ".join(clean_text(note, 2_000).split()) for note in notes]


def _confirm_write(place: Path) -> bool:
    agreed = ask(f"Write {place}?")
    if not agreed:
        click.echo("Nothing was written.", err=True)
    return agreed


def _write(config: Config, place: Path) -> None:
    text = to_toml(config)
    keep_backup(place)
    write_private(place, text)


def _to_json(plan: Plan, place: Path, write_rewrite: bool) -> dict[str, object]:
    return {
        "config": str(place),
        "written": write_rewrite,
        "servers": [_json_from_finding(finding) for finding in plan.findings.found],
        "notes": _list_notes(plan),
    }


def _json_from_finding(finding: FoundServer) -> dict[str, object]:
    return {
        "name": finding.server.name,
        "transport": str(finding.server.transport),
        "starts": _format_start(finding),
        "disabled": finding.server.disabled,
        "program": finding.source.program,
        "file": str(finding.source.path),
        "secrets": find_secret_places(finding.server),
    }


def _end_without_servers() -> None:
    click.echo(f"Error: {NOTHING}", err=True)
    raise click.exceptions.Exit(ExitCode.NOT_FOUND)
