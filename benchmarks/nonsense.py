"""How much nonsense finds nothing, and how many real queries are taken for nonsense."""

import random
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toolscout.cli.inputs import catalog_from_tools
from toolscout.evaluate.datasets import Dataset
from toolscout.evaluate.quality import Table
from toolscout.query import Query
from toolscout.search.index import Index

WORDS = 4
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
BEGINS = "b bl br ch d dr f fl g gr h j k kr l m n p pl qu r s sc sh sk st str t th v w z"
ENDS = "b ck d f g l lt m mp n nd ng p r rd s sh sk st t th x z"


def make_letters(chance: random.Random) -> str:
    """Return three to nine random letters."""
    return "".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9)))


def mash_keys(chance: random.Random) -> str:
    """Return letters of one row of a keyboard."""
    return "".join(chance.choices(chance.choice(KEYS), k=chance.randint(4, 9)))


def make_word(chance: random.Random) -> str:
    """Return two or three syllables that mean nothing."""
    begins = BEGINS.split()
    ends = ["", "", "", *ENDS.split()]
    syllables = range(chance.randint(2, 3))
    choose = chance.choice
    return "".join(choose(begins) + choose("aeiou") + choose(ends) for _ in syllables)


KINDS: Mapping[str, Callable[[random.Random], str]] = {
    "letters": make_letters,
    "keys": mash_keys,
    "syllables": make_word,
}


def make_nonsense(kind: str, count: int, *, seed: int = 0) -> list[str]:
    """Return queries of one to four words of one of `KINDS`, always the same ones."""
    chance = random.Random(f"{kind} {seed}")
    make = KINDS[kind]
    return [" ".join(make(chance) for _ in range(chance.randint(1, WORDS))) for _ in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptiness:
    """What found nothing among the tools of one dataset."""

    dataset: str
    tools: int
    shares: Mapping[str, float]
    """By kind of nonsense, the share that found nothing."""
    queries: int
    empty: tuple[str, ...]
    """The dataset's own queries that found nothing."""


def measure_nonsense(dataset: Dataset, count: int) -> Emptiness:
    """Search for `count` queries of each kind of nonsense, and for a dataset's own queries."""
    index = Index(catalog_from_tools(dataset.tools))

    def list_empty(queries: list[str]) -> list[str]:
        return [text for text in queries if not index.search(Query(text=text, words=text))]

    return Emptiness(
        dataset=dataset.name,
        tools=len(dataset.tools),
        shares={kind: len(list_empty(make_nonsense(kind, count))) / count for kind in KINDS},
        queries=len(dataset.queries),
        empty=tuple(list_empty([query.text for query in dataset.queries])),
    )


def tabulate_nonsense(found: list[Emptiness]) -> Table:
    """Return a row for each dataset."""
    rows = [
        (
            one.dataset,
            str(one.tools),
            *(f"{share:.3f}" for share in one.shares.values()),
            str(one.queries),
            str(len(one.empty)),
        )
        for one in found
    ]
    head = ("dataset", "tools", *KINDS, "queries", "of these empty")
    return Table(title="Share that finds nothing", head=head, rows=tuple(rows))
