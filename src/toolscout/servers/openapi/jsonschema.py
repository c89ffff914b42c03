"""Translate the schemas of an OpenAPI 3.x document to JSON Schema 2020-12.

`Schemas` translates each schema once and collects the definitions that a schema refers to.
Keywords of the wrong type are ignored.
"""

import hashlib
import re
from collections.abc import Callable
from typing import cast

from toolscout.names import clean_text
from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.openapi.document import HOPS, Document

INPUT_VALUES = 20_000
OUTPUT_VALUES = 2_000
"""How many values a tool's schema may hold with its definitions; the rest is left open."""
DESCRIPTION_CHARS = 2_000
TEXT_CHARS = 64
"""How many characters of text count as one more value."""

_COMPONENT = re.compile(r"#/components/schemas/([A-Za-z0-9._-]{1,200})")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_ABSENT = object()


class Schemas:
    """Translates the schemas of a document to JSON Schema 2020-12.

    `hidden` is `readOnly` or `writeOnly`; properties with that mark are left out. Results share
    their parts, so do not modify them.
    """

    def __init__(self, document: Document, *, hidden: str) -> None:
        self._document = document
        self._hidden = hidden
        self._done: dict[int, Json] = {}
        self._keys: dict[str, str] = {}
        self._targets: dict[str, object] = {}
        self._weights: dict[str, tuple[int, list[str]]] = {}

    def translate(self, schema: object) -> Json:
        """Return a schema in JSON Schema 2020-12; references stay references."""
        if not is_object(schema):
            return {"not": {}} if schema is False else {}
        known = self._done.get(id(schema))  # ids are unique, as the document outlives this object
        if known is None:
            self._document.count_work(1 + len(schema))
            known = self._done[id(schema)] = self._translate(schema)
        return known

    def resolve(self, schema: Json) -> Json:
        """Return the target of a schema that is a reference, and any other schema unchanged."""
        for _ in range(HOPS):
            key = self._refer(schema)
            if key is None:
                return schema
            schema = self.translate(self._targets[key])
        return {}

    def merge_members(self, schema: Json) -> tuple[Json, list[str]] | None:
        """Return properties and required names of a plain object schema, None for any other.

        The parts of `allOf` are merged. Rules between the members are left to the server.
        """
        properties: Json = {}
        required: list[str] = []
        parts = [schema]
        seen: set[str] = set()
        while parts:
            part = parts.pop()
            key = self._refer(part)
            if key is not None:
                parts.extend([self.translate(self._targets[key])] if key not in seen else [])
                seen.add(key)
                continue
            if not _is_plain(part):
                return None
            found = part.get("properties", {}), part.get("required", []), part.get("allOf", [])
            self._document.count_work(sum(map(len, found)))
            properties |= found[0]
            required += found[1]
            parts.extend(reversed(found[2]))
        return (properties, required) if properties else None

    def complete(self, schema: Json, limit: int) -> Json:
        """Return a schema with everything that it refers to in `$defs`, up to `limit` values.

        The nearest definitions come first. One that no longer fits is reduced to its type and
        description.
        """
        schema = self._fit(schema, limit)
        size, waiting = self._measure(schema)
        left = max(limit - size, 0)
        definitions: Json = {}
        for key in waiting:  # grows while it is read
            if key in definitions or key not in self._targets:
                continue
            definition = self.translate(self._targets[key])
            if key not in self._weights:
                self._weights[key] = self._measure(definition)
            size, further = self._weights[key]
            if size > left:
                definitions[key] = _make_stub(definition)
                continue
            definitions[key] = definition
            left -= size
            self._document.count_work(size)
            waiting.extend(further)
        return {**schema, "$defs": definitions} if definitions else schema

    def _fit(self, schema: Json, limit: int) -> Json:
        size, _ = self._measure(schema)
        if size <= limit:
            return schema
        properties = schema.get("properties")
        if not is_object(properties):
            return _make_stub(schema)
        kept: Json = {}
        for name, inner in properties.items():
            size, _ = self._measure(inner)
            kept[name] = inner if size <= limit else _make_stub(inner)
            limit -= size if size <= limit else 1
        return {**schema, "properties": kept}

    def _measure(self, schema: object) -> tuple[int, list[str]]:
        """Return how many values a schema holds, and the keys that it refers to."""
        nodes: list[object] = [schema]
        references: dict[str, None] = {}
        for node in nodes:  # grows while it is read
            if is_object(node):
                reference = node.get("$ref")
                if isinstance(reference, str):
                    references[reference.removeprefix("#/$defs/")] = None
                nodes.extend(node.values())
            elif is_list(node):
                nodes.extend(node)
        size = len(nodes) + sum(len(n) for n in nodes if isinstance(n, str)) // TEXT_CHARS
        self._document.count_work(size)
        return size, list(references)

    def _refer(self, schema: Json) -> str | None:
        reference = schema.get("$ref")
        key = reference.removeprefix("#/$defs/") if isinstance(reference, str) else ""
        return key if key in self._targets else None

    def _translate(self, schema: Json) -> Json:
        found: Json = {}
        for key, value in schema.items():
            if key in _READ and (read := _READ[key](self, value)) is not _ABSENT:
                found[key] = read
            elif key in _KEPT and _KEPT[key](value):
                found[key] = value
        reference = schema.get("$ref")
        if isinstance(reference, str):
            # OpenAPI 3.0 ignores everything next to a reference; a description does no harm.
            if self._document.is_oldest:
                found = {key: found[key] for key in ("description",) if key in found}
            key = self._make_key(reference)
            found = {"$ref": f"#/$defs/{key}", **found} if key else found
        if "properties" in found:
            said: Json = schema["properties"]
            hidden = {k for k, v in said.items() if is_object(v) and v.get(self._hidden) is True}
            found["properties"] = {k: v for k, v in found["properties"].items() if k not in hidden}
            if "required" in found:
                found["required"] = [k for k in found["required"] if k not in hidden]
        for flag, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if schema.get(flag) is True and limit in found:
                found[flag] = found.pop(limit)
        if is_list(found.get("items")):
            found["prefixItems"] = found.pop("items")
        if not found.get("required", True):
            del found["required"]
        return _add_null(found) if schema.get("nullable") is True else found

    def _make_key(self, reference: str) -> str:
        """Return the key of a referenced schema in `$defs`, or "" if the schema does not exist.

        The key depends only on the reference, so that a change elsewhere renames nothing.
        """
        if reference not in self._keys:
            target = self._document.find_target(reference)
            component = _COMPONENT.fullmatch(reference)
            if component is not None:
                key = component[1]
            else:
                last = _UNSAFE.sub("_", reference.rpartition("/")[2])[:60].strip("_")
                key = f"{last}_{hashlib.sha256(reference.encode()).hexdigest()[:8]}"
            self._keys[reference] = key if is_object(target) or isinstance(target, bool) else ""
            if self._keys[reference]:
                self._targets.setdefault(key, target)
        return self._keys[reference]

    def read_schema(self, value: object) -> object:
        """Translate one inner schema; true and false are schemas too."""
        if isinstance(value, bool):
            return value
        return self.translate(value) if is_object(value) else _ABSENT

    def read_items(self, value: object) -> object:
        """Translate `items`, which may be a list in older drafts."""
        return self.read_schemas(value) if is_list(value) else self.read_schema(value)

    def read_schemas(self, value: object) -> object:
        """Translate a list of inner schemas."""
        return [self.translate(v) for v in value] or _ABSENT if is_list(value) else _ABSENT

    def read_members(self, value: object) -> object:
        """Translate inner schemas by name."""
        if not is_object(value):
            return _ABSENT
        return {name: self.translate(inner) for name, inner in value.items()}


