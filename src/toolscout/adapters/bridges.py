"""`Bridge`: a kit for an SDK that fixes its tools before a run, so that none can be loaded in it.

The model is told the meta-tools and what is pinned, always the same, and reaches the rest through
`tool_call`. Tools that an SDK treats by their names, to ask a person or to end a run, are pinned:
what the SDK does with them, it does before `tool_call` could tell it whom the call is for.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from toolscout.adapters._toolkit import Kit
from toolscout.errors import UsageError
from toolscout.scout import Scout
from toolscout.sessions.session import Session
from toolscout.settings import Mode, Settings
from toolscout.tools import Tool

T = TypeVar("T")


class Bridge(Generic[T]):
    """The tools of an SDK behind three that never change.

    `by_name` tells the tools that the SDK must see called by their own names.
    """

    def __init__(
        self,
        tools: Iterable[T],
        define: Callable[[T], Tool],
        *,
        by_name: Callable[[T], bool] | None = None,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        natives = list(tools)
        self.kit = Kit(natives, define, scout=scout, settings=settings)
        mode = self.kit.scout.settings.mode
        if mode is not Mode.BRIDGE:
            raise UsageError(
                f"Mode {str(mode)!r} changes the tools of a run, which this SDK fixes before it. "
                "Use 'bridge'."
            )
        named = natives if by_name is not None else []
        self._pins = [define(native).name for native in named if by_name and by_name(native)]

    def open(self, id_: str, state: object = None) -> Session:
        """Return the session that an SDK's own state holds, or a new one."""
        session = self.kit.open(id_, state)
        if self._pins:
            session.pin(*self._pins)
        return session

    def declared(self) -> list[tuple[Tool, T | None]]:
        """Return what every request carries, in order, each with the SDK's tool if it is one."""
        shown = self.open("declared").shown()
        return [(entry.tool, self.kit.get(entry.tool.name)) for entry in shown]
