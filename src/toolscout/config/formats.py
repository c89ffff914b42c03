"""Other programs' lists of MCP servers, translated into toolscout's own options.

Takes a parsed file of Claude Desktop, Claude Code, Cursor, Windsurf, VS Code or Codex, told
apart by its content; gives tables like those under `[servers]`, with notes on what was left out.
Values are passed on unchecked: `file` checks them.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from toolscout.config.documents import ConfigDocument
from toolscout.config.references import anchor_path, escape
from toolscout.config.servers import ServerConfig, Transport
from toolscout.options import list_options, quote_name
from toolscout.schemas import Json, is_list, is_object

INPUT_PREFIX = "TOOLSCOUT_INPUT_"

TRANSPORTS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
}
SHARED_KEYS = ("command", "args", "env", "cwd", "url", "headers", "disabled")
RENAMED_KEYS = {
    "serverUrl": "url",
    "httpUrl": "url",
    "http_headers": "headers",
    "scopes": "oauth_scopes",
    "startup_timeout_sec": "start_seconds",
    "tool_timeout_sec": "call_seconds",
}
TOOL_LISTS = {
    **dict.fromkeys(("disabledTools", "excludeTools", "disabled_tools"), "deny"),
    **dict.fromkeys(("enabledTools", "includeTools", "enabled_tools"), "allow"),
}
CODEX_KEYS = (
    "bearer_token_env_var",
    "env_http_headers",
    "env_vars",
    "startup_timeout_ms",
    "enabled",
)

_VARIABLE = re.compile(
    r"\$\{(?:input:(?P<input>[^}$]+)|(?P<name>workspaceFolder|workspaceFolderBasename|userHome"
    r"|pathSeparator|/))\}"
)
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")
_GLOB = re.compile(r"([*?[])")
_HERE = re.compile(r"\.{1,2}(?:[/\\]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedServer:
    """One server that another program lists, as a table of our options."""

    name: str
    table: object
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServerTable:
    """A table of servers and the folder that it belongs to."""

    servers: Json
    root: Path | None


def list_entries(
    document: ConfigDocument, project: Path | None = None
) -> list[ListedServer] | None:
    """Return the servers of a file in its order, or None if it has no table for them.

    Claude Code has servers for each project: with a project, only those of its folder and of
    the folders around it are returned.
    """
    if document.is_toml:
        servers = document.tables.get("mcp_servers")
        if servers is None:
            return None
        return [_translate_codex(name, table) for name, table in _list_members(servers)]
    found = list(_find_tables(document, project))
    if not found:
        return None
    return [
        _translate_json(name, entry, table.root)
        for table in found
        for name, entry in table.servers.items()
    ]


def _find_tables(document: ConfigDocument, project: Path | None) -> Iterator[_ServerTable]:
    tables = document.tables
    root = _find_root(document.path)
    nested = tables.get("mcp")
    for owner, key in (
        (tables, "mcpServers"),
        (tables, "servers"),
        (tables, "mcp.servers"),
        (nested if is_object(nested) else {}, "servers"),
    ):
        servers = owner.get(key)
        if is_object(servers):
            yield _ServerTable(servers=servers, root=root)
    for folder, settings in _list_members(tables.get("projects")):
        servers = settings.get("mcpServers") if is_object(settings) else None
        if is_object(servers) and servers and _is_around(folder, project):
            yield _ServerTable(servers=servers, root=Path(folder))


def _find_root(path: Path) -> Path | None:
    """Return the folder in which a project's servers are started."""
    if path.parent.name in (".vscode", ".cursor"):
        return path.parent.parent
    return path.parent if path.name == ".mcp.json" else None


def _is_around(folder: str, project: Path | None) -> bool:
    return project is None or Path(folder) in (project, *project.parents)


