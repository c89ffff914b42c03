"""What past calls teach: similar queries profit, others do not, exact names stay first."""

import json
import math
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.demo import load_demo_catalog
from toolscout.query import query_from_text
from toolscout.schemas import Json
from toolscout.search.feedback import (
    LEAST_CHANCE,
    MOST_LIFT,
    REQUESTS_PER_TOOL,
    Feedback,
    Forgetting,
    hash_query,
)
from toolscout.search.fusion import confidence_from_chance, count_worth_showing
from toolscout.search.hits import Confidence, Hit, Result, Why
from toolscout.search.index import Index
from toolscout.settings import Learning
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

Past = Iterable[tuple[str, str, bool]]


def taught(past: Past, **options: Any) -> Feedback:
    """Return what past calls teach: the query, the tool, and whether the call succeeded."""
    feedback = Feedback(**options)
    for query, tool, succeeded in past:
        feedback.learn(query, tool, succeeded=succeeded, chance=0.2)
    return feedback


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(load_demo_catalog())


def result_of(query: str, *chances: float, exact: int = 0, nearest: float = 0.6) -> Result:
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
    return Result(
        query=query_from_text(query), found=hits, worth=worth, total=len(hits), nearest=nearest
    )


def order(result: Sequence[Hit]) -> str:
    return "".join(hit.tool.leaf for hit in result)


def after(
    past: Past, query: str = "rename the branch", chances: tuple[float, ...] = (0.4, 0.3, 0.2)
):
    return order(taught(past).apply(result_of(query, *chances), 10))


def times(count: int, query: str, tool: str, succeeded: bool = True) -> list[tuple[str, str, bool]]:
    return [(query, f"s__{tool}", succeeded)] * count


@pytest.mark.requirement("R37")
def test_a_successful_call_raises_its_tool_for_the_same_query():
    """R37"""
    assert after([]) == "abc"
    assert after(times(3, "rename the branch", "b")) == "bac"


@pytest.mark.requirement("R37")
@pytest.mark.parametrize("query", ["Branch rename", "rename branches", "+branch rename please"])
def test_order_endings_and_small_words_make_no_difference(query: str):
    """R37"""
    assert after(times(3, query, "b")) == "bac"


def test_a_similar_query_profits_less_than_the_same():
    learnt = taught(times(3, "rename the old branch", "c"))

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
    learnt = taught(times(100, "rename", "c") + times(100, "rename", "b"))

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

    given_back = taught(("rename branch", f"s__{t}", ok) for t, ok in calls).apply(found, limit)

    assert len(given_back) == min(limit, len(found))
    assert given_back.worth == count_worth_showing([hit.score for hit in given_back])
    scores = [hit.score for hit in given_back]
    assert scores == sorted(scores, reverse=True)
    assert order(given_back[:exact]) == order(found[: min(exact, limit)])
    for hit in given_back[exact:]:
        assert 0 <= log_odds(hit.score) - log_odds(before[hit.tool.name].score) <= MOST_LIFT + 1e-3
        assert hit.confidence is confidence_from_chance(hit.score)


def log_odds(chance: float) -> float:
    # Chances are rounded to a millionth, which near 1 is a large step in log-odds.
    kept = min(max(chance, LEAST_CHANCE), 0.999)
    return math.log(kept / (1 - kept))


@pytest.mark.requirement("R77")
def test_a_tool_that_the_search_did_not_find_is_not_added():
    """R77: what a caller may not see is not in the result, and feedback does not bring it back."""
    learnt = taught([("rename the branch", "secret__rename_branch", True)] * 10)
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
    learnt = taught(times(5, "rename the branch", "d"))

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
    assert after(past + times(30, "rename branch", "c"), chances=(0.4, 0.3, 0.3))[0] == "c"


def test_many_faint_likenesses_do_not_add_up_to_a_likeness():
    faint = [(f"rename branch house {a} {b} {a}x", "s__c", True) for a, b in pairwise(WORDS)]
    found = result_of("rename branch house", 0.4, 0.3, 0.1, nearest=0.9)

    assert taught(faint * 9).apply(found, 3) == found


def test_a_hashed_query_teaches_about_equal_queries_only():
    past = times(3, hash_query("rename the branch"), "b")

    assert after(past, "Rename  the branch") == "bac"
    assert after(past, "rename branch") == "abc"


def test_a_corrected_query_profits_from_what_it_was_read_as(index: Index):
    found = index.search("wether forcast", WIDE)
    last = found[min(9, len(found) - 1)]
    understood = " ".join(found.corrected.get(word, word) for word in ("wether", "forcast"))
    learnt = taught([(understood, last.tool.name, True)])

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

    assert after(times(3, query, "b"), query) == "bac"


def pairs_of(feedback: Feedback) -> set[tuple[str, str]]:
    return {(row.request, row.tool) for row in feedback.list_learned()}


