"""The map of a catalogue: tools that mean nearly the same stand near each other.

`place_vectors` starts from the two main axes of the vectors (PCA). Then each point is pulled
towards its nearest neighbours and pushed away from random others, as in UMAP, for a fixed number
of steps. The random numbers have a fixed seed, so the same vectors give the same places.
`Maps` keeps the last few maps. Drawing a large catalogue takes seconds: call it in a thread.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolscout.catalog import Catalog
from toolscout.console.search import Indexes
from toolscout.console.views import ApiError, View
from toolscout.encoders.encoder import encode_questions
from toolscout.schemas import Json
from toolscout.search.index import SearchIndex

Floats = NDArray[np.float32]

MAPS_KEPT = 3
HITS = 10
ANCHORS = 8
"""How many of the nearest tools decide where a query stands."""
SHARPNESS = 12.0

NEIGHBOURS = 10
AXES = 24
"""Main axes in which neighbours are looked for; the others hold little."""
STEPS = 200
PUSHES = 10
"""Random points that push a point away in each step."""
START = 10.0
"""The first width of the picture; neighbours settle at a distance of about 1."""
PUSH = 2.0
GRAVITY = 1.5
"""The pull to the middle, without which groups that share no neighbours would drift away."""
STRIDE = 0.4
LONGEST_MOVE = 4.0
SEED = 20261115
BLOCK = 256
GROUP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Where each tool stands; both numbers of a place are between -1 and 1."""

    rows: dict[str, int]
    """The row of each tool in `vectors` and `places`."""
    vectors: NDArray[np.int16]
    places: Floats


class Maps:
    """Draws a map for each encoder and content of the catalogue; threads may share it."""

    def __init__(self, catalog: Catalog, indexes: Indexes) -> None:
        self._catalog = catalog
        self._indexes = indexes
        self._maps: OrderedDict[tuple[str, str], Map] = OrderedDict()
        self._lock = threading.Lock()

    def list_places(self, view: View, encoder: str = "") -> Json:
        """Return where each visible tool stands."""
        drawn = self._get(self._indexes.get(encoder))
        tools = [tool for tool in view.tools if tool.name in drawn.rows]
        servers = sorted({tool.server for tool in view.tools})
        numbers = {server: number for number, server in enumerate(servers)}
        places = drawn.places[[drawn.rows[tool.name] for tool in tools]].reshape(-1, 2)
        return {
            "tools": [tool.name for tool in tools],
            "servers": servers,
            "x": [round(x, 4) for x in places[:, 0].tolist()],
            "y": [round(y, 4) for y in places[:, 1].tolist()],
            "server_of": [numbers[tool.server] for tool in tools],
        }

    def place_query(self, view: View, text: str, encoder: str = "") -> Json:
        """Return where a query stands, and its hits as numbers of the visible tools."""
        index = self._indexes.get(encoder)
        drawn = self._get(index)
        names = [tool.name for tool in view.tools if tool.name in drawn.rows]
        numbers = {name: number for number, name in enumerate(names)}
        hits = [hit.tool.name for hit in index.search(text, HITS, allowed=view.allowed).best]
        x, y = _place_text(drawn, [drawn.rows[name] for name in names], index, text)
        return {"x": x, "y": y, "hits": [numbers[name] for name in hits if name in numbers]}

    def _get(self, index: SearchIndex) -> Map:
        key = (index.encoder.name if index.encoder is not None else "", self._catalog.fingerprint)
        with self._lock:
            drawn = self._maps.get(key)
            if drawn is None:
                drawn = self._maps[key] = _draw(index)
                while len(self._maps) > MAPS_KEPT:
                    self._maps.popitem(last=False)
            self._maps.move_to_end(key)
            return drawn


def _draw(index: SearchIndex) -> Map:
    tools, vectors = index.list_vectors()
    if vectors is None:
        if index.encoder is None:
            message = "An encoder without vectors gives no map."
            raise ApiError(409, "no_vectors", message, "Choose another one, such as static.")
        vectors = np.zeros((0, 1), np.int16)
    # By name, so that the picture does not depend on the order in which servers connected.
    order = sorted(range(len(tools)), key=lambda row: tools[row].name)
    rows = {tools[row].name: place for place, row in enumerate(order)}
    return Map(rows=rows, vectors=vectors[order], places=place_vectors(vectors[order]))


