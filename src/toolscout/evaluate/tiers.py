"""toolscout's own searches, by encoder: static vectors (the default), words only, and ONNX.

Queries are words that a user wrote, never query language: they enter the index as `Query` values,
so that one that begins with `-` or `/` is still words.
"""

from collections.abc import Sequence

from toolscout.catalog import Catalog
from toolscout.encoders.encoder import Encoder
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.encoders.static import StaticEncoder
from toolscout.errors import ModelError
from toolscout.evaluate.quality import Ranked
from toolscout.query import Query
from toolscout.search.index import Index
from toolscout.sessions.replies import render_hit_line
from toolscout.tools import Tool

ENCODERS = ("static", "none", "onnx")


class Tier:
    """The index with one encoder; `name` is the row of a report."""

    def __init__(self, encoder: str, *, name: str = "", approximate: bool = False) -> None:
        self.name = name or encoder
        self._encoder = _make_encoder(encoder)
        self._approximate = approximate
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools and forget the ones before."""
        self._catalog = Catalog()
        self.add(tools)
        self._index = Index(self._catalog, encoder=self._encoder, approximate=self._approximate)

    def add(self, tools: Sequence[Tool]) -> None:
        """Add tools to the catalogue; the index follows."""
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
        return (
            "\n".join(render_hit_line(hit.tool) for hit in hits) or f"No tool found for {query!r}."
        )


def _make_encoder(name: str) -> Encoder | None:
    """Return an encoder; `MissingExtra` if its packages are not installed."""
    if name == "onnx":
        return OnnxEncoder()
    return StaticEncoder() if name == "static" else None
