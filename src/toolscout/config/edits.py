"""Changes to toolscout's own configuration file that leave the rest of it as it is.

`add_server` and `remove_server` take a text and give a text with the same comments, order and
layout. The result is read back and compared with what was meant; if they differ, the change is
refused. `write_edit` writes it and keeps the old file as a backup.
"""

import tomllib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from toolscout.config.documents import document_from_text, is_file, keep_backup, write_private
from toolscout.config.file import Config, is_own_document, read_config, to_toml
from toolscout.config.servers import ServerConfig
from toolscout.errors import InvalidConfig, InvalidFile, UnknownServer
from toolscout.names import find_near_names, to_one_line
from toolscout.options import NAME_CHARS, join_keys, read_table
from toolscout.schemas import Json, is_object

BY_HAND = "Edit the file by hand."


def read_own_text(path: Path) -> str:
    """Return the text of a configuration file of toolscout, empty if there is none yet."""
    if not is_file(path):
        return ""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidFile(str(path), "is not UTF-8", remedy=BY_HAND) from None
    if not is_own_document(document_from_text(path, text)):
        raise InvalidFile(
            str(path),
            "belongs to another program, so toolscout reads it but does not write it",
            remedy="Change it there, or name toolscout's own file with --config.",
        )
    return text


def add_server(path: Path, text: str, server: ServerConfig) -> str:
    """Return the text of a file with another server at its end."""
    wanted = _parse_tables(text)
    if server.name in wanted["servers"]:
        problem = f"exists already in {path}"
        remedy = "Choose another name, or remove that one first."
        raise InvalidConfig(join_keys("servers", server.name), problem, remedy=remedy)
    wanted["servers"][server.name] = server.to_mapping()
    return _check_edit(path, append_tables(text, to_toml(Config(servers=(server,)))), wanted)


def remove_server(path: Path, text: str, name: str) -> str:
    """Return the text of a file without a server; comments before the next table stay."""
    wanted = _parse_tables(text)
    if name not in wanted["servers"]:
        raise _describe_missing(path, text, name)
    del wanted["servers"][name]
    return _check_edit(path, remove_tables(text, "servers", [name]), wanted)


def write_edit(path: Path, text: str) -> None:
    """Replace a file's text and keep the old file as `FILE.bak`."""
    keep_backup(path)
    write_private(path, text)


def _describe_missing(path: Path, text: str, name: str) -> Exception:
    config = read_config(path, text)
    known = [server.name for server in config.servers]
    if name in known:
        file = config.origins.get(name, path)
        return InvalidConfig(
            join_keys("servers", name),
            f"is in {file}, which {path.name} includes",
            remedy="Remove it there, or set 'disabled = true' for it there.",
        )
    shown = to_one_line(name, NAME_CHARS)
    return UnknownServer(
        shown, find_near_names(name, known), otherwise="See `toolscout servers list`."
    )


def _parse_tables(text: str) -> Json:
    tables = tomllib.loads(text)
    return {**tables, "servers": read_table("servers", tables.get("servers", {}))}


def _check_edit(path: Path, text: str, wanted: Json) -> str:
    """Return a text that contains these tables and can be used, or raise."""
    try:
        is_meant = _parse_tables(text) == wanted
    except tomllib.TOMLDecodeError:
        is_meant = False
    if not is_meant:
        problem = f"in {path} is written in a way that toolscout cannot change safely"
        raise InvalidConfig("servers", problem, remedy=BY_HAND)
    read_config(path, text)
    return text


def append_tables(text: str, tables: str) -> str:
    """Return a TOML text with further tables at its end."""
    if not text.strip():
        gap = ""
    elif text.endswith("\n"):
        gap = "" if text.endswith("\n\n") else "\n"
    else:
        gap = "\n\n"
    new = text + gap + tables
    return new.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in text else new


def remove_tables(text: str, key: str, names: Iterable[str]) -> str:
    """Return a TOML text without some tables under a key."""
    lines = text.splitlines(keepends=True)
    cut = {number for name in names for part in find_tables(lines, key, name) for number in part}
    return "".join(line for number, line in enumerate(lines) if number not in cut)


def find_tables(lines: list[str], *keys: str) -> Iterator[range]:
    """Yield the lines of each table under some keys, without comments before the next table."""
    heads = [number for number, line in enumerate(lines) if _parse_head(line) is not None]
    for head, following in pairwise((*heads, len(lines))):
        if (_parse_head(lines[head]) or [])[: len(keys)] != list(keys):
            continue
        end = following
        while following < len(lines) and end > head + 1 and _is_comment(lines[end - 1]):
            end -= 1
        yield range(head, _skip_blanks(lines, end, following))


def _skip_blanks(lines: list[str], end: int, following: int) -> int:
    while end < following and not lines[end].strip():
        end += 1
    return end


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _parse_head(line: str) -> list[str] | None:
    """Return the keys of a table's head, None for any other line."""
    if not line.lstrip().startswith("["):
        return None
    try:
        inner: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    keys: list[str] = []
    while is_object(inner) and inner:
        key, inner = next(iter(inner.items()))
        keys.append(key)
    return keys
