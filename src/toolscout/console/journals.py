"""`Journal`: what one conversation did, as far back as a person wants to look.

Hears the gateway's events and reads its replies, because events hold no text. What a query said
is kept in memory only, and hashed where the configuration says so.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from toolscout.console.clocks import told_time
from toolscout.events import Event
from toolscout.gateway.auth import Principal
from toolscout.names import one_line
from toolscout.schemas import Json
from toolscout.sessions.replies import Reply

EVENTS_KEPT = 500
TEXT_CHARS = 500
FOUND_TOLD = 20
TOLD = ("search", "describe", "call", "load", "refusal", "suggest")
OWN_REPLIES = ("search", "describe", "suggest", "refusal")
"""Events whose replies exist because of toolscout."""


@dataclass(slots=True, kw_only=True)
class Happening:
    """One event of a conversation."""

    time: float
    kind: str
    code: str
    text: str = ""
    tool: str = ""
    hits: int = 0
    found: tuple[str, ...] = ()
    milliseconds: float = 0.0
    tokens: int = 0

    def row(self) -> Json:
        """Return it for JSON."""
        return {
            "time": told_time(self.time),
            "kind": self.kind,
            "text": self.text,
            "tool": self.tool,
            "hits": self.hits,
            "found": list(self.found),
            "code": self.code,
            "milliseconds": round(self.milliseconds, 3),
            "tokens": self.tokens,
        }


def _no_happenings() -> deque[Happening]:
    return deque(maxlen=EVENTS_KEPT)


@dataclass(slots=True, kw_only=True)
class Journal:
    """One conversation; its owner sees to it that one thread writes at a time."""

    id: str
    """As the API names it; the gateway's own name may let somebody take the session over."""
    principal: Principal
    client: str
    started: float
    active: float
    searches: int = 0
    calls: int = 0
    replies: int = 0
    """Tokens of toolscout's own replies."""
    menus: int = 0
    """Tokens of the lists that it was sent."""
    spared: int = 0
    """Tokens of the definitions that it was not sent."""
    happenings: deque[Happening] = field(default_factory=_no_happenings)

    def hear(self, event: Event, now: float) -> Happening:
        """Take note of an event."""
        self.active = now
        self.searches += event.kind == "search"
        self.calls += event.kind == "call"
        self.replies += event.tokens if event.kind in OWN_REPLIES else 0
        happening = Happening(
            time=now,
            kind=event.kind,
            code=event.code,
            tool=event.form if event.kind in ("call", "refusal") else "",
            hits=event.hits or event.loaded,
            milliseconds=event.milliseconds,
            tokens=event.tokens,
        )
        self.happenings.append(happening)
        return happening

    def read(self, reply: Reply, shown: Callable[[str], str]) -> Happening | None:
        """Add what a reply says to the event that told of it; return that event.

        `shown` gives a query as it may be kept.
        """
        queries = reply.details.get("queries")
        kind = "search" if queries is not None else "describe"
        happening = next((h for h in reversed(self.happenings) if h.kind == kind), None)
        if happening is None:
            return None
        if queries is not None:
            texts = [one_line(shown(str(row["query"])), TEXT_CHARS) for row in queries]
            happening.text = one_line(" · ".join(texts), TEXT_CHARS)
            found = dict.fromkeys(hit.tool.name for hit in (*reply.hits, *reply.known))
        else:
            found = dict.fromkeys(map(str, reply.details.get("described", ())))
            happening.text = one_line(", ".join(found), TEXT_CHARS)
        happening.found = tuple(found)[:FOUND_TOLD]
        return happening

    @property
    def used(self) -> int:
        """Tokens that toolscout itself cost."""
        return self.menus + self.replies

    def row(self, loaded: int) -> Json:
        """Return it for a list; `loaded` is how many tools it has."""
        return {
            "id": self.id,
            "client": self.client,
            "principal": self.principal.name,
            "started": told_time(self.started),
            "active": told_time(self.active),
            "searches": self.searches,
            "calls": self.calls,
            "loaded": loaded,
            "tokens_used": self.used,
            "tokens_saved": self.spared - self.used,
        }