def test_the_oldest_pairs_are_forgotten():
    learnt = Feedback(pairs=2)
    for query, tool in (("rename branch", "b"), ("weather", "b"), ("rename branch", "c")):
        learnt.learn(query, tool, succeeded=True)

    assert pairs_of(learnt) == {("weather", "b"), ("rename branch", "c")}


def test_a_pair_that_is_learnt_again_is_young_again():
    learnt = Feedback(pairs=2)
    for query in ("rename branch", "weather", "rename branch", "play music"):
        learnt.learn(query, "b", succeeded=True)

    assert pairs_of(learnt) == {("rename branch", "b"), ("play music", "b")}


def test_a_tool_keeps_its_strongest_requests():
    learnt = Feedback()
    learnt.learn("rename branch", "b", succeeded=True)
    learnt.learn("rename branch", "b", succeeded=True)
    for number in range(2 * REQUESTS_PER_TOOL):
        learnt.learn(f"weather {number}", "b", succeeded=True)

    kept = pairs_of(learnt)

    assert len(kept) == REQUESTS_PER_TOOL
    assert ("rename branch", "b") in kept


def test_whoever_teaches_most_loses_its_own_pairs_first():
    learnt = Feedback(pairs=20)
    learnt.learn("rename branch", "b", succeeded=True, principal="quiet")
    for number in range(100):
        learnt.learn(f"weather {number}", f"t{number}", succeeded=True, principal="noisy")

    assert ("rename branch", "b") in pairs_of(learnt)
    assert len(pairs_of(learnt)) == 20


def test_calls_fade_with_time():
    now = 0.0
    learnt = taught(times(3, "rename branch", "b"), clock=lambda: now)
    found = result_of("rename branch", 0.4, 0.3)
    fresh = learnt.apply(found, 2)

    now = 5 * 365 * 86_400.0

    assert order(fresh) == "ba"
    assert learnt.apply(found, 2) == found


def test_a_tool_without_history_loses_less_than_one_with():
    """A request that led to b once raises it above a, unless nobody has ever called a."""
    past = times(1, "rename branch", "b")

    assert after(past, "rename branch", (0.4, 0.35)) == "ab"
    assert after([*past, *times(1, "weather", "a")], "rename branch", (0.4, 0.35)) == "ba"


def test_what_the_search_finds_anyway_teaches_little():
    sure = Feedback()
    unsure = Feedback()
    for feedback, chance in ((sure, 0.99), (unsure, 0.1)):
        feedback.learn("weather", "s__a", succeeded=True)
        feedback.learn("rename branch", "s__b", succeeded=True, chance=chance)
    found = result_of("rename the branch", 0.4, 0.35, nearest=0.95)

    assert order(unsure.apply(found, 2)) == "ba"
    raised = {hit.tool.leaf: hit.score for hit in sure.apply(found, 2)}
    assert raised["b"] < unsure.apply(found, 2)[0].score


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["alice", "bob", ""]),
        st.sampled_from(
            ["open a pull request", "ping the team", "make a branch", "tell everybody"]
        ),
        st.integers(0, 30),
        st.booleans(),
    ),
    max_size=30,
)


@pytest.mark.requirement("R77")
@given(CALLS, st.sampled_from(QUERIES))
def test_what_one_principal_asks_changes_nothing_for_another(
    index: Index, calls: list[tuple[str, str, int, bool]], query: str
):
    """R77: neither a result nor an explanation, nor which tools were judged."""
    names = [tool.name for tool in load_demo_catalog().tools]
    both = Feedback(encode=index.encode_questions)
    alone = Feedback(encode=index.encode_questions)
    for who, request, number, succeeded in calls:
        tool = names[number * 7 % len(names)]
        both.learn(request, tool, succeeded=succeeded, principal=who, at=1.0)
        if who == "bob":
            alone.learn(request, tool, succeeded=succeeded, principal=who, at=1.0)

    mixed = both.search(index, query, WIDE, principal="bob")
    own = alone.search(index, query, WIDE, principal="bob")

    assert mixed == own
    assert [hit.why for hit in mixed] == [hit.why for hit in own]


def test_shared_learning_helps_everybody_and_takes_two_to_count_fully():
    one = Feedback(learning=Learning.SHARED)
    two = Feedback(learning=Learning.SHARED)
    for feedback, names in ((one, ["alice"] * 9), (two, ["alice", "bob"])):
        for name in names:
            feedback.learn("rename branch", "s__b", succeeded=True, principal=name, chance=0.2)
    found = result_of("rename branch", 0.1, 0.1)

    weak = one.apply(found, 2, principal="carol")[0]
    strong = two.apply(found, 2, principal="carol")[0]

    assert weak.tool.leaf == strong.tool.leaf == "b"
    assert 0.1 < weak.score < strong.score


