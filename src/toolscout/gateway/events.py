"""The events that a gateway emits, in addition to those of its sessions.

All of them pass through `Gateway.events`. Metrics, spans, logs, the token ledger and the console
listen there. Changes of the tools are the catalogue's own news; see `Catalog.subscribe`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, cast

from toolscout.config.file import Config
from toolscout.gateway.middleware import Principal
from toolscout.gateway.pending import ApprovalRequest
from toolscout.options import list_options
from toolscout.schemas import Json
from toolscout.servers.approvals import ApprovalDecision
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


class LoginOutcome(StrEnum):
    """What became of a login."""

    STARTED = "started"
    OK = "ok"
    FAILED = "failed"
    NOT_NEEDED = "not needed"
    REMOVED = "removed"
    NOTICED = "noticed"
    """The gateway found the login of a server that needed one, and uses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginChanged(Event):
    """Somebody began, ended or removed a login at a server."""

    server: str
    outcome: LoginOutcome
    principal: str = ""
    """Whose login it is; empty for the one that everybody shares."""
    by: str = ""
    """Who did it, where that is somebody else than the principal."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRefused(Event):
    """Somebody sent a token that does not let them in."""

    source: str
    """The address that the request came from."""
    digest: str
    """The beginning of the SHA-256 of the token."""
    reason: str
    unnoted: int = 0
    """Refused tokens before this one that have no event, because there were too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChanged(Event):
    """A server changed a definition, or a person decided about a changed one."""

    server: str
    name: str
    """The name under which people approve it."""
    outcome: str
    """`held`, `allowed` or `denied` by the configuration; `approved` or `rejected` by a person."""
    digest: str = ""
    by: str = ""
    more: int = 0
    """Further definitions that changed at the same time and have no event."""

    @classmethod
    def from_decision(cls, decision: ApprovalDecision) -> Self:
        """Return what became of a definition as an event."""
        return cls(
            server=decision.server,
            name=decision.name,
            outcome=decision.outcome,
            digest=decision.digest,
            by=decision.by,
            more=decision.more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded(Event):
    """The gateway took over another configuration; the fields name what differs."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @classmethod
    def from_configs(cls, before: Config, after: Config) -> Self:
        """Return what differs between two configurations, such as `tokens.ci`."""
        old = dict(_list_reloaded(before))
        new = dict(_list_reloaded(after))
        return cls(
            added=tuple(name for name in new if name not in old),
            removed=tuple(name for name in old if name not in new),
            changed=tuple(name for name in new if name in old and new[name] != old[name]),
        )


def _list_reloaded(config: Config) -> Iterator[tuple[str, object]]:
    """Yield what a reload changes, by name."""
    for prefix, group in (("", config.gateway), ("sessions.", config.sessions)):
        for declared in list_options(type(group)):
            option = f"{prefix}{declared.name}"
            value: object = getattr(group, declared.name)
            if isinstance(value, Mapping):
                for name, part in cast("Mapping[str, Any]", value).items():
                    yield f"{option}.{name}", part
            else:
                yield option, value
    for server in config.servers:
        if not server.disabled:
            yield f"servers.{server.name}", server


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAction(Event):
    """A person did something to a server or a tool in the console."""

    action: str
    """Such as `stopped`, `switched off` or `changed`."""
    server: str
    tool: str = ""
    """By the name that it has on its server."""
    options: tuple[str, ...] = ()
    """Which options of the configuration changed; their values are in the file."""
    by: str


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
    """Who answered: the user of the client, or the person who decided about the waiting call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRead(Event):
    """A client has read a resource or got a prompt, or was refused."""

    name: str
    """The address or the name that the client used."""
    outcome: str
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDecided(Event):
    """A person decided about a call that waits in the store, in the console or on the command line.

    The call is made later, if at all: when the model repeats it.
    """

    request: ApprovalRequest
    """As it is stored now."""
