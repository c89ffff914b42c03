"""`toolscout servers`: what stands behind the gateway, seen, tried and changed by hand.

Nothing that is printed holds the value of a variable, header or token.

`toolscout servers login` and `logout`: a person before a browser, and the end of that.
"""

import asyncio
import json
import logging
import os
import shlex
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from toolscout.cli import Group
from toolscout.cli.inputs import (
    config_option,
    find_config_file,
    find_server,
    get_tokens_folder,
    open_known_store,
    open_store,
    read_servers,
)
from toolscout.clients.discovery import find_secret_places
from toolscout.config.edits import add_server, read_own_text, remove_server, write_edit
from toolscout.config.file import Config
from toolscout.config.secrets import mask_command, mask_url
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig, LoginFailed, MissingExtra
from toolscout.names import to_one_line
from toolscout.schemas import Json

if TYPE_CHECKING:
    from toolscout.servers.oauth.callback import Callback
    from toolscout.servers.probe import ProbeResult, ServerSummary


LOGIN_SECONDS = 300.0
PASTED_BYTES = 16 << 10


@click.command()
@click.argument("name")
@config_option
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening a browser.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Local port to wait for the browser on; 0 picks a free one. Default: 8975.",
)
def login(name: str, path: Path | None, no_browser: bool, port: int | None) -> None:
    """Log in to a server with OAuth.

    Opens a browser and waits five minutes for the login to finish. If the browser runs on another
    machine, paste the address that it ends up at. A running gateway picks up the login by itself.

    \b
    Example:
      toolscout servers login linear
      toolscout servers login linear --no-browser
    """
    from toolscout.servers.oauth.login import check_login

    config = read_servers(path)
    server = find_server(config, name).resolve()
    check_login(server)
    folder = get_tokens_folder(config)
    if asyncio.run(_log_in(server, folder, port, opens=not no_browser)):
        click.echo(f"Logged in to {name!r}.")
    else:
        click.echo(f"Server {name!r} does not require a login.")


@click.command()
@click.argument("name")
@config_option
def logout(name: str, path: Path | None) -> None:
    """Delete the login tokens of a server.

    A running gateway stops using them. At the server they stay valid until they expire, or until
    you revoke them there.

    \b
    Example:
      toolscout servers logout linear
    """
    from toolscout.servers.oauth.tokens import TokenFile

    config = read_servers(path)
    server = find_server(config, name).resolve()
    if TokenFile(get_tokens_folder(config), server).forget():
        click.echo(f"Logged out of {name!r}.")
    else:
        click.echo(f"There was no login for {name!r}.")


async def _log_in(server: ServerConfig, folder: Path, port: int | None, *, opens: bool) -> bool:
    from toolscout.servers.oauth.callback import PORT, Callback
    from toolscout.servers.oauth.login import log_in

    # A client that was registered by hand is registered with one address.
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
    # The address comes from a server, and a browser would open other things than web pages.
    is_web = urlsplit(url).scheme in ("http", "https") and url.isascii() and url.isprintable()
    if not is_web:
        reason = "it leads to an address that is not a web page"
        raise LoginFailed(server, reason, remedy="Report this to the operator of the server.")
    click.echo(f"Open this address to log in:\n\n  {url}\n", err=True)
    if opens and webbrowser.open(url):
        click.echo("Opened a browser.", err=True)
    click.echo(
        "Waiting. If the browser cannot return here, paste the address it ended up at.", err=True
    )


def _read_pasted(callback: "Callback") -> None:
    """Read pasted addresses, in a thread that ends with the program."""
    loop = asyncio.get_running_loop()

    def take(line: str) -> None:
        if not callback.take(line):
            click.echo("That is not the address at the end of a login.", err=True)

    def pass_on(line: str) -> None:
        loop.call_soon_threadsafe(take, line)

    threading.Thread(target=_read_lines, args=(pass_on,), daemon=True).start()


def _read_lines(heard: Callable[[str], None]) -> None:
    # Not `sys.stdin`: a waiting thread would hold its lock and block the exit of the program.
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


