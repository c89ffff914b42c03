"""`toolscout doctor`: what is wrong on this machine, and the command that mends it.

Prints what `toolscout.checkups` finds; starts no server unless asked and changes nothing.

`Checkup`: one thing that was looked at, how it is, and the command that mends it.

Values only. What is looked at is the business of the modules beside this one.

Clients that start toolscout: whether what they start is there.

The files that toolscout keeps: configuration, cache and tokens, and who may read them.

The port of the gateway: free, taken by a gateway, or by something else.

The programs that toolscout needs: Python, its own packages, and Node for servers in it.

The servers of the configuration, as far as can be told without starting one.

One round of all checkups, in the order in which a person would look.
"""

import asyncio
import http.client
import json
import os
import re
import shlex
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import click

from toolscout.cli import ExitCode
from toolscout.cli.init import CLIENTS
from toolscout.cli.inputs import config_option, config_place, this_machine
from toolscout.clients.discovery import OWN, Machine, Source, find_secret_places, list_known_files
from toolscout.clients.rewrite import (
    find_table,
    is_own_entry,
    list_places,
    parse_document,
    read_text,
)
from toolscout.config.documents import is_file
from toolscout.config.file import Config, read_config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.secrets import mask_url
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig, MissingExtra, ToolscoutError, UsageError
from toolscout.names import to_one_line
from toolscout.schemas import Json, is_list, is_object

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}
TEXT_SHOWN = 400


