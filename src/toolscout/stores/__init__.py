"""Stores keep sessions, results and usage between runs.

`MemoryStore` serves one process, `SqliteStore` one machine and `PostgresStore` several. Each is
imported on first use, so a program that keeps everything in memory loads no database driver.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolscout.stores.memory import MemoryStore
    from toolscout.stores.postgres import PostgresStore
    from toolscout.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "PostgresStore", "SqliteStore"]

_HOMES = {"MemoryStore": "memory", "PostgresStore": "postgres", "SqliteStore": "sqlite"}

if not TYPE_CHECKING:  # otherwise type checkers would accept every misspelt name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
