"""What a JSON Schema says about a tool's arguments.

`list_parameters` lists them, `render_signature` writes them on one line and `find_problem` says why
a value cannot be kept as a schema. Schemas come from other people's servers, so every walk is
bounded, recursive references are cut, and content of a wrong type is skipped without an error.
Nothing here validates arguments against a schema.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeGuard, cast
from urllib.parse import unquote

from toolscout.names import clean_text, to_one_line

Json = dict[str, Any]

MAX_NESTING = 200
MAX_VALUES = 3_000_000
TEXT_UNIT = 50
"""The number of characters of text that cost as much as one value."""
MAX_ENUM = 64
MAX_BRANCHES = 32
MAX_TYPES = 16
"""Types of one parameter that are listed; JSON has seven."""
MAX_PATH = 1_000
"""Characters of a path whose members are listed; each of them repeats the path."""
MAX_REFERENCE = 2_000
"""Characters of a reference that is followed."""
MAX_DESCRIPTION = 4_000
SHOWN_ENUM = 8
SHOWN_NAME = 200
SHOWN_OPTIONAL = 12
SHOWN_NESTED = 6
SIGNATURE_PARAMETERS = 5_000

_PLAIN_WORD = re.compile(r"[\w.$@+/:#-]{1,60}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of a tool, or one member of a nested one."""

    path: str
    """Where it sits: `options.retries`, `items[].id`."""
    name: str
    type: str
    """Short text: `string`, `integer[]`, `object`, `string|integer`, `any`."""
    required: bool = False
    description: str = ""
    enum: tuple[str, ...] = ()
    depth: int = 0


def is_object(value: object) -> TypeGuard[Json]:
    """Tell whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Tell whether a JSON value is a list."""
    return isinstance(value, list)


def find_problem(value: object) -> str:
    """Return why a value is not acceptable JSON, or an empty string if it is."""
    level: list[object] = [value]
    seen = 0
    for _ in range(MAX_NESTING + 1):
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                members = cast("dict[object, object]", node)
                if not all(isinstance(key, str) for key in members):
                    return "holds a key that is not a string"
                below.extend(members.values())
            elif isinstance(node, list | tuple):
                below.extend(cast("Sequence[object]", node))
            elif node is not None and not isinstance(node, str | int | float):
                return f"holds a value of type {type(node).__name__}, which is not JSON"
        if not below:
            return ""
        seen += len(below)
        if seen > MAX_VALUES:
            return f"holds more than {MAX_VALUES:,} values"
        level = below
    return f"is nested deeper than {MAX_NESTING} levels"


def has_few_values(value: object, limit: int) -> bool:
    """Tell whether a JSON value is small, without reading more of it than that takes.

    Fifty characters of a text count as much as one value.
    """
    nodes = [value]
    for node in nodes:  # the loop appends to it
        if isinstance(node, str):
            limit -= len(node) // TEXT_UNIT
        elif is_object(node):
            limit -= len(node)
            nodes.extend(node.values() if limit >= 0 else ())
        elif isinstance(node, list | tuple):
            held = cast("Sequence[object]", node)
            limit -= len(held)
            nodes.extend(held if limit >= 0 else ())
        if limit < 0:
            return False
    return True


def clean_texts(value: Any) -> Any:
    """Return JSON whose titles and descriptions have no invisible characters.

    Names and values stay as they are, because a server must get them back. Check the value with
    `find_problem` first.
    """
    if is_list(value):
        return [clean_texts(item) for item in value]
    if not is_object(value):
        return value
    return {
        key: clean_text(item, len(item))
        if key in ("title", "description") and isinstance(item, str)
        else clean_texts(item)
        for key, item in value.items()
    }


