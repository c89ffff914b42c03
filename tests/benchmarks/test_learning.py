"""What learning gives on labelled queries."""

import pytest

from benchmarks.learning import measure_learning, tabulate_gains
from toolscout.errors import UsageError
from toolscout.evaluate.datasets import Dataset, Question
from toolscout.tools import Tool


def dataset_of(*queries: str) -> Dataset:
    """Return two tools that only past calls tell apart; every query wants the later one."""
    tools = ("end", "finish")
    return Dataset(
        name="tickets",
        tools=tuple(Tool.define(name, description="Close a ticket.") for name in tools),
        ids=tools,
        groups=(0, 1),
        queries=tuple(
            Question(id=str(number), text=text, relevant=("finish",))
            for number, text in enumerate(queries)
        ),
    )


SAME = ("close the ticket",) * 8


def test_tools_with_history_gain():
    found = measure_learning(dataset_of(*SAME), "static", calls=4, limit=4, held_out=0)

    assert found.calls == 4
    assert found.with_history.queries == 4
    assert found.without_history.queries == 0
    assert found.with_history.gain is not None
    assert found.with_history.gain.mean > 0


def test_tools_that_are_held_out_get_no_calls():
    found = measure_learning(dataset_of(*SAME), "static", calls=4, limit=4, held_out=1)

    assert found.calls == 0
    assert found.without_history.queries == 4
    assert found.without_history.gain is not None
    assert found.without_history.gain.mean == 0
    assert "tickets" in tabulate_gains([found]).rows[0]


def test_past_queries_of_other_tools_are_refused():
    other = Dataset(name="other", tools=(), ids=(), groups=(), queries=())

    with pytest.raises(UsageError, match="different tools"):
        measure_learning(dataset_of(*SAME), "none", calls=1, limit=1, logged=other)
