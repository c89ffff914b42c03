"""Pairs made of tools' own words, for tools that nobody has asked for.

A sentence of the description against the rest of the definition, the name against the
description, the parameters against the description: each teaches which words of tools mean the
same. Questions lose words at random and are reworded by rule, as people write less and otherwise.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from random import Random
from typing import NamedTuple

from toolscout.search.text import Field, build_encoding_text, list_fields, split_words
from toolscout.tools import Tool
from training.corpora import Corpus, to_leaf_words
from training.places import write_json

SENTENCE = re.compile(r"(?<=[.!?])\s+")
SHORTEST, LONGEST = 15, 240
DROPPED = 0.15
OPENINGS = ("", "", "", "I want to ", "please ", "how do I ", "can you ", "I need to ", "help me ")
REWORDED = {
    "retrieve": "get",
    "retrieves": "show",
    "returns": "give me",
    "return": "show",
    "fetches": "get",
    "fetch": "find",
    "delete": "remove",
    "deletes": "get rid of",
    "creates": "make",
    "create": "add",
    "updates": "change",
    "update": "edit",
    "lists": "which are",
    "list": "show all",
    "executes": "run",
    "execute": "run",
    "gets": "look up",
    "search": "look for",
    "sends": "send",
}


class Phrase(NamedTuple):
    """A question in place of a user's, and the text that answers it."""

    question: str
    text: str
    server: str
    leaf: str
    """The words of the tool's own name."""


def make_phrases(tools: Sequence[Tool], *, seed: int) -> Iterator[Phrase]:
    """Yield a phrase for each tool that says enough, in the order of the tools."""
    for tool in tools:
        rng = Random(f"{seed} {tool.server} {tool.name}")
        pair = _pair(tool, rng)
        if pair is not None:
            question, text = rephrase(pair[0], rng), pair[1]
            if len(question) >= SHORTEST // 2 and len(text) >= SHORTEST // 2:
                yield Phrase(question, text, tool.server, to_leaf_words(tool))


def make_hint_phrases(
    tools: Sequence[Tool], hints: Sequence[str], *, seed: int
) -> Iterator[Phrase]:
    """Yield a phrase for each tool with a hint: some of its hint, and the definition."""
    for tool, hint in zip(tools, hints, strict=True):
        parts = [part.strip() for part in hint.split(";") if part.strip()]
        if parts:
            rng = Random(f"{seed} hint {tool.server} {tool.name}")
            some = rng.sample(parts, min(len(parts), rng.randint(1, 3)))
            text = build_encoding_text(tool, list_fields(tool))
            yield Phrase(
                rng.choice(OPENINGS) + ", ".join(some), text, tool.server, to_leaf_words(tool)
            )


def _pair(tool: Tool, rng: Random) -> tuple[str, str] | None:
    fields = list_fields(tool)
    description = " ".join(tool.description.split())
    sentences = [s for s in SENTENCE.split(description) if SHORTEST < len(s) < LONGEST]
    if not sentences:
        return None
    kind = rng.random()
    if kind < 0.4:
        rest = " ".join(sentences[1:])
        return sentences[0], build_encoding_text(replace(tool, description=rest), fields)
    if kind < 0.7:
        return rng.choice(sentences), build_encoding_text(tool, fields)
    name = to_leaf_words(tool)
    if kind < 0.85:
        return name, description
    return description[:LONGEST], f"{name} {' '.join(split_words(fields[Field.PARAMETER]))}"


def rephrase(text: str, rng: Random) -> str:
    """Return a text as someone might ask it: reworded, shorter, with an opening."""
    parts = text.split()
    if rng.random() < 0.5:
        parts = [REWORDED.get(part.casefold(), part) for part in parts]
    if len(parts) > 4 and rng.random() < 0.5:
        parts = [part for part in parts if rng.random() > DROPPED]
    return rng.choice(OPENINGS) + " ".join(parts)


def save(phrases: Sequence[Phrase], path: Path) -> None:
    """Write phrases, whole or not at all."""
    write_json(path, phrases)


def load(path: Path) -> list[Phrase]:
    """Read what `save` wrote."""
    return [Phrase(*row) for row in json.loads(path.read_text(encoding="utf-8"))]


def drop_hidden(phrases: Sequence[Phrase], corpora: Sequence[Corpus], fold: str) -> list[Phrase]:
    """Return the phrases that a fold may see: none of its servers, and none of its tools' names.

    The same tool is often described in other words elsewhere; by its name none slips through.
    """
    leaves = {leaf for one in corpora for leaf in one.find_hidden_leaves(fold)}
    servers = {
        server
        for one in corpora
        for server, hidden_in in zip(one.servers, one.folds, strict=True)
        if hidden_in == fold and server
    }
    return [one for one in phrases if one.leaf not in leaves and one.server not in servers]


def group_by_server(phrases: Sequence[Phrase]) -> list[list[Phrase]]:
    """Return the phrases of each server: tools of one server are each other's near siblings."""
    ordered = sorted(phrases, key=lambda phrase: phrase.server)
    return [list(group) for _, group in groupby(ordered, key=lambda phrase: phrase.server)]
