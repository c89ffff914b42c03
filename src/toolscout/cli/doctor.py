"""`toolscout doctor`: find problems on this machine, and suggest the command that fixes each.

Checks Python, packages, configuration, servers, cache, token files, the port and the files of
clients. It changes nothing, and starts servers only with `--start`.
"""

import asyncio
import http.client
import os
import platform
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
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import click

from toolscout.cli import ExitCode, inputs
from toolscout.cli.output import NAME_SHOWN, echo_json, format_count
from toolscout.cli.servers import format_offer
from toolscout.cli.status import fetch_json, is_daemon_of
from toolscout.clients.discovery import (
    OWN,
    Machine,
    Source,
    find_secret_places,
    list_known_files,
    starts_own,
)
from toolscout.clients.programs import find_client
from toolscout.clients.rewrite import find_option, parse_document, read_text
from toolscout.clients.undo import find_backup
from toolscout.config.documents import is_file
from toolscout.config.file import Config, import_document, read_config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.secrets import mask_url
from toolscout.config.servers import Isolation, ServerConfig, Transport, is_matched
from toolscout.daemon.place import (
    UnsafeFolder,
    ask_daemons,
    can_have_daemon,
    check_folder,
    find_folder,
)
from toolscout.encoders.encoder import StaticEncoder
from toolscout.errors import (
    InvalidConfig,
    IsolationFailed,
    MissingExtra,
    ToolscoutError,
    UsageError,
)
from toolscout.names import list_some, to_error_text, to_one_line
from toolscout.schemas import Json, is_object
from toolscout.servers.isolation import IS_LINUX, check_isolation, find_privilege_program
from toolscout.tools import Effect

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}
TEXT_SHOWN = 400

OLDEST_NODE = 18
NODE_SECONDS = 10.0
NODE_PROGRAMS = ("npx", "npm", "node")
SDK_MAJOR = "2"
EXTRAS = {"onnx": "onnxruntime", "ann": "usearch", "postgres": "psycopg"}

LOCKED_SECONDS = 0.5
OTHERS = 0o077
ANSWER_SECONDS = 3.0
_UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    state: Literal["ok", "warn", "fail"]
    """A warning means that it works, but not as well as it could, or not for everyone."""
    name: str
    """The subject of the check, such as `python`, `cache` or `server github`."""
    text: str
    remedy: str = ""
    """A command to run or an instruction; empty if there is nothing to do."""


@click.command()
@inputs.config_option
@inputs.flag_option("--start", help="Also start every server, as `servers test` does.")
@inputs.json_option
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
    for check in _check_all(inputs.get_machine(), inputs.find_config_file(path), start=start):
        checks.append(check)
        if not as_json:
            style = STYLES[check.state]
            mark = click.style(f"{check.state:<4}", fg=style, bold=check.state == "fail")
            text = to_error_text(check.text, TEXT_SHOWN)
            click.echo(f"{mark}  {to_one_line(check.name, 60)}: {text}")
            if check.remedy:
                click.echo(f"      -> {to_one_line(check.remedy, TEXT_SHOWN)}")
    failed = sum(check.state == "fail" for check in checks)
    warned = sum(check.state == "warn" for check in checks)
    if as_json:
        rows = [asdict(check) for check in checks]
        echo_json({"ok": not failed, "checks": rows})
    else:
        warnings = format_count(warned, "warning")
        click.echo(f"\n{format_count(len(checks), 'check')}: {warnings}, {failed} failed.")
    if failed:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _check_all(machine: Machine, place: Path, *, start: bool) -> Iterator[Check]:
    """Yield every check as it is done; `place` is the configuration file."""
    yield from _check_installation(machine.env)
    found: list[Config] = []
    yield from _check_configuration(place, found)
    config = found[0] if found else Config(source=place)
    try:
        file = machine.find_cache_file(config.gateway)
    except UsageError:  # a reference without a value, which reading the file does not notice
        file = machine.find_cache_file(Config().gateway)
    tokens = file.parent / inputs.TOKENS_FOLDER
    yield from _check_servers(config, tokens, machine.env)
    commands = [one.command for one in config.servers if one.command and not one.disabled]
    if commands and IS_LINUX and not find_privilege_program():
        text = "setpriv is not installed, so servers may gain privileges through sudo and the like."
        yield Check("warn", "privileges", text, "Install util-linux.")
    yield from _check_node(commands, machine.env)
    yield from _check_cache(config, file)
    yield from _check_tools(config, file)
    yield from _check_effects(config)
    yield from _check_token_files(tokens)
    yield from _find_leftovers((place.parent, file.parent, tokens))
    yield _check_port(config.gateway)
    yield from _check_daemons(place)
    yield from _check_clients(machine)
    chosen = [server for server in config.servers if start and not server.disabled]
    for trial in asyncio.run(inputs.start_servers(config, chosen)) if chosen else []:
        name = f"start {trial.server}"
        if trial.is_ok and trial.held:
            yield Check("warn", name, trial.notes[-1], "toolscout approvals")
        elif trial.is_ok:
            yield Check("ok", name, format_offer(trial))
        else:
            problem = trial.problem[:1].upper() + trial.problem[1:]
            if trial.notes:
                problem = f"{problem.removesuffix('.')}. It wrote: {trial.notes[-1]}"
            yield Check("fail", name, problem, trial.remedy or "toolscout servers test")


