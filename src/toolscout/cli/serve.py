"""`toolscout serve`: the gateway, over stdin and stdout or over HTTP; and `toolscout console`.

stdout of a gateway belongs to the protocol; everything else goes to stderr.
"""

import asyncio
import gc
import json
import logging
import os
import signal
import stat
import sys
import threading
import webbrowser
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolscout.cli import inputs
from toolscout.cli.approvals import list_unlocked
from toolscout.config.documents import write_private
from toolscout.config.file import Config, build_demo_config, read_config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.secrets import SecretMask
from toolscout.errors import InvalidFile, ToolscoutError
from toolscout.options import list_options
from toolscout.schemas import Json
from toolscout.sessions.events import Event

if TYPE_CHECKING:
    from toolscout.daemon.daemon import Daemon
    from toolscout.gateway.gateway import Gateway
    from toolscout.servers.approvals import Lock

Command = TypeVar("Command", bound=Callable[..., Any])

READ_BYTES = 65_536
CHECK_SECONDS = 2.0
"""How often the configuration file is checked for changes."""
BY_HAND = (
    "Waiting for an MCP client on stdin; clients start this command themselves (see `toolscout "
    "init`). To serve HTTP, add --http. Press Ctrl-C to stop."
)

_log = logging.getLogger("toolscout")


def _add_gateway_option(name: str, metavar: str | None = None) -> Callable[[Command], Command]:
    """Return a decorator for an option that overrides the one of `[gateway]` with its name."""
    [declared] = [item for item in list_options(GatewayConfig) if item.name == name]
    flag = f"--{name.replace('_', '-')}"
    text = declared.doc.replace("`", "")
    if isinstance(declared.default, bool):
        return inputs.flag_option(flag, help=text)
    kind: click.ParamType[Any] | None = None
    if isinstance(declared.default, StrEnum):
        kind = click.Choice([str(member) for member in type(declared.default)])
    elif declared.check.bounds is not None:
        least, most = declared.check.bounds
        kind = click.IntRange(int(least), int(most))
    else:
        text = f"{text} Default: {declared.default}."
    return click.option(flag, type=kind, metavar=metavar, help=text)


