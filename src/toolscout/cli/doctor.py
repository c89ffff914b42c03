"""`toolscout doctor`: what is wrong on this machine, and the command that fixes it.

Checks Python, packages, configuration, servers, cache, token files, the port and the files of
clients. It changes nothing, and starts servers only with `--start`.
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
from toolscout.cli.inputs import TOKENS_FOLDER, config_option, find_config_file, get_machine
from toolscout.cli.servers import start_servers
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
from toolscout.encoders.static import StaticEncoder
from toolscout.errors import InvalidConfig, MissingExtra, ToolscoutError, UsageError
from toolscout.names import to_one_line
from toolscout.schemas import Json, is_list, is_object

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}
TEXT_SHOWN = 400
NAME_SHOWN = 40

OLDEST_PYTHON = (3, 11)
OLDEST_NODE = 18
NODE_SECONDS = 10.0
NODE_PROGRAMS = ("npx", "npm", "node")
SDK_MAJOR = "2"
EXTRAS = {"onnx": "onnxruntime", "ann": "usearch", "postgres": "psycopg"}

LOCKED_SECONDS = 0.5
OTHERS = 0o077
ANSWER_SECONDS = 3.0
MAX_ANSWER_BYTES = 1 << 20
CLIENT_REMEDY = "toolscout init --client {}"
_UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}")


class State(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARN = "warn"
    """It works, but not as well as it could, or not for everyone."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked."""

    name: str
    """What was checked: `python`, `cache`, `server github`."""
    state: State
    text: str
    remedy: str = ""
    """A command to run, or what to do; empty if nothing is to be done."""


def report_ok(name: str, text: str) -> Check:
    """Return that a thing is in order."""
    return Check(name=name, state=State.OK, text=text)


def report_warning(name: str, text: str, remedy: str) -> Check:
    """Return that a thing could be better."""
    return Check(name=name, state=State.WARN, text=text, remedy=remedy)


def report_failure(name: str, text: str, remedy: str) -> Check:
    """Return that a thing does not work."""
    return Check(name=name, state=State.FAIL, text=text, remedy=remedy)


