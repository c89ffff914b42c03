"""Why a tool is not known: its server is not there to tell of it.

A model that calls `server__tool` should learn that the server failed, is starting or waits for a
login, and what to do about it. A caller who may not see a server learns nothing of it (R77).
"""

from collections.abc import Iterable, Mapping

from toolscout.errors import ServerUnavailable
from toolscout.names import exposed_name
from toolscout.servers.server import Member, Phase
from toolscout.sessions.session import Session
from toolscout.tools import Effect, Tool

OTHER_SPELLING = "mcp__"
SEPARATORS = ("__", ".", "/", ":")

_LATER = "Try again later, or use another tool."
_STATES: Mapping[Phase, tuple[str, str]] = {
    Phase.CONFIGURED: ("starting", "Its tools are not known yet; try again shortly."),
    Phase.STARTING: ("starting", "Its tools are not known yet; try again shortly."),
    Phase.FAILED: ("failed", _LATER),
    Phase.NEEDS_LOGIN: (
        "waiting for a login",
        "Ask the user to run `toolscout servers login {}`, then try again.",
    ),
    Phase.STOPPED: ("stopped", "Ask the user to start it, or use another tool."),
}


def absence(
    members: Mapping[str, Member], session: Session, name: object
) -> ServerUnavailable | None:
    """Return why a name that means no tool may still have one, or nothing."""
    server = _server_in(str(name).strip(), members)
    if server is None or not _is_known_to(session, server):
        return None
    member = members[server]
    # One that rests is as it should be, and what it offers is known.
    if member.phase not in _STATES or (member.phase is Phase.STOPPED and not member.is_held):
        return None
    state, remedy = _STATES[member.phase]
    return ServerUnavailable(server, state, member.reason, remedy=remedy.format(server))


def _server_in(text: str, servers: Iterable[str]) -> str | None:
    """Return the server that a name begins with, the longest if there are several."""
    text = text.casefold().removeprefix(OTHER_SPELLING)
    found = [server for server in servers if text.startswith(tuple(_heads(server)))]
    return max(found, key=len, default=None)


def _heads(server: str) -> Iterable[str]:
    for head in {server, exposed_name(server, "x").removesuffix("__x")}:
        yield from (f"{head.casefold()}{separator}" for separator in SEPARATORS)


def _is_known_to(session: Session, server: str) -> bool:
    tools = (Tool.define("x", server=server, effect=effect) for effect in Effect)
    return any(map(session.policy.sees, tools))
