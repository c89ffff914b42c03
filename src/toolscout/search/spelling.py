"""Words read as others: typing errors, forgiven on whole words of names only (R32)."""

from collections.abc import Mapping, Sequence

from rapidfuzz import process
from rapidfuzz.distance import OSA

SHORTEST = 4


def corrections(typed: Sequence[str], known: Sequence[str]) -> Mapping[str, str]:
    """Return the known word meant by each typed one that is a slip away from it.

    From eight letters on, two slips are forgiven.
    """
    found: dict[str, str] = {}
    for word in typed:
        if len(word) < SHORTEST:
            continue
        slips = 1 if len(word) < 8 else 2
        # `known` is sorted, and the first of equals wins, so ties go by name.
        near = process.extractOne(word, known, scorer=OSA.distance, score_cutoff=slips)
        if near is not None:
            found[word] = near[0]
    return found
