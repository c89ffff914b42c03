"""`ConfigEdits`: switches servers and tools on and off, and changes tools, in the file.

The file stays the only place where this is written, with its comments. Each change is made to the
text as it is at that moment, so what a person edits meanwhile is kept. The gateway then reloads the
file. Only a token without a profile may do this, and only what `EDITED` names: a console never
writes a command or a reference to a secret.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from toolscout.config.edits import put_options, read_own_text, write_edit
from toolscout.config.file import find_server, read_config
from toolscout.config.servers import ServerConfig, ToolOverride
from toolscout.console.views import ApiError, View, make_not_found
from toolscout.errors import InvalidFile, ToolscoutError
from toolscout.gateway.events import ConsoleAction
from toolscout.gateway.gateway import Gateway
from toolscout.names import to_one_line
from toolscout.schemas import Json, is_list, is_object, list_parameters
from toolscout.servers.listings import build_entries, read_stored_manifest
from toolscout.servers.manifest import Manifest

TRIES = 5
"""How often a change is made anew because somebody else wrote the file at the same moment."""
TEXT_CHARS = 300
SWITCHES = {"on": False, "off": True}
"""Actions, and what `disabled` is afterwards."""
HINT = "hint"
EDITED = {HINT: str, "enabled": bool, "description": str, "arguments": dict, "hidden": list}
"""What of a tool can be changed, and the type of each."""
Edit = tuple[tuple[str, ...], Json]
"""The keys that lead to a table, and other options for it."""
NEEDS_RESTART = (
    "This gateway keeps its tools in a database, so changes of servers take effect only after a "
    "restart."
)
EDIT_FILE = "Edit the configuration file and restart the gateways. Stop the server to end it now."
EXPECTED = {str: "a text", bool: "true or false", dict: "an object", list: "a list of texts"}


class ConfigEdits:
    """Changes the file of one gateway. Use it on the gateway's event loop.

    `reload` reads the file again and makes the gateway use it.
    """

    def __init__(
        self, gateway: Gateway, reload: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._gateway = gateway
        self._reload = reload or self._read_again
        self._lock = asyncio.Lock()

    def list_off(self) -> list[ServerConfig]:
        """Return the servers that the configuration disables."""
        return [server for server in self._gateway.config.servers if server.disabled]

    async def list_tools(self, view: View, name: str) -> Json:
        """Return the tools that a server listed, on or off, with what the file changes."""
        view.refuse_limited("Changes are")
        server = self._find_server(name)
        manifest = await asyncio.to_thread(self._find_manifest, server)
        problem = await asyncio.to_thread(self._find_problem, server)
        tools = await asyncio.to_thread(lambda: list(_build_rows(server, manifest)))
        return {"file": str(self._find_path(server)), "problem": problem, "tools": tools}

    async def change_server(self, view: View, name: str, action: str) -> None:
        """Switch a server on or off, lastingly."""
        self._check(view)
        server = self._find_server(name)
        await self._edit(server, [(("servers", name), {"disabled": SWITCHES[action] or None})])
        self._tell(view, f"switched {action}", server)

    async def change_tool(self, view: View, name: str, leaf: str, changes: object) -> Json:
        """Change some of `EDITED` for one tool; return what `list_tools` returns.

        Empty values remove an option, so that the server's own definition counts again.
        """
        self._check(view)
        server = self._find_server(name)
        manifest = await asyncio.to_thread(self._find_manifest, server)
        definition = next((row for row in manifest.tools if row.get("name") == leaf), None)
        if definition is None:
            raise make_not_found("tool", leaf)
        given = _read_changes(changes)
        hint = given.pop(HINT, None)
        if hint is not None:
            _check_hint(server, leaf)
        if given.get("enabled"):
            _check_patterns(server, leaf)
        options = {key: _to_option(key, value) for key, value in given.items()}
        _check_override(server, leaf, definition, options)
        edits: list[Edit] = [(("servers", name, "tools", leaf), options)] if options else []
        if hint is not None:
            edits.append((("servers", name, "hints"), {leaf: hint.strip() or None}))
        await self._edit(server, edits)
        names = [*given, *([HINT] if hint is not None else [])]
        is_switch = names == ["enabled"]
        switched = "switched on" if given.get("enabled") else "switched off"
        action = switched if is_switch else "changed"
        self._tell(view, action, server, leaf, tuple(sorted(names)))
        return await self.list_tools(view, name)

    def _check(self, view: View) -> None:
        view.refuse_limited("Changes are")
        if self._gateway.config.source == Path():
            message = "This gateway has no configuration file, so nothing can be changed lastingly."
            hint = "Start it with `toolscout serve --config FILE`."
            raise ApiError(409, "no_file", message, hint)
        if not self._gateway.catalog.is_local:
            raise ApiError(409, "needs_restart", NEEDS_RESTART, EDIT_FILE)

    def _find_server(self, name: str) -> ServerConfig:
        try:
            return find_server(self._gateway.config, name)
        except ToolscoutError:
            raise make_not_found("server", name) from None

    def _find_path(self, server: ServerConfig) -> Path:
        config = self._gateway.config
        return config.origins.get(server.name, config.source)

    def _find_manifest(self, server: ServerConfig) -> Manifest:
        live = self._gateway.pool.servers.get(server.name)
        if live is not None and live.manifest is not None and not live.manifest.whole:
            return live.manifest
        return read_stored_manifest(self._gateway.store, server) or Manifest()

    def _find_problem(self, server: ServerConfig) -> str:
        """Return why the file cannot be changed; empty if it can."""
        path = self._find_path(server)
        if path == Path():
            return "This gateway has no configuration file."
        if not self._gateway.catalog.is_local:
            return f"{NEEDS_RESTART} {EDIT_FILE}"
        try:
            read_own_text(path)
        except ToolscoutError as error:
            return str(error)
        if not (os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK)):
            return f"The gateway may not write {path}. Make the file and its folder writable."
        return ""

    async def _edit(self, server: ServerConfig, edits: Sequence[Edit]) -> None:
        async with self._lock:
            await asyncio.to_thread(self._write, self._find_path(server), edits)
            await self._reload()

    def _write(self, path: Path, edits: Sequence[Edit]) -> None:
        for tries_left in reversed(range(TRIES)):
            new = text = read_own_text(path)
            for keys, options in edits:
                new = put_options(path, new, keys, options)
            try:
                return write_edit(path, new, former=text)
            except InvalidFile:
                if not tries_left or read_own_text(path) == text:
                    raise

    async def _read_again(self) -> None:
        config = await asyncio.to_thread(read_config, self._gateway.config.source)
        await self._gateway.reload(config)

    def _tell(
        self,
        view: View,
        action: str,
        server: ServerConfig,
        tool: str = "",
        options: tuple[str, ...] = (),
    ) -> None:
        self._gateway.events.emit(
            ConsoleAction(
                action=action,
                server=server.name,
                tool=tool,
                options=options,
                by=view.principal.name,
            )
        )


def _read_changes(changes: object) -> dict[str, Any]:
    """Return what a request wants to change; raises `ApiError` for anything else."""
    if not is_object(changes) or not changes:
        raise _refuse(f"Send an object with some of {', '.join(EDITED)}.")
    for key, value in changes.items():
        kind = EDITED.get(key)
        if kind is None:
            raise _refuse(f"There is nothing to change under {key[:40]!r}.")
        is_texts = not is_list(value) or all(isinstance(item, str) for item in value)
        if not isinstance(value, kind) or not is_texts:
            raise _refuse(f"{key!r} has to be {EXPECTED[kind]}.")
    if _has_reference(changes.get("arguments")):
        message = "References such as ${VAR} can be written in the file only."
        raise ApiError(403, "reference", message, "Edit the file, or write the plain value.")
    return dict(changes)


def _has_reference(value: object) -> bool:
    if is_object(value):
        return any(map(_has_reference, value.values()))
    if is_list(value):
        return any(map(_has_reference, value))
    return isinstance(value, str) and "${" in value


def _to_option(key: str, value: Any) -> Any:
    """Return an option as the file has it: None for what need not be said."""
    if key == "enabled":
        return None if value else False
    return (value.strip() if isinstance(value, str) else value) or None


def _check_hint(server: ServerConfig, leaf: str) -> None:
    for pattern in server.hints:
        if pattern == leaf:
            return
        if fnmatchcase(leaf, pattern):
            message = f"The pattern {pattern!r} under `hints` already gives this tool its words."
            raise ApiError(409, "pattern", message, "Change the pattern in the file.")


def _check_patterns(server: ServerConfig, leaf: str) -> None:
    """Raise `ApiError` if patterns of the server leave a tool out, whatever is said about it."""
    if problem := _find_exclusion(server, leaf):
        raise ApiError(409, "pattern", problem, "Change the pattern in the file.")


def _find_exclusion(server: ServerConfig, leaf: str) -> str:
    denied = next((pattern for pattern in server.deny if fnmatchcase(leaf, pattern)), None)
    if denied is not None:
        return f"The pattern {denied!r} under `deny` leaves the tool out."
    if not any(fnmatchcase(leaf, pattern) for pattern in server.allow):
        return "No pattern under `allow` matches the tool."
    return ""


def _check_override(server: ServerConfig, leaf: str, definition: Json, options: Json) -> None:
    """Raise `ApiError` if a tool could not be used with these options."""
    former = server.tools.get(leaf, ToolOverride()).to_mapping()
    merged = {key: value for key, value in {**former, **options}.items() if value is not None}
    changed = replace(server, tools={**server.tools, leaf: ToolOverride.from_mapping(merged)})
    _, problems = build_entries(changed, Manifest(tools=(definition,)))
    if problems:
        raise _refuse(problems[0])


def _refuse(message: str) -> ApiError:
    return ApiError(400, "bad_change", message, "Change it and save again.")


def _build_rows(server: ServerConfig, manifest: Manifest) -> Iterator[Json]:
    entries, problems = build_entries(server, Manifest(tools=manifest.tools))
    names = {entry.extras.get("leaf", entry.leaf): entry.name for entry in entries}
    for row in manifest.tools:
        leaf = str(row.get("name"))
        override = server.tools.get(leaf, ToolOverride())
        excluded = _find_exclusion(server, leaf)
        is_on = not excluded and override.enabled
        own = (problem for problem in problems if leaf in problem)
        schema = row.get("inputSchema")
        yield {
            "tool": leaf,
            "name": names.get(leaf, ""),
            "on": is_on,
            "problem": excluded or (next(own, "") if is_on and leaf not in names else ""),
            "own_description": to_one_line(str(row.get("description") or ""), TEXT_CHARS),
            "parameters": [
                parameter.name
                for parameter in list_parameters(schema if is_object(schema) else {}, max_depth=1)
            ],
            "hint": server.hints.get(leaf, ""),
            "description": override.description,
            # Whoever may read this page need not know the secrets in the file.
            "arguments": None if override.list_secrets() else dict(override.arguments),
            "hidden": list(override.hidden),
        }
