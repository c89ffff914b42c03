"""The gateway's log: text or JSON on stderr or in a file, with secrets masked.

Lines that are logged while the gateway answers a request name that request: a digest of the session
and the client's own request id, so that they can be matched with the client's log. Lines about
access and servers consist of fields, which the JSON form has as keys of their own. `Spans` sends
searches, descriptions and calls to the host's OpenTelemetry collector instead.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from opentelemetry import trace

from toolscout.config.gateway import LogFormat
from toolscout.config.secrets import SecretMask
from toolscout.gateway.events import (
    LoginChanged,
    LoginOutcome,
    Reloaded,
    ServerChanged,
    TokenRefused,
)
from toolscout.names import digest_session, to_one_line
from toolscout.servers.state import Phase
from toolscout.sessions.events import Called, Described, Event, Ran, Searched

CURRENT_REQUEST: ContextVar[tuple[str, object] | None] = ContextVar("request", default=None)
"""Session and id of the current request."""
ID_CHARS = 60
FIELD_CHARS = 500
LOG_BYTES = 2 << 20
"""A longer file is kept as the one before, and a new one begun."""
OWN = "toolscout"
"""The loggers whose further fields the JSON form has."""
_USUAL = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime", "place"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_log = logging.getLogger("toolscout.requests")


def _name_request() -> str:
    """Return the name of the current request, or an empty string."""
    current = CURRENT_REQUEST.get()  # named here, not for every request: few log a line
    if current is None:
        return ""
    session, request = current
    return f"{digest_session(session)}-{to_one_line(str(request), ID_CHARS)}"


def log_event(event: Event) -> None:
    """Log one search, description, call, program or refusal: counts and codes, no text (R108).

    Success is logged at level DEBUG, everything else at INFO. Failed servers and refused tokens
    are logged at WARNING.
    """
    subject = ""
    match event:
        case Searched():
            kind = "search"
            subject = event.form
        case Described():
            kind = "describe"
        case Called():
            kind = "call" if event.made else "refusal"
            subject = event.tool
        case Ran():
            kind = "program"
            subject = f"{event.calls} calls"
        case ServerChanged(phase=Phase.FAILED | Phase.NEEDS_LOGIN):
            fields = {"server": event.server, "phase": event.phase.value, "reason": event.reason}
            _log_fields(logging.WARNING, "server", fields)
            return
        case TokenRefused():
            fields = {"source": event.source, "digest": event.digest, "reason": event.reason}
            _log_fields(logging.WARNING, "token refused", fields | {"unnoted": event.unnoted})
            return
        case LoginChanged():
            level = logging.WARNING if event.outcome is LoginOutcome.FAILED else logging.INFO
            fields = {"server": event.server, "outcome": event.outcome.value}
            fields |= {"principal": event.principal, "reason": event.reason}
            _log_fields(level, "login", fields)
            return
        case Reloaded():
            names = {"added": event.added, "removed": event.removed, "changed": event.changed}
            fields = {key: ",".join(value) for key, value in names.items()}
            _log_fields(logging.INFO, "reload", fields)
            return
        case _:
            return
    level = logging.DEBUG if event.code == "ok" else logging.INFO
    _log.log(level, "%s %s %s %.1f ms", kind, subject or "-", event.code, event.milliseconds)


def _log_fields(level: int, what: str, fields: Mapping[str, object]) -> None:
    """Log fields that are not empty, quoted where they contain a blank."""
    given = {key: to_one_line(str(value), FIELD_CHARS) for key, value in fields.items() if value}
    parts = [f"{key}={_quote(value)}" for key, value in given.items()]
    _log.log(level, "%s", " ".join([what, *parts]), extra=given)


def _quote(value: str) -> str:
    return json.dumps(value, ensure_ascii=False) if set(value) & {" ", '"', "="} else value


def set_up_log(form: LogFormat, level: str, mask: SecretMask, file: Path | None = None) -> None:
    """Log to stderr or a file; callers update the mask when they reload their secrets."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler = RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
    handler.setFormatter(_Json(mask) if form is LogFormat.JSON else _Text(mask))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger(OWN).setLevel(level)
    if logging.getLogger().level < logging.INFO:
        # Below that level, libraries log whole results.
        logging.getLogger().setLevel(logging.INFO)
    # mcp logs too much, and httpx2 logs whole URLs, which may contain secrets.
    for name in ("mcp", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _Text(logging.Formatter):
    """Formats a record as one line of text; a traceback follows on lines of its own."""

    def __init__(self, mask: SecretMask) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(place)s: %(message)s")
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        request = _name_request()
        record.place = f" [{request}]" if request else ""
        return self._mask.apply(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # the library's name
        return _escape(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # the library's name
        return "\n".join(map(_escape, super().formatException(ei).split("\n")))


class _Json(_Text):
    """Formats a record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "request": _name_request(),
            "message": self._mask.apply(record.getMessage()),
        }
        if record.name.partition(".")[0] == OWN:
            further = record.__dict__.keys() - _USUAL - line.keys()
            line |= {key: self._mask.apply(str(record.__dict__[key])) for key in sorted(further)}
        if record.exc_info:
            line["traceback"] = self._mask.apply(self.formatException(record.exc_info))
        text = json.dumps({key: value for key, value in line.items() if value}, ensure_ascii=False)
        return _escape(text)


def _escape(text: str) -> str:
    """Return a text that begins no line of its own and does not command a terminal."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


class Spans:
    """Creates OpenTelemetry spans with a tracer, by default the host's.

    A span holds counts, codes and tool names, as its event does, and no text (R108).
    """

    def __init__(self, tracer: Any = None, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._tracer = trace.get_tracer("toolscout") if tracer is None else tracer
        self._clock = clock

    def on_event(self, event: Event) -> None:
        """Create a span for an event that has just ended."""
        if not isinstance(event, Searched | Described | Called | Ran):
            return
        attributes: dict[str, str | int] = {
            "toolscout.code": event.code,
            "toolscout.loaded": event.loaded,
            "toolscout.tokens": event.tokens,
        }
        match event:
            case Searched():
                name = "search"
                attributes["toolscout.form"] = event.form
                attributes["toolscout.hits"] = event.hits
            case Described():
                name = "describe"
            case Called():
                name = "call" if event.made else "refusal"
                attributes["toolscout.tool"] = event.tool
            case Ran():
                name = "program"
                attributes["toolscout.calls"] = event.calls
        ended = self._clock()
        started = ended - round(event.milliseconds * 1e6)
        span = self._tracer.start_span(
            f"toolscout.{name}", start_time=started, attributes=attributes
        )
        span.end(ended)
