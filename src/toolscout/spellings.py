"""Spellings: all that a tool may be called, and what a text may call.

The catalogue and the index both look tools up by these, so that a name means the same to each.
"""

from toolscout.names import fold_name
from toolscout.tools import Tool

Spelling = tuple[int, str]
"""How a tool may be called: 0 by its qualified name, 1 by an alias, 2 by its leaf; and the name
without case and separators."""


def spellings_of(tool: Tool) -> set[Spelling]:
    """Return all that a tool may be called."""
    leaf = fold_name(tool.leaf)
    found: set[Spelling] = {(0, fold_name(tool.name)), (0, fold_name(tool.server) + leaf)}
    found.update((1, fold_name(alias)) for alias in tool.aliases)
    found.add((2, leaf))
    return found


def spellings_meant(text: str) -> list[Spelling]:
    """Return what a text may call, in the order in which it is tried; the first that is known wins.

    Claude Code and others write `mcp__server__leaf`; folding leaves "mcp" in front.
    """
    key = fold_name(text)
    bare = key.removeprefix("mcp")
    if not key:
        return []
    return [(0, key), *([(0, bare)] if bare != key else []), (1, key), (2, key)]


class Spellings:
    """Spellings to exposed names, kept up to date tool by tool, so that nothing is scanned."""

    def __init__(self) -> None:
        self._lookups = (_Lookup(), _Lookup(), _Lookup())

    def add(self, tool: Tool) -> None:
        """Take in all that a tool may be called."""
        for kind, key in spellings_of(tool):
            self._lookups[kind].add(key, tool.name)

    def remove(self, tool: Tool) -> None:
        """Forget what a tool was called."""
        for kind, key in spellings_of(tool):
            self._lookups[kind].remove(key, tool.name)

    def resolve(self, text: str) -> list[str]:
        """Return the exposed names of the tools that a text may mean, sorted."""
        for kind, key in spellings_meant(text):
            if found := self._lookups[kind].find(key):
                return found
        return []


class _Lookup:
    """A key to one or several names; one name, the usual case, is stored without a set."""

    def __init__(self) -> None:
        self._names: dict[str, str | set[str]] = {}

    def find(self, key: str) -> list[str]:
        found = self._names.get(key)
        if found is None:
            return []
        return [found] if isinstance(found, str) else sorted(found)

    def add(self, key: str, name: str) -> None:
        found = self._names.get(key)
        if found is None:
            self._names[key] = name
        elif isinstance(found, set):
            found.add(name)
        elif found != name:
            self._names[key] = {found, name}

    def remove(self, key: str, name: str) -> None:
        found = self._names.get(key)
        if isinstance(found, set):
            found.discard(name)
            if len(found) == 1:
                self._names[key] = found.pop()
        elif found == name:
            del self._names[key]
