"""`toolscout tokens`: what a catalogue costs with toolscout and without.

Reads options, calls `toolscout.bench.costs`, prints a table or JSON.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli.catalogs import read_catalog, tools_option

if TYPE_CHECKING:
    from toolscout.bench.costs import Costs

SERVERS_SHOWN = 10


@click.command()
@tools_option
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def tokens(paths: tuple[Path, ...], as_json: bool) -> None:
    """Count what tools cost in every request, with toolscout and without.

    Counted as o200k_base; for models with another encoding the figures are estimates.

    \b
    Example:
      toolscout tokens
      toolscout tokens --tools tools.json --json
    """
    from toolscout.bench.costs import measure_costs
    from toolscout.scout import Scout

    costs = measure_costs(Scout(read_catalog(paths), encoder=None))
    if as_json:
        click.echo(json.dumps(costs.to_json(), ensure_ascii=False))
    else:
        click.echo("\n".join(_lines(costs)))


def _lines(costs: "Costs") -> list[str]:
    saved = 1 - costs.request / max(1, costs.definitions)
    rows = [
        (f"All {costs.tools:,} definitions of {costs.servers:,} servers", costs.definitions),
        ("With toolscout, in every request", costs.request),
        ("  the three meta-tools", max(costs.meta_tools.values())),
        ("  the listing of what exists", costs.listing),
        ("  pinned tools", costs.pinned),
    ]
    lines = _table(rows)
    lines += ["", f"Saved in every request: {saved:.1%} (estimated, {costs.encoding})."]
    lines += ["", "Definitions by server:"]
    servers = [(f"  {server or '(none)'}", n) for server, n in costs.by_server.items()]
    lines += _table(servers[:SERVERS_SHOWN])
    if len(servers) > SERVERS_SHOWN:
        lines.append(f"  and {len(servers) - SERVERS_SHOWN:,} more")
    return lines


def _table(rows: list[tuple[str, int]]) -> list[str]:
    width = max((len(label) for label, _ in rows), default=0)
    return [f"{label:<{width}}  {number:>12,}" for label, number in rows]