@click.command()
@config_option
@click.option("--start", is_flag=True, help="Start every server too, as `servers test` does.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(path: Path | None, start: bool, as_json: bool) -> None:
    """Look for what is wrong: configuration, servers, cache, ports, versions, clients.

    Each line is ok, warn or fail, with what mends it. Ends with exit code 1 if something failed.

    \b
    Example:
      toolscout doctor
      toolscout doctor --start --json
    """
    found: list[Checkup] = []
    for one in _checkups(config_place(path), start=start):
        found.append(one)
        if not as_json:
            click.echo("\n".join(_lines(one)))
    failed = sum(one.state == "fail" for one in found)
    warned = sum(one.state == "warn" for one in found)
    if as_json:
        click.echo(json.dumps(_to_json(found, failed), ensure_ascii=False))
    else:
        click.echo(f"\n{len(found)} checked, {warned} to look at, {failed} failed.")
    if failed:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _checkups(place: Path, *, start: bool) -> "Iterator[Checkup]":
    names = {program: name for name, program in CLIENTS.items()}
    yield from every_checkup(this_machine(), place, names)
    if start and place.exists():
        yield from _started(place)


def _started(place: Path) -> "Iterator[Checkup]":
    from toolscout.cli.servers import tried_servers
    from toolscout.config.file import read_config
    from toolscout.errors import UsageError

    try:
        config = read_config(place)
    except UsageError:
        return  # told already
    chosen = [server for server in config.servers if not server.disabled]
    for trial in asyncio.run(tried_servers(config, chosen)):
        name = f"start {trial.server}"
        if trial.is_ok:
            yield ok(name, f"{sum(trial.counts.values()):,} offered in {trial.seconds:.1f} s")
        else:
            yield fail(name, trial.problem, trial.remedy or "toolscout servers test")


def _lines(one: "Checkup") -> list[str]:
    from toolscout.names import to_one_line

    mark = click.style(f"{one.state:<4}", fg=STYLES[one.state], bold=one.state == "fail")
    name = to_one_line(one.name, 60)
    lines = [f"{mark}  {name}: {to_one_line(one.text, TEXT_SHOWN)}"]
    return lines + ([f"      -> {to_one_line(one.remedy, TEXT_SHOWN)}"] if one.remedy else [])


def _to_json(found: "list[Checkup]", failed: int) -> dict[str, object]:
    rows = [
        {"name": one.name, "state": str(one.state), "text": one.text, "remedy": one.remedy}
        for one in found
    ]
    return {"ok": not failed, "checks": rows}


class State(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARN = "warn"
    """It works, but not as well as it could, or not for everyone."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """One thing that was looked at."""

    name: str
    """What was looked at: `python`, `cache`, `server github`."""
    state: State
    text: str
    remedy: str = ""
    """A command to type, or what to do; empty where nothing is to be done."""


def ok(name: str, text: str) -> Checkup:
    """Return that a thing is in order."""
    return Checkup(name=name, state=State.OK, text=text)


def warn(name: str, text: str, remedy: str) -> Checkup:
    """Return that a thing could be better."""
    return Checkup(name=name, state=State.WARN, text=text, remedy=remedy)


def fail(name: str, text: str, remedy: str) -> Checkup:
    """Return that a thing does not work."""
    return Checkup(name=name, state=State.FAIL, text=text, remedy=remedy)


REMEDY = "toolscout init --client {}"


def clients(
    sources: Iterable[Source], names: Mapping[str, str], env: Mapping[str, str], project: Path
) -> Iterator[Checkup]:
    """Look into the files of clients; `names` has what the command line calls each program."""
    seen: set[Path] = set()
    for source in sources:
        if source.program in ("", OWN) or source.path in seen or not is_file(source.path):
            continue
        seen.add(source.path)
        name = f"client {source.program}"
        remedy = REMEDY.format(names.get(source.program, ""))
        try:
            document = parse_document(source.path, read_text(source.path))
        except UsageError as error:
            yield warn(name, str(error), f"Mend {source.path}.")
            continue
        entries = [
            entry
            for keys in list_places(document, project)
            for entry in find_table(document.tables, keys).values()
        ]
        own = [entry for entry in entries if is_own_entry(entry)]
        if own:
            yield from (_own(name, source, entry, env, remedy) for entry in own)
        elif entries:
            yield ok(name, f"{source.path} has servers of its own: {len(entries)} ({remedy})")


def _own(name: str, source: Source, entry: Json, env: Mapping[str, str], remedy: str) -> Checkup:
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not command:
        return ok(name, f"{source.path} reaches toolscout by its address")
    if shutil.which(command, path=env.get("PATH", "")) is None:
        text = f"{source.path} starts {command[:200]}, which is not on this machine."
        return fail(name, text, remedy)
    config = _config_file(args if is_list(args) else [])
    if config is not None and not is_file(config):
        return fail(name, f"{source.path} names {config}, which does not exist.", remedy)
    return ok(name, f"{source.path} starts toolscout")


def _config_file(args: list[object]) -> Path | None:
    if "--config" not in args[:-1]:
        return None
    following = args[args.index("--config") + 1]
    return Path(following) if isinstance(following, str) else None


LOCKED_SECONDS = 0.5
OTHERS = 0o077
_UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}")


def configuration(place: Path, found: list[Config]) -> Iterator[Checkup]:
    """Look at the configuration, and leave it in `found` where it can be used."""
    name = "configuration"
    if not is_file(place):
        yield warn(name, f"{place} does not exist.", "toolscout init")
        return
    try:
        config = read_config(place)
    except UsageError as error:
        yield fail(name, str(error), f"Mend {place}.")
        return
    found.append(config)
    yield ok(name, f"{place} lists {_count(len(config.servers), 'server')}")
    for note in config.notes:
        yield warn(name, note, "toolscout servers list")
    holds_secrets = any(find_secret_places(server) for server in config.servers)
    if holds_secrets and is_open(place):
        text = f"Others may read {place}, which holds secrets in plain text."
        yield fail(name, text, f"chmod 600 {shlex.quote(str(place))}")


def cache(config: Config, file: Path) -> Iterator[Checkup]:
    """Look at the store of the gateway: a file, or a database."""
    if config.gateway.store:
        yield _database(config)
    elif is_file(file):
        yield _file(file)
        if is_open(file):
            text = f"Others may read {file}."
            yield fail("cache", text, f"chmod 600 {shlex.quote(str(file))}")
    elif not _is_writable(file.parent):
        remedy = "Make the folder writable, or set 'gateway.cache' to another file."
        yield fail("cache", f"{file} cannot be made.", remedy)
    else:
        yield ok("cache", f"{file} will be made by the first `toolscout serve`")


def token_files(folder: Path) -> Iterator[Checkup]:
    """Look who may read what logins gave."""
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    opened = [file for file in files if is_open(file)]
    for file in opened:
        text = f"Others may read the tokens in {file}."
        yield fail("token files", text, f"chmod 600 {shlex.quote(str(file))}")
    if not opened:
        count = _count(len(files), "token file")
        yield ok("token files", f"{count}, for their owner alone" if files else "no logins yet")


def leftovers(folders: Iterable[Path]) -> Iterator[Checkup]:
    """Look for files that an interrupted write left behind."""
    for folder in folders:
        for file in sorted(folder.iterdir()) if folder.is_dir() else []:
            match = _UNFINISHED.fullmatch(file.name)
            if match and match["name"].endswith((".toml", ".json", ".bak")):
                text = f"{file} is what an interrupted write left behind."
                yield warn("leftovers", text, f"rm {shlex.quote(str(file))}")


def is_open(path: Path) -> bool:
    """Tell whether others than its owner may read or change a file."""
    if sys.platform == "win32":
        return False  # its modes say nothing about who may read
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & OTHERS)
    except OSError:
        return False


def _file(file: Path) -> Checkup:
    moved = f"mv {shlex.quote(str(file))} {shlex.quote(str(file) + '.old')}"
    try:
        address = f"{file.resolve().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, timeout=LOCKED_SECONDS)) as connection:
            (told,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            remedy = "Stop the `toolscout serve` that hangs, then run `toolscout doctor` again."
            return warn("cache", f"{file} is locked by another process.", remedy)
        return fail("cache", f"{file} cannot be opened for writing.", "Check its permissions.")
    except sqlite3.DatabaseError:
        return fail("cache", f"{file} is not a database, or damaged.", moved)
    if told != "ok":
        return fail("cache", f"{file} is damaged.", moved)
    return ok("cache", f"{file}, {file.stat().st_size / 1e6:.1f} MB")


def _database(config: Config) -> Checkup:
    try:
        from toolscout.stores import PostgresStore

        with PostgresStore(config.gateway.resolve_store()):
            return ok("cache", "the database answers")
    except MissingExtra as error:
        return fail("cache", str(error), "pip install 'toolscout[postgres]'")
    except ToolscoutError as error:
        return fail("cache", str(error), "Check 'gateway.store'.")


def _is_writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


ANSWER_SECONDS = 3.0
MAX_ANSWER_BYTES = 1 << 20


def port(gateway: GatewayConfig) -> Checkup:
    """Look at the port on which `toolscout serve --http` would listen."""
    place = f"{gateway.host}:{gateway.port}"
    if gateway.port == 0:
        return ok("port", "any that is free")
    if _is_free(gateway.host, gateway.port):
        return ok("port", f"{place} is free")
    if _asked(gateway, "/healthz").get("alive") is not True:
        text = f"{place} is taken by another program."
        return warn("port", text, f"toolscout serve --http --port {gateway.port + 1}")
    told = _asked(gateway, "/status").get("versions")
    running = told.get("toolscout") if is_object(told) else None
    mine = version("toolscout")
    if isinstance(running, str) and running != mine:
        text = f"The gateway at {place} is toolscout {running[:40]}; installed is {mine}."
        return warn("port", text, "Stop it and run `toolscout serve --http` again.")
    return ok("port", f"a gateway answers at {place}")


def _is_free(host: str, number: int) -> bool:
    try:
        family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, number))
    except OSError:
        return False
    return True


def _asked(gateway: GatewayConfig, path: str) -> Json:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(gateway.host, gateway.host)
    connection = http.client.HTTPConnection(host, gateway.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        told: object = json.loads(connection.getresponse().read(MAX_ANSWER_BYTES))
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    finally:
        connection.close()
    return told if is_object(told) else {}


OLDEST_PYTHON = (3, 11)
OLDEST_NODE = 18
NODE_SECONDS = 10.0
SDK_MAJOR = "2"
EXTRAS = {"onnx": "onnxruntime", "ann": "usearch", "postgres": "psycopg"}
OF_NODE = ("npx", "npm", "node")


def python() -> Checkup:
    """Look at the interpreter."""
    shown = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return fail("python", f"Python {shown} is too old.", f"Install Python {wanted} or later.")
    return ok("python", f"Python {shown}")


def own_program(env: Mapping[str, str]) -> Checkup:
    """Look whether the shell and clients find this toolscout."""
    mine = f"toolscout {version('toolscout')}"
    found = shutil.which("toolscout", path=env.get("PATH", ""))
    folder = Path(sys.executable).parent
    if found is None:
        remedy = f"Add {folder} to PATH."
        return warn("toolscout", f"{mine} is not on PATH.", remedy)
    if Path(found).parent.resolve() != folder.resolve():
        text = f"{mine} runs, but {found} comes first on PATH."
        return warn("toolscout", text, f"Put {folder} first on PATH, or uninstall the other.")
    return ok("toolscout", mine)


def extras() -> Iterator[Checkup]:
    """Look at what can be installed beside toolscout."""
    yield _sdk()
    for extra, module in EXTRAS.items():
        is_there = find_spec(module) is not None
        how = _version(module) if is_there else "not installed, and only needed where it is used"
        yield ok(f"extra {extra}", how)


def vectors() -> Checkup:
    """Look whether the default encoder has its files."""
    from toolscout.encoders.static import StaticEncoder

    try:
        StaticEncoder().encode(["a"], kind="tool")
    except (ToolscoutError, ImportError) as error:
        return fail("vectors", str(error), "pip install --force-reinstall toolscout")
    return ok("vectors", "the static vectors are in place")


def node(commands: list[str], env: Mapping[str, str]) -> Iterator[Checkup]:
    """Look at Node where a server is started with it."""
    if not any(Path(command).stem in OF_NODE for command in commands):
        return
    program = shutil.which("node", path=env.get("PATH", ""))
    if program is None:
        text = "Node is not on PATH, and servers are started with npx."
        yield fail("node", text, f"Install Node {OLDEST_NODE} or later.")
        return
    told = _told(program)
    major = told.removeprefix("v").partition(".")[0]
    if not major.isdecimal():
        yield fail("node", f"{program} does not tell its version.", "Install Node again.")
    elif int(major) < OLDEST_NODE:
        remedy = f"Install Node {OLDEST_NODE} or later."
        yield warn("node", f"Node {told} is older than most servers take.", remedy)
    else:
        yield ok("node", f"Node {told}")


def _sdk() -> Checkup:
    remedy = "pip install 'toolscout[gateway]'"
    if find_spec("mcp") is None:
        return fail("extra gateway", "The MCP SDK is not installed.", remedy)
    found = _version("mcp")
    if found.partition(".")[0] != SDK_MAJOR:
        text = f"The MCP SDK is {found}; the gateway needs {SDK_MAJOR}.x."
        return fail("extra gateway", text, remedy)
    return ok("extra gateway", f"MCP SDK {found}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "installed"


def _told(program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=NODE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout.strip()[:40]


NAME_SHOWN = 40


def servers(config: Config, tokens: Path, env: Mapping[str, str]) -> Iterator[Checkup]:
    """Look whether each server can be started or reached as far as this machine knows."""
    for server in config.servers:
        name = f"server {to_one_line(server.name, NAME_SHOWN)}"
        yield ok(name, "disabled") if server.disabled else _server(name, server, tokens, env)


def commands(config: Config) -> list[str]:
    """Return what starts the servers that are not disabled."""
    return [one.command for one in config.servers if one.command and not one.disabled]


def _server(name: str, server: ServerConfig, tokens: Path, env: Mapping[str, str]) -> Checkup:
    try:
        ready = server.resolve(env)
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
        text = f"Its command {to_one_line(server.command, 100)!r} is not on this machine."
        return fail(name, text, f"Install {shlex.quote(server.command)}, or name another command.")
    return ok(name, f"starts {found}")


def _login(name: str, server: ServerConfig, tokens: Path) -> Checkup:
    place = mask_url(server.url)
    if find_spec("mcp") is None:
        return ok(name, place)
    from toolscout.servers.oauth.login import LoginState, find_login_state, format_login_command

    state = find_login_state(server, tokens, time.time())
    if state in (LoginState.NEEDED, LoginState.EXPIRED):
        return warn(name, f"The login at {place} is {state}.", format_login_command(server.name))
    return ok(name, f"{place} (login: {state})")


TOKENS_FOLDER = "tokens"


def every_checkup(machine: Machine, place: Path, names: Mapping[str, str]) -> Iterator[Checkup]:
    """Yield what is found, as it is found; starts no server and changes nothing.

    `place` is the configuration file, `names` what the command line calls each client.
    """
    yield python()
    yield own_program(machine.env)
    yield from extras()
    yield vectors()
    found: list[Config] = []
    yield from configuration(place, found)
    config = found[0] if found else Config(source=place)
    file = _cache_file(machine, config)
    tokens = file.parent / TOKENS_FOLDER
    yield from servers(config, tokens, machine.env)
    yield from node(commands(config), machine.env)
    yield from cache(config, file)
    yield from token_files(tokens)
    yield from leftovers((place.parent, file.parent, tokens))
    yield port(config.gateway)
    yield from clients(list_known_files(machine), names, machine.env, machine.cwd)


def _cache_file(machine: Machine, config: Config) -> Path:
    try:
        return machine.find_cache_file(config.gateway)
    except UsageError:  # a reference that leads nowhere, which `configuration` cannot know
        return machine.find_cache_file(Config().gateway)