@click.command()
@config_option
@click.option("--start", is_flag=True, help="Also start every server, as `servers test` does.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(path: Path | None, start: bool, as_json: bool) -> None:
    """Check this machine for problems and suggest fixes.

    Checks the configuration, servers, cache, ports, versions and clients. Each line is ok, warn
    or fail, with a fix. The exit code is 1 if something failed.

    \b
    Example:
      toolscout doctor
      toolscout doctor --start --json
    """
    checks: list[Check] = []
    for check in _check_all(find_config_file(path), start=start):
        checks.append(check)
        if not as_json:
            click.echo("\n".join(_format_lines(check)))
    failed = sum(check.state == "fail" for check in checks)
    warned = sum(check.state == "warn" for check in checks)
    if as_json:
        click.echo(json.dumps(_to_json(checks, failed), ensure_ascii=False))
    else:
        warnings = _format_count(warned, "warning")
        click.echo(f"\n{_format_count(len(checks), 'check')}: {warnings}, {failed} failed.")
    if failed:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _check_all(place: Path, *, start: bool) -> Iterator[Check]:
    names = {program: name for name, program in CLIENTS.items()}
    yield from check_machine(get_machine(), place, names)
    if start and place.exists():
        yield from _check_starts(place)


def _check_starts(place: Path) -> Iterator[Check]:
    try:
        config = read_config(place)
    except UsageError:
        return  # reported already
    chosen = [server for server in config.servers if not server.disabled]
    for trial in asyncio.run(start_servers(config, chosen)):
        name = f"start {trial.server}"
        if trial.is_ok:
            count = sum(trial.counts.values())
            yield report_ok(name, f"offers {count:,} in {trial.seconds:.1f} s")
        else:
            yield report_failure(name, trial.problem, trial.remedy or "toolscout servers test")


def _format_lines(check: Check) -> list[str]:
    mark = click.style(f"{check.state:<4}", fg=STYLES[check.state], bold=check.state == "fail")
    lines = [f"{mark}  {to_one_line(check.name, 60)}: {to_one_line(check.text, TEXT_SHOWN)}"]
    return lines + ([f"      -> {to_one_line(check.remedy, TEXT_SHOWN)}"] if check.remedy else [])


def _to_json(checks: list[Check], failed: int) -> dict[str, object]:
    rows = [
        {"name": one.name, "state": str(one.state), "text": one.text, "remedy": one.remedy}
        for one in checks
    ]
    return {"ok": not failed, "checks": rows}


def check_machine(machine: Machine, place: Path, names: Mapping[str, str]) -> Iterator[Check]:
    """Yield every check as it is done; starts no server and changes nothing.

    `place` is the configuration file; `names` maps each client's program to its name in options.
    """
    yield check_python()
    yield check_program(machine.env)
    yield from check_extras()
    yield check_vectors()
    found: list[Config] = []
    yield from check_configuration(place, found)
    config = found[0] if found else Config(source=place)
    file = _find_cache(machine, config)
    tokens = file.parent / TOKENS_FOLDER
    yield from check_servers(config, tokens, machine.env)
    commands = [one.command for one in config.servers if one.command and not one.disabled]
    yield from check_node(commands, machine.env)
    yield from check_cache(config, file)
    yield from check_token_files(tokens)
    yield from find_leftovers((place.parent, file.parent, tokens))
    yield check_port(config.gateway)
    yield from check_clients(list_known_files(machine), names, machine.env, machine.cwd)


def _find_cache(machine: Machine, config: Config) -> Path:
    try:
        return machine.find_cache_file(config.gateway)
    except UsageError:  # a reference without a value, which reading the file does not notice
        return machine.find_cache_file(Config().gateway)


def check_python() -> Check:
    """Check the version of the interpreter."""
    number = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        remedy = f"Install Python {wanted} or later."
        return report_failure("python", f"Python {number} is too old.", remedy)
    return report_ok("python", f"Python {number}")


def check_program(env: Mapping[str, str]) -> Check:
    """Check whether the shell and clients find this toolscout."""
    mine = f"toolscout {version('toolscout')}"
    found = shutil.which("toolscout", path=env.get("PATH", ""))
    folder = Path(sys.executable).parent
    if found is None:
        return report_warning("toolscout", f"{mine} is not on PATH.", f"Add {folder} to PATH.")
    if Path(found).parent.resolve() != folder.resolve():
        text = f"{mine} runs, but {found} comes first on PATH."
        remedy = f"Put {folder} first on PATH, or uninstall the other."
        return report_warning("toolscout", text, remedy)
    return report_ok("toolscout", mine)


def check_extras() -> Iterator[Check]:
    """Check the optional packages."""
    yield _check_sdk()
    for extra, module in EXTRAS.items():
        is_installed = find_spec(module) is not None
        text = _find_version(module) if is_installed else "not installed (optional)"
        yield report_ok(f"extra {extra}", text)


def _check_sdk() -> Check:
    remedy = "pip install 'toolscout[gateway]'"
    if find_spec("mcp") is None:
        return report_failure("extra gateway", "The MCP SDK is not installed.", remedy)
    found = _find_version("mcp")
    if found.partition(".")[0] != SDK_MAJOR:
        text = f"The MCP SDK is {found}; the gateway needs {SDK_MAJOR}.x."
        return report_failure("extra gateway", text, remedy)
    return report_ok("extra gateway", f"MCP SDK {found}")


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "installed"


def check_vectors() -> Check:
    """Check whether the default encoder has its files."""
    try:
        StaticEncoder().encode(["a"], kind="tool")
    except (ToolscoutError, ImportError) as error:
        return report_failure("vectors", str(error), "pip install --force-reinstall toolscout")
    return report_ok("vectors", "the static vectors are in place")


def check_configuration(place: Path, found: list[Config]) -> Iterator[Check]:
    """Check the configuration file, and append it to `found` if it can be used."""
    name = "configuration"
    if not is_file(place):
        yield report_warning(name, f"{place} does not exist.", "toolscout init")
        return
    try:
        config = read_config(place)
    except UsageError as error:
        yield report_failure(name, str(error), f"Fix {place}.")
        return
    found.append(config)
    yield report_ok(name, f"{place} lists {_format_count(len(config.servers), 'server')}")
    for note in config.notes:
        yield report_warning(name, note, "toolscout servers list")
    holds_secrets = any(find_secret_places(server) for server in config.servers)
    if holds_secrets and is_readable_by_others(place):
        text = f"Others can read {place}, which contains secrets in plain text."
        yield report_failure(name, text, f"chmod 600 {shlex.quote(str(place))}")


def check_servers(config: Config, tokens: Path, env: Mapping[str, str]) -> Iterator[Check]:
    """Check whether each server could be started or reached, without doing so."""
    for server in config.servers:
        name = f"server {to_one_line(server.name, NAME_SHOWN)}"
        if server.disabled:
            yield report_ok(name, "disabled")
        else:
            yield _check_server(name, server, tokens, env)


def _check_server(name: str, server: ServerConfig, tokens: Path, env: Mapping[str, str]) -> Check:
    try:
        ready = server.resolve(env)
    except InvalidConfig as error:
        return report_failure(name, f"Setting {error.key!r} {error.problem}.", error.remedy)
    if ready.transport is Transport.STDIO:
        return _check_process(name, ready, env)
    if ready.transport is Transport.OPENAPI:
        return report_ok(name, "an OpenAPI document")
    return _check_login(name, ready, tokens)


def _check_process(name: str, server: ServerConfig, env: Mapping[str, str]) -> Check:
    path = server.env.get("PATH", env.get("PATH", ""))
    folder = Path(server.cwd) if server.cwd else None
    if folder is not None and not folder.is_dir():
        return report_failure(name, f"Its folder {folder} does not exist.", "Change its 'cwd'.")
    beside = folder / server.command if folder is not None else Path(server.command)
    is_path = len(Path(server.command).parts) > 1
    found = shutil.which(str(beside) if is_path else server.command, path=path)
    if found is None:
        text = f"Its command {to_one_line(server.command, 100)!r} was not found."
        remedy = f"Install {shlex.quote(server.command)}, or change its 'command'."
        return report_failure(name, text, remedy)
    return report_ok(name, f"starts {found}")


def _check_login(name: str, server: ServerConfig, tokens: Path) -> Check:
    place = mask_url(server.url)
    if find_spec("mcp") is None:
        return report_ok(name, place)
    from toolscout.servers.oauth.login import LoginState, find_login_state, format_login_command

    state = find_login_state(server, tokens, time.time())
    if state in (LoginState.NEEDED, LoginState.EXPIRED):
        remedy = format_login_command(server.name)
        return report_warning(name, f"The login at {place} is {state}.", remedy)
    return report_ok(name, f"{place} (login: {state})")


def check_node(commands: list[str], env: Mapping[str, str]) -> Iterator[Check]:
    """Check Node, if a server is started with it."""
    if not any(Path(command).stem in NODE_PROGRAMS for command in commands):
        return
    remedy = f"Install Node {OLDEST_NODE} or later."
    program = shutil.which("node", path=env.get("PATH", ""))
    if program is None:
        yield report_failure("node", "Servers start with npx, but Node is not on PATH.", remedy)
        return
    answer = _ask_version(program)
    major = answer.removeprefix("v").partition(".")[0]
    if not major.isdecimal():
        text = f"{program} does not report its version."
        yield report_failure("node", text, "Install Node again.")
    elif int(major) < OLDEST_NODE:
        yield report_warning("node", f"Node {answer} is too old for most servers.", remedy)
    else:
        yield report_ok("node", f"Node {answer}")


def _ask_version(program: str) -> str:
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


def check_cache(config: Config, file: Path) -> Iterator[Check]:
    """Check the store of the gateway: a file, or a database."""
    if config.gateway.store:
        yield _check_database(config)
    elif is_file(file):
        yield _check_file(file)
        if is_readable_by_others(file):
            remedy = f"chmod 600 {shlex.quote(str(file))}"
            yield report_failure("cache", f"Others can read {file}.", remedy)
    elif not _is_writable(file.parent):
        remedy = "Make the folder writable, or set 'gateway.cache' to another file."
        yield report_failure("cache", f"{file} cannot be created.", remedy)
    else:
        yield report_ok("cache", f"{file} will be created by the first `toolscout serve`")


def _check_database(config: Config) -> Check:
    try:
        from toolscout.stores import PostgresStore

        with PostgresStore(config.gateway.resolve_store()):
            return report_ok("cache", "the database answers")
    except MissingExtra as error:
        return report_failure("cache", str(error), "pip install 'toolscout[postgres]'")
    except ToolscoutError as error:
        return report_failure("cache", str(error), "Check 'gateway.store'.")


def _check_file(file: Path) -> Check:
    move = f"mv {shlex.quote(str(file))} {shlex.quote(str(file) + '.old')}"
    try:
        address = f"{file.resolve().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, timeout=LOCKED_SECONDS)) as connection:
            (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            remedy = "Stop the `toolscout serve` that hangs, then run `toolscout doctor` again."
            return report_warning("cache", f"{file} is locked by another process.", remedy)
        remedy = "Check its permissions."
        return report_failure("cache", f"{file} cannot be opened for writing.", remedy)
    except sqlite3.DatabaseError:
        return report_failure("cache", f"{file} is damaged, or not a database.", move)
    if answer != "ok":
        return report_failure("cache", f"{file} is damaged.", move)
    return report_ok("cache", f"{file}, {file.stat().st_size / 1e6:.1f} MB")


def _is_writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def check_token_files(folder: Path) -> Iterator[Check]:
    """Check who can read the tokens of logins."""
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    exposed = [file for file in files if is_readable_by_others(file)]
    for file in exposed:
        text = f"Others can read the tokens in {file}."
        yield report_failure("token files", text, f"chmod 600 {shlex.quote(str(file))}")
    if not exposed:
        count = _format_count(len(files), "token file")
        text = f"{count}, readable only by you" if files else "no logins yet"
        yield report_ok("token files", text)


def find_leftovers(folders: Iterable[Path]) -> Iterator[Check]:
    """Find files that an interrupted write left behind."""
    for folder in folders:
        for file in sorted(folder.iterdir()) if folder.is_dir() else []:
            match = _UNFINISHED.fullmatch(file.name)
            if match and match["name"].endswith((".toml", ".json", ".bak")):
                text = f"{file} was left behind by an interrupted write."
                yield report_warning("leftovers", text, f"rm {shlex.quote(str(file))}")


def is_readable_by_others(path: Path) -> bool:
    """Return whether anyone but its owner may read or change a file."""
    if sys.platform == "win32":
        return False  # file modes there say nothing about who may read
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & OTHERS)
    except OSError:
        return False


def check_port(gateway: GatewayConfig) -> Check:
    """Check the port on which `toolscout serve --http` would listen."""
    place = f"{gateway.host}:{gateway.port}"
    if gateway.port == 0:
        return report_ok("port", "any free port")
    if _is_free(gateway.host, gateway.port):
        return report_ok("port", f"{place} is free")
    if _ask_gateway(gateway, "/healthz").get("alive") is not True:
        text = f"{place} is used by another program."
        return report_warning("port", text, f"toolscout serve --http --port {gateway.port + 1}")
    versions = _ask_gateway(gateway, "/status").get("versions")
    running = versions.get("toolscout") if is_object(versions) else None
    mine = version("toolscout")
    if isinstance(running, str) and running != mine:
        text = f"The gateway at {place} is toolscout {running[:40]}; installed is {mine}."
        return report_warning("port", text, "Stop it and run `toolscout serve --http` again.")
    return report_ok("port", f"a gateway answers at {place}")


def _is_free(host: str, number: int) -> bool:
    try:
        family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, number))
    except OSError:
        return False
    return True


