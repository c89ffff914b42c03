"""`Rewrite`: a client's own file with toolscout in place of the servers that it takes over.

Takes a client's file and toolscout's configuration; gives the new text, in which all that is not
a server stays as it is, comments and layout too. A server that toolscout does not have stays
with its client. What was written is read back and has to say what was meant. Putting files in
place, and taking that back, is the business of `undos`.

What changes in a client's file, as lines that a person may see.

Only tables of servers are shown, because nothing else is changed. Every text in them that may be
a secret is masked: what is neither command, argument, address nor kind.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from toolscout.clients.discovery import OWN, Source, starts_own
from toolscout.clients.jsontext import object_at, with_members
from toolscout.config.documents import Document, document_from_text, toml_text
from toolscout.config.edits import table_parts, with_breaks_of
from toolscout.config.file import Config, imported
from toolscout.config.secrets import MASK, mask_args, mask_url
from toolscout.errors import InvalidFile
from toolscout.names import clean_text
from toolscout.schemas import Json, is_list, is_object

BY_HAND = "Change it by hand; see docs/gateway.md for the entry to write."
CODEX_TABLE = "mcp_servers"
TYPED = ("Claude Code", "VS Code")
"""Programs that write the kind of a server beside its command."""
_TOP = (("mcpServers",), ("servers",), ("mcp.servers",), ("mcp", "servers"))
_BOM = "\ufeff"

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a client starts toolscout."""

    command: str
    args: tuple[str, ...]

    def entry(self, program: str) -> Json:
        """Return what a client's file says of it."""
        kind = {"type": "stdio"} if program in TYPED else {}
        return {**kind, "command": self.command, "args": list(self.args)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One client's file before and after."""

    source: Source
    old: str
    new: str
    taken: tuple[str, ...]
    """The servers that only toolscout starts from then on."""
    kept: tuple[str, ...]
    """Those that stay with the client, because toolscout does not have them."""

    @property
    def is_change(self) -> bool:
        """Whether anything is to be written."""
        return self.old != self.new


def read_text(path: Path) -> str:
    """Return what a client's file holds, line breaks and byte order mark as they are."""
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        raise InvalidFile(str(path), "is not UTF-8", remedy=BY_HAND) from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise InvalidFile(str(path), problem, remedy=BY_HAND) from None


def parsed(path: Path, text: str) -> Document:
    """Return the tables of a client's file; an empty one has none."""
    plain = text.removeprefix(_BOM)
    if not plain.strip():
        return Document(path=path, is_toml=path.suffix == ".toml", tables={})
    return document_from_text(path, plain)


def rewritten(
    source: Source, launch: Launch, config: Config, project: Path, *, always: bool = False
) -> Rewrite:
    """Return a client's file as it should be; `always` adds toolscout where nothing is taken.

    Of Claude Code's servers of projects, only those of this project and around it are taken.
    """
    old = read_text(source.path)
    document = parsed(source.path, old)
    places = server_places(document, project)
    taken = {keys: _taken(document, keys, project, config) for keys in places}
    names = [name for found in taken.values() for name in found]
    new = old
    if names or (always and not _own_names(document, places)):
        gone = {keys: [*found, *_own_at(document, keys)] for keys, found in taken.items()}
        new = edited(document, old, gone, launch.entry(source.program), _home(document, places))
    stay = [name for keys in places for name in table_at(document.tables, keys)]
    kept = [name for name in stay if name not in (*names, *_own_names(document, places))]
    return Rewrite(source=source, old=old, new=new, taken=tuple(names), kept=tuple(kept))


def server_places(document: Document, project: Path | None) -> list[Keys]:
    """Return the keys that lead to each table of servers; with a project, only of those around."""
    tables = document.tables
    if document.is_toml:
        return [(CODEX_TABLE,)] if is_object(tables.get(CODEX_TABLE)) else []
    found = [keys for keys in _TOP if is_object(_at(tables, keys))]
    folders = table_at(tables, ("projects",))
    found += [
        ("projects", folder, "mcpServers")
        for folder in folders
        if project is None or Path(folder) in (project, *project.parents)
    ]
    return [keys for keys in found if is_object(_at(tables, keys))]


def table_at(tables: Json, keys: Sequence[str]) -> Json:
    """Return the table to which keys lead, an empty one where there is none."""
    found = _at(tables, keys)
    return found if is_object(found) else {}


def is_own_entry(entry: object) -> bool:
    """Tell whether what a client's file says of a server means toolscout itself."""
    if not is_object(entry):
        return False
    args = entry.get("args")
    words = [word for word in args if isinstance(word, str)] if is_list(args) else []
    return starts_own(_text(entry.get("command")), _text(entry.get("url")), words)


def edited(
    document: Document, text: str, gone: dict[Keys, list[str]], entry: Json, home: Keys
) -> str:
    """Return a text without some servers and with toolscout; raises where that is not safe."""
    wanted = deepcopy(document.tables)
    for keys, names in gone.items():
        for name in names:
            table_at(wanted, keys).pop(name, None)
    _put(wanted, home, {OWN: entry})
    if document.is_toml:
        new = without_tables(text, gone.get(home, []))
        new = with_tables(new, toml_text({CODEX_TABLE: {OWN: entry}}))
    else:
        new = _without_members(text or "{}\n", gone)
        new = with_member(new, home, f'"{OWN}": {json.dumps(entry, indent=2, ensure_ascii=False)}')
    return checked(document.path, new, wanted)


def checked(path: Path, text: str, wanted: Json) -> str:
    """Return a text that says this, or raise."""
    try:
        is_meant = parsed(path, text).tables == wanted
    except (InvalidFile, RecursionError):
        is_meant = False
    if not is_meant:
        problem = "lists its servers in a way that cannot be changed safely"
        raise InvalidFile(str(path), problem, remedy=BY_HAND)
    return text


def with_member(text: str, keys: Keys, member: str) -> str:
    """Return a JSON text with one member more in an object, which is made where it is missing."""
    span = object_at(text.removeprefix(_BOM), keys)
    if span is None and keys:
        inner = "\n".join(f"  {line}" for line in member.split("\n"))
        return with_member(text, keys[:-1], f"{json.dumps(keys[-1])}: {{\n{inner}\n}}")
    if span is None:
        return text
    return _marked(text, with_members(text.removeprefix(_BOM), span, span.members, [member]))


def with_tables(text: str, tables: str) -> str:
    """Return a TOML text with further tables at its end."""
    gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
    return with_breaks_of(text, text + gap + tables)


def without_members(text: str, keys: Keys, names: Iterable[str]) -> str:
    """Return a JSON text without some members of an object."""
    plain, left_out = text.removeprefix(_BOM), set(names)
    span = object_at(plain, keys)
    if span is None or not left_out:
        return text
    keep = [member for member in span.members if member.key not in left_out]
    return _marked(text, with_members(plain, span, keep, []))


def without_tables(text: str, names: Iterable[str]) -> str:
    """Return a TOML text without the tables of some servers of Codex."""
    lines = text.splitlines(keepends=True)
    cut = {
        number
        for name in names
        for part in table_parts(lines, CODEX_TABLE, name)
        for number in part
    }
    return "".join(line for number, line in enumerate(lines) if number not in cut)


def _without_members(text: str, gone: dict[Keys, list[str]]) -> str:
    for keys, names in gone.items():
        text = without_members(text, keys, names)
    return text


def _taken(document: Document, keys: Keys, project: Path, config: Config) -> list[str]:
    """Return the servers at a place that toolscout has as well."""
    return [
        name
        for name, entry in table_at(document.tables, keys).items()
        if not is_own_entry(entry) and _is_had(document, keys, name, project, config)
    ]


def _is_had(document: Document, keys: Keys, name: str, project: Path, config: Config) -> bool:
    entry = table_at(document.tables, keys)[name]
    if "${input:" in json.dumps(entry):
        return False  # only VS Code can ask for it
    alone: Json = {}
    _put(alone, keys, {name: entry})
    part = Document(path=document.path, is_toml=document.is_toml, tables=alone)
    found = imported(part, project)
    servers = found.servers if found else ()
    return any(server.starts_like(one) for one in servers for server in config.servers)


def _own_names(document: Document, places: Iterable[Keys]) -> list[str]:
    return [name for keys in places for name in _own_at(document, keys)]


def _own_at(document: Document, keys: Keys) -> Iterator[str]:
    for name, entry in table_at(document.tables, keys).items():
        if is_own_entry(entry):
            yield name


def _home(document: Document, places: Sequence[Keys]) -> Keys:
    """Return where toolscout's entry belongs: where servers for all projects are."""
    if document.is_toml:
        return (CODEX_TABLE,)
    usual = _TOP[0]
    if document.path.name == "settings.json":
        usual = _TOP[3]
    elif document.path.name == "mcp.json" and document.path.parent.name != ".cursor":
        usual = _TOP[1]
    return next((keys for keys in places if keys in _TOP), usual)


def _put(tables: Json, keys: Keys, members: Json) -> None:
    for key in keys:
        tables = tables.setdefault(key, {})
    tables.update(members)


def _at(tables: Json, keys: Sequence[str]) -> object:
    found: object = tables
    for key in keys:
        found = found.get(key) if is_object(found) else None
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _marked(old: str, new: str) -> str:
    return _BOM + new if old.startswith(_BOM) else new


LINE_SHOWN = 400
CONTEXT_LINES = 2
PLAIN = ("type", "transport", "command", "cwd")
ADDRESSES = ("url", "serverUrl", "httpUrl")


_LIST = re.compile(r"\[\n[^\[\]{}]*\]")


def shown_diff(path: Path, old: str, new: str) -> list[str]:
    """Return the difference between two texts of a client's file, without secrets."""
    before, after = parsed(path, old), parsed(path, new)
    every = dict.fromkeys((*server_places(before, None), *server_places(after, None)))
    places = [keys for keys in every if _differs(before, after, keys)]
    lines = difflib.unified_diff(
        _lines(before, places),
        _lines(after, places),
        f"{path} (as it is)",
        f"{path} (as it will be)",
        lineterm="",
        n=CONTEXT_LINES,
    )
    return [clean_text(line, LINE_SHOWN) for line in lines]


def _differs(before: Document, after: Document, keys: Keys) -> bool:
    return table_at(before.tables, keys) != table_at(after.tables, keys)


def _lines(document: Document, places: Iterable[Keys]) -> list[str]:
    shown: Json = {}
    for keys in places:
        inner = shown
        for key in keys:
            inner = inner.setdefault(key, {})
        table = table_at(document.tables, keys)
        inner.update({name: _masked_entry(entry) for name, entry in table.items()})
    if document.is_toml:
        return toml_text(shown).splitlines()
    text = json.dumps(shown, indent=2, ensure_ascii=False)
    return _LIST.sub(_on_one_line, text).splitlines()


def _on_one_line(match: re.Match[str]) -> str:
    return " ".join(match.group().split()).replace("[ ", "[").replace(" ]", "]")


def _masked_entry(entry: object) -> object:
    if not is_object(entry):
        return _masked(entry)
    return {key: _masked_member(key, value) for key, value in entry.items()}


def _masked_member(key: str, value: object) -> object:
    if key == "args" and is_list(value):
        texts = [one for one in value if isinstance(one, str)]
        return list(mask_args(texts)) if len(texts) == len(value) else _masked(value)
    if key in ADDRESSES and isinstance(value, str):
        return mask_url(value)
    return value if key in PLAIN and isinstance(value, str) else _masked(value)


def _masked(value: object) -> object:
    if is_object(value):
        return {key: _masked(member) for key, member in value.items()}
    if is_list(value):
        return [_masked(member) for member in value]
    return MASK if isinstance(value, str) else value
