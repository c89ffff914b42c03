"""`toolscout serve`: the gateway, over stdin and stdout or over HTTP.

stdout belongs to the protocol; everything else goes to stderr.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolscout.cli.inputs import get_machine, get_tokens_folder, need_sdk, open_store
from toolscout.config.file import Config, build_demo_config, read_config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.secrets import SecretMask
from toolscout.errors import InvalidFile, ToolscoutError
from toolscout.options import list_options

if TYPE_CHECKING:
    from toolscout.gateway.gateway import Gateway

Command = TypeVar("Command", bound=Callable[..., Any])

EXTRA = "gateway"
CACHE_FILE = "gateway.db"
READ_BYTES = 65_536
CHECK_SECONDS = 2.0
"""How often the configuration file is checked for changes."""
BY_HAND = (
    "Waiting for an MCP client on stdin; clients start this command themselves (see `toolscout "
    "init`). To serve HTTP, add --http. Press Ctrl-C to stop."
)

_log = logging.getLogger("toolscout")


def add_gateway_option(name: str, metavar: str | None = None) -> Callable[[Command], Command]:
    """Return a decorator for an option that overrides the one of `[gateway]` with its name."""
    [declared] = [item for item in list_options(GatewayConfig) if item.name == name]
    flag = f"--{name.replace('_', '-')}"
    text = declared.doc.replace("`", "")
    if isinstance(declared.default, bool):
        return click.option(flag, is_flag=True, help=text)
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
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The servers to put behind the gateway; any client's MCP configuration works too. "
    "Default: ./toolscout.toml, or the one in your configuration folder.",
)
@click.option(
    "--demo", is_flag=True, help="Use demo servers that are installed in this environment."
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Folder for the cache of tools and sessions.",
)
@click.option("--http", is_flag=True, help="Serve streamable HTTP and SSE instead of stdio.")
@add_gateway_option("host", "ADDRESS")
@add_gateway_option("port", "N")
@add_gateway_option("mode")
@add_gateway_option("split_calls")
def serve(
    path: Path | None,
    demo: bool,
    cache: Path | None,
    http: bool,
    host: str | None,
    port: int | None,
    mode: str | None,
    split_calls: bool,
) -> None:
    """Put one MCP server in front of all your others.

    \b
    Example:
      toolscout serve --config ~/.cursor/mcp.json
      toolscout serve --http --port 8765
    """
    need_sdk()
    config = build_demo_config(cache) if demo else _read_config(path)
    changes = {
        "cache": str(cache / CACHE_FILE) if cache else None,
        "host": host,
        "port": port,
        "mode": mode,
        "split_calls": split_calls or None,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    config = replace(config, gateway=replace(config.gateway, **given))
    mask = _log_to_stderr(config)
    for note in config.notes:
        _log.warning("%s", note)
    is_typed = not http and sys.stdin.isatty()
    with suppress(KeyboardInterrupt), forward_stdin() if is_typed else nullcontext():
        if is_typed:
            click.echo(BY_HAND, err=True)
        asyncio.run(_serve(config, mask, http=http))


def _read_config(path: Path | None) -> Config:
    found = path or get_machine().config_file
    if not found.exists():
        raise InvalidFile(
            str(found),
            "does not exist",
            remedy="Run `toolscout init`, or name a file with --config.",
        )
    return read_config(found)


async def _serve(config: Config, mask: SecretMask, *, http: bool) -> None:
    from toolscout.gateway.gateway import Gateway
    from toolscout.gateway.logs import log_event
    from toolscout.gateway.tracing import Spans

    with open_store(config) as store:
        tokens = get_tokens_folder(config)
        async with Gateway(config, store, tokens=tokens) as gateway:
            gateway.events.subscribe(log_event)
            gateway.events.subscribe(Spans().on_event)
            following = asyncio.create_task(_follow(gateway, mask))
            try:
                await _answer(gateway, http=http)
            finally:
                following.cancel()


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
            config = _read_again(source)
            if config is not None:
                # Old secrets stay masked: a server that is removed may still log a line.
                secrets.update(config.list_secrets())
                mask.update(secrets)
                await gateway.pool.reload(config.servers)
                _log.info("Reloaded the servers of %s.", source.name)


def _read_again(source: Path) -> Config | None:
    """Return the configuration, or nothing if the file is wrong or only half written."""
    try:
        return read_config(source)
    except (ToolscoutError, OSError) as error:
        _log.error("The configuration was not reloaded: %s", error)
        return None


def _stamp(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


async def _answer(gateway: "Gateway", *, http: bool) -> None:
    if http:
        from toolscout.console.app import Console
        from toolscout.gateway.http import serve_http

        pages = Console.from_gateway(gateway).pages
        await serve_http(
            gateway,
            gateway.config.gateway,
            pages=pages,
            ready=lambda address: _log.info("The console is at %s/.", address),
        )
    else:
        from toolscout.gateway.server import serve_stdio

        await serve_stdio(gateway)


def _log_to_stderr(config: Config) -> SecretMask:
    """Set up the log; return its mask, to be updated when the configuration is reloaded."""
    from toolscout.gateway.logs import log_to_stderr

    gateway = config.gateway
    level = os.environ.get("TOOLSCOUT_LOG", gateway.log_level.value).upper()
    mask = SecretMask(config.list_secrets())
    log_to_stderr(gateway.log, level, mask)
    return mask


@contextmanager
def forward_stdin() -> Generator[None]:
    """Replace stdin by a pipe that carries what is typed, and that Ctrl-C closes.

    A reader of a terminal waits for the next line and notices nothing else. The end of a pipe
    lets it finish in order, where an exception would not.
    """
    terminal, (reading, writing) = os.dup(0), os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        if not ended.is_set():
            ended.set()
            os.close(writing)

    old = signal.signal(signal.SIGINT, end)
    # A daemon, because nothing interrupts its wait for a key.
    threading.Thread(target=_copy_to_pipe, args=(terminal, writing, ended), daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
        os.dup2(terminal, 0)


def _copy_to_pipe(terminal: int, writing: int, ended: threading.Event) -> None:
    with suppress(OSError):  # the reader went away
        while (data := os.read(terminal, READ_BYTES)) and not ended.is_set():
            os.write(writing, data)
        if not ended.is_set():
            ended.set()
            os.close(writing)
