"""`Declarations`: the definitions of a request to Anthropic, for the tools of an SDK in a kit.

Takes a kit and how the SDK itself writes one of its tools; gives what a request declares, the
found ones and the hidden ones by the provider's rules. A tool is declared as the SDK would do it
without toolscout, so that what its owner set is kept.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from toolscout.adapters._toolkit import Kit
from toolscout.adapters.anthropic.deferrals import defer, hosted_search
from toolscout.catalog import RESERVED_NAMES
from toolscout.dialects import Dialect, to_definition
from toolscout.schemas import Json
from toolscout.sessions.session import Session
from toolscout.tools import Tool

T = TypeVar("T")


class Declarations(Generic[T]):
    """What requests declare."""

    def __init__(
        self,
        kit: Kit[T],
        write: Callable[[T], Json],
        *,
        passed: Iterable[Json] = (),
        hosted: str = "",
    ) -> None:
        """`passed` are definitions that stand first, as they are; `hosted` is `bm25` or `regex`."""
        self.kit = kit
        self._write, self._passed = write, list(passed)
        self._hosted = [hosted_search(hosted)] if hosted else []

    def definitions(self, session: Session, forced: str = "") -> list[Json]:
        """Return the definitions of the next request; a `forced` tool is not hidden in it."""
        shown = session.shown(listing=True)
        names = {each.tool.name for each in shown}
        hidden = {each.tool.name for each in shown if each.deferred} - {forced}
        told = [self._told(each.tool) for each in shown]
        if self._hosted and hidden:
            told = [*self._hosted, *(each for each in told if each["name"] not in RESERVED_NAMES)]
        tool = self.kit.scout.catalog.get(forced)
        if tool is not None and forced not in names:
            told.append(self._told(tool))
        return [*self._passed, *defer(told, hidden)]

    def _told(self, tool: Tool) -> Json:
        native = self.kit.get(tool.name)
        if native is None:
            return to_definition(tool, Dialect.ANTHROPIC)
        return self._write(native) | {"name": tool.name}
