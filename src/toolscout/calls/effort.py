"""How much work a check of a value against a schema is, before it is begun.

Schemas are other people's and may be made to branch without end, to recurse as deep as a stack,
or to match slowly. `effort` follows schema and value together, as a validator would, and counts;
`multiplies` tells the schemas for which that matters. Also the walks that this needs: `objects`
lists the parts of a schema, `target` follows a reference, `value_at` a path.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from toolscout.schemas import Json, is_list, is_object

MAX_EFFORT = 300_000
"""Values that a check may look at, counted again for each part of the schema that does so."""
MAX_STEPS_DEEP = 400
"""The validator recurses on the stack of its thread, which may be as small as 512 KB."""
TEXT_UNIT = 50
"""So many characters of a text weigh as much as one value."""
PATTERN_UNIT = 150
"""So many characters, each times the repetitions of a pattern, take as long as one value."""

MISSING = object()
"""Stands for a value where a path leads nowhere."""

ALTERNATIVES = ("anyOf", "oneOf")
MEMBERS = ("additionalProperties", "unevaluatedProperties")
ITEMS = ("items", "contains", "additionalItems", "unevaluatedItems")

_SAME_PLACE = ("not", "if", "then", "else")
_COUNT = re.compile(r"(\d{1,9}),?\}")


def effort(root: Json, value: object) -> int:
    """Return about how many values a check looks at; above `MAX_EFFORT`, one more than that."""
    weights = _weights(value)
    places: list[tuple[Json, object, int]] = [(root, value, 0)]
    spent = 0
    while places:
        schema, node, depth = places.pop()
        wanted = schema.get("required")
        spent += _weight(node, weights) * (1 + (len(wanted) if is_list(wanted) else 0))
        spent += _matching_effort(schema, node)
        if spent > MAX_EFFORT or depth > MAX_STEPS_DEEP:
            return MAX_EFFORT + 1
        for part, below in _steps(root, schema, node):
            if is_object(part):
                places.append((part, below, depth + 1))
    return spent


def _steps(root: Json, schema: Json, node: object) -> Iterator[tuple[object, object]]:
    for part in _beside(root, schema):
        yield part, node
    if is_object(node):
        yield from _member_steps(schema, node)
    elif isinstance(node, list | tuple):
        yield from _item_steps(schema, cast("Sequence[object]", node))


def _beside(root: Json, schema: Json) -> Iterator[object]:
    """Return the further schemas that are applied to the same value."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield target(root, reference)
    for key in _SAME_PLACE:
        yield schema.get(key)
    for key in ("allOf", *ALTERNATIVES):
        yield from _values(schema.get(key))
    for key in ("dependentSchemas", "dependencies"):
        yield from _values(schema.get(key))


def _values(found: object) -> Iterator[object]:
    if is_object(found):
        yield from found.values()
    elif is_list(found):
        yield from found


def _member_steps(schema: Json, node: Json) -> Iterator[tuple[object, object]]:
    properties = schema.get("properties")
    if is_object(properties):
        yield from ((properties[key], node[key]) for key in node if key in properties)
    every = [*(schema.get(key) for key in MEMBERS), *_values(schema.get("patternProperties"))]
    for part in filter(is_object, every):
        yield from ((part, below) for below in node.values())
    yield from ((schema["propertyNames"], key) for key in node if "propertyNames" in schema)


def _item_steps(schema: Json, node: Sequence[object]) -> Iterator[tuple[object, object]]:
    for part in filter(is_object, (schema.get(key) for key in ITEMS)):
        yield from ((part, below) for below in node)
    for key in ("prefixItems", "items"):
        parts = schema.get(key)
        if is_list(parts):
            yield from zip(parts, node, strict=False)


def _weights(value: object) -> dict[int, int]:
    """Return how many values each object and list holds, by its identity."""
    holders = [value]
    for node in holders:  # grows while it is read
        holders.extend(filter(_is_container, _children(node)))
    weights: dict[int, int] = {}
    for node in reversed(holders):
        weights[id(node)] = 1 + sum(_weight(below, weights) for below in _children(node))
    return weights


def _weight(node: object, weights: Mapping[int, int]) -> int:
    if isinstance(node, str):
        return 1 + len(node) // TEXT_UNIT
    return weights.get(id(node), 1) if _is_container(node) else 1


def _is_container(node: object) -> bool:
    return isinstance(node, dict | list | tuple)


def _matching_effort(schema: Json, node: object) -> int:
    texts = [node] if isinstance(node, str) else list(node) if is_object(node) else []
    repetitions = _repetitions(schema) if texts else 0
    return sum(map(len, texts)) * repetitions // PATTERN_UNIT if repetitions else 0


def multiplies(schema: Json) -> bool:
    """Tell whether a check may take more time than schema and value are large."""
    return any("$ref" in part or _repetitions(part) for part in objects(schema))


def _repetitions(schema: Json) -> int:
    """Return how often the counted parts of a schema's own patterns repeat at most."""
    return sum(
        math.prod(int(count) for count in counts)
        for counts in map(_COUNT.findall, patterns(schema))
        if counts
    )


def patterns(schema: Json) -> list[str]:
    """Return the patterns that a schema itself has, not those further down."""
    pattern, keyed = schema.get("pattern"), schema.get("patternProperties")
    return [*([pattern] if isinstance(pattern, str) else []), *(keyed if is_object(keyed) else [])]


def objects(schema: Json) -> Iterator[Json]:
    """Return all objects of a schema, the schema itself first."""
    nodes: list[object] = [schema]
    for node in nodes:  # grows while it is read
        if is_object(node):
            yield node
        nodes.extend(_children(node))


def _children(node: object) -> Iterable[object]:
    if is_object(node):
        return node.values()
    return cast("Sequence[object]", node) if isinstance(node, list | tuple) else ()


def target(root: Json, reference: str) -> Json | bool | None:
    """Return the schema that a reference means, or none if it is not a pointer into this one."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    steps = unquote(reference[1:]).split("/")[1:]
    names = [step.replace("~1", "/").replace("~0", "~") for step in steps]
    node: object = root
    for name in names:
        index = int(name) if is_list(node) and name.isdecimal() and len(name) < 6 else name
        node = value_at(node, (index,))
    return node if is_object(node) or isinstance(node, bool) else None


def value_at(root: object, path: Iterable[str | int]) -> Any:
    """Return what a path leads to, or `MISSING`."""
    node = root
    for step in path:
        if is_object(node) and step in node:
            node = node[step]
        elif isinstance(node, list | tuple) and isinstance(step, int):
            items = cast("Sequence[object]", node)
            if not 0 <= step < len(items):
                return MISSING
            node = items[step]
        else:
            return MISSING
    return node
