"""`toolscout console`: the page that shows what an agent sees, over any catalogue."""

import asyncio
import contextlib
import logging
import sys
import webbrowser
from pathlib import Path

import click

from toolscout.cli import inputs
from toolscout.config.gateway import GatewayConfig


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

    with contextlib.suppress(KeyboardInterrupt):
        app = build_console(chosen.catalog, GatewayConfig(port=port), chosen.settings)
        asyncio.run(serve_console(app, ready=announce))
