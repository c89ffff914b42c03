"""dirge's `tool_search`: substrings and the Dice coefficient of character pairs.

Reimplemented from a description of its behaviour, in 32-bit floats; at most twenty results.
The pairs are counted through inverted lists, which changes the time and not the scores.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.systems.definitions import mcp_name, well_formed
from benchmarks.systems.postings import Postings, best_first
from toolscout.evaluate.quality import Ranked
from toolscout.schemas import Json
from toolscout.tools import Tool

MOST_RESULTS = 20

Floats = NDArray[np.float32]


class Dirge:
    """Substring and pair scores as dirge gives them; equal scores keep the catalogue's order."""

    name = "dirge"

    def __init__(self) -> None:
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools."""
        self._tools = list(tools)
        self._names = _Texts([mcp_name(tool) for tool in tools])
        self._descriptions = _Texts([tool.description for tool in tools])

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools; a blank query, an error there, finds none."""
        query = ascii_lower(query.strip())
        if not query:
            return []
        scores = self._scores(query)
        best = best_first(scores, min(max(limit, 1), MOST_RESULTS))
        return [Ranked(self._tools[i], float(scores[i])) for i in best]

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return indented JSON with full descriptions and summaries of the parameters."""
        results = [
            {
                "name": mcp_name(hit.tool),
                "description": hit.tool.description,
                "parameters": parameter_summary(hit.tool.input_schema),
            }
            for hit in hits
        ]
        note = "These tools are loaded for the remainder of this session."
        facts = {"query": query, "results": results, "note": note}
        return json.dumps(facts, indent=2, ensure_ascii=False)

    def _scores(self, query: str) -> Floats:
        names, descriptions = self._names, self._descriptions
        tokens = [(token, len(token.encode())) for token in query.split()]
        score = np.float32(10) * names.where(lambda name: name == query)
        score += np.float32(4) * names.where(lambda name: query in name or name in query)
        for token, length in tokens:
            if length >= 2:
                score += np.float32(2) * names.holding(token)
        score += np.float32(3) * names.dice(query)
        score += np.float32(1.5) * descriptions.holding(query)
        for token, length in tokens:
            if length >= 3:
                score += np.float32(0.5) * descriptions.holding(token)
        return score + descriptions.dice(query)


class _Texts:
    """One field of all tools."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [ascii_lower(text) for text in texts]
        pairs = [_pairs(text) for text in self._texts]
        self._postings = Postings(pairs)
        self._sizes = np.array([count.total() for count in pairs], dtype=np.float32)

    def where(self, test: Callable[[str], bool]) -> Floats:
        """Return 1 for each text that passes the test, 0 for the others."""
        return np.array([test(text) for text in self._texts], dtype=np.float32)

    def holding(self, part: str) -> Floats:
        """Return 1 for each text that contains this part, 0 for the others."""
        return np.array([part in text for text in self._texts], dtype=np.float32)

    def dice(self, query: str) -> Floats:
        """Return twice the shared pairs over all pairs; 0 where either side has no pair."""
        pairs = _pairs(query)
        shared = self._postings.overlap(pairs).astype(np.float32)
        total = np.maximum(self._sizes + np.float32(pairs.total()), np.float32(1))
        return (2 * shared / total).astype(np.float32)


def ascii_lower(text: str) -> str:
    """Lower the ASCII letters only, as dirge does."""
    return well_formed(text).encode().lower().decode()


def _pairs(text: str) -> Counter[str]:
    return Counter(first + second for first, second in pairwise(text))


def parameter_summary(schema: Json) -> str:
    """Return `{a: string, b?: integer}`, or `<schema>` for a schema without properties."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return "<schema>"
    required = schema.get("required")
    needed = cast(list[object], required) if isinstance(required, list) else []
    entries = [
        f"{name}{'' if name in needed else '?'}: {_type_name(value)}"
        for name, value in cast(Json, properties).items()
    ]
    return "{" + ", ".join(entries) + "}"


def _type_name(schema: object) -> str:
    kind = cast(Json, schema).get("type") if isinstance(schema, dict) else None
    return kind if isinstance(kind, str) else "any"
