"""What `toolscout init` does to the files of clients: show, ask, change, and put back.

Nothing that is printed holds the value of a variable, header or token.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from toolscout.clients.discovery import Machine, Source
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
        from toolscout.clients.discovery import known_files

        programs = [CLIENTS[name] for name in self.named] or list(CLIENTS.values())
        found = {s.path: s for s in known_files(machine) if s.program in programs}
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
    from toolscout.clients.rewrite import rewritten
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
            plans.append(rewritten(source, launch, config, machine.cwd, always=always))
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
    from toolscout.clients.diffs import shown_diff

    source = plan.source
    click.echo(f"\n{source.program} would start toolscout{_in_place(plan.taken)}:")
    show_diff(shown_diff(source.path, plan.old, plan.new))
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
    from toolscout.clients.undo import written

    backups: dict[Path, Path] = {}
    for plan in plans:
        path = plan.source.path
        if yes or ask(f"Change {path} ({plan.source.program})?"):
            backups[path] = written(plan)
            if not quiet:
                click.echo(f"Changed {path}. The old file is {backups[path].name} beside it.")
    return backups


def undos_of(choice: Choice, machine: "Machine") -> "list[Undo]":
    """Return what can be put back."""
    from toolscout.clients.undo import found_undos

    return list(found_undos(Choice(named=choice.named, project=True).sources(machine)))


def show_undo(undo: "Undo") -> None:
    """Print what putting a file back would change."""
    from toolscout.clients.diffs import shown_diff
    from toolscout.errors import UsageError

    source = undo.source
    how = "exactly as it was" if undo.is_exact else "with what has changed since"
    click.echo(f"{source.program}: {source.path} {'would be' if not undo.conflicts else 'is not'}")
    click.echo(f"put back {how}:" if not undo.conflicts else "put back unless --force is given:")
    try:
        show_diff(shown_diff(source.path, undo.current, undo.restored))
    except UsageError as error:
        click.echo(str(error))


def plan_json(plan: "Rewrite", backups: dict[Path, Path]) -> dict[str, object]:
    """Return one client's change for programs."""
    from toolscout.clients.diffs import shown_diff

    path = plan.source.path
    return {
        "program": plan.source.program,
        "file": str(path),
        "changed": path in backups,
        "backup": str(backups[path]) if path in backups else None,
        "taken": list(plan.taken),
        "kept": list(plan.kept),
        "diff": shown_diff(path, plan.old, plan.new),
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
    from toolscout.names import one_line

    return one_line(", ".join(names), NAMES_SHOWN)


def _is_shared(source: "Source", machine: "Machine") -> bool:
    """Tell whether a file belongs to the folder, and so perhaps to a repository."""
    folders = [machine.cwd / name for name in (".cursor", ".vscode", ".codex")]
    is_here = source.path.parent in (machine.cwd, *folders)
    return is_here and machine.cwd != machine.home
