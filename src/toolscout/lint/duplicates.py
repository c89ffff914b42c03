"""Find near-duplicates: tools that say the same thing in nearly the same words.

Vectors propose pairs and words confirm them, because vectors alone confuse 'start' with 'stop'.
Tools with equal leaves or equal descriptions are always compared; without an encoder, only those.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import GRID
from toolscout.errors import UsageError
from toolscout.lint.rules import Finding, Severity
from toolscout.names import find_near_names, fold_name, list_some
from toolscout.search.index import SearchIndex
from toolscout.search.text import drop_stop_words, split_words, stem
from toolscout.tools import Tool

ALIKE = 0.93
"""Tools with at least this cosine similarity may be duplicates."""
SHARED_WORDS = 0.8
"""Tools are duplicates if they have at least this share of their words in common."""
MOST_COMPARED = 50_000
"""The largest catalogue in which all pairs are compared, which takes quadratic time."""
ROWS_AT_ONCE = 512
MOST_TWINS = 20
"""How many twins of one tool are examined, to bound the time for a catalogue full of copies."""
SHOWN_TWINS = 3
NEAREST = 5

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A tool that is easily confused with another one."""

    name: str
    similarity: float
    """0 to 1: the cosine similarity or, without an encoder, the share of common words."""


def find_near(index: SearchIndex, name: str, limit: int = NEAREST) -> tuple[Near, ...]:
    """Return the tools that are nearest in meaning to one, nearest first; ties go by name."""
    tools, vectors = index.list_vectors()
    place = next((at for at, tool in enumerate(tools) if tool.name == name), None)
    if place is None:
        known = ", ".join(find_near_names(name, (tool.name for tool in tools))) or "none"
        raise UsageError(f"There is no tool {name!r}. Near: {known}.")
    if vectors is None:
        likeness = [_compare_words(tools[place], tool) for tool in tools]
    else:
        likeness = _compute_cosines(vectors, vectors[place : place + 1])[0].tolist()
    ranked = sorted((-round(max(0.0, likeness[at]), 4), tool.name) for at, tool in enumerate(tools))
    found = [Near(name=other, similarity=-score) for score, other in ranked if other != name]
    return tuple(found[:limit])


def find_twins(index: SearchIndex, progress: Callable[[int], None]) -> Iterator[Finding]:
    """Yield a finding for each near-duplicate; calls `progress` with how many were compared."""
    tools, vectors = index.list_vectors()
    pairs = dict.fromkeys(_find_equal_pairs(tools))
    if vectors is None or len(tools) > MOST_COMPARED:
        progress(len(tools))
    else:
        pairs.update(dict.fromkeys(_find_near_pairs(vectors, progress)))
    partners: dict[int, list[int]] = {}
    for one, other in pairs:
        if _is_same_in_words(tools[one], tools[other]):
            partners.setdefault(one, []).append(other)
            partners.setdefault(other, []).append(one)
    for place in sorted(partners):
        tool = tools[place]
        others = [tools[other] for other in partners[place]]
        names = tuple(sorted({other.name for other in others}))
        message = f"It says nearly the same as {list_some(names, SHOWN_TWINS)}."
        remedy = "Merge them, or begin each description with what sets it apart"
        # Two services may well offer the same thing, but within one server it only confuses.
        severity = Severity.WARNING
        if all(other.server != tool.server for other in others):
            severity = Severity.INFO
            remedy += ", such as the name of its service"
        yield Finding(tool.name, "near-duplicate", severity, message, f"{remedy}.", names)


def _find_near_pairs(vectors: NDArray[np.int16], progress: Callable[[int], None]) -> Iterator[Pair]:
    for begin in range(0, len(vectors), ROWS_AT_ONCE):
        block = vectors[begin : begin + ROWS_AT_ONCE]
        likeness = _compute_cosines(vectors[begin:], block)
        for row in range(len(block)):
            # Comparing a row only with later ones yields each pair once.
            ahead = np.flatnonzero(likeness[row, row + 1 :] >= ALIKE)[:MOST_TWINS]
            yield from ((begin + row, begin + row + 1 + int(step)) for step in ahead)
        progress(begin + len(block))


def _compute_cosines(vectors: NDArray[np.int16], wanted: NDArray[np.int16]) -> NDArray[np.float32]:
    scaled = wanted.astype(np.float32) * np.float32(1 / GRID**2)
    return np.asarray(scaled @ vectors.astype(np.float32).T, np.float32)


def _find_equal_pairs(tools: Sequence[Tool]) -> Iterator[Pair]:
    groups: dict[str, list[int]] = {}
    for place, tool in enumerate(tools):
        groups.setdefault(f"name {fold_name(tool.leaf)}", []).append(place)
        if tool.description:
            groups.setdefault(f"text {tool.description}", []).append(place)
    for group in groups.values():
        yield from combinations(group[:MOST_TWINS], 2)


def _is_same_in_words(one: Tool, other: Tool) -> bool:
    """Tell whether two tools share most words of their descriptions, or of all their text."""
    first = _collect_terms(one.description)
    second = _collect_terms(other.description)
    described_alike = bool(first) and _measure_overlap(first, second) >= SHARED_WORDS
    return described_alike or _compare_words(one, other) >= SHARED_WORDS


def _compare_words(one: Tool, other: Tool) -> float:
    """Return the share of words that two tools have in common in leaf and description."""
    return _measure_overlap(
        _collect_terms(one.leaf, one.description), _collect_terms(other.leaf, other.description)
    )


def _measure_overlap(first: frozenset[str], second: frozenset[str]) -> float:
    return len(first & second) / max(1, len(first | second))


@lru_cache(maxsize=4_096)
def _collect_terms(*texts: str) -> frozenset[str]:
    return frozenset(stem(word) for text in texts for word in drop_stop_words(split_words(text)))
