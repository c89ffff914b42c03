"""`toolscout tokens`: what a catalogue costs with toolscout and without.

Reads options, calls `toolscout.evaluate.costs` and `toolscout.prices`, prints a table or JSON.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli.inputs import catalog_option, chosen_catalog, configured_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from toolscout.catalog import Catalog
    from toolscout.evaluate.costs import Costs
    from toolscout.prices import Price
    from toolscout.schemas import Json

SERVERS_SHOWN = 10
REQUESTS = 1_000


@click.command()
@catalog_option
@configured_option
@click.option("--model", metavar="NAME", help="Tell also what it costs at this model's list price.")
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    metavar="DOLLARS",
    help="Tell also what it costs at this price for a million input tokens.",
)
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=REQUESTS,
    show_default=True,
    metavar="N",
    help="For how many requests to tell the cost.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def tokens(
    paths: tuple[Path, ...],
    config_file: Path | None,
    model: str | None,
    price: float | None,
    requests: int,
    as_json: bool,
) -> None:
    """Count what tools cost in every request, with toolscout and without.

    Counted as o200k_base; for models with another encoding the figures are estimates. Prices are
    list prices for input, without discounts for cached prompts.

    \b
    Example:
      toolscout tokens
      toolscout tokens --config toolscout.toml --model claude-sonnet-5-5 --requests 10000
      toolscout tokens --catalog tools.json --price 2.50 --json
    """
    paid = _price(model, price)
    costs = _measured(chosen_catalog(paths, config_file))
    if as_json:
        click.echo(json.dumps(costs.to_json() | _money(costs, paid, requests), ensure_ascii=False))
        return
    from toolscout.cli.output import show

    show(_lines(costs, paid, requests))


def _price(model: str | None, dollars: float | None) -> "Price | None":
    from toolscout.prices import Price, price_of

    if dollars is not None:
        return Price(model=model or "", per_million=dollars)
    return price_of(model) if model else None


def _measured(catalog: "Catalog") -> "Costs":
    from toolscout.cli.output import bars
    from toolscout.evaluate.costs import measure_costs
    from toolscout.scout import Scout

    done, total = 0, len(catalog)
    with bars() as progress:

        def count(more: int) -> None:
            nonlocal done
            done += more
            progress("Counting tokens", done, total)

        return measure_costs(Scout(catalog, encoder=None), progress=count)


def _money(costs: "Costs", price: "Price | None", requests: int) -> "Json":
    if price is None:
        return {}
    from toolscout.prices import AS_OF

    def dollars(tokens: int) -> float:
        return round(price.of(tokens * requests), 6)

    return {
        "money": {
            "model": price.model,
            "input_per_million": price.per_million,
            "as_of": AS_OF,
            "requests": requests,
            "definitions": dollars(costs.definitions),
            "request": dollars(costs.request),
            "saved": dollars(costs.definitions - costs.request),
            "by_server": {server: dollars(n) for server, n in costs.by_server.items()},
        }
    }


def _lines(costs: "Costs", price: "Price | None", requests: int) -> "Iterator[RenderableType]":
    from toolscout.cli.output import styled, table

    def priced(label: str, count: int, style: str = "") -> list[tuple[str, str]]:
        cells = [(label, style), (f"{count:,}", style)]
        return [*cells, (_dollars(price.of(count * requests)), style)] if price else cells

    head = ("", "tokens", f"{requests:,} requests") if price else ("", "")
    saved = 1 - costs.request / max(1, costs.definitions)
    rows = [
        priced(f"All {costs.tools:,} definitions of {costs.servers:,} servers", costs.definitions),
        priced("With toolscout, in every request", costs.request, "bold green"),
        priced("  the three meta-tools", max(costs.meta_tools.values())),
        priced("  the listing of what exists", costs.listing),
        priced("  pinned tools", costs.pinned),
    ]
    yield table(head, rows, right=(1, 2))
    yield ""
    yield styled((f"Saved in every request: {saved:.1%} (estimated, {costs.encoding}).", "bold"))
    if price:
        yield styled((_basis(price), "dim"))
    yield ""
    yield "Definitions by server:"
    servers = [priced(f"  {name or '(none)'}", n) for name, n in costs.by_server.items()]
    yield table(("", *head[1:]), servers[:SERVERS_SHOWN], right=(1, 2))
    if len(servers) > SERVERS_SHOWN:
        yield f"  and {len(servers) - SERVERS_SHOWN:,} more"


def _basis(price: "Price") -> str:
    from toolscout.prices import AS_OF, PRICES

    known = PRICES.get(price.model) == price.per_million
    source = f"list price of {AS_OF}" if known else "as given"
    name = f"{price.model}: " if price.model else ""
    return f"{name}${price.per_million:g} for a million input tokens ({source}), nothing cached."


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"
