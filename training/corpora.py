"""Labelled datasets as the trainer sees them: texts of tools, questions, near siblings.

The text of a tool is the one that the index encodes. Siblings are what the index itself puts near
the top for a question without being wanted: a random tool of the same catalogue stops teaching
after a few hundred steps. Datasets whose licence is not permissive are refused.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from benchmarks.fitting import read_hints
from toolscout import Catalog, Index
from toolscout.errors import InvalidFile
from toolscout.evaluate.datasets import Dataset, read_dataset
from toolscout.query import Query
from toolscout.search.text import build_encoding_text, list_fields, split_words
from toolscout.tools import Tool
from training.places import write_json
from training.recipe import FOLDS, PERMISSIVE, REQUESTS

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
    servers: tuple[str, ...]
    hints: tuple[str, ...]
    """What people may call each tool; empty where nobody wrote it down."""
    folds: tuple[str, ...]
    """The fold that must not see each tool; empty for one that every fold may see."""
    asked: tuple[Asked, ...]

    def find_hidden_leaves(self, fold: str) -> set[str]:
        """Return the names that phrases must not have in a fold: those of tools it must not see.

        Of a catalogue that only a part is left out of, these are the tools that questions are for.
        """
        hidden = {place for place, other in enumerate(self.folds) if other == fold}
        if len(hidden) < len(self.folds):
            wanted = {group for one in self.asked for group in one.relevant}
            hidden = {place for place in hidden if self.groups[place] in wanted}
        return {self.leaves[place] for place in hidden}

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
            servers=tuple(row["servers"]),
            hints=tuple(row["hints"]),
            folds=tuple(row["folds"]),
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


def read_corpus(
    folder: Path, *, seed: int, limit: int = QUESTIONS, hints: Path | None = None
) -> Corpus:
    """Return the corpus of a dataset's folder; `hints` is a folder that may have some for it."""
    dataset = read_dataset(folder)
    known = read_hints(dataset, hints) if hints else {}
    order = list(range(len(dataset.queries)))
    Random(f"{seed} {dataset.name}").shuffle(order)
    return make_corpus(dataset, sorted(order[:limit]), known)


def assign_folds(dataset: Dataset) -> list[str]:
    """Return the fold that must not see each tool.

    Datasets are hidden as a whole. A catalogue of requests is divided by server; servers that
    share half of their names are copies of each other and stay together.
    """
    for fold, names in FOLDS.items():
        if dataset.name in names:
            return [fold] * len(dataset.tools)
    if dataset.name not in REQUESTS:
        return [""] * len(dataset.tools)
    leader = _find_copies(dataset.tools)
    chosen = {name: Random(f"fold {name}").choice(list(FOLDS)) for name in set(leader.values())}
    return [chosen[leader[tool.server]] for tool in dataset.tools]


def _find_copies(tools: Sequence[Tool]) -> dict[str, str]:
    """Return for each server the first of those that are copies of it."""
    leaves: dict[str, set[str]] = {}
    having: dict[str, set[str]] = {}
    for tool in tools:
        leaves.setdefault(tool.server, set()).add(to_leaf_words(tool))
        having.setdefault(to_leaf_words(tool), set()).add(tool.server)
    leader: dict[str, str] = {}
    for server in sorted(leaves):
        if server in leader:
            continue
        leader[server] = server
        waiting = [server]
        while waiting:
            own = leaves[waiting.pop()]
            shared = Counter(other for leaf in own for other in having[leaf])
            for other, count in shared.items():
                least = max(2, 0.5 * min(len(own), len(leaves[other])))
                if other not in leader and count >= least:
                    leader[other] = server
                    waiting.append(other)
    return leader


def make_corpus(dataset: Dataset, chosen: Sequence[int], hints: Mapping[str, str]) -> Corpus:
    """Return the corpus of some of a dataset's queries."""
    by_server: dict[str, list[Tool]] = {}
    for tool in dataset.tools:
        by_server.setdefault(tool.server, []).append(tool)
    index = Index(Catalog(by_server), hints=None)
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
        servers=tuple(tool.server for tool in dataset.tools),
        hints=tuple(hints.get(key, "") for key in dataset.ids),
        folds=tuple(assign_folds(dataset)),
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
