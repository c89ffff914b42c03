"""The configuration file: servers, gateway and sessions.

`read_config` takes toolscout's own TOML or another program's list of servers and gives checked
values. Nothing is started here, and no reference is looked up. Writing is left to `edits`, and
finding files to `clients.discovery`.
"""

import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from toolscout.config.documents import (
    ConfigDocument,
    document_from_text,
    read_document,
)
from toolscout.config.formats import list_entries
from toolscout.config.gateway import GatewayConfig
from toolscout.config.references import anchor_options
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig, InvalidFile, MissingExtra
from toolscout.options import (
    check_keys,
    join_keys,
    list_options,
    prefix_keys,
    quote_name,
    read_table,
    read_texts,
)
from toolscout.schemas import Json
from toolscout.settings import FILE_TABLES, Settings

MAX_FILES = 32
"""Files that one configuration may include."""
MAX_SERVERS = 1_000
DEMO_SERVERS = {"time": "mcp_server_time", "git": "mcp_server_git", "fetch": "mcp_server_fetch"}
"""Servers of the MCP project that need no account and no network, by the module that runs each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that one file configures; equal if it says the same, wherever the file is."""

    servers: tuple[ServerConfig, ...] = ()
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    sessions: Settings = field(default_factory=Settings)
    source: Path = field(default=Path(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What could not be used as it was written, for the operator."""
    origins: Mapping[str, Path] = field(default_factory=dict[str, Path], compare=False)
    """The files of servers that come from another file than `source`."""

    def __post_init__(self) -> None:
        names: set[str] = set()
        for server in self.servers:
            if server.name in names:
                key = join_keys("servers", server.name)
                raise InvalidConfig(key, "names two servers", remedy="Rename one of them.")
            names.add(server.name)

    def list_secrets(self, env: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the plain values of all secret options, to be masked in logs.

        A value whose reference cannot be resolved reaches nobody and is left out.
        """
        found: list[str] = []
        for part in (*self.servers, *self.gateway.tokens.values()):
            with suppress(InvalidConfig):
                found += part.resolve(env).list_secrets()
        with suppress(InvalidConfig):
            found.append(self.gateway.resolve_store(env))
        return tuple(filter(None, found))


def read_config(path: str | Path, text: str | None = None) -> Config:
    """Return what a file configures; raises `InvalidConfig` or `InvalidFile`, which name it.

    With a text, the file is read as if it contained that.
    Unknown keys are refused in toolscout's own TOML (R109). In other programs' files they are
    ignored, as are servers that cannot be used; `notes` lists both.
    """
    place = Path(path).absolute()
    document = read_document(place) if text is None else document_from_text(place, text)
    if is_own_document(document):
        return _Reader().read_own(document)
    found = import_document(document, None)
    if found is None:
        raise InvalidFile(
            str(document.path),
            "contains no list of MCP servers",
            remedy="Name a file with 'mcpServers', 'servers' or [servers.NAME].",
        )
    return found


def import_servers(path: str | Path, project: Path | None = None) -> Config:
    """Return the servers of another program's file, none if it lists none.

    With a project, Claude Code's servers of other projects are left out.
    """
    document = read_document(Path(path).absolute())
    return import_document(document, project) or Config(source=document.path)


def import_document(document: ConfigDocument, project: Path | None) -> Config | None:
    """Return the servers of another program's parsed file, or None if it has no list of them.

    Servers that cannot be used become notes.
    """
    entries = list_entries(document, project)
    if entries is None:
        return None
    found: list[ServerConfig] = []
    notes: list[str] = []
    with _name_file(document.path):
        for entry in entries:
            try:
                server = _read_server(entry.name, entry.table)
                found.append(anchor_options(server, document.path.parent))
                notes += entry.notes
            except InvalidConfig as error:
                notes.append(f"{error} The server was left out.")
        servers, renamed = merge_servers(found)
    lines = tuple(f"{document.path}: {note}" for note in (*notes, *renamed))
    return Config(servers=servers, source=document.path, notes=lines)


def is_own_document(document: ConfigDocument) -> bool:
    """Tell whether a file is toolscout's own, not another program's."""
    return document.is_toml and "mcp_servers" not in document.tables


def merge_servers(
    servers: Iterable[ServerConfig],
) -> tuple[tuple[ServerConfig, ...], tuple[str, ...]]:
    """Return servers under one name each, and a note for each that was renamed.

    Of servers that have the same name and start the same way, only the first is returned.
    """
    merged: dict[str, ServerConfig] = {}
    notes: list[str] = []
    for server in servers:
        name = choose_name(server, merged)
        if name not in merged and name != server.name:
            notes.append(
                f"Several servers are named {quote_name(server.name)}. One is now {name!r}."
            )
        merged.setdefault(name, replace(server, name=name))
    return tuple(merged.values()), tuple(notes)


def choose_name(server: ServerConfig, taken: Mapping[str, ServerConfig]) -> str:
    """Return the name under which a server is among some others already, or can be added."""
    name = server.name
    for number in range(2, MAX_SERVERS + 2):
        if name not in taken or taken[name].starts_like(server):
            break
        name = f"{server.name}-{number}"
    if name not in taken and len(taken) >= MAX_SERVERS:
        remedy = f"Configure at most {MAX_SERVERS:,}."
        raise InvalidConfig("servers", "are too many", remedy=remedy)
    return name


def build_demo_config(cache: Path | None = None) -> Config:
    """Return a configuration of the demo servers that this environment has."""
    found = {name: module for name, module in DEMO_SERVERS.items() if find_spec(module) is not None}
    if not found:
        raise MissingExtra("mcp-server-time", extra="demo")
    folder = Path(tempfile.mkdtemp(prefix="toolscout-")) if cache is None else cache
    servers = tuple(
        ServerConfig(
            name=name, transport=Transport.STDIO, command=sys.executable, args=("-m", module)
        )
        for name, module in found.items()
    )
    return Config(servers=servers, gateway=GatewayConfig(cache=str(folder / "gateway.db")))


class _Reader:
    """Reads one configuration with all the files that it includes, each once."""

    def __init__(self) -> None:
        self.seen: set[Path] = set()

    def read_own(self, document: ConfigDocument) -> Config:
        tables = document.tables
        folder = document.path.parent
        self.seen.add(document.path)
        with _name_file(document.path):
            check_keys(tables, list(FILE_TABLES))
            own = [
                anchor_options(_read_server(name, table), folder)
                for name, table in read_table("servers", tables.get("servers", {})).items()
            ]
            with prefix_keys("gateway"):
                gateway = GatewayConfig.from_mapping(tables.get("gateway", {}))
            with prefix_keys("sessions"):
                sessions = Settings.from_mapping(tables.get("sessions", {}))
            names = read_texts("include", tables.get("include", []))
            paths = [_find_included(name, folder) for name in names]
        included = [self._read_included(path) for path in paths if path not in self.seen]
        with _name_file(document.path):
            servers, notes, origins = _merge_included(own, included)
        return Config(
            servers=servers,
            gateway=anchor_options(gateway, folder),
            sessions=sessions,
            source=document.path,
            notes=notes,
            origins=origins,
        )

    def _read_included(self, path: Path) -> Config:
        document = read_document(path)
        with _name_file(path):
            if len(self.seen) > MAX_FILES:
                remedy = f"Include at most {MAX_FILES} files."
                raise InvalidConfig("include", "leads to too many files", remedy=remedy)
            if is_own_document(document):
                _check_included(document.tables)
        if is_own_document(document):
            return self.read_own(document)
        self.seen.add(path)
        return import_document(document, None) or Config(source=path)


@contextmanager
def _name_file(path: Path) -> Generator[None]:
    """Name the file in any `InvalidConfig` raised inside."""
    try:
        yield
    except InvalidConfig as error:
        raise InvalidConfig(error.key, f"in {path} {error.problem}", remedy=error.remedy) from None


def _check_included(tables: Json) -> None:
    for key in ("gateway", "sessions"):
        if key in tables:
            problem = "is not allowed in an included file"
            raise InvalidConfig(key, problem, remedy="Move it to the file that includes this one.")


def _find_included(name: str, folder: Path) -> Path:
    try:
        return (folder / Path(name).expanduser()).absolute()
    except RuntimeError:
        problem = "names the home folder of an unknown user"
        raise InvalidConfig("include", problem, remedy="Write the whole path.") from None


def _read_server(name: str, table: object) -> ServerConfig:
    with prefix_keys("servers", name):
        members = read_table("", table)
        check_keys(members, [declared.name for declared in list_options(ServerConfig)])
    members.setdefault("transport", _guess_transport(members))
    return ServerConfig(name=name, **members)


def _guess_transport(members: Json) -> Transport:
    if members.get("spec"):
        return Transport.OPENAPI
    return Transport.HTTP if members.get("url") and not members.get("command") else Transport.STDIO


def _merge_included(
    own: list[ServerConfig], included: list[Config]
) -> tuple[tuple[ServerConfig, ...], tuple[str, ...], Mapping[str, Path]]:
    """Return a file's own servers and those it includes; its own win."""
    own_names = {server.name for server in own}
    notes = [note for config in included for note in config.notes]
    others: list[tuple[ServerConfig, Path]] = []
    for config in included:
        for server in config.servers:
            if server.name not in own_names:
                others.append((server, config.origins.get(server.name, config.source)))
                continue
            name = quote_name(server.name)
            notes.append(f"{config.source}: the including file replaces server {name}.")
    servers, renamed = merge_servers([*own, *(server for server, _ in others)])
    merged = {server.name: server for server in own}
    origins: dict[str, Path] = {}
    for server, path in others:
        name = choose_name(server, merged)
        if name not in merged:
            merged[name] = server
            origins[name] = path
    return servers, (*notes, *renamed), origins
