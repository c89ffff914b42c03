"""`toolscout servers`: list, test, add and remove servers, and log in to them.

Nothing that is printed contains the value of a variable, header or token.
"""

import asyncio
import logging
import os
import shlex
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli import ExitCode, Group, inputs
from toolscout.cli.output import NAME_SHOWN, echo_json, format_count, make_table, show
from toolscout.clients.discovery import find_secret_places
from toolscout.config.edits import add_server, read_own_text, remove_server, write_edit
from toolscout.config.file import Config, find_server
from toolscout.config.servers import Login, ServerConfig, Transport
from toolscout.errors import InvalidConfig, ToolscoutError
from toolscout.names import find_near_names, to_error_text, to_one_line
from toolscout.options import join_keys

if TYPE_CHECKING:
    from toolscout.servers.oauth.callback import Callback
    from toolscout.servers.oauth.tokens import LoginStorage
    from toolscout.servers.probe import ProbeResult

LOGIN_SECONDS = 300.0
PASTED_BYTES = 16 << 10
NOTE_SHOWN = 200


@click.group(cls=Group)
def servers() -> None:
    """Manage the servers behind the gateway."""
    inputs.need_sdk()
    # The SDK also logs the exceptions that it raises.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


@servers.command("list")
@inputs.config_option
@inputs.json_option
def list_(path: Path | None, as_json: bool) -> None:
    """List the configured servers without starting them.

    \b
    Example:
      toolscout servers list
      toolscout servers list --json
    """
    from toolscout.servers.probe import list_servers

    config = inputs.read_servers(path)
    tokens = inputs.get_tokens_folder(config)
    with inputs.open_known_store(config) as store:
        entries = list_servers(config, store, tokens, env=os.environ, now=time.time())
    if as_json:
        rows = [
            {
                "name": entry.server.name,
                "transport": entry.server.transport,
                "starts": entry.server.format_start(),
                "state": entry.state,
                "tools": entry.tools,
                "login": entry.login,
                "file": entry.file,
            }
            for entry in entries
        ]
        echo_json({"config": config.source, "servers": rows})
        return
    for note in config.notes:
        click.echo(f"Note: {to_error_text(note, NOTE_SHOWN)}", err=True)
    if not entries:
        click.echo("No servers. Add some with `toolscout init` or `toolscout servers add`.")
        return
    table: list[tuple[str, ...]] = []
    for entry in entries:
        name = to_one_line(entry.server.name, NAME_SHOWN)
        tools = "-" if entry.tools is None else f"{entry.tools:,}"
        transport = entry.server.transport
        table.append((name, transport, entry.state, tools, entry.login, str(entry.file)))
    head = ("server", "transport", "state", "tools", "login", "configured in")
    show([make_table(head, table)])


@servers.command("test")
@click.argument("names", nargs=-1, metavar="[NAME…]")
@inputs.config_option
@inputs.json_option
def test_(names: tuple[str, ...], path: Path | None, as_json: bool) -> None:
    """Start servers, list their tools and stop them.

    Tests all servers that are not disabled, or those named. The exit code is 1 if one failed.

    \b
    Example:
      toolscout servers test
      toolscout servers test github linear --json
    """
    config = inputs.read_servers(path)
    chosen = [find_server(config, name) for name in dict.fromkeys(names)]
    chosen = chosen or [server for server in config.servers if not server.disabled]
    width = max((len(to_one_line(server.name, NAME_SHOWN)) for server in chosen), default=0)

    def report(trial: "ProbeResult") -> None:
        if not as_json:
            show_trial(trial, width)

    trials = asyncio.run(inputs.start_servers(config, chosen, report))
    if as_json:
        echo_json({"servers": [json_from_trial(trial) for trial in trials]})
    if not all(trial.is_ok for trial in trials):
        raise click.exceptions.Exit(ExitCode.FAILED)


def json_from_trial(trial: "ProbeResult") -> dict[str, object]:
    """Return the outcome of starting a server as plain JSON."""
    return {
        "name": trial.server,
        "ok": trial.is_ok,
        "seconds": round(trial.seconds, 3),
        "counts": dict(trial.counts),
        "protocol": trial.protocol,
        "problem": trial.problem,
        "remedy": trial.remedy,
        "notes": trial.notes,
        "held": trial.held,
    }


def show_trial(trial: "ProbeResult", width: int) -> None:
    """Print the outcome of starting a server, its name padded to a width."""
    outcome = f"ok      {format_offer(trial)}"
    if not trial.is_ok:
        problem = trial.problem[:1].upper() + trial.problem[1:].removesuffix(".")
        outcome = f"failed  {problem}. {trial.remedy}".rstrip()
    click.echo(f"{to_one_line(trial.server, NAME_SHOWN):<{width}}  {outcome}")
    for note in trial.notes:
        click.echo(f"{'':<{width}}  {to_error_text(note, NOTE_SHOWN)}")


