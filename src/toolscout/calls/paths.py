"""A small reader of paths such as `$.items[0].name` in JSON.

`.key`, `['key']`, `[n]` (from the end with a minus), `[a:b]` and `[*]` are understood; after a
slice or a star, the rest is read from each element that has it. There are no filters, no
expressions and no recursive descent: what a path costs is plain from its length.
"""

import re
from dataclasses import dataclass
from typing import Any

from toolscout.errors import InvalidRequest
from toolscout.names import near_names, one_line
from toolscout.schemas import is_list, is_object

MAX_PATH = 500
SHOWN_KEYS = 12
SHOWN_KEY = 60
SYNTAX = "Write a path such as $.items[0].name; use ['key'], [n], [a:b] and [*]."

_STEP = re.compile(
    r"""\.(?P<key>[^.\[\]'"*\s]+) | \[\s*(?:
        (?P<star>\*) | (?P<index>-?\d{1,9}) | (?P<low>-?\d{0,9}):(?P<high>-?\d{0,9})
        | '(?P<single>[^']*)' | "(?P<double>[^"]*)" )\s*\]""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    text: str
    """The step as it was written."""
    key: str | None = None
    index: int | None = None
    part: slice | None = None


def value_at_path(root: object, path: str) -> Any:
    """Return what a path leads to, or raise `InvalidRequest` that names what is there."""
    nodes: list[Any] = [root]
    is_many = False
    walked = "$"
    for step in _steps(path):
        found = [_below(node, step) for node in nodes]
        if nodes and all(values is None for values in found):
            raise _lost(walked, step, nodes[0])
        is_many = is_many or step.part is not None
        nodes = [value for values in found if values for value in values]
        walked += step.text
    return nodes if is_many else nodes[0]


def _steps(path: str) -> list[_Step]:
    text = path.strip().removeprefix("$")
    if text and text[0] not in ".[":
        text = f".{text}"
    steps: list[_Step] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or len(text) > MAX_PATH:
            raise InvalidRequest(
                f"The path {one_line(path, SHOWN_KEY)!r} cannot be read", remedy=SYNTAX
            )
        steps.append(_step(found))
        at = found.end()
    return steps


def _step(found: re.Match[str]) -> _Step:
    text = found.group()
    if found["star"]:
        return _Step(text=text, part=slice(None))
    if found["index"]:
        return _Step(text=text, index=int(found["index"]))
    if found["low"] is not None:
        return _Step(text=text, part=slice(_end(found["low"]), _end(found["high"])))
    key = next(found[name] for name in ("key", "single", "double") if found[name] is not None)
    return _Step(text=text, key=key)


def _end(text: str) -> int | None:
    return int(text) if text.strip("-") else None


def _below(node: object, step: _Step) -> list[Any] | None:
    """Return what one step leads to, one value or those of a slice, or none if it cannot go on."""
    if is_object(node):
        if step.key is not None:
            return [node[step.key]] if step.key in node else None
        return list(node.values()) if step.part == slice(None) else None
    if not is_list(node):
        return None
    if step.part is not None:
        return node[step.part]
    index = step.index
    return [node[index]] if index is not None and -len(node) <= index < len(node) else None


def _lost(walked: str, step: _Step, node: object) -> InvalidRequest:
    where = one_line(walked, 2 * SHOWN_KEY)
    return InvalidRequest(
        f"{where!r} has nothing at {one_line(step.text, SHOWN_KEY)!r}", remedy=_present(node, step)
    )


def _present(node: object, step: _Step) -> str:
    if is_list(node):
        return f"It is a list of {len(node)}; use [n] with n below that, [a:b] or [*]."
    if not is_object(node):
        return "It is a single value; leave the rest of the path off."
    near = near_names((step.key or "")[:SHOWN_KEY], node)
    names = [*near, *(name for name in node if name not in near)]
    shown = ", ".join(one_line(name, SHOWN_KEY) for name in names[:SHOWN_KEYS])
    more = f", … ({len(names)} in all)" if len(names) > SHOWN_KEYS else ""
    return f"Keys there: {shown}{more}." if names else "It is an empty object."
