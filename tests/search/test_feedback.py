"""What past calls teach: similar queries profit, others do not, exact names stay first."""

import json
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.demo import load_demo_catalog
from toolscout.query import query_from_text
from toolscout.schemas import Json
from toolscout.search.feedback import MOST_LIFT, Feedback, hash_query
from toolscout.search.fusion import confidence_from_chance, count_worth_showing
from toolscout.search.hits import Confidence, Hit, Result, Why
from toolscout.search.index import Index
from toolscout.tools import Tool

GOLDEN = Path(__file__).parents[1] / "integration" / "golden.jsonl"
WIDE = 20
DEADLINE = 120.0
QUERIES = (
    *("open a pull request", "ping the team", "create_issue", "select:create_issue,nothing"),
    *("server:slack", "+slack message", "github__*", "/issue/", "wether forcast", "zzzz qqqq"),
    *("weather", "send a message to the channel and then create an issue about it"),
)

WORDS = ("north", "south", "upper", "lower", "inner", "outer", "green", "brown", "white", "black")

Past = list[tuple[str, str, bool]]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(load_demo_catalog())


def result_of(query: str, *chances: float, exact: int = 0) -> Result:
    """Return a made-up result: tools a, b, c and so on with these chances, some of them exact."""
    why = Why(matched={}, shares={"words": 0.75, "name": 0.25}, held_back=())
    hits = tuple(
        Hit(
            tool=Tool.define("abcdefghij"[place], server="s"),
            score=1.0 if place < exact else chance,
            confidence=Confidence.EXACT if place < exact else confidence_from_chance(chance),
            explain=lambda: why,
        )
        for place, chance in enumerate(chances)
    )
    worth = count_worth_showing([hit.score for hit in hits])
    return Result(query=query_from_text(query), found=hits, worth=worth, total=len(hits))


def order(result: Sequence[Hit]) -> str:
    return "".join(hit.tool.leaf for hit in result)


def after(
    past: Past, query: str = "rename the branch", chances: tuple[float, ...] = (0.4, 0.3, 0.2)
):
    return order(Feedback(past).apply(result_of(query, *chances), 10))


def times(count: int, query: str, tool: str, succeeded: bool = True) -> Past:
    return [(query, f"s__{tool}", succeeded)] * count


@pytest.mark.requirement("R37")
def test_a_successful_call_raises_its_tool_for_the_same_query():
    """R37"""
    assert after([]) == "abc"
    assert after(times(1, "rename the branch", "b")) == "bac"


@pytest.mark.requirement("R37")
@pytest.mark.parametrize("query", ["Branch rename", "rename branches", "+branch rename please"])
def test_order_endings_and_small_words_make_no_difference(query: str):
    """R37"""
    assert after(times(1, query, "b")) == "bac"


def test_a_similar_query_profits_less_than_the_same():
    learnt = Feedback(times(3, "rename the old branch", "c"))

    same = learnt.apply(result_of("rename the old branch", 0.2, 0.2, 0.1), 3)
    similar = learnt.apply(result_of("rename the branch", 0.2, 0.2, 0.1), 3)

    assert order(same) == "cab"
    assert same[0].score > similar[2].score > 0.1


@pytest.mark.requirement("R37")
@pytest.mark.parametrize("query", ["rename the channel", "weather", "branch", "list all my files"])
def test_popularity_with_other_queries_counts_for_nothing(query: str):
    """R37"""
    assert after(times(100, query, "c"), chances=(0.3, 0.3, 0.3)) == "abc"


@pytest.mark.requirement("R37")
def test_no_exact_match_is_displaced():
    """R37"""
    learnt = Feedback(times(100, "rename", "c") + times(100, "rename", "b"))

    hits = learnt.apply(result_of("rename", 1.0, 1.0, 0.999999, exact=2), 3)

    assert order(hits) == "abc"
    assert [hit.confidence for hit in hits] == ["exact", "exact", "strong"]


