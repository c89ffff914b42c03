"""Repair harmless slips in arguments (R71).

`repair` tries the changes that a fault suggests, and keeps one only if the fault is gone. It
invents no value and drops nothing but null: it reads a number in quotes, but leaves a wrong number
wrong. `unwrap` takes arguments out of a wrong wrapping.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from toolscout import errors
from toolscout.calls.checks import Check, Fault, Path
from toolscout.calls.effort import MISSING, estimate_effort, follow_path
from toolscout.names import fold_name, to_one_line
from toolscout.schemas import Json, find_problem, is_list, is_object

MAX_REPAIRS = 50
MAX_TRIES = 200
MAX_EFFORT = 3_000_000
"""The cost of all tries together; large arguments get fewer tries."""
NAME_EFFORT = 10
"""How many values cost as much as the comparison of two names."""
LARGEST_EXACT = 2**53
MAX_TEXT = 2_000_000
SHOWN_VALUE = 60

WRAPPERS = frozenset(("arguments", "args", "params", "parameters", "input", "kwargs"))

# The parts in which two spellings must agree although folding ignores them: "-created", "v1.1".
_TELLING = re.compile(r"\d+|^\W|\W$")
_LIKE_A_LIST = re.compile(r"[,;\n]|^\s*[\[{]")
_FENCE = "```"
_TYPES: dict[str, type | tuple[type, ...]] = {
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
    "object": dict,
    "array": list,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Arguments after their repairs; if no fault is left, they may be sent."""

    arguments: Json
    repairs: tuple[str, ...] = ()
    """One sentence for each change that made them fit."""
    faults: tuple[Fault, ...] = ()
    unchecked: str = ""
    """One sentence about the parts that no check could cover; empty if the check was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One change at one place."""

    path: Path
    change: Callable[[Any], Any]
    note: str
    clears: Path | None = None
    """The change is only right if nothing at or below this place is at fault afterwards."""


_Fix = tuple[_Step, ...]


