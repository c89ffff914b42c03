"""Harmless slips in arguments, and how to put them right (R71).

`repaired` takes an object and the check that it fails, and gives it back with what was changed,
one sentence for each change. A change is tried where a fault suggests it and kept only if the
fault is gone. No value is invented and nothing but null is dropped: a number in quotes is read,
a wrong number stays wrong. `unwrapped` does the same for arguments in a wrong wrapping.
What a remaining fault means for the model is for `arguments` to say.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

from toolscout.calls.checks import Check, Fault, Findings, Path
from toolscout.calls.effort import MISSING, value_at
from toolscout.names import fold_name, to_one_line
from toolscout.schemas import Json, find_problem, is_list, is_object

MAX_REPAIRS = 50
MAX_TRIES = 200
MAX_EFFORT = 3_000_000
"""What all tries together may cost; large arguments get fewer of them."""
LARGEST_EXACT = 2**53
MAX_TEXT = 2_000_000
SHOWN_VALUE = 60

WRAPPERS = frozenset(("arguments", "args", "params", "parameters", "input", "kwargs"))

# What makes two spellings different although they fold to one: "-created", "A-", "v1.1".
_TELLING = re.compile(r"\d+|^\W|\W$")
_LIKE_A_LIST = re.compile(r"[,;\n]|^\s*[\[{]")
_FENCE = "```"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """An object after its repairs, and what the check says of it now."""

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
    """Only right if nothing at or below `place` is at fault afterwards."""
    place: Path = ()


_Fix = tuple[_Step, ...]


def repaired(check: Check, value: Json) -> Repaired:
    """Return the object with all repairs that helped; a valid one comes back as it is."""
    state = Repaired(value=value, notes=(), findings=check.examine(value))
    if not state.findings.faults:
        return state
    tries = iter(range(min(MAX_TRIES, MAX_EFFORT // check.effort(value))))
    hopeless: list[Fault] = []
    while fault := _next_fault(state, hopeless):
        better = _better(check, state, fault, tries)
        if better is None:
            hopeless.append(fault)
        state = better or state
    return state


def _next_fault(state: Repaired, hopeless: list[Fault]) -> Fault | None:
    if len(state.notes) >= MAX_REPAIRS:
        return None
    return next((f for f in state.findings.faults if not _is_among(f, hopeless)), None)


def _better(check: Check, state: Repaired, fault: Fault, tries: Iterator[int]) -> Repaired | None:
    # Tries come second: a fix is only made where one is left to try it.
    for fix, _ in zip(_fixes(fault, state.value), tries, strict=False):
        better = _tried(check, state, fault, fix)
        if better:
            return better
    return None


def _is_among(fault: Fault, others: list[Fault]) -> bool:
    return any(fault.is_same(other) for other in others)


def _tried(check: Check, state: Repaired, fault: Fault, fix: _Fix) -> Repaired | None:
    """Return the state after a fix, if it removes the fault it was made for."""
    value: Any = state.value
    for step in fix:
        if value_at(value, step.path) is MISSING:  # an earlier step moved it
            return None
        value = _changed(value, step.path, step.change)
    if find_problem(value):  # JSON in a text may be nested as deep as its object allows
        return None
    findings = check.examine(value)
    if any(fault.is_same(left) or _spoils(left, fix) for left in findings.faults):
        return None
    notes = tuple(step.note for step in fix)
    return replace(state, value=value, notes=state.notes + notes, findings=findings)


def _spoils(left: Fault, fix: _Fix) -> bool:
    return any(step.is_whole and left.place[: len(step.place)] == step.place for step in fix)


def _changed(root: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """Return a copy with one place changed; what lies beside the path is shared."""
    nodes = [root]
    for step in path:
        nodes.append(nodes[-1][step])
    new = change(nodes.pop())
    for node, step in zip(reversed(nodes), reversed(path), strict=True):
        copy = dict(node) if is_object(node) else list(node)
        copy[cast("Any", step)] = new
        new = copy
    return new


def _fixes(fault: Fault, root: Json) -> Iterator[_Fix]:
    """Return what may remove a fault, likeliest first."""
    value = value_at(root, fault.path)
    if value is MISSING:
        return
    if value is None and fault.path and isinstance(fault.path[-1], str):
        yield (_dropped(fault.path),)
    match fault.rule:
        case "type":
            yield from ((step,) for step in _retyped(fault, value))
        case "enum" | "const":
            yield from ((step,) for step in _respelled(fault, value))
        case "required":
            yield from ((step,) for step in _supplied(fault, value))
        case "additionalProperties" | "unevaluatedProperties":
            yield from ((step,) for step in _renamed(fault, value))
        case "anyOf" | "oneOf":
            yield from _alternatives(fault, root)
        case _:
            pass


def _alternatives(fault: Fault, root: Json) -> Iterator[_Fix]:
    """Return the fixes that make one alternative fit, those with the fewest steps first."""
    for branch in sorted(fault.branches, key=len):
        fixes = [next(_fixes(inner, root), None) for inner in branch]
        if fixes and all(fixes):
            steps = chain.from_iterable(fix for fix in fixes if fix)
            yield tuple({step.note: step for step in steps}.values())


def _dropped(path: Path) -> _Step:
    *above, key = path

    def change(node: Json) -> Json:
        return {name: value for name, value in node.items() if name != key}

    note = f"Left out '{shown_path(path)}', which was null."
    return _Step(path=tuple(above), change=change, note=note, is_whole=True, place=path)


def _set(path: Path, value: object, reading: str, *, is_whole: bool = False) -> _Step:
    note = f"Read '{shown_path(path)}' as {reading}."
    return _Step(path=path, change=lambda _: value, note=note, is_whole=is_whole, place=path)


def _retyped(fault: Fault, value: object) -> Iterator[_Step]:
    types = [str(name) for name in fault.wanted] if is_list(fault.wanted) else []
    if isinstance(value, str):
        read = _value_from_text(value, types)
        if read is not MISSING:
            yield _set(fault.path, read, _reading(read))
    elif isinstance(value, bool | int | float) and "string" in types:
        text = json.dumps(value)
        yield _set(fault.path, text, f"the text '{text[:SHOWN_VALUE]}'")
    if "array" in types and _is_single(value):
        yield _set(fault.path, [value], "a list with this one value", is_whole=True)


def _is_single(value: object) -> bool:
    # "a, b" may have meant two values, so the model has to say.
    return value is not None and not (isinstance(value, str) and _LIKE_A_LIST.search(value))


def _value_from_text(text: str, types: list[str]) -> Any:
    """Return what a text means as one of some types, or `MISSING`."""
    folded = text.strip().casefold() if len(text) < SHOWN_VALUE else ""
    words: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
    value = words[folded] if folded in words else json_from_text(text)
    if isinstance(value, float) and "number" not in types and _is_integral(value):
        value = int(value)
    return value if any(_is_of(value, name) for name in types) else MISSING


def _is_integral(value: float) -> bool:
    return value.is_integer() and abs(value) <= LARGEST_EXACT


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


def _reading(value: object) -> str:
    if is_object(value):
        return "an object, from JSON text"
    if is_list(value):
        return "a list, from JSON text"
    kind = "" if isinstance(value, bool) or value is None else "the number "
    return kind + to_one_line(json.dumps(value), SHOWN_VALUE)


def _respelled(fault: Fault, value: object) -> Iterator[_Step]:
    options: list[object] = fault.wanted if fault.rule == "enum" else [fault.wanted]
    alike = [option for option in options if _is_alike(_plain(option), _plain(value))]
    if len(alike) == 1:
        shown = to_one_line(json.dumps(alike[0], ensure_ascii=False), SHOWN_VALUE)
        yield _set(fault.path, alike[0], shown.replace('"', "'"))


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else ""


def _is_alike(one: str, other: str) -> bool:
    """Tell whether two spellings differ in case and separators only."""
    folded = fold_name(one)
    return (
        bool(folded)
        and folded == fold_name(other)
        and _TELLING.findall(one) == _TELLING.findall(other)
    )


def _supplied(fault: Fault, value: object) -> Iterator[_Step]:
    declared = _declared(fault)
    if not is_object(value) or fault.key is None:
        return
    meant = [key for key in value if key not in declared and _is_alike(key, fault.key)]
    if len(meant) == 1:
        yield _rename(fault.path, meant[0], fault.key)
    schema = declared.get(fault.key)
    if is_object(schema) and "default" in schema:
        yield _filled(fault.place, schema["default"])


def _filled(place: Path, default: object) -> _Step:
    *above, key = place
    own = json.loads(json.dumps(default))  # a caller may change it; the schema must stay
    shown = to_one_line(json.dumps(default, ensure_ascii=False), SHOWN_VALUE)
    return _Step(
        path=tuple(above),
        change=lambda node: {**node, key: own},
        note=f"Filled in '{shown_path(place)}' with its default {shown}.",
    )


def _renamed(fault: Fault, value: object) -> Iterator[_Step]:
    if not is_object(value) or fault.key is None:
        return
    meant = [name for name in _declared(fault) if _is_alike(name, fault.key)]
    if len(meant) == 1 and meant[0] not in value:
        yield _rename(fault.path, fault.key, meant[0])


def _rename(path: Path, old: str, new: str) -> _Step:
    def change(node: Json) -> Json:
        if new in node:  # two keys that mean one: neither may be lost
            return node
        return {new if name == old else name: value for name, value in node.items()}

    note = f"Read '{shown_path((*path, old))}' as '{shown_path((*path, new))}'."
    return _Step(path=path, change=change, note=note)


def _declared(fault: Fault) -> Json:
    properties = fault.holder.get("properties")
    return properties if is_object(properties) else {}


def shown_path(path: Path) -> str:
    """Return a path as `items[2].id`, cut and safe to show."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path[:40])
    return to_one_line(text.removeprefix("."), 2 * SHOWN_VALUE)


def unwrapped(value: object, names: frozenset[str]) -> tuple[Any, str] | None:
    """Return what is inside a wrong wrapping and a note of it, or none.

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
        value: object = json.loads(text, parse_constant=_refused)
        # 1e999 is read as infinite and half a character as it is; neither can be sent on.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return MISSING
    return MISSING if find_problem(value) else value


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
