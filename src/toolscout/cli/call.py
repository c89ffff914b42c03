"""`toolscout call`: call one tool of a configured server by hand."""

import asyncio
import json
import logging
import sys
from contextlib import closing
from pathlib import Path

import click

from toolscout.catalog import Catalog
from toolscout.cli import ExitCode
from toolscout.cli.completion import complete_tools
from toolscout.cli.inputs import (
    config_option,
    find_server,
    find_tool,
    get_tokens_folder,
    need_sdk,
    open_known_store,
    open_store,
    read_servers,
)
from toolscout.cli.output import show_bars
from toolscout.config.file import Config
from toolscout.errors import ServerUnavailable
from toolscout.names import clean_text, make_exposed_name, to_one_line
from toolscout.sessions.replies import Reply
from toolscout.tools import Effect, Tool

TOOL_FAILED = 1
ENDS = {
    "ok": 0,
    "tool_error": TOOL_FAILED,
    "call_failed": TOOL_FAILED,
    "invalid_arguments": ExitCode.USAGE,
    "unknown_tool": ExitCode.NOT_FOUND,
}
"""The exit code for each code of a reply; any other means that a server failed."""


@click.command()
@click.argument("name", shell_complete=complete_tools)
@click.argument("words", nargs=-1, metavar="[JSON | KEY=VALUE…]")
@config_option
@click.option("--yes", is_flag=True, help="Do not ask before a call that may destroy something.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def call(name: str, words: tuple[str, ...], path: Path | None, yes: bool, as_json: bool) -> None:
    """Call a tool of a configured server.

    Starts the server, checks the arguments, calls the tool and stops the server. Arguments are
    one JSON object, '-' to read it from stdin, or key=value words. The exit code is 1 if the tool
    itself failed.

    \b
    Example:
      toolscout call time__get_current_time timezone=Europe/Berlin
      toolscout call github__create_issue '{"title": "Broken link"}' --yes
    """

    need_sdk()
    from toolscout.servers.probe import arguments_from_words

    # The SDK also logs the exceptions that it raises.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    config = read_servers(path)
    tool = find_tool(asyncio.run(_find_catalog(config, name)), name)
    given = (sys.stdin.read(),) if words == ("-",) else words
    arguments = arguments_from_words(tool, given)
    if not yes:
        _confirm(tool, json.dumps(arguments, ensure_ascii=False))
    with show_bars() as progress:
        progress(f"Calling {tool.name}", 0, 0)
        reply = asyncio.run(_run(config, tool, arguments))
    _print_reply(tool, reply, as_json=as_json)


async def _find_catalog(config: Config, name: str) -> Catalog:
    """Return the known tools; first asks an unknown server if the name begins with its name."""
    from toolscout.servers.listings import recall_catalog

    with open_known_store(config) as store:
        catalog = recall_catalog(config, store)
    meant = [s for s in catalog.unready if name.startswith(make_exposed_name(s, "x")[:-1])]
    if catalog.resolve(name) or not meant:
        return catalog
    await _ask(config, meant[0])
    with open_store(config) as store:
        return recall_catalog(config, store)


async def _ask(config: Config, server: str) -> None:
    from toolscout.servers.connection import Delays
    from toolscout.servers.pool import Connector
    from toolscout.servers.probe import probe_server

    with (
        show_bars() as progress,
        open_store(config) as store,
        closing(Connector(Delays(), get_tokens_folder(config))) as dial,
    ):
        progress(f"Asking {server} for its tools", 0, 0)
        trial = await probe_server(find_server(config, server), dial, store)
    if not trial.is_ok:
        remedy = trial.remedy or f"Run `toolscout servers test {server}`."
        raise ServerUnavailable(server, "failed", trial.problem, remedy=remedy)


def _confirm(tool: Tool, arguments: str) -> None:
    """Ask before a call that may destroy something; refuse if nobody can answer."""

    if tool.effect is not Effect.DESTRUCTIVE:
        return
    what = f"{tool.name} may delete or overwrite something."
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo(f"Error: Not called: {what} Not a terminal: pass --yes to confirm.", err=True)
        raise click.exceptions.Exit(ExitCode.USAGE)
    click.echo(f"{what} Arguments: {to_one_line(arguments, 400)}", err=True)
    if not click.confirm("Call it?", err=True):
        click.echo("Not called.", err=True)
        raise click.exceptions.Exit(ExitCode.USAGE)


async def _run(config: Config, tool: Tool, arguments: dict[str, object]) -> Reply:
    from toolscout.servers.probe import call_tool

    server = find_server(config, tool.server)
    with open_store(config) as store:
        return await call_tool(server, store, tool, arguments, tokens=get_tokens_folder(config))


def _print_reply(tool: Tool, reply: Reply, *, as_json: bool) -> None:
    if as_json:
        answer = {
            "tool": tool.name,
            "code": reply.code,
            "is_error": reply.is_error,
            "text": reply.text,
            "data": reply.details.get("data"),
            "blocks": list(reply.blocks),
        }
        click.echo(json.dumps(answer, ensure_ascii=False, default=str))
    else:
        stream = sys.stderr if reply.is_error else sys.stdout
        # A server must not control a terminal; a program gets the text as it is.
        is_seen = stream.isatty()
        text = clean_text(reply.text, len(reply.text)) if is_seen else reply.text
        click.echo(text, err=reply.is_error)
        for block in reply.blocks:
            click.echo(f"({block.get('type')} not shown; use --json)", err=True)
    code = ENDS.get(reply.code, ExitCode.UPSTREAM)
    if code:
        raise click.exceptions.Exit(code)
