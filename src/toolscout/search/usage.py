"""What became of a call: the record that feedback and statistics are made of.

Values only. Who keeps them and for how long is decided elsewhere; so is whether a query is kept
as it was or hashed. The time is told, not looked up.
"""

import hashlib
import json
import math
import re
from dataclasses import dataclass, fields

OK = "ok"

_HASHED = re.compile(r"#[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One call of one tool."""

    session: str
    query: str
    """What was searched for before, as it was or hashed; empty if nothing was."""
    tool: str
    """The exposed name."""
    code: str
    """`ok`, or the code of the error."""
    at: float
    """Seconds since the epoch."""

    @property
    def succeeded(self) -> bool:
        """Whether the tool did what it was called for."""
        return self.code == OK


_MEMBERS = tuple(member.name for member in fields(Usage))


def usage_to_bytes(usage: Usage) -> bytes:
    """Return a usage as JSON."""
    row = {name: getattr(usage, name) for name in _MEMBERS}
    return json.dumps(row, separators=(",", ":")).encode()


def usage_from_bytes(data: bytes) -> Usage | None:
    """Return the usage that JSON holds, or None for anything else; unknown members are ignored."""
    try:
        row = json.loads(data)
        texts = [row[name] for name in ("session", "query", "tool", "code")]
        at = row["at"]
        is_time = isinstance(at, int | float) and not isinstance(at, bool) and math.isfinite(at)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
        return None
    if not is_time or not all(isinstance(text, str) for text in texts):
        return None
    session, query, tool, code = texts
    return Usage(session=session, query=query, tool=tool, code=code, at=float(at))


def hashed(query: str) -> str:
    """Return a query as `#` and 16 hexadecimal digits; case and blanks make no difference.

    What is hashed already stays as it is.
    """
    if is_hashed(query):
        return query
    plain = " ".join(query.casefold().split())
    return "#" + hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_hashed(query: str) -> bool:
    """Tell whether a query is kept as its hash."""
    return _HASHED.fullmatch(query) is not None
