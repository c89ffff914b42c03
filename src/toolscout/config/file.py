"""The configuration file: servers, gateway and sessions.

`read_config` takes toolscout's own TOML or another program's list of servers and gives checked
values; `to_toml` writes what it gave. Nothing is started here, and no reference is looked up.
Where files lie is known to `sources`.

A configuration to try the gateway with: real servers that need no account and no network.

Servers of several files under one name each.

Servers that start the same under the same name are one; others that share a name are numbered.
"""

import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from toolscout.config.documents import Document, document_from_text, read_document, toml_text
from toolscout.config.formats import listed_servers
from toolscout.config.gateway import (
    GATEWAY_CHECKS,
    GatewayConfig,
    GatewayMode,
    LogFormat,
    LogLevel,
    Profile,
    TokenConfig,
)
from toolscout.config.references import anchor, anchor_path
from toolscout.config.servers import SERVER_CHECKS, ServerConfig, Transport
from toolscout.errors import InvalidConfig, InvalidFile, MissingExtra
from toolscout.names import to_one_line
from toolscout.options import as_table, as_texts, from_table, key_path, under, unknown_key
from toolscout.schemas import Json
from toolscout.settings import Settings

MAX_SERVERS = 1_000


def merge_servers(
    servers: Iterable[ServerConfig],
) -> tuple[tuple[ServerConfig, ...], tuple[str, ...]]:
    """Return servers under one name each, and a note for each that was renamed.

    Servers that start the same under the same name are one, the first.
    """
    kept: dict[str, ServerConfig] = {}
    notes: list[str] = []
    for server in servers:
        name = kept_name(server, kept)
        if name not in kept and name != server.name:
            shown = to_one_line(server.name, NAME_SHOWN)
            notes.append(f"There are several servers {shown!r}. One of them is {name!r} now.")
        kept.setdefault(name, replace(server, name=name))
    return tuple(kept.values()), tuple(notes)


def kept_name(server: ServerConfig, kept: Mapping[str, ServerConfig]) -> str:
    """Return the name under which a server is kept already, or may be."""
    name = server.name
    for number in range(2, MAX_SERVERS + 2):
        if name not in kept or kept[name].starts_like(server):
            break
        name = f"{server.name}-{number}"
    if name not in kept and len(kept) >= MAX_SERVERS:
        remedy = f"Configure at most {MAX_SERVERS:,}."
        raise InvalidConfig("servers", "are too many", remedy=remedy)
    return name


def merged_origins(
    own: Iterable[ServerConfig], others: Iterable[tuple[ServerConfig, Path]]
) -> Mapping[str, Path]:
    """Return the files of others' servers, under the names that `merge_servers` gives them."""
    kept = {server.name: server for server in own}
    origins: dict[str, Path] = {}
    for server, path in others:
        name = kept_name(server, kept)
        if name not in kept:
            kept[name], origins[name] = server, path
    return origins


__all__ = [
    "Config",
    "GatewayConfig",
    "GatewayMode",
    "LogFormat",
    "LogLevel",
    "Profile",
    "ServerConfig",
    "TokenConfig",
    "Transport",
    "import_servers",
    "imported",
    "is_own_document",
    "kept_name",
    "merge_servers",
    "read_config",
    "to_toml",
]

MAX_FILES = 32
"""Files that one configuration may include."""
OWN_TABLES = ("include", "servers", "gateway", "sessions")
NAME_SHOWN = 60


