"""oh-my-pi's `search_tool_bm25`: BM25+ over weighted fields.

Reimplemented from a description of its behaviour. The corpus is that of discovery mode `all`,
nothing is selected yet, and the reply has names without descriptions, as in its first version.
A tool without a server counts as a built-in: its summary is indexed, or else the first 200
characters of its description.
"""

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from benchmarks.systems.definitions import mcp_name, properties, well_formed
from benchmarks.systems.patterns import compiled
from benchmarks.systems.postings import Postings, best_first
from toolscout.evaluate.quality import Ranked
from toolscout.tools import Tool

K1, B, DELTA = 1.2, 0.75, 1.0
BUILT_IN_SUMMARY_CHARACTERS = 200

_MARKS = compiled(r"\p{M}+")
# Where an acronym ends, where camelCase joins, and what separates words.
_BOUNDARIES = (
    compiled(r"(\p{Lu}+)(\p{Lu}\p{Ll})"),
    compiled(r"([\p{Ll}\p{N}])(\p{Lu})"),
    compiled(r"[^\p{L}\p{N}]+"),
)
# The same for the usual text, on `re`: the way into RE2 takes longer than the work there.
_ASCII_BOUNDARIES = (
    re.compile(r"([A-Z]+)([A-Z][a-z])"),
    re.compile(r"([a-z0-9])([A-Z])"),
    re.compile(r"[^A-Za-z0-9]+"),
)

# Unicode's default order of the ASCII symbols; all of them come before digits and letters.
_SYMBOLS = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$"


class OhMyPi:
    """BM25+ as oh-my-pi scores it; equal scores order by name."""

    name = "oh-my-pi"

    def __init__(self) -> None:
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools."""
        # Sorted by name, so that a stable sort by score leaves ties in the order of names.
        self._tools: list[Tool] = sorted(tools, key=_name_order)
        self._postings = Postings(_term_scores([weighted_tokens(tool) for tool in self._tools]))

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools; a query without letter or digit, an error there, finds none."""
        scores = self._postings.dot(Counter(tokens_from_text(query)))
        return [Ranked(self._tools[i], float(scores[i])) for i in best_first(scores, limit)]

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return one line of JSON with the names found."""
        facts = {
            "query": query.strip(),
            "activated_tools": [mcp_name(hit.tool) for hit in hits],
            "match_count": len(hits),
            "total_tools": len(self._tools),
        }
        return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))


def tokens_from_text(text: str) -> list[str]:
    """Return the words of a text, split at camelCase and at everything but letters and digits."""
    if not text.isascii():
        text = _MARKS.sub("", unicodedata.normalize("NFKD", well_formed(text)))
    acronym, camel, separators = _ASCII_BOUNDARIES if text.isascii() else _BOUNDARIES
    text = camel.sub(r"\1 \2", acronym.sub(r"\1 \2", text))
    return separators.sub(" ", text).lower().split()


def weighted_tokens(tool: Tool) -> Counter[str]:
    """Return how often each word occurs, an occurrence counting as much as its field weighs."""
    name = mcp_name(tool)
    own_summary = tool.summary or tool.description[:BUILT_IN_SUMMARY_CHARACTERS]
    fields = [
        (6, name),
        (4, tool.title or name),
        (4, tool.leaf if tool.server else ""),
        (2, tool.server),
        (2, tool.description if tool.server else own_summary),
        *((1, key) for key in properties(tool)),
    ]
    counts: Counter[str] = Counter()
    for weight, text in fields:
        for token in tokens_from_text(text):
            counts[token] += weight
    return counts


def _term_scores(documents: Sequence[Counter[str]]) -> list[dict[str, float]]:
    """Return what one occurrence of a word in a query adds to a document's score."""
    lengths = [document.total() for document in documents]
    average = sum(lengths) / len(lengths) if any(lengths) else 1.0
    frequency = Counter(token for document in documents for token in document)
    idf = {
        token: math.log(1 + (len(documents) - count + 0.5) / (count + 0.5))
        for token, count in frequency.items()
    }
    return [
        {
            token: idf[token] * (tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / average)) + DELTA)
            for token, tf in document.items()
        }
        for document, length in zip(documents, lengths, strict=True)
    ]


def _name_order(tool: Tool) -> tuple[list[tuple[int, str]], str]:
    return collation_key(mcp_name(tool))


def collation_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a key that sorts ASCII names as a locale does: case decides last, lower first."""
    primary = [
        (_SYMBOLS.find(char) if char in _SYMBOLS else len(_SYMBOLS), char) for char in name.lower()
    ]
    return primary, name.swapcase()
