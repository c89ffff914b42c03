"""`Metrics`: what a gateway does, in numbers.

Hears events and lists, and gives Prometheus text and totals. It keeps no text of a request: names
of servers and tools and codes are all that tells one number from another (R108).
"""

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from toolscout.catalog import Catalog
from toolscout.gateway.tracing import Spans
from toolscout.schemas import Json
from toolscout.servers.pool import Phase, Pool
from toolscout.sessions.events import Answered, Called, Described, Event, Searched
from toolscout.tokens import count_all_definition_tokens, count_tokens
from toolscout.tools import Tool

MOST_TOOLS = 500
"""Tools that have numbers of their own; all further ones count as `OTHER`."""
OTHER = "other"
MOST_MENUS = 100
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
DEFINITIONS_HELP = "Tokens that all visible definitions would have cost, once for each list."


@dataclass(slots=True)
class _Menu:
    """What one kind of caller was listed, and what it would have been without toolscout."""

    tools: Sequence[Tool]
    listed: Sequence[Json]
    times: int = 0


class Metrics:
    """All numbers of one gateway; threads may share it."""

    def __init__(self, spans: Spans | None = None) -> None:
        self.registry = registry = CollectorRegistry()
        self._spans = spans or Spans()
        self._catalog: Catalog | None = None
        self._tools: set[str] = set()
        self._menus: dict[tuple[str, int], _Menu] = {}
        self._lock = threading.Lock()
        count = partial(Counter, registry=registry)
        timed = partial(Histogram, buckets=SECONDS, registry=registry)
        self._searches = count("toolscout_searches", "Searches.", ("code",))
        self._hits = count("toolscout_hits", "Tools that searches found.")
        self._describes = count("toolscout_describes", "Descriptions.", ("code",))
        self._loads = count("toolscout_loads", "Tools that were loaded.")
        self._calls = count("toolscout_calls", "Calls that ran.", ("server", "tool", "code"))
        self._refusals = count("toolscout_refusals", "Calls that were not made.", ("code",))
        self._search_seconds = timed("toolscout_search_seconds", "Time of a search.")
        self._call_seconds = timed("toolscout_call_seconds", "Time of a call.", ("server",))
        self._definitions = count("toolscout_definition_tokens", DEFINITIONS_HELP)
        self._listed = count("toolscout_listed_tokens", "Tokens of what was listed instead.")
        self._replies = count("toolscout_reply_tokens", "Tokens of toolscout's own replies.")
        registry.register(_Net(self))

    def watch(self, catalog: Catalog, pool: Pool) -> None:
        """Tell the servers of tools and the phases of servers from now on."""
        self._catalog = catalog
        self.registry.register(_Phases(pool))

    def hear(self, event: Event) -> None:
        """Count one event; made for `Gateway(on_event=...)`."""
        self._spans.hear(event)
        if not isinstance(event, Answered):
            return
        self._loads.inc(event.loaded)
        if isinstance(event, Called) and event.made:
            # The result of a call would be sent without toolscout too, so it costs nothing extra.
            self._count_call(event)
            return
        self._replies.inc(event.tokens)
        match event:
            case Searched():
                self._searches.labels(event.code).inc()
                self._hits.inc(event.hits)
                self._search_seconds.observe(event.milliseconds / 1e3)
            case Described():
                self._describes.labels(event.code).inc()
            case Called():
                self._refusals.labels(event.code).inc()
            case _:
                pass

    def note_list(
        self,
        caller: str,
        version: int,
        visible: Callable[[], Sequence[Tool]],
        listed: Sequence[Json],
    ) -> None:
        """Note that a caller was listed its tools, of a version of the catalogue.

        `visible` gives all that it may see. Tokens are counted when somebody looks at the
        numbers, because a list must not wait for it.
        """
        key = (caller, version)
        menu = self._menus.get(key) or _Menu(visible(), listed)
        with self._lock:
            if key not in self._menus and len(self._menus) >= MOST_MENUS:
                # Nobody looks at the numbers. An estimate is better than counting here.
                menu = next(reversed(self._menus.values()))
            else:
                menu = self._menus.setdefault(key, menu)
            menu.times += 1

    def render(self) -> bytes:
        """Return all numbers in Prometheus' text format."""
        self._settle()
        return generate_latest(self.registry)

    def count_totals(self) -> Json:
        """Return the sums that a person wants to see."""
        self._settle()
        names = ("searches", "hits", "describes", "loads", "calls", "refusals")
        sums = {name: round(self._sum(f"toolscout_{name}_total")) for name in names}
        failed = self._sum("toolscout_calls_total") - self._sum("toolscout_calls_total", code="ok")
        return {
            **sums,
            "failed_calls": round(failed),
            "tokens_not_sent": self.count_tokens_not_sent(),
        }

    def count_tokens_not_sent(self) -> int:
        """Return the tokens that clients were spared; below 0 where replies cost more."""
        definitions = self._sum("toolscout_definition_tokens_total")
        listed = self._sum("toolscout_listed_tokens_total")
        return round(definitions - listed - self._sum("toolscout_reply_tokens_total"))

    def _count_call(self, event: Called) -> None:
        tool = self._catalog.get(event.tool) if self._catalog is not None else None
        server = tool.server if tool is not None else ""
        self._calls.labels(server, self._label(event.tool), event.code).inc()
        self._call_seconds.labels(server).observe(event.milliseconds / 1e3)

    def _label(self, tool: str) -> str:
        with self._lock:
            if tool not in self._tools and len(self._tools) >= MOST_TOOLS:
                return OTHER
            self._tools.add(tool)
            return tool

    def _settle(self) -> None:
        """Count the tokens of all lists since the last time."""
        with self._lock:  # not for longer: events must not wait while tokens are counted
            menus, self._menus = self._menus, {}
        for menu in menus.values():
            tools = [tool for tool in menu.tools if tool.kind == "tool"]
            self._definitions.inc(menu.times * count_all_definition_tokens(tools))
            self._listed.inc(menu.times * sum(map(_count_listed_tokens, menu.listed)))

    def _sum(self, name: str, **labels: str) -> float:
        collectors = (self._searches, self._hits, self._describes, self._loads, self._calls)
        tokens = (self._refusals, self._definitions, self._listed, self._replies)
        samples = (
            sample
            for collector in (*collectors, *tokens)
            for metric in collector.collect()
            for sample in metric.samples
        )
        return sum(
            sample.value
            for sample in samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def _count_listed_tokens(definition: Json) -> int:
    # The same parts as in `definition_tokens`, so that the two can be compared.
    told = {key: definition.get(key) for key in ("name", "description", "inputSchema")}
    return count_tokens(json.dumps(told, ensure_ascii=False, separators=(",", ":")))


class _Net:
    """The tokens that were not sent; they may fall, so they are no counter."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        text = "Definition tokens less listed and reply tokens."
        value = self._metrics.count_tokens_not_sent()
        yield GaugeMetricFamily("toolscout_tokens_not_sent", text, value=value)


class _Phases:
    """How many servers are in each phase."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("toolscout_servers", "Servers by phase.", labels=["phase"])
        phases = [member.phase for member in self._pool.servers.values()]
        for phase in Phase:
            family.add_metric([phase.value], phases.count(phase))
        yield family
