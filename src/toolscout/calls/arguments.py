"""Check the arguments that the model sent, repair them or refuse them (R71, R74).

`prepare` takes any value and returns arguments that fit the tool's schema, or raises
`InvalidArguments` with up to five problems in our own words. Valid arguments stay as they are; the
tool's fixed ones are added.
`convert` then makes them what a Python function's annotations promise.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from toolscout.calls.checks import Fault, Path, get_check
from toolscout.calls.effort import follow_path
from toolscout.calls.repairs import (
    SHOWN_VALUE,
    WRAPPERS,
    Prepared,
    describe_scalar,
    format_path,
    repair,
    unwrap,
)
from toolscout.errors import (
    LONE_SURROGATE,
    MISFIT,
    SEVERAL_FIT,
    UNKNOWN_PARAMETER,
    UNWRITABLE_NUMBER,
    InvalidArguments,
    Problem,
    describe_problem,
)
from toolscout.functions import WrongValue
from toolscout.names import find_near_names, to_one_line
from toolscout.schemas import Json, find_problem, is_list, is_object, list_parameters
from toolscout.tools import Tool

MAX_PROBLEMS = 5
MAX_WRAPPINGS = 4
SHOWN_OPTIONS = 12
SHOWN_KEYS = 8
SHOWN_REASON = 200

_VALUE_RULES = frozenset(
    ("const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern")
)
_SIZE_RULES = frozenset(
    ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
)


def prepare(tool: Tool, value: object) -> Prepared:
    """Return arguments that fit the tool's schema, or raise `InvalidArguments`."""
    reason = find_problem(value) or _explain_unwritable(value)
    if reason:
        raise InvalidArguments(tool.name, [Problem(path="", rule="type", message=reason)])
    check = get_check(tool)
    best: Prepared | None = None
    for shape, notes in _iterate_shapes(tool, value):
        _check_fixed(tool, shape)
        faults, unchecked = check.examine(shape)
        found = Prepared(arguments=shape, faults=faults, unchecked=unchecked)
        if faults:
            found = repair(check, found)
        if not found.faults:
            found = replace(found, repairs=tuple(dict.fromkeys(notes + found.repairs)))
            fixed = tool.fixed_arguments
            return replace(found, arguments=found.arguments | fixed) if fixed else found
        if best is None or len(found.faults) < len(best.faults):
            best = found
    if best is not None:
        raise InvalidArguments(tool.name, _list_problems(best))
    message = describe_problem("type", "object", _describe_value(value))
    raise InvalidArguments(tool.name, [Problem(path="", rule="type", message=message)])


def _check_fixed(tool: Tool, arguments: Json) -> None:
    """Raise `InvalidArguments` for arguments that the model may not choose.

    To ignore them would make a call that the model did not mean.
    """
    taken = [n for n in (*tool.fixed_arguments, *tool.hidden_arguments) if n in arguments]
    if taken:
        message = describe_problem("fixed")
        problems = [Problem(path=name, rule="fixed", message=message) for name in taken]
        raise InvalidArguments(tool.name, problems[:MAX_PROBLEMS])


def convert(tool: Tool, arguments: Json) -> Json:
    """Return checked arguments as the function of a tool takes them.

    Raises `InvalidArguments` for what a schema cannot check, such as a date that does not exist.
    """
    try:
        return tool.convert(arguments)
    except WrongValue as error:
        got = _describe_value(error.value)
        message = describe_problem(error.rule, to_one_line(error.wanted, SHOWN_REASON), got)
        problem = Problem(path=format_path(error.path), rule=error.rule, message=message)
        raise InvalidArguments(tool.name, [problem]) from None


def _explain_unwritable(value: object) -> str:
    """Say why a value cannot be sent as JSON, or return an empty string."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return LONE_SURROGATE
    except ValueError:
        return UNWRITABLE_NUMBER
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


def _list_problems(found: Prepared) -> list[Problem]:
    faults = [inner for fault in found.faults for inner in _expand_fault(fault)]
    # Keys come before indexes.
    faults.sort(key=lambda f: [(s, "") if isinstance(s, int) else (-1, s) for s in f.place])
    problems: dict[Problem, None] = {}
    for fault in faults:
        if len(problems) == MAX_PROBLEMS:
            break  # to describe one may mean to compare all names
        message = _describe_fault(fault, follow_path(found.arguments, fault.path))
        problems[Problem(path=format_path(fault.place), rule=fault.rule, message=message)] = None
    return list(problems)


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


def _describe_fault(fault: Fault, value: object) -> str:
    match fault.rule:
        case "type":
            wanted = " or ".join(map(_format_value, fault.wanted))
            return describe_problem("type", wanted, _describe_value(value))
        case "enum":
            return describe_problem("enum", _list_options(fault.wanted, value))
        case "additionalProperties" | "unevaluatedProperties":
            known = _list_parameters(fault)
            return describe_problem(fault.rule, known) if known else UNKNOWN_PARAMETER
        case "anyOf" | "oneOf":
            return _describe_alternatives(fault, value)
        case rule if rule in _SIZE_RULES:
            size = len(cast("Sequence[object]", value))
            return describe_problem(rule, _format_value(fault.wanted), str(size))
        case rule if rule in _VALUE_RULES:
            return describe_problem(rule, _format_value(fault.wanted), _format_value(value))
        case rule:
            return describe_problem(rule)


def _describe_value(value: object) -> str:
    if isinstance(value, str):
        return f"the text '{to_one_line(value, SHOWN_VALUE)}'"
    if is_object(value):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(cast('Sequence[object]', value))}"
    return describe_scalar(value)


def _format_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return to_one_line(text, SHOWN_VALUE)


def _format_list(values: Sequence[object], limit: int) -> str:
    text = ", ".join(map(_format_value, values[:limit]))
    return text if len(values) <= limit else f"{text}, … ({len(values)} in all)"


def _list_options(options: Sequence[object], value: object) -> str:
    if isinstance(value, str) and len(options) > SHOWN_OPTIONS:
        texts = [option for option in options if isinstance(option, str)]
        near = find_near_names(value[:SHOWN_VALUE], texts)
        options = [*near, *(option for option in options if option not in near)]
    return _format_list(options, SHOWN_OPTIONS)


def _list_parameters(fault: Fault) -> str:
    properties = fault.holder.get("properties")
    declared = list(properties) if is_object(properties) else []
    near = find_near_names((fault.key or "")[:SHOWN_VALUE], declared)
    return _format_list([*near, *(name for name in declared if name not in near)], SHOWN_KEYS)


def _describe_alternatives(fault: Fault, value: object) -> str:
    if not fault.branches:
        return MISFIT
    if not all(fault.branches):
        return SEVERAL_FIT
    kinds = dict.fromkeys(_describe_alternative(branch, fault.path) for branch in fault.branches)
    wanted = "; ".join(list(kinds)[:SHOWN_KEYS])
    return describe_problem(fault.rule, wanted, _describe_value(value))


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
