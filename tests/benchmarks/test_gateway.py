"""What a gateway costs, measured with real servers over both transports."""

import json
from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from benchmarks.commands import main
from benchmarks.gateway import BLOCK, PEER_BLOCK
from benchmarks.report import tabulate_hops


@pytest.mark.timeout(600)
def test_calls_and_searches_are_measured_over_stdio_and_http():
    words = ["gateway", "--rounds", "1", "--tools", "30", "--json"]
    ran = CliRunner().invoke(main, words, catch_exceptions=False)

    figures = json.loads(ran.stdout)
    has_peer = find_spec("fastmcp") is not None
    assert list(figures["transits"]) == ["stdio", "http"]
    assert figures["requests"] == BLOCK
    assert figures["fastmcp_requests"] == (PEER_BLOCK if has_peer else 0)
    for transit in figures["transits"].values():
        ratio = transit["gateway_ms"] / transit["direct_ms"]
        assert transit["ratios"]["gateway / direct"] == pytest.approx(ratio, abs=0.01)
        assert (transit["fastmcp_ms"] is not None) == has_peer
    stdio, http = figures["transits"].values()
    assert stdio["ratios"]["daemon / direct"] > 0
    assert http["daemon_ms"] is None
    assert 0 < figures["daemon_answer_seconds"] < figures["first_answer_seconds"]


def test_the_tables_show_each_transport_and_how_many_requests_there_were():
    transit = {
        **{"direct_ms": 2.0, "gateway_ms": 4.0, "search_ms": 3.0, "trivial_ms": 1.5},
        **{
            "daemon_ms": None,
            "daemon_search_ms": None,
            "fastmcp_ms": 400.0,
            "fastmcp_search_ms": None,
            "ratios": {"gateway / direct": 2.0},
        },
    }
    counts = {
        **{"requests": 150, "fastmcp_requests": 9, "tools": 500},
        **{"first_answer_seconds": 1.5, "daemon_answer_seconds": 0.25},
    }

    stdio, http, told = tabulate_hops({"transits": {"stdio": transit, "http": transit}, **counts})

    assert (stdio.title, http.title) == ("Through the gateway, stdio", "Through the gateway, http")
    assert ("the same call through FastMCP's proxy", "400.00 ms") in http.rows
    assert ("gateway / direct", "2.00") in http.rows
    assert told.rows[1:] == (
        ("the same with a gateway in the background", "0.25 s"),
        ("requests of each kind", "150"),
        ("of FastMCP's, which lists all tools at each", "9"),
    )


def test_rules_audit_and_approval_are_measured_in_turns():
    done = CliRunner().invoke(main, ["trust", "--rounds", "1", "--json"])

    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["rules"], found["requests"]) == (20, BLOCK)
    assert found["ratio"] == pytest.approx(found["guarded_ms"] / found["bare_ms"], abs=0.001)
