"""`toolscout describe`: everything there is to know about a tool before calling it."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType

from toolscout.cli import inputs
from toolscout.cli.output import Cell, echo_json, make_table, show, style
from toolscout.files import json_from_tool
from toolscout.names import clean_text, to_one_line
from toolscout.schemas import Json, Parameter, list_parameters
from toolscout.tokens import count_definition_tokens
from toolscout.tools import Tool

ENUM_SHOWN = 8
EFFECT_STYLES = {"read": "green", "write": "yellow", "destructive": "bold red", "unknown": "dim"}


@click.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME…", shell_complete=inputs.complete_tools
)
@inputs.catalog_option
@inputs.configured_option
@inputs.flag_option("--json", "as_json", help="Print one JSON object per tool.")
def describe(
    names: tuple[str, ...], paths: tuple[Path, ...], config_file: Path | None, as_json: bool
) -> None:
    """Show the full definition of tools.

    Shows what they do, take, change and cost. A name may be short ('create_issue'); every tool
    that it could mean is shown.

    \b
    Example:
      toolscout describe github__create_issue
      toolscout describe create_issue send_message --catalog tools.json --json
    """
    catalog = inputs.choose_catalog(paths, config_file).catalog
    found: dict[str, Tool] = {}
    for name in names:
        matched = catalog.resolve(name) or inputs.fail_unknown_tool(catalog, name)
        found.update((tool.name, tool) for tool in matched)
    if as_json:
        for tool in found.values():
            row: Json = {"exposed_name": tool.name, "effect": tool.effect.value}
            row |= json_from_tool(tool)
            row["signature"] = tool.render_signature()
            row["tokens"] = count_definition_tokens(tool)
            echo_json(row)
    else:
        parts = [part for tool in found.values() for part in ("", *_render_tool(tool))]
        show(parts[1:])


def _render_tool(tool: Tool) -> Iterator[RenderableType]:
    effect = tool.effect.value
    claimed = f" (its server says {tool.claimed_effect})" if tool.claimed_effect else ""
    yield style((tool.name, "bold cyan"), (f"  {to_one_line(tool.title, 80)}", ""))
    yield style(
        (f"{tool.kind} of {to_one_line(tool.server, 60) or 'no server'}, effect: ", "dim"),
        (effect, EFFECT_STYLES[effect]),
        (f"{claimed}, {count_definition_tokens(tool):,} tokens (estimated)", "dim"),
    )
    yield ""
    description = clean_text(tool.description, len(tool.description)).strip()
    yield style((description or "(no description)", ""))
    rows: list[list[Cell | str]] = []
    for parameter in _order_parameters(list_parameters(tool.input_schema)):
        text = to_one_line(parameter.description, 400)
        if parameter.enum:
            more = " …" if len(parameter.enum) > ENUM_SHOWN else ""
            values = to_one_line(" | ".join(parameter.enum[:ENUM_SHOWN]), 300)
            text = f"{text} One of: {values}{more}".strip()
        name = "  " * parameter.depth + to_one_line(parameter.name, 60)
        need = ("required", "bold") if parameter.required else ("optional", "dim")
        rows.append([(name, "cyan"), (to_one_line(parameter.type, 40), "dim"), need, text])
    if rows:
        yield ""
        yield make_table(("parameter", "type", "", "meaning"), rows)


def _order_parameters(listed: list[Parameter]) -> list[Parameter]:
    """Return required parameters first, and members right after the parameter they belong to."""
    inside: dict[str, list[Parameter]] = {}
    for parameter in sorted(listed, key=lambda p: not p.required):
        above = parameter.path[: -len(parameter.name)].rstrip(".").replace("[]", "")
        inside.setdefault(above, []).append(parameter)
    ordered: list[Parameter] = []
    waiting = inside.get("", [])[::-1]
    while waiting:
        parameter = waiting.pop()
        ordered.append(parameter)
        # Removed once visited, so that odd names cannot cause an endless loop.
        waiting += inside.pop(parameter.path.replace("[]", ""), [])[::-1]
    return ordered
