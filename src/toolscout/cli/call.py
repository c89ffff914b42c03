"""`toolscout call`: call one tool of a configured server by hand."""

import asyncio
import json
import logging
import sys
from pathlib import Path

import click

from toolscout.cli import ExitCode, fail, inputs
from toolscout.cli.output import echo_json, show_bars
from toolscout.config.file import find_server
from toolscout.names import clean_text, make_exposed_name, to_one_line
from toolscout.sessions.replies import Reply
from toolscout.tools import Effect, Tool

REPLY_EXIT_CODES = {
    "ok": 0,
    "tool_error": ExitCode.FAILED,
    "call_failed": ExitCode.FAILED,
    "invalid_arguments": ExitCode.USAGE,
    "unknown_tool": ExitCode.NOT_FOUND,
}
"""The exit code for each code of a reply; any other means that a server failed."""


@click.command()
@click.argument("name", shell_complete=inputs.complete_tools)
@click.argument("words", nargs=-1, metavar="[JSON | KEY=VALUE…]")
@inputs.config_option
@inputs.flag_option("--yes", help="Do not ask before a call that may destroy something.")
@inputs.flag_option("--json", "as_json", help="Print the result as JSON.")
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
    inputs.need_sdk()
    from toolscout.servers.probe import arguments_from_words, call_tool

    # The SDK also logs the exceptions that it raises.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    config = inputs.read_servers(path)
    catalog = inputs.recall_tools(config)
    # A name that begins with the name of a server whose tools are not known yet.
    meant = [s for s in catalog.unready if name.startswith(make_exposed_name(s, "x")[:-1])]
    if meant and not catalog.resolve(name):
        catalog = inputs.fetch_tools(config, meant[0])
    inputs.announce_known(config, catalog)
    tool = inputs.find_tool(catalog, name)
    given = (sys.stdin.read(),) if words == ("-",) else words
    arguments = arguments_from_words(tool, given)
    if tool.effect is Effect.DESTRUCTIVE and not yes:
        what = f"{tool.name} may delete or overwrite something."
        # Piped input may be the arguments, so it cannot answer the question as well.
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            fail(f"Not called: {what} Not a terminal: pass --yes to confirm.", ExitCode.USAGE)
        shown = to_one_line(json.dumps(arguments, ensure_ascii=False), 400)
        click.echo(f"{what} Arguments: {shown}", err=True)
        if not click.confirm("Call it?", err=True):
            click.echo("Not called.", err=True)
            raise click.exceptions.Exit(ExitCode.USAGE)
    server = find_server(config, tool.server)
    tokens = inputs.get_tokens_folder(config)
    with show_bars() as progress, inputs.open_store(config) as store:
        progress(f"Calling {tool.name}", 0, 0)
        reply = asyncio.run(call_tool(server, store, tool, arguments, tokens=tokens))
    _print_reply(tool, reply, as_json=as_json)


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
        echo_json(answer)
    else:
        stream = sys.stderr if reply.is_error else sys.stdout
        # A server must not control a terminal; a program gets the text as it is.
        text = clean_text(reply.text, len(reply.text)) if stream.isatty() else reply.text
        click.echo(text, err=reply.is_error)
        for block in reply.blocks:
            click.echo(f"({block.get('type')} not shown; use --json)", err=True)
    code = REPLY_EXIT_CODES.get(reply.code, ExitCode.UPSTREAM)
    if code:
        raise click.exceptions.Exit(code)
