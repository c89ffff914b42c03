"""Check values against a server's JSON Schema in bounded time.

We do not trust schemas: no reference leaves the schema, patterns run in linear time, and a check
that would take too long does not start. A check also says which parts of a schema we cannot use.
`format` is only an annotation, as in the standard, because servers disagree on it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from toolscout.calls import effort
from toolscout.errors import FOREIGN_REFERENCE, INVALID_SCHEMA, TOO_SLOW, UNSAFE_PATTERN
from toolscout.schemas import TEXT_UNIT, Json, has_few_values, is_list, is_object
from toolscout.tools import Tool

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

CACHED_CHECKS = 1_000
QUICK_SCHEMA = 1_000
QUICK_VALUE = 200
"""Values of a schema and of arguments that are checked within a few milliseconds."""
MAX_FAULTS = 200
MAX_LISTED_EFFORT = 100_000
"""If the effort of a check is higher, it stops at the first fault."""
MAX_BRANCHES = 16
MAX_ALTERNATIVES_DEEP = 6
MAX_PATTERN_BYTES = 10 << 20
MAX_PATTERNS_BYTES = 64 << 20
"""The limit for all compiled patterns of one schema together."""

_FORBIDDERS = frozenset(
    ("properties", "patternProperties", "prefixItems", *effort.ITEMS, *effort.MEMBERS)
)
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
    """The schema that has the keyword; empty if it is unknown."""
    branches: tuple[tuple["Fault", ...], ...] = ()
    """For `anyOf` and `oneOf`: the faults of each alternative; none for one that fits."""

    @property
    def place(self) -> Path:
        """The path of the missing or refused key if there is one, else `path`."""
        return self.path if self.key is None else (*self.path, self.key)


def is_quick(tool: Tool, value: object) -> bool:
    """Tell whether arguments of a tool can be checked where nobody may wait."""
    return has_few_values(value, QUICK_VALUE) and _is_small(_Content(tool.fingerprint, tool))


def get_check(tool: Tool) -> "Check":
    """Return the check of a tool's arguments; each schema is compiled once."""
    return _build_check(_Content(tool.fingerprint, tool))


@dataclass(frozen=True, slots=True)
class _Content:
    """A cache key: a tool that compares by its fingerprint alone."""

    fingerprint: str
    tool: Tool = field(compare=False)


@lru_cache(maxsize=CACHED_CHECKS)
def _is_small(content: _Content) -> bool:
    schema = content.tool.input_schema
    is_short = has_few_values(schema, QUICK_SCHEMA)
    return is_short and effort.measure_schema(schema) <= QUICK_SCHEMA


@lru_cache(maxsize=CACHED_CHECKS)
def _build_check(content: _Content) -> "Check":
    return Check(content.tool.input_schema)


class Check:
    """A compiled schema. It never changes, so threads may share it."""

    def __init__(self, schema: Json) -> None:
        self.schema = schema
        self._validator, self._unchecked = _validator_from_schema(schema)
        self._size = effort.measure_schema(schema)

    def examine(self, value: object) -> tuple[tuple[Fault, ...], str]:
        """Return the faults of a JSON value, at most 200, and a sentence on what is unchecked.

        The sentence is empty if the check was complete.
        """
        if self._validator is None:
            return self._find_missing_members(value), self._unchecked
        work = self._size * _count_values(value)
        if work > effort.MAX_EFFORT:
            work = effort.estimate_effort(self.schema, value)
            if work > effort.MAX_EFFORT:
                return self._find_missing_members(value), TOO_SLOW
        try:
            errors = self._find_errors(self._validator, value, work)
        except ValueError:  # a value that the validator cannot read
            return (Fault(path=(), rule="schema"),), self._unchecked
        faults = (fault for error in errors for fault in self._faults_from_error(error, value))
        # One error may name thousands of keys.
        return tuple(islice(faults, MAX_FAULTS)), self._unchecked

    def _find_errors(
        self, validator: "Validator", value: object, work: float
    ) -> "list[ValidationError]":
        if validator.is_valid(value):
            return []
        if work <= MAX_LISTED_EFFORT:
            # The validator builds all errors at once, each with a copy of its value.
            return list(validator.iter_errors(value))
        import jsonschema_rs as rs

        try:
            validator.validate(value)
        except rs.ValidationError as error:
            return [error]
        return []

    def _find_missing_members(self, value: object) -> tuple[Fault, ...]:
        """Return the required members that are missing, which needs no validator."""
        wanted = self.schema.get("required")
        if not is_object(value) or not is_list(wanted):
            return ()
        return tuple(
            Fault(path=(), rule="required", key=name, holder=self.schema)
            for name in wanted[:MAX_FAULTS]
            if isinstance(name, str) and name not in value
        )

    def _faults_from_error(
        self, error: "ValidationError", value: object, depth: int = 0
    ) -> Iterator[Fault]:
        kind = error.kind
        rule = kind.name
        if rule == "falseSchema":  # the keyword under which a schema says `false`
            steps = reversed(error.schema_path)
            rule = str(next((step for step in steps if step in _FORBIDDERS), "not"))
        path = _restore_path(value, error.instance_path)
        holder = effort.follow_path(self.schema, _restore_path(self.schema, error.schema_path[:-1]))
        alternatives = kind.name in effort.ALTERNATIVES
        context: Any = kind.value if alternatives and depth < MAX_ALTERNATIVES_DEEP else []
        branches = tuple(
            tuple(
                fault
                for inner in branch[:MAX_BRANCHES]
                for fault in self._faults_from_error(inner, value, depth + 1)
            )
            for branch in context[:MAX_BRANCHES]
        )
        wanted: Any = None if alternatives or kind.name == "propertyNames" else kind.value
        keys = (wanted if is_list(wanted) else [wanted]) if rule in _KEY_RULES else [None]
        for key in keys:
            yield Fault(
                path=path,
                rule=rule,
                key=key,
                wanted=wanted,
                holder=holder if is_object(holder) else {},
                branches=branches,
            )


