from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from toolscout.hints.hints import Hints
from toolscout.search.build import Writer
from toolscout.search.rank import CANDIDATES, find_best

ARRANGED: dict[str, Callable[[int], NDArray[np.int64]]] = {
    "mixed": lambda size: np.random.default_rng(7).permutation(size),
    "rising": np.arange,
    "falling": lambda size: np.arange(size)[::-1],
    "best last but level before": lambda size: np.arange(size).clip(size - CANDIDATES - 1),
}


@pytest.mark.parametrize("size", [49, 768, 769, 959, 960, 5_003])
@pytest.mark.parametrize("arrangement", ARRANGED)
def test_the_best_scores_are_the_first_of_a_full_sort(size: int, arrangement: str):
    scores = ARRANGED[arrangement](size).astype(np.float32)
    state = Writer(None, Hints(), approximate=None).build(())

    kept = find_best(state, scores, np.arange(size))

    assert kept.tolist() == sorted(scores.argsort(kind="stable")[-CANDIDATES:].tolist())
