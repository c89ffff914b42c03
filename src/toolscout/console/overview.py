"""`Overviews`: what there is, what it costs, and what the bearer of a token may do with it."""

from collections import Counter
from importlib.metadata import version

from toolscout.console.search import Indexes
from toolscout.console.servers import STATES, Board
from toolscout.console.views import Subject, View
from toolscout.schemas import Json
from toolscout.servers.manifest import PROMPT, RESOURCE, TEMPLATE, TOOL
from toolscout.sessions.metatools import meta_tools
from toolscout.tokens import count_all_definition_tokens, count_definition_tokens

RESOURCES = (RESOURCE, TEMPLATE)


class Overviews:
    """The first page of a console."""

    def __init__(self, subject: Subject, indexes: Indexes, board: Board | None) -> None:
        self._subject, self._indexes, self._board = subject, indexes, board
        self._menu: int | None = None
        self._all: dict[str, tuple[int, int]] = {}

    def states(self, view: View) -> Json:
        """Return how many servers are in each state; asked on the pool's loop."""
        if self._board is None:
            return dict.fromkeys(STATES, 0)
        return self._board.phases(view)

    def told(self, view: View, states: Json) -> Json:
        """Return the overview of a view."""
        kinds = Counter(tool.kind for tool in view.tools)
        return {
            "version": version("toolscout"),
            "host": self._subject.host,
            "principal": view.principal.name,
            "tools": kinds[TOOL],
            "resources": sum(kinds[kind] for kind in RESOURCES),
            "prompts": kinds[PROMPT],
            "servers": states,
            "encoders": self._indexes.names,
            "tokens": {"all_definitions": self._definitions(view), "menu": self._menu_tokens()},
            "capabilities": self._capabilities(view),
        }

    def _capabilities(self, view: View) -> Json:
        is_live = self._board is not None
        may_act = is_live and not view.is_limited
        logs_in = self._board is not None and self._board.logs_in
        return {
            "start": may_act,
            "stop": may_act,
            "restart": may_act,
            "log": may_act,
            "login": may_act and logs_in,
            "call": False,
            "sessions": is_live,
            "savings": is_live,
        }

    def _definitions(self, view: View) -> int:
        known = self._all.get(view.principal.name)
        if known is None or known[0] != view.version:
            tokens = count_all_definition_tokens(view.callables)
            known = self._all[view.principal.name] = (view.version, tokens)
        return known[1]

    def _menu_tokens(self) -> int:
        if self._menu is None:
            self._menu = sum(map(count_definition_tokens, meta_tools()))
        return self._menu
