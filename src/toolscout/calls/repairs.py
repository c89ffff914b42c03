"""Repair harmless slips in arguments (R71).

`repair` takes an object and the check that it fails, and returns the repaired object with one
sentence for each change. It tries the changes that a fault suggests, and keeps one only if the
fault is gone. It invents no value and drops nothing but null: it reads a number in quotes, but
leaves a wrong number wrong. `unwrap` takes arguments out of a wrong wrapping.
`arguments` explains the remaining faults to the model.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

from toolscout.calls.checks import Check, Fault, Findings, Path
from toolscout.calls.effort import MISSING, follow_path
from toolscout.names import fold_name, to_one_line
from toolscout.schemas import Json, find_problem, is_list, is_object

MAX_REPAIRS = 50
MAX_TRIES = 200
MAX_EFFORT = 3_000_000
"""The cost of all tries together; large arguments get fewer tries."""
LARGEST_EXACT = 2**53
MAX_TEXT = 2_000_000
SHOWN_VALUE = 60

WRAPPERS = frozenset(("arguments", "args", "params", "parameters", "input", "kwargs"))

# The parts in which two spellings must agree although folding ignores them: "-created", "v1.1".
_TELLING = re.compile(r"\d+|^\W|\W$")
_LIKE_A_LIST = re.compile(r"[,;\n]|^\s*[\[{]")
_FENCE = "```"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """An object after its repairs, with the findings of its last check."""

    value: Json
    notes: tuple[str, ...]
    findings: Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One change at one place."""

    path: Path
    change: Callable[[Any], Any]
    note: str
    is_whole: bool = False
    """Whether the change is only right if nothing at or below `place` is at fault afterwards."""
    place: Path = ()


_Fix = tuple[_Step, ...]


