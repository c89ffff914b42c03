"""Changes to toolscout's own configuration file, which leave the rest of it as it is.

`with_server` and `without_server` take a text and give a text: comments, order and layout stay.
Whatever the file looks like, the result is read back and has to say what was meant; else it is
refused and a person has to do it. `write_edit` puts it in place, with the old file beside it.
"""

import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from toolscout.config.documents import document_from_text, is_file, keep_backup, write_private
from toolscout.config.file import Config, is_own_document, read_config, to_toml
from toolscout.config.servers import ServerConfig
from toolscout.errors import InvalidConfig, InvalidFile, UnknownServer
from toolscout.names import find_near_names, to_one_line
from toolscout.options import as_table, key_path
from toolscout.schemas import Json, is_object

BY_HAND = "Change it by hand."


def read_own_text(path: Path) -> str:
    """Return the text of a configuration file of toolscout, empty where there is none yet."""
    if not is_file(path):
        return ""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidFile(str(path), "is not UTF-8", remedy=BY_HAND) from None
    if not is_own_document(document_from_text(path, text)):
        raise InvalidFile(
            str(path),
            "is another program's file, which toolscout reads and never writes",
            remedy="Change it there, or name toolscout's own file with --config.",
        )
    return text


def with_server(path: Path, text: str, server: ServerConfig) -> str:
    """Return the text of a file with one server more, at its end."""
    if server.name in _tables(text)["servers"]:
        problem = f"exists already in {path}"
        remedy = "Choose another name, or remove that one first."
        raise InvalidConfig(key_path("servers", server.name), problem, remedy=remedy)
    # Reading anchors what is relative, so the table is taken from the value as it was given.
    table = to_toml(Config(servers=(server,)))
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    wanted = _tables(text)
    wanted["servers"] |= _tables(table)["servers"]
    return _checked(path, with_breaks_of(text, text + gap + table), wanted)


def without_server(path: Path, text: str, name: str) -> str:
    """Return the text of a file without a server; comments before the next table stay."""
    wanted = _tables(text)
    if name not in wanted["servers"]:
        raise _not_there(path, text, name)
    del wanted["servers"][name]
    lines = text.splitlines(keepends=True)
    cut = {number for part in table_parts(lines, "servers", name) for number in part}
    kept = "".join(line for number, line in enumerate(lines) if number not in cut)
    return _checked(path, kept, wanted)


def write_edit(path: Path, text: str) -> None:
    """Put a text in place of a file's, which stays beside it as `FILE.bak`."""
    keep_backup(path)
    write_private(path, text)


def _not_there(path: Path, text: str, name: str) -> Exception:
    config = read_config(path, text)
    known = [server.name for server in config.servers]
    if name in known:
        file = config.origins.get(name, path)
        return InvalidConfig(
            key_path("servers", name),
            f"stands in {file}, which {path.name} includes",
            remedy="Remove it there, or set 'disabled = true' for it there.",
        )
    shown = to_one_line(name, 60)
    return UnknownServer(
        shown, find_near_names(name, known), otherwise="See `toolscout servers list`."
    )


def _tables(text: str) -> Json:
    tables = tomllib.loads(text)
    return {**tables, "servers": as_table("servers", tables.get("servers", {}))}


def _checked(path: Path, text: str, wanted: Json) -> str:
    """Return a text that says this and can be used, or raise."""
    try:
        is_meant = _tables(text) == wanted
    except tomllib.TOMLDecodeError:
        is_meant = False
    if not is_meant:
        problem = f"in {path} are written in a way that cannot be changed safely"
        raise InvalidConfig("servers", problem, remedy=BY_HAND)
    read_config(path, text)
    return text


def table_parts(lines: list[str], *keys: str) -> Iterator[range]:
    """Yield the lines of each table under some keys, from its head to what belongs to the next."""
    heads = [number for number, line in enumerate(lines) if _head(line) is not None]
    for head, following in pairwise((*heads, len(lines))):
        if (_head(lines[head]) or [])[: len(keys)] != list(keys):
            continue
        end = following
        while following < len(lines) and end > head + 1 and _is_comment(lines[end - 1]):
            end -= 1
        yield range(head, _past_blanks(lines, end, following))


def _past_blanks(lines: list[str], end: int, following: int) -> int:
    while end < following and not lines[end].strip():
        end += 1
    return end


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _head(line: str) -> list[str] | None:
    """Return the keys of a table's head, nothing for any other line."""
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


def with_breaks_of(old: str, new: str) -> str:
    """Return a text with the line breaks of another."""
    return new.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in old else new
