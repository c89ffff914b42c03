"""Where configuration files lie, and the servers that programs on this machine already have.

`known_files` says where to look, `found_servers` reads what is there and puts it together.
The system is told, not asked: home, platform, variables and folder are arguments, so that the
same arguments give the same answer. Nothing is started.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from toolscout.names import to_one_line
from toolscout.options import join_keys

OWN = "toolscout"
OWN_FILE = "toolscout.toml"
CACHE_FILE = "gateway.db"
NAME_SHOWN = 60

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROGRAM = re.compile(r"toolscout(?:\.exe|\[[\w,]*\])?(?:[@=<>~].*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What decides where programs keep their files."""

    home: Path
    platform: str
    """As `sys.platform` has it."""
    env: Mapping[str, str]
    cwd: Path

    @property
    def settings(self) -> Path:
        """The folder in which desktop programs keep their settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self._folder("APPDATA", self.home / "AppData" / "Roaming")
        return self._folder("XDG_CONFIG_HOME", self.home / ".config")

    @property
    def user_file(self) -> Path:
        """The user's own configuration file of toolscout."""
        usual = self._folder("XDG_CONFIG_HOME", self.home / ".config")
        return (self.settings if self.platform == "win32" else usual) / OWN / OWN_FILE

    @property
    def config_file(self) -> Path:
        """The file to use where none is named: that of this folder, if it has one."""
        here = self.cwd / OWN_FILE
        return here if is_file(here) else self.user_file

    def cache_file(self, gateway: GatewayConfig) -> Path:
        """Return the SQLite file of a gateway."""
        if gateway.cache:
            return Path(expand_path(gateway.cache, self.env, key="gateway.cache"))
        usual = self.home / ".cache"
        if self.platform == "win32":
            usual = self._folder("LOCALAPPDATA", self.home / "AppData" / "Local")
        return self._folder("XDG_CACHE_HOME", usual) / OWN / CACHE_FILE

    def _folder(self, variable: str, usual: Path) -> Path:
        # An empty or relative path counts as unset, as the XDG specification says.
        named = Path(self.env.get(variable) or "")
        return named if named.is_absolute() else usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that may list servers, and the program it belongs to."""

    program: str
    """Empty where a person named the file."""
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A server and the file that it was first found in."""

    server: ServerConfig
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found, in the order of the files, under one name each."""

    found: tuple[Finding, ...]
    sources: tuple[Source, ...]
    """The files that exist."""
    notes: tuple[str, ...]


def known_files(machine: Machine) -> list[Source]:
    """Return the files that may list servers, whether they exist or not, ours first."""
    return [Source(program=program, path=path) for program, path in _places(machine)]


def found_servers(sources: Iterable[Source], *, cwd: Path) -> Findings:
    """Return the servers of the files that exist; a file that cannot be read becomes a note.

    Mistakes in a file that a person named are raised. toolscout's own entry is left out,
    because it would call itself.
    """
    existing = tuple(_existing(sources))
    servers: dict[str, ServerConfig] = {}
    origins: dict[str, Source] = {}
    notes: list[str] = []
    for source in existing:
        for server in _read(source, cwd, notes).servers:
            name = _kept(server, servers, source, notes)
            if name:
                origins.setdefault(name, source)
    found = [Finding(server=server, source=origins[name]) for name, server in servers.items()]
    return Findings(found=tuple(found), sources=existing, notes=tuple(notes))


def _existing(sources: Iterable[Source]) -> Iterator[Source]:
    seen: set[Path] = set()
    for source in sources:
        if source.path not in seen and (not source.program or is_file(source.path)):
            seen.add(source.path)
            yield source


def _kept(
    server: ServerConfig, kept: dict[str, ServerConfig], source: Source, notes: list[str]
) -> str:
    """Keep a server under a name of its own and return that; nothing for toolscout itself."""
    shown = to_one_line(server.name, NAME_SHOWN)
    if is_own(server):
        notes.append(f"{source.path}: server {shown!r} is toolscout itself. It was left out.")
        return ""
    name = choose_name(server, kept)
    if name not in kept and name != server.name:
        notes.append(f"{source.path}: another server is {shown!r} already. This one is {name!r}.")
    kept.setdefault(name, replace(server, name=name))
    return name


def new_config(findings: Findings, target: Path) -> Config:
    """Return what to write: the servers that were found, and what the file says beside servers."""
    servers = tuple(finding.server for finding in findings.found)
    try:
        old = read_config(target) if is_file(target) else Config()
    except UsageError:
        old = Config()
    return replace(old, servers=servers, source=target, notes=())


def is_own(server: ServerConfig) -> bool:
    """Tell whether a server is toolscout itself, however it is started."""
    return starts_own(server.command, server.url, server.args)


def starts_own(command: str, url: str, args: Sequence[str]) -> bool:
    """Tell whether a command with arguments, or a URL, leads to toolscout itself."""
    if _PROGRAM.fullmatch(_last_part(command)):
        return True
    for word, following in pairwise(args):
        if (word, following) == ("-m", OWN):
            return True
        if following == "serve" and _PROGRAM.fullmatch(_last_part(word)):
            return True
    return _is_own_address(url)


def secret_notes(servers: Iterable[ServerConfig]) -> list[str]:
    """Return a note for each key that seems to hold a secret in plain text, without its value."""
    return [
        f"{key} holds a secret in plain text. Write ${{VARIABLE}} or ${{file:PATH}} in its place."
        for server in servers
        for key in secret_places(server)
    ]


def secret_places(server: ServerConfig) -> list[str]:
    """Return the keys of a server that seem to hold a secret in plain text."""
    prefix = ("servers", server.name)
    places = [join_keys(*prefix, "env", name) for name in find_secret_keys(server.env)]
    places += [join_keys(*prefix, "headers", name) for name in find_secret_keys(server.headers)]
    for name, holds in (
        ("token", _is_plain(server.token)),
        ("oauth_client_secret", _is_plain(server.oauth_client_secret)),
        ("url", has_secret_url(server.url)),
        ("args", has_secret_args(server.args)),
    ):
        places += [join_keys(*prefix, name)] if holds else []
    return places


def _is_plain(text: str) -> bool:
    return bool(text) and is_literal(text)


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


def _places(machine: Machine) -> Iterator[tuple[str, Path]]:
    home, cwd, env, settings = machine.home, machine.cwd, machine.env, machine.settings
    yield OWN, cwd / OWN_FILE
    yield OWN, machine.user_file
    yield "Claude Desktop", settings / "Claude" / "claude_desktop_config.json"
    yield "Claude Code", Path(env.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
    yield "Claude Code", cwd / ".mcp.json"
    yield "Cursor", home / ".cursor" / "mcp.json"
    yield "Cursor", cwd / ".cursor" / "mcp.json"
    for edition in ("Code", "Code - Insiders"):
        yield "VS Code", settings / edition / "User" / "mcp.json"
        yield "VS Code", settings / edition / "User" / "settings.json"
    yield "VS Code", cwd / ".vscode" / "mcp.json"
    yield "Codex", Path(env.get("CODEX_HOME") or home / ".codex") / "config.toml"
    yield "Codex", cwd / ".codex" / "config.toml"
    yield "Windsurf", home / ".codeium" / "windsurf" / "mcp_config.json"


def _last_part(text: str) -> str:
    name = PureWindowsPath(text).name if "\\" in text else PurePosixPath(text).name
    return name or text


def _is_own_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.hostname in _LOOPBACK and parts.port == GatewayConfig().port
    except ValueError:
        return False
