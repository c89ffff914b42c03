"""`toolscout servers login` and `logout`: a person before a browser, and the end of that."""

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from toolscout.cli.configs import config_option, find_server, read_servers, tokens_folder

if TYPE_CHECKING:
    from toolscout.config.servers import ServerConfig
    from toolscout.servers.oauth.callback import Callback

LOGIN_SECONDS = 300.0
PASTED_BYTES = 16 << 10


@click.command()
@click.argument("name")
@config_option
@click.option("--no-browser", is_flag=True, help="Only print the address to open.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Where to wait for the browser, on this machine: 8975 unless told; 0 takes a free one.",
)
def login(name: str, path: Path | None, no_browser: bool, port: int | None) -> None:
    """Log in to a server that wants OAuth.

    Opens a browser and waits five minutes for what it brings back. If the browser runs on another
    machine, paste the address that it ends at. A gateway that is running takes the login over
    by itself.

    \b
    Example:
      toolscout servers login linear
      toolscout servers login linear --no-browser
    """
    from toolscout.servers.oauth.login import check_login

    config = read_servers(path)
    server = find_server(config, name).resolved()
    check_login(server)
    folder = tokens_folder(config)
    if asyncio.run(_log_in(server, folder, port, opens=not no_browser)):
        click.echo(f"Logged in to {name!r}.")
    else:
        click.echo(f"Server {name!r} wants no login.")


@click.command()
@click.argument("name")
@config_option
def logout(name: str, path: Path | None) -> None:
    """Forget the tokens of a server.

    A gateway that is running stops using them. What they allow ends at the server only when they
    expire, or when you revoke them there.

    \b
    Example:
      toolscout servers logout linear
    """
    from toolscout.servers.oauth.tokens import TokenFile

    config = read_servers(path)
    server = find_server(config, name).resolved()
    if TokenFile(tokens_folder(config), server).forget():
        click.echo(f"Logged out of {name!r}.")
    else:
        click.echo(f"Nobody was logged in to {name!r}.")


async def _log_in(server: "ServerConfig", folder: Path, port: int | None, *, opens: bool) -> bool:
    from toolscout.servers.oauth.callback import PORT, Callback
    from toolscout.servers.oauth.login import log_in

    # Who is registered by hand is registered with one address.
    wanted = PORT if port is None and server.oauth_client_id else port
    async with Callback(wanted) as callback:

        async def redirect(url: str) -> None:
            callback.expect(url)
            _send_to(server.name, url, opens=opens)
            _read_pasted(callback)

        return await log_in(
            server,
            folder,
            callback=callback.url,
            redirect=redirect,
            answer=lambda: callback.answer(LOGIN_SECONDS),
        )


def _send_to(server: str, url: str, *, opens: bool) -> None:
    from toolscout.errors import LoginFailed

    # The address comes from a server, and a browser would open other things than web pages.
    is_web = urlsplit(url).scheme in ("http", "https") and url.isascii() and url.isprintable()
    if not is_web:
        reason = "it leads to an address that is no web page"
        raise LoginFailed(server, reason, remedy="Tell whoever runs the server.")
    click.echo(f"Open this address to log in:\n\n  {url}\n", err=True)
    if opens and webbrowser.open(url):
        click.echo("A browser was opened.", err=True)
    click.echo("Waiting. If the browser cannot come back, paste where it ended.", err=True)


def _read_pasted(callback: "Callback") -> None:
    """Take what is pasted, in a thread that ends with the program."""
    loop = asyncio.get_running_loop()

    def take(line: str) -> None:
        if not callback.take(line):
            click.echo("That is not the address that the login ends at.", err=True)

    def hand_over(line: str) -> None:
        loop.call_soon_threadsafe(take, line)

    threading.Thread(target=_read_lines, args=(hand_over,), daemon=True).start()


def _read_lines(heard: Callable[[str], None]) -> None:
    # Not by `sys.stdin`: its lock, held by a thread that waits, would break the program's end.
    held = b""
    try:
        while data := os.read(sys.stdin.fileno(), PASTED_BYTES):
            *lines, held = (held + data).split(b"\n")
            held = held[-PASTED_BYTES:]
            for line in lines:
                if line.strip():
                    heard(line.decode(errors="replace").strip())
    except (OSError, ValueError, RuntimeError):
        return  # no terminal, or the login is over