@click.command()
@inputs.file_option(
    "--config",
    "path",
    help="The servers to put behind the gateway; any client's MCP configuration works too. "
    "Default: toolscout.toml in your configuration folder.",
)
@inputs.flag_option("--demo", help="Use demo servers that are installed in this environment.")
@click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the cache of tools and sessions; created if there is none.",
)
@inputs.flag_option("--http", help="Serve streamable HTTP and SSE instead of stdio.")
@_add_gateway_option("host", "ADDRESS")
@_add_gateway_option("port", "N")
@_add_gateway_option("mode")
@_add_gateway_option("split_calls")
@click.option(
    "--profile",
    metavar="NAME",
    help="Show the client only what this profile of the configuration admits; over HTTP, tokens "
    "have profiles instead.",
)
@inputs.flag_option(
    "--locked",
    help="Serve only the definitions that toolscout.lock beside the configuration file names; "
    "see `toolscout lock`.",
)
@inputs.flag_option(
    "--daemon",
    help="Share one gateway, which runs in the background, with all other clients that are "
    "started like this one.",
)
@click.option("--as-daemon", "key", hidden=True)
def serve(
    path: Path | None,
    demo: bool,
    cache: Path | None,
    http: bool,
    host: str | None,
    port: int | None,
    mode: str | None,
    split_calls: bool,
    profile: str | None,
    locked: bool,
    daemon: bool,
    key: str | None,
) -> None:
    """Put one MCP server in front of all your others.

    \b
    Example:
      toolscout serve --config ~/.cursor/mcp.json
      toolscout serve --profile cursor
      toolscout serve --http --port 8765
    """
    if daemon and (http or demo):
        raise click.UsageError("--daemon is for stdio and a configuration file.")
    if http and profile:
        raise click.UsageError("--profile is for stdio. Over HTTP, give a token a profile.")
    if demo and locked:
        raise click.UsageError("--locked needs a configuration file, and --demo has none.")
    inputs.need_sdk()
    from toolscout.gateway.logs import set_up_log

    config = build_demo_config(cache) if demo else inputs.read_servers(path)
    changes = {
        "cache": str(cache / "gateway.db") if cache else None,
        "host": host,
        "port": port,
        "mode": mode,
        "split_calls": split_calls or None,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    config = replace(config, gateway=replace(config.gateway, **given))
    if profile:
        config.gateway.find_profile(profile)
    lock = _read_lock(config) if locked else None
    level = os.environ.get("TOOLSCOUT_LOG", config.gateway.log_level.value).upper()
    mask = SecretMask(config.list_secrets(), kinds=config.list_redacted())
    log_file = inputs.get_logs_folder(config) / f"{key}.log" if key else None
    set_up_log(config.gateway.log, level, mask, log_file)
    for note in config.notes:
        _log.warning("%s", note)
    with suppress(FileNotFoundError):  # the demo has no file
        try:
            _check_writers(config.source)
        except InvalidFile as error:
            _log.warning("%s Until then, the gateway does not reload it.", error)
    is_typed = not http and not key and sys.stdin.isatty()
    with suppress(KeyboardInterrupt), _forward_stdin() if is_typed else nullcontext():
        if is_typed:
            click.echo(BY_HAND, err=True)
        asyncio.run(_serve(config, mask, profile or "", lock, http=http, key=key))


def _read_lock(config: Config) -> "Lock":
    """Return the lock file of a configuration; raises `InvalidFile` if both differ in servers."""
    from toolscout.servers.approvals import LOCK_FILE, read_lock

    file = config.source.with_name(LOCK_FILE)
    lock = read_lock(file)
    problems = list_unlocked(config, lock)
    if problems:
        raise InvalidFile(str(file), "does not fit the configuration", remedy=" ".join(problems))
    return lock


async def _serve(
    config: Config,
    mask: SecretMask,
    profile: str,
    lock: "Lock | None",
    *,
    http: bool,
    key: str | None,
) -> None:
    gc.disable()  # nothing of what is imported is garbage, and to look for it takes an eighth
    try:
        from toolscout.gateway.gateway import Gateway
        from toolscout.gateway.logs import log_event
        from toolscout.gateway.server import serve_stdio
        from toolscout.gateway.tracing import Spans
    finally:
        gc.enable()

    with inputs.open_store(config) as store:
        tokens = inputs.get_tokens_folder(config)
        async with Gateway(config, store, tokens=tokens, lock=lock) as gateway:
            gateway.events.subscribe(log_event)
            gateway.events.subscribe(Spans().on_event)
            tasks = [asyncio.create_task(_follow(gateway, mask))]
            file = inputs.get_reports_folder(config) / f"{os.getpid()}.json"
            daemon = _build_daemon(gateway, key) if key else None
            if not http:
                tasks.append(asyncio.create_task(_report(gateway, file, daemon)))
            gc.freeze()  # a full collection would hold up every answer for a tenth of a second
            try:
                if daemon is not None:
                    await daemon.serve()
                else:
                    await (_serve_http(gateway) if http else serve_stdio(gateway, profile))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                file.unlink(missing_ok=True)


def _build_daemon(gateway: "Gateway", key: str) -> "Daemon":
    from toolscout.daemon.daemon import Daemon
    from toolscout.daemon.place import Place, open_folder

    place = Place(open_folder(), key)
    place.write_variables(gateway.config.list_variables())
    return Daemon(gateway, place)


async def _serve_http(gateway: "Gateway") -> None:
    from toolscout.console.app import Console
    from toolscout.gateway.http import serve_http

    pages = Console.from_gateway(gateway).pages
    await serve_http(gateway, pages=pages, ready=partial(_log.info, "The console is at %s/."))


async def _report(gateway: "Gateway", file: Path, daemon: "Daemon | None") -> None:
    """Keep a file up to date for `toolscout status`, which cannot ask a gateway over stdio."""
    # Its import takes a while, and the client is waiting for its first answer.
    await asyncio.to_thread(import_module, "toolscout.gateway.metrics")
    from toolscout.gateway.events import Requested
    from toolscout.gateway.metrics import Metrics, build_status

    metrics = Metrics(gateway)
    report: Json = {
        "transport": "stdio",
        "pid": os.getpid(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": str(gateway.config.source),
        "daemon": daemon is not None,
        "clients": [],
    }
    is_stale = True

    def on_event(event: Event) -> None:
        nonlocal is_stale
        is_stale = True
        if isinstance(event, Requested) and event.client:
            report["clients"] = [event.client]

    gateway.events.subscribe(on_event)
    try:
        while True:
            if is_stale:
                is_stale = False
                now = asyncio.get_running_loop().time()
                totals = metrics.count_totals()
                if daemon is not None:
                    report["clients"] = daemon.list_clients()
                report |= build_status(gateway, totals, now=now, wall=datetime.now(UTC))
                await asyncio.to_thread(write_private, file, json.dumps(report))
            else:
                await asyncio.to_thread(os.utime, file)  # a sign of life
            await asyncio.sleep(CHECK_SECONDS)
    except (InvalidFile, OSError) as error:
        _log.warning("`toolscout status` will not find this gateway: %s", error)


async def _follow(gateway: "Gateway", mask: SecretMask) -> None:
    """Reload the configuration on SIGHUP, or when its file has changed."""
    secrets = set(gateway.config.list_secrets())
    source = gateway.config.source
    hung_up = asyncio.Event()
    with suppress(NotImplementedError, AttributeError, RuntimeError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
    seen = _stamp(source)
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(hung_up.wait(), CHECK_SECONDS)
        if hung_up.is_set() or _stamp(source) != seen:
            hung_up.clear()
            seen = _stamp(source)
            try:
                _check_writers(source)
                config = read_config(source)
            except (ToolscoutError, OSError) as error:  # wrong, or only half written
                _log.error("The configuration was not reloaded: %s", error)
                continue
            # Old secrets stay masked: a server that is removed may still log a line.
            secrets.update(config.list_secrets())
            mask.update(secrets, kinds=config.list_redacted())
            try:
                await gateway.reload(config)
            except ToolscoutError as error:
                _log.error("The configuration was not reloaded: %s", error)
                continue
            _log.info("Reloaded the servers, tokens and profiles of %s.", source.name)


def _check_writers(path: Path) -> None:
    """Raise `InvalidFile` if every user of this machine may change or replace a configuration."""
    for place in (path, path.parent, path.resolve().parent) if os.name == "posix" else ():
        mode = place.stat().st_mode
        # In a folder with the sticky bit, such as /tmp, nobody replaces the files of others.
        if mode & stat.S_IWOTH and not (place != path and mode & stat.S_ISVTX):
            problem = "can be changed by every user of this machine"
            remedy = f"Run `chmod o-w {place}`, and check what it says."
            raise InvalidFile(str(path), problem, remedy=remedy)


def _stamp(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@contextmanager
def _forward_stdin() -> Generator[None]:
    """Replace stdin by a pipe that carries what is typed, and that Ctrl-C closes.

    A reader of a terminal waits for the next line and notices nothing else. The end of a pipe
    lets it finish in order, where an exception would not.
    """
    terminal = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    ended = threading.Event()

    def end(*_: object) -> None:
        if not ended.is_set():
            ended.set()
            os.close(writing)

    def copy() -> None:
        with suppress(OSError):  # the reader went away
            while (data := os.read(terminal, READ_BYTES)) and not ended.is_set():
                os.write(writing, data)
            end()

    old = signal.signal(signal.SIGINT, end)
    # A daemon, because nothing interrupts its wait for a key.
    threading.Thread(target=copy, daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
        os.dup2(terminal, 0)


@click.command()
@inputs.catalog_option
@inputs.configured_option
@inputs.number_option(
    "--port", type=inputs.PORT, default=8766, help="Local port to listen on; 0 picks a free one."
)
@inputs.flag_option("--open", "open_browser", help="Open the page in a browser.")
def console(
    paths: tuple[Path, ...], config_file: Path | None, port: int, open_browser: bool
) -> None:
    """Browse and search a catalogue in a browser.

    Starts no server: it shows the tools that your servers offered last.

    For the servers, sessions and savings of a running gateway, open the address that `toolscout
    serve --http` prints: the gateway serves the same page.

    \b
    Example:
      toolscout console --open
      toolscout console --catalog tools.json --port 9000
    """
    inputs.need_sdk()
    from toolscout.console.app import build_console, serve_console

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    chosen = inputs.choose_catalog(paths, config_file)

    def announce(address: str) -> None:
        click.echo(f"{len(chosen.catalog):,} tools at {address}/ (press Ctrl-C to stop)")
        if open_browser:
            webbrowser.open(f"{address}/")

    with suppress(KeyboardInterrupt):
        app = build_console(chosen.catalog, GatewayConfig(port=port), chosen.settings)
        asyncio.run(serve_console(app, ready=announce))
