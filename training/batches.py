"""The batches of training: questions, their answers, and near siblings of those answers.

A step is drawn from the recipe's seed and its own number, so that a run taken up again goes on
as if it had not stopped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import torch

from training.corpora import Asked, Corpus
from training.phrases import Phrase, drop_hidden, group_by_server
from training.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step: question `i` is answered by text `i`; further texts answer none."""

    source: str
    questions: list[str]
    texts: list[str]
    hints: list[str]
    """What each text's vector is blended with; empty where it stands alone."""
    forbidden: torch.Tensor
    """Texts that answer a question beside the one at its place: neither right nor wrong."""


class Batches:
    """All steps of a recipe."""

    def __init__(
        self, recipe: Recipe, corpora: Sequence[Corpus], phrases: Sequence[Phrase]
    ) -> None:
        self._recipe = recipe
        visible = [keep_visible(one, recipe.fold) for one in corpora]
        self._corpora = [one for one in visible if one.asked]
        self._servers = group_by_server(drop_hidden(phrases, corpora, recipe.fold))
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
            hints=[""] * len(texts),
            forbidden=torch.tensor(same),
        )

    def _make_from_corpus(self, corpus: Corpus, rng: Random) -> Batch:
        chosen = rng.sample(corpus.asked, min(self._recipe.batch, len(corpus.asked)))
        groups = self._by_group[corpus.name]
        answers = [rng.choice(groups[rng.choice(one.relevant)]) for one in chosen]
        siblings = [_choose_sibling(corpus, one, rng) for one in chosen if one.near]
        places = answers + siblings
        # With hints, all tools have them or about half: a search meets both kinds of catalogue.
        kind = rng.random() / self._recipe.hinted
        share = 0.0 if kind >= 1 else 0.5 if kind >= 0.6 else 1.0
        return Batch(
            source=corpus.name,
            questions=[one.text for one in chosen],
            texts=[corpus.texts[place] for place in places],
            hints=[corpus.hints[place] if rng.random() < share else "" for place in places],
            forbidden=_find_also_right(corpus, chosen, places),
        )


def keep_visible(corpus: Corpus, fold: str) -> Corpus:
    """Return a corpus with only the questions and near siblings that a fold may see."""
    hidden = {place for place, other in enumerate(corpus.folds) if other == fold}
    if not hidden:
        return corpus
    groups = {corpus.groups[place] for place in hidden}
    asked = tuple(
        replace(one, near=tuple(place for place in one.near if place not in hidden))
        for one in corpus.asked
        if groups.isdisjoint(one.relevant)
    )
    return replace(corpus, asked=asked)


def _choose_sibling(corpus: Corpus, asked: Asked, rng: Random) -> int:
    """Return a near tool; half of the time one of a server that answers, if there is one."""
    servers = (
        {
            corpus.servers[place]
            for place, group in enumerate(corpus.groups)
            if group in asked.relevant
        }
        if rng.random() < 0.5
        else set[str]()
    )
    own = [place for place in asked.near if corpus.servers[place] in servers]
    return rng.choice(own or asked.near)


def _group_rows(corpus: Corpus) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for place, group in enumerate(corpus.groups):
        found.setdefault(group, []).append(place)
    return found


def _find_also_right(
    corpus: Corpus, chosen: Sequence[Asked], places: Sequence[int]
) -> torch.Tensor:
    # A tool with the same name does nearly the same, whatever its server.
    rows = [
        [
            i != j
            and (corpus.groups[place] in one.relevant or corpus.leaves[place] == corpus.leaves[own])
            for j, place in enumerate(places)
        ]
        for i, (one, own) in enumerate(zip(chosen, places, strict=False))
    ]
    return torch.tensor(rows)
