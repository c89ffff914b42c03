"""The result of a search: hits with their confidence and their explanation.

These are values only. An explanation is computed when it is read, because most never are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast, overload

from toolscout.query import Query
from toolscout.tools import Tool


class Confidence(StrEnum):
    """How certain a hit is; `docs/search.md` says how often each label is right."""

    EXACT = "exact"
    """The query is this tool's name, alias or leaf, or a filter that it passes."""
    STRONG = "strong"
    LIKELY = "likely"
    WEAK = "weak"


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What raised a tool in the ranking, and what held it back."""

    matched: Mapping[str, tuple[str, ...]]
    """Query words found in the tool, by field."""
    shares: Mapping[str, float]
    """The share of the score, 0 to 1, of each group of signals; they add up to 1 or are all 0."""
    held_back: tuple[str, ...]
    """Full sentences."""
    asked_before: tuple[str, ...] = ()
    """Similar requests after which the tool was called with success, the most similar first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One tool that a search found."""

    tool: Tool
    score: float
    """The estimated chance, 0 to 1, that this is the wanted tool. It never rises from hit to hit,
    but for resources and prompts, which come after tools whatever their score."""
    confidence: Confidence
    explain: Callable[[], Why] = field(repr=False, compare=False)
    raised_from: float | None = None
    """The score before past calls raised it, or None if they did not."""

    @property
    def why(self) -> Why:
        """The explanation of this hit, computed now."""
        return self.explain()


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A selected name that no tool has, and the names near it."""

    name: str
    near: tuple[str, ...]


class Hits(Sequence[Hit]):
    """Hits that are created when they are first read, because callers rarely read all of them.

    `make` returns the hits of a range of ranks; the best hit has rank 0.
    """

    __slots__ = ("_made", "_make", "_ranks")

    def __init__(self, count: int, make: Callable[[range], list[Hit]]) -> None:
        self._ranks = range(count)
        self._make = make
        self._made: list[Hit] = []

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        if isinstance(index, slice):
            ranks = self._ranks[index]
            made = self._make_first(max(ranks, default=-1) + 1)
            return tuple(made[rank] for rank in ranks)
        rank = self._ranks[index]
        return self._make_first(rank + 1)[rank]

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self._make_first(len(self._ranks)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(cast("Sequence[Hit]", other))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _make_first(self, count: int) -> list[Hit]:
        """Return at least the first `count` hits."""
        made = self._made
        if len(made) < count:
            # This builds a new list, because another thread may be reading the old one.
            made = self._made = made + self._make(range(len(made), count))
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Sequence[Hit]):
    """The hits of one query, best first."""

    query: Query
    found: Sequence[Hit]
    worth: int
    """How many of the hits are worth showing; the others are weak or far behind."""
    total: int
    """How many tools the query would find without a limit."""
    missing: tuple[Missing, ...] = ()
    corrected: Mapping[str, str] = field(default_factory=dict[str, str])
    """The words that were replaced because nothing matched as typed: from typed to understood."""
    nearest: float = 0.0
    """How similar the query is to the most similar definition: in meaning, or without an encoder
    the largest share of its words that a tool has."""

    @property
    def hits(self) -> tuple[Hit, ...]:
        """All hits."""
        return tuple(self.found)

    @property
    def best(self) -> tuple[Hit, ...]:
        """The hits that are worth showing."""
        return tuple(self.found[: self.worth])

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index] if isinstance(index, slice) else self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.found)