def _check_installation(env: Mapping[str, str]) -> Iterator[Check]:
    """Check Python, whether the shell and clients find this toolscout, and its packages."""
    yield Check("ok", "python", f"Python {platform.python_version()}")
    mine = f"toolscout {version('toolscout')}"
    found = shutil.which("toolscout", path=env.get("PATH", ""))
    folder = Path(sys.executable).parent
    if found is None:
        yield Check("warn", "toolscout", f"{mine} is not on PATH.", f"Add {folder} to PATH.")
    elif Path(found).parent.resolve() != folder.resolve():
        text = f"{mine} runs, but {found} comes first on PATH."
        remedy = f"Put {folder} first on PATH, or uninstall the other."
        yield Check("warn", "toolscout", text, remedy)
    else:
        yield Check("ok", "toolscout", mine)
    sdk = _find_version("mcp")
    remedy = "pip install 'toolscout[gateway]'"
    if not sdk:
        yield Check("fail", "extra gateway", "The MCP SDK is not installed.", remedy)
    elif sdk.partition(".")[0] != SDK_MAJOR:
        text = f"The MCP SDK is {sdk}; the gateway needs {SDK_MAJOR}.x."
        yield Check("fail", "extra gateway", text, remedy)
    else:
        yield Check("ok", "extra gateway", f"MCP SDK {sdk}")
    for extra, package in EXTRAS.items():
        text = _find_version(package) or "not installed (optional)"
        yield Check("ok", f"extra {extra}", text)
    try:
        StaticEncoder().encode(["a"], kind="tool")
        yield Check("ok", "vectors", "the static vectors are in place")
    except (ToolscoutError, ImportError) as error:
        yield Check("fail", "vectors", str(error), "pip install --force-reinstall toolscout")


def _find_version(package: str) -> str:
    """Return the version of a package; empty if it is not installed."""
    if find_spec(package) is None:
        return ""
    try:
        return version(package)
    except PackageNotFoundError:
        return "installed"


def _check_configuration(place: Path, found: list[Config]) -> Iterator[Check]:
    """Check the configuration file, and append it to `found` if it can be used."""
    name = "configuration"
    if not is_file(place):
        yield Check("warn", name, f"{place} does not exist.", "toolscout init")
        return
    try:
        config = read_config(place)
    except UsageError as error:
        yield Check("fail", name, str(error), f"Fix {place}.")
        return
    found.append(config)
    yield Check("ok", name, f"{place} lists {format_count(len(config.servers), 'server')}")
    for note in config.notes:
        yield Check("warn", name, note, "toolscout servers list")
    if any(map(find_secret_places, config.servers)):
        text = f"Others can read {place}, which contains secrets in plain text."
        yield from _check_mode(name, place, text)


def _check_servers(config: Config, tokens: Path, env: Mapping[str, str]) -> Iterator[Check]:
    """Check whether each server could be started or reached, without doing so."""
    for server in config.servers:
        name = f"server {to_one_line(server.name, NAME_SHOWN)}"
        if server.disabled:
            yield Check("ok", name, "disabled")
            continue
        try:
            ready = server.resolve(env)
        except InvalidConfig as error:
            text = f"Setting {error.key!r} {error.problem}."
            yield Check("fail", name, text, error.remedy)
            continue
        if ready.transport is Transport.STDIO:
            yield _check_process(name, ready, env)
        elif ready.transport is Transport.OPENAPI:
            yield Check("ok", name, "an OpenAPI document")
        elif ready.transport is Transport.SKILLS:
            yield _check_folders(name, ready)
        else:
            yield _check_login(name, ready, tokens)


