import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from toolscout.encoders.encoder import (
    GRID,
    CallableEncoder,
    Encoder,
    Floats,
    Kind,
    VectorCache,
    encode_questions,
    encode_words,
    hash_text,
    normalize_rows,
    on_grid,
    take_leading,
    take_leading_row,
)
from toolscout.errors import InvalidEncoder
from toolscout.search.shard import PRODUCT_SIZE, Neighbours, compare_vectors

SEED = 20260901


class Counting(Encoder):
    """An encoder that remembers what it was asked for."""

    name = "counting"

    def __init__(self, width: int = 16) -> None:
        self.width = width
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
        self.asked += texts
        return normalize_rows(
            [np.random.default_rng(len(t)).normal(size=self.width) for t in texts]
        )


def random_rows(count: int, width: int, *, seed: int = SEED) -> NDArray[np.int16]:
    return on_grid(normalize_rows(np.random.default_rng(seed).normal(size=(count, width))))


def exact(rows: NDArray[np.int16], queries: NDArray[np.int16]) -> NDArray[np.float64]:
    """Return the cosines by whole numbers, with no rounding but the last division."""
    return queries.astype(np.int64) @ rows.astype(np.int64).T / GRID**2


def floats(rows: NDArray[np.int16]) -> Floats:
    return rows.astype(np.float32)


@pytest.mark.parametrize("width", [32, 256, 384])
def test_similarities_are_exact(width: int):
    rows, queries = random_rows(2_000, width), random_rows(9, width, seed=1)

    found = compare_vectors(floats(rows), floats(queries))

    assert found.dtype == np.float32
    assert found.tolist() == exact(rows, queries).tolist()


@pytest.mark.parametrize("width", [256, 384])
def test_similarities_of_like_vectors_are_exact_too(width: int):
    # Sums of one sign grow largest, so that rounding would show.
    numbers = np.abs(np.random.default_rng(SEED).normal(size=(500, width)))
    numbers[0] = 1
    numbers[1] = np.eye(width)[0]
    rows = on_grid(normalize_rows(numbers))

    found = compare_vectors(floats(rows), floats(rows))

    assert found.tolist() == exact(rows, rows).tolist()


@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.floats(-3, 3))
def test_similarities_are_exact_for_vectors_of_any_kind(seed: int, width: int, mean: float):
    numbers = np.random.default_rng(seed).normal(mean, size=(8, width))
    rows = on_grid(normalize_rows(numbers))

    found = compare_vectors(floats(rows), floats(rows))

    assert found.tolist() == exact(rows, rows).tolist()


@pytest.mark.requirement("R33")
def test_similarities_do_not_depend_on_the_order_of_rows():
    """R33"""
    rows, queries = floats(random_rows(300, 256)), floats(random_rows(3, 256, seed=1))
    order = np.random.default_rng(SEED).permutation(len(rows))

    mixed = compare_vectors(rows[order], queries)

    assert mixed.tobytes() == compare_vectors(rows, queries)[:, order].tobytes()


def test_rounding_to_the_grid_moves_cosines_by_little():
    vectors = normalize_rows(np.random.default_rng(SEED).normal(size=(200, 256)))
    rows = floats(on_grid(vectors))

    assert compare_vectors(rows, rows) == pytest.approx(vectors @ vectors.T, abs=3e-3)


@pytest.mark.parametrize("queries", [1, 2, 9])
@pytest.mark.parametrize("width", [32, 256])
def test_similarities_of_many_rows_are_exact_in_either_order_of_memory(width: int, queries: int):
    count = 2 * PRODUCT_SIZE // (width * queries) + 1
    rows, asked = random_rows(count, width), random_rows(queries, width, seed=1)
    whole = (asked.astype(np.int64) @ rows.astype(np.int64).T).astype(np.float32)

    by_row = compare_vectors(floats(rows), floats(asked))
    by_dimension = compare_vectors(np.asfortranarray(floats(rows)), floats(asked))

    assert by_row.tobytes() == (whole / GRID**2).astype(np.float32).tobytes()
    assert by_dimension.tobytes() == by_row.tobytes()


def test_no_rows_have_no_similarities():
    nothing, queries = np.zeros((0, 32), np.float32), floats(random_rows(2, 32))

    assert compare_vectors(nothing, queries).shape == (2, 0)


def test_leading_numbers_are_unit_vectors_of_their_own():
    rows = random_rows(50, 256)

    found = take_leading(rows, 32)

    assert found.shape == (50, 32)
    assert np.linalg.norm(found / GRID, axis=1) == pytest.approx(np.ones(50), abs=2e-3)
    assert found.tolist() == take_leading(floats(rows), 32).tolist()
    assert found.tolist() == [take_leading_row(row, 32).tolist() for row in floats(rows)]


def test_rows_of_zeros_are_similar_to_nothing():
    rows = np.zeros((3, 32), np.float32)

    assert compare_vectors(rows, floats(random_rows(1, 32))).tolist() == [[0, 0, 0]]
    assert take_leading(rows, 8).tolist() == np.zeros((3, 8)).tolist()


def test_query_and_word_vectors_are_on_the_grid():
    encoder = Counting(width=100)

    found = encode_questions(encoder, ["list files", "x"])
    short = encode_words(encoder, ["list", "files"])

    assert found.dtype == short.dtype == np.float32
    assert (found == np.rint(found)).all()
    assert (short == np.rint(short)).all()
    assert found.shape == (2, 100)
    assert short.shape[1] < 100


