"""`Delays`: how long the pool waits for what, in one place, so that a test can wait for less."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Seconds."""

    first_retry: float = 0.5
    """Before the first new start after a failure; doubled with each that follows."""
    most_retry: float = 60.0
    change: float = 0.2
    """How long notices of changed lists are gathered; doubled while they do not end."""
    most_change: float = 30.0
    idle_look: float = 1.0
    """Between two looks for servers that nobody uses."""
    login_look: float = 1.0
    """Between two looks for new tokens of servers that want a login."""
    gate: float = 3.0
    """How long one slow start keeps others from starting."""
    drain: float = 10.0
    """For running calls to end before their server is stopped."""
    exit: float = 2.0
    """For a process to end by itself once its input is closed."""
    kill: float = 2.0
    """Between asking a process to end and killing it."""
    rest: float = 0.2
    """For what a dead process wrote to arrive, and for its own children to end."""
