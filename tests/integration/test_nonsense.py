"""Letters without meaning end as "nothing matches"; requests in unusual words do not."""

import json
import random
import string
from pathlib import Path

import pytest

from toolscout import Index, Scout
from toolscout.demo import load_demo_catalog

TRANSLATED = Path(__file__).parent / "translated.jsonl"
GOLDEN = Path(__file__).parent / "golden.jsonl"
QUERIES = 200
SHARE = 0.95


def make_nonsense(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)

    def make_word() -> str:
        letters = chance.choices(string.ascii_lowercase, k=chance.randint(3, 9))
        return "".join(letters)

    return [" ".join(make_word() for _ in range(chance.randint(1, 4))) for _ in range(count)]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(load_demo_catalog())


@pytest.mark.requirement("R31")
@pytest.mark.parametrize("seed", [1, 2])
def test_random_letters_match_nothing(index: Index, seed: int):
    """R31"""
    empty = [query for query in make_nonsense(QUERIES, seed) if not index.search(query).hits]

    assert len(empty) >= SHARE * QUERIES


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
