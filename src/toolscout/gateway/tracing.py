"""`Spans`: searches and calls as OpenTelemetry spans.

A span holds what its event holds: counts, codes and tool names, and no text (R108). The host sets
up the collector. The MCP SDK makes a span of its own for every request; `OptionalSpans` lets it do
so only if a collector or the client will see it.
"""

import time
from collections.abc import Callable
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from opentelemetry import trace
from opentelemetry.propagate import get_global_textmap

from toolscout.gateway.forward import Context
from toolscout.sessions.events import Called, Described, Event, Searched


class Spans:
    """Tells a tracer, by default the host's, of what happened."""

    def __init__(self, tracer: Any = None, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._tracer = trace.get_tracer("toolscout") if tracer is None else tracer
        self._clock = clock

    def on_event(self, event: Event) -> None:
        """Make one span of one event, which has just ended."""
        if not isinstance(event, Searched | Described | Called):
            return
        ended = self._clock()
        span = self._tracer.start_span(
            f"toolscout.{_name_span(event)}",
            start_time=ended - round(event.milliseconds * 1e6),
            attributes=_build_attributes(event),
        )
        span.end(ended)


class OptionalSpans:
    """The SDK's spans of a request, if somebody collects them or the client traces it itself.

    Of a client's trace, the SDK tells the server that is called.
    """

    def __init__(self, spans: ServerMiddleware[Any]) -> None:
        self._spans = spans
        self._fields = frozenset(get_global_textmap().fields)

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Pass a request on."""
        if has_collector() or not self._fields.isdisjoint(ctx.meta or ()):
            return await self._spans(ctx, call_next)
        return await call_next(ctx)


def _name_span(event: Searched | Described | Called) -> str:
    if isinstance(event, Called):
        return "call" if event.made else "refusal"
    return "search" if isinstance(event, Searched) else "describe"


def _build_attributes(event: Searched | Described | Called) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "toolscout.code": event.code,
        "toolscout.loaded": event.loaded,
        "toolscout.tokens": event.tokens,
    }
    if isinstance(event, Called):
        attributes["toolscout.tool"] = event.tool
    elif isinstance(event, Searched):
        attributes["toolscout.form"] = event.form
        attributes["toolscout.hits"] = event.hits
    return attributes


def has_collector() -> bool:
    """Tell whether the host has set up a collector: OpenTelemetry's API alone drops all spans."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
