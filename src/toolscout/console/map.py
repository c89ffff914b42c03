"""`Maps`: the catalogue as a picture, made once for each encoder and content, in a thread.

Placing vectors in the plane, so that what is near in meaning is near in the picture.

Begins with the two main axes (PCA) and improves the picture by a bounded number of steps, in
which near neighbours pull each other together and others push each other apart. The same vectors
give the same places: what is drawn by lot comes from a fixed seed.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolscout.catalog import Catalog
from toolscout.console.search import Indexes
from toolscout.console.views import CONFLICT, Refused, View
from toolscout.schemas import Json
from toolscout.search.index import Index
from toolscout.search.vectors import query_vectors

Floats = NDArray[np.float32]
Points = NDArray[np.float32]
"""One point for each row, both numbers between -1 and 1."""

NEIGHBOURS = 10
STEPS, STEPS_OF_MANY = 200, 120
AXES = 24
"""Main axes in which neighbours are looked for; further ones hold little."""
MANY = 5_000
EXACT_UP_TO = 3_000
"""Rows up to which all are compared with all."""
CELLS_TRIED = 6
CELL_ROUNDS = 5
LOTS = 5
"""Others, drawn by lot, that push a point away in each step."""
SEED = 20261115
START = 10.0
"""How wide the picture is to begin with; neighbours settle at a distance of about 1."""
STRIDE = 4.0


def plotted(vectors: NDArray[np.int16] | Floats, *, steps: int | None = None) -> Points:
    """Return where each vector stands, after a number of steps that depends on how many it is."""
    steps = steps or (STEPS if len(vectors) <= MANY else STEPS_OF_MANY)
    rows = np.ascontiguousarray(vectors, np.float32)
    if len(rows) < 3:
        return _few(len(rows))
    axes = _main_axes(rows)
    points = axes[:, :2] * np.float32(START / max(float(np.abs(axes[:, :2]).max()), 1e-9))
    points = points + _jitter(len(rows))
    near = _neighbours(axes)
    return _framed(_settled(points, near, steps))


def _few(count: int) -> Points:
    return np.array([[0, 0], [0.5, 0]], np.float32)[:count]


def _main_axes(rows: Floats) -> Floats:
    """Return the rows on their main axes, the widest first; each axis points a fixed way."""
    centred = rows - rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    spread = centred.T @ centred
    _, axes = np.linalg.eigh(spread.astype(np.float64))
    main = axes[:, ::-1][:, :AXES]
    # An axis and its opposite are equally right, and libraries choose as they like.
    heads = main[np.abs(main).argmax(axis=0), np.arange(main.shape[1])]
    found = centred @ (main * np.where(heads < 0, -1.0, 1.0)).astype(np.float32)
    if found.shape[1] < 2:
        found = np.hstack([found, np.zeros((len(found), 2 - found.shape[1]), np.float32)])
    return np.ascontiguousarray(found, np.float32)


def _jitter(count: int) -> Floats:
    """Return small shifts, so that equal rows can be told apart and pushed apart."""
    return np.random.default_rng(SEED).normal(0, 0.01, (count, 2)).astype(np.float32)


def _neighbours(axes: Floats) -> NDArray[np.int64]:
    """Return the nearest other rows of each row; for many rows, nearly the nearest."""
    if len(axes) <= EXACT_UP_TO:
        everything = np.arange(len(axes))
        return _nearest(axes, everything, everything)
    return _nearest_by_cell(axes)


def _nearest(axes: Floats, rows: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each of some rows, the nearest of some others."""
    count = min(NEIGHBOURS, len(among) - 1)
    distances = _distances(axes[rows], axes[among])
    distances[rows[:, None] == among[None, :]] = np.inf
    nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
    found = among[nearest]
    missing = NEIGHBOURS - count
    return np.hstack([found, np.repeat(found[:, :1], missing, axis=1)]) if missing else found


def _nearest_by_cell(axes: Floats) -> NDArray[np.int64]:
    """Return near rows by looking only into the cells around each row's own."""
    centres, cells = _cells(axes, round(len(axes) ** 0.5))
    around = np.argsort(_distances(centres, centres), axis=1, kind="stable")[:, :CELLS_TRIED]
    members = [np.flatnonzero(cells == cell) for cell in range(len(centres))]
    found = np.zeros((len(axes), NEIGHBOURS), np.int64)
    for cell, rows in enumerate(members):
        others: list[int] = around[cell].tolist()
        among = np.concatenate([members[other] for other in others])
        if len(among) <= 1:
            among = np.arange(min(len(axes), EXACT_UP_TO))
        if len(rows):
            found[rows] = _nearest(axes, rows, among)
    return found


def _cells(axes: Floats, count: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the centres of some cells and the cell of each row (k-means, few rounds)."""
    # Rows in the order of the widest axis, evenly spread, are as good a start as any lot.
    order = np.argsort(axes[:, 0], kind="stable")
    centres = axes[order[np.linspace(0, len(axes) - 1, count).astype(np.int64)]].copy()
    cells = _distances(axes, centres).argmin(axis=1)
    for _ in range(CELL_ROUNDS):
        sizes = np.bincount(cells, minlength=count)
        for axis in range(axes.shape[1]):
            sums = np.bincount(cells, axes[:, axis], count)
            centres[:, axis] = np.where(sizes, sums / np.maximum(sizes, 1), centres[:, axis])
        cells = _distances(axes, centres).argmin(axis=1)
    return centres, cells


def _distances(rows: Floats, others: Floats) -> Floats:
    """Return all squared distances."""
    lengths = (rows * rows).sum(axis=1)[:, None] + (others * others).sum(axis=1)[None, :]
    return lengths - 2 * (rows @ others.T)


def _settled(points: Points, near: NDArray[np.int64], steps: int) -> Points:
    """Return points after some steps of pulling and pushing, each shorter than the one before."""
    lots = np.random.default_rng(SEED + 1)
    count = len(points)
    froms = np.repeat(np.arange(count), near.shape[1])
    tos = near.ravel()
    here = np.repeat(np.arange(count), LOTS)
    across, down = np.ascontiguousarray(points.T)  # numbers side by side are gathered faster
    for step in range(steps):
        stride = np.float32(STRIDE / near.shape[1] * (1 - step / steps))
        there = lots.integers(0, count, len(here))
        pulled = across[froms] - across[tos], down[froms] - down[tos]
        pushed = across[here] - across[there], down[here] - down[there]
        pull, push = _pull(*pulled), _push(*pushed)
        for line, pull_gap, push_gap in zip((across, down), pulled, pushed, strict=True):
            force = pull_gap * pull
            moved = np.bincount(tos, force, count) - np.bincount(froms, force, count)
            moved += np.bincount(here, push_gap * push, count)
            line += stride * np.clip(moved, -4, 4).astype(np.float32)
    return np.stack([across, down], axis=1)


def _pull(across: Floats, down: Floats) -> Floats:
    """Return how strongly gaps draw together, for each unit of their length."""
    return np.reciprocal(1 + (across * across + down * down))


def _push(across: Floats, down: Floats) -> Floats:
    """Return how strongly gaps push apart, for each unit of their length."""
    squares = across * across + down * down
    return 2 * np.reciprocal((0.01 + squares) * (1 + squares))


def _framed(points: Points) -> Points:
    """Return points between -1 and 1; few far ones do not press all others together."""
    middle = np.median(points, axis=0)
    centred = points - middle
    reach = max(float(np.quantile(np.abs(centred), 0.995)), 1e-6) * 1.05
    return np.clip(centred / reach, -1, 1).astype(np.float32)


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
