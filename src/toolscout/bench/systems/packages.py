"""Imports the packages of others, when a system that needs one is asked for.

Gives modules as `Any`: the packages are not installed where types are checked, and theirs
would say little about ours.
"""

from collections.abc import Coroutine
from importlib import import_module
from typing import Any, TypeVar

from toolscout.bench.systems.system import MissingPeer

_T = TypeVar("_T")


def module_of(name: str, *, system: str, package: str) -> Any:
    """Return a module, or raise `MissingPeer` when its package is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # A package that is there but lacks one of its own parts is not ours to explain.
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
