"""Events: what a scout did, as values that listeners subscribe to.

Metrics, traces, logs and the console all read one `EventStream`. An event's fields are counts,
codes, names and times, so that it may be logged as it is (R108); the reply that some carry is for
listeners in this process only and never part of an event's `repr`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from toolscout.sessions.replies import Reply

_log = logging.getLogger(__name__)

Defer = Callable[[Callable[[], None]], None]
"""Runs work that nobody waits for, at once or after the answer is sent."""


def run_now(work: Callable[[], None]) -> None:
    """Run work at once."""
    work()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened; `session` is empty where it concerns no session."""

    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Event):
    """A request of a session was answered (R106)."""

    code: str = "ok"
    loaded: int = 0
    """Tools that the reply made callable."""
    tokens: int = 0
    """Tokens of the reply; an estimate for the result of a call."""
    milliseconds: float = 0.0
    reply: Reply | None = field(default=None, repr=False, compare=False)
    """What the model read; None for a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched(Answered):
    """`tool_search` was answered."""

    form: str = ""
    """What the queries were: words, select, prefix, pattern, filter, invalid or mixed."""
    hits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(Answered):
    """`tool_describe` was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggested(Answered):
    """A user message was read for tools to suggest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called(Answered):
    """A tool was called, or the call was refused before it reached the tool."""

    tool: str = ""
    """Its exposed name; empty if the call named no tool of the catalogue."""
    server: str = ""
    effect: str = ""
    asked: str = field(default="", repr=False)
    """The name that the model used for a tool that it may not call or that does not exist."""
    rule: str = ""
    """The rule of the host that allowed or refused the call, if one did."""
    arguments: object = field(default=None, repr=False, compare=False)
    """As the model sent them."""
    made: bool = True
    """Whether the call reached the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran(Answered):
    """`tool_run` was answered; each call of the program has a separate event."""

    calls: int = 0
    """Calls of tools that the program made."""
    digest: str = ""
    """Of its source."""


Listener = Callable[[Event], None]


class EventStream:
    """Passes events on to all listeners; threads may share it.

    With `defer`, listeners run when the host sees fit, for example after an answer is sent.
    """

    def __init__(self, defer: Defer = run_now) -> None:
        self._defer = defer
        self.listeners: tuple[Listener, ...] = ()
        """Empty if nobody would notice an event; read it before making one."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return a function that ends this."""
        self.listeners = (*self.listeners, listener)

        def unsubscribe() -> None:
            self.listeners = tuple(one for one in self.listeners if one is not listener)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Pass an event on; a listener that raises is logged and costs nobody a reply."""
        if self.listeners:
            self._defer(partial(self._deliver, event))

    def _deliver(self, event: Event) -> None:
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                _log.exception("An event listener failed at %s.", type(event).__name__)
