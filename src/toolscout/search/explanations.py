"""Explanations: what brought a candidate up and what held it back, in words.

Reads a ranking that is already made; changes nothing about it.
"""

import numpy as np

from toolscout.search.evidence import matches_of
from toolscout.search.fusion import Signal, gate_of
from toolscout.search.hits import Why
from toolscout.search.rank import Ranking
from toolscout.search.states import State
from toolscout.search.text import Field, content, term, words
from toolscout.tools import Tool

FIELD_NAMES = {
    Field.NAME: "name",
    Field.SERVER: "server",
    Field.DESCRIPTION: "description",
    Field.PARAMETER: "parameters",
    Field.PARAMETER_DESCRIPTION: "parameter descriptions",
    Field.ENUM: "values",
    Field.HINT: "hint",
    Field.TITLE: "title",
}
FAR = 0.25
"""Similarity below which meaning does not speak for a tool."""


def explain(state: State, ranking: Ranking, row: int) -> Why:
    """Return why one candidate of a ranking stands where it does."""
    tool = state.tools[int(ranking.places[row])]
    matched = _matched(state, ranking, row)
    return Why(
        matched=matched,
        shares=ranking.fusion.shares(
            ranking.evidence[row], ranking.question.length, gate_of(ranking.evidence)
        ),
        held_back=tuple(_held_back(ranking, row, tool, matched)),
    )


def _matched(state: State, ranking: Ranking, row: int) -> dict[str, tuple[str, ...]]:
    question = ranking.question
    _, found = matches_of(question, state, ranking.places[row : row + 1])
    masks: dict[int | None, int] = dict(zip(question.numbers, found[:, 0].tolist(), strict=True))
    listed = [(word, masks.get(state.find(term(word)), 0)) for word in question.words]
    by_field = {
        name: tuple(word for word, mask in listed if mask >> field & 1)
        for field, name in FIELD_NAMES.items()
    }
    return {name: found_words for name, found_words in by_field.items() if found_words}


def _held_back(
    ranking: Ranking, row: int, tool: Tool, matched: dict[str, tuple[str, ...]]
) -> list[str]:
    said: list[str] = []
    has = {word for listed in matched.values() for word in listed}
    missing = [word for word in ranking.question.words if word not in has]
    if missing:
        said.append(f"It does not mention: {', '.join(missing[:8])}.")
    extra = [w for w in dict.fromkeys(content(words(tool.leaf))) if term(w) not in map(term, has)]
    if extra and ranking.evidence[row, Signal.NAME_MEANING] < 0.99:
        said.append(f"Its name also says: {', '.join(extra[:8])}.")
    if not tool.description:
        said.append("It has no description.")
    if 0 < ranking.evidence[row, Signal.MEANING] < FAR:
        said.append("Its meaning is far from the query.")
    better = int(np.sum(ranking.scores > ranking.scores[row]))
    if better:
        fit = "tool fits" if better == 1 else "tools fit"
        said.append(f"{better} other {fit} better.")
    return said
