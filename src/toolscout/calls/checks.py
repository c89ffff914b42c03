"""A server's JSON Schema as a check of values, in bounded time.

`check_for` makes a tool's schema ready; `Check.examine` gives the faults of a value, each with
its place, the keyword that it breaks and what that keyword asks for. Schemas are other people's:
no reference leaves the schema, patterns run in linear time, and what would take too long or too
deep is not begun. What cannot be used of a schema is left out and said in `Findings.unchecked`.
`format` is a note, as the standard has it: servers disagree on what it means.
Nothing here repairs a value or words a message; `repairs` and `arguments` do.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from toolscout.calls.effort import (
    ALTERNATIVES,
    ITEMS,
    MAX_EFFORT,
    MEMBERS,
    effort,
    multiplies,
    objects,
    patterns,
    target,
    value_at,
)
from toolscout.schemas import Json, is_list, is_object
from toolscout.tools import Tool

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

CACHED_CHECKS = 1_000
MAX_FAULTS = 200
MAX_BRANCHES = 16
MAX_ALTERNATIVES_DEEP = 6
MAX_PATTERN_BYTES = 10 << 20
MAX_PATTERNS_BYTES = 64 << 20
"""For all patterns of one schema together, once compiled."""

_FORBIDDERS = frozenset(("properties", "patternProperties", "prefixItems", *ITEMS, *MEMBERS))
_KEY_RULES = frozenset(("required", "additionalProperties", "unevaluatedProperties"))
_MOVING_REFERENCES = ("$dynamicRef", "$recursiveRef")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One value that breaks one keyword of a schema."""

    path: Path
    rule: str
    key: str | None = None
    """The key that is missing or not allowed in the object at `path`."""
    wanted: Any = None
    """What the keyword asks for: types, options, a limit, a pattern."""
    holder: Json = field(default_factory=dict[str, Any])
    """The schema that has the keyword; empty where it cannot be told."""
    branches: tuple[tuple["Fault", ...], ...] = ()
    """For `anyOf` and `oneOf`: why each alternative does not fit; empty faults where it does."""

    @property
    def place(self) -> Path:
        """Where the fault shows: the missing or refused key itself, or else `path`."""
        return self.path if self.key is None else (*self.path, self.key)

    def is_same(self, other: "Fault") -> bool:
        """Tell whether both complain about the same thing, whatever the value is now."""
        return (self.place, self.rule) == (other.place, other.rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a check found."""

    faults: tuple[Fault, ...] = ()
    unchecked: str = ""
    """What was not checked, in one sentence; empty if all was."""


def check_for(tool: Tool) -> "Check":
    """Return the check of a tool's arguments; the same schema is made ready once."""
    return _cached_check(_Content(tool.fingerprint, tool))


@dataclass(frozen=True, slots=True)
class _Content:
    """A tool that compares by its fingerprint alone, as a key of the cache."""

    fingerprint: str
    tool: Tool = field(compare=False)


@lru_cache(maxsize=CACHED_CHECKS)
def _cached_check(content: _Content) -> "Check":
    return Check(content.tool.input_schema)


class Check:
    """A schema made ready. It never changes, so threads may share it."""

    def __init__(self, schema: Json) -> None:
        self.schema = schema
        self._validator, self._unchecked = _validator_from_schema(schema)
        self._multiplies = multiplies(schema)

    def examine(self, value: object) -> Findings:
        """Return the faults of a JSON value, at most 200."""
        if self._validator is None:
            return Findings(faults=self._basic_faults(value), unchecked=self._unchecked)
        if self._multiplies and self._takes_too_long(value):
            return Findings(
                faults=self._basic_faults(value),
                unchecked="Checking all of these arguments would take too long.",
            )
        return Findings(faults=self._faults(self._validator, value), unchecked=self._unchecked)

    def effort(self, value: object) -> int:
        """Return what a check of this value costs; above `MAX_EFFORT`, one more than that."""
        return effort(self.schema, value)

    def _takes_too_long(self, value: object) -> bool:
        return self.effort(value) > MAX_EFFORT

    def _faults(self, validator: "Validator", value: object) -> tuple[Fault, ...]:
        try:
            if validator.is_valid(value):
                return ()
            if self._takes_too_long(value):
                return (Fault(path=(), rule="schema"),)
            # All errors are made at once, each with a copy of its value: hence the effort.
            errors = list(validator.iter_errors(value))[:MAX_FAULTS]
        except ValueError:  # a value that the validator cannot read
            return (Fault(path=(), rule="schema"),)
        return tuple(fault for error in errors for fault in self._from_error(error, value))

    def _basic_faults(self, value: object) -> tuple[Fault, ...]:
        """Return what can be told without a validator: missing members that are required."""
        wanted = self.schema.get("required")
        if not is_object(value) or not is_list(wanted):
            return ()
        return tuple(
            Fault(path=(), rule="required", key=name, holder=self.schema)
            for name in wanted[:MAX_FAULTS]
            if isinstance(name, str) and name not in value
        )

    def _from_error(
        self, error: "ValidationError", value: object, depth: int = 0
    ) -> Iterator[Fault]:
        kind = error.kind
        rule = kind.name if kind.name != "falseSchema" else _forbidder(error.schema_path)
        path = _real_path(value, error.instance_path)
        alternatives = kind.name in ALTERNATIVES
        context: Any = kind.value if alternatives and depth < MAX_ALTERNATIVES_DEEP else []
        wanted: Any = None if alternatives or kind.name == "propertyNames" else kind.value
        keys = (wanted if is_list(wanted) else [wanted]) if rule in _KEY_RULES else [None]
        for key in keys:
            yield Fault(
                path=path,
                rule=rule,
                key=key,
                wanted=wanted,
                holder=self._holder(error.schema_path),
                branches=self._branches(context, value, depth + 1),
            )

    def _branches(
        self, context: "list[list[ValidationError]]", value: object, depth: int
    ) -> tuple[tuple[Fault, ...], ...]:
        return tuple(
            tuple(
                fault
                for error in branch[:MAX_BRANCHES]
                for fault in self._from_error(error, value, depth)
            )
            for branch in context[:MAX_BRANCHES]
        )

    def _holder(self, steps: Sequence[str | int]) -> Json:
        holder = value_at(self.schema, _real_path(self.schema, steps[:-1]))
        return holder if is_object(holder) else {}


def _real_path(root: object, steps: Iterable[str | int]) -> Path:
    """Return a path with the keys as they are: the validator reports the key "0" as a number."""
    path: list[str | int] = []
    node = root
    for step in steps:
        real = str(step) if is_object(node) else step
        path.append(real)
        node = value_at(node, (real,))
    return tuple(path)


def _forbidder(schema_path: Sequence[str | int]) -> str:
    """Return the keyword under which a schema says `false`."""
    named = (step for step in reversed(schema_path) if step in _FORBIDDERS)
    return str(next(named, "not"))


def _validator_from_schema(schema: Json) -> "tuple[Validator | None, str]":
    """Return a validator and what it leaves out, or none and the reason."""
    if not _is_self_contained(schema):
        return None, "Its schema refers to what is not in it, so only names were checked."
    share = MAX_PATTERNS_BYTES // max(1, sum(len(patterns(part)) for part in objects(schema)))
    validator = _compiled(schema, share)
    if validator is not None:
        return validator, ""
    validator = _compiled(_without_odd_patterns(schema, share), share)
    if validator is not None:
        return validator, "A pattern of its schema cannot be run safely and was not checked."
    return None, "Its schema is not valid JSON Schema, so only names were checked."


def _compiled(schema: Json, pattern_bytes: int) -> "Validator | None":
    import jsonschema_rs as rs  # takes a while to load and only calls need it

    bare = {key: value for key, value in schema.items() if key != "$schema"}
    size = min(MAX_PATTERN_BYTES, pattern_bytes)
    options = rs.RegexOptions(size_limit=size, dfa_size_limit=size)
    for draft in _drafts(schema):
        try:
            return draft(bare, validate_formats=False, retriever=_refuse, pattern_options=options)
        except (ValueError, rs.ReferencingError):
            continue
    return None


def _drafts(schema: Json) -> "Iterator[type[Validator]]":
    """Return the drafts to try: the declared one, 2020-12, and older ones.

    Servers seldom say which draft they write; lists as `items` and flags as limits are older.
    """
    import jsonschema_rs as rs

    declared = schema.get("$schema")
    first = rs.validator_cls_for({"$schema": declared} if isinstance(declared, str) else {})
    drafts = [first, rs.Draft202012Validator, rs.Draft7Validator]
    if not _is_rebased(schema, "id"):  # which in draft 4 does what `$id` does
        drafts.append(rs.Draft4Validator)
    return iter(dict.fromkeys(drafts))


def _refuse(uri: str) -> Any:
    raise ValueError("references to other documents are not followed")


def _without_odd_patterns(schema: Json, pattern_bytes: int) -> Json:
    """Return a copy without the patterns that only a backtracking engine could run."""

    def cleaned(part: Json) -> Json:
        pattern = part.get("pattern")
        if isinstance(pattern, str) and _compiled({"pattern": pattern}, pattern_bytes) is None:
            del part["pattern"]
        return part

    return json.loads(json.dumps(schema), object_hook=cleaned)


def _is_self_contained(schema: Json) -> bool:
    """Tell whether every reference leads to a place in this schema that can be known beforehand."""
    parts = list(objects(schema))
    if any(isinstance(part.get(key), str) for part in parts for key in _MOVING_REFERENCES):
        return False
    references = [part["$ref"] for part in parts if isinstance(part.get("$ref"), str)]
    if not references:
        return True
    is_oldest = "draft-04" in str(schema.get("$schema"))
    if _is_rebased(schema, "$id") or (is_oldest and _is_rebased(schema, "id")):
        return False
    return all(target(schema, reference) is not None for reference in references)


def _is_rebased(schema: Json, key: str) -> bool:
    """Tell whether references below some part of a schema start at that part."""
    return any(isinstance(part.get(key), str) for part in objects(schema) if part is not schema)