def _list_members(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if is_object(value) else []


def _translate_json(name: str, found: object, root: Path | None) -> ListedServer:
    if not is_object(found):
        return ListedServer(name=name, table=found)
    inputs: dict[str, str] = {}
    entry: Json = _map_texts(found, lambda text: _replace_variables(text, root, inputs))
    notes = [_format_input_note(name, *item) for item in inputs.items()]
    table = _translate_common(entry)
    if "type" in entry or "transport" in entry:
        table["transport"] = _read_transport(entry.get("type", entry.get("transport")))
    elif str(table.get("url", "")).partition("?")[0].rstrip("/").endswith("/sse"):
        table["transport"] = "sse"
    if is_object(entry.get("oauth")):
        table["oauth"] = True
    if root is not None and isinstance(cwd := table.get("cwd"), str):
        table["cwd"] = anchor_path(cwd, root)
    elif root is not None and _starts_here(table):
        table["cwd"] = escape(str(root))
    used = {*SHARED_KEYS, *RENAMED_KEYS, *TOOL_LISTS, "type", "transport"}
    return _build_entry(name, table, notes, [key for key in found if key not in used])


def _translate_codex(name: str, found: object) -> ListedServer:
    if not is_object(found):
        return ListedServer(name=name, table=found)
    # Codex knows no references: every string is plain.
    table = _translate_common(_map_texts(found, escape))
    variable = found.get("bearer_token_env_var")
    if isinstance(variable, str):
        table["token"] = f"${{{variable}}}"
    headers = {key: f"${{{value}}}" for key, value in _list_members(found.get("env_http_headers"))}
    passed = {key: f"${{{key}:-}}" for key in _list_variables(found.get("env_vars"))}
    for key, more in (("headers", headers), ("env", passed)):
        if more and is_object(table.setdefault(key, {})):
            table[key] = {**more, **table[key]}
    milliseconds = found.get("startup_timeout_ms")
    if isinstance(milliseconds, int):
        # A huge integer would overflow a float; the range is checked later.
        table.setdefault("start_seconds", min(max(milliseconds, 0), 10**9) / 1000)
    if "enabled" in found:
        table["disabled"] = found["enabled"] is not True
    used = {*SHARED_KEYS, *RENAMED_KEYS, *TOOL_LISTS, *CODEX_KEYS}
    return _build_entry(name, table, [], [key for key in found if key not in used])


def _build_entry(name: str, table: Json, notes: list[str], unused: list[str]) -> ListedServer:
    # Programs accept options of a process for a remote server, and the reverse.
    kind = Transport.STDIO if table.get("command") else Transport.HTTP
    for declared in list_options(ServerConfig):
        fits = not declared.only or kind in declared.only or declared.name in ("command", "url")
        if not fits and table.pop(declared.name, None):
            unused = [*unused, declared.name]
    if unused:
        listed = ", ".join(map(quote_name, unused))
        notes = [*notes, f"Server {quote_name(name)}: toolscout does not use {listed}."]
    return ListedServer(name=name, table=table, notes=tuple(notes))


def _translate_common(entry: Json) -> Json:
    table = {key: entry[key] for key in SHARED_KEYS if entry.get(key) is not None}
    for theirs, ours in RENAMED_KEYS.items():
        if theirs in entry:
            table.setdefault(ours, entry[theirs])
    for theirs, ours in TOOL_LISTS.items():
        if theirs in entry:
            table[ours] = _escape_patterns(entry[theirs])
    for key in ("env", "headers"):
        if is_object(table.get(key)):
            table[key] = {k: _to_text(v) for k, v in table[key].items() if v is not None}
    return table


def _to_text(value: object) -> object:
    """Return a number or boolean as the string that other programs pass on."""
    return json.dumps(value) if isinstance(value, (int, float)) else value


def _escape_patterns(names: object) -> object:
    """Return names as patterns that match only themselves."""
    if not is_list(names):
        return names
    return [_GLOB.sub(r"[\1]", name) if isinstance(name, str) else name for name in names]


def _read_transport(value: object) -> object:
    return TRANSPORTS.get(value.lower(), value) if isinstance(value, str) else value


def _list_variables(values: object) -> Iterator[str]:
    for value in values if is_list(values) else []:
        name = value.get("name") if is_object(value) else value
        if isinstance(name, str):
            yield name


def _starts_here(table: Json) -> bool:
    """Tell whether a command names files relative to the folder it is started in."""
    args = table.get("args")
    words = [table.get("command"), *(args if is_list(args) else [])]
    return any(isinstance(word, str) and _HERE.match(word) for word in words)


def _map_texts(value: Json, change: Callable[[str], str]) -> Json:
    """Return an entry with every string in it changed, also in its lists and tables."""

    def convert(item: object) -> object:
        return change(item) if isinstance(item, str) else item

    def convert_member(item: object) -> object:
        if is_object(item):
            return {key: convert(member) for key, member in item.items()}
        return [convert(member) for member in item] if is_list(item) else convert(item)

    return {key: convert_member(item) for key, item in value.items()}


def _replace_variables(text: str, root: Path | None, inputs: dict[str, str]) -> str:
    """Return a text with references or plain text in place of VS Code's own variables."""
    plain = {"pathSeparator": os.sep, "/": os.sep}
    plain["userHome"] = "${USERPROFILE}" if os.name == "nt" else "${HOME}"
    if root is not None:
        plain |= {"workspaceFolder": escape(str(root)), "workspaceFolderBasename": root.name}

    def replace(match: re.Match[str]) -> str:
        if match["name"]:
            return plain.get(match["name"], match.group())
        asked = match["input"]
        inputs[asked] = INPUT_PREFIX + _UNSAFE.sub("_", asked).strip("_").upper()
        return f"${{{inputs[asked]}}}"

    return _VARIABLE.sub(replace, text)


def _format_input_note(server: str, asked: str, variable: str) -> str:
    return (
        f"Server {quote_name(server)} asks for the input {quote_name(asked)}. "
        f"Set the variable {variable} instead."
    )
