"""What a search gives: hits, how sure each is, and why.

Values only. The explanation of a hit is worked out when it is asked for, because most are not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast, overload

from toolscout.query import Query
from toolscout.tools import Tool


class Confidence(StrEnum):
    """How sure a hit is; `docs/search.md` says how often each holds."""

    EXACT = "exact"
    """The query is this tool's name, alias or leaf, or a filter that it passes."""
    STRONG = "strong"
    LIKELY = "likely"
    WEAK = "weak"


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What brought a tool up, and what held it back."""

    matched: Mapping[str, tuple[str, ...]]
    """Query words found in the tool, by field."""
    shares: Mapping[str, float]
    """Each signal's share of the score, between 0 and 1; they add up to 1 unless all are 0."""
    held_back: tuple[str, ...]
    """Plain sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One tool that a search found."""

    tool: Tool
    score: float
    """The estimated chance, 0 to 1, that this tool is wanted; falls from hit to hit."""
    confidence: Confidence
    explain: Callable[[], Why] = field(repr=False, compare=False)

    @property
    def why(self) -> Why:
        """What brought this tool up."""
        return self.explain()


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A selected name that no tool has, and the names near it."""

    name: str
    near: tuple[str, ...]


class Hits(Sequence[Hit]):
    """Hits that are made when they are first read: a search gives more than are looked at.

    `make` gives the hits of some ranks, the best being 0.
    """

    __slots__ = ("_made", "_make", "_ranks")

    def __init__(self, count: int, make: Callable[[range], list[Hit]]) -> None:
        self._ranks, self._make = range(count), make
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
        """Return at least so many of the first hits."""
        made = self._made
        if len(made) < count:
            # A new list, never a longer one: another thread may be reading this one.
            made = self._made = made + self._make(range(len(made), count))
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Sequence[Hit]):
    """The hits of one query, best first."""

    query: Query
    found: Sequence[Hit]
    worth: int
    """How many of the hits are worth showing; the rest is far behind or weak."""
    total: int
    """How many tools the query could have given with no limit."""
    missing: tuple[Missing, ...] = ()
    corrected: Mapping[str, str] = field(default_factory=dict[str, str])
    """Words read as others, because nothing matched as written: typed to understood."""

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