def remove_arguments(schema: Json, fixed: Json, absent: Collection[str] = ()) -> Json | None:
    """Return a schema of arguments without some, or None if nothing can fit any more.

    Of the arguments that are removed, `fixed` has the values that are always sent, and `absent`
    those that never are. References are not followed: an argument that only one of them declares
    is still there.
    """
    changed = dict(schema)
    listed = schema.get("properties")
    members: Json = listed if is_object(listed) else {}
    others = schema.get("additionalProperties") if "patternProperties" not in schema else True
    if not all(_may_be(value, members.get(name, others)) for name, value in fixed.items()):
        return None
    if members:
        kept = [name for name in members if name not in fixed and name not in absent]
        changed["properties"] = {name: members[name] for name in kept}
    required = schema.get("required")
    if is_list(required):
        if any(name in required for name in absent):
            return None
        changed["required"] = [name for name in required if name not in fixed]
    certain: list[Any] = []
    for key in ("dependentRequired", "dependentSchemas", "dependencies"):
        rows = schema.get(key)
        if is_object(rows):
            parts = {name: {"required": row} if is_list(row) else row for name, row in rows.items()}
            certain += [part for name, part in parts.items() if name in fixed]
            changed[key] = {
                name: [item for item in row if item not in fixed]
                if is_list(row)
                else _remove_or_forbid(row, fixed, absent)
                for name, row in rows.items()
                if name not in fixed and name not in absent
            }
    for key in ("minProperties", "maxProperties"):
        if isinstance(schema.get(key), int):
            changed[key] = max(0, schema[key] - len(fixed))
    for key in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(key)
        parts = [*(branches if is_list(branches) else ()), *(certain if key == "allOf" else ())]
        if parts:
            new = [_remove_or_forbid(part, fixed, absent) for part in parts]
            changed[key] = new if key == "allOf" else [part for part in new if part is not False]
            if not changed[key] or False in changed[key]:
                return None
    for key in ("not", "if", "then", "else"):
        if key in schema:
            changed[key] = _remove_or_forbid(schema[key], fixed, absent)
    if changed.get("not") is False:
        del changed["not"]
    return changed


def _remove_or_forbid(part: Any, fixed: Json, absent: Collection[str]) -> Any:
    """Return a part of a schema as `remove_arguments` does, but `False` if nothing can fit it."""
    if not is_object(part):
        return part
    changed = remove_arguments(part, fixed, absent)
    return False if changed is None else changed


def _may_be(value: object, schema: object) -> bool:
    """Tell whether a schema lists a value, or lists none; only `const` and `enum` count."""
    if not is_object(schema):
        return schema is not False
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else [value])
    return not is_list(allowed) or value in allowed


