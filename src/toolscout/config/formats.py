"""Other programs' lists of MCP servers, translated into toolscout's own options.

Takes a parsed file of one of the programs in `clients.programs` and gives tables like those under
`[servers]`, with notes on the parts that were left out. The content of a file shows whose it is.
`file` checks the values.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from toolscout.config.documents import ConfigDocument
from toolscout.config.references import anchor_path, escape
from toolscout.config.servers import ServerConfig, Transport
from toolscout.options import list_options, quote_name
from toolscout.schemas import Json, is_list, is_object

SERVER_TABLES = (
    ("mcpServers",),
    ("servers",),
    ("mcp.servers",),
    ("mcp", "servers"),
    ("context_servers",),
    ("amp.mcpServers",),
    ("mcp",),
)
"""Where JSON files list their servers."""
TRANSPORTS = {
    **dict.fromkeys(("stdio", "local"), "stdio"),
    **dict.fromkeys(("http", "streamable-http", "streamable_http", "streamablehttp"), "http"),
    "sse": "sse",
}
GOOSE_TYPES = ("stdio", "sse", "streamable_http")
"""Other extensions of Goose are part of it."""
SHARED_KEYS = ("command", "args", "env", "cwd", "url", "headers", "disabled")
RENAMED_KEYS = {
    "serverUrl": "url",
    "httpUrl": "url",
    "uri": "url",
    "cmd": "command",
    "environment": "env",
    "envs": "env",
    "workingDirectory": "cwd",
    "http_headers": "headers",
    "scopes": "oauth_scopes",
    "startup_timeout_sec": "start_seconds",
    "tool_timeout_sec": "call_seconds",
}
TOOL_LISTS = {
    **dict.fromkeys(("disabledTools", "excludeTools", "disabled_tools"), "deny"),
    **dict.fromkeys(("enabledTools", "includeTools", "enabled_tools", "tools"), "allow"),
}
OTHER_KEYS = ("type", "transport", "enabled", "env_keys", "requestOptions")
"""Keys that are used in another way."""
LABEL_KEYS = ("name", "source", "description", "bundled")
"""Keys that only name an entry."""
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
# References of OpenCode, `{env:NAME}` and `{file:PATH}`, and of Continue, `${{ secrets.NAME }}`.
_BRACED = re.compile(
    r"(?<!\$)\{(?:env:(\w+)|(file:[^{}$]+))\}|\$\{\{\s*(?:secrets|inputs)\.(\w+)\s*\}\}"
)
_DOLLAR = re.compile(r"\$([A-Za-z_]\w*)")
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")
_GLOB = re.compile(r"([*?[])")
_HERE = re.compile(r"\.{1,2}(?:[/\\]|$)")


ListedServer = tuple[str, object, list[str]]
"""The name of a server, a table of our options, and notes."""


def list_entries(
    document: ConfigDocument, folders: Collection[Path] | None
) -> list[ListedServer] | None:
    """Return the servers of a file in its order, or None if it has no table for them.

    Of the servers that Claude Code has for a project, only those for these folders are returned;
    without folders, all.
    """
    if document.is_toml:
        servers = document.tables.get("mcp_servers")
        if servers is None:
            return None
        return [_translate_codex(name, table) for name, table in _list_members(servers)]
    found = list(_find_tables(document, folders))
    if not found:
        return None
    # Gemini CLI writes variables without braces; for others, a dollar sign is plain text.
    has_dollars = document.path.parent.name == ".gemini"
    return [
        _translate_json(name, entry, root, has_dollars=has_dollars)
        for servers, root in found
        for name, entry in servers.items()
    ]


def list_tables(tables: Json) -> list[Sequence[str]]:
    """Return the keys of each table of servers in a JSON file, without those of projects."""
    found: list[Sequence[str]] = []
    for keys in SERVER_TABLES:
        table = find_value(tables, keys)
        # Gemini CLI and VS Code have other settings under the key that OpenCode uses for servers.
        if is_object(table) and (keys != ("mcp",) or any(map(_is_server, table.values()))):
            found.append(keys)
    return found


def find_value(tables: Json, keys: Sequence[str]) -> object:
    """Return what is under some keys, or None."""
    found: object = tables
    for key in keys:
        found = found.get(key) if is_object(found) else None
    return found


def _is_server(entry: object) -> bool:
    return is_object(entry) and ("command" in entry or "url" in entry)


def _find_tables(
    document: ConfigDocument, folders: Collection[Path] | None
) -> Iterator[tuple[Json, Path | None]]:
    """Yield each table of servers with the folder in which they are started, if it has one."""
    tables = document.tables
    path = document.path
    root = path.parent if path.name == ".mcp.json" else None
    if path.parent.name in (".vscode", ".cursor"):
        root = path.parent.parent
    for keys in list_tables(tables):
        servers = find_value(tables, keys)
        if is_object(servers):
            kept = {name: entry for name, entry in servers.items() if _is_server(entry)}
            yield (kept if keys == ("mcp",) else servers), root
    listed = tables.get("mcpServers")
    if document.is_yaml and is_list(listed):
        yield {str(one.get("name")): one for one in listed if is_object(one)}, root
    extensions = tables.get("extensions")
    if document.is_yaml and is_object(extensions):
        kinds = {name: find_value(extensions, (name, "type")) for name in extensions}
        yield {name: extensions[name] for name in extensions if kinds[name] in GOOSE_TYPES}, root
    for folder, settings in _list_members(tables.get("projects")):
        servers = settings.get("mcpServers") if is_object(settings) else None
        is_wanted = folders is None or Path(folder) in folders
        if is_object(servers) and servers and is_wanted:
            yield servers, Path(folder)


def _list_members(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if is_object(value) else []


def _translate_json(
    name: str, found: object, root: Path | None, *, has_dollars: bool
) -> ListedServer:
    if not is_object(found):
        return name, found, []
    found = _spread_parts(found)
    inputs: dict[str, str] = {}
    entry: Json = {
        key: _change_texts(value, lambda text: _replace_variables(text, root, inputs))
        for key, value in found.items()
    }
    for key in ("env", "headers") if has_dollars else ():
        if key in entry:
            entry[key] = _change_texts(entry[key], partial(_DOLLAR.sub, r"${\1}"))
    notes = [
        f"Server {quote_name(name)} asks for the input {quote_name(asked)}. "
        f"Set the variable {variable} instead."
        for asked, variable in inputs.items()
    ]
    table = _translate_common(entry)
    if "type" in entry or "transport" in entry:
        kind = entry.get("type", entry.get("transport"))
        table["transport"] = TRANSPORTS.get(kind.lower(), kind) if isinstance(kind, str) else kind
    if table.get("transport") == "remote":
        del table["transport"]
    address = str(table.get("url", "")).partition("?")[0]
    if "transport" not in table and address.rstrip("/").endswith("/sse"):
        table["transport"] = "sse"
    if "enabled" in entry:
        table["disabled"] = entry["enabled"] is False or table.get("disabled", False)
    if is_object(entry.get("oauth")):
        table["oauth"] = True
    args = table.get("args")
    words = [table.get("command"), *(args if is_list(args) else [])]
    if root is not None and isinstance(cwd := table.get("cwd"), str):
        table["cwd"] = anchor_path(cwd, root)
    elif root is not None and any(isinstance(word, str) and _HERE.match(word) for word in words):
        table["cwd"] = escape(str(root))  # the command names files relative to it
    used = {*SHARED_KEYS, *RENAMED_KEYS, *TOOL_LISTS, *OTHER_KEYS, *LABEL_KEYS}
    unused = [key for key, value in found.items() if key not in used and value]
    return _build_entry(name, table, notes, unused)


def _spread_parts(found: Json) -> Json:
    """Return an entry whose command, arguments, variables and headers are in the usual places."""
    entry = dict(found)
    command = entry.get("command")
    if is_list(command):  # OpenCode
        entry |= {"command": command[0] if command else "", "args": command[1:]}
    elif is_object(command):  # Zed before 2025
        entry |= {key: command[key] for key in ("args", "env") if key in command}
        entry["command"] = command.get("path")
    options = entry.get("requestOptions")
    if is_object(options) and "headers" in options:  # Continue
        entry.setdefault("headers", options["headers"])
    kept = entry.get("env_keys")
    if is_list(kept) and kept:  # Goose has their values in its keyring
        secrets = {key: f"${{{key}}}" for key in kept if isinstance(key, str)}
        given = entry.get("envs")
        entry["envs"] = {**secrets, **(given if is_object(given) else {})}
    return entry


def _translate_codex(name: str, found: object) -> ListedServer:
    if not is_object(found):
        return name, found, []
    # Codex knows no references: every string is plain.
    table = _translate_common({key: _change_texts(item, escape) for key, item in found.items()})
    variable = found.get("bearer_token_env_var")
    if isinstance(variable, str):
        table["token"] = f"${{{variable}}}"
    headers = {key: f"${{{value}}}" for key, value in _list_members(found.get("env_http_headers"))}
    listed = found.get("env_vars")
    passed: dict[str, str] = {}
    for item in listed if is_list(listed) else []:
        key = item.get("name") if is_object(item) else item
        if isinstance(key, str):
            passed[key] = f"${{{key}:-}}"
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
    return name, table, notes


def _translate_common(entry: Json) -> Json:
    table = {key: entry[key] for key in SHARED_KEYS if entry.get(key) is not None}
    for theirs, ours in RENAMED_KEYS.items():
        if theirs in entry:
            table.setdefault(ours, entry[theirs])
    for theirs, ours in TOOL_LISTS.items():
        names = entry.get(theirs)
        admits_all = ours == "allow" and is_list(names) and "*" in names
        # Codex has a table of tools, which says something else.
        is_other = theirs == "tools" and not is_list(names)
        if theirs in entry and not admits_all and not is_other:
            # Ours are patterns, theirs are plain names.
            table[ours] = _change_texts(names, lambda name: _GLOB.sub(r"[\1]", name))
    for key in ("env", "headers"):
        if is_object(table.get(key)):
            # Other programs pass numbers and booleans on as strings.
            table[key] = {
                name: json.dumps(value) if isinstance(value, (int, float)) else value
                for name, value in table[key].items()
                if value is not None
            }
    return table


def _change_texts(value: object, change: Callable[[str], str], depth: int = 1) -> object:
    """Return a value with its strings changed, also those in a list or table of that depth."""
    if isinstance(value, str):
        return change(value)
    if depth and is_object(value):
        return {key: _change_texts(item, change, depth - 1) for key, item in value.items()}
    if depth and is_list(value):
        return [_change_texts(item, change, depth - 1) for item in value]
    return value


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
        inputs[asked] = "TOOLSCOUT_INPUT_" + _UNSAFE.sub("_", asked).strip("_").upper()
        return f"${{{inputs[asked]}}}"

    def make_reference(match: re.Match[str]) -> str:
        return f"${{{next(filter(None, match.groups()))}}}"

    return _VARIABLE.sub(replace, _BRACED.sub(make_reference, text))