def _check_folders(name: str, server: ServerConfig) -> Check:
    from toolscout.servers.skills import open_folders

    folder = open_folders(server)
    broken = [problem for problem in folder.problems if problem.is_fatal]
    if broken:
        text = f"Left out: {list_some([problem.name for problem in broken])}."
        return Check("warn", name, text, "See `toolscout catalog lint`.")
    return Check("ok", name, format_count(len(folder.skills), "skill"))


def _check_process(name: str, server: ServerConfig, env: Mapping[str, str]) -> Check:
    folder = Path(server.cwd) if server.cwd else None
    if folder is not None and not folder.is_dir():
        return Check("fail", name, f"Its folder {folder} does not exist.", "Change its 'cwd'.")
    try:
        used = check_isolation(server, {**env, **server.env})
    except IsolationFailed as error:
        place = f" ({error.path})" if error.path else ""
        text = f"{error.option!r} cannot be followed: {error.problem}{place}."
        return Check("fail", name, text, error.remedy)
    except (FileNotFoundError, PermissionError):
        used = ""  # what follows says it better
    if server.isolate == Isolation.DOCKER:
        return Check("ok", name, f"starts {server.command} {used}")
    is_path = len(Path(server.command).parts) > 1
    command = str(folder / server.command) if folder and is_path else server.command
    found = shutil.which(command, path=server.env.get("PATH", env.get("PATH", "")))
    if found is None:
        text = f"Its command {to_one_line(server.command, 100)!r} was not found."
        remedy = f"Install {shlex.quote(server.command)}, or change its 'command'."
        return Check("fail", name, text, remedy)
    return Check("ok", name, f"starts {found} {used}".rstrip())


def _check_login(name: str, server: ServerConfig, tokens: Path) -> Check:
    place = mask_url(server.url)
    if find_spec("mcp") is None:
        return Check("ok", name, place)
    from toolscout.servers.oauth.login import LoginState, find_login_state, format_login_command

    state = find_login_state(server, tokens, time.time())
    if state in (LoginState.NEEDED, LoginState.EXPIRED):
        remedy = format_login_command(server.name)
        return Check("warn", name, f"The login at {place} is {state}.", remedy)
    return Check("ok", name, f"{place} (login: {state})")


