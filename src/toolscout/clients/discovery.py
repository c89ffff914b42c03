"""Finds configuration files, and the servers that programs on this machine already have.

`list_known_files` lists where to look; `find_servers` reads the files that exist and merges their
servers with those that toolscout has already. Home folder, platform, variables and working
directory are arguments, so that the result depends on nothing else. Nothing is started.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath, PureWindowsPath
from urllib.parse import urlsplit

from toolscout.clients.programs import CLIENTS
from toolscout.config.documents import is_file
from toolscout.config.file import Config, choose_name, import_servers, read_config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.references import choose_keyring_name, expand, expand_path, is_literal
from toolscout.config.secrets import (
    find_bearer_variables,
    find_secret_keys,
    has_secret_args,
    has_secret_url,
)
from toolscout.config.servers import ServerConfig
from toolscout.errors import UsageError
from toolscout.options import join_keys, list_options, quote_name

OWN = "toolscout"
OWN_FILE = "toolscout.toml"
CACHE_FILE = "gateway.db"

_UNSAFE_NAME = re.compile(r"[^\w.@-]+")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROGRAM = re.compile(r"toolscout(?:\.exe|\[[\w,]*\])?(?:[@=<>~].*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts that determine where programs keep their files."""

    home: Path
    platform: str
    """As `sys.platform` has it."""
    env: Mapping[str, str]
    cwd: Path

    @property
    def settings(self) -> Path:
        """The folder for settings of desktop programs."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self._find_folder("APPDATA", self.home / "AppData" / "Roaming")
        return self._config

    @property
    def user_file(self) -> Path:
        """The user's configuration file of toolscout."""
        return (self.settings if self.platform == "win32" else self._config) / OWN / OWN_FILE

    @property
    def local_file(self) -> Path | None:
        """The configuration in the working directory, if there is one.

        It is never used unasked: it may come with a repository, and it names commands to run.
        """
        here = self.cwd / OWN_FILE
        return here if is_file(here) and here != self.user_file else None

    @property
    def project_folders(self) -> tuple[Path, ...]:
        """The working folder and those around it, for which programs may have servers."""
        return (self.cwd, *self.cwd.parents)

    def find_places(self) -> dict[str, Path]:
        """Return the folders in which the files of clients are, by their names in `CLIENTS`."""
        return {
            "home": self.home,
            "settings": self.settings,
            "config": self._config,
            "claude": self._find_folder("CLAUDE_CONFIG_DIR", self.home),
            "codex": self._find_folder("CODEX_HOME", self.home / ".codex"),
            "copilot": self._find_folder("COPILOT_HOME", self.home / ".copilot"),
        }

    @property
    def _config(self) -> Path:
        return self._find_folder("XDG_CONFIG_HOME", self.home / ".config")

    def find_cache_file(self, gateway: GatewayConfig) -> Path:
        """Return the SQLite file of a gateway."""
        if gateway.cache:
            return Path(expand_path(gateway.cache, self.env, key="gateway.cache"))
        usual = self.home / ".cache"
        if self.platform == "win32":
            usual = self._find_folder("LOCALAPPDATA", self.home / "AppData" / "Local")
        return self._find_folder("XDG_CACHE_HOME", usual) / OWN / CACHE_FILE

    def _find_folder(self, variable: str, usual: Path) -> Path:
        # An empty or relative path counts as unset, as the XDG specification says.
        named = Path(self.env.get(variable) or "")
        return named if named.is_absolute() else usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that may list servers, and the program it belongs to."""

    program: str
    """Empty if a person named the file."""
    path: Path
    is_project: bool = False
    """Whether the file is in the working folder, and so perhaps in a repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """A server and the file in which it was found first."""

    server: ServerConfig
    source: Source
    is_new: bool = True
    """Whether toolscout does not have it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The servers that were found, in the order of the files, under one name each."""

    found: tuple[FoundServer, ...]
    sources: tuple[Source, ...]
    """The files that exist."""
    notes: tuple[str, ...]


