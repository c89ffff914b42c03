"""`View`: what one principal sees of a catalogue.

Every answer of the console is made out of a view, so that a profile narrows all of it.
"""

from collections.abc import Callable, Sequence

from toolscout.config.servers import is_matched
from toolscout.console.refusals import Refused, no_such
from toolscout.gateway.auth import Principal
from toolscout.gateway.gateway import visible_to
from toolscout.names import near_names
from toolscout.scout import Scout
from toolscout.servers.offers import TOOL
from toolscout.tools import Tool

NAMES_TRIED = 5_000
"""Names among which near ones are looked for; more would take too long for an error."""


class View:
    """The tools and servers of one principal, as the catalogue is now."""

    def __init__(self, scout: Scout, principal: Principal) -> None:
        self.principal = principal
        self._scout = scout
        profile = principal.profile
        self.narrows = visible_to(profile) if profile is not None else None
        self.policy = scout.policy.narrowed(self.narrows)
        self._seen: tuple[int, Sequence[Tool]] = (-1, ())
        self._kept = (-1, frozenset[str](), frozenset[str]())

    @property
    def is_limited(self) -> bool:
        """Whether the principal sees a part only."""
        return self.principal.profile is not None

    @property
    def allowed(self) -> Callable[[Tool], bool] | None:
        """What a search of this principal may give; nothing stands for everything."""
        return None if self.policy.is_open else self.policy.sees

    @property
    def version(self) -> int:
        """Of the catalogue."""
        return self._scout.catalog.version

    @property
    def tools(self) -> Sequence[Tool]:
        """The visible tools, by name."""
        if self.policy.is_open:
            return self._scout.catalog.tools
        version = self._scout.catalog.version
        if self._seen[0] != version:
            self._seen = (version, tuple(filter(self.policy.sees, self._scout.catalog.tools)))
        return self._seen[1]

    @property
    def callables(self) -> list[Tool]:
        """The visible tools without resources and prompts, which are catalogued beside them."""
        return [tool for tool in self.tools if tool.kind == TOOL]

    def tool(self, name: str) -> Tool:
        """Return a visible tool, or refuse as if there were none."""
        tool = self._scout.catalog.get(name)
        if tool is None or not self.policy.sees(tool):
            raise self._unknown(name)
        return tool

    def sees_tool(self, name: str) -> bool:
        """Tell whether there is a visible tool of this name."""
        tool = self._scout.catalog.get(name)
        return tool is not None and self.policy.sees(tool)

    def known(self, name: str) -> Tool:
        """Return a tool that exists for the principal, switched off or not."""
        tool = self._scout.catalog.get(name)
        if tool is None or not self.policy.knows(tool):
            raise self._unknown(name)
        return tool

    def _unknown(self, name: str) -> Refused:
        names = [tool.name for tool in self.tools[:NAMES_TRIED]]
        return no_such("tool", name, ", ".join(near_names(name, names)))

    def sees_server(self, server: str) -> bool:
        """Tell whether a server exists for the principal.

        One of which no tool is known yet does where the profile names it.
        """
        profile = self.principal.profile
        if profile is None:
            return True
        if not is_matched(server, profile.servers):
            return False
        _, known, seen = self._servers
        return server not in known or server in seen

    @property
    def _servers(self) -> tuple[int, frozenset[str], frozenset[str]]:
        """The catalogue's version, the servers with any tool, and those with a visible one."""
        version = self._scout.catalog.version
        if self._kept[0] != version:
            known = frozenset(tool.server for tool in self._scout.catalog.tools)
            seen = frozenset(tool.server for tool in self.tools)
            self._kept = (version, known, seen)
        return self._kept


class Views:
    """The views of all principals, made when they first ask."""

    def __init__(self, scout: Scout) -> None:
        self._scout = scout
        self._known: dict[Principal, View] = {}

    def of(self, principal: Principal) -> View:
        """Return the view of a principal."""
        view = self._known.get(principal)
        if view is None:
            view = self._known[principal] = View(self._scout, principal)
        return view