def _no_origins() -> Mapping[str, Path]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All that one file configures; equal where it says the same, wherever it lies."""

    servers: tuple[ServerConfig, ...] = ()
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    sessions: Settings = field(default_factory=Settings)
    source: Path = field(default=Path(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What was not taken over as it stands, for the operator."""
    origins: Mapping[str, Path] = field(default_factory=_no_origins, compare=False)
    """The files of servers that stand in another file than `source`."""

    def __post_init__(self) -> None:
        names: set[str] = set()
        for server in self.servers:
            if server.name in names:
                key = key_path("servers", server.name)
                raise InvalidConfig(key, "stands for two servers", remedy="Rename one.")
            names.add(server.name)

    def list_secrets(self, env: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the plain values of all secret options, to be masked in logs.

        A value whose reference cannot be resolved reaches nobody and is left out.
        """
        found: list[str] = []
        for part in (*self.servers, *self.gateway.tokens.values()):
            with suppress(InvalidConfig):
                found += part.resolve(env).list_secrets()
        return tuple(found)


def read_config(path: str | Path, text: str | None = None) -> Config:
    """Return what a file configures; raises `InvalidConfig` or `InvalidFile`, which name it.

    With a text, the file is read as if it held that.
    In toolscout's own TOML unknown keys are refused (R109). In other programs' files they are
    left alone, as are servers that cannot be used; `notes` tells which.
    """
    place = _full(path)
    document = read_document(place) if text is None else document_from_text(place, text)
    if is_own_document(document):
        return _Reading().own_config(document)
    found = imported(document, None)
    if found is None:
        raise InvalidFile(
            str(document.path),
            "holds no list of MCP servers",
            remedy="Name a file with 'mcpServers', 'servers' or [servers.NAME].",
        )
    return found


def import_servers(path: str | Path, project: Path | None = None) -> Config:
    """Return the servers of another program's file, none where it lists none.

    With a project, Claude Code's servers of other projects are left out.
    """
    document = read_document(_full(path))
    return imported(document, project) or Config(source=document.path)


def to_toml(config: Config) -> str:
    """Return a configuration as a file that reads back equal; references stay references."""
    servers = {server.name: _plain(server, leave="name") for server in config.servers}
    tables: Json = {
        "gateway": _plain(config.gateway),
        "sessions": _plain(config.sessions, leave="hide"),
        "servers": servers,
    }
    return toml_text({key: table for key, table in tables.items() if table})


def _plain(value: Any, *, leave: str = "") -> Json:
    """Return the fields of a value that are not as they are by default, as TOML has them."""
    table: Json = {}
    for item in fields(value):
        found = getattr(value, item.name)
        if item.name != leave and found != _default(item):
            table[item.name] = _plain_value(found)
    return table


def _default(item: Any) -> object:
    return item.default if item.default_factory is MISSING else item.default_factory()


def _plain_value(value: object) -> object:
    if is_dataclass(value):
        return _plain(value)
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_plain_value(item) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return {key: _plain_value(item) for key, item in table.items()}
    return value


def _full(path: str | Path) -> Path:
    return Path(path).absolute()


def is_own_document(document: Document) -> bool:
    """Tell whether a file is toolscout's own, and not another program's."""
    return document.is_toml and "mcp_servers" not in document.tables


class _Reading:
    """Reads one configuration with all the files that it includes, each once."""

    def __init__(self) -> None:
        self.seen: set[Path] = set()

    def own_config(self, document: Document) -> Config:
        tables, folder = document.tables, document.path.parent
        self.seen.add(document.path)
        with _named(document.path):
            _check_tables(tables)
            own = [_anchored(server, folder) for server in _own_servers(tables)]
            names = as_texts("include", tables.get("include", []))
            gateway, sessions = _gateway(tables, folder), _sessions(tables)
            paths = [_included_path(name, folder) for name in names]
        included = [self._included(path) for path in paths if path not in self.seen]
        with _named(document.path):
            servers, notes, origins = _put_together(own, included)
        return Config(
            servers=servers,
            gateway=gateway,
            sessions=sessions,
            source=document.path,
            notes=notes,
            origins=origins,
        )

    def _included(self, path: Path) -> Config:
        document = read_document(path)
        with _named(path):
            if len(self.seen) > MAX_FILES:
                remedy = f"Include at most {MAX_FILES} files."
                raise InvalidConfig("include", "leads to too many files", remedy=remedy)
            if is_own_document(document):
                _check_included(document.tables)
        if is_own_document(document):
            return self.own_config(document)
        self.seen.add(path)
        return imported(document, None) or Config(source=path)


@contextmanager
def _named(path: Path) -> Generator[None]:
    """Name the file in an `InvalidConfig`."""
    try:
        yield
    except InvalidConfig as error:
        raise InvalidConfig(error.key, f"in {path} {error.problem}", remedy=error.remedy) from None


def _check_tables(tables: Json) -> None:
    for key in tables:
        if key not in OWN_TABLES:
            raise unknown_key(key, list(OWN_TABLES))


def _check_included(tables: Json) -> None:
    for key in ("gateway", "sessions"):
        if key in tables:
            problem = "stands in a file that is included"
            raise InvalidConfig(key, problem, remedy="Move it to the file that includes this one.")


def _included_path(name: str, folder: Path) -> Path:
    try:
        return _full(folder / Path(name).expanduser())
    except RuntimeError:
        raise InvalidConfig(
            "include", "names the home folder of nobody", remedy="Write the whole path."
        ) from None


def _own_servers(tables: Json) -> list[ServerConfig]:
    return [
        _server(name, table)
        for name, table in as_table("servers", tables.get("servers", {})).items()
    ]


def _server(name: str, table: object) -> ServerConfig:
    with under("servers", name):
        members = as_table("", table)
        for key in members:
            if key not in SERVER_CHECKS:
                raise unknown_key(key, list(SERVER_CHECKS))
    members.setdefault("transport", _likely_transport(members))
    return ServerConfig(name=name, **members)


def _likely_transport(members: Json) -> Transport:
    if members.get("spec"):
        return Transport.OPENAPI
    return Transport.HTTP if members.get("url") and not members.get("command") else Transport.STDIO


def _gateway(tables: Json, folder: Path) -> GatewayConfig:
    with under("gateway"):
        gateway = from_table(GatewayConfig, tables.get("gateway", {}), GATEWAY_CHECKS)
    tokens = {
        name: replace(token, token=anchor(token.token, folder))
        for name, token in gateway.tokens.items()
    }
    return replace(gateway, tokens=tokens, cache=anchor_path(gateway.cache, folder))


def _sessions(tables: Json) -> Settings:
    with under("sessions"):
        return Settings.from_mapping(as_table("", tables.get("sessions", {})))


def _anchored(server: ServerConfig, folder: Path) -> ServerConfig:
    """Return a server that means the same when its file is moved."""
    changed: dict[str, Any] = {
        name: anchor_path(getattr(server, name), folder) for name in ("cwd", "spec")
    }
    for name in ("command", "url", "token", "oauth_client_id", "oauth_client_secret"):
        changed[name] = anchor(getattr(server, name), folder)
    changed["args"] = tuple(anchor(arg, folder) for arg in server.args)
    for name in ("env", "headers"):
        texts: Mapping[str, str] = getattr(server, name)
        changed[name] = {key: anchor(text, folder) for key, text in texts.items()}
    return replace(server, **changed)


def _put_together(
    own: list[ServerConfig], included: list[Config]
) -> tuple[tuple[ServerConfig, ...], tuple[str, ...], Mapping[str, Path]]:
    """Return a file's own servers and those that it includes; its own word counts more."""
    mine = {server.name for server in own}
    notes = [note for config in included for note in config.notes]
    others: list[tuple[ServerConfig, Path]] = []
    for config in included:
        for server in config.servers:
            if server.name not in mine:
                others.append((server, config.origins.get(server.name, config.source)))
                continue
            shown = to_one_line(server.name, NAME_SHOWN)
            notes.append(
                f"{config.source}: server {shown!r} is replaced by the file that includes it."
            )
    servers, renamed = merge_servers([*own, *(server for server, _ in others)])
    return servers, (*notes, *renamed), merged_origins(own, others)


def imported(document: Document, project: Path | None) -> Config | None:
    """Return the servers of another program's parsed file, or nothing where it lists none.

    Those that cannot be used become notes.
    """
    entries = listed_servers(document, project)
    if entries is None:
        return None
    found: list[ServerConfig] = []
    notes: list[str] = []
    with _named(document.path):
        for entry in entries:
            try:
                found.append(_anchored(_server(entry.name, entry.table), document.path.parent))
                notes += entry.notes
            except InvalidConfig as error:
                notes.append(f"{error} The server was left out.")
        servers, renamed = merge_servers(found)
    told = tuple(f"{document.path}: {note}" for note in (*notes, *renamed))
    return Config(servers=servers, source=document.path, notes=told)


SERVERS = {"time": "mcp_server_time", "git": "mcp_server_git", "fetch": "mcp_server_fetch"}
"""Servers of the MCP project, by the module that runs each."""


def demo_config(cache: Path | None = None) -> Config:
    """Return a configuration of those demo servers that this environment has."""
    found = {name: module for name, module in SERVERS.items() if find_spec(module) is not None}
    if not found:
        raise MissingExtra("mcp-server-time", extra="demo")
    folder = Path(tempfile.mkdtemp(prefix="toolscout-")) if cache is None else cache
    return Config(
        servers=tuple(
            ServerConfig(
                name=name, transport=Transport.STDIO, command=sys.executable, args=("-m", module)
            )
            for name, module in found.items()
        ),
        gateway=GatewayConfig(cache=str(folder / "gateway.db")),
    )
