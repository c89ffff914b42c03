"""`toolscout call`: run one tool of a configured server by hand."""

import asyncio
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli import ExitCode
from toolscout.cli.completion import complete_tools
from toolscout.cli.inputs import (
    config_option,
    find_server,
    find_tool,
    known_store,
    need_sdk,
    opened_store,
    read_servers,
    tokens_folder,
)
from toolscout.cli.output import bars

if TYPE_CHECKING:
    from toolscout.catalog import Catalog
    from toolscout.config.file import Config
    from toolscout.sessions.replies import Reply
    from toolscout.tools import Tool

TOOL_FAILED = 1
ENDS = {
    "ok": 0,
    "tool_error": TOOL_FAILED,
    "call_failed": TOOL_FAILED,
    "invalid_arguments": ExitCode.USAGE,
    "unknown_tool": ExitCode.NOT_FOUND,
}
"""How the command ends, by the code of the reply; all others are another machine's failure."""


@click.command()
@click.argument("name", shell_complete=complete_tools)
@click.argument("words", nargs=-1, metavar="[JSON | KEY=VALUE…]")
@config_option
@click.option("--yes", is_flag=True, help="Do not ask before a call that may destroy something.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def call(name: str, words: tuple[str, ...], path: Path | None, yes: bool, as_json: bool) -> None:
    """Call a tool of a configured server: start it, check the arguments, run it, stop it.

    Arguments are one JSON object, '-' to read it from stdin, or key=value words. Ends with exit
    code 1 if the tool itself failed.

    \b
    Example:
      toolscout call time__get_current_time timezone=Europe/Berlin
      toolscout call github__create_issue '{"title": "Broken link"}' --yes
    """
    import logging

    need_sdk()
    from toolscout.servers.probe import arguments_from_words

    # The SDK logs what it raises as well, with a traceback.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    config = read_servers(path)
    tool = find_tool(asyncio.run(_catalog(config, name)), name)
    given = (sys.stdin.read(),) if words == ("-",) else words
    arguments = arguments_from_words(tool, given)
    if not yes:
        _confirm(tool, json.dumps(arguments, ensure_ascii=False))
    with bars() as progress:
        progress(f"Calling {tool.name}", 0, 0)
        reply = asyncio.run(_run(config, tool, arguments))
    _tell(tool, reply, as_json=as_json)


async def _catalog(config: "Config", name: str) -> "Catalog":
    """Return what is known, after asking a server that the name begins with and nobody knows."""
    from toolscout.names import make_exposed_name
    from toolscout.servers.listings import recall_catalog

    with known_store(config) as store:
        catalog = recall_catalog(config, store)
    meant = [s for s in catalog.unready if name.startswith(make_exposed_name(s, "x")[:-1])]
    if catalog.resolve(name) or not meant:
        return catalog
    await _ask(config, meant[0])
    with opened_store(config) as store:
        return recall_catalog(config, store)


async def _ask(config: "Config", server: str) -> None:
    from toolscout.errors import ServerUnavailable
    from toolscout.servers.connection import Delays
    from toolscout.servers.pool import Connector
    from toolscout.servers.probe import probe_server

    with (
        bars() as progress,
        opened_store(config) as store,
        closing(Connector(Delays(), tokens_folder(config))) as dial,
    ):
        progress(f"Asking {server} for its tools", 0, 0)
        trial = await probe_server(find_server(config, server), dial, store)
    if not trial.is_ok:
        remedy = trial.remedy or f"Run `toolscout servers test {server}`."
        raise ServerUnavailable(server, "failed", trial.problem, remedy=remedy)


def _confirm(tool: "Tool", arguments: str) -> None:
    """Ask before what may destroy something; without a person there, refuse."""
    from toolscout.names import to_one_line
    from toolscout.tools import Effect

    if tool.effect is not Effect.DESTRUCTIVE:
        return
    what = f"{tool.name} may delete or overwrite something."
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo(f"Error: Not called: {what} Add --yes if that is meant.", err=True)
        raise click.exceptions.Exit(ExitCode.USAGE)
    click.echo(f"{what} Arguments: {to_one_line(arguments, 400)}", err=True)
    if not click.confirm("Call it?", err=True):
        click.echo("Not called.", err=True)
        raise click.exceptions.Exit(ExitCode.USAGE)


async def _run(config: "Config", tool: "Tool", arguments: dict[str, object]) -> "Reply":
    from toolscout.servers.probe import call_tool

    server = find_server(config, tool.server)
    with opened_store(config) as store:
        return await call_tool(server, store, tool, arguments, tokens=tokens_folder(config))


def _tell(tool: "Tool", reply: "Reply", *, as_json: bool) -> None:
    from toolscout.names import clean_text

    if as_json:
        told = {
            "tool": tool.name,
            "code": reply.code,
            "is_error": reply.is_error,
            "text": reply.text,
            "data": reply.details.get("data"),
            "blocks": list(reply.blocks),
        }
        click.echo(json.dumps(told, ensure_ascii=False, default=str))
    else:
        stream = sys.stderr if reply.is_error else sys.stdout
        # A person's terminal must not be steered by a server; a program gets what was said.
        is_seen = stream.isatty()
        text = clean_text(reply.text, len(reply.text)) if is_seen else reply.text
        click.echo(text, err=reply.is_error)
        for block in reply.blocks:
            click.echo(f"({block.get('type')}, not shown; use --json)", err=True)
    code = ENDS.get(reply.code, ExitCode.UPSTREAM)
    if code:
        raise click.exceptions.Exit(code)
