"""`toolscout tokens`: what a catalogue costs with toolscout and without.

Reads options, calls `toolscout.evaluate.costs`, prints a table or JSON.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType

from toolscout.cli.inputs import catalog_option, choose_catalog, configured_option
from toolscout.cli.output import make_table, show, show_bar, style
from toolscout.evaluate.costs import Costs, measure_costs
from toolscout.schemas import Json
from toolscout.scout import Scout

SERVERS_SHOWN = 10
REQUESTS = 1_000
MILLION = 1_000_000


@click.command()
@catalog_option
@configured_option
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    metavar="DOLLARS",
    help="Also show the cost at this price per million input tokens.",
)
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=REQUESTS,
    show_default=True,
    metavar="N",
    help="Number of requests to show the cost of.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def tokens(
    paths: tuple[Path, ...],
    config_file: Path | None,
    price: float | None,
    requests: int,
    as_json: bool,
) -> None:
    """Count what tools cost in every request.

    Compares requests with toolscout and without.

    Tokens are counted as o200k_base; for models with another encoding they are estimates. Costs
    assume that nothing is cached.

    \b
    Example:
      toolscout tokens
      toolscout tokens --config toolscout.toml --price 2.50 --requests 10000
      toolscout tokens --catalog tools.json --json
    """
    catalog = choose_catalog(paths, config_file)
    with show_bar("Counting tokens", len(catalog)) as step:
        costs = measure_costs(Scout(catalog, encoder=None), progress=step)
    if as_json:
        figures = costs.to_json()
        if price is not None:
            figures["money"] = _compute_money(costs, price, requests)
        click.echo(json.dumps(figures, ensure_ascii=False))
    else:
        show(_render(costs, price, requests))


def _compute_money(costs: Costs, price: float, requests: int) -> Json:
    def compute_price(count: int) -> float:
        return round(count * requests * price / MILLION, 6)

    return {
        "input_per_million": price,
        "requests": requests,
        "definitions": compute_price(costs.definitions),
        "request": compute_price(costs.request),
        "saved": compute_price(costs.definitions - costs.request),
        "by_server": {server: compute_price(n) for server, n in costs.by_server.items()},
    }


def _render(costs: Costs, price: float | None, requests: int) -> Iterator[RenderableType]:
    def make_row(label: str, count: int, style: str = "") -> list[tuple[str, str]]:
        cells = [(label, style), (f"{count:,}", style)]
        if price is not None:
            cells.append((_format_dollars(count * requests * price / MILLION), style))
        return cells

    head = ("", "") if price is None else ("", "tokens", f"{requests:,} requests")
    saved = 1 - costs.request / max(1, costs.definitions)
    yield make_table(
        head,
        [
            make_row(
                f"All {costs.tools:,} definitions of {costs.servers:,} servers", costs.definitions
            ),
            make_row("With toolscout, in every request", costs.request, "bold green"),
            make_row("  the three meta-tools", max(costs.meta_tools.values())),
            make_row("  the listing of available tools", costs.listing),
            make_row("  pinned tools", costs.pinned),
        ],
        right=(1, 2),
    )
    yield ""
    yield style((f"Saved in every request: {saved:.1%} (estimated, {costs.encoding}).", "bold"))
    if price is not None:
        yield style((f"At ${price:g} per million input tokens, nothing cached.", "dim"))
    yield ""
    yield "Definitions by server:"
    servers = [make_row(f"  {name or '(none)'}", n) for name, n in costs.by_server.items()]
    yield make_table(head, servers[:SERVERS_SHOWN], right=(1, 2))
    if len(servers) > SERVERS_SHOWN:
        yield f"  and {len(servers) - SERVERS_SHOWN:,} more"


def _format_dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"
