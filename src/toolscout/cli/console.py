"""`toolscout console`: the page that shows what an agent sees, over any catalogue."""

import asyncio
import contextlib
import logging
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli.inputs import read_catalog

if TYPE_CHECKING:
    from toolscout.catalog import Catalog

PORT = 8766


@click.command()
@click.option(
    "--catalog",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="A .json or .jsonl file of tools, or a folder of them; may be given again. "
    "Without it, the demo catalogue is used.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    metavar="N",
    help="Where to listen, on this machine only; 0 takes a free port.",
)
@click.option("--open", "opens", is_flag=True, help="Open a browser at the page.")
def console(paths: tuple[Path, ...], port: int, opens: bool) -> None:
    """Look at a catalogue in a browser: search with reasons, browse, see it as a map.

    For the servers, sessions and savings of a running gateway, open the address of
    `toolscout serve --http` instead: it serves the same page.

    \b
    Example:
      toolscout console --open
      toolscout console --catalog tools.json --port 9000
    """
    from importlib.util import find_spec

    from toolscout.errors import MissingExtra

    if find_spec("starlette") is None or find_spec("mcp") is None:
        raise MissingExtra("mcp", extra="gateway")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    catalog = read_catalog(paths)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(catalog, port, opens=opens))


async def _serve(catalog: "Catalog", port: int, *, opens: bool) -> None:
    from toolscout.config.gateway import GatewayConfig
    from toolscout.console.app import build_console, serve_console

    shown = await asyncio.to_thread(build_console, catalog, GatewayConfig(port=port))

    def ready(address: str) -> None:
        click.echo(f"{len(catalog):,} tools at {address}/ (Ctrl-C ends it)")
        if opens:
            webbrowser.open(f"{address}/")

    await serve_console(shown, ready=ready)