def test_a_noisy_principal_counts_as_one_voice():
    learnt = Feedback(learning=Learning.SHARED)
    for number in range(30):
        request = f"rename branch {WORDS[number % 10]}"
        learnt.learn(request, "s__c", succeeded=True, principal="noisy", chance=0.2)
    for name in ("alice", "bob", "carol"):
        learnt.learn("rename branch", "s__b", succeeded=True, principal=name, chance=0.2)

    assert order(learnt.apply(result_of("rename branch", 0.3, 0.3, 0.3), 3))[0] == "b"


def test_nothing_is_learnt_where_learning_is_off():
    learnt = taught(times(9, "rename branch", "b"), learning=Learning.OFF)

    assert learnt.is_empty
    assert learnt.list_learned() == []


def test_a_tool_that_the_search_does_not_find_can_enter(index: Index):
    query = "the usual thing for Monday"
    missed = next(
        tool.name
        for tool in load_demo_catalog().tools
        if tool.name not in {hit.tool.name for hit in index.search(query, WIDE)}
    )
    learnt = Feedback(encode=index.encode_questions)
    for _ in range(5):
        learnt.learn(query, missed, succeeded=True, chance=0.0)

    found = learnt.search(index, query, WIDE)

    assert missed in {hit.tool.name for hit in found}
    hidden = learnt.search(index, query, WIDE, allowed=lambda tool: tool.name != missed)
    assert missed not in {hit.tool.name for hit in hidden}


def test_a_raised_hit_names_the_requests_that_raised_it():
    learnt = taught(
        [
            *times(3, "rename the branch", "b"),
            *times(3, hash_query("rename branch"), "b"),
        ]
    )

    raised = learnt.apply(result_of("rename branch", 0.4, 0.2), 2)[0]

    assert raised.raised_from == 0.2
    assert raised.why.asked_before == ("rename the branch",)


def test_many_requests_are_compared_like_few(index: Index):
    few = Feedback(encode=index.encode_questions)
    many = Feedback(encode=index.encode_questions)
    for number in range(1_000):
        many.learn(f"order number {number} of {WORDS[number % 10]}", f"t{number}", succeeded=True)
    name = index.search("open a pull request", WIDE)[9].tool.name
    for feedback in (few, many):
        for _ in range(3):
            feedback.learn("open a pull request", name, succeeded=True, chance=0.1)

    found = [feedback.search(index, "open a pull request", WIDE) for feedback in (few, many)]

    assert [hit.tool.name for hit in found[0]] == [hit.tool.name for hit in found[1]]


@pytest.mark.parametrize(
    ("order_", "left"),
    [
        (Forgetting(at=9.0, tool="b"), {("weather", "c")}),
        (Forgetting(at=9.0, request="Rename  branch"), {("weather", "b"), ("weather", "c")}),
        (Forgetting(at=9.0), set[tuple[str, str]]()),
        (Forgetting(at=1.5), {("weather", "b"), ("weather", "c")}),
    ],
)
def test_what_was_learnt_can_be_forgotten(order_: Forgetting, left: set[tuple[str, str]]):
    learnt = Feedback()
    for at, query, tool in (
        (1.0, "rename branch", "b"),
        (2.0, "weather", "b"),
        (2.0, "weather", "c"),
    ):
        learnt.learn(query, tool, succeeded=True, at=at)

    learnt.forget(order_)

    assert pairs_of(learnt) == left
    assert learnt.is_empty == (not left)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 4), st.booleans()),
        max_size=80,
    ),
    st.sampled_from([Learning.OWN, Learning.SHARED]),
)
def test_the_memory_stays_within_its_bounds(
    calls: list[tuple[str, int, int, bool]], learning: Learning
):
    learnt = Feedback(pairs=12, learning=learning)
    for at, (who, word, tool, succeeded) in enumerate(calls):
        request = f"rename {WORDS[word]}"
        learnt.learn(request, f"t{tool}", succeeded=succeeded, principal=who, at=float(at))
        learnt.apply(result_of("rename north", 0.3, 0.3), 2, principal=who)

    assert sum(row.principals for row in learnt.list_learned()) <= 12
    learnt.forget(Forgetting(at=math.inf))
    assert learnt.is_empty


def test_a_raised_hit_says_what_past_calls_added():
    found = result_of("rename the branch", 0.4, 0.2)
    raised = taught(times(3, "rename the branch", "b")).apply(found, 2)[0]

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

    assert taught(past).apply(found, 3) == taught(reversed(past)).apply(found, 3)


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
    index: Index, golden: list[tuple[Result, list[str]]]
):
    """R37: half of the golden questions teach three times; the other half must not suffer."""
    teaching, others = golden[::2], golden[1::2]
    learnt = Feedback(encode=index.encode_questions)
    for result, name in [(result, name) for result, wanted in teaching for name in wanted] * 3:
        chance = next((hit.score for hit in result if hit.tool.name == name), 0.0)
        learnt.learn(result.query.text, name, succeeded=True, chance=chance)

    assert first_right(learnt, teaching) >= first_right(Feedback(), teaching) + 0.04
    assert first_right(learnt, others) >= first_right(Feedback(), others)
