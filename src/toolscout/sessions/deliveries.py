"""How the answer to a search reaches the model: as text, as references, or as definitions.

Takes a session and what a verb replied; gives the reply in the form of the session's mode. What was
found and loaded is decided before; the shape on the wire is the dialect's.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from toolscout.names import one_line
from toolscout.sessions.replies import Reply
from toolscout.sessions.session import Session
from toolscout.settings import Mode
from toolscout.tools import Effect, Tool

NOTE_CHARS = 1_000
"""Providers limit descriptions."""


def delivered(session: Session, reply: Reply, *, searched: bool) -> Reply:
    """Return a reply as the session's mode has it go to the model."""
    match session.settings.mode:
        case Mode.REFERENCE:
            return replace(reply, by_reference=True)
        case Mode.DEFINITIONS if searched:
            told = _definitions(session, reply)
            note_delivered(session, told)
            return replace(reply, definitions=(*told,) or (_note(reply),))
        case _:
            return reply


def note_delivered(session: Session, tools: Iterable[Tool]) -> None:
    """Note that the conversation's items hold the definitions of these tools."""
    if session.settings.mode is Mode.DEFINITIONS:
        for tool in tools:
            session.record.show(tool)


def _definitions(session: Session, reply: Reply) -> list[Tool]:
    """Return what a search made callable, and of the rest what the items lack.

    A tool that was loaded otherwise, or whose definition was dropped from the conversation, is
    delivered again; so is one that is all that was found. They stand in the order of loading, so
    that a session rebuilt from the conversation has the same.
    """
    fresh = [hit.tool for hit in reply.hits if session.is_callable(hit.tool)]
    known = [hit.tool for hit in reply.known if not _is_declared(session, hit.tool)]
    lacking = [tool for tool in known if not session.has_shown(tool)]
    chosen = [*fresh, *lacking] or known
    by_name = {tool.name: tool for tool in chosen}
    return [by_name[name] for name in session.record.entries if name in by_name]


def _is_declared(session: Session, tool: Tool) -> bool:
    """Tell whether every request carries a tool's definition."""
    entry = session.record.entries.get(tool.name)
    return entry is None or entry.pinned or tool.name in session.record.declared


def _note(reply: Reply) -> Tool:
    """Return what a search without a tool to deliver says, as a definition.

    An output of definitions has no room for text, and an empty one would be a dead end.
    """
    text = one_line(reply.text, NOTE_CHARS)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Tool(
        name=f"search_note_{digest}",
        description=f"No tool, only a note; do not call it. {text}",
        effect=Effect.READ,
    )
