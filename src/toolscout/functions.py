"""Read a Python function as a tool definition, and JSON arguments as what its annotations promise.

`definition_from_callable` takes any callable with a signature and returns its name, description,
a JSON Schema of its parameters and a conversion of arguments that fit that schema: a parameter that
is annotated with `date` or a dataclass gets one. `Any` and parameters without an annotation get
plain JSON. An annotation that no JSON value can become raises `InvalidTool`. Pydantic is imported
only for annotations that are pydantic's own.
"""

import base64
import collections
import datetime
import decimal
import enum
import functools
import inspect
import json
import os
import pathlib
import re
import sys
import types
import uuid
from collections import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from toolscout.errors import InvalidTool
from toolscout.schemas import Json, find_problem, is_list, is_object

INLINED_DEPTH = 4
"""How often pydantic's schema of a model may contain the model itself before it is cut."""
ANNOTATION_CHARS = 80

Convert = Callable[[Any], Any]


class WrongValue(ValueError):
    """A JSON value that cannot become what an annotation promises."""

    def __init__(
        self, rule: str, wanted: str, value: object, path: tuple[str | int, ...] = ()
    ) -> None:
        self.rule = rule
        self.wanted = wanted
        self.value = value
        self.path = path
        super().__init__(f"{wanted}: {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A function as a tool."""

    name: str
    description: str
    input_schema: Json
    converters: Mapping[str, Convert]
    """How to read the JSON of each parameter."""

    def convert(self, arguments: Json) -> Json:
        """Return arguments as the annotations promise, or raise `WrongValue`."""
        return _convert_members(arguments, self.converters)


@dataclass(frozen=True, slots=True)
class _Form:
    """How a value of one annotation looks in JSON, and how to make the value from that."""

    schema: Json
    convert: Convert


class _Unsupported(Exception):
    """An annotation that JSON cannot become."""

    def __init__(self, hint: object, why: str = "which JSON cannot become") -> None:
        shown = hint.__name__ if isinstance(hint, type) else str(hint)
        super().__init__(f"{shown[:ANNOTATION_CHARS]!r}, {why}")


def definition_from_callable(fn: Callable[..., object], server: str = "") -> Definition:
    """Return the definition of a callable, or raise `InvalidTool`.

    `self`, `cls`, `*args` and `**kwargs` are left out. A default that is not JSON makes its
    parameter optional but does not appear in the schema.
    """
    plain = _unwrap(fn)
    name = getattr(plain, "__name__", None) or type(plain).__name__
    description, about = _split_docstring(inspect.getdoc(plain) or "")
    source: object = plain
    if inspect.isclass(plain):
        source = plain.__init__
    elif not inspect.isroutine(plain):
        source = type(plain).__call__
    hints = _resolve_hints(source)
    reader = _Reader()
    properties: Json = {}
    required: list[str] = []
    converters: dict[str, Convert] = {}
    for parameter in _list_parameters(fn):
        try:
            form = reader.read(hints.get(parameter.name, parameter.annotation))
        except _Unsupported as error:
            raise InvalidTool(
                f"has a parameter {parameter.name!r} that is annotated with {error}",
                server=server,
                tool=name,
                remedy="Annotate it with Any to get plain JSON, or with a type that "
                "docs/sessions.md lists under 'Python functions'.",
            ) from None
        schema = dict(form.schema)
        text = about.get(parameter.name)
        if text and "description" not in schema:
            schema["description"] = text
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
        else:
            default = parameter.default
            if isinstance(default, enum.Enum):
                default = _name_member(default)
            if not find_problem(default):
                schema["default"] = default
        properties[parameter.name] = schema
        converters[parameter.name] = form.convert
    return Definition(
        name=name,
        description=description,
        input_schema=_build_object(properties, required),
        converters=converters,
    )


def _unwrap(fn: Callable[..., object]) -> Callable[..., object]:
    """Return the function behind partials and decorators, or the `__call__` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return inspect.unwrap(fn)
    return fn


def _resolve_hints(source: object) -> dict[str, Any]:
    """Return the type hints of a function or class; those that cannot be resolved stay text."""
    # Evaluating hints runs the author's code, which may fail in any way.
    with suppress(Exception):
        return get_type_hints(source, include_extras=True)
    module = sys.modules.get(getattr(source, "__module__", None) or "")
    scope = getattr(source, "__globals__", None) or vars(module or types)
    found: dict[str, Any] = {}
    for name, hint in getattr(source, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: hint})
        try:
            found.update(get_type_hints(holder, globalns=scope, include_extras=True))
        except Exception:
            found[name] = hint
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


# Values of one type.


def _check(wanted: str, kinds: tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise WrongValue("type", wanted, value)
    return value


def _parse(wanted: str, parse: Callable[[str], object], value: Any) -> Any:
    text = _check("string", (str,), value)
    try:
        return parse(text)
    except (ValueError, ArithmeticError):
        raise WrongValue("format", wanted, text) from None


def _build(kind: Callable[..., object], source: object, /, *args: object, **members: object) -> Any:
    """Call a class; what its own code says about the values is for the model."""
    try:
        return kind(*args, **members)
    except (TypeError, ValueError, ArithmeticError, AssertionError) as error:
        raise WrongValue("value", str(error), source) from error


def _to_int(value: Any) -> int:
    number = _check("integer", (int, float), value)
    if number != number // 1:
        raise WrongValue("type", "integer", value)
    return int(number)  # JSON does not tell 1 and 1.0 apart


def _to_float(value: Any) -> float:
    return _build(float, value, _check("number", (int, float), value))


def _to_decimal(value: Any) -> decimal.Decimal:
    number = _check("number", (int, float, str), value)
    # A float becomes the number that was written, not the nearest binary one.
    return _parse("decimal", decimal.Decimal, str(number))


_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?=.)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def _parse_duration(text: str) -> datetime.timedelta:
    """Return an ISO 8601 duration such as P1DT2H30M; months and years have no fixed length."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("not a duration")
    parts = match.groupdict()
    negative = parts.pop("sign") == "-"
    seconds, _, fraction = (parts.pop("seconds") or "0").partition(".")
    length = datetime.timedelta(
        seconds=int(seconds),
        microseconds=int(fraction[:6].ljust(6, "0")),
        **{unit: int(number) for unit, number in parts.items() if number},
    )
    return -length if negative else length


def _keep(value: Any) -> Any:
    return value


def _form_from_parser(form: str, parse: Callable[[str], object]) -> _Form:
    return _Form({"type": "string", "format": form}, partial(_parse, form, parse))


_ANY = _Form({}, _keep)
_SIMPLE: dict[object, _Form] = {
    str: _Form({"type": "string"}, partial(_check, "string", (str,))),
    int: _Form({"type": "integer"}, _to_int),
    float: _Form({"type": "number"}, _to_float),
    bool: _Form({"type": "boolean"}, partial(_check, "boolean", (bool,))),
    type(None): _Form({"type": "null"}, partial(_check, "null", (type(None),))),
    bytes: _Form(
        {"type": "string", "contentEncoding": "base64"},
        partial(_parse, "base64", partial(base64.b64decode, validate=True)),
    ),
    datetime.datetime: _form_from_parser("date-time", datetime.datetime.fromisoformat),
    datetime.date: _form_from_parser("date", datetime.date.fromisoformat),
    datetime.time: _form_from_parser("time", datetime.time.fromisoformat),
    datetime.timedelta: _form_from_parser("duration", _parse_duration),
    uuid.UUID: _form_from_parser("uuid", uuid.UUID),
    pathlib.Path: _form_from_parser("path", pathlib.Path),
    pathlib.PurePath: _form_from_parser("path", pathlib.PurePath),
    os.PathLike: _form_from_parser("path", pathlib.Path),
    decimal.Decimal: _Form(
        {"type": ["number", "string"], "pattern": r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$"}, _to_decimal
    ),
    Any: _ANY,
    object: _ANY,
    inspect.Parameter.empty: _ANY,
}
_SCALARS = (str, int, float, bool, type(None))
_DERIVABLE = (str, int, float, bytes, pathlib.PurePath, decimal.Decimal, uuid.UUID)
"""A subclass of these is made from a value of its base."""
_ARRAYS: dict[object, Callable[[list[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.deque: collections.deque,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Iterable: list,
    abc.Collection: list,
    abc.Set: set,
    abc.MutableSet: set,
}
_SETS: tuple[object, ...] = (set, frozenset, abc.Set, abc.MutableSet)
_OBJECTS: dict[object, Callable[[dict[Any, Any]], Any]] = {
    dict: dict,
    collections.OrderedDict: collections.OrderedDict,
    abc.Mapping: dict,
    abc.MutableMapping: dict,
}


class _Reader:
    """Reads the annotations of one function."""

    def __init__(self) -> None:
        self._open: dict[object, _Form | None] = {}
        """The types being read, which may contain themselves; None until they are known."""

    def read(self, hint: Any) -> _Form:
        """Return the form of a hint, or raise `_Unsupported`."""
        origin = get_origin(hint)
        arguments = get_args(hint)
        if origin is Annotated:
            form = self.read(arguments[0])
            for note in arguments[1:]:
                text = note if isinstance(note, str) else getattr(note, "description", None)
                text = text or getattr(note, "documentation", None)  # typing_extensions.Doc
                if isinstance(text, str):
                    return _Form({**form.schema, "description": text}, form.convert)
            return form
        if origin in (Required, NotRequired) or str(origin).endswith(".ReadOnly"):
            return self.read(arguments[0])
        if origin is Literal:
            return _form_from_options(arguments, hint)
        if origin in (Union, types.UnionType):
            return self._read_union(arguments)
        if isinstance(hint, TypeVar):
            if hint.__constraints__:
                return self._read_union(hint.__constraints__)
            return _ANY if hint.__bound__ is None else self.read(hint.__bound__)
        if isinstance(hint, str) or type(hint).__name__ == "ForwardRef":
            raise _Unsupported(hint, "which cannot be found where the function is defined")
        if not isinstance(hint, type) and hasattr(hint, "__supertype__"):
            return self.read(hint.__supertype__)  # NewType
        if not isinstance(hint, type) and hasattr(hint, "__value__"):
            return self._read_recursive(hint, lambda: self.read(hint.__value__))  # `type X = …`
        return self._read_class(hint, origin or hint, arguments)

    def _read_union(self, members: Iterable[object]) -> _Form:
        forms = [self.read(member) for member in members]
        branches: list[Json] = []
        for form in forms:
            if form.schema not in branches:
                branches.append(form.schema)
        convert = partial(_convert_to_first, [form.convert for form in forms])
        if {} in branches:
            return _Form({}, convert)
        return _Form(branches[0] if len(branches) == 1 else {"anyOf": branches}, convert)

    def _read_class(self, hint: Any, kind: Any, arguments: tuple[Any, ...]) -> _Form:
        try:
            if kind in _SIMPLE:
                return _SIMPLE[kind]
        except TypeError:  # unhashable, so not a type
            raise _Unsupported(hint) from None
        if kind in _OBJECTS:
            return self._read_mapping(hint, _OBJECTS[kind], arguments or (str, Any))
        if kind is tuple and hint is not tuple and arguments[-1:] != (Ellipsis,):
            return self._read_tuple(arguments)
        if kind in _ARRAYS:
            return self._read_array(kind, _ARRAYS[kind], arguments[0] if arguments else Any)
        if not isinstance(kind, type):
            raise _Unsupported(hint)
        found = cast("type[Any]", kind)
        if issubclass(found, enum.Enum):
            return _form_from_options(tuple(found), hint)
        if hasattr(found, "__get_pydantic_core_schema__"):
            return _read_pydantic(hint)
        is_named_tuple = tuple in found.__mro__ and hasattr(found, "_field_defaults")
        if is_typeddict(found) or is_dataclass(found) or is_named_tuple:
            return self._read_recursive(hint, lambda: self._read_record(found, arguments))
        if issubclass(found, datetime.date | datetime.time):
            base = next(_SIMPLE[base] for base in found.__mro__ if base in _SIMPLE)
            return _form_from_parser(base.schema["format"], found.fromisoformat)
        return self._read_subclass(found)

    def _read_subclass(self, kind: type[Any]) -> _Form:
        """Return the form of a class that is made from a value of its base."""
        bases = [b for b in kind.__mro__[1:] if b in _DERIVABLE or b in _ARRAYS or b in _OBJECTS]
        if not bases or collections.defaultdict in kind.__mro__:
            raise _Unsupported(kind)
        form = self.read(bases[0])
        return _Form(form.schema, lambda value: _build(kind, value, form.convert(value)))

    def _read_array(self, origin: object, kind: Callable[[list[Any]], Any], item: Any) -> _Form:
        form = self.read(item)
        schema: Json = {"type": "array"}
        if form.schema:
            schema["items"] = form.schema
        if origin in _SETS:
            schema["uniqueItems"] = True

        def convert(value: Any) -> Any:
            items = _convert_items(
                _check("array", (list, tuple), value), [form.convert] * len(value)
            )
            made = _build(kind, value, items)
            if len(made) < len(items):
                raise WrongValue("uniqueItems", "", value)
            return made

        return _Form(schema, convert)

    def _read_tuple(self, arguments: tuple[Any, ...]) -> _Form:
        forms = [self.read(argument) for argument in arguments]
        count = len(forms)

        def convert(value: Any) -> Any:
            given = len(_check("array", (list, tuple), value))
            if given != count:
                rule = "minItems" if given < count else "maxItems"
                raise WrongValue(rule, str(count), value)
            return tuple(_convert_items(value, [form.convert for form in forms]))

        items = [form.schema for form in forms]
        bounds = {"minItems": count, "maxItems": count}
        return _Form({"type": "array", "prefixItems": items} | bounds, convert)

    def _read_mapping(
        self, hint: Any, kind: Callable[[dict[Any, Any]], Any], arguments: tuple[Any, ...]
    ) -> _Form:
        names = self._read_key(hint, arguments[0])
        form = self.read(arguments[1])
        schema: Json = {"type": "object"}
        if names.schema:
            schema["propertyNames"] = names.schema
        if form.schema:
            schema["additionalProperties"] = form.schema

        def convert(value: Any) -> Any:
            members = _check("object", (dict,), value)
            converted = _convert_members(members, dict.fromkeys(members, form.convert))
            return kind({names.convert(name): item for name, item in converted.items()})

        return _Form(schema, convert)

    def _read_key(self, hint: Any, key: Any) -> _Form:
        """Return the form of the keys of an object, which are always text."""
        if key is str or key is Any:
            return _ANY
        if key is int:
            return _Form({"pattern": r"^-?\d+$"}, partial(_parse, "integer", int))
        form = self.read(key)
        if form.schema.get("type") != "string":
            raise _Unsupported(hint)
        return form

    def _read_record(self, kind: type[Any], arguments: tuple[Any, ...]) -> _Form:
        hints = _resolve_hints(kind)
        if is_typeddict(kind):
            required = [name for name in hints if _is_required(kind, name, hints[name])]
        elif is_dataclass(kind):
            members = [field for field in fields(kind) if field.init]
            hints = {field.name: hints.get(field.name, Any) for field in members}
            required = [
                field.name
                for field in members
                if field.default is MISSING and field.default_factory is MISSING
            ]
        else:
            names: tuple[str, ...] = kind._fields
            hints = {name: hints.get(name, Any) for name in names}
            required = [name for name in names if name not in kind._field_defaults]
        given = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))
        forms = {name: self.read(_fill_in(hint, given)) for name, hint in hints.items()}
        converters = {name: form.convert for name, form in forms.items()}

        def convert(value: Any) -> Any:
            members = _check("object", (dict,), value)
            for name in members:
                if name not in converters:
                    known = ", ".join(converters)
                    raise WrongValue("additionalProperties", known, value, (name,))
            for name in required:
                if name not in members:
                    raise WrongValue("required", "", value, (name,))
            return _build(kind, value, **_convert_members(members, converters))

        schema = _build_object({name: form.schema for name, form in forms.items()}, required)
        return _Form(schema | {"additionalProperties": False}, convert)

    def _read_recursive(self, hint: Any, read: Callable[[], _Form]) -> _Form:
        """Read a type that may contain itself; there, its schema is cut but not its conversion."""
        if hint in self._open:
            known = self._open[hint]
            if known is not None:
                return known

            def convert(value: Any) -> Any:
                form = self._open[hint]
                assert form is not None, "the whole function has been read before a call"
                return form.convert(value)

            return _Form({} if hasattr(hint, "__value__") else {"type": "object"}, convert)
        self._open[hint] = None
        form = read()
        self._open[hint] = form
        return form


def _is_required(kind: Any, name: str, hint: object) -> bool:
    # With postponed annotations, a TypedDict itself does not know.
    origin = get_origin(hint)
    return origin is Required or (name in kind.__required_keys__ and origin is not NotRequired)


def _fill_in(hint: Any, given: Mapping[Any, Any]) -> Any:
    """Return the hint of a generic class's member with what the class was given."""
    if isinstance(hint, TypeVar):
        return given.get(hint, hint)
    wanted = getattr(hint, "__parameters__", ())
    if not given or not wanted or isinstance(hint, type):
        return hint
    return hint[tuple(given.get(parameter, parameter) for parameter in wanted)]


def _name_member(value: object) -> object:
    """Return what stands for an option in JSON: itself, or a member's value if that is possible."""
    if not isinstance(value, enum.Enum):
        return value
    has_plain_values = all(type(member.value) in _SCALARS for member in type(value))
    return value.value if has_plain_values else value.name


def _form_from_options(options: tuple[object, ...], hint: object) -> _Form:
    names = [_name_member(option) for option in options]
    if not all(type(name) in _SCALARS for name in names):
        raise _Unsupported(hint)
    # Python considers True and 1 the same, JSON does not.
    keys = [(isinstance(name, bool), name) for name in names]
    members = dict(zip(keys, options, strict=True))
    kinds = {_SIMPLE[type(name)].schema["type"] for name in names}
    schema: Json = {"enum": names}
    if len(kinds) == 1:
        schema["type"] = kinds.pop()

    def convert(value: Any) -> Any:
        key = (isinstance(value, bool), value)
        if isinstance(value, list | dict) or key not in members:
            raise WrongValue("enum", ", ".join(map(str, names)), cast("object", value))
        return members[key]

    return _Form(schema, convert)


def _convert_items(items: Sequence[Any], converters: Sequence[Convert]) -> list[Any]:
    return [
        _convert_at(place, convert, item)
        for place, (convert, item) in enumerate(zip(converters, items, strict=True))
    ]


def _convert_members(members: Json, converters: Mapping[str, Convert]) -> Json:
    return {
        name: _convert_at(name, converters.get(name, _keep), value)
        for name, value in members.items()
    }


def _convert_at(step: str | int, convert: Convert, value: object) -> Any:
    try:
        return convert(value)
    except WrongValue as error:
        error.path = (step, *error.path)
        raise


def _convert_to_first(converters: Sequence[Convert], value: Any) -> Any:
    """Return what the first annotation of a union makes of a value."""
    errors: list[WrongValue] = []
    for convert in converters:
        try:
            return convert(value)
        except WrongValue as error:
            errors.append(error)
    # The one that came furthest was meant.
    raise max(errors, key=lambda error: (len(error.path), error.rule != "type"))


def _read_pydantic(hint: Any) -> _Form:
    """Return the form of a model or another type of pydantic's."""
    schema: object = None
    with suppress(Exception):  # the model's own code may fail in any way
        import pydantic

        adapter = pydantic.TypeAdapter[Any](hint)
        schema = adapter.json_schema()

        def convert(value: Any) -> Any:
            try:
                return adapter.validate_json(json.dumps(value))
            except pydantic.ValidationError as error:
                first = error.errors(include_url=False)[0]
                raise WrongValue("value", first["msg"], value, first["loc"]) from None

        if is_object(schema):
            return _Form(_inline_definitions(schema), convert)
    raise _Unsupported(hint)


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

    return cast("Json", resolve(schema, INLINED_DEPTH))


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
