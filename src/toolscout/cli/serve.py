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
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolscout.cli import inputs
from toolscout.cli.approvals import list_unlocked
from toolscout.config.documents import write_private
from toolscout.config.file import Config, build_demo_config, read_config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.references import forget_secrets
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
    help="Serve only the definitions in toolscout.lock, next to the configuration file; see "
    "`toolscout lock`.",
)
@inputs.flag_option(
    "--no-daemon",
    expose_value=False,  # `toolscout.daemon.bridge` has read it
    help="Give this client its own gateway and servers. Without this option, clients over stdio "
    "share one gateway in the background.",
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
    key: str | None,
) -> None:
    """Put one MCP server in front of all your others.

    \b
    Example:
      toolscout serve --config ~/.cursor/mcp.json
      toolscout serve --profile cursor
      toolscout serve --http --port 8765
    """
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

    def adjust(config: Config) -> Config:
        """Return a configuration with the options of the command line, and log as it says."""
        level = os.environ.get("TOOLSCOUT_LOG", config.gateway.log_level.value).upper()
        set_up_log(config.gateway.log, level, mask, log_file)
        return replace(config, gateway=replace(config.gateway, **given))

    mask = SecretMask(config.list_secrets(), kinds=config.list_redacted())
    named = replace(config, gateway=replace(config.gateway, **given))
    log_file = inputs.get_log_file(named, key) if key else None
    config = adjust(config)
    if profile:
        config.gateway.find_profile(profile)
    lock = _read_lock(config) if locked else None
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
        asyncio.run(_serve(config, mask, adjust, profile or "", lock, http=http, key=key))


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
    adjust: Callable[[Config], Config],
    profile: str,
    lock: "Lock | None",
    *,
    http: bool,
    key: str | None,
) -> None:
    gc.disable()  # nothing that is imported is garbage, and looking for it takes an eighth longer
    try:
        from toolscout.gateway.gateway import Gateway
        from toolscout.gateway.logs import Spans, log_event
        from toolscout.gateway.server import serve_stdio
    finally:
        gc.enable()

    with inputs.open_store(config) as store:
        tokens = inputs.get_tokens_folder(config)
        async with Gateway(config, store, tokens=tokens, lock=lock) as gateway:
            gateway.events.subscribe(log_event)
            gateway.events.subscribe(Spans().on_event)
            follower = _Follower(gateway, mask, adjust)
            tasks = [asyncio.create_task(follower.run())]
            file = inputs.get_reports_folder(config) / f"{os.getpid()}.json"
            daemon = _build_daemon(gateway, key, follower) if key else None
            if not http:
                tasks.append(asyncio.create_task(_report(gateway, file, profile, daemon)))
            gc.freeze()  # a full collection would hold up every answer for a tenth of a second
            try:
                if daemon is not None:
                    await daemon.serve()
                else:
                    serving = _serve_http(gateway, follower) if http else None
                    await (serving or serve_stdio(gateway, profile))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                file.unlink(missing_ok=True)


def _build_daemon(gateway: "Gateway", key: str, follower: "_Follower") -> "Daemon":
    from toolscout.daemon.daemon import Daemon
    from toolscout.daemon.place import Place, open_folder

    place = Place(open_folder(), key)
    place.write_variables(gateway.config.list_variables())
    daemon = Daemon(gateway, place, inputs.get_log_file(gateway.config, key))
    daemon.open_console = partial(_open_console, gateway, follower, daemon)
    return daemon


@asynccontextmanager
async def _open_console(
    gateway: "Gateway", follower: "_Follower", daemon: "Daemon", path: Path, token: str
) -> AsyncGenerator[None]:
    """Serve the console of a daemon at a socket."""
    await asyncio.to_thread(import_module, "toolscout.console.app")  # others are being served
    from toolscout.console.app import Console, open_at

    shown = Console.from_gateway(
        gateway,
        reload=follower.reload,
        token=(inputs.find_user(), token),
        list_clients=daemon.list_clients,
    )
    shown.activity.replay(list(daemon.past))
    async with open_at(shown, path):
        yield


async def _serve_http(gateway: "Gateway", follower: "_Follower") -> None:
    from toolscout.console.app import Console
    from toolscout.gateway.http import serve_http

    pages = Console.from_gateway(gateway, reload=follower.reload).pages
    await serve_http(gateway, pages=pages, ready=partial(_log.info, "The console is at %s/."))


