"""Parts that all compared searches share: an error for missing packages, and running others' code.

`System` and `Ranked` themselves belong to `toolscout.evaluate.quality`, which measures them.
Modules of other packages are `Any`: the packages are not installed where types are checked.
"""

from collections.abc import Coroutine, Sequence
from importlib import import_module
from typing import Any, TypeVar

from toolscout.errors import UsageError
from toolscout.evaluate.quality import Ranked
from toolscout.tools import Tool

_T = TypeVar("_T")


class MissingPeer(UsageError):
    """A peer system whose package is not installed."""

    def __init__(self, system: str, *, package: str) -> None:
        self.system = system
        self.package = package
        super().__init__(
            f"System {system!r} needs a package that is not installed. "
            f"Run `pip install {package}`, best in an environment of its own."
        )


def import_peer(name: str, *, system: str, package: str) -> Any:
    """Return a module, or raise `MissingPeer` when its package is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # If an installed package lacks a part of its own, its own error explains it best.
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise
        raise MissingPeer(system, package=package) from error


def finish(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits, without an event loop.

    Some peers search in `async` functions that only compute. A loop for each query would be
    most of the time that is measured.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError("A peer's search waits for something; it needs an event loop.")


def rank_by_position(tools: Sequence[Tool]) -> list[Ranked]:
    """Return hits for a system that gives an order and no scores."""
    return [Ranked(tool, 1 / position) for position, tool in enumerate(tools, start=1)]
