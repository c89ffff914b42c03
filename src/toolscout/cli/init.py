"""`toolscout init`: one file for the gateway, and clients that start toolscout in its place.

Reads options, calls `toolscout.servers`, prints and asks; the files of clients are the part of
`clients`. What it prints holds no value of a variable, header or token.

What `toolscout init` does to the files of clients: show, ask, change, and put back.

Nothing that is printed holds the value of a variable, header or token.
"""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli import ExitCode
from toolscout.cli.inputs import this_machine

if TYPE_CHECKING:
    from toolscout.clients.discovery import Discovery, FoundServer, Machine, Source
    from toolscout.clients.rewrite import Launch, Rewrite
    from toolscout.clients.undo import Undo
    from toolscout.config.file import Config


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
    """Which clients are meant: those named, or all that have servers."""

    named: tuple[str, ...]
    project: bool
    """Whether files of the folder count, which others may share."""

    def sources(self, machine: "Machine") -> "list[Source]":
        """Return the files of these clients, whether they exist or not."""
        from toolscout.clients.discovery import list_known_files

        programs = [CLIENTS[name] for name in self.named] or list(CLIENTS.values())
        found = {s.path: s for s in list_known_files(machine) if s.program in programs}
        return [s for s in found.values() if self.project or not _is_shared(s, machine)]


def launch_of(config: Path) -> "Launch":
    """Return how clients start the toolscout that is running."""
    from toolscout.clients.rewrite import Launch

    args = ("serve", "--config", str(config))
    # A client has its own PATH, and another toolscout may lie on it.
    beside = shutil.which("toolscout", path=str(Path(sys.executable).parent))
    if beside:
        return Launch(command=beside, args=args)
    return Launch(command=sys.executable, args=("-m", "toolscout", *args))


def planned(
    choice: Choice, machine: "Machine", config: "Config", notes: list[str]
) -> "list[Rewrite]":
    """Return the files that would change; one that cannot be changed becomes a note."""
    from toolscout.clients.rewrite import plan_rewrite
    from toolscout.config.documents import is_file
    from toolscout.errors import InvalidFile, UsageError

    launch, plans = launch_of(config.source), list["Rewrite"]()
    existing = [source for source in choice.sources(machine) if is_file(source.path)]
    for name in choice.named:
        if not any(source.program == CLIENTS[name] for source in existing):
            remedy = "Start the program once, or leave --client out."
            raise InvalidFile(CLIENTS[name], "has no configuration file here", remedy=remedy)
    for source in existing:
        try:
            always = bool(choice.named)
            plans.append(plan_rewrite(source, launch, config, machine.cwd, always=always))
        except UsageError as error:
            notes.append(str(error))
    return [plan for plan in plans if plan.is_change]


def shared_notes(choice: Choice, machine: "Machine") -> Iterator[str]:
    """Yield a note for each file that stays as it is because others may share it."""
    from toolscout.config.documents import is_file

    if choice.project:
        return
    every = Choice(named=choice.named, project=True).sources(machine)
    for source in every:
        if _is_shared(source, machine) and is_file(source.path):
            yield f"{source.path} may be shared with others and stays. --project changes it too."


def show_plan(plan: "Rewrite") -> None:
    """Print what would change in one client's file."""
    from toolscout.clients.rewrite import format_diff

    source = plan.source
    click.echo(f"\n{source.program} would start toolscout{_in_place(plan.taken)}:")
    show_diff(format_diff(source.path, plan.old, plan.new))
    if plan.kept:
        click.echo(f"It keeps {_listed(plan.kept)}.")


def show_diff(lines: Iterable[str]) -> None:
    """Print a diff, in colour for a person."""
    for line in lines:
        click.echo(click.style(line, fg=DIFF_STYLES.get(line[:1])))


def ask(question: str) -> bool:
    """Return what a person says; raises where there is none."""
    try:
        return click.confirm(question, err=True)
    except click.Abort as error:
        # Both the end of input and Ctrl-C end up here.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise click.UsageError("There is nobody to ask. Add --yes.") from None