@pytest.mark.requirement("R37")
@given(
    st.lists(st.floats(0, 1).map(lambda chance: round(chance, 6)), min_size=1, max_size=8),
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=60),
    st.integers(0, 2),
    st.integers(1, 8),
)
def test_every_rise_is_bounded_and_labelled_as_it_deserves(
    chances: list[float], calls: list[tuple[str, bool]], exact: int, limit: int
):
    """R37"""
    chances.sort(reverse=True)
    found = result_of("rename the branch", *chances, exact=exact)
    before = {hit.tool.name: hit for hit in found}

    given_back = Feedback(("rename branch", f"s__{t}", ok) for t, ok in calls).apply(found, limit)

    assert len(given_back) == min(limit, len(found))
    assert given_back.worth == count_worth_showing([hit.score for hit in given_back])
    scores = [hit.score for hit in given_back]
    assert scores == sorted(scores, reverse=True)
    assert order(given_back[:exact]) == order(found[: min(exact, limit)])
    for hit in given_back[exact:]:
        assert 0 <= log_odds(hit.score) - log_odds(before[hit.tool.name].score) <= MOST_LIFT + 1e-3
        assert hit.confidence is confidence_from_chance(hit.score)


def log_odds(chance: float) -> float:
    # Chances are rounded to a millionth, which near 0 and 1 is a large step in log-odds.
    kept = min(max(chance, 0.001), 0.999)
    return math.log(kept / (1 - kept))


@pytest.mark.requirement("R77")
def test_a_tool_that_the_search_did_not_find_is_not_added():
    """R77: what a caller may not see is not in the result, and feedback does not bring it back."""
    learnt = Feedback([("rename the branch", "secret__rename_branch", True)] * 10)
    found = result_of("rename the branch", 0.4, 0.3)

    assert learnt.apply(found, 10) == found


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("limit", [1, 3, 10])
def test_with_nothing_learnt_a_wide_search_is_cut_to_a_narrow_one(
    index: Index, query: str, limit: int
):
    wide = index.search(query, WIDE)

    assert Feedback().apply(wide, limit) == index.search(query, limit)


def test_a_tool_beyond_the_limit_may_come_within_it():
    learnt = Feedback(times(5, "rename the branch", "d"))

    hits = learnt.apply(result_of("rename the branch", 0.4, 0.3, 0.3, 0.2), 2)

    assert order(hits) == "da"


def test_equal_chances_stay_in_the_order_of_the_search():
    assert after(times(1, "rename branch", "d"), chances=(0.3, 0.3, 0.3, 0.0)) == "abcd"


def test_failures_take_back_what_successes_gave():
    learnt = times(3, "rename branch", "b")

    assert after(learnt + times(4, "rename branch", "b", False)) == "abc"


def test_failures_alone_lower_nothing():
    assert after(times(9, "rename branch", "a", False)) == "abc"


def test_failures_with_a_similar_query_count_too():
    past = times(2, "rename branch", "b") + times(9, "rename my branch", "b", False)

    assert after(past) == "abc"


def test_the_newest_outcomes_count_most():
    past = times(50, "rename branch", "b")

    assert after(past + times(6, "rename branch", "c"), chances=(0.4, 0.3, 0.3)) == "bca"
    assert after(past + times(30, "rename branch", "c"), chances=(0.4, 0.3, 0.3)) == "cba"


def test_many_faint_likenesses_do_not_add_up_to_a_likeness():
    faint = [(f"rename branch house {a} {b}", "s__c", True) for a, b in pairwise(WORDS)]
    found = result_of("rename branch house", 0.4, 0.3, 0.1)

    raised = Feedback(faint * 9).apply(found, 3)[2]

    # Three of five terms are a fifth of the way from half to all.
    assert 0 < log_odds(raised.score) - log_odds(0.1) <= MOST_LIFT / 5


def test_a_hashed_query_teaches_about_equal_queries_only():
    past = times(3, hash_query("rename the branch"), "b")

    assert after(past, "Rename  the branch") == "bac"
    assert after(past, "rename branch") == "abc"


def test_a_corrected_query_profits_from_what_it_was_read_as(index: Index):
    found = index.search("wether forcast", WIDE)
    last = found[min(9, len(found) - 1)]
    understood = " ".join(found.corrected.get(word, word) for word in ("wether", "forcast"))
    learnt = Feedback([(understood, last.tool.name, True)])

    raised = next(h for h in learnt.apply(found, WIDE) if h.tool == last.tool)

    assert found.corrected
    assert raised.score > last.score