def list_known_files(machine: Machine) -> list[Source]:
    """Return the files that may list servers, whether they exist or not, ours first."""
    own = [Source(program=OWN, path=machine.user_file)]
    here = machine.cwd / OWN_FILE
    if here != machine.user_file:
        own.append(Source(program=OWN, path=here, is_project=True))
    sources = own
    places = machine.find_places()
    for client in CLIENTS:
        files = [Path(file.format(**places)) for file in client.files]
        shared = [machine.cwd / file for file in client.project_files]
        sources += [Source(program=client.title, path=path) for path in files]
        sources += [
            Source(program=client.title, path=path, is_project=True)
            for path in shared
            if path not in files  # in the home folder, these are the user's own
        ]
    return sources


def find_servers(
    sources: Iterable[Source], machine: Machine, own: Config | None = None, *, project: bool = False
) -> Discovery:
    """Return the servers of toolscout's own configuration, and those that files add to it.

    A file that cannot be read becomes a note; errors in a file that a person named are raised.
    Servers of the working folder are left where they are unless `project` asks for them, and then
    the user's own files come first, so that no repository takes a name. Entries for toolscout
    itself are left out, because it would call itself.
    """
    own = own or Config()
    existing: dict[Path, Source] = {}
    for source in sources:
        if source.path != own.source and (not source.program or is_file(source.path)):
            existing.setdefault(source.path, source)
    servers = {server.name: server for server in own.servers}
    home = Source(program=OWN, path=own.source)
    found = [FoundServer(server=one, source=home, is_new=False) for one in own.servers]
    notes: list[str] = []
    listed = [
        (server, source)
        for source in sorted(existing.values(), key=lambda source: source.is_project)
        for server in _read(source, machine, notes, project=project)
    ]
    known = [one for one, _ in listed if one.name in servers]
    seen = {one.name for one in known if servers[one.name].starts_like(one)}
    for server, source in listed:
        quoted = quote_name(server.name)
        if starts_own(server.command, server.url, server.args):
            notes.append(f"{source.path}: server {quoted} is toolscout itself. It was left out.")
            continue
        same = _find_same(server, own.servers, seen)
        if same is not None:
            if same.has_other_values(server):
                notes.append(_explain_difference(server, source, same, own.source))
            continue
        name = choose_name(server, servers)
        if name in servers:
            continue
        if name != server.name:
            taken = f"another server is {quoted} already"
            notes.append(f"{source.path}: {taken}. This one is {name!r}.")
        servers[name] = replace(server, name=name)
        found.append(FoundServer(server=servers[name], source=source))
    files = [*([home] if own.servers else []), *existing.values()]
    return Discovery(found=tuple(found), sources=tuple(files), notes=tuple(notes))


def is_same_server(server: ServerConfig, own: ServerConfig) -> bool:
    """Tell whether a client's server is one that toolscout has, perhaps with edited options."""
    if not own.has_same_start(server):
        return False
    return own.name == server.name or own.starts_like(server) or not own.has_other_values(server)


def _find_same(
    server: ServerConfig, own: Sequence[ServerConfig], seen: set[str]
) -> ServerConfig | None:
    """Return the server of toolscout's own that a found one is, whatever was edited there.

    A server that was found elsewhere under its own name (`seen`) is not also another one.
    """
    alike = [one for one in own if one.has_same_start(server)]
    same = [one for one in alike if one.name not in seen or not one.has_other_values(server)]
    return min(
        same, key=lambda one: (one.name != server.name, one.has_other_values(server)), default=None
    )


def _explain_difference(
    server: ServerConfig, source: Source, same: ServerConfig, place: Path
) -> str:
    text = (
        f"{source.path}: server {quote_name(server.name)} starts like {quote_name(same.name)} in "
        f"{place}, but with other variables or headers."
    )
    if is_same_server(server, same):
        return f"{text} Those in {place.name} stay."
    return f"{text} It stays there. If both are needed, add it under another name."


