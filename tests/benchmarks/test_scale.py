"""The capacity model and its simulated day."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.commands import main
from benchmarks.scale import (
    BUSY,
    Constants,
    Model,
    Site,
    draw_requests,
    measure_constants,
    queue_requests,
    replay_day,
)
from benchmarks.workloads import read_workload

CONSTANTS = Constants(
    base_bytes=2e8,
    tool_bytes=5e3,
    tool_seconds=4e-4,
    search_seconds=5e-4,
    search_seconds_per_tool=1e-8,
    session_bytes=2e4,
    session_stored_bytes=3e3,
    request_search_seconds=4e-3,
    request_call_seconds=3e-3,
    call_stored_bytes=700,
)
MODEL = Model(CONSTANTS)


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 5), st.integers(0, 2)), min_size=1, max_size=40
    )
)
def test_a_request_waits_for_those_before_it_at_its_replica(rows: list[tuple[float, float, int]]):
    rows.sort()
    free = [0.0, 0.0, 0.0]
    expected: list[float] = []
    for at, work, home in rows:
        begun = max(at, free[home])
        expected.append(begun - at)
        free[home] = begun + work

    times, work, homes = (np.array(column) for column in zip(*rows, strict=True))

    assert queue_requests(times, work, homes, 3) == pytest.approx(expected, abs=1e-9)


@given(st.integers(100, 10_000_000), st.integers(1, 1_000_000))
def test_more_of_anything_never_needs_less(tools: int, principals: int):
    need = MODEL.find_need(Site(tools=tools, principals=principals))
    more = MODEL.find_need(Site(tools=2 * tools, principals=2 * principals))

    assert more.replicas >= need.replicas
    assert more.search_seconds >= need.search_seconds
    assert more.stored_bytes >= need.stored_bytes
    assert more.index_seconds >= need.index_seconds


def test_the_limit_names_what_does_not_fit_first():
    assert MODEL.find_need(Site(tools=10_000, principals=10)).limit == ""
    assert MODEL.find_need(Site(tools=10_000_000, principals=10)).limit == "memory of a replica"


def test_a_day_has_the_requests_of_all_sessions_in_order():
    site = Site(tools=500, principals=50)

    times, owners, is_search = draw_requests(np.random.default_rng(1), site)

    assert len(times) == site.searches + site.calls
    assert is_search.sum() == site.searches
    assert (np.diff(times) >= 0).all()
    assert set(owners) <= set(range(50))


def test_the_replicas_that_the_model_asks_for_are_not_too_busy_and_fewer_are():
    site = Site(tools=500, principals=20_000)
    slow = Model(replace(CONSTANTS, request_call_seconds=0.06))
    need = slow.find_need(site)

    asked = replay_day(slow, site)
    fewer = replay_day(slow, site, replicas=1)

    assert need.replicas > 2
    assert asked.busiest <= BUSY * 1.2
    assert asked.wait_p99 < fewer.wait_p99
    assert asked.moved > 0


def test_the_constants_are_measured_and_the_command_prints_what_follows(tmp_path: Path):
    measured = measure_constants(read_workload(()), (200, 600))
    saved = tmp_path / "scale.json"
    saved.write_text(json.dumps({"constants": asdict(measured)}), encoding="utf-8")
    words = ["scale", "--constants", str(saved), "--catalog", "500", "--principals", "20"]

    ran = CliRunner().invoke(main, [*words, "--json"], catch_exceptions=False)
    found = json.loads(ran.stdout)

    assert measured.base_bytes > 1e7
    assert min(measured.request_call_seconds, measured.request_search_seconds) > 0
    assert found["constants"]["tool_bytes"] == measured.tool_bytes
    assert found["needs"][0]["replicas"] >= 2
    assert found["days"][0]["requests"] == 20 * 4 * 13
