"""Read a Python function as a tool definition.

`definition_from_callable` takes any callable with a signature and returns its name, description and
a JSON Schema of its parameters, based on type hints, defaults and docstring. A hint that cannot be
resolved or expressed becomes `{}`, so that the parameter accepts anything. Pydantic models are
recognised by their `model_json_schema` method, without importing Pydantic.
"""

import datetime
import decimal
import enum
import functools
import inspect
import pathlib
import re
import types
import uuid
from collections import abc
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from toolscout.schemas import Json, find_problem, is_list, is_object

MAX_DEPTH = 8

_SIMPLE: dict[object, Json] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    type(None): {"type": "null"},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array", "uniqueItems": True},
    frozenset: {"type": "array", "uniqueItems": True},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    datetime.timedelta: {"type": "string", "format": "duration"},
    decimal.Decimal: {"type": "number"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    pathlib.Path: {"type": "string", "format": "path"},
}
_LISTS = (list, tuple, abc.Sequence, abc.Iterable, abc.MutableSequence, abc.Collection)
_SETS = (set, frozenset, abc.Set, abc.MutableSet)
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_SCALARS = (str, int, float, bool, type(None))

_GOOGLE_HEAD = re.compile(
    r"(args|arguments|parameters|params|keyword args|keyword arguments|returns?|yields?|raises|"
    r"examples?|notes?|warnings?|attributes|see also|todo|references):\s*$",
    re.IGNORECASE,
)
_NUMPY_RULE = re.compile(r"-{3,}\s*$")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_REST_ENTRY = re.compile(
    r":(?:param|parameter|arg|argument)\s+(?:[^:]*?\s)?\*{0,2}(\w+)\s*:\s*(.*)$"
)
_REST_FIELD = re.compile(r":\w+(?:\s+[^:]+)?:")
_PARAMETER_HEADS = ("args", "arguments", "parameters", "params", "keyword a", "other parameters")


def definition_from_callable(fn: Callable[..., object]) -> tuple[str, str, Json]:
    """Return the name, description and JSON Schema of a callable.

    `self`, `cls`, `*args` and `**kwargs` are left out. A default that is not JSON makes its
    parameter optional but does not appear in the schema.
    """
    plain = _unwrap(fn)
    description, about = _split_docstring(inspect.getdoc(plain) or "")
    hints = _read_hints(plain)
    properties: Json = {}
    required: list[str] = []
    for parameter in _list_parameters(fn):
        schema = _build_schema(hints.get(parameter.name, parameter.annotation), MAX_DEPTH)
        text = about.get(parameter.name)
        if text and "description" not in schema:
            schema["description"] = text
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
        else:
            default = parameter.default
            if isinstance(default, enum.Enum):
                default = default.value
            if not find_problem(default):
                schema["default"] = default
        properties[parameter.name] = schema
    name = getattr(plain, "__name__", None) or type(plain).__name__
    return name, description, _build_object(properties, required)


