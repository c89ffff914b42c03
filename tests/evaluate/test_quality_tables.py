"""Tables of measured quality."""

from toolscout.evaluate.quality import (
    METRICS,
    Estimate,
    Milliseconds,
    Outcome,
    Quality,
    summarize,
    tabulate_metric,
)


def make_outcome(mean: float) -> Outcome:
    estimate = Estimate(mean=mean, low=mean - 0.1, high=mean + 0.1)
    return Outcome(
        metrics=dict.fromkeys(METRICS, estimate),
        resampled=(),
        reply_tokens=123.4,
        ms=Milliseconds(p50=0.5, p99=2.0, mean=0.6),
        queries=10,
        tools=20,
    )


def make_quality(**means: float) -> Quality:
    outcomes = {system: make_outcome(mean) for system, mean in means.items()}
    return Quality(datasets={"letters": outcomes}, macro=outcomes, versions={})


def test_a_metric_table_has_datasets_systems_and_the_macro_row():
    table = tabulate_metric(make_quality(static=0.8, none=0.5), "ndcg@10")

    assert table.title == "nDCG@10"
    assert table.head == ("dataset", "static", "none")
    assert table.rows == (
        ("letters", "0.800 [0.700, 0.900]", "0.500 [0.400, 0.600]"),
        ("macro", "0.800 [0.700, 0.900]", "0.500 [0.400, 0.600]"),
    )


def test_the_summary_has_a_row_for_each_system():
    table = summarize(make_quality(static=0.8))

    assert table.rows == (("static", *["0.800"] * 7, "123", "0.50", "2.00"),)
