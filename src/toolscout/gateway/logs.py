"""The gateway's log: to stderr, as text or JSON, without secrets, by request.

Every line that is written while a request is answered carries that request's name: a digest of
the session and the client's own id, by which it can be matched with the client's log.
"""

import hashlib
import json
import logging
import sys
from contextvars import ContextVar

from toolscout.config.gateway import LogFormat
from toolscout.config.secrets import SecretMask
from toolscout.sessions.events import Called, Described, Event, Searched

TEXT = "%(asctime)s %(levelname)s %(name)s%(place)s: %(message)s"

CURRENT_REQUEST: ContextVar[tuple[str, object] | None] = ContextVar("request", default=None)
"""Session and id of the request that is being answered."""
_log = logging.getLogger("toolscout.sessions.metatools")


def _name_request() -> str:
    """Return the name of the request that is being answered; few requests log a line."""
    current = CURRENT_REQUEST.get()
    if current is None:
        return ""
    session, request = current
    digest = hashlib.blake2b(session.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{digest}-{request}"


def log_event(event: Event) -> None:
    """Log one search, description, call or refusal: counts and codes, no text (R108).

    What went well is for those who look closely; the rest is for every operator.
    """
    match event:
        case Searched():
            kind, what = "search", event.form
        case Described():
            kind, what = "describe", ""
        case Called():
            kind, what = "call" if event.made else "refusal", event.tool
        case _:
            return
    level = logging.DEBUG if event.code == "ok" else logging.INFO
    _log.log(level, "%s %s %s %.1f ms", kind, what or "-", event.code, event.milliseconds)


def log_to_stderr(form: LogFormat, level: str, mask: SecretMask) -> None:
    """Set up the log of this process, without the secrets that the mask knows.

    Update the mask when the configuration is reloaded.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(mask) if form is LogFormat.JSON else _Text(mask))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # The one tells too much, the other writes whole addresses, in which secrets may stand.
    for name in ("mcp", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _Text(logging.Formatter):
    """One line for people; a traceback follows on lines of its own."""

    def __init__(self, mask: SecretMask) -> None:
        super().__init__(TEXT)
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        request = _name_request()
        record.place = f" [{request}]" if request else ""
        return self._mask.apply(super().format(record))


class _Json(logging.Formatter):
    """One object to a line."""

    def __init__(self, mask: SecretMask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "request": _name_request(),
            "message": self._mask.apply(record.getMessage()),
        }
        if record.exc_info:
            line["traceback"] = self._mask.apply(self.formatException(record.exc_info))
        return json.dumps({key: value for key, value in line.items() if value}, ensure_ascii=False)
