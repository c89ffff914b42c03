from collections.abc import Sequence

import pytest

from toolscout.errors import MissingExtra, UsageError
from toolscout.evaluate.datasets import Dataset, Question
from toolscout.evaluate.quality import METRICS, Ranked, System, measure_quality, summarize_times
from toolscout.tokens import count_tokens
from toolscout.tools import Tool


class Alphabet:
    """Returns all tools by name, forwards or backwards, and remembers what it was asked."""

    def __init__(self, name: str, *, backwards: bool = False) -> None:
        self.name, self.backwards = name, backwards
        self.tools: list[Tool] = []
        self.searches: list[tuple[str, int]] = []
        self.replies: list[tuple[str, int]] = []

    def build(self, tools: Sequence[Tool]) -> None:
        self.tools = sorted(tools, key=lambda tool: tool.name, reverse=self.backwards)

    def search(self, query: str, limit: int) -> list[Ranked]:
        self.searches.append((query, limit))
        return [Ranked(tool, 1.0) for tool in self.tools[:limit]]

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        self.replies.append((query, len(hits)))
        return "hello world"


def made(name: str) -> System:
    return Alphabet(name, backwards=name == "backwards")


def dataset_of(name: str = "letters", *, queries: int = 1, tools: str = "abcdefghijkl") -> Dataset:
    return Dataset(
        name=name,
        tools=tuple(Tool.define(letter) for letter in tools),
        ids=tuple(tools),
        groups=tuple(range(len(tools))),
        queries=tuple(
            Question(id=str(number), text=f"query {number}", relevant=("a",))
            for number in range(queries)
        ),
    )


def test_each_system_is_scored_on_each_dataset():
    found = measure_quality([dataset_of()], ["forwards", "backwards"], make=made)

    best, worst = found.datasets["letters"]["forwards"], found.datasets["letters"]["backwards"]
    assert {metric: best.metrics[metric].mean for metric in METRICS} == dict.fromkeys(METRICS, 1.0)
    assert {metric: worst.metrics[metric].mean for metric in METRICS} == dict.fromkeys(METRICS, 0.0)
    assert (best.queries, best.tools) == (1, 12)


def test_a_variant_of_the_wanted_tool_counts_once():
    dataset = Dataset(
        name="variants",
        tools=(Tool.define("a"), Tool.define("b"), Tool.define("c")),
        ids=("x", "x~2", "y"),
        groups=(0, 0, 1),
        queries=(Question(id="q", text="q", relevant=("x~2", "y")),),
    )

    found = measure_quality([dataset], ["forwards"], make=made).datasets["variants"]["forwards"]

    assert found.metrics["recall@5"].mean == 1.0
    assert found.metrics["hit@1"].mean == 1.0
    assert found.metrics["ndcg@5"].mean == pytest.approx(1.5 / 1.6309298)


def test_the_macro_mean_weighs_datasets_alike_and_sums_what_is_counted():
    missed, found = dataset_of("missed", queries=9), dataset_of("found", tools="a")

    macro = measure_quality([missed, found], ["backwards"], make=made).macro["backwards"]

    assert macro.metrics["mrr"].mean == 0.5
    assert (macro.queries, macro.tools) == (10, 13)


def test_searches_ask_for_ten_and_replies_show_five_of_a_sample():
    system = Alphabet("forwards")

    found = measure_quality([dataset_of(queries=300)], ["forwards"], make=lambda _: system)

    assert {limit for _, limit in system.searches} == {10}
    assert [query for query, _ in system.searches] == ["query 0"] + [
        f"query {number}" for number in range(300)
    ]
    assert len(system.replies) == 200
    assert {hits for _, hits in system.replies} == {5}
    assert found.datasets["letters"]["forwards"].reply_tokens == 2.0


def test_the_json_has_the_promised_keys():
    found = measure_quality([dataset_of()], ["forwards", "backwards"], make=made).to_json()

    assert list(found) == ["datasets", "macro", "versions"]
    for outcome in (found["datasets"]["letters"]["forwards"], found["macro"]["forwards"]):
        assert list(outcome) == [
            *("hit@1", "recall@5", "recall@10", "completeness@10", "ndcg@5", "ndcg@10", "mrr"),
            *("reply_tokens", "ms", "queries", "tools"),
        ]
        assert outcome["hit@1"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
        assert outcome["reply_tokens"] == {"mean": 2.0}
        assert list(outcome["ms"]) == ["p50", "p99", "mean"]
    assert {"python", "toolscout", "numpy"} <= set(found["versions"])


def test_progress_is_reported_now_and_then_and_at_the_end():
    steps: list[tuple[str, int, int]] = []

    measure_quality(
        [dataset_of(queries=60)],
        ["forwards"],
        make=made,
        progress=lambda stage, done, total: steps.append((stage, done, total)),
    )

    assert steps == [("letters: forwards", done, 60) for done in (0, 50, 60)]


@pytest.mark.parametrize(
    ("datasets", "systems", "message"),
    [
        ([], ["forwards"], "There is nothing to measure. Name a dataset and a system."),
        ([dataset_of()], [], "There is nothing to measure. Name a dataset and a system."),
        ([dataset_of()] * 2, ["a"], "The dataset 'letters' is named twice. Name it once."),
        ([dataset_of()], ["a", "a"], "The system 'a' is named twice. Name it once."),
        (
            [dataset_of(queries=0)],
            ["a"],
            "The dataset 'letters' has no queries. Add a queries.jsonl to its folder.",
        ),
    ],
)
def test_an_unusable_request_is_refused_with_a_reason(
    datasets: list[Dataset], systems: list[str], message: str
):
    with pytest.raises(UsageError) as caught:
        measure_quality(datasets, systems, make=made)

    assert str(caught.value) == message


def test_a_missing_package_is_noticed_before_anything_runs():
    system = Alphabet("here")

    def make(name: str) -> System:
        if name == "missing":
            raise MissingExtra("peer", extra="peer")
        return system

    with pytest.raises(MissingExtra):
        measure_quality([dataset_of()], ["here", "missing"], make=make)
    assert system.searches == []


def test_times_are_given_in_milliseconds():
    found = summarize_times([0.001, 0.002, 0.006])

    assert (found.p50, found.mean) == (pytest.approx(2.0), pytest.approx(3.0))
    assert found.p99 == pytest.approx(5.92)


def test_special_tokens_in_a_reply_are_counted_as_text():
    assert count_tokens("<|endoftext|>") > 1
