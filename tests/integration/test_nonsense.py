"""Letters without meaning end as "nothing matches"; requests in unusual words do not."""

import json
import random
from pathlib import Path

import pytest

from benchmarks.nonsense import KINDS, make_nonsense
from toolscout import Catalog, Index, Scout, Tool
from toolscout.demo import load_demo_catalog

TRANSLATED = Path(__file__).parent / "translated.jsonl"
GOLDEN = Path(__file__).parent / "golden.jsonl"
QUERIES = 200
SHARE = 0.95


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(load_demo_catalog())


@pytest.fixture(scope="module")
def large() -> Index:
    """Return an index of 2,952 tools: the demo catalogue twelve times, in other words."""
    catalog = Catalog()
    for number in range(12):
        for tool in load_demo_catalog():
            words = tool.description.split()
            random.Random(f"{number} {tool.name}").shuffle(words)
            text = " ".join(words[: 6 + number])
            catalog.add(
                f"{tool.server}{number}",
                [Tool.define(tool.leaf, server=f"{tool.server}{number}", description=text)],
            )
    return Index(catalog)


@pytest.mark.requirement("R31")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_nonsense_matches_nothing(index: Index, kind: str, seed: int):
    """R31"""
    queries = make_nonsense(kind, QUERIES, seed=seed)

    assert len([query for query in queries if not index.search(query)]) >= SHARE * QUERIES


@pytest.mark.requirement("R31")
@pytest.mark.parametrize("kind", KINDS)
def test_among_thousands_of_tools_nonsense_matches_nothing(large: Index, kind: str):
    """R31"""
    queries = make_nonsense(kind, QUERIES, seed=3)

    assert len([query for query in queries if not large.search(query)]) >= SHARE * QUERIES


@pytest.mark.requirement("R31")
def test_a_session_says_that_nothing_matches_and_counts_it_as_fruitless():
    """R31"""
    session = Scout(load_demo_catalog()).session("a")
    replies = [session.search(query) for query in ("zzz qqq", "qwxz vbnm", "xkq zzt")]

    assert [reply.code for reply in replies] == ["no_match"] * 3
    assert replies[0].text.startswith("No tool found for 'zzz qqq'.")
    assert "no tool here fits" in replies[-1].text


@pytest.mark.parametrize(
    "query",
    [
        "postpone",
        "reimburse",
        "kubectl",
        "buy",
        "get rid of stale branches",
        "Überweisung",
        "supprime le rendez-vous",
        "发邮件",
        "이메일 보내줘",
        "メールを送る",
        "jql",
    ],
)
def test_unusual_words_are_not_nonsense(index: Index, query: str):
    assert index.search(query).hits


@pytest.mark.parametrize("file", [TRANSLATED, GOLDEN])
def test_no_labelled_request_is_taken_for_nonsense(index: Index, file: Path):
    lines = file.read_text(encoding="utf-8").splitlines()
    queries = [json.loads(line)["query"] for line in lines]

    assert [query for query in queries if not index.search(query).hits] == []
