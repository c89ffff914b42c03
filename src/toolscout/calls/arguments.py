"""Check the arguments that the model sent, repair them or refuse them (R71, R74).

`prepare` takes any value and returns arguments that fit the tool's schema, or raises
`InvalidArguments` with up to five problems in our own words. Valid arguments stay as they are;
`repairs` fixes harmless slips. This module calls nothing and does not ask for permission.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from toolscout.calls.checks import Fault, Path, get_check
from toolscout.calls.effort import follow_path
from toolscout.calls.repairs import WRAPPERS, Repaired, format_path, repair, unwrap
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
    """One sentence for each change that made them fit."""
    unchecked: str = ""
    """One sentence about the parts that no check could cover; empty if the check was complete."""


def prepare(tool: Tool, value: object) -> Prepared:
    """Return arguments that fit the tool's schema, or raise `InvalidArguments`."""
    reason = _explain_unwritable(value)
    if reason:
        raise InvalidArguments(tool.name, [Problem(path="", rule="type", message=reason)])
    check = get_check(tool)
    best: Repaired | None = None
    for shape, notes in _iterate_shapes(tool, value):
        found = repair(check, shape)
        if not found.findings.faults:
            return Prepared(
                arguments=found.value,
                repairs=tuple(dict.fromkeys(notes + found.notes)),
                unchecked=found.findings.unchecked,
            )
        if best is None or len(found.findings.faults) < len(best.findings.faults):
            best = found
    if best is not None:
        raise InvalidArguments(tool.name, _list_problems(best))
    message = f"expected object, got {_describe_value(value)}"
    raise InvalidArguments(tool.name, [Problem(path="", rule="type", message=message)])


def _explain_unwritable(value: object) -> str:
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


def _iterate_shapes(tool: Tool, value: object) -> Iterator[tuple[Json, tuple[str, ...]]]:
    """Yield the objects that the arguments may mean, the least unwrapped first."""
    if is_object(value):
        yield value, ()
    declared = {parameter.name for parameter in list_parameters(tool.input_schema, max_depth=1)}
    names = (WRAPPERS | {tool.name, tool.leaf}) - declared
    notes: tuple[str, ...] = ()
    for _ in range(MAX_WRAPPINGS):
        inner = unwrap(value, names)
        if inner is None:
            return
        value, notes = inner[0], (*notes, inner[1])
        if is_object(value):
            yield value, notes


def _list_problems(found: Repaired) -> list[Problem]:
    faults = [inner for fault in found.findings.faults for inner in _expand_fault(fault)]
    faults.sort(key=lambda fault: [_sort_key_from_step(step) for step in fault.place])
    problems = (
        _problem_from_fault(fault, follow_path(found.value, fault.path)) for fault in faults
    )
    return list(dict.fromkeys(problems))[:MAX_PROBLEMS]


def _sort_key_from_step(step: str | int) -> tuple[int, str]:
    return (step, "") if isinstance(step, int) else (-1, step)


def _expand_fault(fault: Fault) -> Iterator[Fault]:
    """Yield the fault, or the faults of the one alternative that the model clearly meant."""
    meant = [branch for branch in fault.branches if not _is_other(branch, fault.path)]
    if len(meant) == 1 and meant[0]:
        for inner in meant[0]:
            yield from _expand_fault(inner)
    else:
        yield fault


def _is_other(branch: Sequence[Fault], path: Path) -> bool:
    """Tell whether an alternative describes another kind of value, by type or a fixed member."""
    return any(
        (fault.rule in ("type", "enum", "const") and fault.place == path)
        or (fault.rule == "const" and fault.place[:-1] == path)
        for fault in branch
    )


def _problem_from_fault(fault: Fault, value: object) -> Problem:
    describe = _WORDINGS.get(fault.rule, _describe_misfit)
    return Problem(path=format_path(fault.place), rule=fault.rule, message=describe(fault, value))


def _describe_value(value: object) -> str:
    if isinstance(value, str):
        return f"the text '{to_one_line(value, SHOWN_VALUE)}'"
    if is_object(value):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(cast('Sequence[object]', value))}"
    kind = "" if isinstance(value, bool) or value is None else "the number "
    return kind + _format_value(value)


def _format_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return to_one_line(text, SHOWN_VALUE)


def _format_list(values: Sequence[object], limit: int) -> str:
    text = ", ".join(map(_format_value, values[:limit]))
    return text if len(values) <= limit else f"{text}, … ({len(values)} in all)"


