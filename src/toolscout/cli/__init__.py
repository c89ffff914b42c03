"""The `toolscout` command, and the one place where errors become exit codes.

Each command family is a module of its own, imported when it is needed. Results go to stdout,
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
from click.shell_completion import CompletionItem

from toolscout.errors import InvalidEncoder, ToolscoutError, UnknownServer, UpstreamError


class ExitCode(IntEnum):
    """Exit codes for scripts; 0 is success. `docs/commands.md` explains them."""

    FAILED = 1
    """A check failed; a bug in toolscout ends with 1 as well."""
    USAGE = 2
    NOT_FOUND = 3
    UPSTREAM = 4
    INTERRUPTED = 130


COMMANDS = {
    "try": ("search", "try_", "See toolscout find tools in a demo catalogue."),
    "search": ("search", "search", "Find the tools that match a query."),
    "describe": ("describe", "describe", "Show the full definition of tools."),
    "call": ("call", "call", "Call a tool of a configured server."),
    "catalog": ("catalog", "catalog", "Import, export, compare and lint catalogues of tools."),
    "hints": ("hints", "hints", "See, write and switch off the hints that help to find tools."),
    "tokens": ("tokens", "tokens", "Count the tokens that tools cost in every request."),
    "evaluate": ("evaluate", "evaluate", "Measure how well toolscout finds the right tools."),
    "replay": ("replay", "replay", "Replay recorded queries and show what changed."),
    "learned": ("replay", "learned", "Show what searches have learned from calls, and forget it."),
    "init": ("init", "init", "Put the MCP servers of this machine behind toolscout."),
    "serve": ("serve", "serve", "Put one MCP server in front of all your others."),
    "servers": ("servers", "servers", "Manage the servers behind the gateway."),
    "approvals": (
        "approvals",
        "approvals",
        "See which definitions of servers have changed, and approve them.",
    ),
    "lock": (
        "approvals",
        "lock",
        "Write down which definitions your servers offer.",
    ),
    "status": ("status", "status", "Show the servers and figures of running gateways."),
    "stop": ("status", "stop", "Stop the gateway in the background."),
    "logs": ("status", "logs", "Print the log of the gateway in the background."),
    "policy": ("policy", "policy", "Show who may call what, and approve calls that wait."),
    "programs": (
        "approvals",
        "programs",
        "Save programs that models ran as tools, and approve them.",
    ),
    "hook": (
        "policy",
        "hook",
        "Apply Claude Code's permission rules to your tools.",
    ),
    "audit": ("audit", "audit", "Show who called what through your gateway."),
    "doctor": ("doctor", "doctor", "Check this machine for problems and suggest fixes."),
    "console": (
        "serve",
        "console",
        "Show the gateway in the background, or a catalogue, in a browser.",
    ),
    "completion": ("inputs", "completion", "Print the completion script of a shell."),
}
"""The module, function and one-line help of each command, in the order of the help.

The help is here so that `toolscout --help` and shell completion need not import every command.
"""


class Group(click.Group):
    """A group that suggests the nearest command for a misspelt one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named command, or fail with the nearest one that exists."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            known = self.list_commands(ctx)
            near = get_close_matches(args[0].lower(), known, n=1)
            remedy = f"Did you mean {near[0]!r}?" if near else f"Commands: {', '.join(known)}."
            ctx.fail(f"No such command {args[0]!r}. {remedy}")
        return super().resolve_command(ctx, args)


class ErrorGroup(Group):
    """A group that turns the errors of its commands into messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except UnknownServer as error:
            fail(str(error), ExitCode.NOT_FOUND)
        except (InvalidEncoder, UpstreamError) as error:
            fail(str(error), ExitCode.UPSTREAM)
        except ToolscoutError as error:
            fail(str(error), ExitCode.USAGE)
        except OSError as error:
            # The reader of a pipe went away, which is not an error: click ends quietly.
            if error.errno == errno.EPIPE or error.filename is None:
                raise
            problem = f"{error.filename}: {error.strerror}. Check the path and its permissions."
            fail(problem, ExitCode.USAGE)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


class Commands(ErrorGroup):
    """The group of all commands; imports one when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command by name, or return None."""
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        return getattr(import_module(f"{__name__}.{module}"), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them, and the group's own options."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name][2]) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)


def fail(message: str, code: ExitCode) -> NoReturn:
    """End the command with an error message and an exit code."""
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

    Exit codes: 1 a check failed, 2 wrong usage, 3 nothing found, 4 a server failed, 130
    interrupted.

    \b
    Example:
      toolscout try
      toolscout search "open a pull request" --explain
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    if ctx.invoked_subcommand is None:
        import_module(f"{__name__}.init").show_first_steps()
