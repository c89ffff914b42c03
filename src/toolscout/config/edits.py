"""Writes TOML: a whole configuration, or a change that leaves the rest of a file as it is.

`add_server`, `remove_server`, `put_options` and `put_profile` keep comments, order and layout.
Their result is read back, and the change is refused if it does not say what it should.
`append_tables`, `remove_tables` and `extract_tables` serve other programs' TOML as well.
"""

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.container import Container
from tomlkit.items import Comment, InlineTable, Item, Table, Whitespace

from toolscout.config.documents import document_from_text, is_file, keep_backup, write_private
from toolscout.config.file import Config, find_server, is_own_document, read_config
from toolscout.config.servers import ServerConfig
from toolscout.errors import InvalidConfig, InvalidFile
from toolscout.options import join_keys, read_table
from toolscout.schemas import Json

BOM = "\ufeff"
SERVER_KEYS = 2
"""How many keys lead to the table of a server."""
BY_HAND = "Edit the file by hand."


def to_toml(config: Config) -> str:
    """Return a configuration as a file that reads back equal; references stay references."""
    tables: Json = {
        "gateway": config.gateway.to_mapping(),
        "sessions": config.sessions.to_mapping(),
        "servers": {server.name: server.to_mapping() for server in config.servers},
    }
    return format_toml({key: table for key, table in tables.items() if table})


def format_toml(tables: Json) -> str:
    """Return tables as TOML."""
    return tomlkit.dumps(tables)


def read_own_text(path: Path) -> str:
    """Return the text of a configuration file of toolscout, empty if there is none yet."""
    if not is_file(path):
        return ""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidFile(str(path), "is not UTF-8", remedy=BY_HAND) from None
    if not is_own_document(document_from_text(path, text)):
        problem = "belongs to another program, so toolscout reads it but does not write it"
        remedy = "Change it there, or name toolscout's own file with --config."
        raise InvalidFile(str(path), problem, remedy=remedy)
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
        config = read_config(path, text)
        find_server(config, name)  # raises if there is none in the included files either
        problem = f"is in {config.origins.get(name, path)}, which {path.name} includes"
        remedy = "Remove it there, or set 'disabled = true' for it there."
        raise InvalidConfig(join_keys("servers", name), problem, remedy=remedy)
    del wanted["servers"][name]
    return _check_edit(path, remove_tables(text, "servers", [name]), wanted)


def put_options(path: Path, text: str, keys: Sequence[str], options: Json) -> str:
    """Return the text of a file with other options in the table at some keys.

    The table is added if there is none. Options that are None are removed, and so is a table of
    a server that is empty then.
    """
    wanted = _parse_tables(text)
    if keys[1] not in wanted[keys[0]]:
        problem = f"is not in {path} under this name"
        raise InvalidConfig(join_keys(*keys[:SERVER_KEYS]), problem, remedy=BY_HAND)
    _put(wanted, keys, options)
    document: Any = tomlkit.parse(text)
    server = _find_table(document, keys[:SERVER_KEYS])
    comments = _split_comments(server)  # they belong to what follows the server
    _put(document, keys, options)
    if comments:
        gap = "" if server.as_string().endswith("\n\n") else "\n"
        server.value.body.append((None, tomlkit.ws(gap + comments)))
    new = tomlkit.dumps(document)
    new = new.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in text else new
    return _check_edit(path, new, wanted, join_keys(*keys))


def _put(tables: Any, keys: Sequence[str], options: Json) -> None:
    """Set options in the table at some keys, of a TOML document or of plain tables."""
    trail = [tables]
    for key in keys:
        if key not in trail[-1]:
            trail[-1][key] = _make_table(trail[-1])
        trail.append(trail[-1][key])
    for name, value in options.items():
        if value is None:
            trail[-1].pop(name, None)
        else:
            trail[-1][name] = value
    for at in range(len(keys), SERVER_KEYS, -1):
        if not trail[at]:
            del trail[at - 1][keys[at - 1]]


def _make_table(parent: Any) -> Any:
    if isinstance(parent, InlineTable):
        return tomlkit.inline_table()
    return tomlkit.table(is_super_table=True) if isinstance(parent, Table) else {}


