"""Spans of requests: made for those who see them, and traces that go through."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from opentelemetry import trace

from gateway.fleet import (
    BERLIN,
    DEADLINE_SECONDS,
    TIME,
    client_of,
    configuration,
    known,
    text_of,
)
from toolscout.gateway.forward import Context
from toolscout.gateway.shims import OptionalSpans
from toolscout.schemas import Json
from toolscout.servers.mcp import has_collector

NOTEBOOK = str(Path(__file__).parent / "notebook.py")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
NOW = "time__get_current_time"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


COLLECTED = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from toolscout.cli import main

file = open(sys.argv.pop(1), "w")
exporter = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\\n")
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
main()
"""
"""toolscout with a collector, which writes a line for each span to a file."""


@dataclass
class Request:
    meta: Json | None


def is_spanned(meta: Json | None) -> bool:
    """Tell whether a request with this `_meta` goes by way of the SDK's spans."""
    passed: list[str] = []

    async def spans(ctx: Any, call_next: Any) -> Any:
        passed.append("spans")
        return await call_next(ctx)

    async def answer(ctx: Any) -> Any:
        passed.append("answer")

    asyncio.run(OptionalSpans(spans)(cast("Context", Request(meta)), answer))
    assert passed[-1] == "answer"
    return passed[0] == "spans"


def collect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)


def test_spans_are_collected_only_where_the_host_has_set_up_who_does(
    monkeypatch: pytest.MonkeyPatch,
):
    assert not has_collector()

    collect(monkeypatch)

    assert has_collector()


@pytest.mark.parametrize("meta", [None, {}, {"progressToken": 1}])
def test_a_request_has_spans_only_where_somebody_collects_them(
    meta: Json | None, monkeypatch: pytest.MonkeyPatch
):
    assert not is_spanned(meta)

    collect(monkeypatch)

    assert is_spanned(meta)


def test_a_request_that_its_client_traces_has_spans():
    assert is_spanned({"traceparent": PARENT})


@pytest.mark.timeout(DEADLINE_SECONDS)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_trace_goes_through_to_the_server_that_is_called(mode: str, tmp_path: Path):
    era = "modern" if mode == "auto" else "legacy"
    server = (NOTEBOOK, era, str(tmp_path / "ledger"))
    config = configuration(tmp_path, {"notes": server})

    async def conversation() -> None:
        async with client_of(config, mode=mode) as client:
            await known(client, "notes__echo")
            asked: Json = {"name": "notes__echo", "arguments": {"of": "trace"}}
            traced = await client.call_tool("tool_call", asked, meta={"traceparent": PARENT})
            plain = await client.call_tool("tool_call", asked)

            assert text_of(traced).split("-")[1] == TRACE
            assert text_of(plain) == "none"

    asyncio.run(conversation())


@pytest.mark.timeout(DEADLINE_SECONDS)
def test_searches_and_calls_are_spans_within_those_of_their_requests(tmp_path: Path):
    config = configuration(tmp_path, {"time": TIME})
    spans = tmp_path / "spans"
    arguments = ["-c", COLLECTED, str(spans), "serve", "--config", str(config)]

    async def conversation() -> None:
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            await known(client, NOW)
            await client.call_tool("tool_call", {"name": NOW, "arguments": BERLIN})

    asyncio.run(conversation())

    told: list[Json] = [json.loads(line) for line in spans.read_text().splitlines()]
    requests = {span["context"]["span_id"]: span["name"] for span in told}
    within = {span["name"]: requests[span["parent_id"]] for span in told if span["parent_id"]}
    assert within["toolscout.search"] == "tools/call tool_search"
    assert within["toolscout.call"] == "tools/call tool_call"
    assert within["MCP send tools/call get_current_time"] == "tools/call tool_call"