def _ask_gateway(gateway: GatewayConfig, path: str) -> Json:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(gateway.host, gateway.host)
    connection = http.client.HTTPConnection(host, gateway.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        answer: object = json.loads(connection.getresponse().read(MAX_ANSWER_BYTES))
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    finally:
        connection.close()
    return answer if is_object(answer) else {}


def check_clients(
    sources: Iterable[Source], names: Mapping[str, str], env: Mapping[str, str], project: Path
) -> Iterator[Check]:
    """Check the files of clients; `names` maps each program to its name in options."""
    seen: set[Path] = set()
    for source in sources:
        if source.program in ("", OWN) or source.path in seen or not is_file(source.path):
            continue
        seen.add(source.path)
        name = f"client {source.program}"
        remedy = CLIENT_REMEDY.format(names.get(source.program, ""))
        try:
            document = parse_document(source.path, read_text(source.path))
        except UsageError as error:
            yield report_warning(name, str(error), f"Fix {source.path}.")
            continue
        entries = [
            entry
            for keys in list_places(document, project)
            for entry in find_table(document.tables, keys).values()
        ]
        own = [entry for entry in entries if is_own_entry(entry)]
        if own:
            yield from (_check_entry(name, source, entry, env, remedy) for entry in own)
        elif entries:
            count = _format_count(len(entries), "server")
            yield report_ok(name, f"{source.path} has {count} of its own ({remedy})")


def _check_entry(
    name: str, source: Source, entry: Json, env: Mapping[str, str], remedy: str
) -> Check:
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not command:
        return report_ok(name, f"{source.path} connects to toolscout by URL")
    if shutil.which(command, path=env.get("PATH", "")) is None:
        text = f"{source.path} starts {command[:200]}, which was not found."
        return report_failure(name, text, remedy)
    config = _find_config(args if is_list(args) else [])
    if config is not None and not is_file(config):
        return report_failure(name, f"{source.path} names {config}, which does not exist.", remedy)
    return report_ok(name, f"{source.path} starts toolscout")


def _find_config(args: list[object]) -> Path | None:
    if "--config" not in args[:-1]:
        return None
    following = args[args.index("--config") + 1]
    return Path(following) if isinstance(following, str) else None


def _format_count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
