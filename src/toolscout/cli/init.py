"""`toolscout init`: one configuration for the gateway, and clients that start toolscout instead.

Shows the plan and asks; `toolscout.clients` finds servers and rewrites files. Nothing that is
printed contains the value of a variable, header or token.
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from toolscout.cli import ExitCode, fail
from toolscout.cli.inputs import file_option, get_machine
from toolscout.cli.output import NAME_SHOWN, ask, echo_json, format_count
from toolscout.clients.discovery import (
    OWN,
    Discovery,
    Machine,
    Source,
    build_config,
    find_secret_places,
    find_servers,
    format_secret_notes,
    list_known_files,
)
from toolscout.clients.rewrite import Launch, Rewrite, format_diff, plan_rewrite
from toolscout.clients.undo import explain_conflict, find_undos, put_back, write_rewrite
from toolscout.config.documents import is_file
from toolscout.config.edits import to_toml, write_edit
from toolscout.config.file import Config, read_config
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
class Plan:
    """Everything that one run would write."""

    findings: Discovery
    config: Config
    is_new: bool
    """Whether toolscout's own file would change."""
    rewrites: list[Rewrite]
    notes: list[str]


@click.command()
@file_option(
    "--config",
    "target",
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
    if undo:
        _undo_clients(clients, yes=yes, dry_run=dry_run, force=force, as_json=as_json)
        return
    machine = get_machine()
    place = (target or machine.config_file).absolute()
    named = [Source(program="", path=path.absolute()) for path in paths]
    known = [Source(program=OWN, path=place), *list_known_files(machine)]
    findings = find_servers(named or known, cwd=machine.cwd)
    config = build_config(findings, place)
    notes = list(findings.notes)
    rewrites: list[Rewrite] = []
    if findings.found and not (paths or keep_clients):
        rewrites = _plan_rewrites(machine, config, clients, notes, project=project)
    notes += format_secret_notes(config.servers)
    plan = Plan(
        findings=findings,
        config=config,
        is_new=bool(findings.found) and not _is_written(config),
        rewrites=rewrites,
        notes=[" ".join(clean_text(note, 2_000).split()) for note in notes],
    )
    if plan.is_new and place.exists() and not (dry_run or force):
        remedy = f"Use --force to overwrite it; the old file is kept as {place.name}.bak."
        raise InvalidFile(str(place), "already exists", remedy=remedy)
    if not as_json:
        _show_plan(plan)
    _carry_out(plan, yes=yes, dry_run=dry_run, as_json=as_json)
    if not findings.found:
        problem = "No MCP servers found. Name a file that lists some with --from PATH."
        fail(problem, ExitCode.NOT_FOUND)


def _list_client_files(machine: Machine, clients: Sequence[str]) -> list[Source]:
    """Return the files of these clients, or of all, whether they exist or not."""
    programs = [CLIENTS[name] for name in clients] or list(CLIENTS.values())
    found = {s.path: s for s in list_known_files(machine) if s.program in programs}
    return list(found.values())


def _plan_rewrites(
    machine: Machine, config: Config, clients: Sequence[str], notes: list[str], *, project: bool
) -> list[Rewrite]:
    """Return the files that would change; add a note for each that is left alone."""
    existing = [s for s in _list_client_files(machine, clients) if is_file(s.path)]
    shared = [s for s in existing if not project and _is_shared(s, machine)]
    chosen = [s for s in existing if s not in shared]
    for name in clients:
        if not any(source.program == CLIENTS[name] for source in chosen):
            raise UsageError(
                f"{CLIENTS[name]} has no configuration file on this machine. "
                "Start it once, or leave out --client."
            )
    launch = _make_launch(config.source)
    plans: list[Rewrite] = []
    for source in chosen:
        try:
            plans.append(plan_rewrite(source, launch, config, machine.cwd, always=bool(clients)))
        except UsageError as error:
            notes.append(str(error))
    for source in shared:
        notes.append(f"{source.path} may be shared with others; add --project to change it too.")
    return [plan for plan in plans if plan.is_change]


def _is_shared(source: Source, machine: Machine) -> bool:
    """Return whether a file belongs to this folder, and so perhaps to a repository."""
    folders = [machine.cwd / name for name in (".cursor", ".vscode", ".codex")]
    is_here = source.path.parent in (machine.cwd, *folders)
    return is_here and machine.cwd != machine.home


def _make_launch(config: Path) -> Launch:
    """Return the command with which clients start this toolscout."""
    args = ("serve", "--config", str(config))
    # A client has its own PATH, which may have another toolscout.
    installed = shutil.which("toolscout", path=str(Path(sys.executable).parent))
    if installed:
        return Launch(command=installed, args=args)
    return Launch(command=sys.executable, args=("-m", "toolscout", *args))


def _is_written(config: Config) -> bool:
    """Return whether toolscout's own file already says this, however it is written."""
    try:
        return config.source.exists() and read_config(config.source) == config
    except UsageError:
        return False


def _show_plan(plan: Plan) -> None:
    findings = plan.findings
    for source in findings.sources:
        servers = [finding.server for finding in findings.found if finding.source == source]
        if servers:
            click.echo(f"{source.program or 'Named'}: {source.path}")
        names = [to_one_line(server.name, NAME_SHOWN) for server in servers]
        width = max(map(len, names), default=0)
        for name, server in zip(names, servers, strict=True):
            off = " (disabled)" if server.disabled else ""
            click.echo(f"  {name:<{width}}  {server.transport:<7}  {server.format_start()}{off}")
    if plan.notes:
        click.echo("\nNotes:")
    for note in plan.notes:
        click.echo(f"- {note}")
    if findings.found:
        count = format_count(len(findings.found), "server")
        click.echo(f"\nThis puts {count} into {plan.config.source}.")
    for rewrite in plan.rewrites:
        program = rewrite.source.program
        instead = ""
        if rewrite.taken:
            count = format_count(len(rewrite.taken), "server")
            instead = f" instead of {count} ({_format_names(rewrite.taken)})"
        click.echo(f"\n{program} would start toolscout{instead}:")
        _show_diff(rewrite.source.path, rewrite.old, rewrite.new)
        if rewrite.kept:
            click.echo(f"These servers stay: {_format_names(rewrite.kept)}.")


def _format_names(names: Sequence[str]) -> str:
    return to_one_line(", ".join(names), NAMES_SHOWN)


def _show_diff(path: Path, old: str, new: str) -> None:
    for line in format_diff(path, old, new):
        click.echo(click.style(line, fg=DIFF_STYLES.get(line[:1])))


def _carry_out(plan: Plan, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    place = plan.config.source
    is_wanted = plan.is_new and not dry_run
    is_written = is_wanted and (yes or ask(f"Write {place}?"))
    if is_written:
        write_edit(place, to_toml(plan.config))
        if not as_json:
            click.echo(f"Wrote {place}.")
    elif is_wanted:
        click.echo("Nothing was written.", err=True)
    # A client must not start a toolscout that does not know its servers.
    is_ready = is_written or not (plan.is_new or dry_run)
    backups: dict[Path, Path] = {}
    for rewrite in plan.rewrites if is_ready else []:
        path = rewrite.source.path
        if yes or ask(f"Change {path} ({rewrite.source.program})?"):
            backups[path] = write_rewrite(rewrite)
            if not as_json:
                click.echo(f"Changed {path}. The old file is kept as {backups[path].name}.")
    if as_json:
        echo_json(_to_json(plan, backups, is_written=is_written))
    elif backups:
        changed = [r.source.program for r in plan.rewrites if r.source.path in backups]
        programs = ", ".join(dict.fromkeys(changed))
        click.echo(f"Next: restart {programs}. `toolscout init --undo` restores the old files.")
    elif is_written:
        click.echo(f"Next: toolscout serve --config {place}")
    elif is_ready and plan.findings.found and not plan.rewrites:
        click.echo("Nothing to change.")


def _to_json(plan: Plan, backups: dict[Path, Path], *, is_written: bool) -> dict[str, object]:
    servers = [
        {
            "name": finding.server.name,
            "transport": finding.server.transport,
            "starts": finding.server.format_start(),
            "disabled": finding.server.disabled,
            "program": finding.source.program,
            "file": finding.source.path,
            "secrets": find_secret_places(finding.server),
        }
        for finding in plan.findings.found
    ]
    clients = [
        {
            "program": rewrite.source.program,
            "file": rewrite.source.path,
            "changed": rewrite.source.path in backups,
            "backup": backups.get(rewrite.source.path),
            "taken": rewrite.taken,
            "kept": rewrite.kept,
            "diff": format_diff(rewrite.source.path, rewrite.old, rewrite.new),
        }
        for rewrite in plan.rewrites
    ]
    return {
        "config": plan.config.source,
        "written": is_written,
        "servers": servers,
        "notes": plan.notes,
        "clients": clients,
    }


def _undo_clients(
    clients: Sequence[str], *, yes: bool, dry_run: bool, force: bool, as_json: bool
) -> None:
    undos = list(find_undos(_list_client_files(get_machine(), clients)))
    rows: list[dict[str, object]] = []
    for undo in undos:
        program, path = undo.source.program, undo.source.path
        if not as_json:
            how = "exactly as it was" if undo.is_exact else "keeping later edits"
            would = "restored only with --force" if undo.conflicts else f"restored, {how}"
            click.echo(f"{undo.source.program}: {undo.source.path} would be {would}:")
            try:
                _show_diff(undo.source.path, undo.current, undo.restored)
            except UsageError as error:
                click.echo(str(error))
        is_allowed = not dry_run and (force or not undo.conflicts)
        is_back = is_allowed and (yes or ask(f"Restore {path} ({program})?"))
        if is_back:
            put_back(undo, force=force)
            if not as_json:
                click.echo(f"Restored {path}. Restart {program}.")
        rows.append(
            {
                "program": program,
                "file": path,
                "backup": undo.backup,
                "restored": is_back,
                "exact": undo.is_exact,
                "conflicts": undo.conflicts,
            }
        )
    if as_json:
        echo_json({"clients": rows})
    elif not undos:
        click.echo("Nothing to undo: `toolscout init` has not changed any file.")
    refused = [undo for undo in undos if undo.conflicts and not force]
    if refused and not dry_run:
        raise explain_conflict(refused[0])
