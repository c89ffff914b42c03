"""`Maps`: the catalogue as a picture, made once for each encoder and content, in a thread."""

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolscout.catalog import Catalog
from toolscout.console.indexes import Indexes
from toolscout.console.plots import Points, plotted
from toolscout.console.refusals import CONFLICT, Refused
from toolscout.console.views import View
from toolscout.schemas import Json
from toolscout.search.index import Index
from toolscout.search.vectors import query_vectors

MAPS_KEPT = 3
ANCHORS = 8
"""Nearest tools between which a query is drawn."""
SHARPNESS = 12.0
HITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Where each tool stands."""

    rows: dict[str, int]
    """The row of each tool."""
    vectors: NDArray[np.int16]
    places: Points


class Maps:
    """Draws maps; threads may share it, and wait for a map that another one draws."""

    def __init__(self, catalog: Catalog, indexes: Indexes) -> None:
        self._catalog, self._indexes = catalog, indexes
        self._drawn: OrderedDict[tuple[str, str], Map] = OrderedDict()
        self._drawing = threading.Lock()

    def told(self, view: View, encoder: str = "") -> Json:
        """Return where each visible tool stands."""
        drawn = self._map(self._indexes.get(encoder))
        names = [tool.name for tool in view.tools if tool.name in drawn.rows]
        servers = sorted({tool.server for tool in view.tools})
        numbers = {server: number for number, server in enumerate(servers)}
        places = np.round(drawn.places[[drawn.rows[name] for name in names]], 4).reshape(-1, 2)
        owners = {tool.name: numbers[tool.server] for tool in view.tools}
        return {
            "tools": names,
            "servers": servers,
            "x": [round(x, 4) for x in places[:, 0].tolist()],
            "y": [round(y, 4) for y in places[:, 1].tolist()],
            "server_of": [owners[name] for name in names],
        }

    def point(self, view: View, text: str, encoder: str = "") -> Json:
        """Return where a query stands: among the tools that mean nearly the same."""
        index = self._indexes.get(encoder)
        drawn = self._map(index)
        names = [tool.name for tool in view.tools if tool.name in drawn.rows]
        hits = [hit.tool.name for hit in index.search(text, HITS, allowed=view.allowed).best]
        numbers = {name: number for number, name in enumerate(names)}
        x, y = _between(drawn, [drawn.rows[name] for name in names], index, text)
        return {"x": x, "y": y, "hits": [numbers[name] for name in hits if name in numbers]}

    def _map(self, index: Index) -> Map:
        key = (index.encoder.name if index.encoder is not None else "", self._catalog.fingerprint)
        with self._drawing:
            drawn = self._drawn.get(key)
            if drawn is None:
                drawn = self._drawn[key] = _drawn(index)
                while len(self._drawn) > MAPS_KEPT:
                    self._drawn.popitem(last=False)
            self._drawn.move_to_end(key)
            return drawn


def _drawn(index: Index) -> Map:
    tools, vectors = index.vectors()
    if vectors is None:
        if index.encoder is None:
            hint = "Choose an encoder that has vectors, such as static."
            raise Refused(CONFLICT, "no_vectors", "Words alone give no map.", hint)
        vectors = np.zeros((0, 1), np.int16)
    # By name, so that the picture does not depend on the order in which servers came.
    order = sorted(range(len(tools)), key=lambda row: tools[row].name)
    rows = {tools[row].name: place for place, row in enumerate(order)}
    return Map(rows=rows, vectors=vectors[order], places=plotted(vectors[order]))


def _between(drawn: Map, rows: list[int], index: Index, text: str) -> tuple[float, float]:
    """Return the middle of the tools nearest to a text, nearer ones weighing more."""
    if not rows or index.encoder is None:
        return 0.0, 0.0
    vectors = drawn.vectors[rows].astype(np.float32)
    asked = query_vectors(index.encoder, [text])[0]
    lengths = np.linalg.norm(vectors, axis=1) * float(np.linalg.norm(asked))
    cosines = vectors @ asked / np.maximum(lengths, 1e-9)
    nearest = np.argsort(-cosines, kind="stable")[:ANCHORS]
    weights = np.exp(SHARPNESS * (cosines[nearest] - cosines[nearest[0]]))
    middle = weights @ drawn.places[rows][nearest] / weights.sum()
    return round(float(middle[0]), 4), round(float(middle[1]), 4)