EXTRA = "gateway"
SOME_FAILED = 1
TRIED_TOGETHER = 8
NAME_SHOWN = 40
NOTE_SHOWN = 200

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=Group)
def servers() -> None:
    """Manage the servers behind the gateway."""

    if find_spec("mcp") is None:
        raise MissingExtra("mcp", extra=EXTRA)
    # The SDK also logs the exceptions that it raises.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


servers.add_command(login)
servers.add_command(logout)


@servers.command("list")
@config_option
@json_option
def list_(path: Path | None, as_json: bool) -> None:
    """List the configured servers without starting them.

    \b
    Example:
      toolscout servers list
      toolscout servers list --json
    """
    from toolscout.servers.probe import list_servers

    config = read_servers(path)
    folder = get_tokens_folder(config)
    with open_known_store(config) as store:
        entries = list_servers(config, store, folder, env=os.environ, now=time.time())
    if as_json:
        rows = [_json_from_summary(entry) for entry in entries]
        click.echo(json.dumps({"config": str(config.source), "servers": rows}, ensure_ascii=False))
    else:
        _echo_notes(config)
        click.echo("\n".join(_format_table(entries)))


@servers.command("test")
@click.argument("names", nargs=-1, metavar="[NAME…]")
@config_option
@json_option
def test_(names: tuple[str, ...], path: Path | None, as_json: bool) -> None:
    """Start servers, list their tools and stop them.

    Tests all servers that are not disabled, or those named. The exit code is 1 if one failed.

    \b
    Example:
      toolscout servers test
      toolscout servers test github linear --json
    """
    config = read_servers(path)
    chosen = [find_server(config, name) for name in dict.fromkeys(names)]
    chosen = chosen or [server for server in config.servers if not server.disabled]
    trials = asyncio.run(start_servers(config, chosen))
    if as_json:
        rows = [_json_from_trial(trial) for trial in trials]
        click.echo(json.dumps({"servers": rows}, ensure_ascii=False))
    else:
        width = max((len(_shorten(trial.server)) for trial in trials), default=0)
        for trial in trials:
            click.echo("\n".join(_format_trial(trial, width)))
    if not all(trial.is_ok for trial in trials):
        raise click.exceptions.Exit(SOME_FAILED)


@servers.command()
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[ARGUMENT…]")
@config_option
@click.option(
    "--command", metavar="PROGRAM", help="The program that starts it; its arguments come last."
)
@click.option("--url", metavar="URL", help="The address of a remote server, instead of a command.")
@click.option("--sse", is_flag=True, help="Use the older SSE transport for the URL.")
@click.option(
    "--oauth", is_flag=True, help="The server needs a login; see `toolscout servers login`."
)
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=${REF}", help="A variable; may be repeated."
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=${REF}", help="A header; may be repeated."
)
def add(name: str, path: Path | None, **options: Any) -> None:
    """Add a server to toolscout's own configuration file.

    Write secrets as references, ${VARIABLE} or ${file:PATH}. Put `--` before program arguments
    that begin with a dash.

    \b
    Example:
      toolscout servers add time --command uvx mcp-server-time
      toolscout servers add files --command npx -- -y @modelcontextprotocol/server-filesystem .
      toolscout servers add linear --url https://mcp.linear.app/mcp --oauth
    """

    server = _make_server(name, options)
    _check_secrets(server)
    place = find_config_file(path)
    write_edit(place, add_server(place, read_own_text(place), server))
    click.echo(f"Added {name!r} to {place}.\nNext: {_suggest_command(server)}")


@servers.command()
@click.argument("name")
@config_option
def remove(name: str, path: Path | None) -> None:
    """Remove a server from toolscout's own configuration file.

    The old file is kept as FILE.bak. Login tokens of the server are deleted.

    \b
    Example:
      toolscout servers remove time
    """

    place = find_config_file(path)
    text = remove_server(place, read_own_text(place), name)
    _forget_login(place, name)
    write_edit(place, text)
    click.echo(f"Removed {name!r} from {place}.")


def _forget_login(place: Path, name: str) -> None:
    from toolscout.servers.oauth.tokens import TokenFile

    config = read_servers(place)
    # A server with a reference that has no value has no address to be logged in at.
    with suppress(InvalidConfig):
        TokenFile(get_tokens_folder(config), find_server(config, name).resolve()).forget()


