"""The `toolscout` command: its group, and the one place where errors become exit codes.

Each command family is a module of its own, imported when it is asked for. Results go to stdout,
everything else to stderr. A mistake ends in a message that says what to do next; a traceback
means a bug in toolscout.
"""

import errno
import os
from difflib import get_close_matches
from enum import IntEnum
from importlib import import_module
from typing import Any, NoReturn

import click

from toolscout.errors import InvalidEncoder, ToolscoutError, UnknownServer, UpstreamError


class ExitCode(IntEnum):
    """How a command ended, for scripts; 0 is success. `docs/commands.md` has all of them."""

    FAILED = 1
    """What was to be checked is not in order; a bug in toolscout ends with 1 as well."""
    USAGE = 2
    NOT_FOUND = 3
    UPSTREAM = 4
    INTERRUPTED = 130


# The first class that fits decides; mistakes not listed are the user's to mend.
EXIT_CODES: tuple[tuple[type[ToolscoutError], ExitCode], ...] = (
    (UnknownServer, ExitCode.NOT_FOUND),
    (InvalidEncoder, ExitCode.UPSTREAM),
    (UpstreamError, ExitCode.UPSTREAM),
    (ToolscoutError, ExitCode.USAGE),
)

COMMANDS = {
    "try": "toolscout.cli.search:try_",
    "search": "toolscout.cli.search:search",
    "describe": "toolscout.cli.describe:describe",
    "call": "toolscout.cli.call:call",
    "catalog": "toolscout.cli.catalog:catalog",
    "tokens": "toolscout.cli.tokens:tokens",
    "replay": "toolscout.cli.replay:replay",
    "init": "toolscout.cli.init:init",
    "serve": "toolscout.cli.serve:serve",
    "servers": "toolscout.cli.servers:servers",
    "status": "toolscout.cli.status:status",
    "doctor": "toolscout.cli.doctor:doctor",
    "console": "toolscout.cli.console:console",
    "evaluate": "toolscout.cli.evaluate:evaluate",
    "completion": "toolscout.cli.completion:completion",
}

NEAR_ENOUGH = 0.6
FIRST_STEPS = """\
toolscout finds the right tool for an AI agent among ten or a hundred thousand, offline.

  toolscout try                            see it find tools; needs no setup
  toolscout init                           put the MCP servers that you have behind it
  toolscout search "open a pull request"   search, with --tools in your own definitions

All commands: toolscout --help"""


class Group(click.Group):
    """A group that knows which command was meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named, or fail with the nearest that exists."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            known = self.list_commands(ctx)
            near = get_close_matches(args[0].lower(), known, n=1, cutoff=NEAR_ENOUGH)
            remedy = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
            ctx.fail(f"No such command {args[0]!r}. {remedy}")
        return super().resolve_command(ctx, args)


class ErrorGroup(Group):
    """A group that turns what its commands raise into messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except ToolscoutError as error:
            code = next(code for kind, code in EXIT_CODES if isinstance(error, kind))
            _fail(str(error), code)
        except OSError as error:
            # A reader that went away is no mistake: click ends quietly.
            if error.errno == errno.EPIPE or error.filename is None:
                raise
            problem = f"{error.filename}: {error.strerror}. Check the path and its permissions."
            _fail(problem, ExitCode.USAGE)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


class Commands(ErrorGroup):
    """The group of all commands; imports one when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by name, or nothing."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        return getattr(import_module(module), name)


def _fail(message: str, code: ExitCode) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    raise click.exceptions.Exit(code)


@click.command(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="toolscout", message="toolscout %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Find the right tool for an AI agent among ten or a hundred thousand, offline.

    Exit codes: 1 a check failed, 2 a mistake in what was asked, 3 nothing found, 4 another
    machine failed, 130 interrupted.

    \b
    Example:
      toolscout try
      toolscout search "open a pull request" --explain
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    if ctx.invoked_subcommand is None:
        click.echo(FIRST_STEPS)
