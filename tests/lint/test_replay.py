"""Recorded queries, asked again."""

import pytest

from toolscout.catalog import Catalog
from toolscout.demo import load_demo_catalog
from toolscout.lint.probes import Probe
from toolscout.lint.replay import Fate, Recording, read_recording, replay
from toolscout.scout import Scout
from toolscout.search.feedback import Usage, bytes_from_usage, hash_query
from toolscout.stores.memory import MemoryStore
from toolscout.tools import Tool

PROBES = [
    Probe(query="open a pull request", tools=("github__create_pull_request",), times=3),
    Probe(query="refund a payment", tools=("stripe__create_refund",)),
]


@pytest.fixture(scope="module")
def demo() -> Scout:
    catalog = load_demo_catalog()
    return Scout(catalog)


def without(*servers: str) -> Scout:
    catalog = load_demo_catalog()
    for server in servers:
        catalog.remove(server)
    return Scout(catalog)


def test_nothing_moves_between_equal_catalogues(demo: Scout):
    done = replay(PROBES, demo, demo)

    assert {move.fate for move in done.moves} == {Fate.SAME}
    assert done.found == done.found_before == 1.0


def test_queries_count_as_often_as_they_were_asked(demo: Scout):
    done = replay(PROBES, without("github"), demo)

    assert [(move.tool, move.fate) for move in done.moves] == [
        ("github__create_pull_request", Fate.GONE),
        ("stripe__create_refund", Fate.SAME),
    ]
    assert (done.found, done.found_before) == (0.25, 1.0)


def test_a_tool_that_comes_is_found_where_it_was_not(demo: Scout):
    done = replay(PROBES, demo, without("github"))

    assert done.counts == {Fate.FOUND: 1, Fate.SAME: 1}
    assert done.found_before == 0.25


def test_ranks_that_fall_and_rise_are_told_apart():
    rival = Tool.define("sow_seeds", server="a", description="Sow seeds into soil.")
    mine = Tool.define("sow", server="b", description="Sow some seeds.")
    one, two = Catalog({"b": [mine]}), Catalog({"a": [rival], "b": [mine]})
    alone, beside = map(Scout, (one, two))
    probe = [Probe(query="sow seeds into soil", tools=("b__sow",))]

    assert replay(probe, beside, alone).moves[0].fate is Fate.LOWER
    assert replay(probe, alone, beside).moves[0].fate is Fate.HIGHER
    assert replay(probe, beside, alone, within=1).moves[0].fate is Fate.MISSING


def test_a_query_that_cannot_be_read_finds_nothing(demo: Scout):
    done = replay([Probe(query="/(/", tools=("github__create_issue",))], demo)

    assert [(move.after, move.fate) for move in done.moves] == [(None, Fate.UNFOUND)]
    assert done.found_before is None


def test_no_queries_are_all_found(demo: Scout):
    assert replay([], demo).found == 1.0


def test_a_recording_holds_successful_calls_with_their_query():
    store = MemoryStore()
    for query, code in [("a", "ok"), ("a", "ok"), ("b", "tool_error"), ("", "ok")]:
        usage = Usage(session="s", query=query, tool="t", code=code, at=0.0)
        store.append("usage", bytes_from_usage(usage))
    secret = Usage(session="s", query=hash_query("c"), tool="t", code="ok", at=0.0)
    store.append("usage", bytes_from_usage(secret))
    store.append("usage", b"not a usage")

    found = read_recording(store)

    assert found == Recording(probes=(Probe(query="a", tools=("t",), times=2),), hashed=1)
    assert found.to_lines() == '{"query": "a", "tool": "t", "times": 2}\n'
