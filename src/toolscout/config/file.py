"""The configuration file: servers, gateway and sessions.

`read_config` takes toolscout's own TOML or another program's list of servers and gives checked
values; it looks up no references. `edits` writes files, and `clients.discovery` finds them.
"""

import sys
import tempfile
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from toolscout.config.documents import ConfigDocument, document_from_text, read_document
from toolscout.config.formats import list_entries
from toolscout.config.gateway import GatewayConfig
from toolscout.config.redaction import SecretKind
from toolscout.config.references import anchor_options, escape_secrets, list_variables
from toolscout.config.servers import Changes, ServerConfig, SkillsConfig, Transport
from toolscout.errors import InvalidConfig, InvalidFile, MissingExtra, UnknownServer
from toolscout.names import find_near_names, to_one_line
from toolscout.options import (
    NAME_CHARS,
    check_keys,
    join_keys,
    list_options,
    prefix_keys,
    quote_name,
    read_table,
    read_texts,
)
from toolscout.settings import ENCODER_CHECK, FILE_TABLES, HINTS_CHECK, Settings

MAX_FILES = 32
"""Files that one configuration may include."""
MAX_SERVERS = 1_000
DEMO_SERVERS = {"time": "mcp_server_time", "git": "mcp_server_git", "fetch": "mcp_server_fetch"}
"""Servers of the MCP project that need no account and no network, by the module that runs each."""
SKILLS_SERVER = "skills"
"""The server that has the skills of `[skills]`."""
SHARED_OPTIONS = {"encoder": ENCODER_CHECK, "hints": HINTS_CHECK}
"""Options of `[sessions]` that `[gateway]` takes too: both places are obvious, and the sessions of
a gateway share one index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that one file configures; equal if it says the same, wherever the file is."""

    servers: tuple[ServerConfig, ...] = ()
    skills: SkillsConfig = field(default_factory=SkillsConfig)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    sessions: Settings = field(default_factory=Settings)
    source: Path = field(default=Path(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    """For the operator: the parts that could not be used as they were written."""
    origins: Mapping[str, Path] = field(default_factory=dict[str, Path], compare=False)
    """The files of servers that come from another file than `source`."""

    def __post_init__(self) -> None:
        names: set[str] = set()
        for server in self.servers:
            if server.name in names:
                key = join_keys("servers", server.name)
                raise InvalidConfig(key, "names two servers", remedy="Rename one of them.")
            names.add(server.name)
        object.__setattr__(self, "servers", tuple(map(self._complete, self.servers)))

    def _complete(self, server: ServerConfig) -> ServerConfig:
        """Return a server with the gateway's `changes` and `inherit_env`, and what is withheld."""
        if not server.changes and self.gateway.changes is not Changes.HOLD:
            server = replace(server, changes=self.gateway.changes)
        wanted = tuple(dict.fromkeys((*self.gateway.inherit_env, *server.inherit_env)))
        if not wanted or server.transport is not Transport.STDIO:
            return server
        others = [other for other in self.servers if other.name != server.name]
        used = frozenset[str]().union(*map(list_variables, (self.gateway, *others)))
        return replace(server, inherit_env=wanted, withheld=used)

    def list_secrets(self, env: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the plain values of all secret options, to be masked in logs."""
        # A value whose reference cannot be resolved reaches nobody and is left out.
        found: list[str] = []
        for part in (*self.servers, *self.gateway.tokens.values()):
            with suppress(InvalidConfig):
                found += part.resolve(env).list_secrets()
        with suppress(InvalidConfig):
            found.append(self.gateway.resolve_store(env))
        with suppress(InvalidConfig):
            found.append(self.gateway.resolve_store_listen(env))
        with suppress(InvalidConfig):
            found += self.gateway.resolve_login_keys(env)
        return tuple(filter(None, found))

    def list_variables(self) -> frozenset[str]:
        """Return the variables of the environment that options refer to."""
        return frozenset[str]().union(*map(list_variables, (self.gateway, *self.servers)))

    def list_redacted(self) -> frozenset[SecretKind]:
        """Return the kinds of secrets that at least one server redacts."""
        return frozenset(kind for server in self.servers for kind in server.redact)


def read_config(path: str | Path, text: str | None = None) -> Config:
    """Return what a file configures; raises `InvalidConfig` or `InvalidFile`, which name it.

    A text replaces the content of the file. Unknown keys are refused in toolscout's own TOML
    (R109). In other programs' files, `notes` lists them and the servers that cannot be used.
    """
    place = Path(path).absolute()
    document = read_document(place) if text is None else document_from_text(place, text)
    if is_own_document(document):
        return _read_own(document, set())
    found = import_document(document, None)
    if found is None:
        remedy = "Name a file with 'mcpServers', 'servers' or [servers.NAME]."
        raise InvalidFile(str(place), "contains no list of MCP servers", remedy=remedy)
    return found


def find_server(config: Config, name: str) -> ServerConfig:
    """Return a server by name, or raise `UnknownServer`."""
    servers = {server.name: server for server in config.servers}
    if name not in servers:
        near = find_near_names(name, servers)
        shown = to_one_line(name, NAME_CHARS)
        raise UnknownServer(shown, near, otherwise="See `toolscout servers list`.")
    return servers[name]


def import_servers(path: str | Path, folders: Collection[Path] | None = None) -> Config:
    """Return the servers of another program's file; of projects, those in these folders, or all."""
    document = read_document(Path(path).absolute())
    return import_document(document, folders) or Config(source=document.path)


def import_document(document: ConfigDocument, folders: Collection[Path] | None) -> Config | None:
    """Return the servers of another program's parsed file, or None if it has no list of them."""
    entries = list_entries(document, folders)
    if entries is None:
        return None
    path = document.path
    found: list[tuple[ServerConfig, Path]] = []
    notes: list[str] = []
    with _name_file(path):
        for name, table, remarks in entries:
            try:
                server = escape_secrets(_read_server(name, table))
                found.append((anchor_options(server, path.parent), path))
                notes += remarks
            except InvalidConfig as error:
                notes.append(f"{error} The server was left out.")
        merged = _merge_servers(found, notes)
    lines = tuple(f"{path}: {note}" for note in notes)
    return Config(servers=tuple(server for server, _ in merged), source=path, notes=lines)


def is_own_document(document: ConfigDocument) -> bool:
    """Tell whether a file is toolscout's own, not another program's."""
    return document.is_toml and "mcp_servers" not in document.tables


def _merge_servers(
    found: Iterable[tuple[ServerConfig, Path]], notes: list[str]
) -> list[tuple[ServerConfig, Path]]:
    """Return servers under one name each; add a note for each that is renamed.

    Of servers that have the same name and start the same way, only the first is returned.
    """
    merged: dict[str, ServerConfig] = {}
    paths: list[Path] = []
    for server, path in found:
        name = choose_name(server, merged)
        if name in merged:
            continue
        if name != server.name:
            quoted = quote_name(server.name)
            notes.append(f"Several servers are named {quoted}. One is now {name!r}.")
        merged[name] = replace(server, name=name)
        paths.append(path)
    return list(zip(merged.values(), paths, strict=True))


def choose_name(server: ServerConfig, taken: Mapping[str, ServerConfig]) -> str:
    """Return the name under which a server is among some others already, or can be added."""
    name = server.name
    for number in range(2, MAX_SERVERS + 2):
        if name not in taken or taken[name].starts_like(server):
            break
        name = f"{server.name}-{number}"
    if name not in taken and len(taken) >= MAX_SERVERS:
        raise InvalidConfig("servers", "are too many", remedy=f"Configure at most {MAX_SERVERS:,}.")
    return name


def build_demo_config(cache: Path | None = None) -> Config:
    """Return a configuration of the demo servers that this environment has."""
    found = {name: module for name, module in DEMO_SERVERS.items() if find_spec(module) is not None}
    if not found:
        raise MissingExtra("mcp-server-time", extra="demo")
    folder = Path(tempfile.mkdtemp(prefix="toolscout-")) if cache is None else cache
    tables = {name: {"command": sys.executable, "args": ["-m", found[name]]} for name in found}
    servers = tuple(_read_server(name, table) for name, table in tables.items())
    return Config(servers=servers, gateway=GatewayConfig(cache=str(folder / "gateway.db")))


def _read_own(document: ConfigDocument, seen: set[Path]) -> Config:
    """Return the configuration of a file and of those it includes, each read once."""
    path = document.path
    tables = document.tables
    seen.add(path)
    with _name_file(path):
        check_keys(tables, list(FILE_TABLES))
        servers = read_table("servers", tables.get("servers", {}))
        with prefix_keys("skills"):
            skills = SkillsConfig.from_mapping(tables.get("skills", {}))
        with_skills = skills.build_table(read_table("servers", servers.get(SKILLS_SERVER, {})))
        if with_skills is not None:
            servers[SKILLS_SERVER] = with_skills
        found = [
            (anchor_options(_read_server(name, table), path.parent), path)
            for name, table in servers.items()
        ]
        settings = read_table("sessions", tables.get("sessions", {}))
        options = read_table("gateway", tables.get("gateway", {}))
        for name, check in SHARED_OPTIONS.items():
            if name in options:
                key = f"gateway.{name}"
                if name in settings:
                    problem = "is also set under [sessions]"
                    raise InvalidConfig(key, problem, remedy="Remove one of the two.")
                settings[name] = check.read(key, options.pop(name))
        with prefix_keys("gateway"):
            gateway = GatewayConfig.from_mapping(options)
        sessions = Settings.from_tables({**tables, "sessions": settings})
        try:
            names = read_texts("include", tables.get("include", []))
            paths = [(path.parent / Path(name).expanduser()).absolute() for name in names]
        except RuntimeError:
            problem = "names the home folder of an unknown user"
            raise InvalidConfig("include", problem, remedy="Write the whole path.") from None
    notes: list[str] = []
    own_names = {server.name for server, _ in found}
    for config in [_read_included(other, seen) for other in paths if other not in seen]:
        notes += config.notes
        for server in config.servers:
            if server.name in own_names:
                quoted = quote_name(server.name)
                notes.append(f"{config.source}: the including file replaces server {quoted}.")
            else:
                found.append((server, config.origins.get(server.name, config.source)))
    with _name_file(path):
        merged = _merge_servers(found, notes)
    return Config(
        servers=tuple(server for server, _ in merged),
        skills=anchor_options(skills, path.parent),
        gateway=anchor_options(gateway, path.parent),
        sessions=sessions,
        source=path,
        notes=tuple(notes),
        origins={server.name: origin for server, origin in merged if origin != path},
    )


def _read_included(path: Path, seen: set[Path]) -> Config:
    document = read_document(path)
    is_own = is_own_document(document)
    with _name_file(path):
        if len(seen) > MAX_FILES:
            remedy = f"Include at most {MAX_FILES} files."
            raise InvalidConfig("include", "leads to too many files", remedy=remedy)
        for key in ("skills", "gateway", "sessions", "programs"):
            if is_own and key in document.tables:
                problem = "is not allowed in an included file"
                remedy = "Move it to the file that includes this one."
                raise InvalidConfig(key, problem, remedy=remedy)
    if is_own:
        return _read_own(document, seen)
    seen.add(path)
    return import_document(document, None) or Config(source=path)


@contextmanager
def _name_file(path: Path) -> Generator[None]:
    """Name the file in any `InvalidConfig` raised inside."""
    try:
        yield
    except InvalidConfig as error:
        raise InvalidConfig(error.key, f"in {path} {error.problem}", remedy=error.remedy) from None


def _read_server(name: str, table: object) -> ServerConfig:
    with prefix_keys("servers", name):
        members = read_table("", table)
        check_keys(members, [declared.name for declared in list_options(ServerConfig)])
    is_remote = members.get("url") and not members.get("command")
    transport = Transport.HTTP if is_remote else Transport.STDIO
    transport = Transport.OPENAPI if members.get("spec") else transport
    members.setdefault("transport", Transport.SKILLS if members.get("skills") else transport)
    return ServerConfig(name=name, **members)