async def _report(gateway: "Gateway", file: Path, profile: str, daemon: "Daemon | None") -> None:
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
        if isinstance(event, Requested) and event.client and daemon is None:
            before = next(iter(report["clients"]), {"requests": 0})
            only = {"name": event.client, "profile": profile, "session": event.session}
            only |= {"since": report["started"], "requests": before["requests"] + 1}
            report["clients"] = [only]

    gateway.events.subscribe(on_event)
    try:
        while True:
            clients = report["clients"] if daemon is None else daemon.list_clients()
            if is_stale or clients != report["clients"]:
                is_stale = False
                now = asyncio.get_running_loop().time()
                # It counts the tokens of all tools, which can take a second.
                totals = await asyncio.to_thread(metrics.count_totals)
                report["clients"] = clients
                report |= build_status(gateway, totals, now=now, wall=datetime.now(UTC))
                await asyncio.to_thread(write_private, file, json.dumps(report))
            else:
                await asyncio.to_thread(os.utime, file)  # a sign of life
            await asyncio.sleep(CHECK_SECONDS)
    except (InvalidFile, OSError) as error:
        _log.warning("`toolscout status` will not find this gateway: %s", error)


class _Follower:
    """Reloads the configuration on SIGHUP, and when its file has changed."""

    def __init__(
        self, gateway: "Gateway", mask: SecretMask, adjust: Callable[[Config], Config]
    ) -> None:
        self._gateway = gateway
        self._source = gateway.config.source
        self._mask = mask
        self._adjust = adjust
        self._secrets = set(gateway.config.list_secrets())
        self._seen = _stamp(self._source)

    async def run(self) -> None:
        hung_up = asyncio.Event()
        with suppress(NotImplementedError, AttributeError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
        self._gateway.on_other_version = hung_up.set
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(hung_up.wait(), CHECK_SECONDS)
            if hung_up.is_set() or _stamp(self._source) != self._seen:
                hung_up.clear()
                try:
                    await self.reload()
                except (ToolscoutError, OSError) as error:  # wrong, or only half written
                    _log.error("The configuration was not reloaded: %s", error)

    async def reload(self) -> None:
        """Use the file as it is now; raises, and changes nothing, if that is impossible."""
        self._seen = _stamp(self._source)
        _check_writers(self._source)
        config = await asyncio.to_thread(read_config, self._source)
        forget_secrets()
        # Old secrets stay masked: a server that is removed may still log a line.
        self._secrets.update(await asyncio.to_thread(config.list_secrets))
        self._mask.update(self._secrets, kinds=config.list_redacted())
        await self._gateway.reload(self._adjust(config))
        _log.info("Reloaded %s.", self._source.name)


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
    """Show the gateway in the background, or a catalogue, in a browser.

    If your clients share a gateway in the background, this shows its servers, clients, sessions and
    savings, and lets you change them. Otherwise it shows the tools that your servers offered last,
    and starts no server.

    A gateway over HTTP serves the same page: open the address that `toolscout serve --http` prints.

    \b
    Example:
      toolscout console --open
      toolscout console --catalog tools.json --port 9000
    """
    inputs.need_sdk()
    from toolscout.console.app import build_console, serve_console

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    if not paths and _find_daemon(config_file) is not None:
        with suppress(KeyboardInterrupt):
            asyncio.run(_show_daemon(config_file, port, open_browser=open_browser))
        return
    chosen = inputs.choose_catalog(paths, config_file)
    if not paths:
        click.echo("No gateway runs in the background, so only the tools are shown.", err=True)

    def announce(address: str) -> None:
        click.echo(f"{len(chosen.catalog):,} tools at {address}/ (press Ctrl-C to stop)")
        if open_browser:
            webbrowser.open(f"{address}/")

    with suppress(KeyboardInterrupt):
        app = build_console(chosen.catalog, GatewayConfig(port=port), chosen.settings)
        asyncio.run(serve_console(app, ready=announce))


def _find_daemon(config_file: Path | None) -> Path | None:
    """Return the socket of the gateway in the background for a configuration, if one runs."""
    from toolscout.cli.status import is_daemon_of, list_daemons

    found = (one for one in list_daemons() if is_daemon_of(one, config_file))
    return next((Path(one["socket"]) for one in found if "socket" in one), None)


async def _show_daemon(config_file: Path | None, port: int, *, open_browser: bool) -> None:
    """Let browsers see the console of the gateway in the background until Ctrl-C."""
    from toolscout.daemon.relay import ConsoleRelay
    from toolscout.gateway.listen import open_listener

    relay = ConsoleRelay(partial(_find_daemon, config_file))
    config = GatewayConfig(port=port)
    with closing(open_listener(config)) as listener, TemporaryDirectory() as folder:
        address = f"http://{config.host}:{listener.getsockname()[1]}/#token={relay.token}"

        def announce() -> None:
            click.echo(f"The gateway in the background at {address} (press Ctrl-C to stop)")
            if open_browser:
                # Other users of the machine can read the arguments of a browser.
                page = Path(folder) / "console.html"
                write_private(page, f"<script>location = {json.dumps(address)}</script>")
                webbrowser.open(page.as_uri())

        await relay.run(listener, announce)
