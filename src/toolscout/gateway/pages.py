"""`Pages`: what the gateway serves over HTTP beside MCP, such as the console."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from starlette.routing import BaseRoute

from toolscout.gateway.auth import Principal
from toolscout.schemas import Json
from toolscout.tools import Tool


class Pages(Protocol):
    """What is served beside MCP, and is told who comes and what they are listed."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """What is served."""
        ...

    def is_public(self, path: str) -> bool:
        """Tell whether anybody may load a path, with a token or without."""
        ...

    def run(self) -> AbstractAsyncContextManager[None]:
        """Work while this is entered."""
        ...

    async def close(self) -> None:
        """End what would hold the gateway up."""
        ...

    def meet(self, session: str, principal: Principal, client: str) -> None:
        """Take note of who speaks in a session, and with which program."""
        ...

    def list(
        self,
        session: str,
        principal: Principal,
        visible: Callable[[], Sequence[Tool]],
        listed: Sequence[Json],
    ) -> None:
        """Take note of a list of tools that was sent; `visible` gives all there are."""
        ...