def to_canonical_json(value: object) -> bytes:
    """Return JSON that does not depend on key order; check the value with `find_problem` first."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def list_parameters(
    schema: Json, *, max_depth: int = 4, max_parameters: int = 400
) -> list[Parameter]:
    """Return the parameters of a schema, outer ones before nested ones.

    The walk goes level by level, so the limits cut off deep parameters before outer ones.
    """
    return list(islice(_Walk(schema, max_depth, max_parameters).run(), max_parameters))


@dataclass(slots=True)
class _Place:
    """An object schema whose members have yet to be listed."""

    schema: Json
    prefix: str
    depth: int
    refs: tuple[str, ...]
    """References followed on the way here; meeting one of them again means recursion."""


@dataclass(slots=True)
class _Facts:
    """What all parts of one property say together."""

    types: list[str] = field(default_factory=list[str])
    enum: list[str] = field(default_factory=list[str])
    description: str = ""
    children: list[_Place] = field(default_factory=list[_Place])

    def add_type(self, name: str) -> None:
        if len(self.types) < MAX_TYPES and name not in self.types:
            self.types.append(name)


class _Walk:
    def __init__(self, root: Json, max_depth: int, max_parameters: int) -> None:
        self.root = root
        self.max_depth = max_depth
        # Branches that share references multiply; this limits the work in any case.
        self.parts_left = 4 * max_parameters + 10_000

    def run(self) -> Iterator[Parameter]:
        level = [_Place(self.root, "", 0, ())]
        while level and level[0].depth < self.max_depth:
            below: list[_Place] = []
            for place in level:
                yield from self.list_members(place, below)
            level = [place for place in below if len(place.prefix) <= MAX_PATH]

    def list_members(self, place: _Place, below: list[_Place]) -> Iterator[Parameter]:
        properties: dict[str, tuple[object, tuple[str, ...]]] = {}
        required: dict[str, None] = {}
        for part, certain, refs in self.list_parts(place.schema, place.refs):
            listed = part.get("properties")
            if is_object(listed):
                for name, schema in listed.items():
                    properties.setdefault(name, (schema, refs))
            wanted = part.get("required")
            if certain and is_list(wanted):
                required.update((name, None) for name in wanted if isinstance(name, str))
        for name in required:
            properties.setdefault(name, (True, ()))
        for name, (schema, refs) in properties.items():
            path = place.prefix + name
            if is_object(schema):
                facts = self.collect_facts(schema, refs, path, place.depth + 1)
            elif isinstance(schema, bool):
                facts = _Facts()  # it says nothing about the value
            else:
                continue
            below.extend(facts.children)
            yield Parameter(
                path=path,
                name=name,
                type="|".join(facts.types) or "any",
                required=name in required,
                description=facts.description,
                enum=tuple(facts.enum),
                depth=place.depth,
            )

    def collect_facts(self, schema: Json, refs: tuple[str, ...], path: str, depth: int) -> _Facts:
        facts = _Facts()
        for part, _, part_refs in self.list_parts(schema, refs):
            text = part.get("description")
            if not facts.description and isinstance(text, str):
                facts.description = text[:MAX_DESCRIPTION]
            _add_enum(part, facts.enum)
            for kind in _list_kinds(part):
                if kind == "array":
                    self.add_items(part, facts, part_refs, path, depth)
                else:
                    facts.add_type(kind)
                if kind == "object":
                    facts.children.append(_Place(part, f"{path}.", depth, part_refs))
        return facts

    def add_items(
        self, part: Json, facts: _Facts, refs: tuple[str, ...], path: str, depth: int
    ) -> None:
        items = part.get("items")
        text = "any[]"
        # Nested lists are limited too: each level adds brackets to the path.
        if is_object(items) and not path.endswith("[]" * self.max_depth):
            inner = self.collect_facts(items, refs, f"{path}[]", depth)
            facts.children.extend(inner.children)
            facts.enum.extend(value for value in inner.enum if value not in facts.enum)
            kind = "|".join(inner.types) or "any"
            text = f"({kind})[]" if len(inner.types) > 1 else f"{kind}[]"
        facts.add_type(text)

    def list_parts(
        self, schema: Json, refs: tuple[str, ...]
    ) -> list[tuple[Json, bool, tuple[str, ...]]]:
        """Return a schema and all schemas that it combines or refers to.

        The second value says whether a part always applies; branches of anyOf and oneOf do not.
        """
        if self.parts_left <= 0:
            return []
        found: list[tuple[Json, bool, tuple[str, ...]]] = [(schema, True, refs)]
        for part, certain, seen in found:  # grows while it is read
            if len(found) > MAX_BRANCHES:
                break
            reference = part.get("$ref")
            if isinstance(reference, str):
                target = self.find_target(reference) or {}
                cut = reference in seen
                found.append(
                    ({"type": target.get("type")} if cut else target, certain, (*seen, reference))
                )
            for key in ("allOf", "anyOf", "oneOf"):
                if key in part and is_list(part[key]):
                    holds = certain and key == "allOf"
                    found.extend((b, holds, seen) for b in part[key] if is_object(b))
        del found[2 * MAX_BRANCHES :]
        self.parts_left -= len(found)
        return found

    def find_target(self, reference: str) -> Json | None:
        if not reference.startswith("#") or len(reference) > MAX_REFERENCE:
            return None
        node: object = self.root
        for step in unquote(reference[1:]).split("/")[1:]:
            if not is_object(node):
                return None
            node = node.get(step.replace("~1", "/").replace("~0", "~"))
        return node if is_object(node) else None


def _list_kinds(part: Json) -> list[str]:
    """Return the types that one part names or that its keywords imply, without "null"."""
    kind = part.get("type")
    if isinstance(kind, str):
        return [kind] if kind != "null" else []
    if is_list(kind):
        named = [name for name in kind if isinstance(name, str) and name != "null"]
        return list(dict.fromkeys(named))[:MAX_TYPES]
    if "properties" in part:
        return ["object"]
    if "items" in part:
        return ["array"]
    values = part.get("enum") or [part.get("const")]
    if is_list(values) and all(isinstance(value, str) for value in values):
        return ["string"]
    return []


def _add_enum(part: Json, found: list[str]) -> None:
    values = part.get("enum")
    if not is_list(values):
        values = [part["const"]] if "const" in part else []
    for value in values[:MAX_ENUM]:
        if isinstance(value, str):
            text = value
        else:
            text = json.dumps(value) if isinstance(value, bool | int | float) else ""
        if text and text not in found and len(found) < MAX_ENUM:
            found.append(text)


def render_signature(name: str, schema: Json, *, optional: int = SHOWN_OPTIONAL) -> str:
    """Return a tool's arguments on one line, for example `find(text*, limit?: integer)`.

    Required arguments (`*`) come first and are never dropped (R40). At most `optional` others are
    shown, and `…` stands for the rest. Strings have no type. One nested level is written out in
    braces, deeper ones as `{…}`.
    """
    found = list_parameters(schema, max_depth=3, max_parameters=SIGNATURE_PARAMETERS)
    children: dict[str, list[Parameter]] = {}
    for parameter in found:
        if parameter.depth:
            parent = parameter.path[: -len(parameter.name) - 1].rstrip("[]")
            children.setdefault(parent, []).append(parameter)
    outer = [parameter for parameter in found if not parameter.depth]
    return f"{name}({_render_list(outer, children, optional)})"


def list_signature_parameters(schema: Json, *, optional: int = SHOWN_OPTIONAL) -> list[Json]:
    """Return the outer parameters that a signature shows, as JSON, required ones first."""
    found = list_parameters(schema, max_depth=1, max_parameters=SIGNATURE_PARAMETERS)
    outer = [parameter for parameter in found if not parameter.depth]
    rest = [parameter for parameter in outer if not parameter.required]
    return [_describe_parameter(p) for p in (*(p for p in outer if p.required), *rest[:optional])]


def _describe_parameter(parameter: Parameter) -> Json:
    row: Json = {
        "name": to_one_line(parameter.name, SHOWN_NAME),
        "type": to_one_line(parameter.type, 60),
        "required": parameter.required,
    }
    if parameter.enum:
        row["enum"] = [to_one_line(value, SHOWN_NAME) for value in parameter.enum[:SHOWN_ENUM]]
    return row


def _render_list(
    listed: list[Parameter], children: dict[str, list[Parameter]], optional: int
) -> str:
    shown = [_render_entry(p, children) for p in listed if p.required]
    rest = [p for p in listed if not p.required]
    shown += [_render_entry(p, children) for p in rest[:optional]]
    if len(rest) > optional:
        shown.append("…")
    return ", ".join(shown)


def _render_entry(parameter: Parameter, children: dict[str, list[Parameter]]) -> str:
    name = _quote_word(parameter.name) + ("*" if parameter.required else "?")
    kind = _render_kind(parameter, children)
    return name if kind == "string" else f"{name}: {kind}"


def _render_kind(parameter: Parameter, children: dict[str, list[Parameter]]) -> str:
    if parameter.enum:
        values = "|".join(map(_quote_word, parameter.enum[:SHOWN_ENUM]))
        values += "|…" if len(parameter.enum) > SHOWN_ENUM else ""
        return f"({values})[]" if parameter.type.endswith("[]") else values
    kind = to_one_line(parameter.type, 60)
    below = children.get(parameter.path)
    if not below:
        return kind
    inner = "…" if parameter.depth else _render_list(below, children, SHOWN_NESTED)
    return kind.replace("object", f"{{{inner}}}", 1)


def _quote_word(text: str) -> str:
    """Return a name or value as a caller must send it, quoted and escaped unless it is one word."""
    if _PLAIN_WORD.fullmatch(text):
        return text
    cut = text if len(text) <= 60 else f"{text[:59]}…"
    return json.dumps(cut, ensure_ascii=not cut.isprintable()).replace("<", "\\u003c")