def repair(check: Check, state: Prepared) -> Prepared:
    """Return faulty arguments with all repairs that helped."""
    effort = estimate_effort(check.schema, state.arguments)
    # To look for a fix may mean to compare a name with every parameter.
    names = max((len(_get_properties(fault)) for fault in state.faults), default=0)
    most = min(MAX_TRIES, MAX_EFFORT // (effort + NAME_EFFORT * names))
    tries = iter(range(most))
    hopeless: set[tuple[Path, str]] = set()
    while len(state.repairs) < MAX_REPAIRS and len(hopeless) < most:
        fault = next((f for f in state.faults if (f.place, f.rule) not in hopeless), None)
        if fault is None:
            break
        # `zip` draws a fix first, so a try is only spent on a fix that exists.
        fixes = zip(_suggest_fixes(fault, state.arguments), tries, strict=False)
        tried = (_try_fix(check, state, fault, fix) for fix, _ in fixes)
        better = next(filter(None, tried), None)
        if better is None:
            hopeless.add((fault.place, fault.rule))
        state = better or state
    return state


def _try_fix(check: Check, state: Prepared, fault: Fault, fix: _Fix) -> Prepared | None:
    """Return the state after a fix, or None if the fix does not remove its fault."""
    value: Any = state.arguments
    for step in fix:
        if follow_path(value, step.path) is MISSING:  # an earlier step moved it
            return None
        value = _change_at(value, step.path, step.change)
    if find_problem(value):  # JSON in a text may be nested as deep as its object allows
        return None
    faults, unchecked = check.examine(value)
    cleared = [step.clears for step in fix if step.clears is not None]
    for left in faults:
        is_same = (left.place, left.rule) == (fault.place, fault.rule)
        if is_same or any(left.place[: len(place)] == place for place in cleared):
            return None
    repairs = (*state.repairs, *(step.note for step in fix))
    return Prepared(arguments=value, repairs=repairs, faults=faults, unchecked=unchecked)


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
    if fault.rule in _SUGGESTIONS:
        yield from ((step,) for step in _SUGGESTIONS[fault.rule](fault, value))
    for branch in sorted(fault.branches, key=len):  # the fewest steps first
        fixes = [next(_suggest_fixes(inner, root), ()) for inner in branch]
        if branch and all(fixes):
            steps = chain.from_iterable(fixes)
            yield tuple({step.note: step for step in steps}.values())


def _drop_null(path: Path) -> _Step:
    *above, key = path

    def change(node: Json) -> Json:
        return {name: value for name, value in node.items() if name != key}

    note = errors.NULL_LEFT_OUT.format(path=format_path(path))
    return _Step(path=tuple(above), change=change, note=note, clears=path)


def _set_value(path: Path, value: object, meaning: str, *, clears: Path | None = None) -> _Step:
    note = errors.READ_AS.format(path=format_path(path), meaning=meaning)
    return _Step(path=path, change=lambda _: value, note=note, clears=clears)


def _suggest_conversions(fault: Fault, value: object) -> Iterator[_Step]:
    types = [str(name) for name in fault.wanted] if is_list(fault.wanted) else []
    if isinstance(value, str):
        read = _value_from_text(value, types)
        if read is not MISSING:
            yield _set_value(fault.path, read, _describe_reading(read))
    elif isinstance(value, bool | int | float) and "string" in types:
        text = json.dumps(value)
        yield _set_value(fault.path, text, f"the text '{text[:SHOWN_VALUE]}'")
    # "a, b" may mean two values, so the model has to decide.
    is_several = isinstance(value, str) and _LIKE_A_LIST.search(value)
    if "array" in types and value is not None and not is_several:
        yield _set_value(fault.path, [value], "a list with this one value", clears=fault.path)


def _value_from_text(text: str, types: list[str]) -> Any:
    """Return the value that a text means as one of some types, or `MISSING`."""
    folded = text.strip().casefold() if len(text) < SHOWN_VALUE else ""
    words: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
    value = words[folded] if folded in words else json_from_text(text)
    if isinstance(value, float) and "number" not in types and value.is_integer():
        value = int(value) if abs(value) <= LARGEST_EXACT else value
    return value if any(_is_of(value, name) for name in types) else MISSING


def _is_of(value: object, name: str) -> bool:
    is_boolean = isinstance(value, bool)  # which for Python is an int as well
    return isinstance(value, _TYPES.get(name, ())) and is_boolean == (name == "boolean")


def _describe_reading(value: object) -> str:
    if is_object(value):
        return "an object, from JSON text"
    return "a list, from JSON text" if is_list(value) else describe_scalar(value)


def describe_scalar(value: object) -> str:
    """Return a number, a boolean or null in words."""
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
        own = json.loads(json.dumps(schema["default"]))  # a caller may change its copy
        shown = to_one_line(json.dumps(own, ensure_ascii=False), SHOWN_VALUE)
        note = errors.SET_TO_DEFAULT.format(path=format_path(fault.place), value=shown)
        yield _Step(path=fault.path, change=lambda node: {**node, fault.key: own}, note=note)


def _suggest_names(fault: Fault, value: object) -> Iterator[_Step]:
    if not is_object(value) or fault.key is None:
        return
    meant = [name for name in _get_properties(fault) if _is_alike(name, fault.key)]
    if len(meant) == 1 and meant[0] not in value:
        yield _rename_key(fault.path, fault.key, meant[0])


_SUGGESTIONS: dict[str, Callable[[Fault, object], Iterator[_Step]]] = {
    "type": _suggest_conversions,
    "enum": _suggest_spellings,
    "const": _suggest_spellings,
    "required": _suggest_missing,
    "additionalProperties": _suggest_names,
    "unevaluatedProperties": _suggest_names,
}


def _rename_key(path: Path, old: str, new: str) -> _Step:
    def change(node: Json) -> Json:
        if new in node:  # both keys mean the same: keep both
            return node
        return {new if name == old else name: value for name, value in node.items()}

    meaning = f"'{format_path((*path, new))}'"
    note = errors.READ_AS.format(path=format_path((*path, old)), meaning=meaning)
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
        return {}, errors.EMPTY_ARGUMENTS
    if isinstance(value, str):
        read = json_from_text(value)
        return None if read is MISSING else (read, errors.ARGUMENTS_FROM_TEXT)
    if is_list(value) and len(value) == 1 and is_object(value[0]):
        return value[0], errors.ARGUMENTS_FROM_LIST
    if is_object(value) and len(value) == 1:
        key, inner = next(iter(value.items()))
        if key in names and (is_object(inner) or isinstance(inner, str)):
            return inner, errors.ARGUMENTS_FROM_OBJECT.format(key=to_one_line(key, SHOWN_VALUE))
    return None


def json_from_text(text: str) -> Any:
    """Return the JSON value that a text holds, also in a Markdown fence, or `MISSING`."""
    text = text.strip()
    if text.startswith(_FENCE) and text.endswith(_FENCE) and "\n" in text:
        text = text.partition("\n")[2].removesuffix(_FENCE)
    if len(text) > MAX_TEXT:
        return MISSING
    try:
        value: object = json.loads(text)
        # `loads` accepts NaN, infinity and lone surrogates, which cannot be sent on.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return MISSING
    return MISSING if find_problem(value) else value