def _is_plain(schema: Json) -> bool:
    kind = schema.get("type", "object")
    if kind != "object" and kind != ["object", "null"]:
        return False
    choices = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    is_closed = schema.get("additionalProperties", False) is False
    return is_closed and all(choice.keys() <= {"required"} for choice in choices)


def _make_stub(schema: object) -> Json:
    kept = ("type", "title", "description")
    return {key: schema[key] for key in kept if key in schema} if is_object(schema) else {}


def _add_null(found: Json) -> Json:
    if "enum" in found and None not in found["enum"]:
        found["enum"] = [*found["enum"], None]
    if "type" in found:
        kinds: list[str] = found["type"] if is_list(found["type"]) else [found["type"]]
        found["type"] = kinds if "null" in kinds else [*kinds, "null"]
    elif any(key in found for key in ("$ref", "allOf", "anyOf", "oneOf")):
        return {"anyOf": [found, {"type": "null"}]}
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _read_type(_: Schemas, value: object) -> object:
    given = value if is_list(value) else [value]
    kinds = [kind for kind in given if isinstance(kind, str) and kind in _TYPES]
    if not kinds:
        return _ABSENT
    return list(dict.fromkeys(kinds)) if is_list(value) else value


def _read_text(_: Schemas, value: object) -> object:
    return clean_text(value, DESCRIPTION_CHARS) if isinstance(value, str) and value else _ABSENT


def _read_names(_: Schemas, value: object) -> object:
    if not is_list(value):
        return _ABSENT
    return list(dict.fromkeys(name for name in value if isinstance(name, str)))


_TYPES = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))
# Keywords in neither table are dropped: they mean nothing in JSON Schema (`example`,
# `discriminator`, `xml`) or would change what references mean (`$id`).
_KEPT: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("default", "const"), lambda _: True),
    **dict.fromkeys(("uniqueItems", "deprecated"), lambda value: value is True),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    **dict.fromkeys(
        ("format", "pattern", "contentMediaType", "contentEncoding"),
        lambda value: isinstance(value, str) and len(value) <= DESCRIPTION_CHARS,
    ),
    "enum": lambda value: is_list(value) and bool(value),
    "multipleOf": lambda value: _is_number(value) and cast("float", value) > 0,
}
_READ: dict[str, Callable[[Schemas, object], object]] = {
    "type": _read_type,
    "required": _read_names,
    "items": Schemas.read_items,
    **dict.fromkeys(("title", "description"), _read_text),
    **dict.fromkeys(("not", "contains", "propertyNames"), Schemas.read_schema),
    **dict.fromkeys(("if", "then", "else"), Schemas.read_schema),
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties"), Schemas.read_schema),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), Schemas.read_schemas),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), Schemas.read_members),
}
