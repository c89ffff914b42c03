"""The two BM25 libraries that people reach for, bm25s and rank-bm25.

Neither knows about tools, so we choose the document, generously: server, name, description and
parameter names, with identifiers split at `_` and camelCase in documents and queries alike. The
reply is one line per tool.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.systems.definitions import properties, well_formed
from benchmarks.systems.postings import best_first
from benchmarks.systems.system import import_peer
from toolscout.evaluate.quality import Ranked
from toolscout.tools import Tool

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Bm25s:
    """bm25s with its own tokenizer, English stop words and stems, as its README recommends."""

    name = "bm25s"

    def __init__(self) -> None:
        self._bm25s = import_peer("bm25s", system=self.name, package="bm25s")
        stemmers = import_peer("Stemmer", system=self.name, package="PyStemmer")
        self._stemmer = stemmers.Stemmer("english")
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools."""
        self._tools = list(tools)
        self._index: Any = None
        tokens = self._tokens([document_of(tool) for tool in tools])
        if any(tokens):  # it cannot index nothing
            self._index = self._bm25s.BM25()
            self._index.index(tokens, show_progress=False)

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools, without those that score zero."""
        count = min(limit, len(self._tools))
        if self._index is None or count < 1:
            return []
        tokens = self._tokens([split_identifiers(query)])
        numbers, scores = self._index.retrieve(tokens, k=count, show_progress=False)
        pairs: list[tuple[int, float]] = [
            *zip(numbers[0].tolist(), scores[0].tolist(), strict=True)
        ]
        return [Ranked(self._tools[number], score) for number, score in pairs if score > 0]

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return a line for each tool."""
        return lines_of(hits)

    def _tokens(self, texts: list[str]) -> Any:
        return self._bm25s.tokenize(
            texts, stopwords="en", stemmer=self._stemmer, return_ids=False, show_progress=False
        )


class RankBm25:
    """rank-bm25's `BM25Okapi` over lower-case words; it brings no tokenizer."""

    name = "rank-bm25"

    def __init__(self) -> None:
        self._rank_bm25 = import_peer("rank_bm25", system=self.name, package="rank-bm25")
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools."""
        self._tools = list(tools)
        words = [words_of(document_of(tool)) for tool in tools]
        # It divides by the number of documents and by that of words.
        self._index: Any = self._rank_bm25.BM25Okapi(words) if any(words) else None

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools, those that score above zero."""
        if self._index is None:
            return []
        scores = np.asarray(self._index.get_scores(words_of(query)), dtype=float)
        return [Ranked(self._tools[i], float(scores[i])) for i in best_first(scores, limit)]

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return a line for each tool."""
        return lines_of(hits)


def document_of(tool: Tool) -> str:
    """Return the text that is indexed for a tool."""
    parts = (tool.server, tool.leaf, tool.description, *properties(tool))
    return split_identifiers(" ".join(parts))


def split_identifiers(text: str) -> str:
    """Put a blank where `_` or camelCase joins two words."""
    return _CAMEL.sub(" ", well_formed(text)).replace("_", " ")


def words_of(text: str) -> list[str]:
    """Return the lower-case words of a text without punctuation."""
    return re.findall(r"\w+", split_identifiers(text).lower())


def lines_of(hits: Sequence[Ranked]) -> str:
    """Return name and description of each hit."""
    lines = [f"{hit.tool.name}: {hit.tool.description}" for hit in hits]
    return "\n".join(lines) or "No tool found."