def test_different_texts_have_different_keys():
    texts = ["", "a", "b", "a ", "é", "e\u0301", "\ud800"]

    assert len({hash_text(text) for text in texts}) == len(texts)
    assert hash_text("a") == hash_text("a")


@pytest.mark.requirement("R35")
def test_the_cache_encodes_each_text_once():
    """R35"""
    encoder = Counting()
    cache = VectorCache(encoder)

    first = ask(cache, ["one", "three", "one"])
    again = ask(cache, ["three", "fifth", "one"])

    assert encoder.asked == ["one", "three", "fifth"]
    assert first.tolist() == [again[2].tolist(), again[0].tolist(), again[2].tolist()]
    assert (
        again.tolist()
        == on_grid(Counting().encode(["three", "fifth", "one"], kind="tool")).tolist()
    )


def test_the_cache_starts_with_what_it_is_given():
    encoder = Counting()
    cache, known = VectorCache(encoder), random_rows(1, 16)
    cache.hold([hash_text("one")], known)

    found = ask(cache, ["one"])

    assert encoder.asked == []
    assert found.tolist() == known.tolist()


def test_a_cache_forgets_all_but_the_live_and_the_newest_vectors():
    encoder = Counting()
    cache = VectorCache(encoder)
    before = ask(cache, ["a", "bb", "ccc", "dddd"])

    cache.keep({hash_text("a"): before[0]}, spare=1)
    after = ask(cache, ["a", "dddd", "bb", "ccc"])

    assert encoder.asked[4:] == ["bb", "ccc"]
    assert after.tolist() == before[[0, 3, 1, 2]].tolist()


def test_vectors_that_are_held_elsewhere_are_not_kept_twice():
    encoder = Counting()
    cache = VectorCache(encoder)
    table = ask(cache, ["one", "three"])

    cache.hold([hash_text("one"), hash_text("three")], table)
    table[0] = 7

    assert ask(cache, ["one", "three"]).tolist() == table.tolist()
    assert encoder.asked == ["one", "three"]


def test_a_table_is_freed_when_all_but_one_of_its_rows_are_forgotten():
    cache = VectorCache(Counting())
    table = ask(cache, ["one", "three"])
    cache.hold([hash_text("one"), hash_text("three")], table)
    freed = weakref.ref(table)

    cache.keep({}, spare=1)
    del table
    gc.collect()

    assert cache.size == 1
    assert freed() is None


def test_the_cache_refuses_vectors_of_another_width():
    encoder = Counting()
    cache = VectorCache(encoder)
    before = ask(cache, ["one"])

    encoder.width = 17
    with pytest.raises(InvalidEncoder, match="counting"):
        ask(cache, ["three"])

    assert ask(cache, ["one"]).tolist() == before.tolist()


def test_the_cache_refuses_known_vectors_of_another_width():
    cache = VectorCache(Counting())
    cache.hold([hash_text("one")], random_rows(1, 15))

    with pytest.raises(InvalidEncoder, match="counting"):
        ask(cache, ["three"])


def test_an_encoder_that_fails_leaves_the_cache_as_it_was():
    failing = True

    def rows(texts: list[str]) -> list[list[float]]:
        return [] if failing else [[1.0, 2.0] for _ in texts]

    cache = VectorCache(CallableEncoder(rows, name="moody"))
    with pytest.raises(InvalidEncoder):
        ask(cache, ["one"])

    failing = False
    assert len(ask(cache, ["one", "three"])) == 2


def ask(cache: VectorCache, texts: Sequence[str]) -> NDArray[np.int16]:
    return cache.encode(texts, [hash_text(text) for text in texts])


@pytest.fixture(scope="module")
def engine() -> Any:
    return pytest.importorskip("usearch.index")


@pytest.mark.requirement("R36")
def test_neighbours_are_nearly_always_the_nearest(engine: Any):
    """R36"""
    rows, queries = random_rows(2_000, 64), floats(random_rows(100, 64, seed=1))
    neighbours = Neighbours.build(floats(rows), engine)
    truth = np.argsort(-compare_vectors(floats(rows), queries), axis=1, kind="stable")[:, :10]

    found = [neighbours.find(query, 50) for query in queries]

    shared = [
        len(set(near.tolist()) & set(true))
        for near, true in zip(found, truth.tolist(), strict=True)
    ]
    assert sum(shared) / truth.size > 0.9
    assert all(len(near) == 50 for near in found)


def test_a_row_is_its_own_nearest_neighbour(engine: Any):
    rows = random_rows(2_000, 256)
    neighbours = Neighbours.build(floats(rows), engine)

    first = [int(neighbours.find(floats(rows[number]), 5)[0]) for number in range(0, 2_000, 40)]

    right = sum(near == number for near, number in zip(first, range(0, 2_000, 40), strict=True))
    assert right >= 48


def test_neighbours_are_the_same_after_writing_and_reading(engine: Any):
    rows, query = random_rows(500, 64), floats(random_rows(1, 64, seed=1))[0]
    neighbours = Neighbours.build(floats(rows), engine)

    again = Neighbours.from_bytes(neighbours.to_bytes(), engine)

    assert again.find(query, 20).tolist() == neighbours.find(query, 20).tolist()


def test_more_neighbours_than_rows_gives_all_rows(engine: Any):
    rows = random_rows(3, 64)

    assert sorted(Neighbours.build(floats(rows), engine).find(floats(rows[0]), 10).tolist()) == [
        0,
        1,
        2,
    ]
