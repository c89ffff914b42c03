"""What the model reads in answer to a meta-tool, within a token budget.

A `Reply` is text for the model, and details from which programs read the same without parsing it
(R42). Here are refusals and the forms in which every reply tells a tool: a line, a definition.
What a search tells is `sheets`' part.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from toolscout.calls.cut import cut
from toolscout.dialects import Dialect, to_result, to_search_output
from toolscout.schemas import SHOWN_OPTIONAL, Json
from toolscout.search.hits import Hit
from toolscout.tokens import count_tokens
from toolscout.tools import Tool

REMEMBERED_DEFINITIONS = 500
LISTED = 8
"""Names that one line holds before it says how many more there are."""


def _no_details() -> Json:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to one call of a meta-tool."""

    text: str
    code: str = "ok"
    """Stable: `ok`, or why not (R78)."""
    is_error: bool = False
    details: Json = field(default_factory=_no_details)
    """Plain JSON; what the text says, for programs."""
    hits: tuple[Hit, ...] = ()
    """What a search shows, query by query."""
    known: tuple[Hit, ...] = ()
    """What a search found that is callable already."""
    references: tuple[str, ...] = ()
    """Tools that this reply made callable."""
    described: tuple[str, ...] = ()
    """Tools whose whole definition is in the text."""
    by_reference: bool = False
    """Whether the provider shows the definitions of what was loaded."""
    definitions: tuple[Tool, ...] = ()
    """Tools whose definitions answer a search in place of the text, in mode `definitions`."""
    blocks: tuple[Json, ...] = ()
    """Content of a call's result that is not text: images, links to resources."""

    @property
    def tokens(self) -> int:
        """What the text costs."""
        return count_tokens(self.text)

    @property
    def images(self) -> list[Json]:
        """Those of the blocks that are images, with `data` and `mimeType` as MCP has them."""
        return [block for block in self.blocks if block.get("type") == "image"]

    def to_message(self, dialect: Dialect | str, call_id: str = "") -> Json:
        """Return the reply as a provider's answer to the call of this id."""
        if self.definitions:
            return to_search_output(dialect, call_id, self.definitions)
        return to_result(
            dialect,
            call_id,
            self.text,
            is_error=self.is_error,
            blocks=self.blocks,
            references=self.references if self.by_reference else (),
        )


def hit_line(tool: Tool, *, optional: int = SHOWN_OPTIONAL) -> str:
    """Return a tool on one line: signature and first sentence (R39)."""
    sentence = tool.first_sentence()
    told = f" \N{EN DASH} {sentence}" if sentence else ""
    return f"{tool.signature(optional=optional)}{told}"


def some_names(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = len(names) - LISTED
    shown = ", ".join(names[:LISTED])
    return f"{shown} and {more:,} more" if more > 0 else shown


@lru_cache(maxsize=REMEMBERED_DEFINITIONS)
def told_whole(tool: Tool) -> str:
    """Return a tool's definition for a reply that is about more than it."""
    # What a tool gives back is read when it does; tool_describe has it for those who plan ahead.
    return f"Definition of {tool.name}:\n{definition_text(tool, output=False)}"


def definition_text(tool: Tool, *, output: bool = True) -> str:
    """Return a tool's whole definition as JSON in which nothing opens a tag."""
    definition: Json = {"name": tool.name}
    if tool.description:
        definition["description"] = tool.description
    definition["input_schema"] = tool.input_schema
    if output and tool.output_schema is not None:
        definition["output_schema"] = tool.output_schema
    examples = tool.extras.get("input_examples")
    if examples:
        definition["input_examples"] = examples
    return json_text(definition)


# What opens a tag, and what steers a reader who cannot see it (R85).
_UNSAFE = re.compile(
    r"[<\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]"
)


def json_text(value: object) -> str:
    """Return compact JSON; `<` and invisible characters are escaped and read back unchanged."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return _UNSAFE.sub(_escaped, text.encode("utf-8", "replace").decode())


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def refused(
    error: Exception,
    *,
    code: str,
    budget: int,
    definition: Tool | None = None,
    details: Json | None = None,
) -> Reply:
    """Return the reply to a call that was not made or did not succeed.

    A definition that has no room gives way to the signature, and that to a way to get it.
    """
    # Half of the budget at most, so that there is room for what follows.
    text, described = limited(str(error), budget // 2), ()
    if definition is not None:
        room = budget - count_tokens(text) - 1
        whole = told_whole(definition)
        forms = (whole, f"Signature: {definition.signature(optional=0)}")
        fits = next((form for form in forms if count_tokens(form) <= room), "")
        described = (definition.name,) if fits == whole else ()
        more = fits or f"Its parameters: tool_describe with {definition.name!r}."
        text = f"{text}\n{more}"
    return Reply(
        text=text,
        code=code,
        is_error=True,
        details={"code": code, "message": str(error)} | (details or {}),
        described=described,
    )


def limited(text: str, budget: int) -> str:
    """Return a text of at most a number of tokens; what is cut ends in `…`."""
    if count_tokens(text) <= budget:
        return text
    return f"{text[: cut(text, 0, max(1, budget - 2))].rstrip()}…"
