"""`toolscout completion`: shell completion, also of the names of tools and servers.

Names come from what the servers of the configuration offered last; nothing is started. Whatever
goes wrong, nothing is completed: a shell is no place for an error.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from toolscout.catalog import Catalog

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "toolscout"
VARIABLE = "_TOOLSCOUT_COMPLETE"
COMPLETED = 200
HELP_CHARS = 60


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete commands, options, tools and servers.

    \b
    Example:
      toolscout completion bash >> ~/.bashrc
      toolscout completion zsh >> ~/.zshrc
      toolscout completion fish > ~/.config/fish/completions/toolscout.fish
    """
    from toolscout.cli import main

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of SHELLS"
    click.echo(kind(main, {}, PROGRAM, VARIABLE).source())


def complete_tools(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the known tools whose exposed name begins like this."""
    catalog = _known()
    tools = catalog.tools if catalog is not None else ()
    found = [tool for tool in tools if tool.name.startswith(incomplete)]
    return [
        CompletionItem(tool.name, help=tool.first_sentence[:HELP_CHARS])
        for tool in found[:COMPLETED]
    ]


def complete_servers(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the configured servers whose name begins like this, and files."""
    catalog = _known()
    names: Iterable[str] = catalog.servers if catalog is not None else ()
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def _known() -> "Catalog | None":
    from toolscout.cli.inputs import known_store, read_servers

    try:
        from toolscout.servers.listings import recall_catalog

        config = read_servers(None)
        with known_store(config) as store:
            return recall_catalog(config, store)
    except Exception:  # an edge: a broken configuration must not print into a command line
        return None
