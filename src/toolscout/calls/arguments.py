"""What the model sent as arguments, made to fit the tool's schema or refused (R71, R74).

`prepare` takes any value and gives arguments that may be sent, or raises `InvalidArguments` with
up to five problems in our own words. Valid arguments come back untouched; `repairs` puts harmless
slips right and says so. Nothing is called here, and whether the tool may be called is not asked.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from toolscout.calls.checks import Fault, Path, check_for
from toolscout.calls.effort import value_at
from toolscout.calls.repairs import WRAPPERS, Repaired, repaired, shown_path, unwrapped
from toolscout.errors import InvalidArguments, Problem
from toolscout.names import find_near_names, to_one_line
from toolscout.schemas import Json, find_problem, is_list, is_object, list_parameters
from toolscout.tools import Tool

MAX_PROBLEMS = 5
MAX_WRAPPINGS = 4
SHOWN_VALUE = 60
SHOWN_OPTIONS = 12
SHOWN_KEYS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Arguments that may be sent."""

    arguments: Json
    repairs: tuple[str, ...] = ()
    """What was changed to make them fit, one sentence each."""
    unchecked: str = ""
    """What could not be checked, in one sentence; empty if all was."""


def prepare(tool: Tool, value: object) -> Prepared:
    """Return arguments that fit the tool's schema, or raise `InvalidArguments`."""
    reason = _unwritable(value)
    if reason:
        raise InvalidArguments(tool.name, [Problem(path="", rule="type", message=reason)])
    check = check_for(tool)
    best: Repaired | None = None
    for shape, notes in _shapes(tool, value):
        found = repaired(check, shape)
        if not found.findings.faults:
            return Prepared(
                arguments=found.value,
                repairs=tuple(dict.fromkeys(notes + found.notes)),
                unchecked=found.findings.unchecked,
            )
        if best is None or len(found.findings.faults) < len(best.findings.faults):
            best = found
    raise InvalidArguments(tool.name, _problems(best) if best else [_not_an_object(value)])


def _unwritable(value: object) -> str:
    """Say why a value cannot be sent as JSON, or return an empty string."""
    problem = find_problem(value)
    if problem:
        return problem
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "holds half of a character (a lone surrogate)"
    except ValueError:
        return "holds a number that JSON cannot write: not a number, infinite or too long"
    return ""


def _not_an_object(value: object) -> Problem:
    return Problem(path="", rule="type", message=f"expected object, got {_got(value)}")


def _shapes(tool: Tool, value: object) -> Iterator[tuple[Json, tuple[str, ...]]]:
    """Return the objects that the arguments may mean, the least unwrapped first."""
    if is_object(value):
        yield value, ()
    declared = {parameter.name for parameter in list_parameters(tool.input_schema, max_depth=1)}
    names = (WRAPPERS | {tool.name, tool.leaf}) - declared
    notes: tuple[str, ...] = ()
    for _ in range(MAX_WRAPPINGS):
        inner = unwrapped(value, names)
        if inner is None:
            return
        value, notes = inner[0], (*notes, inner[1])
        if is_object(value):
            yield value, notes


def _problems(found: Repaired) -> list[Problem]:
    told = [inner for fault in found.findings.faults for inner in _told(fault)]
    told.sort(key=lambda fault: [_order(step) for step in fault.place])
    problems = (_problem(fault, value_at(found.value, fault.path)) for fault in told)
    return list(dict.fromkeys(problems))[:MAX_PROBLEMS]


def _order(step: str | int) -> tuple[int, str]:
    return (step, "") if isinstance(step, int) else (-1, step)


def _told(fault: Fault) -> Iterator[Fault]:
    """Return what to tell: where one alternative was clearly meant, the faults under it."""
    meant = [branch for branch in fault.branches if not _is_other(branch, fault.path)]
    if len(meant) == 1 and meant[0]:
        for inner in meant[0]:
            yield from _told(inner)
    else:
        yield fault


def _is_other(branch: Sequence[Fault], path: Path) -> bool:
    """Tell whether an alternative is for another kind of value, by type or by a fixed member."""
    return any(
        (fault.rule in ("type", "enum", "const") and fault.place == path)
        or (fault.rule == "const" and fault.place[:-1] == path)
        for fault in branch
    )


def _problem(fault: Fault, value: object) -> Problem:
    word = _WORDINGS.get(fault.rule, _does_not_fit)
    return Problem(path=shown_path(fault.place), rule=fault.rule, message=word(fault, value))


