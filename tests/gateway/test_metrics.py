"""What a gateway counts, and what it never tells."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig, Transport
from toolscout.dialects import Dialect, to_definition
from toolscout.gateway.metrics import MOST_MENUS, MOST_TOOLS, OTHER, Metrics
from toolscout.gateway.tracing import Spans
from toolscout.schemas import Json
from toolscout.servers.pool import Pool
from toolscout.sessions.events import Called, Described, Searched, Suggested
from toolscout.sessions.metatools import meta_tools
from toolscout.stores.memory import MemoryStore
from toolscout.tokens import count_all_definition_tokens
from toolscout.tools import Tool

TOOLS = [Tool.define(f"tool_{n}", description=f"Does thing {n}.", server="far") for n in range(40)]
MENU = [to_definition(tool, Dialect.MCP) for tool in meta_tools()]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"toolscout_{name}", labels)


@pytest.mark.requirement("R106")
def test_searches_hits_and_loads_are_counted():
    """R106"""
    metrics = Metrics()

    metrics.hear(Searched(session="s", hits=3, loaded=2, milliseconds=4))
    metrics.hear(Searched(session="s", code="no_match", milliseconds=2_000))
    metrics.hear(Described(session="s"))
    metrics.hear(Suggested(session="s"))

    assert value(metrics, "searches_total", code="ok") == 1
    assert value(metrics, "searches_total", code="no_match") == 1
    assert value(metrics, "hits_total") == 3
    assert value(metrics, "loads_total") == 2
    assert value(metrics, "describes_total", code="ok") == 1
    assert value(metrics, "search_seconds_sum") == pytest.approx(2.004)
    assert value(metrics, "search_seconds_bucket", le="0.005") == 1


@pytest.mark.requirement("R106")
def test_calls_are_counted_by_server_tool_and_code():
    """R106"""
    metrics = Metrics()
    metrics.watch(*watched())

    metrics.hear(Called(session="s", tool="far__tool_1", milliseconds=30))
    metrics.hear(Called(session="s", tool="far__tool_1", code="tool_error", milliseconds=30))
    metrics.hear(Called(session="s", tool="gone", code="unknown_tool", made=False))

    labels = {"server": "far", "tool": "far__tool_1"}
    assert value(metrics, "calls_total", **labels, code="ok") == 1
    assert value(metrics, "calls_total", **labels, code="tool_error") == 1
    assert value(metrics, "call_seconds_count", server="far") == 2
    assert value(metrics, "refusals_total", code="unknown_tool") == 1


def test_tools_beyond_a_number_count_together():
    metrics = Metrics()

    for n in range(MOST_TOOLS + 20):
        metrics.hear(Called(session="s", tool=f"tool_{n}"))
    metrics.hear(Called(session="s", tool="tool_0"))

    assert value(metrics, "calls_total", server="", tool=OTHER, code="ok") == 20
    assert value(metrics, "calls_total", server="", tool="tool_0", code="ok") == 2


def test_tokens_not_sent_are_net_of_menu_and_replies():
    metrics = Metrics()
    whole = count_all_definition_tokens(TOOLS)

    metrics.note_list("ann", 1, lambda: TOOLS, MENU)
    metrics.note_list("ann", 1, lambda: TOOLS, MENU)
    metrics.hear(Searched(session="s", tokens=50))
    metrics.hear(Described(session="s", tokens=7))
    metrics.hear(Called(session="s", tool="x", tokens=900))

    figures = metrics.count_totals()
    menu = value(metrics, "listed_tokens_total")
    assert menu is not None
    assert value(metrics, "definition_tokens_total") == 2 * whole
    assert figures["tokens_not_sent"] == 2 * whole - menu - 57
    assert value(metrics, "tokens_not_sent") == figures["tokens_not_sent"]


def test_listing_every_tool_spares_next_to_nothing():
    metrics = Metrics()

    metrics.note_list("ann", 1, lambda: TOOLS, [to_definition(t, Dialect.MCP) for t in TOOLS])

    assert abs(metrics.count_totals()["tokens_not_sent"]) <= 2 * len(TOOLS)


def test_resources_and_prompts_are_no_definitions_that_were_spared():
    metrics = Metrics()
    page = Tool.define("page", description="A page.", server="far", kind="resource")

    metrics.note_list("ann", 1, lambda: [page], [])

    assert metrics.count_totals()["tokens_not_sent"] == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2 * MOST_MENUS)), max_size=300))
def test_every_list_counts_once_however_lists_are_mixed(lists: list[tuple[str, int]]):
    metrics = Metrics()

    for caller, version in lists:
        metrics.note_list(caller, version, lambda: TOOLS[:1], [])

    expected = len(lists) * count_all_definition_tokens(TOOLS[:1])
    assert metrics.count_totals()["tokens_not_sent"] == expected


def test_totals_are_what_a_person_wants_to_see():
    metrics = Metrics()
    metrics.hear(Searched(session="s", hits=2, tokens=10))
    metrics.hear(Called(session="s", tool="x"))
    metrics.hear(Called(session="s", tool="y", code="timed_out"))

    assert metrics.count_totals() == {
        "searches": 1,
        "hits": 2,
        "describes": 0,
        "loads": 0,
        "calls": 2,
        "refusals": 0,
        "failed_calls": 1,
        "tokens_not_sent": -10,
    }


def test_the_text_tells_servers_by_phase():
    metrics = Metrics()
    metrics.watch(*watched())

    text = metrics.render().decode()

    assert 'toolscout_servers{phase="configured"} 1.0' in text
    assert 'toolscout_servers{phase="ready"} 0.0' in text


@pytest.mark.requirement("R108")
def test_no_session_is_told_apart():
    """R108: numbers only, whoever they belong to."""
    metrics = Metrics()
    metrics.hear(Searched(session="http:0123456789abcdef"))

    assert "0123456789abcdef" not in metrics.render().decode()


def test_gateways_share_no_numbers():
    first, second = Metrics(), Metrics()

    first.hear(Searched(session="s"))

    assert second.count_totals()["searches"] == 0


@pytest.mark.requirement("R108")
def test_searches_and_calls_are_spans_without_text():
    """R108"""
    tracer = Tracer()
    metrics = Metrics(Spans(tracer, clock=lambda: 5_000_000))

    metrics.hear(Searched(session="s", form="words", hits=2, loaded=1, tokens=9, milliseconds=3))
    metrics.hear(Called(session="s", tool="far__tool_1", code="tool_error"))

    search, call = tracer.spans
    assert search == {
        "name": "toolscout.search",
        "start_time": 2_000_000,
        "end_time": 5_000_000,
        "attributes": {
            "toolscout.code": "ok",
            "toolscout.form": "words",
            "toolscout.hits": 2,
            "toolscout.loaded": 1,
            "toolscout.tokens": 9,
        },
    }
    assert call["attributes"]["toolscout.tool"] == "far__tool_1"


def watched() -> tuple[Catalog, Pool]:
    catalog = Catalog({"far": TOOLS})
    config = ServerConfig(name="near", transport=Transport.STDIO, command="near")
    return catalog, Pool([config], Catalog(), MemoryStore())


@dataclass(slots=True)
class Tracer:
    """Keeps spans as they were told."""

    spans: list[Json] = field(default_factory=list[Json])

    def start_span(self, name: str, *, start_time: int, attributes: Json) -> "Span":
        told = {"name": name, "start_time": start_time, "attributes": attributes}
        self.spans.append(told)
        return Span(told)


@dataclass(slots=True)
class Span:
    told: Json

    def end(self, end_time: int) -> None:
        self.told["end_time"] = end_time
