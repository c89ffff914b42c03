"""`toolscout console`: the page that shows what an agent sees, over any catalogue."""

import asyncio
import contextlib
import logging
import sys
import webbrowser
from pathlib import Path

import click

from toolscout.cli.inputs import need_sdk, read_catalog, tools_option
from toolscout.config.gateway import GatewayConfig


@click.command()
@tools_option
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8766,
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
    need_sdk()
    from toolscout.console.app import build_console, serve_console

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    catalog = read_catalog(paths)

    def announce(address: str) -> None:
        click.echo(f"{len(catalog):,} tools at {address}/ (press Ctrl-C to stop)")
        if open_browser:
            webbrowser.open(f"{address}/")

    with contextlib.suppress(KeyboardInterrupt):
        app = build_console(catalog, GatewayConfig(port=port))
        asyncio.run(serve_console(app, ready=announce))
