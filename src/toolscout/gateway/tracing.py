"""`Spans`: searches, descriptions and calls as OpenTelemetry spans.

A span holds counts, codes and tool names, as its event does, and no text (R108). The host sets up
the collector.
"""

import time
from collections.abc import Callable
from typing import Any

from opentelemetry import trace

from toolscout.sessions.events import Called, Described, Event, Searched


class Spans:
    """Creates spans with a tracer, by default the host's."""

    def __init__(self, tracer: Any = None, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._tracer = trace.get_tracer("toolscout") if tracer is None else tracer
        self._clock = clock

    def on_event(self, event: Event) -> None:
        """Create a span for an event that has just ended."""
        if not isinstance(event, Searched | Described | Called):
            return
        attributes: dict[str, str | int] = {
            "toolscout.code": event.code,
            "toolscout.loaded": event.loaded,
            "toolscout.tokens": event.tokens,
        }
        match event:
            case Searched():
                name = "search"
                attributes["toolscout.form"] = event.form
                attributes["toolscout.hits"] = event.hits
            case Described():
                name = "describe"
            case Called():
                name = "call" if event.made else "refusal"
                attributes["toolscout.tool"] = event.tool
        ended = self._clock()
        started = ended - round(event.milliseconds * 1e6)
        span = self._tracer.start_span(
            f"toolscout.{name}", start_time=started, attributes=attributes
        )
        span.end(ended)
