"""`toolscout describe`: all there is to know of a tool before it is called."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli.completion import complete_tools
from toolscout.cli.inputs import (
    catalog_option,
    chosen_catalog,
    configured_option,
    unknown_tool,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from toolscout.schemas import Json, Parameter
    from toolscout.tools import Tool

ENUM_SHOWN = 8
EFFECT_STYLES = {"read": "green", "write": "yellow", "destructive": "bold red", "unknown": "dim"}


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_tools)
@catalog_option
@configured_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each tool.")
def describe(
    names: tuple[str, ...], paths: tuple[Path, ...], config_file: Path | None, as_json: bool
) -> None:
    """Show the whole definition of tools: what they do, take, change and cost.

    A name may be short ('create_issue'); all tools that it may mean are shown.

    \b
    Example:
      toolscout describe github__create_issue
      toolscout describe create_issue send_message --catalog tools.json --json
    """
    catalog = chosen_catalog(paths, config_file)
    found: dict[str, Tool] = {}
    for name in names:
        matched = catalog.resolve(name) or unknown_tool(catalog, name)
        found.update((tool.name, tool) for tool in matched)
    if as_json:
        for tool in found.values():
            click.echo(json.dumps(_row(tool), ensure_ascii=False))
        return
    from toolscout.cli.output import show

    show(_pages(list(found.values())))


def _row(tool: "Tool") -> "Json":
    from toolscout.files import json_from_tool
    from toolscout.tokens import count_definition_tokens

    told = {"effect": tool.effect.value} | json_from_tool(tool)
    return (
        {"exposed_name": tool.name}
        | told
        | {
            "signature": tool.render_signature(),
            "tokens": count_definition_tokens(tool),
        }
    )


def _pages(tools: "list[Tool]") -> "Iterator[RenderableType]":
    for place, tool in enumerate(tools):
        if place:
            yield ""
        yield from _page(tool)


def _page(tool: "Tool") -> "Iterator[RenderableType]":
    from toolscout.cli.output import styled
    from toolscout.names import clean_text, to_one_line
    from toolscout.tokens import count_definition_tokens

    effect = tool.effect.value
    facts = f"{count_definition_tokens(tool):,} tokens (estimated)"
    yield styled((tool.name, "bold cyan"), (f"  {to_one_line(tool.title, 80)}", ""))
    yield styled(
        (f"{tool.kind} of {to_one_line(tool.server, 60) or 'no server'}, effect: ", "dim"),
        (effect, EFFECT_STYLES[effect]),
        (f", {facts}", "dim"),
    )
    yield ""
    description = clean_text(tool.description, len(tool.description)).strip()
    yield styled((description or "(no description)", ""))
    yield from _parameters(tool)


def _parameters(tool: "Tool") -> "Iterator[RenderableType]":
    from toolscout.cli.output import table
    from toolscout.names import to_one_line
    from toolscout.schemas import list_parameters

    def row(parameter: "Parameter") -> "list[str | tuple[str, str]]":
        text = to_one_line(parameter.description, 400)
        if parameter.enum:
            more = " …" if len(parameter.enum) > ENUM_SHOWN else ""
            values = to_one_line(" | ".join(parameter.enum[:ENUM_SHOWN]), 300)
            text = f"{text} One of: {values}{more}".strip()
        name = "  " * parameter.depth + to_one_line(parameter.name, 60)
        need = ("required", "bold") if parameter.required else ("optional", "dim")
        return [(name, "cyan"), (to_one_line(parameter.type, 40), "dim"), need, text]

    listed = list(_nested(list_parameters(tool.input_schema)))
    if listed:
        yield ""
        yield table(("parameter", "type", "", "meaning"), map(row, listed))


def _nested(listed: "list[Parameter]") -> "Iterator[Parameter]":
    """Yield required parameters first, and members right behind what they are part of."""
    inside: dict[str, list[Parameter]] = {}
    for parameter in sorted(listed, key=lambda p: not p.required):
        above = parameter.path[: -len(parameter.name)].rstrip(".").replace("[]", "")
        inside.setdefault(above, []).append(parameter)
    waiting = inside.get("", [])[::-1]
    while waiting:
        parameter = waiting.pop()
        yield parameter
        # Taken out, so that odd names cannot lead round in a circle.
        waiting += inside.pop(parameter.path.replace("[]", ""), [])[::-1]