def _unwrap(fn: Callable[..., object]) -> Callable[..., object]:
    """Return the function behind partials and decorators, or the `__call__` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return inspect.unwrap(fn)
    return fn


def _read_hints(fn: Callable[..., object]) -> dict[str, Any]:
    source: object = fn
    if inspect.isclass(fn):
        source = fn.__init__
    elif not inspect.isroutine(fn):
        source = type(fn).__call__
    return _resolve_hints(source)


def _resolve_hints(source: object) -> dict[str, Any]:
    """Return the type hints of a function or class, `Any` for those that cannot be resolved."""
    # Evaluating hints runs the author's code, which may fail in any way.
    with suppress(Exception):
        return get_type_hints(source, include_extras=True)
    found: dict[str, Any] = {}
    for name, hint in getattr(source, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: hint})
        scope = getattr(source, "__globals__", {})
        try:
            found.update(get_type_hints(holder, globalns=scope, include_extras=True))
        except Exception:
            found[name] = Any
    return found


def _list_parameters(fn: Callable[..., object]) -> Iterable[inspect.Parameter]:
    try:
        listed = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []  # some built-ins have no signature
    skipped = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter
        for position, parameter in enumerate(listed)
        if parameter.kind not in skipped
        and not (position == 0 and parameter.name in ("self", "cls"))
    ]


def _build_object(properties: Json, required: list[str]) -> Json:
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema


def _build_schema(hint: object, depth: int) -> Json:
    if depth == 0 or hint is inspect.Parameter.empty or isinstance(hint, str):
        return {}
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *notes = get_args(hint)
        schema = _build_schema(inner, depth)
        for note in notes:
            text = note if isinstance(note, str) else getattr(note, "description", None)
            text = text or getattr(note, "documentation", None)  # typing_extensions.Doc
            if isinstance(text, str):
                schema["description"] = text
                break
        return schema
    if origin in (Required, NotRequired):
        return _build_schema(get_args(hint)[0], depth)
    if origin is Literal:
        return _build_enumeration(get_args(hint))
    if origin in (Union, types.UnionType):
        return _build_union(get_args(hint), depth)
    if origin is not None:
        return _build_generic(origin, get_args(hint), depth)
    return _build_plain(hint, depth)


def _build_plain(hint: object, depth: int) -> Json:
    try:
        simple = _SIMPLE.get(hint)
    except TypeError:  # unhashable, so not a type
        return {}
    if simple is not None:
        return dict(simple)
    if not isinstance(hint, type):
        supertype = getattr(hint, "__supertype__", None)  # NewType
        return _build_schema(supertype, depth - 1) if supertype is not None else {}
    kind = cast("type[Any]", hint)
    if issubclass(kind, enum.Enum):
        return _build_enumeration([member.value for member in kind])
    if callable(getattr(kind, "model_json_schema", None)):
        return _ask_model(kind)
    if is_typeddict(kind) or is_dataclass(kind):
        return _build_record(kind, depth)
    known = [_SIMPLE[base] for base in kind.__mro__[1:-1] if base in _SIMPLE]
    return dict(known[0]) if known else {}


def _build_enumeration(values: Iterable[object]) -> Json:
    listed = [value.value if isinstance(value, enum.Enum) else value for value in values]
    kinds = {_SIMPLE[type(value)]["type"] for value in listed if type(value) in _SCALARS}
    schema: Json = {"enum": [value for value in listed if type(value) in _SCALARS]}
    return schema | ({"type": kinds.pop()} if len(kinds) == 1 else {})


def _build_union(members: Iterable[object], depth: int) -> Json:
    branches: list[Json] = []
    for member in members:
        schema = _build_schema(member, depth - 1)
        if not schema:
            return {}
        if schema not in branches:
            branches.append(schema)
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def _build_generic(origin: Any, arguments: tuple[Any, ...], depth: int) -> Json:
    if origin in _MAPPINGS:
        value = _build_schema(arguments[1], depth - 1) if len(arguments) > 1 else {}
        return {"type": "object"} | ({"additionalProperties": value} if value else {})
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        items = [_build_schema(argument, depth - 1) for argument in arguments]
        bounds = {"minItems": len(items), "maxItems": len(items)}
        return {"type": "array", "prefixItems": items} | bounds
    if origin in _LISTS or origin in _SETS:
        schema: Json = {"type": "array"}
        items = _build_schema(arguments[0], depth - 1) if arguments else {}
        if items:
            schema["items"] = items
        return schema | ({"uniqueItems": True} if origin in _SETS else {})
    return _build_plain(origin, depth)


def _build_record(kind: type[Any], depth: int) -> Json:
    hints = _resolve_hints(kind)
    if is_dataclass(kind):
        members = [field for field in fields(kind) if field.init]
        names = [field.name for field in members]
        required = [
            field.name
            for field in members
            if field.default is MISSING and field.default_factory is MISSING
        ]
    else:
        names = list(hints)
        required = [name for name in names if name in kind.__required_keys__]
    return _build_object(
        {name: _build_schema(hints.get(name), depth - 1) for name in names}, required
    )


def _ask_model(model: type[Any]) -> Json:
    schema: object = None
    with suppress(Exception):  # if the model's own code fails, any object is accepted
        schema = model.model_json_schema()
    return _inline_definitions(schema) if is_object(schema) else {"type": "object"}


def _inline_definitions(schema: Json) -> Json:
    """Return a model's schema with its `$defs` inlined, because `#` will refer to another root."""
    definitions = cast("Json", schema.get("$defs") or {})

    def resolve(node: object, depth: int) -> Any:
        if is_object(node):
            name = str(node.get("$ref", "")).removeprefix("#/$defs/")
            if name in definitions:
                if depth == 0:
                    return {"type": "object"}
                rest = {key: value for key, value in node.items() if key != "$ref"}
                return resolve({**definitions[name], **rest}, depth - 1)
            return {k: resolve(v, depth) for k, v in node.items() if k != "$defs"}
        if is_list(node):
            return [resolve(item, depth) for item in node]
        return node

    return cast("Json", resolve(schema, MAX_DEPTH // 2))


def _split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its leading prose and the descriptions of its parameters."""
    lines = text.splitlines()
    prose: list[str] = []
    about: dict[str, str] = {}
    for number, line in enumerate(lines):
        is_head = _GOOGLE_HEAD.match(line) or _REST_FIELD.match(line.strip())
        if is_head or (line.strip() and _is_ruled(lines, number)):
            about = _read_parameter_texts(lines[number:])
            break
        prose.append(line)
    return "\n".join(prose).strip(), about


def _is_ruled(lines: list[str], number: int) -> bool:
    return number + 1 < len(lines) and _NUMPY_RULE.match(lines[number + 1]) is not None


def _read_parameter_texts(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    names: list[str] = []
    inside = ""
    indent = 0
    for number, line in enumerate(lines):
        bare = line.strip()
        if _NUMPY_RULE.match(bare) or not bare:
            continue
        if _GOOGLE_HEAD.match(line) or _is_ruled(lines, number):
            is_ours = bare.lower().startswith(_PARAMETER_HEADS)
            inside = ("numpy" if _is_ruled(lines, number) else "google") if is_ours else ""
            names = []
            indent = 0
            continue
        depth = len(line) - len(line.lstrip())
        if _REST_FIELD.match(bare):
            inside = "rest"
            names = _start_entry(found, _REST_ENTRY.match(bare))
            indent = depth
        elif inside in ("google", "numpy") and (depth <= indent or not names):
            entry = _GOOGLE_ENTRY if inside == "google" else _NUMPY_ENTRY
            names = _start_entry(found, entry.match(bare))
            indent = depth
        elif inside:
            for name in names:
                found[name].append(bare)
    return {name: " ".join(filter(None, texts)) for name, texts in found.items()}


def _start_entry(found: dict[str, list[str]], entry: re.Match[str] | None) -> list[str]:
    """Start the entry of one parameter, or of several with one description; return their names."""
    if entry is None:
        return []
    names = [name.strip(" *") for name in entry[1].split(",")]
    text = entry[2] if entry.re.groups > 1 else ""
    for name in names:
        found[name] = [text]
    return names
