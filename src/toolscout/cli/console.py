"""`toolscout console`: the page that shows what an agent sees, over any catalogue."""

import asyncio
import contextlib
import logging
import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path

import click

from toolscout.catalog import Catalog
from toolscout.cli.inputs import read_catalog, tools_option
from toolscout.config.gateway import GatewayConfig
from toolscout.errors import MissingExtra

PORT = 8766


@click.command()
@tools_option
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    metavar="N",
    help="Local port to listen on; 0 picks a free one.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
def console(paths: tuple[Path, ...], port: int, open_browser: bool) -> None:
    """Browse and search a catalogue in a browser.

    For the servers, sessions and savings of a running gateway, open the address that `toolscout
    serve --http` prints: the gateway serves the same page.

    \b
    Example:
      toolscout console --open
      toolscout console --catalog tools.json --port 9000
    """

    if find_spec("starlette") is None or find_spec("mcp") is None:
        raise MissingExtra("mcp", extra="gateway")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    catalog = read_catalog(paths)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(catalog, port, open_browser=open_browser))


async def _serve(catalog: Catalog, port: int, *, open_browser: bool) -> None:
    from toolscout.console.app import build_console, serve_console

    app = await asyncio.to_thread(build_console, catalog, GatewayConfig(port=port))

    def announce(address: str) -> None:
        click.echo(f"{len(catalog):,} tools at {address}/ (press Ctrl-C to stop)")
        if open_browser:
            webbrowser.open(f"{address}/")

    await serve_console(app, ready=announce)
