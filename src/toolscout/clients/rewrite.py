"""`Rewrite`: a client's own file with toolscout in place of the servers that it takes over.

Takes a client's file and toolscout's configuration; gives the new text, which differs in its
servers only, so that comments and layout stay. A server that toolscout does not have stays with
its client. The new text is read back and compared with what was meant. `format_diff` shows the
change without secrets. Writing files, and undoing that, is left to `undo`.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

from toolscout.clients.discovery import OWN, Source, is_same_server, starts_own
from toolscout.clients.jsontext import add_member, remove_members
from toolscout.clients.programs import Keys, find_client
from toolscout.config.documents import ConfigDocument, document_from_text
from toolscout.config.edits import append_tables, format_toml, remove_tables
from toolscout.config.file import Config, import_document
from toolscout.config.formats import find_value, list_tables
from toolscout.config.secrets import MASK, mask_args, mask_url
from toolscout.errors import InvalidFile
from toolscout.names import clean_text
from toolscout.schemas import Json, is_list, is_object

BY_HAND = "Edit it by hand; docs/gateway.md shows the entry to write."
CODEX_TABLE = "mcp_servers"
PROFILE_FLAG = "--profile"
LINE_CHARS = 400
CONTEXT_LINES = 2
PLAIN_KEYS = ("type", "transport", "command", "cmd", "cwd")
ARGUMENT_KEYS = ("args", "command")
URL_KEYS = ("url", "serverUrl", "httpUrl", "uri")

_BOM = "\ufeff"
_LIST = re.compile(r"\[\n[^\[\]{}]*\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a client starts toolscout."""

    command: str
    args: tuple[str, ...]
    profile: str = ""
    """The profile that limits the client; empty if it sees everything."""

    def to_entry(self, program: str) -> Json:
        """Return the entry for a client's file."""
        limit = (PROFILE_FLAG, self.profile) if self.profile else ()
        return find_client(program).build_entry(self.command, (*self.args, *limit))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One client's file before and after."""

    source: Source
    old: str
    new: str
    taken: tuple[str, ...]
    """The servers that only toolscout starts from now on."""
    servers: tuple[str, ...]
    """Their names in toolscout's configuration."""
    kept: tuple[str, ...]
    """Those that stay with the client, because toolscout does not have them."""
    profile: str
    """The profile that toolscout's entry names; empty if the client sees everything."""
    was_own: bool
    """Whether the client started toolscout before."""

    @property
    def is_change(self) -> bool:
        """Whether anything has to be written."""
        return self.old != self.new


def read_text(path: Path) -> str:
    """Return the content of a client's file with its line breaks and byte order mark."""
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        raise InvalidFile(str(path), "is not UTF-8", remedy=BY_HAND) from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise InvalidFile(str(path), problem, remedy=BY_HAND) from None


def parse_document(path: Path, text: str) -> ConfigDocument:
    """Return the tables of a client's file; an empty file has none."""
    plain = text.removeprefix(_BOM)
    if not plain.strip():
        return ConfigDocument(path=path, is_toml=path.suffix == ".toml", tables={})
    return document_from_text(path, plain)


def plan_rewrite(
    source: Source,
    launch: Launch,
    config: Config,
    folders: Collection[Path] = (),
    *,
    always: bool = False,
) -> Rewrite:
    """Return a client's file as it should be; `always` adds toolscout even if it takes no server.

    Of Claude Code's servers for projects, only those for these folders are taken. A profile that
    the client's entry for toolscout names already stays.
    """
    old = read_text(source.path)
    document = parse_document(source.path, old)
    places = list_places(document, folders)
    own = _list_own_entries(document, places)
    profiles = [find_option(_list_words(entry), PROFILE_FLAG) for _, entry in own]
    if any(profiles) and not launch.profile:
        launch = replace(launch, profile=next(filter(None, profiles)))
    taken = {keys: _find_taken(document, keys, folders, config) for keys in places}
    names = [name for found in taken.values() for name in found]
    entry = launch.to_entry(source.program)
    new = old
    if names or (always and [found for _, found in own] != [entry]):
        gone = {keys: [*found, *find_own_names(document, keys)] for keys, found in taken.items()}
        new = _edit_text(source, document, old, gone, entry)
    every = [name for keys in places for name in find_table(document.tables, keys)]
    owned = [name for name, _ in own]
    return Rewrite(
        source=source,
        old=old,
        new=new,
        taken=tuple(names),
        servers=tuple(dict.fromkeys(one for found in taken.values() for one in found.values())),
        kept=tuple(name for name in every if name not in (*names, *owned)),
        profile=launch.profile,
        was_own=bool(own),
    )