def format_offer(trial: "ProbeResult") -> str:
    """Return how many tools and other entries a server offers, and how long it took to start."""
    counts = ", ".join(format_count(count, kind) for kind, count in trial.counts.items())
    return f"{counts or 'offers nothing'} ({trial.seconds:.1f} s)"


@servers.command()
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[ARGUMENT…]")
@inputs.config_option
@click.option(
    "--command", metavar="PROGRAM", help="The program that starts it; its arguments come last."
)
@click.option("--url", metavar="URL", help="The address of a remote server, instead of a command.")
@inputs.flag_option("--sse", help="Use the older SSE transport for the URL.")
@inputs.flag_option("--oauth", help="The server needs a login; see `toolscout servers login`.")
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=${REF}", help="A variable; may be repeated."
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=${REF}", help="A header; may be repeated."
)
def add(
    name: str,
    arguments: tuple[str, ...],
    path: Path | None,
    command: str | None,
    url: str | None,
    sse: bool,
    oauth: bool,
    variables: tuple[str, ...],
    headers: tuple[str, ...],
) -> None:
    """Add a server to toolscout's own configuration file.

    Write secrets as references, ${VARIABLE} or ${file:PATH}. Put `--` before program arguments
    that begin with a dash.

    \b
    Example:
      toolscout servers add time --command uvx mcp-server-time
      toolscout servers add files --command npx -- -y @modelcontextprotocol/server-filesystem .
      toolscout servers add linear --url https://mcp.linear.app/mcp --oauth
    """
    if bool(command) == bool(url):
        raise click.UsageError("Use either --command PROGRAM or --url URL.")
    over_http = Transport.SSE if sse else Transport.HTTP
    server = ServerConfig(
        name=name,
        transport=over_http if url else Transport.STDIO,
        command=command or "",
        args=arguments,
        url=url or "",
        oauth=oauth,
        env=_parse_pairs("--env", variables),
        headers=_parse_pairs("--header", headers),
    )
    for key in find_secret_places(server):
        remedy = "Write ${VARIABLE} or ${file:PATH} instead, in single quotes."
        raise InvalidConfig(key, "looks like a secret in plain text", remedy=remedy)
    place = inputs.find_config_file(path)
    write_edit(place, add_server(place, read_own_text(place), server))
    verb = "login" if oauth else "test"
    click.echo(f"Added {name!r} to {place}.\nNext: toolscout servers {verb} {shlex.quote(name)}")


def _parse_pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise click.UsageError(f"{option} takes NAME=VALUE.")
        found[name.strip()] = value
    return found


@servers.command()
@click.argument("name")
@inputs.config_option
def remove(name: str, path: Path | None) -> None:
    """Remove a server from toolscout's own configuration file.

    The old file is kept as FILE.bak. Login tokens of the server, also those of users, and its
    approvals are deleted.

    \b
    Example:
      toolscout servers remove time
    """
    from toolscout.servers.listings import forget_server
    from toolscout.servers.oauth.encrypted_logins import EncryptedLogins
    from toolscout.servers.oauth.tokens import TokenFile

    place = inputs.find_config_file(path)
    text = remove_server(place, read_own_text(place), name)
    config = inputs.read_servers(place)
    folder = inputs.get_tokens_folder(config)
    server = None
    logged_out: list[str | None] = []
    # A server with a reference that has no value has no address to be logged in at.
    with suppress(InvalidConfig):
        server = find_server(config, name).resolve()
        logged_out += [None] if TokenFile(folder, server).forget() else []
    write_edit(place, text)
    with inputs.open_known_store(config) as store:
        if store is not None:
            forget_server(store, name)
            if server is not None:
                logged_out += EncryptedLogins(store, folder=folder).forget_server(server)
    for principal in logged_out:
        with _record_login(config, name, principal) as tell:
            tell("removed")
    click.echo(f"Removed {name!r} from {place}.")


principal_option = click.option(
    "--principal",
    metavar="NAME",
    help='Whose login it is, for a server with login = "user": the name of a token of the gateway, '
    "or ISSUER:SUBJECT. Default: the login that everybody shares.",
)


@servers.command()
@click.argument("name")
@inputs.config_option
@principal_option
@inputs.flag_option("--no-browser", help="Print the address instead of opening a browser.")
@inputs.number_option(
    "--port",
    type=inputs.PORT,
    help="Local port to wait for the browser on; 0 picks a free one. Default: 8975.",
)
def login(
    name: str, path: Path | None, principal: str | None, no_browser: bool, port: int | None
) -> None:
    """Log in to a server with OAuth.

    Opens a browser and waits five minutes for the login to finish. If the browser runs on another
    machine, paste the address that it ends up at. A running gateway picks up the login by itself.

    \b
    Example:
      toolscout servers login linear
      toolscout servers login linear --no-browser
      toolscout servers login linear --principal ann
    """
    from toolscout.servers.oauth.login import check_login

    config = inputs.read_servers(path)
    server = find_server(config, name).resolve()
    check_login(server)
    with (
        _open_login(config, server, principal) as storage,
        _record_login(config, name, principal) as tell,
    ):
        storage.load()  # a login that cannot be decrypted is not written over
        tell("started")
        try:
            is_new = asyncio.run(_log_in(server, storage, port, open_browser=not no_browser))
        except (ToolscoutError, KeyboardInterrupt) as error:
            tell("failed", str(error) or "it was interrupted")
            raise
        tell("ok" if is_new else "not needed")
    whose = f" for {principal!r}" if principal else ""
    click.echo(
        f"Logged in to {name!r}{whose}." if is_new else f"Server {name!r} does not require a login."
    )