def change(plans: "Sequence[Rewrite]", *, yes: bool, quiet: bool) -> dict[Path, Path]:
    """Write the files that a person agrees to; returns where their old ones are kept."""
    from toolscout.clients.undo import write_rewrite

    backups: dict[Path, Path] = {}
    for plan in plans:
        path = plan.source.path
        if yes or ask(f"Change {path} ({plan.source.program})?"):
            backups[path] = write_rewrite(plan)
            if not quiet:
                click.echo(f"Changed {path}. The old file is {backups[path].name} beside it.")
    return backups


def undos_of(choice: Choice, machine: "Machine") -> "list[Undo]":
    """Return what can be put back."""
    from toolscout.clients.undo import find_undos

    return list(find_undos(Choice(named=choice.named, project=True).sources(machine)))


def show_undo(undo: "Undo") -> None:
    """Print what putting a file back would change."""
    from toolscout.clients.rewrite import format_diff
    from toolscout.errors import UsageError

    source = undo.source
    how = "exactly as it was" if undo.is_exact else "with what has changed since"
    click.echo(f"{source.program}: {source.path} {'would be' if not undo.conflicts else 'is not'}")
    click.echo(f"put back {how}:" if not undo.conflicts else "put back unless --force is given:")
    try:
        show_diff(format_diff(source.path, undo.current, undo.restored))
    except UsageError as error:
        click.echo(str(error))


def plan_json(plan: "Rewrite", backups: dict[Path, Path]) -> dict[str, object]:
    """Return one client's change for programs."""
    from toolscout.clients.rewrite import format_diff

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


def undo_json(undo: "Undo", *, is_back: bool) -> dict[str, object]:
    """Return one undo for programs."""
    return {
        "program": undo.source.program,
        "file": str(undo.source.path),
        "backup": str(undo.backup),
        "restored": is_back,
        "exact": undo.is_exact,
        "conflicts": list(undo.conflicts),
    }


def _in_place(names: Sequence[str]) -> str:
    if not names:
        return ""
    count = f"{len(names)} server{'s' if len(names) > 1 else ''}"
    return f" in place of {count} ({_listed(names)})"


def _listed(names: Sequence[str]) -> str:
    from toolscout.names import to_one_line

    return to_one_line(", ".join(names), NAMES_SHOWN)


def _is_shared(source: "Source", machine: "Machine") -> bool:
    """Tell whether a file belongs to the folder, and so perhaps to a repository."""
    folders = [machine.cwd / name for name in (".cursor", ".vscode", ".codex")]
    is_here = source.path.parent in (machine.cwd, *folders)
    return is_here and machine.cwd != machine.home