async def start_servers(config: Config, chosen: Iterable[ServerConfig]) -> "list[ProbeResult]":
    """Start servers, a few at a time, and return the result of each."""
    from toolscout.servers.connection import Delays
    from toolscout.servers.pool import Connector
    from toolscout.servers.probe import probe_server

    gate = asyncio.Semaphore(TRIED_TOGETHER)
    with (
        open_store(config) as store,
        closing(Connector(Delays(), get_tokens_folder(config))) as dial,
    ):

        async def work(server: ServerConfig) -> "ProbeResult":
            async with gate:
                return await probe_server(server, dial, store)

        return await asyncio.gather(*map(work, chosen))


def _make_server(name: str, options: Json) -> ServerConfig:
    if bool(options["command"]) == bool(options["url"]):
        raise click.UsageError("Use either --command PROGRAM or --url URL.")
    over_http = Transport.SSE if options["sse"] else Transport.HTTP
    return ServerConfig(
        name=name,
        transport=over_http if options["url"] else Transport.STDIO,
        command=options["command"] or "",
        args=options["arguments"],
        url=options["url"] or "",
        oauth=options["oauth"],
        env=_parse_pairs("--env", options["variables"]),
        headers=_parse_pairs("--header", options["headers"]),
    )


def _parse_pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise click.UsageError(f"{option} takes NAME=VALUE.")
        found[name.strip()] = value
    return found


def _check_secrets(server: ServerConfig) -> None:
    places = find_secret_places(server)
    if places:
        remedy = "Write ${VARIABLE} or ${file:PATH} instead, in single quotes."
        raise InvalidConfig(places[0], "looks like a secret in plain text", remedy=remedy)


def _suggest_command(server: ServerConfig) -> str:
    verb = "login" if server.oauth else "test"
    return f"toolscout servers {verb} {shlex.quote(server.name)}"


def _echo_notes(config: Config) -> None:
    for note in config.notes:
        click.echo(f"Note: {to_one_line(note, NOTE_SHOWN)}", err=True)


def _shorten(name: str) -> str:
    return to_one_line(name, NAME_SHOWN)


def _format_table(entries: "Iterable[ServerSummary]") -> list[str]:
    rows = [("server", "transport", "state", "tools", "login", "configured in")]
    for entry in entries:
        tools = "-" if entry.tools is None else f"{entry.tools:,}"
        server = entry.server
        rows.append(
            (
                _shorten(server.name),
                server.transport,
                entry.state,
                tools,
                entry.login,
                str(entry.file),
            )
        )
    if len(rows) == 1:
        return ["No servers. Add some with `toolscout init` or `toolscout servers add`."]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _json_from_summary(entry: "ServerSummary") -> Json:
    server = entry.server
    starts = mask_url(server.url) if server.url else mask_command(server.command, server.args)
    return {
        "name": server.name,
        "transport": str(server.transport),
        "starts": starts,
        "state": entry.state,
        "tools": entry.tools,
        "login": str(entry.login),
        "file": str(entry.file),
    }


def _format_trial(trial: "ProbeResult", width: int) -> list[str]:
    name = f"{_shorten(trial.server):<{width}}"
    if trial.is_ok:
        counts = ", ".join(
            f"{count:,} {_to_plural(kind, count)}" for kind, count in trial.counts.items()
        )
        lines = [f"{name}  ok      {counts or 'offers nothing'} ({trial.seconds:.1f} s)"]
    else:
        lines = [f"{name}  failed  {' '.join((_to_sentence(trial.problem), trial.remedy)).strip()}"]
    return lines + [f"{'':<{width}}  {to_one_line(note, NOTE_SHOWN)}" for note in trial.notes]


def _to_plural(kind: str, count: int) -> str:
    return kind if count == 1 else f"{kind}s"


def _to_sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


def _json_from_trial(trial: "ProbeResult") -> Json:
    return {
        "name": trial.server,
        "ok": trial.is_ok,
        "seconds": round(trial.seconds, 3),
        "counts": dict(trial.counts),
        "protocol": trial.protocol,
        "problem": trial.problem,
        "remedy": trial.remedy,
        "notes": list(trial.notes),
    }