def find_moved_servers(source: Source, backup: Path, config: Config) -> list[str]:
    """Return the names, in toolscout's configuration, of the servers in a client's old file."""
    document = parse_document(source.path, read_text(backup))
    places = list_places(document, None)
    return [name for keys in places for name in _find_taken(document, keys, None, config).values()]


def format_manual_change(source: Source, launch: Launch, taken: Iterable[str]) -> list[str]:
    """Return what to change by hand in a file that toolscout does not rewrite."""
    [key] = find_client(source.program).keys
    entry = launch.to_entry(source.program)
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items()]
    if key == "mcpServers":  # a list of servers
        block = [f"  {'  ' if place else '- '}{line}" for place, line in enumerate(lines)]
    else:
        block = [f"  {OWN}:", *(f"    {line}" for line in lines)]
    gone = ", ".join(taken)
    remove = f"remove {gone} and " if gone else ""
    return [f"Under '{key}' in {source.path}, {remove}add:", f"{key}:", *block]


def list_places(document: ConfigDocument, folders: Collection[Path] | None) -> list[Keys]:
    """Return the keys of every table of servers; of projects, those in these folders, or all."""
    tables = document.tables
    if document.is_toml:
        return [(CODEX_TABLE,)] if is_object(tables.get(CODEX_TABLE)) else []
    projects = [
        ("projects", folder, "mcpServers")
        for folder in find_table(tables, ("projects",))
        if folders is None or Path(folder) in folders
    ]
    listed = [keys for keys in projects if is_object(find_value(tables, keys))]
    return [*map(tuple, list_tables(tables)), *listed]


def find_table(tables: Json, keys: Sequence[str]) -> Json:
    """Return the table under some keys, an empty one if there is none."""
    found = find_value(tables, keys)
    return found if is_object(found) else {}


def find_own_names(document: ConfigDocument, keys: Keys) -> list[str]:
    """Return the names under which a table of servers lists toolscout itself."""
    table = find_table(document.tables, keys)
    return [name for name, entry in table.items() if is_own_entry(entry)]


def is_own_entry(entry: object) -> bool:
    """Tell whether an entry in a client's file starts toolscout itself."""
    if not is_object(entry):
        return False
    words = _list_words(entry)
    url = next((entry[key] for key in URL_KEYS if isinstance(entry.get(key), str)), "")
    return starts_own(words[0] if words else "", url, words[1:])


def find_config_files(document: ConfigDocument) -> list[Path]:
    """Return the configuration files that a client's entries for toolscout name."""
    entries = _list_own_entries(document, list_places(document, None))
    named = [find_option(_list_words(entry), "--config") for _, entry in entries]
    return [Path(name) for name in named if name]


def _list_own_entries(document: ConfigDocument, places: Iterable[Keys]) -> list[tuple[str, object]]:
    """Return the entries for toolscout itself in some tables of servers, with their names."""
    entries = [item for keys in places for item in find_table(document.tables, keys).items()]
    return [(name, entry) for name, entry in entries if is_own_entry(entry)]


def _list_words(entry: object) -> list[str]:
    """Return the command of an entry and its arguments."""
    if not is_object(entry):
        return []
    command = entry.get("command", entry.get("cmd"))
    args = entry.get("args")
    words = [*(command if is_list(command) else [command]), *(args if is_list(args) else [])]
    return [word if isinstance(word, str) else "" for word in words]


def find_option(words: Sequence[str], flag: str) -> str:
    """Return the word that follows a flag; empty if there is none."""
    place = words.index(flag) + 1 if flag in words else len(words)
    return words[place] if place < len(words) else ""


def check_edit(path: Path, text: str, wanted: Json) -> str:
    """Return a text if it contains these tables; raise otherwise."""
    try:
        is_meant = parse_document(path, text).tables == wanted
    except (InvalidFile, RecursionError):
        is_meant = False
    if not is_meant:
        problem = "lists its servers in a way that toolscout cannot change safely"
        raise InvalidFile(str(path), problem, remedy=BY_HAND)
    return text


