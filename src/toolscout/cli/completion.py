"""`toolscout completion`: shell completion, also of the names of tools and servers.

Names come from the tools that the configured servers offered last; nothing is started. On any
error nothing is completed, because a command line being typed is no place for a message.
"""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

from toolscout.catalog import Catalog
from toolscout.cli import main
from toolscout.cli.inputs import open_known_store, read_servers

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "toolscout"
VARIABLE = "_TOOLSCOUT_COMPLETE"
COMPLETED = 200
HELP_CHARS = 60


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, and the names of tools and servers.

    \b
    Example:
      toolscout completion bash >> ~/.bashrc
      toolscout completion zsh >> ~/.zshrc
      toolscout completion fish > ~/.config/fish/completions/toolscout.fish
    """

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of SHELLS"
    click.echo(kind(main, {}, PROGRAM, VARIABLE).source())


def complete_tools(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the known tools whose exposed name begins like this."""
    catalog = _recall_catalog()
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
    catalog = _recall_catalog()
    names: Iterable[str] = catalog.servers if catalog is not None else ()
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def _recall_catalog() -> Catalog | None:
    try:
        from toolscout.servers.listings import recall_catalog

        config = read_servers(None)
        with open_known_store(config) as store:
            return recall_catalog(config, store)
    except Exception:  # a broken configuration must not print into a command line
        return None
