"""What the replies to queries cost in tokens, each in a session of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import median

from toolscout.evaluate.datasets import Dataset
from toolscout.scout import Scout


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCosts:
    """The tokens of replies to single queries at the default limit."""

    queries: int
    median: float
    p95: int
    most: int
    budget: int
    over_budget: int


def sample_queries(datasets: Sequence[Dataset], wanted: int) -> list[str]:
    """Return queries, as many of each dataset as there are, always the same ones."""
    share = -(-wanted // len(datasets))
    texts = [[question.text for question in d.sample(share).queries] for d in datasets]
    return list(islice(chain.from_iterable(texts), wanted))


def measure_replies(
    scout: Scout, queries: Sequence[str], progress: Callable[[int], None]
) -> ReplyCosts | None:
    """Ask every query once; `progress` is called for each. Without queries there are no costs."""
    if not queries:
        return None
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