def _describe_misfit(fault: Fault, value: object) -> str:
    return "does not fit the schema"


def _describe_wrong_type(fault: Fault, value: object) -> str:
    return f"expected {' or '.join(map(_format_value, fault.wanted))}, got {_describe_value(value)}"


def _describe_unknown_option(fault: Fault, value: object) -> str:
    options: list[object] = fault.wanted
    texts = [option for option in options if isinstance(option, str)]
    if isinstance(value, str) and len(options) > SHOWN_OPTIONS:
        near = find_near_names(value[:SHOWN_VALUE], texts)
        options = [*near, *(option for option in options if option not in near)]
    return f"must be one of {_format_list(options, SHOWN_OPTIONS)}"


def _describe_unknown_parameter(fault: Fault, value: object) -> str:
    properties = fault.holder.get("properties")
    declared = list(properties) if is_object(properties) else []
    if not declared:
        return "is not a parameter"
    near = find_near_names((fault.key or "")[:SHOWN_VALUE], declared)
    known = [*near, *(name for name in declared if name not in near)]
    return f"is not a parameter; known: {_format_list(known, SHOWN_KEYS)}"


def _describe_alternatives(fault: Fault, value: object) -> str:
    if not fault.branches:
        return _describe_misfit(fault, value)
    if not all(fault.branches):
        return "fits more than one alternative; exactly one may fit"
    kinds = dict.fromkeys(_describe_alternative(branch, fault.path) for branch in fault.branches)
    return f"fits none of: {'; '.join(list(kinds)[:SHOWN_KEYS])}; got {_describe_value(value)}"


def _describe_alternative(branch: Sequence[Fault], path: Path) -> str:
    here = next((fault for fault in branch if fault.path == path), None)
    if here is None:
        return f"one with another '{format_path(branch[0].place)}'"
    required = here.holder.get("required")
    if is_list(required) and required:
        return f"object with {_format_list(required, SHOWN_KEYS)}"
    if here.rule == "type":
        return " or ".join(map(_format_value, here.wanted))
    return _format_list(here.wanted, 4) if here.rule == "enum" else here.rule


def _make_limit_wording(
    text: str, measure: Callable[[Any], object] = lambda value: value
) -> Callable[[Fault, object], str]:
    """Return a function that words a limit and the measure of the value that breaks it."""

    def describe(fault: Fault, value: object) -> str:
        return f"{text.format(_format_value(fault.wanted))}, got {_format_value(measure(value))}"

    return describe


def _make_fixed_wording(text: str) -> Callable[[Fault, object], str]:
    return lambda fault, value: text


_WORDINGS: dict[str, Callable[[Fault, object], str]] = {
    "type": _describe_wrong_type,
    "required": _make_fixed_wording("is required"),
    "enum": _describe_unknown_option,
    "const": lambda fault, value: f"must be {_format_value(fault.wanted)}",
    "additionalProperties": _describe_unknown_parameter,
    "unevaluatedProperties": _describe_unknown_parameter,
    "anyOf": _describe_alternatives,
    "oneOf": _describe_alternatives,
    "minimum": _make_limit_wording("must be at least {}"),
    "maximum": _make_limit_wording("must be at most {}"),
    "exclusiveMinimum": _make_limit_wording("must be above {}"),
    "exclusiveMaximum": _make_limit_wording("must be below {}"),
    "multipleOf": _make_limit_wording("must be a multiple of {}"),
    "minLength": _make_limit_wording("must have at least {} characters", len),
    "maxLength": _make_limit_wording("must have at most {} characters", len),
    "minItems": _make_limit_wording("must have at least {} items", len),
    "maxItems": _make_limit_wording("must have at most {} items", len),
    "minProperties": _make_limit_wording("must have at least {} members", len),
    "maxProperties": _make_limit_wording("must have at most {} members", len),
    "pattern": _make_limit_wording("must match the pattern {}"),
    "uniqueItems": _make_fixed_wording("must not hold the same value twice"),
    "contains": _make_fixed_wording("holds no item of the kind that is asked for"),
    "propertyNames": _make_fixed_wording("has a key that is not allowed"),
    "schema": _make_fixed_wording("does not fit the schema; where cannot be told"),
    "not": _make_fixed_wording("is of a kind that is not allowed"),
    "properties": _make_fixed_wording("is not allowed"),
    "items": _make_fixed_wording("is one item too many"),
    "additionalItems": _make_fixed_wording("is one item too many"),
    "unevaluatedItems": _make_fixed_wording("is one item too many"),
}
