"""Whom a call of the model is for, and what it may do, before it is made.

`tool_call` is for the tool that its arguments name: a host's rules for that tool hold for it (R81).
"""

from dataclasses import dataclass

from toolscout.calls.arguments import prepare
from toolscout.calls.results import is_handle
from toolscout.catalog import Catalog
from toolscout.errors import ModelError, UpstreamError
from toolscout.policies import Permission
from toolscout.sessions.metatools import CALL, DESCRIBE, SEARCH, meta_name
from toolscout.sessions.naming import tool_named
from toolscout.sessions.requests import call_request
from toolscout.sessions.session import Session
from toolscout.tools import Effect, Tool


@dataclass(frozen=True, slots=True)
class Aims:
    """Reads calls against one catalogue."""

    catalog: Catalog

    def meta(self, name: str) -> str:
        """Return which meta-tool a name means; a server's tool of such a name is none."""
        meta = meta_name(name)
        return meta if meta == name or not self.catalog.resolve(name) else ""

    def tool(self, session: Session, name: str, arguments: object) -> tuple[Tool | None, object]:
        """Return the tool that a call would reach, if there is one, and what it is given."""
        wanted, given = self._wanted(name, arguments)
        try:
            return tool_named(session, self.catalog, wanted), given
        except (ModelError, UpstreamError):
            return None, None

    def effect(self, session: Session, name: str, arguments: object) -> Effect:
        """Return what a call may do."""
        if self._only_reads(name, arguments):
            return Effect.READ
        tool, _ = self.tool(session, name, arguments)
        return tool.effect if tool is not None else Effect.UNKNOWN

    async def permission(self, session: Session, name: str, arguments: object) -> Permission:
        """Return what the host says to a call; what would not be sent is to be asked about."""
        if self._only_reads(name, arguments):
            return Permission.ALLOW
        tool, given = self.tool(session, name, arguments)
        if tool is None:
            return Permission.ASK
        try:
            prepared = prepare(tool, {} if given is None else given)
        except ModelError:
            return Permission.ASK
        return await session.policy.permission(tool, prepared.arguments)

    def _only_reads(self, name: str, arguments: object) -> bool:
        wanted, _ = self._wanted(name, arguments)
        return self.meta(name) in (SEARCH, DESCRIBE) or is_handle(wanted)

    def _wanted(self, name: str, arguments: object) -> tuple[object, object]:
        if self.meta(name) != CALL:
            return name, arguments
        try:
            return call_request(arguments)
        except ModelError:
            return None, None
