"""Spans of requests: made for those who see them, and traces that go through."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry import trace

from gateway.fleet import DEADLINE_SECONDS, client_of, configuration, known, text_of
from toolscout.gateway.passages import Context
from toolscout.gateway.spans import Sparing, is_collected
from toolscout.schemas import Json

NOTEBOOK = str(Path(__file__).parent / "notebook.py")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


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

    asyncio.run(Sparing(spans)(cast("Context", Request(meta)), answer))
    assert passed[-1] == "answer"
    return passed[0] == "spans"


def collect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)


def test_spans_are_collected_only_where_the_host_has_set_up_who_does(
    monkeypatch: pytest.MonkeyPatch,
):
    assert not is_collected()

    collect(monkeypatch)

    assert is_collected()


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
            await known(client, "notes__trace")
            asked: Json = {"name": "notes__trace", "arguments": {}}
            traced = await client.call_tool("tool_call", asked, meta={"traceparent": PARENT})
            plain = await client.call_tool("tool_call", asked)

            assert text_of(traced).split("-")[1] == TRACE
            assert text_of(plain) == "none"

    asyncio.run(conversation())
