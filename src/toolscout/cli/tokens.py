"""`toolscout tokens`: what a catalogue costs with toolscout and without."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
from rich.console import RenderableType

from toolscout.cli import inputs
from toolscout.cli.output import (
    Cell,
    Step,
    echo_json,
    format_count,
    make_table,
    show,
    show_bar,
    style,
)
from toolscout.dialects import Dialect, to_definition
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.sessions.metatools import build_meta_tools
from toolscout.settings import Hiding, Mode
from toolscout.skills.skill import SKILL
from toolscout.tokens import ENCODING, count_definition_tokens, count_skill_tokens, count_tokens

SERVERS_SHOWN = 10
META_TOOLS = 3
MILLION = 1_000_000
GATEWAY = "gateway"
"""The way in through MCP; the others are the dialects of the library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a catalogue costs, in tokens."""

    tools: int
    servers: int
    """Those that have tools."""
    definitions: int
    """All definitions: what every request carries without toolscout."""
    by_server: dict[str, int]
    requests: dict[str, int]
    """What every request carries with toolscout, by the way in: the gateway's list of tools and
    its instructions, or what `Session.tools` and `Session.system_prompt` return, by dialect."""
    meta_tools: dict[str, int]
    """The part of the three meta-tools without the listing, by dialect."""
    instructions: int
    """The part of the system prompt."""
    listing: int
    """The part of the listing, which is in the description of `tool_search`, in the gateway."""
    pinned: int
    """The part of definitions that are always shown, in the gateway."""
    skills: int = 0
    """How many skills there are."""
    announced: int = 0
    """Names and descriptions of all skills: what every prompt of a client has that reads them
    itself."""
    encoding: str = ENCODING

    @property
    def total(self) -> int:
        """What every request carries without toolscout."""
        return self.definitions + self.announced

    @property
    def request(self) -> int:
        """What every request carries with toolscout, by the dearest way in."""
        return max(self.requests.values())

    def to_json(self) -> Json:
        """Return the figures as plain JSON."""
        return asdict(self) | {"total": self.total, "request": self.request, "estimated": True}


@click.command()
@inputs.catalog_option
@inputs.configured_option
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    metavar="DOLLARS",
    help="Also show the cost at this price per million input tokens.",
)
@inputs.number_option("--requests", default=1_000, help="Number of requests to show the cost of.")
@inputs.flag_option("--json", "as_json", help="Print the figures as JSON.")
def tokens(
    paths: tuple[Path, ...],
    config_file: Path | None,
    price: float | None,
    requests: int,
    as_json: bool,
) -> None:
    """Count the tokens that tools cost in every request.

    Compares requests with toolscout and without. For skills, it counts the names and descriptions,
    which a client that reads skills itself puts into every prompt.

    Tokens are counted as o200k_base; for models with another encoding they are estimates. Costs
    assume that nothing is cached.

    \b
    Example:
      toolscout tokens
      toolscout tokens --config toolscout.toml --price 2.50 --requests 10000
      toolscout tokens --catalog tools.json --json
    """
    chosen = inputs.choose_catalog(paths, config_file)
    # As in the gateway, which always hides tools, and calls them by `tool_call`.
    settings = replace(chosen.settings, mode=Mode.BRIDGE, hiding=Hiding.ON)
    with show_bar("Counting tokens", len(chosen.catalog)) as step:
        costs = measure_costs(Scout(chosen.catalog, settings=settings, encoder=None), step)
    if as_json:
        figures = costs.to_json()
        if price is not None:

            def compute_price(count: int) -> float:
                return round(count * requests * price / MILLION, 6)

            figures["money"] = {
                "input_per_million": price,
                "requests": requests,
                "definitions": compute_price(costs.definitions),
                "request": compute_price(costs.request),
                "skills": compute_price(costs.announced),
                "saved": compute_price(costs.total - costs.request),
                "by_server": {server: compute_price(n) for server, n in costs.by_server.items()},
            }
        echo_json(figures)
    else:
        show(_render(costs, price, requests))


def measure_costs(scout: Scout, progress: Step) -> Costs:
    """Count everything; `progress` is called for each tool."""
    session = scout.session("costs")
    by_server: Counter[str] = Counter()
    tools = inputs.list_callable(scout.catalog)
    for tool in tools:
        by_server[tool.server] += count_definition_tokens(tool)
        progress(1)
    skills = [tool for tool in scout.catalog.tools if tool.kind == SKILL]
    instructions = count_tokens(session.system_prompt())
    requests = {way.value: instructions + _count_sent(session.tools(way)) for way in Dialect}
    bare = {way.value: session.tools(way, listing=False) for way in Dialect}
    meta_tools = {way: _count_sent(tools[:META_TOOLS]) for way, tools in bare.items()}
    unlisted = _count_sent(bare[Dialect.MCP])
    listed = session.tools(Dialect.MCP)
    # The gateway lists the tools of a session, and sends the same instructions once.
    listed[META_TOOLS - 1] = to_definition(build_meta_tools(runs_calls=True)[-1], Dialect.MCP)
    return Costs(
        tools=len(tools),
        servers=len(by_server),
        definitions=by_server.total(),
        by_server=dict(by_server.most_common()),
        requests={GATEWAY: instructions + _count_sent(listed), **requests},
        meta_tools=meta_tools,
        instructions=instructions,
        listing=requests[Dialect.MCP] - instructions - unlisted,
        pinned=unlisted - meta_tools[Dialect.MCP],
        skills=len(skills),
        announced=count_skill_tokens(skills),
    )


def _count_sent(definitions: list[Json]) -> int:
    """Count the definitions of a request as they are sent."""
    return count_tokens(json.dumps(definitions, ensure_ascii=False))


def render_totals(
    costs: Costs, price: float | None = None, requests: int = 1
) -> Iterator[RenderableType]:
    """Yield what every request carries with toolscout and without, and the difference."""
    request = costs.requests[GATEWAY]
    has_skills = bool(costs.skills)
    meta_tools = request - costs.listing - costs.instructions - costs.pinned
    definitions = format_count(costs.tools, "definition")
    rows = [
        (f"All {definitions} of {format_count(costs.servers, 'server')}", costs.definitions, ""),
        *(
            [(f"Names and descriptions of skills: {costs.skills:,}", costs.announced, "")]
            * has_skills
        ),
        ("With toolscout, in every request", request, "bold green"),
        ("  the three meta-tools", meta_tools, ""),
        ("  the listing of servers and tools", costs.listing, ""),
        ("  instructions", costs.instructions, ""),
        ("  pinned tools", costs.pinned, ""),
    ]
    yield _make_count_table(rows, price, requests)
    yield ""
    saved = 1 - costs.request / max(1, costs.total)
    text = f"Saved in every request: {saved:.1%} (estimated, {costs.encoding})."
    if saved < 0:
        added = costs.request - costs.total
        text = f"With so few tools, toolscout adds {added:,} tokens to every request (estimated)."
    yield style((text, "bold"))


def _make_count_table(
    counts: Iterable[tuple[str, int, str]], price: float | None, requests: int
) -> RenderableType:
    """Return a table of labels, counts and, if there is a price, costs, each with its style."""
    head = ("", "") if price is None else ("", "tokens", f"{requests:,} requests")
    rows: list[list[Cell]] = []
    for label, count, look in counts:
        rows.append([(label, look), (f"{count:,}", look)])
        if price is not None:
            amount = count * requests * price / MILLION
            rows[-1].append((f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}", look))
    return make_table(head, rows, right=(1, 2))


def _render(costs: Costs, price: float | None, requests: int) -> Iterator[RenderableType]:
    yield from render_totals(costs, price, requests)
    if price is not None:
        yield style((f"At ${price:g} per million input tokens, with nothing cached.", "dim"))
    yield ""
    yield "Definitions by server:"
    counts = [(f"  {name or '(none)'}", count, "") for name, count in costs.by_server.items()]
    yield _make_count_table(counts[:SERVERS_SHOWN], price, requests)
    if len(counts) > SERVERS_SHOWN:
        yield f"  and {len(counts) - SERVERS_SHOWN:,} more"
