"""Other programs' lists of MCP servers, put into toolscout's own words.

Takes a parsed file of Claude Desktop, Claude Code, Cursor, Windsurf, VS Code or Codex, told
apart by what it holds; gives tables such as stand under `[servers]`, with notes on what was not
taken over. Values are passed on unchecked: `config` checks them.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from toolscout.config.documents import Document
from toolscout.config.references import anchor_path, escape
from toolscout.names import to_one_line
from toolscout.schemas import Json, is_list, is_object

INPUT_PREFIX = "TOOLSCOUT_INPUT_"
NAME_SHOWN = 60

TRANSPORTS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
}
PLAIN = ("command", "args", "env", "cwd", "url", "headers", "disabled")
SAME = {
    "serverUrl": "url",
    "httpUrl": "url",
    "http_headers": "headers",
    "scopes": "oauth_scopes",
    "startup_timeout_sec": "start_seconds",
    "tool_timeout_sec": "call_seconds",
}
LISTS = {
    **dict.fromkeys(("disabledTools", "excludeTools", "disabled_tools"), "deny"),
    **dict.fromkeys(("enabledTools", "includeTools", "enabled_tools"), "allow"),
}
OVER_HTTP = ("headers", "token", "oauth", "oauth_scopes")
OF_A_PROCESS = ("args", "env", "cwd")
CODEX_ONLY = (
    *("bearer_token_env_var", "env_http_headers", "env_vars"),
    *("startup_timeout_ms", "enabled"),
)

_VARIABLE = re.compile(
    r"\$\{(?:input:(?P<input>[^}$]+)|(?P<name>workspaceFolder|workspaceFolderBasename|userHome"
    r"|pathSeparator|/))\}"
)
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")
_GLOB = re.compile(r"([*?[])")
_HERE = re.compile(r"\.{1,2}(?:[/\\]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One server as another program lists it, in our words."""

    name: str
    table: object
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where entries stand: a table of servers, and the folder that they belong to."""

    servers: Json
    root: Path | None


def listed_servers(document: Document, project: Path | None = None) -> list[Entry] | None:
    """Return the servers of a file in its order, or nothing where it has no place for them.

    Claude Code keeps servers for each project: with a project, only those of its folder and of
    the folders around it are returned.
    """
    if document.is_toml:
        servers = document.tables.get("mcp_servers")
        if servers is None:
            return None
        return [_codex_entry(name, table) for name, table in _members(servers)]
    places = list(_places(document, project))
    if not places:
        return None
    return [
        _json_entry(name, table, place.root)
        for place in places
        for name, table in place.servers.items()
    ]


def _places(document: Document, project: Path | None) -> Iterator[_Place]:
    tables, root = document.tables, _root(document.path)
    nested = tables.get("mcp")
    for owner, key in (
        (tables, "mcpServers"),
        (tables, "servers"),
        (tables, "mcp.servers"),
        (nested if is_object(nested) else {}, "servers"),
    ):
        servers = owner.get(key)
        if is_object(servers):
            yield _Place(servers=servers, root=root)
    for folder, settings in _members(tables.get("projects")):
        servers = settings.get("mcpServers") if is_object(settings) else None
        if is_object(servers) and servers and _is_around(folder, project):
            yield _Place(servers=servers, root=Path(folder))


def _root(path: Path) -> Path | None:
    """Return the folder in which a project's servers are started."""
    if path.parent.name in (".vscode", ".cursor"):
        return path.parent.parent
    return path.parent if path.name == ".mcp.json" else None


def _is_around(folder: str, project: Path | None) -> bool:
    return project is None or Path(folder) in (project, *project.parents)


