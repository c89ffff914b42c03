"""Estimate how much work it is to check a value against a schema, before the check starts.

A hostile schema may branch endlessly, recurse very deeply or match slowly. `measure_schema` says
how large a schema is with its references written out; times the size of a value, that bounds the
work of a check. Where the bound is too high, `estimate_effort` walks through schema and value
together, as a validator would, and counts. The walks themselves are here too: `iterate_objects`
yields the parts of a schema, `resolve_reference` follows a reference and `follow_path` a path.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, cast
from urllib.parse import unquote

from toolscout.schemas import MAX_REFERENCE, TEXT_UNIT, Json, is_list, is_object

MAX_EFFORT = 3_000_000
"""How many values a check may look at; each part of the schema that looks at one counts."""
MAX_PLACES = 20_000
"""How many pairs of schema and value an estimate looks at before it gives up."""
MAX_STEPS_DEEP = 400
"""The validator recurses on its thread's stack, which may be as small as 512 KB."""
MAX_REPETITIONS = 10**12
PATTERN_UNIT = 150
"""The number of characters, times a pattern's repetitions, that cost as much as one value."""

MISSING = object()
"""The result of a path that leads nowhere."""

ALTERNATIVES = ("anyOf", "oneOf")
MEMBERS = ("additionalProperties", "unevaluatedProperties")
ITEMS = ("items", "contains", "additionalItems", "unevaluatedItems")

_SAME_PLACE = ("not", "if", "then", "else")
_COUNT = re.compile(r"(\d{1,9}),?\}")


def measure_schema(root: Json) -> float:
    """Return how many values a schema has with its references written out.

    Infinite if it is recursive or very deep, or if a pattern's cost depends on its repetitions.
    """
    sizes: dict[int, float] = {}

    def measure(node: object, depth: int) -> float:
        if not _is_container(node):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = math.inf  # until it is known: a reference back here is recursion
            size = 1.0
            if is_object(node):
                reference = node.get("$ref")
                if depth > MAX_STEPS_DEEP or _count_repetitions(node):
                    size = math.inf
                elif isinstance(reference, str):
                    size += measure(resolve_reference(root, reference), depth + 1)
            if size < math.inf:
                size += sum(measure(below, depth + 1) for below in _list_children(node))
            sizes[id(node)] = size
        return sizes[id(node)]

    return measure(root, 0)


def estimate_effort(root: Json, value: object) -> int:
    """Return roughly how many values a check looks at, at most `MAX_EFFORT` + 1."""
    weights = _weigh_containers(value)
    resolve = cache(partial(resolve_reference, root))
    repetitions: dict[int, int] = {}
    places: list[tuple[Json, object, int]] = [(root, value, 0)]
    spent = 0
    left = MAX_PLACES
    while places:
        schema, node, depth = places.pop()
        compared = (schema.get(key) for key in ("required", "enum"))
        spent += _weigh(node, weights) * (1 + sum(len(part) for part in compared if is_list(part)))
        texts = [node] if isinstance(node, str) else list(node) if is_object(node) else []
        if texts:
            if id(schema) not in repetitions:
                repetitions[id(schema)] = _count_repetitions(schema)
            spent += sum(map(len, texts)) * repetitions[id(schema)] // PATTERN_UNIT
        if spent > MAX_EFFORT or depth > MAX_STEPS_DEEP:
            return MAX_EFFORT + 1
        for part, below in _find_steps(resolve, schema, node):
            if is_object(part):
                places.append((part, below, depth + 1))
                left -= 1
                if left < 0:
                    return MAX_EFFORT + 1
    return spent


def _find_steps(
    resolve: Callable[[str], object], schema: Json, node: object
) -> Iterator[tuple[object, object]]:
    """Yield the schemas that apply to a value or to what is in it, each with its value."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield resolve(reference), node
    yield from ((schema.get(key), node) for key in _SAME_PLACE)
    for key in ("allOf", *ALTERNATIVES, "dependentSchemas", "dependencies"):
        yield from ((part, node) for part in _list_children(schema.get(key)))
    if is_object(node):
        properties = schema.get("properties")
        if is_object(properties):
            yield from ((properties[key], node[key]) for key in node if key in properties)
        every = [schema.get(key) for key in MEMBERS]
        every.extend(_list_children(schema.get("patternProperties")))
        for part in filter(is_object, every):
            yield from ((part, below) for below in node.values())
        yield from ((schema["propertyNames"], key) for key in node if "propertyNames" in schema)
    elif isinstance(node, list | tuple):
        items = cast("Sequence[object]", node)
        for part in filter(is_object, (schema.get(key) for key in ITEMS)):
            yield from ((part, below) for below in items)
        for key in ("prefixItems", "items"):
            parts = schema.get(key)
            if is_list(parts):
                yield from zip(parts, items, strict=False)


def _weigh_containers(value: object) -> dict[int, int]:
    """Return how many values each object and list holds, by its identity."""
    holders = [value]
    for node in holders:  # the loop appends to it
        holders.extend(filter(_is_container, _list_children(node)))
    weights: dict[int, int] = {}
    for node in reversed(holders):
        weights[id(node)] = 1 + sum(_weigh(below, weights) for below in _list_children(node))
    return weights


def _weigh(node: object, weights: Mapping[int, int]) -> int:
    if isinstance(node, str):
        return 1 + len(node) // TEXT_UNIT
    return weights.get(id(node), 1) if _is_container(node) else 1


def _is_container(node: object) -> bool:
    return isinstance(node, dict | list | tuple)


def _count_repetitions(schema: Json) -> int:
    """Return how often the counted parts of a schema's own patterns may repeat, up to a limit."""
    total = 0
    for pattern in list_patterns(schema):
        counts = _COUNT.findall(pattern)
        product = int(bool(counts))
        for count in counts:
            product = min(product * int(count), MAX_REPETITIONS)
        total += product
    return total


def list_patterns(schema: Json) -> list[str]:
    """Return the patterns of a schema itself, not those of its parts."""
    pattern, keyed = schema.get("pattern"), schema.get("patternProperties")
    return [*([pattern] if isinstance(pattern, str) else []), *(keyed if is_object(keyed) else [])]


def iterate_objects(schema: Json) -> Iterator[Json]:
    """Yield all objects of a schema, the schema itself first."""
    nodes: list[object] = [schema]
    for node in nodes:  # the loop appends to it
        if is_object(node):
            yield node
        nodes.extend(_list_children(node))


def _list_children(node: object) -> Iterable[object]:
    if is_object(node):
        return node.values()
    return cast("Sequence[object]", node) if isinstance(node, list | tuple) else ()


def resolve_reference(root: Json, reference: str) -> Json | bool | None:
    """Return the schema that a reference means, or None if it does not point into this one."""
    if (reference != "#" and not reference.startswith("#/")) or len(reference) > MAX_REFERENCE:
        return None
    steps = unquote(reference[1:]).split("/")[1:]
    names = [step.replace("~1", "/").replace("~0", "~") for step in steps]
    node: object = root
    for name in names:
        index = int(name) if is_list(node) and name.isdecimal() and len(name) < 6 else name
        node = follow_path(node, (index,))
    return node if is_object(node) or isinstance(node, bool) else None


def follow_path(root: object, path: Iterable[str | int]) -> Any:
    """Return the value at a path, or `MISSING`."""
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