@pytest.mark.parametrize("query", ["", "   ", "select:s__c", "/branch/", "s__*", "effect:what x"])
def test_queries_that_ask_no_question_teach_nothing(query: str):
    assert after(times(9, query, "c"), chances=(0.3, 0.3, 0.3)) == "abc"


def test_a_query_without_words_still_equals_itself():
    assert after(times(3, "\U0001f419", "b"), "\U0001f419") == "bac"


def test_a_very_long_query_is_learnt_like_any_other():
    query = " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(400))

    assert after(times(1, query, "b"), query) == "bac"


def test_the_oldest_pairs_are_forgotten():
    learnt = Feedback(pairs=2)
    for query, tool in (("rename branch", "b"), ("weather", "b"), ("rename branch", "c")):
        learnt.learn(query, f"s__{tool}", succeeded=True)

    # The third pair has put out the first, and left what else is known of that query.
    assert order(learnt.apply(result_of("rename branch", 0.3, 0.3, 0.3), 3)) == "cab"
    assert order(learnt.apply(result_of("weather", 0.3, 0.3, 0.3), 3)) == "bac"
    learnt.learn("play music", "s__a", succeeded=True)
    assert order(learnt.apply(result_of("weather", 0.3, 0.3, 0.3), 3)) == "abc"


def test_a_pair_that_is_learnt_again_is_young_again():
    learnt = Feedback(pairs=2)
    for query in ("rename branch", "weather", "rename branch", "play music"):
        learnt.learn(query, "s__b", succeeded=True)

    assert order(learnt.apply(result_of("rename branch", 0.3, 0.3), 3)) == "ba"
    assert order(learnt.apply(result_of("weather", 0.3, 0.3), 3)) == "ab"


def test_a_raised_hit_says_what_past_calls_added():
    found = result_of("rename the branch", 0.4, 0.2)
    raised = Feedback(times(1, "rename the branch", "b")).apply(found, 2)[0]

    shares = raised.why.shares

    assert shares["past calls"] == pytest.approx(1 - 0.2 / raised.score)
    assert shares["words"] == pytest.approx(0.75 * 0.2 / raised.score)
    assert sum(shares.values()) == pytest.approx(1)


def test_threads_may_learn_and_apply_at_once():
    learnt, ready = Feedback(pairs=50), threading.Barrier(4)
    found = result_of("rename the branch", 0.4, 0.3)

    def learning() -> None:
        ready.wait(DEADLINE)
        for number in range(300):
            learnt.learn(f"rename branch {WORDS[number % 7]}", f"s__{number}", succeeded=True)

    def applying() -> None:
        ready.wait(DEADLINE)
        for _ in range(300):
            assert learnt.apply(found, 2) == found

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(work) for work in (learning, learning, applying, applying)]
        for future in running:
            future.result(DEADLINE)


def test_order_of_learning_different_queries_makes_no_difference():
    past = [(f"rename the {word} branch", "s__b", True) for word in WORDS]
    found = result_of("rename the branch", 0.4, 0.2, 0.1)

    assert Feedback(past).apply(found, 3) == Feedback(reversed(past)).apply(found, 3)


@pytest.fixture(scope="module")
def golden(index: Index) -> list[tuple[Result, list[str]]]:
    """Every golden question, searched wide, with the names that it wants."""
    rows: list[Json] = [
        json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()
    ]
    return [(index.search(row["query"], WIDE), row["relevant"]) for row in rows]


def first_right(learnt: Feedback, asked: list[tuple[Result, list[str]]]) -> float:
    """Return the share of questions whose first hit is wanted."""
    return mean(
        any(hit.tool.name in wanted for hit in learnt.apply(result, 10)[:1])
        for result, wanted in asked
    )


@pytest.mark.requirement("R37")
def test_what_is_learnt_helps_its_queries_and_harms_no_others(
    golden: list[tuple[Result, list[str]]],
):
    """R37: half of the golden questions teach three times; the other half must not suffer."""
    taught, others = golden[::2], golden[1::2]
    learnt = Feedback(
        (result.query.text, name, True)
        for _ in range(3)
        for result, wanted in taught
        for name in wanted
    )

    assert first_right(learnt, taught) >= first_right(Feedback(), taught) + 0.04
    assert first_right(learnt, others) >= first_right(Feedback(), others)
