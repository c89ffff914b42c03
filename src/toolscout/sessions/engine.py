"""`Engine`: everything that the sessions of one scout share.

`Scout` builds it once; every session and every verb reads from it. It holds no state of a
conversation.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from toolscout.calls.shapes import ResultShapes
from toolscout.catalog import Catalog
from toolscout.programs.workers import Workers
from toolscout.schemas import Json
from toolscout.search.index import SearchIndex
from toolscout.sessions.events import EventStream
from toolscout.sessions.prompt import ListingCache
from toolscout.sessions.usage import UsageLog
from toolscout.settings import Settings
from toolscout.stores.store import Store
from toolscout.tools import Tool

Executor = Callable[[Tool, Json], object | Awaitable[object]]
"""Runs a tool with checked arguments; may be asynchronous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What searches, describes and calls tools on behalf of sessions."""

    catalog: Catalog
    index: SearchIndex
    settings: Settings
    usage: UsageLog
    executors: Mapping[str, Executor]
    """By server; the scout may add to it at any time."""
    default_executor: Executor | None
    """Runs the tools of all other servers."""
    store: Store | None
    """Keeps sessions; without one they live as long as the scout."""
    result_store: Store
    """Keeps long results for reading on."""
    events: EventStream
    timer: Callable[[], float]
    """Seconds, for durations."""
    listings: ListingCache = field(default_factory=ListingCache)
    shapes: ResultShapes = field(default_factory=ResultShapes)
    """What results of tools look like."""
    workers: Workers = field(default_factory=Workers)
    """Run the programs of models."""
