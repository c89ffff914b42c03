"""The servers of the configuration, as far as can be told without starting one."""

import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from toolscout.cli.checks import Checkup, fail, ok, warn
from toolscout.config.file import Config
from toolscout.config.secrets import shown_url
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig
from toolscout.names import one_line

NAME_SHOWN = 40


def servers(config: Config, tokens: Path, env: Mapping[str, str]) -> Iterator[Checkup]:
    """Look whether each server can be started or reached as far as this machine knows."""
    for server in config.servers:
        name = f"server {one_line(server.name, NAME_SHOWN)}"
        yield ok(name, "disabled") if server.disabled else _server(name, server, tokens, env)


def commands(config: Config) -> list[str]:
    """Return what starts the servers that are not disabled."""
    return [one.command for one in config.servers if one.command and not one.disabled]


def _server(name: str, server: ServerConfig, tokens: Path, env: Mapping[str, str]) -> Checkup:
    try:
        ready = server.resolved(env)
    except InvalidConfig as error:
        return fail(name, f"Setting {error.key!r} {error.problem}.", error.remedy)
    if ready.transport is Transport.STDIO:
        return _process(name, ready, env)
    if ready.transport is Transport.OPENAPI:
        return ok(name, "an OpenAPI document")
    return _login(name, ready, tokens)


def _process(name: str, server: ServerConfig, env: Mapping[str, str]) -> Checkup:
    path = server.env.get("PATH", env.get("PATH", ""))
    folder = Path(server.cwd) if server.cwd else None
    if folder is not None and not folder.is_dir():
        return fail(name, f"Its folder {folder} does not exist.", "Set its 'cwd' to another.")
    beside = folder / server.command if folder is not None else Path(server.command)
    is_path = len(Path(server.command).parts) > 1
    found = shutil.which(str(beside) if is_path else server.command, path=path)
    if found is None:
        text = f"Its command {one_line(server.command, 100)!r} is not on this machine."
        return fail(name, text, f"Install {shlex.quote(server.command)}, or name another command.")
    return ok(name, f"starts {found}")


def _login(name: str, server: ServerConfig, tokens: Path) -> Checkup:
    place = shown_url(server.url)
    if find_spec("mcp") is None:
        return ok(name, place)
    from toolscout.servers.oauth.login import LoginState, login_command, login_state

    state = login_state(server, tokens, time.time())
    if state in (LoginState.NEEDED, LoginState.EXPIRED):
        return warn(name, f"The login at {place} is {state}.", login_command(server.name))
    return ok(name, f"{place} (login: {state})")
