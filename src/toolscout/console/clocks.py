"""How the console writes times: in UTC, to the millisecond, as RFC 3339 has it."""

from datetime import UTC, datetime

HOUR_SECONDS = 3_600


def told_time(seconds: float) -> str:
    """Return a time in seconds since 1970 as text."""
    told = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def hour_of(seconds: float) -> int:
    """Return the number of an hour since 1970."""
    return int(seconds // HOUR_SECONDS)
