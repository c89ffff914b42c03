"""`Admission`: a call that has passed the gate and may be made once.

The scout gives it; whoever runs the tool reads it. A host that runs its tools itself makes the
call with these arguments and tells the session how it went.
"""

from dataclasses import dataclass

from toolscout.schemas import Json
from toolscout.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Which tool may be run, and with what."""

    tool: Tool
    arguments: Json
    """Checked against the tool's schema, and repaired where that was harmless."""
    repairs: tuple[str, ...] = ()
    """What was changed, one sentence each."""
    unchecked: str = ""
    """What could not be checked; empty if all was."""
    started: float = 0.0
    """When it was asked for, by the scout's timer."""

    @property
    def notes(self) -> list[str]:
        """What a host says of the repairs before the result, one line each."""
        return [f"({repair})" for repair in self.repairs]
