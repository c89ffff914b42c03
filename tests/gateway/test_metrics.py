"""What a gateway counts, and what it never tells."""

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial

import pytest

from toolscout.config.file import Config
from toolscout.config.servers import ServerConfig, Transport
from toolscout.dialects import Dialect, to_definition
from toolscout.gateway import metrics as metrics_module
from toolscout.gateway.events import Listed
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.logs import Spans
from toolscout.gateway.metrics import LABELLED_TOOLS, OTHER, VERSIONS, Metrics
from toolscout.schemas import Json
from toolscout.sessions.events import Called, Described, Searched, Suggested
from toolscout.sessions.metatools import build_meta_tools
from toolscout.stores.memory import MemoryStore
from toolscout.tokens import count_all_definition_tokens
from toolscout.tools import Tool

TOOLS = [Tool.define(f"tool_{n}", description=f"Does thing {n}.", server="far") for n in range(40)]
MENU = [to_definition(tool, Dialect.MCP) for tool in build_meta_tools()]


NEAR = ServerConfig(name="near", transport=Transport.STDIO, command="near")


def metrics_of(*servers: ServerConfig) -> Metrics:
    """Return the metrics of a gateway that knows some tools and has not started."""
    gateway = Gateway(Config(servers=servers), MemoryStore())
    gateway.catalog.replace("far", TOOLS)
    return Metrics(gateway)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"toolscout_{name}", labels)


@pytest.mark.requirement("R106")
def test_searches_hits_and_loads_are_counted():
    """R106"""
    metrics = metrics_of()

    metrics.on_event(Searched(session="s", hits=3, loaded=2, milliseconds=4))
    metrics.on_event(Searched(session="s", code="no_match", milliseconds=2_000))
    metrics.on_event(Described(session="s"))
    metrics.on_event(Suggested(session="s"))

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
    metrics = metrics_of(NEAR)
    called = partial(Called, session="s", tool="far__tool_1", server="far", milliseconds=30)

    metrics.on_event(called())
    metrics.on_event(called(code="tool_error"))
    metrics.on_event(Called(session="s", tool="gone", code="unknown_tool", made=False))

    labels = {"server": "far", "tool": "far__tool_1"}
    assert value(metrics, "calls_total", **labels, code="ok") == 1
    assert value(metrics, "calls_total", **labels, code="tool_error") == 1
    assert value(metrics, "call_seconds_count", server="far") == 2
    assert value(metrics, "refusals_total", code="unknown_tool") == 1


def test_tools_beyond_a_number_count_together():
    metrics = metrics_of()

    for n in range(LABELLED_TOOLS + 20):
        metrics.on_event(Called(session="s", tool=f"tool_{n}"))
    metrics.on_event(Called(session="s", tool="tool_0"))

    assert value(metrics, "calls_total", server="", tool=OTHER, code="ok") == 20
    assert value(metrics, "calls_total", server="", tool="tool_0", code="ok") == 2


def test_tokens_not_sent_are_net_of_menu_and_replies():
    gateway = Gateway(Config(), MemoryStore())
    metrics = Metrics(gateway)
    whole = count_all_definition_tokens(TOOLS)
    listed = Listed(session="s", principal="ann", version=1, definitions=MENU, tools=TOOLS)

    for event in (
        listed,
        listed,
        Searched(session="s", tokens=50),
        Described(session="s", tokens=7),
        Called(session="s", tool="x", tokens=900),
    ):
        gateway.events.emit(event)

    figures = metrics.count_totals()
    menu = value(metrics, "listed_tokens_total")
    assert menu is not None
    assert value(metrics, "definition_tokens_total") == 2 * whole
    assert figures["tokens_not_sent"] == 2 * whole - menu - 57
    assert value(metrics, "tokens_not_sent") == figures["tokens_not_sent"]


def test_totals_are_what_a_person_wants_to_see():
    gateway = Gateway(Config(), MemoryStore())
    metrics = Metrics(gateway)
    gateway.events.emit(Searched(session="s", hits=2, tokens=10))
    gateway.events.emit(Called(session="s", tool="x"))
    gateway.events.emit(Called(session="s", tool="y", code="timed_out"))

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


def test_the_delay_of_the_event_loop_is_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics_module, "LOOP_SECONDS", 0.001)
    metrics = metrics_of()

    async def block_the_loop() -> None:
        watching = asyncio.create_task(metrics.watch_loop())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(time.sleep, 0.3)  # as code that blocks the loop
        await asyncio.sleep(0.002)  # due after the first measurement
        watching.cancel()

    asyncio.run(block_the_loop())

    longest = value(metrics, "loop_delay_seconds_sum")
    assert longest is not None
    assert longest > 0.2


def test_the_metrics_name_the_versions():
    shown = metrics_of().render().decode()

    assert f'toolscout="{VERSIONS["toolscout"]}"' in shown
    assert "process_resident_memory_bytes" in shown


def test_the_metrics_count_servers_by_phase():
    metrics = metrics_of(NEAR)

    text = metrics.render().decode()

    assert 'toolscout_servers{phase="configured"} 1.0' in text
    assert 'toolscout_servers{phase="ready"} 0.0' in text


@pytest.mark.requirement("R108")
def test_metrics_do_not_distinguish_sessions():
    """R108: numbers only, whoever they belong to."""
    metrics = metrics_of()
    metrics.on_event(Searched(session="http:0123456789abcdef"))

    assert "0123456789abcdef" not in metrics.render().decode()


def test_gateways_share_no_numbers():
    first, second = metrics_of(), metrics_of()

    first.on_event(Searched(session="s"))

    assert second.count_totals()["searches"] == 0


@pytest.mark.requirement("R108")
def test_searches_and_calls_are_spans_without_text():
    """R108"""
    tracer = Tracer()
    spans = Spans(tracer, clock=lambda: 5_000_000)

    spans.on_event(Searched(session="s", form="words", hits=2, loaded=1, tokens=9, milliseconds=3))
    spans.on_event(Called(session="s", tool="far__tool_1", code="tool_error"))

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