def _check_node(commands: list[str], env: Mapping[str, str]) -> Iterator[Check]:
    if not any(Path(command).stem in NODE_PROGRAMS for command in commands):
        return
    remedy = f"Install Node {OLDEST_NODE} or later."
    program = shutil.which("node", path=env.get("PATH", ""))
    if program is None:
        yield Check("fail", "node", "Servers start with npx, but Node is not on PATH.", remedy)
        return
    answer = ""
    with suppress(OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        command = [program, "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=NODE_SECONDS)
        answer = done.stdout.strip()[:40]
    major = answer.removeprefix("v").partition(".")[0]
    if not major.isdecimal():
        text = f"{program} does not report its version."
        yield Check("fail", "node", text, "Install Node again.")
    elif int(major) < OLDEST_NODE:
        yield Check("warn", "node", f"Node {answer} is too old for most servers.", remedy)
    else:
        yield Check("ok", "node", f"Node {answer}")


def _check_cache(config: Config, file: Path) -> Iterator[Check]:
    """Check the store of the gateway: a file, or a database."""
    if config.gateway.store:
        try:
            from toolscout.stores import PostgresStore

            with PostgresStore(config.gateway.resolve_store()):
                yield Check("ok", "cache", "the database answers")
        except MissingExtra as error:
            yield Check("fail", "cache", str(error), "pip install 'toolscout[postgres]'")
        except ToolscoutError as error:
            yield Check("fail", "cache", str(error), "Check 'gateway.store'.")
    elif is_file(file):
        yield _check_file(file)
        yield from _check_mode("cache", file, f"Others can read {file}.")
    else:
        folder = next((one for one in file.parents if one.exists()), file.parent)
        if folder.is_dir() and os.access(folder, os.W_OK):
            yield Check("ok", "cache", f"{file} will be created by the first `toolscout serve`")
        else:
            remedy = "Make the folder writable, or set 'gateway.cache' to another file."
            yield Check("fail", "cache", f"{file} cannot be created.", remedy)


def _check_tools(config: Config, file: Path) -> Iterator[Check]:
    """Warn about servers that have not listed their tools yet, once any server may have.

    Of the others, warn about single tools that the configuration changes in vain.
    """
    is_elsewhere = bool(config.gateway.store)
    if find_spec("mcp") is None or is_elsewhere or not is_file(file) or not config.servers:
        return
    from toolscout.servers.listings import find_override_problems

    with suppress(ToolscoutError, sqlite3.Error):  # the check of the cache says why
        unknown = list(inputs.recall_tools(config).unlisted)
        if unknown:
            text = f"The tools of {list_some(unknown)} are not known yet."
            remedy = f"toolscout servers test {shlex.join(unknown)}"
            yield Check("warn", "tools", text, remedy)
        else:
            yield Check("ok", "tools", "the tools of all servers are known")
        with inputs.open_known_store(config) as store:
            problems = list(find_override_problems(config, store)) if store is not None else []
        for problem in problems:
            yield Check("warn", "tools", problem, f"Change {config.source}.")


def _check_effects(config: Config) -> Iterator[Check]:
    """Warn about profiles that see nothing of a server because nobody says what its tools do."""
    for name, profile in config.gateway.profiles.items():
        if Effect.UNKNOWN in profile.effects:
            continue
        hidden = [
            server.name
            for server in config.servers
            if not server.disabled
            and not server.trust_effects
            and not server.effects
            and server.transport not in (Transport.OPENAPI, Transport.SKILLS)
            and is_matched(server.name, profile.servers)
        ]
        if hidden:
            rest = " that read or write" if Effect.DESTRUCTIVE in profile.effects else ""
            text = f"Profile {name!r} sees no tools{rest} of {list_some(hidden)}, because "
            text += "toolscout does not believe what servers say about the effects of their tools."
            remedy = "Name the effects of its tools in its 'effects', or write "
            yield Check("warn", "profiles", text, f"{remedy}'trust_effects = true' to believe it.")


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
            return Check("warn", "cache", f"{file} is locked by another process.", remedy)
        text = f"{file} cannot be opened for writing."
        return Check("fail", "cache", text, "Check its permissions.")
    except sqlite3.DatabaseError:
        return Check("fail", "cache", f"{file} is damaged, or not a database.", move)
    if answer != "ok":
        return Check("fail", "cache", f"{file} is damaged.", move)
    return Check("ok", "cache", f"{file}, {file.stat().st_size / 1e6:.1f} MB")


def _check_token_files(folder: Path) -> Iterator[Check]:
    files = sorted((*folder.glob("*.json"), *folder.glob("*.key"))) if folder.is_dir() else []
    texts = {file: f"Others can read the tokens in {file}." for file in files}
    exposed = [check for file in files for check in _check_mode("token files", file, texts[file])]
    yield from exposed
    if not exposed:
        count = format_count(len(files), "token file")
        text = f"{count}, readable only by you" if files else "no logins yet"
        yield Check("ok", "token files", text)


def _find_leftovers(folders: Iterable[Path]) -> Iterator[Check]:
    """Find files that an interrupted write left behind."""
    for folder in folders:
        for file in sorted(folder.iterdir()) if folder.is_dir() else []:
            match = _UNFINISHED.fullmatch(file.name)
            if match and match["name"].endswith((".toml", ".json", ".bak")):
                text = f"{file} was left behind by an interrupted write."
                yield Check("warn", "leftovers", text, f"rm {shlex.quote(str(file))}")


def _check_mode(name: str, path: Path, problem: str) -> Iterator[Check]:
    """Check that only its owner can read a file."""
    with suppress(OSError):
        # On Windows, file modes say nothing about who may read.
        if sys.platform != "win32" and stat.S_IMODE(path.stat().st_mode) & OTHERS:
            yield Check("fail", name, problem, f"chmod 600 {shlex.quote(str(path))}")


def _check_port(gateway: GatewayConfig) -> Check:
    """Check the port on which `toolscout serve --http` would listen."""
    place = f"{gateway.host}:{gateway.port}"
    if gateway.port == 0:
        return Check("ok", "port", "any free port")
    if _is_free(gateway.host, gateway.port):
        return Check("ok", "port", f"{place} is free")
    if _ask_gateway(gateway, "/healthz").get("alive") is not True:
        text = f"{place} is used by another program."
        return Check("warn", "port", text, f"toolscout serve --http --port {gateway.port + 1}")
    versions = _ask_gateway(gateway, "/status").get("versions")
    running = versions.get("toolscout") if is_object(versions) else None
    mine = version("toolscout")
    if isinstance(running, str) and running != mine:
        text = f"The gateway at {place} is toolscout {running[:40]}; installed is {mine}."
        return Check("warn", "port", text, "Stop it and run `toolscout serve --http` again.")
    return Check("ok", "port", f"a gateway answers at {place}")


def _check_daemons(place: Path) -> Iterator[Check]:
    """Check the gateways in the background, and the folder in which they listen."""
    name = "background"
    if not can_have_daemon():
        text = "not on this system: every client over stdio gets a gateway of its own"
        yield Check("ok", name, text)
        return
    folder = find_folder()
    try:
        check_folder(folder)
    except FileNotFoundError:
        yield Check("ok", name, "no gateway runs; the first client starts it")
        return
    except (UnsafeFolder, OSError) as error:
        text = f"{error} Every client over stdio gets a gateway of its own."
        yield Check("warn", name, text, f"rm -r {shlex.quote(str(folder))}")
        return
    running = 0
    for path, said in ask_daemons(folder):
        remove = f"rm {shlex.quote(str(path))}"
        if said:
            running += is_daemon_of(said, place)
            yield _check_daemon(name, said, place)
        elif said is None:
            text = f"{path} was left behind by a gateway that was killed."
            yield Check("warn", name, text, f"{remove}, or let the next client replace it.")
        else:
            text = f"The gateway at {path} does not answer."
            yield Check("warn", name, text, f"{remove}; clients then start another one.")
    yield from _check_start(name, folder)
    if not running:
        yield Check("ok", name, f"no gateway runs for {place}; the first client starts it")


def _check_daemon(name: str, said: Json, place: Path) -> Check:
    clients = list_some([client["name"] or "(unnamed)" for client in said["clients"]])
    about = f"process {said['pid']}, toolscout {said['version']} since {said['since']}"
    text = f"{about}, for {clients or 'no client'}"
    mine = version("toolscout")
    if not is_file(Path(said["config"])):
        text = f"{text}. Its configuration {said['config']} does not exist any more."
        return Check("warn", name, text, "toolscout stop --all")
    if not is_daemon_of(said, place):
        return Check("ok", name, f"{text}; started as toolscout {shlex.join(said['command'])}")
    if said["version"] != mine:
        text = f"{text}. Installed is {mine}."
        return Check("warn", name, text, "toolscout stop; clients then start the installed one.")
    return Check("ok", name, text)


def _check_start(name: str, folder: Path) -> Iterator[Check]:
    """Find clients that hold the lock with which a gateway is started."""
    import fcntl  # Windows has none

    for file in sorted(folder.glob("*.lock")):
        with file.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = "A client is starting a gateway, and others wait for it."
                remedy = f"Run this again. If it stays: fuser -k {shlex.quote(str(file))}"
                yield Check("warn", name, text, remedy)


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
    with suppress(OSError, http.client.HTTPException):
        _, answer = fetch_json(connection, path)
        return answer if is_object(answer) else {}
    return {}


def _check_clients(machine: Machine) -> Iterator[Check]:
    known = [source for source in list_known_files(machine) if source.program != OWN]
    for source in {source.path: source for source in known if is_file(source.path)}.values():
        name = f"client {source.program}"
        client = find_client(source.program)
        project = " --project" if source.is_project else ""
        remedy = f"toolscout init --client {client.name}{project}"
        try:
            document = parse_document(source.path, read_text(source.path))
            found = import_document(document, machine.project_folders if project else ())
        except UsageError as error:
            yield Check("warn", name, str(error), f"Fix {source.path}.")
            continue
        servers = found.servers if found else ()
        own = [one for one in servers if starts_own(one.command, one.url, one.args)]
        if own:
            is_alone = len(servers) == len(own)
            for one in own:
                yield _check_entry(source, one, machine.env, remedy, is_alone=is_alone)
        elif servers:
            count = format_count(len(servers), "server")
            how = "shows how to put them" if client.is_yaml else "puts them"
            text = f"{source.path} has {count} of its own; `{remedy}` {how} behind toolscout"
            yield Check("ok", name, text)


def _check_entry(
    source: Source, server: ServerConfig, env: Mapping[str, str], remedy: str, *, is_alone: bool
) -> Check:
    """Check an entry for toolscout, next to which its client may have other servers."""
    name = f"client {source.program}"
    if not server.command:
        return Check("ok", name, f"{source.path} connects to toolscout by URL")
    if shutil.which(server.command, path=env.get("PATH", "")) is None:
        text = f"{source.path} starts {server.command[:200]}, which was not found."
        return Check("fail", name, text, remedy)
    config = find_option(server.args, "--config")
    if not config or is_file(Path(config)):
        return Check("ok", name, f"{source.path} starts toolscout")
    text = f"{source.path} names {config}, which does not exist."
    if find_backup(source.path) is not None:
        remedy = f"{remedy} --undo"
    elif is_alone:
        remedy = f"Restore {config}, or remove toolscout from {source.path}."
    return Check("fail", name, text, remedy)