def _got(value: object) -> str:
    if isinstance(value, str):
        return f"the text '{to_one_line(value, SHOWN_VALUE)}'"
    if is_object(value):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(cast('Sequence[object]', value))}"
    kind = "" if isinstance(value, bool) or value is None else "the number "
    return kind + _shown(value)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return to_one_line(text, SHOWN_VALUE)


def _listed(values: Sequence[object], limit: int) -> str:
    text = ", ".join(map(_shown, values[:limit]))
    return text if len(values) <= limit else f"{text}, … ({len(values)} in all)"


def _does_not_fit(fault: Fault, value: object) -> str:
    return "does not fit the schema"


def _wrong_type(fault: Fault, value: object) -> str:
    return f"expected {' or '.join(map(_shown, fault.wanted))}, got {_got(value)}"


def _not_an_option(fault: Fault, value: object) -> str:
    options: list[object] = fault.wanted
    texts = [option for option in options if isinstance(option, str)]
    if isinstance(value, str) and len(options) > SHOWN_OPTIONS:
        near = find_near_names(value[:SHOWN_VALUE], texts)
        options = [*near, *(option for option in options if option not in near)]
    return f"must be one of {_listed(options, SHOWN_OPTIONS)}"


def _not_a_parameter(fault: Fault, value: object) -> str:
    properties = fault.holder.get("properties")
    declared = list(properties) if is_object(properties) else []
    if not declared:
        return "is not a parameter"
    near = find_near_names((fault.key or "")[:SHOWN_VALUE], declared)
    known = [*near, *(name for name in declared if name not in near)]
    return f"is not a parameter; known: {_listed(known, SHOWN_KEYS)}"


def _no_alternative(fault: Fault, value: object) -> str:
    if not fault.branches:
        return _does_not_fit(fault, value)
    if not all(fault.branches):
        return "fits more than one alternative; exactly one may fit"
    kinds = dict.fromkeys(_alternative(branch, fault.path) for branch in fault.branches)
    return f"fits none of: {'; '.join(list(kinds)[:SHOWN_KEYS])}; got {_got(value)}"


def _alternative(branch: Sequence[Fault], path: Path) -> str:
    here = next((fault for fault in branch if fault.path == path), None)
    if here is None:
        return f"one with another '{shown_path(branch[0].place)}'"
    required = here.holder.get("required")
    if is_list(required) and required:
        return f"object with {_listed(required, SHOWN_KEYS)}"
    if here.rule == "type":
        return " or ".join(map(_shown, here.wanted))
    return _listed(here.wanted, 4) if here.rule == "enum" else here.rule


def _bound(text: str, measure: Callable[[Any], object]) -> Callable[[Fault, object], str]:
    """Return a wording for a limit and for what is held against it."""

    def word(fault: Fault, value: object) -> str:
        return f"{text.format(_shown(fault.wanted))}, got {_shown(measure(value))}"

    return word


def _itself(value: Any) -> object:
    return value


def _saying(text: str) -> Callable[[Fault, object], str]:
    return lambda fault, value: text


_WORDINGS: dict[str, Callable[[Fault, object], str]] = {
    "type": _wrong_type,
    "required": _saying("is required"),
    "enum": _not_an_option,
    "const": lambda fault, value: f"must be {_shown(fault.wanted)}",
    "additionalProperties": _not_a_parameter,
    "unevaluatedProperties": _not_a_parameter,
    "anyOf": _no_alternative,
    "oneOf": _no_alternative,
    "minimum": _bound("must be at least {}", _itself),
    "maximum": _bound("must be at most {}", _itself),
    "exclusiveMinimum": _bound("must be above {}", _itself),
    "exclusiveMaximum": _bound("must be below {}", _itself),
    "multipleOf": _bound("must be a multiple of {}", _itself),
    "minLength": _bound("must have at least {} characters", len),
    "maxLength": _bound("must have at most {} characters", len),
    "minItems": _bound("must have at least {} items", len),
    "maxItems": _bound("must have at most {} items", len),
    "minProperties": _bound("must have at least {} members", len),
    "maxProperties": _bound("must have at most {} members", len),
    "pattern": _bound("must match the pattern {}", _itself),
    "uniqueItems": _saying("must not hold the same value twice"),
    "contains": _saying("holds no item of the kind that is asked for"),
    "propertyNames": _saying("has a key that is not allowed"),
    "schema": _saying("does not fit the schema; where cannot be told"),
    "not": _saying("is of a kind that is not allowed"),
    "properties": _saying("is not allowed"),
    "items": _saying("is one item too many"),
    "additionalItems": _saying("is one item too many"),
    "unevaluatedItems": _saying("is one item too many"),
}
