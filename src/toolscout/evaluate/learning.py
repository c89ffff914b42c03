"""What learning from past calls gives: a log of calls, replayed in time order.

Each successful call is first searched for, alone and with what the calls before it taught, and then
learned. Tools with and without history at that time are counted apart, because learning must not
cost a tool its place only because nobody has called it yet.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolscout.errors import InvalidFile, ModelError
from toolscout.evaluate.quality import Table, compute_hit, compute_ndcg
from toolscout.schemas import Json
from toolscout.search.feedback import OK, Feedback, Usage, is_hashed, usage_from_bytes
from toolscout.search.hits import Result
from toolscout.search.index import SearchIndex
from toolscout.settings import Learning

DEPTH = 10
SEARCHED = 20
"""Hits of a search, as many as a session asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How well some requests found their tool, without and with learning."""

    requests: int
    first: float
    """The share whose first hit is the tool."""
    first_learned: float
    ndcg: float
    """nDCG@10."""
    ndcg_learned: float

    def to_json(self) -> Json:
        """Return the figures, rounded to four decimals."""
        return {
            "requests": self.requests,
            "first": round(self.first, 4),
            "first_learned": round(self.first_learned, 4),
            "ndcg@10": round(self.ndcg, 4),
            "ndcg@10_learned": round(self.ndcg_learned, 4),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningReplay:
    """What learning would have given on a log."""

    with_history: Gain
    without_history: Gain
    hashed: int
    """Calls whose query is stored as a hash, which cannot be searched for."""
    gone: int
    """Calls of tools that do not exist now."""

    def to_json(self) -> Json:
        """Return the replay as plain JSON."""
        return {
            "with_history": self.with_history.to_json(),
            "without_history": self.without_history.to_json(),
            "hashed": self.hashed,
            "gone": self.gone,
        }


def replay_usages(
    usages: Iterable[Usage],
    index: SearchIndex,
    *,
    names: Callable[[str], bool],
    learning: Learning = Learning.OWN,
    progress: Callable[[int], None] = lambda done: None,
) -> LearningReplay:
    """Return what learning would have given on calls; `names` tells whether a tool exists."""
    now = 0.0
    feedback = Feedback(encode=index.encode_questions, learning=learning, clock=lambda: now)
    scores: dict[bool, list[tuple[float, float, float, float]]] = {True: [], False: []}
    called: set[tuple[str, str]] = set()
    hashed = 0
    gone = 0
    for usage in sorted(usages, key=lambda usage: usage.at):
        now = usage.at
        progress(1)
        if not usage.query:
            continue
        if is_hashed(usage.query):
            hashed += 1
            continue
        if not names(usage.tool):
            gone += 1
            continue
        owner = usage.principal if learning is Learning.OWN else ""
        chance = usage.chance
        if usage.succeeded:
            try:
                alone = index.search(usage.query, SEARCHED)
                raised = feedback.search(index, usage.query, SEARCHED, principal=usage.principal)
            except ModelError:
                continue
            found = (*_score(alone, usage.tool), *_score(raised, usage.tool))
            scores[(owner, usage.tool) in called].append(found)
            called.add((owner, usage.tool))
            chance = find_chance(alone, usage.tool)
        feedback.learn(
            usage.query,
            usage.tool,
            succeeded=usage.succeeded,
            principal=usage.principal,
            chance=chance,
            at=usage.at,
        )
    return LearningReplay(
        with_history=_compute_gain(scores[True]),
        without_history=_compute_gain(scores[False]),
        hashed=hashed,
        gone=gone,
    )


def read_usages(path: Path) -> list[Usage]:
    """Return the calls in a file of JSON lines, in order; raises `InvalidFile`.

    A line without a code is a call that succeeded, and one without a time comes after the line
    before it.
    """
    remedy = 'Write {"query": "…", "tool": "name"} on a line.'
    usages: list[Usage] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(str(path), f"cannot be read ({error})", remedy=remedy) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        at = usages[-1].at if usages else 0.0
        missing: Json = {"session": "", "code": OK, "at": at}
        try:
            row = json.loads(line)
            usage = usage_from_bytes(json.dumps(missing | row).encode())
        except (ValueError, TypeError, RecursionError):
            usage = None
        if usage is None:
            raise InvalidFile(str(path), "is no call", line=number, remedy=remedy)
        usages.append(usage)
    return usages


def find_chance(result: Result, tool: str) -> float:
    """Return the score of a tool in a result, 0 if it is not there."""
    return next((hit.score for hit in result if hit.tool.name == tool), 0.0)


def tabulate_learning(replay: LearningReplay) -> Table:
    """Return the figures as text."""
    rows = (
        ("tools called before", replay.with_history),
        ("tools never called before", replay.without_history),
    )
    return Table(
        title="What learning from these calls would have given",
        head=("", "requests", "first hit", "with learning", "nDCG@10", "with learning"),
        rows=tuple(
            (
                label,
                f"{gain.requests:,}",
                f"{gain.first:.3f}",
                f"{gain.first_learned:.3f}",
                f"{gain.ndcg:.3f}",
                f"{gain.ndcg_learned:.3f}",
            )
            for label, gain in rows
        ),
    )


def _score(result: Result, tool: str) -> tuple[float, float]:
    ranking = [0 if hit.tool.name == tool else place for place, hit in enumerate(result, 1)]
    wanted = frozenset((0,))
    return compute_hit(ranking, wanted, 1), compute_ndcg(ranking, wanted, DEPTH)


def _compute_gain(rows: Sequence[tuple[float, float, float, float]]) -> Gain:
    count = max(len(rows), 1)
    first, ndcg, first_learned, ndcg_learned = (
        sum(row[column] for row in rows) / count for column in range(4)
    )
    return Gain(
        requests=len(rows),
        first=first,
        first_learned=first_learned,
        ndcg=ndcg,
        ndcg_learned=ndcg_learned,
    )
