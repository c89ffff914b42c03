"""Rules that check a single tool.

Each rule takes a tool and returns a `Finding` or None. A finding says what makes a tool hard to
find or expensive, and how to improve it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum

from toolscout.names import list_some, to_one_line
from toolscout.schemas import Json, list_parameters
from toolscout.search.text import drop_stop_words, split_token, split_tokens, split_words, stem
from toolscout.tokens import count_definition_tokens
from toolscout.tools import Effect, Tool


class Severity(StrEnum):
    """How bad a finding is, mildest first."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Higher is worse."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that a rule found with a tool."""

    tool: str
    """The exposed name."""
    code: str
    """The code of the rule, which stays the same between versions."""
    severity: Severity
    message: str
    remedy: str
    others: tuple[str, ...] = ()
    """Exposed names of other tools that are involved."""

    def to_json(self) -> Json:
        """Return the finding as plain JSON."""
        return asdict(self) | {"others": list(self.others)}


LONG_DEFINITION_TOKENS = 1_000
LEAST_TOKEN_BYTES = 2
"""Fewest bytes per token in practice; tokens are not counted in definitions too short to matter."""
SHOWN_PARAMETERS = 5
TEXT_SHOWN = 60

_EMPTY_WORDS = (
    "tool tools function functions method methods api apis endpoint call calls calling invoke "
    "execute executes run runs running perform performs operation operations action actions "
    "handle handles process processes request requests description todo tbd none nothing "
    "null na placeholder test example helper utility various useful simple basic thing things "
    "something allows allow lets enables provides given specified data value values"
)
EMPTY_WORDS = frozenset(map(stem, _EMPTY_WORDS.split()))
"""Stems that say nothing about what a tool is for."""

_VAGUE_NAME_WORDS = (
    "do run exec execute call invoke perform handle process get set make api tool function "
    "func method action operation op request thing item data value info stuff main "
    "default foo bar baz tmp temp misc helper util generic custom my new"
)
VAGUE_NAME_WORDS = frozenset(map(stem, _VAGUE_NAME_WORDS.split()))
"""Stems that name no subject: a name with only these could belong to any tool."""

_PLACEHOLDER = re.compile(
    r"\W*(todo|tbd|fixme|n/?a|none|null|no description( (available|provided|given))?|"
    r"description|lorem ipsum.*|\.*)\W*",
    re.IGNORECASE | re.DOTALL,
)


def find_empty_description(tool: Tool) -> Finding | None:
    """Find a description that is missing or only a placeholder."""
    if not _PLACEHOLDER.fullmatch(tool.description.strip()):
        return None
    text = to_one_line(tool.description, TEXT_SHOWN)
    message = f"Its description is {text!r}." if text else "It has no description."
    remedy = "Say in one sentence what it does, in the words of someone who would ask for it."
    return Finding(tool.name, "empty-description", Severity.ERROR, message, remedy)


def find_vague_description(tool: Tool) -> Finding | None:
    """Find a description that says no more than the name does."""
    if _PLACEHOLDER.fullmatch(tool.description.strip()):
        return None
    named = {*_stem_text(tool.leaf), *_stem_text(tool.server)}
    if _stem_text(tool.description) - named - EMPTY_WORDS:
        return None
    text = to_one_line(tool.description, TEXT_SHOWN)
    message = f"Its description, {text!r}, says no more than its name."
    remedy = "Say what it works on, what it returns and when to use it."
    return Finding(tool.name, "vague-description", Severity.WARNING, message, remedy)


def find_vague_name(tool: Tool) -> Finding | None:
    """Find a name that could belong to any tool."""
    # Tokens with digits stay whole, because 'k8s' has a meaning and its pieces do not.
    parts = [part for token in split_tokens(tool.leaf) for part in _split_part(token)]
    if any(stem(part) not in VAGUE_NAME_WORDS for part in parts):
        return None
    message = f"The name {to_one_line(tool.leaf, TEXT_SHOWN)!r} does not say what it is about."
    remedy = "Name it with a verb and its object, such as 'create_invoice'."
    return Finding(tool.name, "vague-name", Severity.WARNING, message, remedy)


def find_undescribed_parameters(tool: Tool) -> Finding | None:
    """Find parameters without a description; required ones are more severe."""
    outer = list_parameters(tool.input_schema, max_depth=1)
    bare = [p for p in outer if not p.description.strip() and len(p.enum) < 2]
    if not bare:
        return None
    names = list_some([to_one_line(p.name, TEXT_SHOWN) for p in bare], SHOWN_PARAMETERS)
    severity = Severity.WARNING if any(p.required for p in bare) else Severity.INFO
    message = f"{len(bare)} of {len(outer)} parameters have no description: {names}."
    remedy = "Give each a 'description' with its meaning, its format and an example."
    return Finding(tool.name, "undescribed-parameters", severity, message, remedy)


def find_unknown_effect(tool: Tool) -> Finding | None:
    """Find a tool that does not say whether it changes anything."""
    if (tool.claimed_effect or tool.effect) is not Effect.UNKNOWN:
        return None
    message = "It does not say whether it reads, writes or destroys."
    hints = "MCP's 'readOnlyHint' and 'destructiveHint' annotations"
    remedy = f"Set {hints}, or 'effects' in toolscout's configuration."
    return Finding(tool.name, "unknown-effect", Severity.INFO, message, remedy)


def find_overlong_definition(tool: Tool) -> Finding | None:
    """Find a definition that takes up much of a model's context."""
    schema = json.dumps(tool.input_schema, ensure_ascii=False)
    size = len(tool.description.encode("utf-8", "replace")) + len(schema.encode("utf-8", "replace"))
    if size < LONG_DEFINITION_TOKENS * LEAST_TOKEN_BYTES:
        return None
    cost = count_definition_tokens(tool)
    if cost <= LONG_DEFINITION_TOKENS:
        return None
    message = f"Its definition takes {cost:,} tokens; {LONG_DEFINITION_TOKENS:,} is already a lot."
    remedy = "Move examples and reference text out of it, or split it into several tools."
    return Finding(tool.name, "overlong-definition", Severity.WARNING, message, remedy)


RULES: tuple[Callable[[Tool], Finding | None], ...] = (
    find_empty_description,
    find_vague_description,
    find_vague_name,
    find_undescribed_parameters,
    find_unknown_effect,
    find_overlong_definition,
)


def _split_part(token: str) -> tuple[str, ...]:
    """Return the words of one token of a name, ignoring version numbers and single letters."""
    if re.fullmatch(r"v?\d+|\w", token, re.IGNORECASE):
        return ()
    return (token,) if any(map(str.isdigit, token)) else split_token(token)


def _stem_text(text: str) -> set[str]:
    words = drop_stop_words(split_words(text))
    return {stem(word) for word in words if len(word) > 1 and not word.isdigit()}
