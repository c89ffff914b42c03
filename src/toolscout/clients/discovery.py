"""Finds configuration files, and the servers that programs on this machine already have.

`list_known_files` lists where to look; `find_servers` reads the files that exist and merges their
servers. Home folder, platform, variables and working directory are arguments, so that the result
depends on nothing else. Nothing is started.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath, PureWindowsPath
from urllib.parse import urlsplit

from toolscout.config.documents import is_file
from toolscout.config.file import Config, choose_name, import_servers, read_config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.references import expand_path, is_literal
from toolscout.config.secrets import find_secret_keys, has_secret_args, has_secret_url
from toolscout.config.servers import ServerConfig
from toolscout.errors import UsageError
from toolscout.options import join_keys, list_options, quote_name

OWN = "toolscout"
OWN_FILE = "toolscout.toml"
CACHE_FILE = "gateway.db"

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
        return self._find_folder("XDG_CONFIG_HOME", self.home / ".config")

    @property
    def user_file(self) -> Path:
        """The user's configuration file of toolscout."""
        usual = self._find_folder("XDG_CONFIG_HOME", self.home / ".config")
        return (self.settings if self.platform == "win32" else usual) / OWN / OWN_FILE

    @property
    def config_file(self) -> Path:
        """The file to use by default: the one in the working directory, or else the user's."""
        here = self.cwd / OWN_FILE
        return here if is_file(here) else self.user_file

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """A server and the file in which it was found first."""

    server: ServerConfig
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The servers that were found, in the order of the files, under one name each."""

    found: tuple[FoundServer, ...]
    sources: tuple[Source, ...]
    """The files that exist."""
    notes: tuple[str, ...]


def list_known_files(machine: Machine) -> list[Source]:
    """Return the files that may list servers, whether they exist or not, ours first."""
    settings = machine.settings
    claude = Path(machine.env.get("CLAUDE_CONFIG_DIR") or machine.home)
    codex = Path(machine.env.get("CODEX_HOME") or machine.home / ".codex")
    places = (
        (OWN, machine.cwd / OWN_FILE),
        (OWN, machine.user_file),
        ("Claude Desktop", settings / "Claude" / "claude_desktop_config.json"),
        ("Claude Code", claude / ".claude.json"),
        ("Claude Code", machine.cwd / ".mcp.json"),
        ("Cursor", machine.home / ".cursor" / "mcp.json"),
        ("Cursor", machine.cwd / ".cursor" / "mcp.json"),
        ("VS Code", settings / "Code" / "User" / "mcp.json"),
        ("VS Code", settings / "Code" / "User" / "settings.json"),
        ("VS Code", settings / "Code - Insiders" / "User" / "mcp.json"),
        ("VS Code", settings / "Code - Insiders" / "User" / "settings.json"),
        ("VS Code", machine.cwd / ".vscode" / "mcp.json"),
        ("Codex", codex / "config.toml"),
        ("Codex", machine.cwd / ".codex" / "config.toml"),
        ("Windsurf", machine.home / ".codeium" / "windsurf" / "mcp_config.json"),
    )
    return [Source(program=program, path=path) for program, path in places]


def find_servers(sources: Iterable[Source], *, cwd: Path) -> Discovery:
    """Return the servers of the files that exist; a file that cannot be read becomes a note.

    Errors in a file that a person named are raised. Entries for toolscout itself are left out,
    because it would call itself.
    """
    existing: dict[Path, Source] = {}
    for source in sources:
        if not source.program or is_file(source.path):
            existing.setdefault(source.path, source)
    servers: dict[str, ServerConfig] = {}
    found: list[FoundServer] = []
    notes: list[str] = []
    for path, source in existing.items():
        for server in _read(source, cwd, notes).servers:
            quoted = quote_name(server.name)
            if starts_own(server.command, server.url, server.args):
                notes.append(f"{path}: server {quoted} is toolscout itself. It was left out.")
                continue
            name = choose_name(server, servers)
            if name in servers:
                continue
            if name != server.name:
                notes.append(f"{path}: another server is {quoted} already. This one is {name!r}.")
            servers[name] = replace(server, name=name)
            found.append(FoundServer(server=servers[name], source=source))
    return Discovery(found=tuple(found), sources=tuple(existing.values()), notes=tuple(notes))


def build_config(findings: Discovery, target: Path) -> Config:
    """Return the configuration to write: the servers found, and the rest of the existing file."""
    servers = tuple(finding.server for finding in findings.found)
    try:
        old = read_config(target) if is_file(target) else Config()
    except UsageError:
        old = Config()
    return replace(old, servers=servers, source=target, notes=())


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
    """Return a note for each key that seems to contain a secret in plain text."""
    return [
        f"{key} contains a secret in plain text. Write ${{VARIABLE}} or ${{file:PATH}} instead."
        for server in servers
        for key in find_secret_places(server)
    ]


def find_secret_places(server: ServerConfig) -> list[str]:
    """Return the keys of a server that seem to contain a secret in plain text."""
    places: list[tuple[str, ...]] = []
    for declared in list_options(ServerConfig):
        value = getattr(server, declared.name)
        if declared.secret and isinstance(value, str):
            places += [(declared.name,)] if value and is_literal(value) else []
        elif declared.secret:
            places += [(declared.name, key) for key in find_secret_keys(value)]
    if has_secret_url(server.url):
        places.append(("url",))
    if has_secret_args(server.args):
        places.append(("args",))
    return [join_keys("servers", server.name, *place) for place in places]


def _read(source: Source, cwd: Path, notes: list[str]) -> Config:
    try:
        is_list = source.program not in (OWN, "")
        config = import_servers(source.path, cwd) if is_list else read_config(source.path)
    except UsageError as error:
        if not source.program:
            raise
        notes.append(f"{error} The file was left out.")
        return Config(source=source.path)
    notes += config.notes
    return config


def _get_last_part(text: str) -> str:
    name = PureWindowsPath(text).name if "\\" in text else PurePosixPath(text).name
    return name or text
