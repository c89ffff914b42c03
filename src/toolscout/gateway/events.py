"""Events of a gateway, in addition to those of its sessions.

All of them pass through `Gateway.events`. Metrics, spans, logs, the token ledger, the console and
the subscriptions of clients are listeners there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from toolscout.catalog import Catalog, Change
from toolscout.gateway.middleware import Principal
from toolscout.schemas import Json
from toolscout.servers.state import Phase
from toolscout.sessions.events import Event, EventStream
from toolscout.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested(Event):
    """A client sent a request, which is about to be answered."""

    principal: Principal
    client: str = ""
    """Name and version of the program, if it gave them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Event):
    """A client was sent its list of tools.

    Counting tokens takes time, so the event carries what to count and the ledger counts later.
    """

    principal: str
    version: int
    """The version of the catalogue that was listed."""
    definitions: Sequence[Json] = field(repr=False)
    """What was sent."""
    tools: Sequence[Tool] = field(repr=False)
    """Everything that the client may see, which it would have been sent without toolscout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChanged(Event):
    """A server entered another phase."""

    server: str
    phase: Phase
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanged(Event):
    """Tools were added, removed or replaced."""

    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(Event):
    """A server wrote a line to its log."""

    server: str
    line: str = field(repr=False)


def emit_changes(catalog: Catalog, events: EventStream) -> Callable[[], None]:
    """Emit `CatalogChanged` for every change of a catalogue; return a function that ends this."""
    return catalog.subscribe(lambda change: events.emit(CatalogChanged(change=change)))
