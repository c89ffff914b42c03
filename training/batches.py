"""The batches of training: questions, their answers, and near siblings of those answers.

A step is drawn from the recipe's seed and its own number, so that a run taken up again goes on
as if it had not stopped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch

from training.corpora import Asked, Corpus
from training.phrases import Phrase, drop_namesakes, group_by_server
from training.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step: question `i` is answered by text `i`; further texts answer none."""

    source: str
    questions: list[str]
    texts: list[str]
    forbidden: torch.Tensor
    """Texts that answer a question beside the one at its place: neither right nor wrong."""


class Batches:
    """All steps of a recipe."""

    def __init__(
        self, recipe: Recipe, corpora: Sequence[Corpus], phrases: Sequence[Phrase]
    ) -> None:
        self._recipe = recipe
        self._corpora = [one for one in corpora if one.name not in recipe.left_out and one.asked]
        self._servers = group_by_server(drop_namesakes(phrases, corpora, recipe.left_out))
        self._shares = [math.sqrt(len(one.asked)) for one in self._corpora]
        self._by_group = {one.name: _group_rows(one) for one in self._corpora}

    def at(self, step: int) -> Batch:
        """Return the batch of a step."""
        rng = Random(f"{self._recipe.seed} {step}")
        if self._servers and (not self._corpora or rng.random() < self._recipe.self_made):
            return self._make_from_phrases(rng)
        corpus = rng.choices(self._corpora, self._shares)[0]
        return self._make_from_corpus(corpus, rng)

    def _make_from_phrases(self, rng: Random) -> Batch:
        chosen: list[Phrase] = []
        while len(chosen) < self._recipe.batch:
            server = rng.choice(self._servers)
            chosen += rng.sample(server, min(len(server), self._recipe.batch // 4))
        chosen = chosen[: self._recipe.batch]
        texts = [one.text for one in chosen]
        # Many tools say the same: an equal text is no wrong answer.
        same = [[i != j and a == b for j, b in enumerate(texts)] for i, a in enumerate(texts)]
        return Batch(
            source="phrases",
            questions=[one.question for one in chosen],
            texts=texts,
            forbidden=torch.tensor(same),
        )

    def _make_from_corpus(self, corpus: Corpus, rng: Random) -> Batch:
        chosen = rng.sample(corpus.asked, min(self._recipe.batch, len(corpus.asked)))
        groups = self._by_group[corpus.name]
        answers = [rng.choice(groups[rng.choice(one.relevant)]) for one in chosen]
        siblings = [rng.choice(one.near) for one in chosen if one.near]
        places = answers + siblings
        return Batch(
            source=corpus.name,
            questions=[one.text for one in chosen],
            texts=[corpus.texts[place] for place in places],
            forbidden=_find_also_right(corpus, chosen, places),
        )


def _group_rows(corpus: Corpus) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for place, group in enumerate(corpus.groups):
        found.setdefault(group, []).append(place)
    return found


def _find_also_right(
    corpus: Corpus, chosen: Sequence[Asked], places: Sequence[int]
) -> torch.Tensor:
    rows = [
        [i != j and corpus.groups[place] in one.relevant for j, place in enumerate(places)]
        for i, one in enumerate(chosen)
    ]
    return torch.tensor(rows)
