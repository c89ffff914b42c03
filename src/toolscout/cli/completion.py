"""`toolscout completion`: shell completion, also of the names of tools and servers.

Names come from the tools that the configured servers offered last; nothing is started. If there
is an error, nothing is completed: a command line being typed is no place for a message.
"""

import click
from click.shell_completion import CompletionItem, get_completion_class

from toolscout.catalog import Catalog
from toolscout.cli import inputs, main

COMPLETED = 200


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
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
    assert kind is not None, "click knows all of these shells"
    click.echo(kind(main, {}, "toolscout", "_TOOLSCOUT_COMPLETE").source())


def complete_tools(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the known tools whose exposed name begins like this."""
    found = [tool for tool in _recall_catalog().tools if tool.name.startswith(incomplete)]
    return [CompletionItem(tool.name, help=tool.first_sentence[:60]) for tool in found[:COMPLETED]]


def complete_servers(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the configured servers whose name begins like this, or else files."""
    names = _recall_catalog().servers
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def _recall_catalog() -> Catalog:
    try:
        return inputs.recall_tools(inputs.read_servers(None))
    except Exception:  # a broken configuration must not print into a command line
        return Catalog()