def _edit_text(
    source: Source, document: ConfigDocument, text: str, gone: dict[Keys, list[str]], entry: Json
) -> str:
    """Return a text without some servers and with toolscout; raise if that is not safe."""
    # The entry belongs among the servers for all projects.
    usual = find_client(source.program).keys
    if usual == ("servers",) and source.path.name == "settings.json":
        usual = ("mcp", "servers")  # VS Code before it had a file for servers
    home = next((keys for keys in gone if keys[0] != "projects"), usual)
    wanted = deepcopy(document.tables)
    for keys, names in gone.items():
        for name in names:
            find_table(wanted, keys).pop(name, None)
    add_table(wanted, home, {OWN: entry})
    if document.is_toml:
        new = remove_tables(text, CODEX_TABLE, gone.get(home, []))
        new = append_tables(new, format_toml({CODEX_TABLE: {OWN: entry}}))
    else:
        new = text or "{}\n"
        for keys, names in gone.items():
            new = remove_members(new, keys, names)
        new = add_member(new, home, f'"{OWN}": {json.dumps(entry, indent=2, ensure_ascii=False)}')
    return check_edit(document.path, new, wanted)


def _find_taken(
    document: ConfigDocument, keys: Keys, folders: Collection[Path] | None, config: Config
) -> dict[str, str]:
    """Return the servers in a table that toolscout has as well, with their names there."""
    taken: dict[str, str] = {}
    for name, entry in find_table(document.tables, keys).items():
        if is_own_entry(entry) or "${input:" in json.dumps(entry, default=str):
            continue  # only VS Code can ask for an input
        alone: Json = {}
        add_table(alone, keys, {name: entry})
        part = replace(document, tables=alone)
        found = import_document(part, folders)
        for one in found.servers if found else ():
            same = [server for server in config.servers if is_same_server(one, server)]
            exact = [server for server in same if server.starts_like(one)]
            for server in [*exact, *same][:1]:
                taken[name] = server.name
    return taken


def add_table(tables: Json, keys: Keys, members: Json) -> None:
    """Add members to the table under some keys, which is created if it is missing."""
    for key in keys:
        tables = tables.setdefault(key, {})
    tables.update(members)


def format_diff(path: Path, old: str, new: str) -> list[str]:
    """Return the difference between two texts of a client's file, without secrets.

    Only tables of servers are shown, since nothing else changes. Every string in them is masked
    that is not a command, an argument, an address or a type.
    """
    before = parse_document(path, old)
    after = parse_document(path, new)
    places = [
        keys
        for keys in dict.fromkeys((*list_places(before, None), *list_places(after, None)))
        if find_table(before.tables, keys) != find_table(after.tables, keys)
    ]
    titles = (f"{path} (as it is)", f"{path} (as it will be)")
    one, other = (_format_servers(document, places) for document in (before, after))
    lines = difflib.unified_diff(one, other, *titles, lineterm="", n=CONTEXT_LINES)
    return [clean_text(line, LINE_CHARS) for line in lines]


def _format_servers(document: ConfigDocument, places: Iterable[Keys]) -> list[str]:
    masked: Json = {}
    for keys in places:
        table = find_table(document.tables, keys)
        add_table(masked, keys, {name: _mask_entry(entry) for name, entry in table.items()})
    if document.is_toml:
        return format_toml(masked).splitlines()

    def join_lines(match: re.Match[str]) -> str:
        return " ".join(match.group().split()).replace("[ ", "[").replace(" ]", "]")

    text = json.dumps(masked, indent=2, ensure_ascii=False)
    return _LIST.sub(join_lines, text).splitlines()


def _mask_entry(entry: object) -> object:
    if not is_object(entry):
        return _mask_texts(entry)
    return {key: _mask_member(key, value) for key, value in entry.items()}


def _mask_member(key: str, value: object) -> object:
    if key in ARGUMENT_KEYS and is_list(value):
        texts = [one for one in value if isinstance(one, str)]
        return list(mask_args(texts)) if len(texts) == len(value) else _mask_texts(value)
    if key in URL_KEYS and isinstance(value, str):
        return mask_url(value)
    return value if key in PLAIN_KEYS and isinstance(value, str) else _mask_texts(value)


def _mask_texts(value: object) -> object:
    if is_object(value):
        return {key: _mask_texts(member) for key, member in value.items()}
    if is_list(value):
        return [_mask_texts(member) for member in value]
    return MASK if isinstance(value, str) else value
