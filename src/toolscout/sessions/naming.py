"""Which tool a model means by a name; one answer for description, gate and call (R2, R73).

A name that the caller may not see is answered like one that does not exist (R77).
"""

from toolscout.catalog import Catalog, ServerState, Status
from toolscout.errors import AmbiguousTool, ServerUnavailable, ToolDisabled, UnknownTool
from toolscout.names import near_names, one_line
from toolscout.sessions.session import Session
from toolscout.tools import Tool

AMBIGUOUS_SHOWN = 8
REASON_CHARS = 200
SERVER_CHARS = 60


def tool_named(session: Session, catalog: Catalog, name: object) -> Tool:
    """Return the tool that a name means, or raise the error that the model should read.

    Of several tools with the same short name, those that are not switched off count, and of
    these the one that is loaded.
    """
    text = name.strip() if isinstance(name, str) else ""
    meant = [tool for tool in catalog.resolve(text) if session.policy.knows(tool)]
    meant = [tool for tool in meant if not session.policy.why_disabled(tool)] or meant
    if len(meant) > 1:
        loaded = [tool for tool in meant if session.is_callable(tool)]
        meant = loaded if len(loaded) == 1 else meant
    if not meant:
        raise _absent(session, catalog, text)
    if len(meant) > 1:
        names = [tool.name for tool in meant]
        raise AmbiguousTool(one_line(text, 64), names[:AMBIGUOUS_SHOWN])
    reason = session.policy.why_disabled(meant[0])
    if reason:
        raise ToolDisabled(meant[0].name, reason)
    return meant[0]


def _absent(session: Session, catalog: Catalog, text: str) -> Exception:
    entry = session.record.entries.get(text)
    if entry is not None:
        return absent_server(entry.server, catalog.state(entry.server))
    return UnknownTool(
        one_line(text, 64), near_names(text[:200], (tool.name for tool in session.visible()))
    )


def unavailable(catalog: Catalog, tool: Tool) -> ServerUnavailable | None:
    """Return why a tool's server cannot take a call, or nothing; pending ones may be started."""
    state = catalog.state(tool.server)
    if state is None or state.status is not Status.FAILED:
        return None
    return absent_server(tool.server, state)


def absent_server(server: str, state: ServerState | None = None) -> ServerUnavailable:
    """Return the error of a server that is not there, in words that are safe to read."""
    name = one_line(server, SERVER_CHARS)
    if state is None:
        return ServerUnavailable(name, "not connected")
    return ServerUnavailable(name, state.status, one_line(state.reason, REASON_CHARS))
