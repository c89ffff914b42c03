"""`toolscout serve`: the gateway, over stdin and stdout or over HTTP.

stdout belongs to the protocol; everything else goes to stderr.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli.inputs import opened_store, this_machine, tokens_folder
from toolscout.cli.keyboards import typed_stdin

if TYPE_CHECKING:
    from toolscout.config.file import Config
    from toolscout.gateway.gateway import Gateway

MODES = ("search", "direct", "dynamic", "auto")
EXTRA = "gateway"
CACHE_FILE = "gateway.db"
LOOK_SECONDS = 2.0
"""How often the configuration file is looked at."""
BY_HAND = (
    "Waiting for an MCP client on stdin; clients start this themselves (see `toolscout init`). "
    "To serve HTTP, add --http. Ctrl-C ends it."
)


@click.command()
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Which servers to put behind the gateway; any client's MCP configuration will do. "
    "Without it, ./toolscout.toml or the one in your configuration folder.",
)
@click.option("--demo", is_flag=True, help="Use the demo servers of this environment.")
@click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Where to keep what servers offer and what sessions have loaded.",
)
@click.option("--http", is_flag=True, help="Serve streamable HTTP and SSE instead of stdio.")
@click.option("--host", metavar="ADDRESS", help="Where to listen; loopback unless told.")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="0 takes a free one.")
@click.option("--mode", type=click.Choice(MODES), help="What clients are shown.")
@click.option(
    "--split-calls",
    is_flag=True,
    help="Offer tool_read, tool_write and tool_destroy in place of tool_call.",
)
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
    _need_sdk()
    config = _demo_config(cache) if demo else _config(path)
    changes = {
        "cache": str(cache / CACHE_FILE) if cache else None,
        "host": host,
        "port": port,
        "mode": mode,
        "split_calls": split_calls or None,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    config = replace(config, gateway=replace(config.gateway, **given))
    _log_to_stderr(config)
    for note in config.notes:
        logging.getLogger("toolscout").warning("%s", note)
    is_typed = not http and sys.stdin.isatty()
    with contextlib.suppress(KeyboardInterrupt), typed_stdin() if is_typed else nullcontext():
        if is_typed:
            click.echo(BY_HAND, err=True)
        asyncio.run(_serve(config, http=http))


def _need_sdk() -> None:
    from importlib.util import find_spec

    from toolscout.errors import MissingExtra

    if find_spec("mcp") is None:
        raise MissingExtra("mcp", extra=EXTRA)


def _demo_config(cache: Path | None) -> "Config":
    from toolscout.config.file import build_demo_config

    return build_demo_config(cache)


def _config(path: Path | None) -> "Config":
    from toolscout.config.file import read_config
    from toolscout.errors import InvalidFile

    found = path or this_machine().config_file
    if not found.exists():
        raise InvalidFile(
            str(found), "does not exist", remedy="Run `toolscout init`, or name a file."
        )
    return read_config(found)


async def _serve(config: "Config", *, http: bool) -> None:
    from toolscout.gateway.gateway import Gateway
    from toolscout.gateway.logs import log_event
    from toolscout.gateway.tracing import Spans

    with opened_store(config) as store:
        tokens = tokens_folder(config)
        async with Gateway(config, store, tokens=tokens) as gateway:
            gateway.events.subscribe(log_event)
            gateway.events.subscribe(Spans().on_event)
            following = asyncio.create_task(_follow(gateway))
            try:
                await _answer(gateway, http=http)
            finally:
                following.cancel()


async def _follow(gateway: "Gateway") -> None:
    """Take over a configuration that was changed, on SIGHUP or when its file is written."""
    source = gateway.config.source
    hung_up = asyncio.Event()
    with contextlib.suppress(NotImplementedError, AttributeError, RuntimeError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
    seen = _stamp(source)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hung_up.wait(), LOOK_SECONDS)
        if hung_up.is_set() or _stamp(source) != seen:
            hung_up.clear()
            seen = _stamp(source)
            await _reload(gateway, source)


async def _reload(gateway: "Gateway", source: Path) -> None:
    from toolscout.config.file import read_config
    from toolscout.errors import ToolscoutError

    log = logging.getLogger("toolscout")
    try:
        config = read_config(source)
    except (ToolscoutError, OSError) as error:
        # A file that is half written, or wrong, must not take a running gateway down.
        log.error("The configuration was not taken over: %s", error)
        return
    await gateway.pool.reload(config.servers)
    log.info("The servers of %s were taken over.", source.name)


def _stamp(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


async def _answer(gateway: "Gateway", *, http: bool) -> None:
    if http:
        from toolscout.console.app import Console
        from toolscout.gateway.http import serve_http

        pages = Console.from_gateway(gateway)
        log = logging.getLogger("toolscout")
        await serve_http(
            gateway,
            gateway.config.gateway,
            pages=pages,
            ready=lambda address: log.info("The console is at %s/.", address),
        )
    else:
        from toolscout.gateway.server import serve_stdio

        await serve_stdio(gateway)


def _log_to_stderr(config: "Config") -> None:
    from toolscout.config.secrets import SecretMask
    from toolscout.gateway.logs import log_to_stderr

    gateway = config.gateway
    level = os.environ.get("TOOLSCOUT_LOG", gateway.log_level.value).upper()
    log_to_stderr(gateway.log, level, SecretMask(config.list_secrets()))
