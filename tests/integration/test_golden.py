"""Labelled questions to the demo catalogue: quality is printed, and must not fall unnoticed.

Run with `-s` to see the table. Floors stand about 0.04 below what was last measured.
"""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import pytest

from toolscout.demo import load_demo_catalog
from toolscout.schemas import Json
from toolscout.search.hits import Confidence, Result
from toolscout.search.index import Index

GOLDEN = Path(__file__).parent / "golden.jsonl"
DEPTH = 5
FLOORS = {
    "words": (0.96, 0.94),
    "keywords": (0.96, 0.91),
    "request": (0.78, 0.80),
    "paraphrase": (0.63, 0.47),
}
"""For each kind: of the share found in the first five, and of the mean reciprocal rank."""
HONEST_SHARE = 0.8
NONSENSE = ["qwxz vbnm plok", "zzzz", "xkcdq wvut", "blorf snarg quibbet"]

Answers = list[tuple[Result, frozenset[str]]]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(load_demo_catalog())


@pytest.fixture(scope="module")
def answers(index: Index) -> dict[str, Answers]:
    """Every golden question with its result and the names that it wants, by kind."""
    found: dict[str, Answers] = {}
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        row: Json = json.loads(line)
        result = index.search(row["query"])
        found.setdefault(row["kind"], []).append((result, frozenset(row["relevant"])))
    return found


def hit_share(result: Result, wanted: frozenset[str]) -> float:
    return float(any(hit.tool.name in wanted for hit in result[:DEPTH]))


def recall(result: Result, wanted: frozenset[str]) -> float:
    return len({hit.tool.name for hit in result[:DEPTH]} & wanted) / len(wanted)


def reciprocal_rank(result: Result, wanted: frozenset[str]) -> float:
    ranks = [rank for rank, hit in enumerate(result, start=1) if hit.tool.name in wanted]
    return 1 / ranks[0] if ranks else 0.0


def measured(kind: str, listed: Answers) -> tuple[float, float]:
    """Return how much is found in the first five, and the mean reciprocal rank."""
    found: Callable[[Result, frozenset[str]], float] = recall if kind == "request" else hit_share
    return mean(found(*one) for one in listed), mean(reciprocal_rank(*one) for one in listed)


def test_quality_is_printed_for_every_kind(answers: dict[str, Answers]):
    print(f"\n{'kind':<12}{'queries':>8}{'found@5':>9}{'mrr':>7}")  # noqa: T201 - what it is for
    for kind, listed in sorted(answers.items()):
        found, rank = measured(kind, listed)
        print(f"{kind:<12}{len(listed):>8}{found:>9.3f}{rank:>7.3f}")  # noqa: T201 - likewise

    assert answers.keys() == {*FLOORS, "foreign"}


@pytest.mark.requirement("R29")
@pytest.mark.parametrize("kind", FLOORS)
def test_quality_has_not_fallen(answers: dict[str, Answers], kind: str):
    """R29"""
    found, rank = measured(kind, answers[kind])

    assert found >= FLOORS[kind][0]
    assert rank >= FLOORS[kind][1]


@pytest.mark.requirement("R31")
def test_strong_first_hits_are_mostly_right(answers: dict[str, Answers]):
    """R31"""
    strong = [
        result[0].tool.name in wanted
        for listed in answers.values()
        for result, wanted in listed
        if result and result[0].confidence is Confidence.STRONG
    ]

    assert len(strong) >= 20
    assert mean(strong) >= HONEST_SHARE


@pytest.mark.requirement("R31")
@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_gives_weak_hits_at_most(index: Index, text: str):
    """R31"""
    assert {hit.confidence for hit in index.search(text)} <= {Confidence.WEAK}


@pytest.mark.requirement("R31")
def test_better_labels_are_right_more_often(answers: dict[str, Answers]):
    """R31"""
    right: dict[Confidence, list[bool]] = {}
    for listed in answers.values():
        for result, wanted in listed:
            if result:
                first = result[0]
                right.setdefault(first.confidence, []).append(first.tool.name in wanted)

    shares = [
        mean(right[label]) for label in (Confidence.STRONG, Confidence.LIKELY, Confidence.WEAK)
    ]

    assert shares == sorted(shares, reverse=True)