def repair(check: Check, value: Json) -> Repaired:
    """Return the object with all repairs that helped; a valid object stays as it is."""
    state = Repaired(value=value, notes=(), findings=check.examine(value))
    if not state.findings.faults:
        return state
    tries = iter(range(min(MAX_TRIES, MAX_EFFORT // check.estimate_effort(value))))
    hopeless: list[Fault] = []
    while fault := _pick_fault(state, hopeless):
        better = _fix_fault(check, state, fault, tries)
        if better is None:
            hopeless.append(fault)
        state = better or state
    return state


def _pick_fault(state: Repaired, hopeless: list[Fault]) -> Fault | None:
    if len(state.notes) >= MAX_REPAIRS:
        return None
    for fault in state.findings.faults:
        if not any(fault.is_same(other) for other in hopeless):
            return fault
    return None


def _fix_fault(
    check: Check, state: Repaired, fault: Fault, tries: Iterator[int]
) -> Repaired | None:
    # `zip` draws a fix first, so a try is only spent on a fix that exists.
    for fix, _ in zip(_suggest_fixes(fault, state.value), tries, strict=False):
        better = _try_fix(check, state, fault, fix)
        if better:
            return better
    return None


def _try_fix(check: Check, state: Repaired, fault: Fault, fix: _Fix) -> Repaired | None:
    """Return the state after a fix, or None if the fix does not remove its fault."""
    value: Any = state.value
    for step in fix:
        if follow_path(value, step.path) is MISSING:  # an earlier step moved it
            return None
        value = _change_at(value, step.path, step.change)
    if find_problem(value):  # JSON in a text may be nested as deep as its object allows
        return None
    findings = check.examine(value)
    whole = [step.place for step in fix if step.is_whole]
    for left in findings.faults:
        if fault.is_same(left) or any(left.place[: len(place)] == place for place in whole):
            return None
    notes = tuple(step.note for step in fix)
    return replace(state, value=value, notes=state.notes + notes, findings=findings)


def _change_at(root: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """Return a copy with one place changed; it shares everything off the path."""
    nodes = [root]
    for step in path:
        nodes.append(nodes[-1][step])
    new = change(nodes.pop())
    for node, step in zip(reversed(nodes), reversed(path), strict=True):
        copy = dict(node) if is_object(node) else list(node)
        copy[cast("Any", step)] = new
        new = copy
    return new


def _suggest_fixes(fault: Fault, root: Json) -> Iterator[_Fix]:
    """Yield the fixes that may remove a fault, the likeliest first."""
    value = follow_path(root, fault.path)
    if value is MISSING:
        return
    if value is None and fault.path and isinstance(fault.path[-1], str):
        yield (_drop_null(fault.path),)
    match fault.rule:
        case "type":
            yield from ((step,) for step in _suggest_conversions(fault, value))
        case "enum" | "const":
            yield from ((step,) for step in _suggest_spellings(fault, value))
        case "required":
            yield from ((step,) for step in _suggest_missing(fault, value))
        case "additionalProperties" | "unevaluatedProperties":
            yield from ((step,) for step in _suggest_names(fault, value))
        case "anyOf" | "oneOf":
            yield from _suggest_alternative_fixes(fault, root)
        case _:
            pass


def _suggest_alternative_fixes(fault: Fault, root: Json) -> Iterator[_Fix]:
    """Yield the fixes that make one alternative fit, those with the fewest steps first."""
    for branch in sorted(fault.branches, key=len):
        fixes = [next(_suggest_fixes(inner, root), None) for inner in branch]
        if fixes and all(fixes):
            steps = chain.from_iterable(fix for fix in fixes if fix)
            yield tuple({step.note: step for step in steps}.values())


def _drop_null(path: Path) -> _Step:
    *above, key = path

    def change(node: Json) -> Json:
        return {name: value for name, value in node.items() if name != key}

    note = f"Left out '{format_path(path)}', which was null."
    return _Step(path=tuple(above), change=change, note=note, is_whole=True, place=path)


def _set_value(path: Path, value: object, reading: str, *, is_whole: bool = False) -> _Step:
    note = f"Read '{format_path(path)}' as {reading}."
    return _Step(path=path, change=lambda _: value, note=note, is_whole=is_whole, place=path)


def _suggest_conversions(fault: Fault, value: object) -> Iterator[_Step]:
    types = [str(name) for name in fault.wanted] if is_list(fault.wanted) else []
    if isinstance(value, str):
        read = _value_from_text(value, types)
        if read is not MISSING:
            yield _set_value(fault.path, read, _describe_reading(read))
    elif isinstance(value, bool | int | float) and "string" in types:
        text = json.dumps(value)
        yield _set_value(fault.path, text, f"the text '{text[:SHOWN_VALUE]}'")
    if "array" in types and _is_single(value):
        yield _set_value(fault.path, [value], "a list with this one value", is_whole=True)


def _is_single(value: object) -> bool:
    # "a, b" may mean two values, so the model has to decide.
    return value is not None and not (isinstance(value, str) and _LIKE_A_LIST.search(value))


def _value_from_text(text: str, types: list[str]) -> Any:
    """Return the value that a text means as one of some types, or `MISSING`."""
    folded = text.strip().casefold() if len(text) < SHOWN_VALUE else ""
    words: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
    value = words[folded] if folded in words else json_from_text(text)
    if isinstance(value, float) and "number" not in types and value.is_integer():
        value = int(value) if abs(value) <= LARGEST_EXACT else value
    return value if any(_is_of(value, name) for name in types) else MISSING


def _is_of(value: object, name: str) -> bool:
    match name:
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "object":
            return is_object(value)
        case _:
            return name == "array" and is_list(value)


def _describe_reading(value: object) -> str:
    if is_object(value):
        return "an object, from JSON text"
    if is_list(value):
        return "a list, from JSON text"
    kind = "" if isinstance(value, bool) or value is None else "the number "
    return kind + to_one_line(json.dumps(value), SHOWN_VALUE)


def _suggest_spellings(fault: Fault, value: object) -> Iterator[_Step]:
    options: list[object] = fault.wanted if fault.rule == "enum" else [fault.wanted]
    alike = [option for option in options if _is_alike(_to_text(option), _to_text(value))]
    if len(alike) == 1:
        shown = to_one_line(json.dumps(alike[0], ensure_ascii=False), SHOWN_VALUE)
        yield _set_value(fault.path, alike[0], shown.replace('"', "'"))


def _to_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else ""


def _is_alike(one: str, other: str) -> bool:
    """Tell whether two spellings differ only in case and separators."""
    folded = fold_name(one)
    return (
        bool(folded)
        and folded == fold_name(other)
        and _TELLING.findall(one) == _TELLING.findall(other)
    )


def _suggest_missing(fault: Fault, value: object) -> Iterator[_Step]:
    declared = _get_properties(fault)
    if not is_object(value) or fault.key is None:
        return
    meant = [key for key in value if key not in declared and _is_alike(key, fault.key)]
    if len(meant) == 1:
        yield _rename_key(fault.path, meant[0], fault.key)
    schema = declared.get(fault.key)
    if is_object(schema) and "default" in schema:
        yield _fill_default(fault.place, schema["default"])


def _fill_default(place: Path, default: object) -> _Step:
    *above, key = place
    own = json.loads(json.dumps(default))  # a caller may change its copy
    shown = to_one_line(json.dumps(default, ensure_ascii=False), SHOWN_VALUE)
    return _Step(
        path=tuple(above),
        change=lambda node: {**node, key: own},
        note=f"Filled in '{format_path(place)}' with its default {shown}.",
    )


def _suggest_names(fault: Fault, value: object) -> Iterator[_Step]:
    if not is_object(value) or fault.key is None:
        return
    meant = [name for name in _get_properties(fault) if _is_alike(name, fault.key)]
    if len(meant) == 1 and meant[0] not in value:
        yield _rename_key(fault.path, fault.key, meant[0])


def _rename_key(path: Path, old: str, new: str) -> _Step:
    def change(node: Json) -> Json:
        if new in node:  # both keys mean the same: keep both
            return node
        return {new if name == old else name: value for name, value in node.items()}

    note = f"Read '{format_path((*path, old))}' as '{format_path((*path, new))}'."
    return _Step(path=path, change=change, note=note)


def _get_properties(fault: Fault) -> Json:
    properties = fault.holder.get("properties")
    return properties if is_object(properties) else {}


def format_path(path: Path) -> str:
    """Return a path as `items[2].id`, shortened and on one line."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path[:40])
    return to_one_line(text.removeprefix("."), 2 * SHOWN_VALUE)


def unwrap(value: object, names: frozenset[str]) -> tuple[Any, str] | None:
    """Return the value inside a wrong wrapping and a note about it, or None.

    `names` are keys that can only be a wrapper, because no parameter has them.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}, "Read empty arguments as {}."
    if isinstance(value, str):
        read = json_from_text(value)
        return None if read is MISSING else (read, "Read the arguments from JSON text.")
    if is_list(value) and len(value) == 1 and is_object(value[0]):
        return value[0], "Took the arguments out of a list."
    if is_object(value) and len(value) == 1:
        key, inner = next(iter(value.items()))
        if key in names and (is_object(inner) or isinstance(inner, str)):
            return inner, f"Took the arguments out of '{to_one_line(key, SHOWN_VALUE)}'."
    return None


def json_from_text(text: str) -> Any:
    """Return the JSON value that a text holds, also in a Markdown fence, or `MISSING`."""
    text = text.strip()
    if text.startswith(_FENCE) and text.endswith(_FENCE) and "\n" in text:
        text = text.partition("\n")[2].removesuffix(_FENCE)
    if len(text) > MAX_TEXT:
        return MISSING
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
        # `loads` accepts 1e999 (as infinity) and lone surrogates, which cannot be sent on.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return MISSING
    return MISSING if find_problem(value) else value


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
