"""Stores: where sessions, results and usage are kept between runs.

`MemoryStore` for one process, `SqliteStore` for one machine, `PostgresStore` for several. Each is
imported when it is first asked for, so that who keeps everything in memory loads no database.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolscout.stores.memory import MemoryStore
    from toolscout.stores.postgres import PostgresStore
    from toolscout.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "PostgresStore", "SqliteStore"]

_HOMES = {"MemoryStore": "memory", "PostgresStore": "postgres", "SqliteStore": "sqlite"}

if not TYPE_CHECKING:  # a checker that saw this would take every misspelt name for real

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
