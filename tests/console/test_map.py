"""Points in the plane: finite, the same each time, and near for what is near."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from toolscout.console import map as plots
from toolscout.console.map import plotted

VECTORS = arrays.arrays(
    np.int16, st.tuples(st.integers(0, 30), st.integers(1, 8)), elements=st.integers(-2048, 2048)
)


@given(VECTORS)
@settings(max_examples=60)
def test_every_vector_has_a_finite_place_within_the_frame(vectors: NDArray[np.int16]):
    places = plotted(vectors, steps=20)

    assert places.shape == (len(vectors), 2)
    assert np.isfinite(places).all()
    assert (np.abs(places) <= 1).all()


@given(VECTORS)
@settings(max_examples=30)
def test_the_same_vectors_give_the_same_places(vectors: NDArray[np.int16]):
    assert np.array_equal(plotted(vectors, steps=20), plotted(vectors.copy(), steps=20))


@pytest.mark.parametrize("exact_up_to", [3_000, 50])
def test_twins_stand_beside_each_other(monkeypatch: pytest.MonkeyPatch, exact_up_to: int):
    monkeypatch.setattr(plots, "EXACT_UP_TO", exact_up_to)
    vectors = clustered(groups=10, each=12)
    twins = np.concatenate([vectors, vectors])

    places = plotted(twins)

    gaps = np.linalg.norm(places[: len(vectors)] - places[len(vectors) :], axis=1)
    assert np.median(gaps) < 0.2 * np.median(all_gaps(places))


@pytest.mark.parametrize("exact_up_to", [3_000, 50])
def test_what_is_alike_stands_together(monkeypatch: pytest.MonkeyPatch, exact_up_to: int):
    monkeypatch.setattr(plots, "EXACT_UP_TO", exact_up_to)
    groups = np.repeat(np.arange(10), 20)

    places = plotted(clustered(groups=10, each=20))

    gaps = all_gaps(places)
    np.fill_diagonal(gaps, np.inf)
    nearest = groups[np.argsort(gaps, axis=1)[:, :5]]
    assert (nearest == groups[:, None]).mean() > 0.9


def clustered(*, groups: int, each: int) -> NDArray[np.int16]:
    """Return vectors in clouds around some centres."""
    lots = np.random.default_rng(7)
    centres = np.repeat(lots.normal(size=(groups, 64)), each, axis=0)
    rows = centres + 0.3 * lots.normal(size=centres.shape)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.rint(rows * 2048).astype(np.int16)


def all_gaps(places: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.linalg.norm(places[:, None].astype(np.float64) - places[None], axis=2)