def starts_own(command: str, url: str, args: Sequence[str]) -> bool:
    """Tell whether a command with arguments, or a URL, starts or reaches toolscout itself."""
    if _PROGRAM.fullmatch(_get_last_part(command)):
        return True
    for word, following in pairwise(args):
        if (word, following) == ("-m", OWN):
            return True
        if following == "serve" and _PROGRAM.fullmatch(_get_last_part(word)):
            return True
    try:
        parts = urlsplit(url)
        return parts.hostname in _LOOPBACK and parts.port == GatewayConfig().port
    except ValueError:
        return False


def format_secret_notes(servers: Iterable[ServerConfig]) -> list[str]:
    """Return a note for each key that seems to contain a secret in plain text or a bearer token."""
    notes: list[str] = []
    for server in servers:
        notes += [
            f"{key} contains a secret in plain text. Write ${{keyring:NAME}}, ${{VARIABLE}} or "
            "${file:PATH} instead."
            for key in find_secret_places(server)
        ]
        texts = {f"args[{place}]": text for place, text in enumerate(server.args)}
        for kind, values in (("headers", server.headers), ("env", server.env), ("args", texts)):
            for key, text in values.items():
                place = (kind,) if kind == "args" else (kind, key)
                notes += [
                    f"{join_keys('servers', server.name, *place)} takes a bearer token from the "
                    f"variable {name}. Set it where toolscout runs."
                    for name in find_bearer_variables(text)
                ]
    return notes


def find_secret_places(server: ServerConfig) -> list[str]:
    """Return the keys of a server that seem to contain a secret in plain text."""
    places = list_secret_options(server)
    if has_secret_url(server.url):
        places.append(("url",))
    if has_secret_args(server.args):
        places.append(("args",))
    return [join_keys("servers", server.name, *place) for place in places]


def list_secret_options(server: ServerConfig) -> list[tuple[str, ...]]:
    """Return the options, and keys in them, whose values seem to be secrets in plain text."""
    places: list[tuple[str, ...]] = []
    for declared in list_options(ServerConfig):
        value = getattr(server, declared.name)
        if declared.secret and isinstance(value, str):
            places += [(declared.name,)] if value and is_literal(value) else []
        elif declared.secret:
            places += [(declared.name, key) for key in find_secret_keys(value)]
    return places


def move_secrets(server: ServerConfig, moved: dict[str, str]) -> ServerConfig:
    """Return a server that takes its plain secrets from the keychain, and add them to `moved`.

    Nothing is stored. Secrets in addresses and arguments stay where they are.
    """
    for option, *keys in list_secret_options(server):
        table = getattr(server, option)
        text = table[keys[0]] if keys else table
        if not is_literal(text):
            continue
        value = expand(text, {})
        label = _UNSAFE_NAME.sub("-", ".".join((server.name, *(keys or [option]))))
        name = choose_keyring_name(label, value, moved)
        moved[name] = value
        reference = f"${{keyring:{name}}}"
        changed = {**table, keys[0]: reference} if keys else reference
        server = replace(server, **{option: changed})
    return server


def _read(
    source: Source, machine: Machine, notes: list[str], *, project: bool
) -> tuple[ServerConfig, ...]:
    """Return the servers of a file; add notes on what was left out or stays there."""
    try:
        if source.program in (OWN, ""):
            config = read_config(source.path)
        else:
            config = import_servers(source.path, machine.project_folders)
        if project or (source.program in (OWN, "") and not source.is_project):
            notes += config.notes
            return config.servers
        mine = import_servers(source.path, ()) if not source.is_project else Config()
    except UsageError as error:
        if not source.program:
            raise
        notes.append(f"{error} The file was left out.")
        return ()
    notes += mine.notes
    staying = _count_others(config) - _count_others(mine)
    if staying:
        count = "1 server" if staying == 1 else f"{staying:,} servers"
        problem = f"{count} for this project not moved"
        notes.append(f"{source.path}: {problem}. Add --project to include projects.")
    return mine.servers


def _count_others(config: Config) -> int:
    return sum(not starts_own(one.command, one.url, one.args) for one in config.servers)


def _get_last_part(text: str) -> str:
    name = PureWindowsPath(text).name if "\\" in text else PurePosixPath(text).name
    return name or text
