"""What learning would have given on a log of calls."""

import json
from pathlib import Path

import pytest

from toolscout.catalog import Catalog
from toolscout.errors import InvalidFile
from toolscout.evaluate.learning import read_usages, replay_usages, tabulate_learning
from toolscout.search.feedback import Usage, hash_query
from toolscout.search.index import Index
from toolscout.tools import Tool

TOOLS = {
    "a": [Tool.define("shut", server="a", description="Close a ticket.")],
    "b": [Tool.define("finish", server="b", description="Close a ticket.")],
    "c": [Tool.define("wait", server="c", description="Have a rest.")],
}


def call(at: float, query: str, tool: str, code: str = "ok", principal: str = "") -> Usage:
    return Usage(session="s", query=query, tool=tool, code=code, at=at, principal=principal)


def replay(*usages: Usage):
    catalog = Catalog(TOOLS)
    exists = {tool.name for tool in catalog.tools}
    return replay_usages(usages, Index(catalog), names=exists.__contains__)


def test_a_call_is_searched_for_before_it_is_learned():
    found = replay(*(call(at, "close the ticket", "b__finish") for at in range(6)))

    assert found.without_history.requests == 1
    assert found.without_history.first == found.without_history.first_learned == 0
    assert found.with_history.requests == 5
    assert found.with_history.first == 0
    assert found.with_history.first_learned > 0.5
    assert found.with_history.ndcg < found.with_history.ndcg_learned


def test_calls_are_replayed_in_the_order_of_time():
    calls = [call(at, "close the ticket", "b__finish") for at in range(6)]
    calls += [call(9, "have a rest", "c__wait")]

    assert replay(*calls) == replay(*reversed(calls))


def test_what_others_asked_does_not_help():
    calls = [call(at, "close the ticket", "b__finish", principal="alice") for at in range(6)]

    found = replay(*calls, call(9, "close the ticket", "b__finish", principal="bob"))

    assert found.without_history.requests == 2
    assert found.without_history.first_learned == 0


def test_calls_that_cannot_be_searched_for_are_counted():
    found = replay(
        call(1, hash_query("close"), "b__finish"),
        call(2, "close", "gone__tool"),
        call(3, "", "b__finish"),
        call(4, "close", "b__finish", "tool_error"),
    )

    assert (found.hashed, found.gone) == (1, 1)
    assert found.with_history.requests == found.without_history.requests == 0
    assert len(tabulate_learning(found).rows) == 2


def test_a_log_may_have_nothing_but_queries_and_tools(tmp_path: Path):
    file = tmp_path / "calls.jsonl"
    file.write_text(
        '{"query": "a", "tool": "t", "at": 5}\n\n'
        '{"query": "b", "tool": "t", "code": "timed_out", "principal": "alice"}\n'
    )

    first, second = read_usages(file)

    assert (first.at, first.succeeded) == (5.0, True)
    assert (second.at, second.succeeded, second.principal) == (5.0, False, "alice")


@pytest.mark.parametrize("line", ["{", "[]", json.dumps({"query": "a"}), json.dumps({"tool": 1})])
def test_a_line_that_is_no_call_is_refused_with_its_number(tmp_path: Path, line: str):
    file = tmp_path / "calls.jsonl"
    file.write_text('{"query": "a", "tool": "t"}\n' + line)

    with pytest.raises(InvalidFile, match="2"):
        read_usages(file)
