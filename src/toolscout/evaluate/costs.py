"""What a catalogue costs in tokens, with toolscout and without.

Takes a scout and queries; gives the tokens of all definitions, of what every request carries
instead, and of the replies to the queries, each asked in a session of its own.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from statistics import median

from toolscout.dialects import Dialect, to_definition
from toolscout.evaluate.datasets import Dataset
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.sessions.metatools import build_meta_tools
from toolscout.tokens import ENCODING, count_definition_tokens, count_tokens

Report = Callable[[int], None]
"""Told how many steps are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCosts:
    """The tokens of replies to single queries at the default limit."""

    queries: int
    median: float
    p95: int
    most: int
    budget: int
    over_budget: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a catalogue costs, in tokens."""

    tools: int
    servers: int
    """Those that have tools."""
    definitions: int
    """All definitions: what every request carries without toolscout."""
    by_server: dict[str, int]
    meta_tools: dict[str, int]
    """The three meta-tools without a listing, by dialect."""
    instructions: int
    listing: int
    pinned: int
    """Definitions that are always shown."""
    encoding: str = ENCODING
    replies: ReplyCosts | None = field(default=None)

    @property
    def request(self) -> int:
        """What every request carries with toolscout, in the dearest dialect."""
        return max(self.meta_tools.values()) + self.listing + self.pinned

    def to_json(self) -> Json:
        """Return the figures as plain JSON."""
        return asdict(self) | {"request": self.request, "estimated": True}


def measure_costs(
    scout: Scout, queries: Sequence[str] = (), progress: Report = lambda done: None
) -> Costs:
    """Count everything; `progress` hears of each tool and each query."""
    session = scout.session("costs")
    by_server: Counter[str] = Counter()
    for tool in scout.catalog.tools:
        by_server[tool.server] += count_definition_tokens(tool)
        progress(1)
    prompt = session.system_prompt()
    instructions = session.system_prompt(listing=False)
    pinned = map(scout.catalog.get, session.pinned)
    return Costs(
        tools=len(scout.catalog),
        servers=len(by_server),
        definitions=by_server.total(),
        by_server=dict(by_server.most_common()),
        meta_tools={dialect.value: _count_meta_tokens(dialect) for dialect in Dialect},
        instructions=count_tokens(instructions),
        listing=count_tokens(prompt.removeprefix(instructions).strip()),
        pinned=sum(count_definition_tokens(tool) for tool in pinned if tool is not None),
        replies=_reply_costs(scout, queries, progress) if queries else None,
    )


def sample_queries(datasets: Sequence[Dataset], wanted: int) -> list[str]:
    """Return queries, as many of each dataset as there are, always the same ones."""
    share = -(-wanted // len(datasets))
    texts = [[question.text for question in d.sample(share).queries] for d in datasets]
    return list(islice(chain.from_iterable(texts), wanted))


def _count_meta_tokens(dialect: Dialect) -> int:
    definitions = [to_definition(tool, dialect) for tool in build_meta_tools()]
    return count_tokens(json.dumps(definitions, ensure_ascii=False))


def _reply_costs(scout: Scout, queries: Iterable[str], progress: Report) -> ReplyCosts:
    costs: list[int] = []
    over = 0
    for number, query in enumerate(queries):
        reply = scout.session(f"costs-{number}").search([query])
        costs.append(reply.tokens)
        over += reply.tokens > scout.settings.reply_tokens
        progress(1)
    costs.sort()
    return ReplyCosts(
        queries=len(costs),
        median=median(costs),
        p95=costs[min(len(costs) - 1, int(0.95 * len(costs)))],
        most=costs[-1],
        budget=scout.settings.reply_tokens,
        over_budget=over,
    )
