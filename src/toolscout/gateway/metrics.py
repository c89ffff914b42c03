"""`Metrics`: what a gateway does, counted, as Prometheus text and as totals.

It listens to the gateway's events and reads the token ledger. It keeps no text of any request:
labels hold only names of servers and tools, and reply codes (R108). `build_readiness` and
`build_status` report on the servers, as plain values for JSON.
"""

import asyncio
import platform
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from toolscout.gateway.gateway import Gateway
from toolscout.schemas import Json
from toolscout.servers.diagnosis import choose_error_lines
from toolscout.servers.state import Phase, ServerState
from toolscout.sessions.events import Answered, Called, Described, Event, Ran, Searched

LABELLED_TOOLS = 500
"""Tools that have a label of their own; all further ones are counted as `OTHER`."""
OTHER = "other"
LINES_SHOWN = 10
OWNERS_SHOWN = 20
"""Sessions and principals with a connection of their own that are named."""
VERSIONS = {
    "toolscout": version("toolscout"),
    "mcp": version("mcp"),
    "python": platform.python_version(),
}
CALL_LABELS = ("server", "tool", "code")
LOOP_SECONDS = 0.5
"""How often the delay of the event loop is measured."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one gateway; safe to share between threads."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._tools: set[str] = set()
        self._lock = threading.Lock()
        self.registry = registry = CollectorRegistry()
        count = partial(Counter, registry=registry)
        timed = partial(Histogram, buckets=SECONDS, registry=registry)
        self._searches = count("toolscout_searches", "Searches, by `code` of the reply.", ("code",))
        self._hits = count("toolscout_hits", "Tools that searches found.")
        self._describes = count("toolscout_describes", "Descriptions, by `code`.", ("code",))
        self._loads = count("toolscout_loads", "Tools that were loaded.")
        self._calls = count(
            "toolscout_calls", "Calls that ran, by `server`, `tool` and `code`.", CALL_LABELS
        )
        self._refusals = count(
            "toolscout_refusals", "Calls that were not made, by `code`.", ("code",)
        )
        self._search_seconds = timed("toolscout_search_seconds", "Time of a search.")
        self._call_seconds = timed(
            "toolscout_call_seconds", "Time of a call, by `server`.", ("server",)
        )
        self._programs = count("toolscout_programs", "Programs, by `code`.", ("code",))
        self._program_seconds = timed("toolscout_program_seconds", "Time of a program.")
        self._loop_delay = timed(
            "toolscout_loop_delay_seconds", "How late the event loop runs what is due."
        )
        gauge = partial(Gauge, registry=registry)
        self._ready = gauge("toolscout_ready", "1 if the gateway is ready, as `/readyz` says.")
        self._store_available = gauge("toolscout_store_available", "1 if the store answers.")
        self._running_requests = gauge(
            "toolscout_running_requests", "HTTP requests that are being answered."
        )
        self._open_streams = gauge("toolscout_open_streams", "Streams that clients keep open.")
        self._sessions = gauge("toolscout_sessions", "Sessions in memory.")
        Info("toolscout", "Versions of toolscout, the MCP SDK and Python.", registry=registry).info(
            VERSIONS
        )
        ProcessCollector(registry=registry)
        registry.register(self)
        gateway.events.subscribe(self.on_event)

    def on_event(self, event: Event) -> None:
        """Count an event."""
        if not isinstance(event, Answered):
            return
        self._loads.inc(event.loaded)
        match event:
            case Searched():
                self._searches.labels(event.code).inc()
                self._hits.inc(event.hits)
                self._search_seconds.observe(event.milliseconds / 1e3)
            case Described():
                self._describes.labels(event.code).inc()
            case Called(made=True):
                server = event.server
                self._calls.labels(server, self._label(event.tool), event.code).inc()
                self._call_seconds.labels(server).observe(event.milliseconds / 1e3)
            case Called():
                self._refusals.labels(event.code).inc()
            case Ran():
                self._programs.labels(event.code).inc()
                self._program_seconds.observe(event.milliseconds / 1e3)
            case _:
                pass

    def update(
        self,
        *,
        ready: bool,
        store_available: bool,
        running_requests: int,
        open_streams: int,
        sessions: int,
    ) -> None:
        """Set the figures that only the HTTP side of a gateway knows."""
        self._ready.set(ready)
        self._store_available.set(store_available)
        self._running_requests.set(running_requests)
        self._open_streams.set(open_streams)
        self._sessions.set(sessions)

    async def watch_loop(self) -> None:
        """Measure how late the event loop runs what is due, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_SECONDS
            await asyncio.sleep(LOOP_SECONDS)
            self._loop_delay.observe(max(0.0, loop.time() - due))

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def count_totals(self) -> Json:
        """Return the totals that `/status` and the console show."""
        calls = _sum(self._calls)
        return {
            "searches": _sum(self._searches),
            "hits": _sum(self._hits),
            "describes": _sum(self._describes),
            "loads": _sum(self._loads),
            "calls": calls,
            "refusals": _sum(self._refusals),
            "failed_calls": calls - _sum(self._calls, code="ok"),
            "tokens_not_sent": self._gateway.ledger.get_total().net,
        }

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics that are kept elsewhere: the ledger's tokens and the pool's servers."""
        total = self._gateway.ledger.get_total()
        for name, text, value in (
            ("definition", "Tokens of all visible definitions, for each list.", total.not_sent),
            ("listed", "Tokens of what was listed instead.", total.menu),
            ("reply", "Tokens of toolscout's own replies.", total.used - total.menu),
        ):
            yield CounterMetricFamily(f"toolscout_{name}_tokens", text, value=value)
        # The net can fall, so it is a gauge and not a counter.
        net = "Definition tokens less listed and reply tokens."
        yield GaugeMetricFamily("toolscout_tokens_not_sent", net, value=total.net)
        tools = self._gateway.catalog.count_tools().total()
        yield GaugeMetricFamily("toolscout_tools", "Tools in the catalogue.", value=tools)
        store = self._gateway.store
        text = "Changes that are not stored yet."
        yield GaugeMetricFamily("toolscout_store_unwritten", text, value=store.pending)
        text = "Changes that were dropped because the store was away or too slow."
        yield CounterMetricFamily("toolscout_store_lost", text, value=store.dropped)
        family = GaugeMetricFamily("toolscout_servers", "Servers, by `phase`.", labels=["phase"])
        phases = [server.phase for server in self._gateway.pool.servers.values()]
        for phase in Phase:
            family.add_metric([phase.value], phases.count(phase))
        yield family
        text = "Open connections, by `server`, of one session or principal or shared by all."
        family = GaugeMetricFamily("toolscout_connections", text, labels=["server"])
        for server in self._gateway.pool.servers.values():
            family.add_metric([server.name], len(server.connected))
        yield family

    def _label(self, tool: str) -> str:
        with self._lock:
            if tool not in self._tools and len(self._tools) >= LABELLED_TOOLS:
                return OTHER
            self._tools.add(tool)
            return tool


def _sum(counter: Counter, **labels: str) -> int:
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    values = [
        sample.value
        for sample in samples
        if sample.name.endswith("_total") and labels.items() <= sample.labels.items()
    ]
    return round(sum(values))


def build_readiness(gateway: Gateway, *, now: float) -> Json:
    """Return whether the gateway is ready: whether searches cover the tools of all servers.

    A server is pending until its first start has succeeded or failed. It keeps the gateway from
    being ready for its `start_seconds` at most, because an installation may take many minutes,
    and not at all once it has failed, however often it is started again.
    """
    members = gateway.pool.servers.values()
    pending = [member for member in members if member.is_learning]
    return {
        "ready": all(now - member.since >= member.config.start_seconds for member in pending),
        "servers": len(members),
        "pending": len(pending),
        "failed": sum(member.phase is Phase.FAILED for member in members),
        "tools": gateway.catalog.count_tools().total(),
    }


def build_status(gateway: Gateway, totals: Json, *, now: float, wall: datetime) -> Json:
    """Return all servers and totals; `now` is the event loop's time and `wall` the date."""
    tools = gateway.catalog.count_tools()
    members = gateway.pool.servers
    return {
        "ready": build_readiness(gateway, now=now)["ready"],
        "mode": gateway.config.gateway.mode.value,
        "servers": [
            _describe_server(
                members[name], tools[name], wall - timedelta(seconds=now - members[name].since)
            )
            for name in sorted(members)
        ],
        "totals": {"tools": tools.total(), **totals},
        "versions": VERSIONS,
    }


def _describe_server(member: ServerState, tools: int, since: datetime) -> Json:
    config = member.config
    lines = list(member.lines)[-LINES_SHOWN:]
    states = member.all_states
    owners = [state.owner for state in member.connected if state.owner is not None]
    if member.phase is Phase.FAILED:
        lines = choose_error_lines(member.lines, LINES_SHOWN)
    problems = member.problems
    reason, *quoted = config.quote_all([member.reason, *problems, *lines])
    return {
        "name": config.name,
        "transport": config.transport.value,
        "phase": member.phase.value,
        "meaning": member.phase.meaning,
        # A server that was never started has not entered a phase at any time.
        "since": since.astimezone(UTC).isoformat(timespec="seconds") if member.since else None,
        "reason": reason,
        "starts": sum(state.starts for state in states),
        "failures": member.failures,
        "connections": len(member.connected),
        "owners": [owner.label for owner in owners[:OWNERS_SHOWN]],
        "running": sum(state.running for state in states),
        "waiting": sum(state.waiting for state in states),
        "tools": tools,
        "held": member.undecided,
        "problems": quoted[: len(problems)],
        "lines": quoted[len(problems) :],
    }
