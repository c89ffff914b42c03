"""`Kit`: an agent SDK's own tools behind a scout, and the way back from a name to them.

An adapter says how one of its tools becomes a `Tool` and how it is run; the kit keeps the two in
step. Which tools a model is told, and which calls pass, stays with the session.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from toolscout.catalog import Catalog
from toolscout.errors import UsageError
from toolscout.records import Record
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.sessions import Session
from toolscout.settings import Settings
from toolscout.tools import Tool

T = TypeVar("T")


class Kit(Generic[T]):
    """The tools of an SDK, by the name under which a model calls them.

    `define` reads a tool of the SDK, `run` makes a call of it with checked arguments; the latter
    is needed where a model calls through `tool_call`. With a `scout` of one's own, its other
    servers are found as well; `settings` are then the scout's.
    """

    def __init__(
        self,
        tools: Iterable[T],
        define: Callable[[T], Tool],
        *,
        run: Callable[[T, Json], object] | None = None,
        scout: Scout | None = None,
        settings: Settings | None = None,
        server: str = "",
    ) -> None:
        if scout is not None and settings is not None:
            raise UsageError("Settings were given beside a scout. Give them to the scout instead.")
        self.scout = scout or Scout(Catalog(), settings=settings)
        self._define, self._run, self._server = define, run, server
        self._natives: dict[str, T] = {}
        self.replace(tools)
        if run is not None:
            self.scout.connect(server, self._execute)

    def replace(self, tools: Iterable[T]) -> None:
        """Take other tools in place of those that the kit had."""
        defined = [(self._define(tool), tool) for tool in tools]
        self.scout.catalog.replace(self._server, [tool for tool, _ in defined])
        self._natives = {tool.name: native for tool, native in defined}

    def get(self, name: str) -> T | None:
        """Return the SDK's tool of an exposed name; nothing for meta-tools and other servers."""
        return self._natives.get(name)

    def shown(self, session: Session) -> list[T]:
        """Return the SDK's tools that the next request carries beside the meta-tools, in order."""
        natives = (self._natives.get(shown.tool.name) for shown in session.shown())
        return [native for native in natives if native is not None]

    def open(self, id_: str, state: object = None) -> Session:
        """Return the session that an SDK's own state holds, or a new one.

        The scout keeps no hold of it: the state is where it lives.
        """
        start = Record(id=id_).to_json() if state is None else state
        return self.scout.restore(start, keep=False)

    def _execute(self, tool: Tool, arguments: Json) -> object:
        native = self._natives.get(tool.name)
        if native is None or self._run is None:
            raise UsageError(f"No tool {tool.name!r} is in the kit. Search for another.")
        return self._run(native, arguments)
