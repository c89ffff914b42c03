"""`Event`: one line of what happened, for metrics and logs.

Holds counts, codes and times only: no query, argument or result text, so that it may be logged
(R108).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One search, load, description, call or refusal (R106)."""

    kind: str
    """`search`, `load`, `describe`, `suggest`, `call` or `refusal`."""
    session: str
    code: str = "ok"
    form: str = ""
    """Of a search: words, select, prefix, pattern, filter or mixed; of a call: the tool's name."""
    hits: int = 0
    loaded: int = 0
    tokens: int = 0
    """Of the reply; of a call whose result is long, an estimate."""
    milliseconds: float = 0.0
