"""The map: every tool has a place, always the same, and near tools stand near each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from toolscout.console.map import place_vectors
from toolscout.demo import load_demo_catalog
from toolscout.encoders.encoder import StaticEncoder
from toolscout.search.index import Index

VECTORS = arrays.arrays(
    np.int16, st.tuples(st.integers(0, 30), st.integers(1, 8)), elements=st.integers(-2048, 2048)
)


@given(VECTORS)
@settings(max_examples=60)
def test_every_vector_has_a_finite_place_within_the_frame(vectors: NDArray[np.int16]):
    places = place_vectors(vectors)

    assert places.shape == (len(vectors), 2)
    assert np.isfinite(places).all()
    assert (np.abs(places) <= 1).all()


@given(VECTORS)
@settings(max_examples=30)
def test_the_same_vectors_give_the_same_places(vectors: NDArray[np.int16]):
    assert np.array_equal(place_vectors(vectors), place_vectors(vectors.copy()))


def test_near_tools_of_the_demo_catalogue_stay_near():
    _, vectors = Index(load_demo_catalog(), encoder=StaticEncoder()).list_vectors()
    assert vectors is not None
    meaning, picture = find_gaps(vectors), find_gaps(place_vectors(vectors))

    near = np.argsort(meaning, axis=1)[:, :10]
    shown_near = np.argsort(picture, axis=1)[:, :10]

    kept = [len({*a} & {*b}) / 10 for a, b in zip(near.tolist(), shown_near.tolist(), strict=True)]
    apart = picture[np.isfinite(picture)]
    assert np.mean(kept) > 0.5
    assert np.median(np.take_along_axis(picture, near, axis=1)) < 0.2 * np.median(apart)


@pytest.mark.parametrize("each", [12, 80])
def test_tools_with_equal_vectors_stand_side_by_side(each: int):
    vectors = make_clouds(clouds=10, each=each)
    twins = np.concatenate([vectors, vectors])

    places = place_vectors(twins)

    gaps = np.linalg.norm(places[: len(vectors)] - places[len(vectors) :], axis=1)
    assert np.median(gaps) < 0.2 * np.median(find_gaps(places))


@pytest.mark.parametrize("each", [20, 80])
def test_tools_of_a_cloud_stand_together(each: int):
    clouds = np.repeat(np.arange(10), each)

    gaps = find_gaps(place_vectors(make_clouds(clouds=10, each=each)))

    nearest = clouds[np.argsort(gaps, axis=1)[:, :5]]
    assert (nearest == clouds[:, None]).mean() > 0.9


def make_clouds(*, clouds: int, each: int) -> NDArray[np.int16]:
    """Return vectors in clouds around some centres."""
    lots = np.random.default_rng(7)
    centres = np.repeat(lots.normal(size=(clouds, 64)), each, axis=0)
    rows = centres + 0.3 * lots.normal(size=centres.shape)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.rint(rows * 2048).astype(np.int16)


def find_gaps(rows: NDArray[np.float32] | NDArray[np.int16]) -> NDArray[np.float64]:
    """Return all distances between rows; a row is infinitely far from itself."""
    gaps = np.linalg.norm(rows[:, None].astype(np.float64) - rows[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    return gaps
