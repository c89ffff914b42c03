"""toolscout itself, with its default encoder, with none, and with the ONNX encoder.

Queries of a benchmark are words a user wrote, never query language: they enter as `Query`
values, so that one that begins with `-` or `/` is still words.
"""

from collections.abc import Sequence

from toolscout.bench.systems.system import Ranked
from toolscout.catalog import Catalog
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.errors import ModelError
from toolscout.query import Query
from toolscout.search.index import Index
from toolscout.sessions.replies import hit_line
from toolscout.tools import Tool


class Toolscout:
    """The index as it comes: words and static vectors."""

    name = "toolscout"

    def __init__(self) -> None:
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools."""
        self._catalog = Catalog()
        self.add(tools)
        self._index = self._index_of(self._catalog)

    def add(self, tools: Sequence[Tool]) -> None:
        """Take in more tools; the index follows its catalogue."""
        by_server: dict[str, list[Tool]] = {}
        for tool in tools:
            by_server.setdefault(tool.server, []).append(tool)
        for server, its_tools in by_server.items():
            self._catalog.add(server, its_tools)

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools; a query that cannot be read finds none."""
        if not query.strip():
            return []  # as a `Query`, it would list the catalogue
        try:
            hits = self._index.search(Query(text=query, words=query), limit=limit)
        except ModelError:
            return []
        return [Ranked(hit.tool, hit.score) for hit in hits]

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return a line for each tool: signature and first sentence."""
        return "\n".join(hit_line(hit.tool) for hit in hits) or f"No tool found for {query!r}."

    def _index_of(self, catalog: Catalog) -> Index:
        return Index(catalog)


class ToolscoutLexical(Toolscout):
    """Words alone."""

    name = "toolscout-lexical"

    def _index_of(self, catalog: Catalog) -> Index:
        return Index(catalog, encoder=None)


class ToolscoutApproximate(Toolscout):
    """Words and static vectors, of which only the near ones are looked at."""

    name = "toolscout-approximate"

    def _index_of(self, catalog: Catalog) -> Index:
        return Index(catalog, approximate=True)


class ToolscoutOnnx(Toolscout):
    """Words and the vectors of a small transformer."""

    name = "toolscout-onnx"

    def __init__(self) -> None:
        self._encoder = OnnxEncoder()
        super().__init__()

    def _index_of(self, catalog: Catalog) -> Index:
        return Index(catalog, encoder=self._encoder)
