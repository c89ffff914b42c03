"""Writes a client's rewritten file, and undoes that.

The old file is kept as a backup whose name contains a digest of what was written. A file that
has not changed since gets its old bytes and mode back. If the client has edited the file since,
those edits are kept and only the servers are restored; if both define the same server
differently, the undo is refused.
"""

import glob
import hashlib
import stat
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from toolscout.clients.discovery import Source
from toolscout.clients.jsontext import add_member, find_object, format_member, remove_members
from toolscout.clients.programs import Keys
from toolscout.clients.rewrite import (
    CODEX_TABLE,
    Rewrite,
    add_table,
    check_edit,
    find_own_names,
    find_table,
    list_places,
    parse_document,
    read_text,
)
from toolscout.config.documents import is_file, keep_backup, write_private
from toolscout.config.edits import append_tables, extract_tables, remove_tables
from toolscout.errors import InvalidFile
from toolscout.schemas import Json

MARK = ".toolscout-"
ENDING = ".bak"
DIGEST_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """A client's file that can be restored."""

    source: Source
    backup: Path
    current: str
    """Empty if the file is gone."""
    restored: str
    is_exact: bool
    """Whether the file is as toolscout wrote it, so that the backup can replace it."""
    conflicts: tuple[str, ...]
    """Servers that the client has added again, with other options than before."""


def write_rewrite(rewrite: Rewrite) -> Path:
    """Write a rewritten file and return the path of the backup."""
    path = rewrite.source.path.resolve()
    if read_text(path) != rewrite.old:
        remedy = "Run `toolscout init` again."
        raise InvalidFile(str(path), "has changed in the meantime", remedy=remedy)
    mode = stat.S_IMODE(path.stat().st_mode)
    earlier = find_backup(path)
    original = _restore_original(rewrite, earlier) if earlier else rewrite.old
    backup = path.with_name(f"{path.name}{MARK}{_hash_text(rewrite.new)}{ENDING}")
    write_private(backup, original, mode)
    write_private(path, rewrite.new, mode)
    if earlier is not None and earlier != backup:
        earlier.unlink(missing_ok=True)
    return backup


def find_backup(path: Path) -> Path | None:
    """Return the backup of a client's file, if there is one."""
    real = path.resolve()
    pattern = f"{glob.escape(real.name)}{MARK}*{ENDING}"
    found = (backup for backup in real.parent.glob(pattern) if not backup.is_symlink())
    return min(found, default=None)


def find_undos(sources: Iterable[Source]) -> Iterator[Undo]:
    """Yield the files that can be restored, in their order."""
    seen: set[Path] = set()
    for source in sources:
        path = source.path.resolve()
        backup = find_backup(path)
        if path in seen or backup is None:
            continue
        seen.add(path)
        old = read_text(backup)
        current = read_text(path) if is_file(path) else ""
        is_written = f"{MARK}{_hash_text(current)}{ENDING}" in backup.name
        is_exact = not current or current == old or is_written
        restored = old
        conflicts: list[str] = []
        if not is_exact:
            try:
                merged, conflicts = _merge_servers(path, current, old)
                restored = old if conflicts else merged
            except InvalidFile as error:
                conflicts = [error.problem]
        yield Undo(
            source=source,
            backup=backup,
            current=current,
            restored=restored,
            is_exact=is_exact,
            conflicts=tuple(conflicts),
        )


def put_back(undo: Undo, *, force: bool = False) -> None:
    """Restore a file; `force` restores the backup despite conflicts and saves `FILE.bak` first."""
    path = undo.source.path.resolve()
    if undo.conflicts and not force:
        raise explain_conflict(undo)
    if undo.is_exact or undo.conflicts:
        if undo.conflicts:
            keep_backup(path)
        undo.backup.replace(path)
        return
    write_private(path, undo.restored, stat.S_IMODE(path.stat().st_mode))
    undo.backup.unlink()


def explain_conflict(undo: Undo) -> InvalidFile:
    """Return the error that says what an undo would lose."""
    changed = "has changed since `toolscout init`, and the old file would undo that"
    problem = f"{changed}: {', '.join(undo.conflicts)}"
    remedy = f"Merge it by hand with {undo.backup}, or pass --force to restore the old file."
    return InvalidFile(str(undo.source.path), problem, remedy=remedy)


def _restore_original(rewrite: Rewrite, earlier: Path) -> str:
    """Return the file as it would be if toolscout had never changed it."""
    path = rewrite.source.path
    document = parse_document(path, rewrite.old)
    if not any(find_own_names(document, keys) for keys in list_places(document, None)):
        return rewrite.old
    restored, conflicts = _merge_servers(path, rewrite.old, read_text(earlier))
    if conflicts:
        remedy = "Run `toolscout init --undo` first."
        raise InvalidFile(str(path), f"has changed since: {', '.join(conflicts)}", remedy=remedy)
    return restored


def _merge_servers(path: Path, text: str, old: str) -> tuple[str, list[str]]:
    """Return the current text with its earlier servers, and the names that both define."""
    current = parse_document(path, text)
    before = parse_document(path, old)
    wanted: Json = deepcopy(current.tables)
    conflicts: list[str] = []
    for keys in dict.fromkeys((*list_places(before, None), *list_places(current, None))):
        own = find_own_names(current, keys)
        mine = find_table(current.tables, keys)
        theirs = find_table(before.tables, keys)
        back = [name for name in theirs if name not in mine or name in own]
        if not back and not own:
            continue
        both = [name for name in theirs if name in mine and name not in own]
        conflicts += [name for name in both if mine[name] != theirs[name]]
        text = _swap_texts(text, old, keys, own, back)
        for name in own:
            find_table(wanted, keys).pop(name, None)
        add_table(wanted, keys, {name: theirs[name] for name in back})
    return (text if conflicts else check_edit(path, text, wanted)), conflicts


def _swap_texts(text: str, old: str, keys: Keys, gone: list[str], back: list[str]) -> str:
    if keys == (CODEX_TABLE,):
        tables = extract_tables(old, CODEX_TABLE, back)
        return append_tables(remove_tables(text, CODEX_TABLE, gone), tables)
    text = remove_members(text, keys, gone)
    span = find_object(old, keys)
    for member in span.members if span else ():
        if member.key in back:
            text = add_member(text, keys, format_member(old, member))
    return text


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARS]