def _find_table(document: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        document = document[key]
    return document


def put_profile(path: Path, text: str, name: str, servers: Iterable[str]) -> str:
    """Return the text of a file with a profile that admits these servers, given as patterns."""
    wanted = _parse_tables(text)
    patterns = list(servers)
    profiles = wanted.setdefault("gateway", {}).setdefault("profiles", {})
    if name in profiles:
        document: Any = tomlkit.parse(text)
        document["gateway"]["profiles"][name]["servers"] = patterns
        new = tomlkit.dumps(document)
    else:
        listed = tomlkit.item(patterns).as_string()
        table = f"[{join_keys('gateway', 'profiles', name)}]\nservers = {listed}\n"
        new = append_tables(text, table)
    profiles[name] = {**profiles.get(name, {}), "servers": patterns}
    return _check_edit(path, new, wanted, "gateway.profiles")


def write_edit(path: Path, text: str, *, former: str | None = None) -> None:
    """Replace a file's text and keep the old file as `FILE.bak`.

    Raises `InvalidFile`, and writes nothing, if the text is not the former one any more.
    """
    if former is not None and read_own_text(path) != former:
        problem = "was changed by somebody else at the same moment"
        raise InvalidFile(str(path), problem, remedy="Try again.")
    keep_backup(path)
    write_private(path, text)


def _parse_tables(text: str) -> Json:
    tables = tomllib.loads(text)
    return {**tables, "servers": read_table("servers", tables.get("servers", {}))}


def _check_edit(path: Path, text: str, wanted: Json, key: str = "servers") -> str:
    """Return a text that contains these tables and can be used, or raise."""
    try:
        is_meant = _parse_tables(text) == wanted
    except tomllib.TOMLDecodeError:
        is_meant = False
    if not is_meant:
        problem = f"in {path} is written in a way that toolscout cannot change safely"
        raise InvalidConfig(key, problem, remedy=BY_HAND)
    read_config(path, text)
    return text


def append_tables(text: str, tables: str) -> str:
    """Return a TOML text with further tables at its end."""
    line_breaks = len(text) - len(text.rstrip("\n"))
    gap = "\n" * max(0, 2 - line_breaks) if text.strip() else ""
    new = text + gap + tables
    return new.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in text else new


def remove_tables(text: str, key: str, names: Iterable[str]) -> str:
    """Return a TOML text without some tables under a key; comments before the next table stay."""
    plain = text.removeprefix(BOM)
    document = tomlkit.parse(plain)
    removed = set(names)
    for container in _find_containers(document, key):
        for place, (name, item) in enumerate(container.body):
            if name is not None and name.key in removed:
                comments = _split_comments(item)
                container.remove(name)
                if comments:
                    container.body[place] = (None, tomlkit.ws(comments))
    return text[: len(text) - len(plain)] + tomlkit.dumps(document)


def extract_tables(text: str, key: str, names: Iterable[str]) -> str:
    """Return the tables of some names under a key as they are written, without anything else."""
    document = tomlkit.parse(text.removeprefix(BOM))
    wanted = set(names)
    for container in _find_containers(document, key):
        for name, item in list(container.body):
            _split_comments(item)
            if name is not None and name.key not in wanted:
                container.remove(name)
    for place, (name, _) in enumerate(document.body):
        if name is None or name.key != key:
            document.body[place] = (None, tomlkit.ws(""))
    return tomlkit.dumps(document)


def _find_containers(document: tomlkit.TOMLDocument, key: str) -> list[Container]:
    """Return the parts of a table; there are several if other tables come between them."""
    return [
        item.value
        for name, item in document.body
        if name is not None and name.key == key and isinstance(item, Table | InlineTable)
    ]


def _split_comments(item: Item) -> str:
    """Remove the comments at the end of a table, which belong to the next, and return them."""
    if not isinstance(item, Table):
        return ""
    body = item.value.body
    if body and isinstance(body[-1][1], Table):
        return _split_comments(body[-1][1])
    end = len(body)
    while end and isinstance(body[end - 1][1], Comment | Whitespace):
        end -= 1
    while end < len(body) and isinstance(body[end][1], Whitespace):
        end += 1
    comments = "".join(item.as_string() for _, item in body[end:])
    del body[end:]
    return comments