NOTHING = "No MCP servers were found. Name a file that lists some with --from PATH."
NOTHING_TO_UNDO = "There is nothing to undo: no client's file was changed by `toolscout init`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that one run would write."""

    findings: "Discovery"
    config: "Config"
    is_new: bool
    """Whether toolscout's own file would change."""
    rewrites: "list[Rewrite]"
    notes: list[str]


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
    help="A file that lists servers; may be given again. Without it, all known places. "
    "No client is changed then.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=click.Choice(list(CLIENTS)),
    help="Change only this client; may be given again. Without it, all that have servers.",
)
@click.option("--keep-clients", is_flag=True, help="Change no client's file.")
@click.option("--project", is_flag=True, help="Change files of this folder too, such as .mcp.json.")
@click.option("--undo", is_flag=True, help="Put the files of clients back as they were.")
@click.option("--yes", "-y", is_flag=True, help="Write without asking.")
@click.option("--dry-run", is_flag=True, help="Show what would be done and write nothing.")
@click.option(
    "--force",
    is_flag=True,
    help="Replace the file, or undo what would be refused; the old one becomes FILE.bak.",
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

    Looks into the files of Claude Desktop, Claude Code, Cursor, VS Code, Codex and Windsurf and
    writes their servers into one file of toolscout, which its owner alone can read, because
    secrets are written as they were found. Then shows, for each client, how its own file would
    start toolscout in their place, and asks. The old file stays beside the new one; --undo puts
    it back. Starts nothing.

    \b
    Example:
      toolscout init
      toolscout init --client cursor --dry-run
      toolscout init --undo
      toolscout init --from .mcp.json --config toolscout.toml --yes
    """
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json asks no questions. Add --yes or --dry-run.")
    if clients and (paths or keep_clients):
        raise click.UsageError("--client does not go with --from or --keep-clients.")
    choice = Choice(named=clients, project=project)
    if undo:
        _undo(choice, yes=yes, dry_run=dry_run, force=force, as_json=as_json)
        return
    machine = this_machine()
    place = (target or machine.config_file).absolute()
    plan = _planned(machine, place, paths, None if paths or keep_clients else choice)
    if plan.is_new and not dry_run:
        _check_free(place, force)
    if not as_json:
        _show(plan, place)
    _carry_out(plan, place, yes=yes, dry_run=dry_run, as_json=as_json)
    if not plan.findings.found:
        _end_without_servers()


def _planned(
    machine: "Machine", place: Path, paths: tuple[Path, ...], choice: Choice | None
) -> Plan:
    from toolscout.clients.discovery import build_config

    findings = _found(machine, place, paths)
    config = build_config(findings, place)
    notes, rewrites = list(findings.notes), list["Rewrite"]()
    if choice is not None and findings.found:
        rewrites = planned(choice, machine, config, notes)
        notes += shared_notes(choice, machine)
    return Plan(
        findings=findings,
        config=config,
        is_new=bool(findings.found) and not _is_written(config, place),
        rewrites=rewrites,
        notes=notes,
    )


def _is_written(config: "Config", place: Path) -> bool:
    """Tell whether toolscout's own file says this already, in whatever words."""
    from toolscout.config.file import read_config
    from toolscout.errors import UsageError

    try:
        return place.exists() and read_config(place) == config
    except UsageError:
        return False


def _carry_out(plan: Plan, place: Path, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    wanted = plan.is_new and not dry_run and (yes or _agreed(place))
    if wanted:
        _write(plan.config, place)
        if not as_json:
            click.echo(f"Wrote {place}.")
    # Clients must not start a toolscout that does not know their servers.
    ready = wanted or not (plan.is_new or dry_run)
    backups = change(plan.rewrites, yes=yes, quiet=as_json) if ready else {}
    if as_json:
        shown = _to_json(plan, place, wanted)
        shown["clients"] = [plan_json(rewrite, backups) for rewrite in plan.rewrites]
        click.echo(json.dumps(shown, ensure_ascii=False))
    elif backups:
        programs = ", ".join(
            dict.fromkeys(r.source.program for r in plan.rewrites if r.source.path in backups)
        )
        click.echo(f"Next: restart {programs}. `toolscout init --undo` puts it back.")
    elif wanted:
        click.echo(f"Next: toolscout serve --config {place}")
    elif ready and plan.findings.found and not plan.rewrites:
        click.echo("Nothing to change.")


def _undo(choice: Choice, *, yes: bool, dry_run: bool, force: bool, as_json: bool) -> None:
    undos = undos_of(choice, this_machine())
    rows: list[dict[str, object]] = []
    for undo in undos:
        if not as_json:
            show_undo(undo)
        is_back = not dry_run and _put_back(undo, yes=yes, force=force, quiet=as_json)
        rows.append(undo_json(undo, is_back=is_back))
    if as_json:
        click.echo(json.dumps({"clients": rows}, ensure_ascii=False))
    elif not undos:
        click.echo(NOTHING_TO_UNDO)
    refused = [undo for undo in undos if undo.conflicts and not force]
    if refused and not dry_run:
        from toolscout.clients.undo import explain_conflict

        raise explain_conflict(refused[0])


def _put_back(undo: "Undo", *, yes: bool, force: bool, quiet: bool) -> bool:
    from toolscout.clients.undo import put_back

    if undo.conflicts and not force:
        return False
    path = undo.source.path
    if not (yes or ask(f"Put {path} ({undo.source.program}) back?")):
        return False
    put_back(undo, force=force)
    if not quiet:
        click.echo(f"Put {path} back. Restart {undo.source.program}.")
    return True


def _found(machine: "Machine", place: Path, paths: tuple[Path, ...]) -> "Discovery":
    from toolscout.clients.discovery import OWN, Source, find_servers, list_known_files

    named = [Source(program="", path=path.absolute()) for path in paths]
    usual = [Source(program=OWN, path=place), *list_known_files(machine)]
    return find_servers(named or usual, cwd=machine.cwd)


def _check_free(place: Path, force: bool) -> None:
    from toolscout.errors import InvalidFile

    if place.exists() and not force:
        remedy = f"Say --force to replace it; the old one becomes {place.name}.bak."
        raise InvalidFile(str(place), "exists already", remedy=remedy)


def _show(plan: Plan, place: Path) -> None:
    findings = plan.findings
    for source in findings.sources:
        rows = [_row(finding) for finding in findings.found if finding.source == source]
        if rows:
            click.echo(f"{source.program or 'Named'}: {source.path}")
            click.echo("\n".join(_table(rows)))
    notes = _notes(plan)
    if notes:
        click.echo("\nNotes:")
        click.echo("\n".join(f"- {note}" for note in notes))
    if findings.found:
        count = len(findings.found)
        click.echo(f"\n{count} server{'s' if count > 1 else ''} for {place}")
    for rewrite in plan.rewrites:
        show_plan(rewrite)


def _row(finding: "FoundServer") -> tuple[str, str, str]:
    from toolscout.names import to_one_line

    server = finding.server
    off = " (disabled)" if server.disabled else ""
    return to_one_line(server.name, 40), str(server.transport), _started(finding) + off


def _started(finding: "FoundServer") -> str:
    from toolscout.config.secrets import mask_command, mask_url

    server = finding.server
    return mask_url(server.url) if server.url else mask_command(server.command, server.args)


def _table(rows: list[tuple[str, str, str]]) -> list[str]:
    width = max(len(name) for name, _, _ in rows)
    return [f"  {name:<{width}}  {transport:<7}  {what}" for name, transport, what in rows]


def _notes(plan: Plan) -> list[str]:
    from toolscout.clients.discovery import format_secret_notes
    from toolscout.names import clean_text

    found = (finding.server for finding in plan.findings.found)
    notes = [*plan.notes, *format_secret_notes(found)]
    return [" ".join(clean_text(note, 2_000).split()) for note in notes]


def _agreed(place: Path) -> bool:
    agreed = ask(f"Write {place}?")
    if not agreed:
        click.echo("Nothing was written.", err=True)
    return agreed


def _write(config: "Config", place: Path) -> None:
    from toolscout.config.documents import keep_backup, write_private
    from toolscout.config.file import to_toml

    text = to_toml(config)
    keep_backup(place)
    write_private(place, text)


def _to_json(plan: Plan, place: Path, written: bool) -> dict[str, object]:
    return {
        "config": str(place),
        "written": written,
        "servers": [_server_json(finding) for finding in plan.findings.found],
        "notes": _notes(plan),
    }


def _server_json(finding: "FoundServer") -> dict[str, object]:
    from toolscout.clients.discovery import find_secret_places

    return {
        "name": finding.server.name,
        "transport": str(finding.server.transport),
        "starts": _started(finding),
        "disabled": finding.server.disabled,
        "program": finding.source.program,
        "file": str(finding.source.path),
        "secrets": find_secret_places(finding.server),
    }


def _end_without_servers() -> None:
    click.echo(f"Error: {NOTHING}", err=True)
    raise click.exceptions.Exit(ExitCode.NOT_FOUND)