def _members(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if is_object(value) else []


def _json_entry(name: str, found: object, root: Path | None) -> Entry:
    if not is_object(found):
        return Entry(name=name, table=found)
    inputs: dict[str, str] = {}
    entry: Json = _mapped(found, lambda text: _without_variables(text, root, inputs))
    notes = [_input_note(name, *item) for item in inputs.items()]
    table = _common(entry)
    if "type" in entry or "transport" in entry:
        table["transport"] = _transport(entry.get("type", entry.get("transport")))
    elif str(table.get("url", "")).partition("?")[0].rstrip("/").endswith("/sse"):
        table["transport"] = "sse"
    if is_object(entry.get("oauth")):
        table["oauth"] = True
    if root is not None and isinstance(cwd := table.get("cwd"), str):
        table["cwd"] = anchor_path(cwd, root)
    elif root is not None and _starts_here(table):
        table["cwd"] = escape(str(root))
    used = {*PLAIN, *SAME, *LISTS, "type", "transport"}
    return _entry(name, table, notes, [key for key in found if key not in used])


def _codex_entry(name: str, found: object) -> Entry:
    if not is_object(found):
        return Entry(name=name, table=found)
    # Codex takes every text as it is.
    table = _common(_mapped(found, escape))
    variable = found.get("bearer_token_env_var")
    if isinstance(variable, str):
        table["token"] = f"${{{variable}}}"
    headers = {key: f"${{{value}}}" for key, value in _members(found.get("env_http_headers"))}
    passed = {key: f"${{{key}:-}}" for key in _variable_names(found.get("env_vars"))}
    for key, more in (("headers", headers), ("env", passed)):
        if more and is_object(table.setdefault(key, {})):
            table[key] = {**more, **table[key]}
    milliseconds = found.get("startup_timeout_ms")
    if isinstance(milliseconds, int):
        # Kept within what a float can hold; the range is checked later.
        table.setdefault("start_seconds", min(max(milliseconds, 0), 10**9) / 1000)
    if "enabled" in found:
        table["disabled"] = found["enabled"] is not True
    used = {*PLAIN, *SAME, *LISTS, *CODEX_ONLY}
    return _entry(name, table, [], [key for key in found if key not in used])


def _entry(name: str, table: Json, notes: list[str], unused: list[str]) -> Entry:
    # Programs accept keys that say nothing about a server of the other kind.
    odd = OVER_HTTP if table.get("command") else OF_A_PROCESS
    unused = [*unused, *(key for key in odd if table.pop(key, None))]
    if unused:
        listed = ", ".join(repr(to_one_line(key, NAME_SHOWN)) for key in unused)
        shown = to_one_line(name, NAME_SHOWN)
        notes = [*notes, f"Of server {shown!r}, toolscout does not use {listed}."]
    return Entry(name=name, table=table, notes=tuple(notes))


def _common(entry: Json) -> Json:
    table = {key: entry[key] for key in PLAIN if entry.get(key) is not None}
    for theirs, ours in SAME.items():
        if theirs in entry:
            table.setdefault(ours, entry[theirs])
    for theirs, ours in LISTS.items():
        if theirs in entry:
            table[ours] = _patterns(entry[theirs])
    for key in ("env", "headers"):
        if is_object(table.get(key)):
            table[key] = {k: _text(v) for k, v in table[key].items() if v is not None}
    return table


def _text(value: object) -> object:
    """Return a number, true or false as other programs hand it over."""
    return json.dumps(value) if isinstance(value, (int, float)) else value


def _patterns(names: object) -> object:
    """Return names as patterns that match only themselves."""
    if not is_list(names):
        return names
    return [_GLOB.sub(r"[\1]", name) if isinstance(name, str) else name for name in names]


def _transport(value: object) -> object:
    return TRANSPORTS.get(value.lower(), value) if isinstance(value, str) else value


def _variable_names(values: object) -> Iterator[str]:
    for value in values if is_list(values) else []:
        name = value.get("name") if is_object(value) else value
        if isinstance(name, str):
            yield name


def _starts_here(table: Json) -> bool:
    """Tell whether a command means files of the folder in which it is started."""
    args = table.get("args")
    words = [table.get("command"), *(args if is_list(args) else [])]
    return any(isinstance(word, str) and _HERE.match(word) for word in words)


def _mapped(value: object, change: Callable[[str], str]) -> Json:
    """Return an entry with every text in it changed; nothing useful lies deeper than a table."""

    def changed(item: object) -> object:
        return change(item) if isinstance(item, str) else item

    def inner(item: object) -> object:
        if is_object(item):
            return {key: changed(member) for key, member in item.items()}
        return [changed(member) for member in item] if is_list(item) else changed(item)

    return {key: inner(item) for key, item in value.items()} if is_object(value) else {}


def _without_variables(text: str, root: Path | None, inputs: dict[str, str]) -> str:
    """Return a text in which VS Code's own variables are references or plain text."""
    plain = {"pathSeparator": os.sep, "/": os.sep}
    plain["userHome"] = "${USERPROFILE}" if os.name == "nt" else "${HOME}"
    if root is not None:
        plain |= {"workspaceFolder": escape(str(root)), "workspaceFolderBasename": root.name}

    def replaced(match: re.Match[str]) -> str:
        if match["name"]:
            return plain.get(match["name"], match.group())
        asked = match["input"]
        inputs[asked] = INPUT_PREFIX + _UNSAFE.sub("_", asked).strip("_").upper()
        return f"${{{inputs[asked]}}}"

    return _VARIABLE.sub(replaced, text)


def _input_note(server: str, asked: str, variable: str) -> str:
    shown = to_one_line(asked, NAME_SHOWN)
    return (
        f"Server {to_one_line(server, NAME_SHOWN)!r} asks for the input {shown!r}. "
        f"Set the variable {variable} in its place."
    )