def _place_text(drawn: Map, rows: list[int], index: SearchIndex, text: str) -> tuple[float, float]:
    """Return the middle of the tools nearest to a text; nearer ones weigh more."""
    if not rows or index.encoder is None:
        return 0.0, 0.0
    vectors = drawn.vectors[rows].astype(np.float32)
    query = encode_questions(index.encoder, [text])[0]
    lengths = np.linalg.norm(vectors, axis=1) * float(np.linalg.norm(query))
    cosines = vectors @ query / np.maximum(lengths, 1e-9)
    nearest = np.argsort(-cosines, kind="stable")[:ANCHORS]
    weights = np.exp(SHARPNESS * (cosines[nearest] - cosines[nearest[0]]))
    middle = weights @ drawn.places[rows][nearest] / weights.sum()
    return round(float(middle[0]), 4), round(float(middle[1]), 4)


def place_vectors(vectors: NDArray[np.int16]) -> Floats:
    """Return a place in the plane for each vector, both numbers between -1 and 1."""
    count = len(vectors)
    if count < 3:
        return np.array([[0, 0], [0.5, 0]], np.float32)[:count]
    rows = np.pad(vectors.astype(np.float32), ((0, 0), (0, 2)))
    centred = rows - rows.mean(axis=0)
    _, axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    main = axes[:, ::-1][:, :AXES]
    # An axis and its opposite are equally right, and libraries differ in which one they give.
    heads = main[np.abs(main).argmax(axis=0), np.arange(main.shape[1])]
    axes = centred @ (main * np.where(heads < 0, -1, 1)).astype(np.float32)
    neighbours = _find_neighbours(axes)
    lots = np.random.default_rng(SEED)
    # Complex numbers are points of the plane. The noise parts tools with equal vectors.
    points = axes[:, 0] + 1j * axes[:, 1]
    points *= START / max(float(np.abs(points).max()), 1e-9)
    points += lots.normal(0, 0.01, (count, 2)) @ np.array([1, 1j])
    points = points.astype(np.complex64)
    gravity = np.float32(GRAVITY / count**0.5)  # a larger catalogue needs more room
    for step in range(STEPS):
        pull = points[neighbours] - points[:, None]
        push = points[:, None] - points[lots.integers(0, count, (count, PUSHES))]
        pull *= 1 / (1 + _compute_squares(pull))
        squares = _compute_squares(push)
        push *= PUSH / ((0.01 + squares) * (1 + squares))
        move = pull.sum(axis=1) + push.sum(axis=1) - gravity * points
        move /= np.maximum(np.abs(move) / LONGEST_MOVE, 1)
        points += np.float32(STRIDE * (1 - step / STEPS)) * move
    return _fit_into_frame(np.stack([points.real, points.imag], axis=1))


def _find_neighbours(rows: Floats) -> NDArray[np.int64]:
    """Return the numbers of the nearest other rows of each row, in no order."""
    count = min(NEIGHBOURS, len(rows) - 1)
    squares = (rows * rows).sum(axis=1)
    found = np.empty((len(rows), count), np.int64)
    for first in range(0, len(rows), BLOCK):
        distances = squares - 2 * rows[first : first + BLOCK] @ rows.T
        own = np.arange(len(distances))
        distances[own, first + own] = np.inf
        found[first : first + BLOCK] = _find_smallest(distances, count)
    return found


def _find_smallest(rows: Floats, count: int) -> NDArray[np.int64]:
    """Return the columns of the smallest numbers of each row.

    Looks only into the groups with the smallest minima, which takes a third of the time for
    22,665 columns.
    """
    groups = -(-rows.shape[1] // GROUP)
    if groups < 2 * count:
        return np.argpartition(rows, count - 1, axis=1)[:, :count]
    rows = np.pad(rows, ((0, 0), (0, groups * GROUP - rows.shape[1])), constant_values=np.inf)
    minima = rows.reshape(len(rows), GROUP, groups).min(axis=1)
    best = np.argpartition(minima, count - 1, axis=1)[:, :count]
    columns = (best[:, :, None] + groups * np.arange(GROUP)).reshape(len(rows), -1)
    numbers = np.take_along_axis(rows, columns, axis=1)
    smallest = np.argpartition(numbers, count - 1, axis=1)[:, :count]
    return np.take_along_axis(columns, smallest, axis=1)


def _compute_squares(gaps: NDArray[np.complex64]) -> NDArray[np.floating]:
    """Return squared lengths; `np.abs` would take several times as long."""
    return gaps.real**2 + gaps.imag**2


def _fit_into_frame(points: Floats) -> Floats:
    """Return points between -1 and 1; a few outliers do not press the others together."""
    centred = points - np.median(points, axis=0)
    reach = max(float(np.quantile(np.abs(centred), 0.995)), 1e-6) * 1.05
    return np.clip(centred / reach, -1, 1).astype(np.float32)
