"""`Finding`: one thing that makes a tool hard to find, and what mends it."""

from dataclasses import dataclass
from enum import StrEnum

from toolscout.schemas import Json


class Severity(StrEnum):
    """How bad a finding is, mildest first."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Higher is worse."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule says about one tool."""

    tool: str
    """The exposed name."""
    code: str
    """Which rule; stays the same between versions."""
    severity: Severity
    message: str
    remedy: str
    others: tuple[str, ...] = ()
    """Exposed names of other tools that have a part in it."""

    def to_json(self) -> Json:
        """Return the finding as plain JSON."""
        return {
            "tool": self.tool,
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "remedy": self.remedy,
            "others": list(self.others),
        }
