"""Putting a rewritten client's file in place, and taking that back.

The old file stays beside the new one, with a name that tells what was written: a file that is
still the same gets its old bytes and mode back. One that its client has changed since keeps those
changes and gets its servers back. Where both want the same name the undo is refused.
"""

import hashlib
import stat
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from toolscout.clients.discovery import Source
from toolscout.clients.jsontext import member_text, object_at
from toolscout.clients.rewrite import (
    CODEX_TABLE,
    Keys,
    Rewrite,
    checked,
    is_own_entry,
    parsed,
    read_text,
    server_places,
    table_at,
    with_member,
    with_tables,
    without_members,
    without_tables,
)
from toolscout.config.documents import Document, is_file, keep_backup, write_with_mode
from toolscout.config.edits import table_parts
from toolscout.errors import InvalidFile
from toolscout.schemas import Json

MARK = ".toolscout-"
ENDING = ".bak"
DIGEST_LENGTH = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """A client's file that can be put back."""

    source: Source
    backup: Path
    current: str
    """Empty where the file is gone."""
    restored: str
    is_exact: bool
    """Whether the file is as it was written, so that the old one simply returns."""
    conflicts: tuple[str, ...] = ()
    """Servers that the file has again, and otherwise than before."""


def written(rewrite: Rewrite) -> Path:
    """Put a rewritten file in place and return where the old one is kept."""
    path = rewrite.source.path.resolve()
    if read_text(path) != rewrite.old:
        raise InvalidFile(
            str(path), "has been changed meanwhile", remedy="Run `toolscout init` again."
        )
    mode, earlier = stat.S_IMODE(path.stat().st_mode), backup_of(path)
    kept = _first_text(rewrite, earlier) if earlier else rewrite.old
    backup = path.with_name(f"{path.name}{MARK}{_digest(rewrite.new)}{ENDING}")
    write_with_mode(backup, kept, mode)
    write_with_mode(path, rewrite.new, mode)
    if earlier is not None and earlier != backup:
        earlier.unlink(missing_ok=True)
    return backup


def backup_of(path: Path) -> Path | None:
    """Return the file that was there before toolscout, if it is kept."""
    real = path.resolve()
    try:
        beside = sorted(real.parent.iterdir())
    except OSError:
        return None
    return next((one for one in beside if _is_backup(one, real.name)), None)


def found_undos(sources: Iterable[Source]) -> Iterator[Undo]:
    """Yield what can be put back, in the order of the files."""
    seen: set[Path] = set()
    for source in sources:
        path = source.path.resolve()
        backup = backup_of(path)
        if path not in seen and backup is not None:
            seen.add(path)
            yield _undo(source, backup)


def put_back(undo: Undo, *, force: bool = False) -> None:
    """Write the file as it is to be; with force, as it was, and what it held becomes `FILE.bak`."""
    path = undo.source.path.resolve()
    if undo.conflicts and not force:
        raise conflict(undo)
    if undo.is_exact or undo.conflicts:
        if undo.conflicts:
            keep_backup(path)
        undo.backup.replace(path)
        return
    write_with_mode(path, undo.restored, stat.S_IMODE(path.stat().st_mode))
    undo.backup.unlink()


def conflict(undo: Undo) -> InvalidFile:
    """Return why an undo would lose something."""
    listed = ", ".join(undo.conflicts)
    return InvalidFile(
        str(undo.source.path),
        f"has changed since `toolscout init`, and the old file would undo that: {listed}",
        remedy=f"Mend it by hand with {undo.backup}, or add --force to put the old file back.",
    )


def _undo(source: Source, backup: Path) -> Undo:
    path = source.path.resolve()
    old = read_text(backup)
    current = read_text(path) if is_file(path) else ""
    if not current or current == old or f"{MARK}{_digest(current)}{ENDING}" in backup.name:
        return Undo(source=source, backup=backup, current=current, restored=old, is_exact=True)
    try:
        restored, conflicts = _merged(parsed(path, current), current, parsed(path, old), old)
    except InvalidFile as error:
        restored, conflicts = old, (error.problem,)
    return Undo(
        source=source,
        backup=backup,
        current=current,
        restored=old if conflicts else restored,
        is_exact=False,
        conflicts=tuple(conflicts),
    )


def _first_text(rewrite: Rewrite, earlier: Path) -> str:
    """Return the file as it would be had toolscout never been there."""
    path, old = rewrite.source.path, read_text(earlier)
    before = parsed(path, rewrite.old)
    if not any(_own_at(before, keys) for keys in server_places(before, None)):
        return rewrite.old
    restored, conflicts = _merged(before, rewrite.old, parsed(path, old), old)
    if conflicts:
        remedy = "Run `toolscout init --undo` first."
        raise InvalidFile(str(path), f"has changed since: {', '.join(conflicts)}", remedy=remedy)
    return restored


def _merged(current: Document, text: str, before: Document, old: str) -> tuple[str, list[str]]:
    """Return the current text with its servers of before, and the names that both define."""
    wanted: Json = deepcopy(current.tables)
    conflicts: list[str] = []
    for keys in dict.fromkeys((*server_places(before, None), *server_places(current, None))):
        mine, own = table_at(current.tables, keys), _own_at(current, keys)
        theirs = table_at(before.tables, keys)
        back = [name for name in theirs if name not in mine or name in own]
        if not back and not own:
            continue
        both = [name for name in theirs if name in mine and name not in own]
        conflicts += [name for name in both if mine[name] != theirs[name]]
        text = _swapped(text, old, keys, own, back)
        _swap(wanted, keys, own, {name: theirs[name] for name in back})
    return (text if conflicts else checked(current.path, text, wanted)), conflicts


def _swap(tables: Json, keys: Keys, gone: list[str], back: Json) -> None:
    for key in keys:
        tables = tables.setdefault(key, {})
    for name in gone:
        tables.pop(name, None)
    tables.update(back)


def _swapped(text: str, old: str, keys: Keys, gone: list[str], back: list[str]) -> str:
    if keys == (CODEX_TABLE,):
        lines = old.splitlines(keepends=True)
        parts = [part for name in back for part in table_parts(lines, CODEX_TABLE, name)]
        tables = "".join(lines[number] for part in parts for number in part)
        return with_tables(without_tables(text, gone), tables)
    text = without_members(text, keys, gone)
    plain = old.removeprefix("\ufeff")
    span = object_at(plain, keys)
    for member in span.members if span else ():
        if member.key in back:
            text = with_member(text, keys, member_text(plain, member))
    return text


def _own_at(document: Document, keys: Keys) -> list[str]:
    return [name for name, entry in table_at(document.tables, keys).items() if is_own_entry(entry)]


def _is_backup(path: Path, name: str) -> bool:
    return path.name.startswith(f"{name}{MARK}") and path.name.endswith(ENDING)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
