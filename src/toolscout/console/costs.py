"""`Costs`: what definitions cost in tokens, also where there are too many to count.

Counting takes about half a millisecond for a definition, so that of larger catalogues some are
counted and the others estimated by their length.
"""

import json
import threading
from collections.abc import Iterable, Sequence

from toolscout.tokens import COUNTED_TOOLS, definition_tokens
from toolscout.tools import Tool

LENGTHS_KEPT = 200_000


class Costs:
    """Tokens of definitions; threads may share it."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, tools: Sequence[Tool]) -> list[int]:
        """Return the tokens of each tool: counted up to 2,000 of them, estimated beyond."""
        if len(tools) <= COUNTED_TOOLS:
            return [definition_tokens(tool) for tool in tools]
        lengths = [self._length(tool) for tool in tools]
        step = -(-len(tools) // COUNTED_TOOLS)
        counted = sum(map(definition_tokens, tools[::step]))
        share = counted / max(1, sum(lengths[::step]))
        return [max(1, round(length * share)) for length in lengths]

    def by_server(self, tools: Sequence[Tool]) -> dict[str, int]:
        """Return the tokens of each server's tools."""
        return self.by(tools, (tool.server for tool in tools))

    def by(self, tools: Sequence[Tool], groups: Iterable[str]) -> dict[str, int]:
        """Return the tokens of each group; `groups` names that of each tool."""
        sums: dict[str, int] = {}
        for group, tokens in zip(groups, self.of(tools), strict=True):
            sums[group] = sums.get(group, 0) + tokens
        return sums

    def _length(self, tool: Tool) -> int:
        known = self._lengths.get(tool.fingerprint)
        if known is None:
            schema = json.dumps(tool.input_schema, ensure_ascii=False, separators=(",", ":"))
            known = len(tool.name) + len(tool.description) + len(schema)
            with self._lock:
                if len(self._lengths) >= LENGTHS_KEPT:
                    self._lengths.clear()
                self._lengths[tool.fingerprint] = known
        return known
