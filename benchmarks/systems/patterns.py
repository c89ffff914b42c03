"""Regular expressions on RE2: Unicode classes, and linear time whatever the pattern.

`Pattern` lists the methods that the compared systems use.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol

# google-re2 has no types; `Pattern` is what we use of it.
_re2: Any = import_module("re2")


class Pattern(Protocol):
    """A compiled expression."""

    def search(self, text: str, /) -> object | None:
        """Return the first match."""
        ...

    def finditer(self, text: str, /) -> Iterator[object]:
        """Return all matches that do not overlap."""
        ...

    def sub(self, replacement: str, text: str, /) -> str:
        """Return the text with all matches replaced."""
        ...


def compiled(pattern: str) -> Pattern:
    """Return one of our own patterns."""
    return _re2.compile(pattern)


def pattern_from_query(query: str) -> Pattern:
    """Return a pattern that ignores case; text that RE2 refuses is matched literally."""
    options = _re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    try:
        return _re2.compile(query, options)
    except _re2.error:
        # A literal has nothing to backtrack over, so `re` is safe here, and has no size limit.
        return re.compile(re.escape(query), re.IGNORECASE)
