"""How far one system is ahead of another."""

import numpy as np
import pytest

from benchmarks.leads import compute_leads, estimate_differences, json_from_leads
from toolscout.evaluate.quality import METRICS, Milliseconds, Outcome, Quality, resample


def outcome_of(score: float) -> Outcome:
    return Outcome(
        metrics={},
        resampled=[resample(np.full((3, len(METRICS)), score))],
        reply_tokens=0,
        ms=Milliseconds(p50=0, p99=0, mean=0),
        queries=3,
        tools=1,
    )


def test_a_constant_lead_is_certain_because_systems_are_paired():
    base = np.random.default_rng(4).random((100, 1))

    (lead,) = estimate_differences([resample(base + 0.25)], [resample(base)])

    assert (lead.mean, lead.low, lead.high) == (pytest.approx(0.25),) * 3


def test_the_lead_is_that_of_the_first_system_over_each_other():
    macro = {"best": outcome_of(1.0), "worst": outcome_of(0.0)}
    quality = Quality(datasets={}, macro=macro, versions={})

    leads = compute_leads(quality)

    assert list(leads) == ["worst"]
    assert leads["worst"]["ndcg@10"].low == 1.0
    assert json_from_leads(leads)["worst"]["mrr"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