def _count_values(value: object) -> int:
    """Return how many values a JSON value holds; a long text or key counts as several."""
    nodes = [value]
    count = 0
    for node in nodes:  # the loop appends to it
        count += 1
        if isinstance(node, str):
            count += len(node) // TEXT_UNIT
        elif is_object(node):
            count += sum(map(len, node)) // TEXT_UNIT
            nodes.extend(node.values())
        elif isinstance(node, list | tuple):
            nodes.extend(cast("Sequence[object]", node))
    return count


def _restore_path(root: object, steps: Iterable[str | int]) -> Path:
    """Return a path with its real keys: the validator reports the key "0" as a number."""
    path: list[str | int] = []
    node = root
    for step in steps:
        real = str(step) if is_object(node) else step
        path.append(real)
        node = effort.follow_path(node, (real,))
    return tuple(path)


def _validator_from_schema(schema: Json) -> "tuple[Validator | None, str]":
    """Return a validator and what it does not check, or None and the reason."""
    if not _is_self_contained(schema):
        return None, FOREIGN_REFERENCE
    share = MAX_PATTERNS_BYTES // max(
        1, sum(len(effort.list_patterns(part)) for part in effort.iterate_objects(schema))
    )
    validator = _compile(schema, share)
    if validator is not None:
        return validator, ""
    validator = _compile(_drop_unsafe_patterns(schema, share), share)
    if validator is not None:
        return validator, UNSAFE_PATTERN
    return None, INVALID_SCHEMA


def _compile(schema: Json, pattern_bytes: int) -> "Validator | None":
    import jsonschema_rs as rs  # slow to import, and only calls need it

    bare = {key: value for key, value in schema.items() if key != "$schema"}
    size = min(MAX_PATTERN_BYTES, pattern_bytes)
    options = rs.RegexOptions(size_limit=size, dfa_size_limit=size)
    # Servers seldom declare their draft. Only older ones allow lists as `items` and booleans as
    # exclusive limits.
    declared = schema.get("$schema")
    first = rs.validator_cls_for({"$schema": declared} if isinstance(declared, str) else {})
    drafts = [first, rs.Draft202012Validator, rs.Draft7Validator]
    if not _is_rebased(schema, "id"):  # the `$id` of draft 4
        drafts.append(rs.Draft4Validator)
    for draft in dict.fromkeys(drafts):
        try:
            return draft(
                bare, validate_formats=False, retriever=_refuse_reference, pattern_options=options
            )
        except (ValueError, rs.ReferencingError):
            continue
    return None


def _refuse_reference(uri: str) -> Any:
    raise ValueError("references to other documents are not followed")


def _drop_unsafe_patterns(schema: Json, pattern_bytes: int) -> Json:
    """Return a copy without the patterns that only a backtracking engine could run."""

    def clean(part: Json) -> Json:
        pattern = part.get("pattern")
        if isinstance(pattern, str) and _compile({"pattern": pattern}, pattern_bytes) is None:
            del part["pattern"]
        return part

    return json.loads(json.dumps(schema), object_hook=clean)


def _is_self_contained(schema: Json) -> bool:
    """Tell whether every reference leads to a fixed place in this schema."""
    parts = list(effort.iterate_objects(schema))
    if any(isinstance(part.get(key), str) for part in parts for key in _MOVING_REFERENCES):
        return False
    references = [part["$ref"] for part in parts if isinstance(part.get("$ref"), str)]
    if not references:
        return True
    is_oldest = "draft-04" in str(schema.get("$schema"))
    if _is_rebased(schema, "$id") or (is_oldest and _is_rebased(schema, "id")):
        return False
    return all(effort.resolve_reference(schema, reference) is not None for reference in references)


def _is_rebased(schema: Json, key: str) -> bool:
    """Tell whether some part of a schema has a base address of its own for references."""
    return any(
        isinstance(part.get(key), str)
        for part in effort.iterate_objects(schema)
        if part is not schema
    )
