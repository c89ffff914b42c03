"""The events that a gateway emits, in addition to those of its sessions.

All of them pass through `Gateway.events`. Metrics, spans, logs, the token ledger and the console
listen there. Changes of the tools are the catalogue's own news; see `Catalog.subscribe`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from toolscout.gateway.middleware import Principal
from toolscout.schemas import Json
from toolscout.servers.state import Phase
from toolscout.sessions.events import Event
from toolscout.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested(Event):
    """A client sent a request, and the gateway is about to answer it."""

    principal: Principal
    client: str = ""
    """Name and version of the client program, if it sent them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Event):
    """The gateway sent a client its list of tools.

    Counting tokens takes time, so the event carries the definitions and the ledger counts later.
    """

    principal: str
    version: int
    """The version of the catalogue at the time."""
    definitions: Sequence[Json] = field(repr=False)
    """The definitions that the gateway sent."""
    tools: Sequence[Tool] = field(repr=False)
    """All tools that the client may see. Without toolscout it would have received them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChanged(Event):
    """A server entered another phase."""

    server: str
    phase: Phase
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(Event):
    """A server wrote a line to its log."""

    server: str
    line: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswered(Event):
    """A person was asked about a call, and answered."""

    tool: str
    server: str
    rule: str
    outcome: str
    by: str
    """Whoever answered: the user of the client, or somebody at the command line."""
