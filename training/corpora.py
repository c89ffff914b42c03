"""Labelled datasets as the trainer sees them: texts of tools, questions, near siblings.

The text of a tool is the one that the index encodes. Siblings are what the index itself puts near
the top for a question without being wanted: a random tool of the same catalogue stops teaching
after a few hundred steps. Datasets whose licence is not permissive are refused.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from toolscout import Catalog, Index
from toolscout.errors import InvalidFile
from toolscout.evaluate.datasets import Dataset, read_dataset
from toolscout.query import Query
from toolscout.search.text import build_encoding_text, list_fields, split_words
from toolscout.tools import Tool
from training.places import write_json
from training.recipe import PERMISSIVE

QUESTIONS = 3_000
NEAR = 25
ALIKE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question, the groups that answer it, and tools that only look as if they did."""

    text: str
    relevant: tuple[int, ...]
    near: tuple[int, ...]
    """Positions of tools, nearest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """One dataset, ready to train on."""

    name: str
    texts: tuple[str, ...]
    leaves: tuple[str, ...]
    """The words of each tool's own name."""
    groups: tuple[int, ...]
    asked: tuple[Asked, ...]

    def save(self, path: Path) -> None:
        """Write the corpus, whole or not at all."""
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> "Corpus":
        """Read what `save` wrote."""
        row = json.loads(path.read_text(encoding="utf-8"))
        asked = tuple(
            Asked(text=one["text"], relevant=tuple(one["relevant"]), near=tuple(one["near"]))
            for one in row["asked"]
        )
        return cls(
            name=row["name"],
            texts=tuple(row["texts"]),
            leaves=tuple(row["leaves"]),
            groups=tuple(row["groups"]),
            asked=asked,
        )


def to_text(tool: Tool) -> str:
    """Return the text of a tool that encoders see."""
    return build_encoding_text(tool, list_fields(tool))


def to_leaf_words(tool: Tool) -> str:
    """Return the words of a tool's own name."""
    return " ".join(split_words(tool.leaf))


def read_licence(folder: Path) -> str:
    """Return the licence that a dataset's `META.md` states."""
    found = re.search(r"Licen[cs]es?:\s*(.+)", (folder / "META.md").read_text(encoding="utf-8"))
    if found is None or not any(name in found[1] for name in PERMISSIVE):
        raise InvalidFile(
            str(folder / "META.md"),
            "states no permissive licence",
            remedy=f"Train on datasets under {', '.join(PERMISSIVE)}.",
        )
    return found[1].strip()


def read_corpus(folder: Path, *, seed: int, limit: int = QUESTIONS) -> Corpus:
    """Return the corpus of a dataset's folder."""
    dataset = read_dataset(folder)
    order = list(range(len(dataset.queries)))
    Random(f"{seed} {dataset.name}").shuffle(order)
    return make_corpus(dataset, sorted(order[:limit]))


def make_corpus(dataset: Dataset, chosen: Sequence[int]) -> Corpus:
    """Return the corpus of some of a dataset's queries."""
    by_server: dict[str, list[Tool]] = {}
    for tool in dataset.tools:
        by_server.setdefault(tool.server, []).append(tool)
    index = Index(Catalog(by_server))
    place = {tool.name: i for i, tool in enumerate(dataset.tools)}
    wanted = dataset.find_relevant_groups()
    texts = tuple(map(to_text, dataset.tools))
    asked: list[Asked] = []
    for i in chosen:
        text = dataset.queries[i].text
        hits = index.search(Query(text=text, words=text), NEAR).hits
        near = [place[hit.tool.name] for hit in hits]
        kept = siblings(dataset, texts, wanted[i], near)
        asked.append(Asked(text=text, relevant=tuple(sorted(wanted[i])), near=tuple(kept)))
    return Corpus(
        name=dataset.name,
        texts=texts,
        leaves=tuple(to_leaf_words(tool) for tool in dataset.tools),
        groups=dataset.groups,
        asked=tuple(asked),
    )


def siblings(
    dataset: Dataset, texts: Sequence[str], wanted: frozenset[int], near: Sequence[int]
) -> list[int]:
    """Return near tools that are not wanted and do not say the same as one that is."""
    answers = [i for i, group in enumerate(dataset.groups) if group in wanted]
    leaves = {dataset.tools[i].leaf.casefold() for i in answers}
    said = [frozenset(split_words(texts[i])) for i in answers]
    return [
        i
        for i in near
        if dataset.groups[i] not in wanted
        and dataset.tools[i].leaf.casefold() not in leaves
        and not any(_is_alike(frozenset(split_words(texts[i])), one) for one in said)
    ]


def _is_alike(first: frozenset[str], second: frozenset[str]) -> bool:
    return len(first & second) > ALIKE * len(first | second)