@servers.command()
@click.argument("name")
@inputs.config_option
@principal_option
def logout(name: str, path: Path | None, principal: str | None) -> None:
    """Delete the login tokens of a server.

    A running gateway stops using them. At the server they stay valid until they expire, or until
    you revoke them there.

    \b
    Example:
      toolscout servers logout linear
      toolscout servers logout linear --principal ann
    """
    config = inputs.read_servers(path)
    with (
        _open_login(config, find_server(config, name).resolve(), principal) as storage,
        _record_login(config, name, principal) as tell,
    ):
        was_there = storage.forget()
        if was_there:
            tell("removed")
    click.echo(f"Logged out of {name!r}." if was_there else f"There was no login for {name!r}.")


@contextmanager
def _record_login(
    config: Config, server: str, principal: str | None
) -> "Generator[Callable[..., None]]":
    """Give a function that puts the outcome of a login, and a reason, into the audit record."""
    from toolscout.gateway.events import LoginChanged, LoginOutcome

    whose = {"server": server, "principal": principal or "", "by": inputs.find_user()}
    with inputs.open_store(config) as store, inputs.record_decisions(config, store) as note:

        def tell(outcome: str, reason: str = "") -> None:
            note(LoginChanged(outcome=LoginOutcome(outcome), reason=reason, **whose))

        yield tell


@contextmanager
def _open_login(
    config: Config, server: ServerConfig, principal: str | None
) -> "Generator[LoginStorage]":
    """Open the place where a login at a server is stored: of a principal, or of everybody."""
    from toolscout.servers.oauth.encrypted_logins import EncryptedLogins
    from toolscout.servers.oauth.tokens import TokenFile

    folder = inputs.get_tokens_folder(config)
    if principal is None:
        yield TokenFile(folder, server)
        return
    if server.login != Login.USER:
        key = join_keys("servers", server.name, "login")
        remedy = 'Write login = "user", or leave out --principal.'
        raise InvalidConfig(key, "does not give each user a login", remedy=remedy)
    if not config.gateway.may_have(principal):
        near = find_near_names(principal, config.gateway.tokens, limit=1)
        remedy = f"Use {near[0]!r}." if near else "Use the name of one of 'gateway.tokens'."
        raise click.UsageError(f"No token or issuer has the principal {principal!r}. {remedy}")
    with inputs.open_store(config) as store:
        keys = config.gateway.resolve_login_keys()
        yield EncryptedLogins(store, keys, folder=folder).find(server, principal)


async def _log_in(
    server: ServerConfig, storage: "LoginStorage", port: int | None, *, open_browser: bool
) -> bool:
    from toolscout.servers.oauth.callback import PORT, Callback
    from toolscout.servers.oauth.login import log_in

    # A client that was registered by hand is registered with one address.
    wanted = PORT if port is None and server.oauth_client_id else port
    async with Callback(wanted) as callback:

        async def redirect(url: str) -> None:
            callback.expect(url)
            click.echo(f"Open this address to log in:\n\n  {url}\n", err=True)
            if open_browser and webbrowser.open(url):
                click.echo("Opened a browser.", err=True)
            remedy = "If the browser cannot return here, paste the address it ended up at."
            click.echo(f"Waiting. {remedy}", err=True)
            _read_pasted(callback)

        answer = partial(callback.answer, LOGIN_SECONDS)
        return await log_in(
            server, storage, callback=callback.url, redirect=redirect, answer=answer
        )


def _read_pasted(callback: "Callback") -> None:
    """Read pasted addresses, in a thread that ends with the program."""
    loop = asyncio.get_running_loop()

    def take(line: bytes) -> None:
        if not callback.take(line.decode(errors="replace").strip()):
            click.echo("That is not the address at the end of a login.", err=True)

    def read_lines() -> None:
        # Not `sys.stdin`: a waiting thread would hold its lock and block the exit of the program.
        held = b""
        with suppress(OSError, ValueError, RuntimeError):  # no terminal, or the login is over
            while data := os.read(sys.stdin.fileno(), PASTED_BYTES):
                *lines, held = (held + data).split(b"\n")
                held = held[-PASTED_BYTES:]
                for line in filter(bytes.strip, lines):
                    loop.call_soon_threadsafe(take, line)

    threading.Thread(target=read_lines, daemon=True).start()
