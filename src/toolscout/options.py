"""Options: every setting of sessions, servers and the gateway is declared once.

A class of options is a frozen dataclass derived from `Options`. Each field is declared with
`declare`: its default, its check, one line of documentation, a unit and flags. Reading tables,
checking, errors with near names, secrets, references, writing TOML and `docs/configuration.md`
all follow from that declaration.

No error quotes a string it found, since a secret may have been put in the wrong place. Numbers
and the words of a closed set are quoted.
"""

import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack, cast

from toolscout.errors import InvalidConfig
from toolscout.names import find_near_names, to_one_line
from toolscout.schemas import Json

MAX_TEXT_CHARS = 100_000
NAME_CHARS = 60
WORD_CHARS = 40

Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=StrEnum)
Group = TypeVar("Group", bound="Options")

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# The system ends strings at NUL, and UTF-8 has no lone surrogates.
_UNUSABLE = re.compile(r"[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ValueCheck(Generic[Value]):
    """Reads a value of unknown type, or raises `InvalidConfig` for its key."""

    expected: str
    """Completes "Use …." in errors, and is the type in the reference."""
    read: Callable[[str, object], Value]
    bounds: tuple[float, float] | None = None
    """The range of a number."""


class Flags(TypedDict, total=False):
    """What `declare` can say about an option besides its default, check and documentation."""

    unit: str
    secret: bool
    """The value is never shown; it may contain references."""
    path: bool
    """A relative path starts at the folder of the configuration file; it may contain references."""
    reference: bool
    """The value may contain references such as `${VAR}`."""
    identity: bool
    """Two entries that differ here are different servers; implies `needs_restart`."""
    needs_restart: bool
    """A running server, or the gateway, has to be restarted before a new value takes effect."""
    only: tuple[StrEnum, ...]
    """The kinds of entry that take this option, empty for all; implies `needs_restart`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The declaration of one option; see `Flags`."""

    name: str = ""
    default: object = None
    is_required: bool = False
    """A file has to give a value."""
    check: ValueCheck[Any]
    doc: str
    unit: str = ""
    secret: bool = False
    path: bool = False
    reference: bool = False
    identity: bool = False
    needs_restart: bool = False
    only: tuple[StrEnum, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "reference", self.reference or self.path or self.secret)
        needs_restart = self.needs_restart or self.identity or bool(self.only)
        object.__setattr__(self, "needs_restart", needs_restart)


def declare(default: Value, check: ValueCheck[Value], doc: str, **flags: Unpack[Flags]) -> Value:
    """Declare an option as a field of a class of options."""
    metadata = {"option": Option(default=default, check=check, doc=doc, **flags)}
    if isinstance(default, dict):
        return cast("Value", field(default_factory=dict[str, object], metadata=metadata))
    return cast("Value", field(default=default, metadata=metadata))


def describe(
    check: ValueCheck[Any], doc: str, *, is_required: bool = True, **flags: Unpack[Flags]
) -> Mapping[str, Option]:
    """Return the metadata of an option without a default, for `field(metadata=…)`."""
    return {"option": Option(check=check, doc=doc, is_required=is_required, **flags)}


@cache
def list_options(kind: type["Options"]) -> tuple[Option, ...]:
    """Return the options of a class in the order of their declaration."""
    return tuple(
        replace(item.metadata["option"], name=item.name)
        for item in fields(cast("Any", kind))
        if "option" in item.metadata
    )


class Options:
    """Base of frozen dataclasses whose fields are declared with `declare`."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for declared in list_options(type(self)):
            value = declared.check.read(declared.name, getattr(self, declared.name))
            object.__setattr__(self, declared.name, value)

    def __repr__(self) -> str:
        others = [item for item in fields(cast("Any", self)) if "option" not in item.metadata]
        names = [item.name for item in others if item.repr]
        shown = {name: repr(getattr(self, name)) for name in names}
        for declared, value in self._list_changed():
            # An option that takes references may contain a secret in plain text.
            is_hidden = declared.secret or declared.reference
            shown[declared.name] = "…" if is_hidden else repr(value)
        return f"{type(self).__name__}({', '.join(map('='.join, shown.items()))})"

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return options from plain values, as a file has them; unknown keys raise (R109)."""
        table = read_table("", values)
        known = [declared.name for declared in list_options(cls)]
        check_keys(table, known)
        for declared in list_options(cls):
            if declared.is_required and declared.name not in table:
                raise InvalidConfig(declared.name, "is missing", remedy="Add it.")
        return cls(**table)

    def to_mapping(self) -> Json:
        """Return the options that differ from their defaults, as TOML has them."""
        return {declared.name: _to_plain(value) for declared, value in self._list_changed()}

    def map_references(self, change: Callable[[Option, str, str], str]) -> Self:
        """Return a copy in which `change(option, key, text)` replaced every text that may refer."""
        changed: dict[str, Any] = {}
        for declared in list_options(type(self)):
            value = getattr(self, declared.name)
            if declared.reference:
                changed[declared.name] = _map_texts(value, declared, declared.name, change)
            elif isinstance(value, Mapping):
                table = cast("Mapping[str, object]", value)
                changed[declared.name] = {
                    key: item.map_references(_prefix_change(change, declared.name, key))
                    if isinstance(item, Options)
                    else item
                    for key, item in table.items()
                }
        return replace(cast("Any", self), **changed)

    def list_changes(self, new: Self) -> list[Option]:
        """Return the options that have other values in `new`."""
        options = list_options(type(self))
        return [one for one in options if getattr(self, one.name) != getattr(new, one.name)]

    def list_secrets(self) -> tuple[str, ...]:
        """Return the values of secret options as they are; of resolved options, in plain text."""
        found: list[str] = []
        for declared in list_options(type(self)):
            value = getattr(self, declared.name)
            is_table = isinstance(value, Mapping)
            for item in cast("Mapping[str, object]", value).values() if is_table else [value]:
                if isinstance(item, Options):
                    found += item.list_secrets()
                elif declared.secret and item:
                    found.append(str(item))
        return tuple(found)

    def _list_changed(self) -> list[tuple[Option, Any]]:
        pairs = [(declared, getattr(self, declared.name)) for declared in list_options(type(self))]
        return [(declared, value) for declared, value in pairs if value != declared.default]


def _prefix_change(
    change: Callable[[Option, str, str], str], *parts: str
) -> Callable[[Option, str, str], str]:
    head = join_keys(*parts)
    return lambda declared, key, text: change(declared, f"{head}.{key}", text)


def _map_texts(
    value: object, declared: Option, key: str, change: Callable[[Option, str, str], str]
) -> object:
    if isinstance(value, tuple | list):
        items = cast("Sequence[object]", value)
        changed = [_map_texts(item, declared, key, change) for item in items]
        return changed if isinstance(value, list) else tuple(changed)
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return {
            name: _map_texts(item, declared, f"{key}.{join_keys(name)}", change)
            for name, item in table.items()
        }
    return change(declared, key, value) if isinstance(value, str) else value


def _to_plain(value: object) -> object:
    if isinstance(value, Options):
        return value.to_mapping()
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_to_plain(item) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return {key: _to_plain(item) for key, item in table.items()}
    return value


def join_keys(*parts: str) -> str:
    """Return keys joined by dots, each quoted where TOML needs that."""
    return ".".join(
        part if _BARE_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
        for part in parts
    )


def quote_name(name: str) -> str:
    """Return a name of unknown origin in quotation marks, cut to a length for notes."""
    return repr(to_one_line(name, NAME_CHARS))


@contextmanager
def prefix_keys(*parts: str) -> Generator[None]:
    """Put these keys in front of the key of any `InvalidConfig` raised inside."""
    try:
        yield
    except InvalidConfig as error:
        key = f"{join_keys(*parts)}.{error.key}" if error.key else join_keys(*parts)
        raise InvalidConfig(key, error.problem, remedy=error.remedy) from None


def check_keys(keys: Iterable[str], known: list[str]) -> None:
    """Raise `InvalidConfig` for the first unknown key, with the nearest known one (R109)."""
    for key in keys:
        if key not in known:
            near = find_near_names(key, known, limit=1)
            remedy = f"Use {near[0]!r}." if near else f"Use one of {', '.join(sorted(known))}."
            raise InvalidConfig(join_keys(key), "does not exist", remedy=remedy)


def refuse(key: str, value: object, expected: str) -> InvalidConfig:
    """Return the error for a value of the wrong type or size."""
    return InvalidConfig(key, f"is {_describe(value)}", remedy=f"Use {expected}.")


def _describe(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return to_one_line(repr(value), WORD_CHARS)
    if isinstance(value, str):
        return "a string"
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def read_text(key: str, value: object) -> str:
    """Return a string that the system can take."""
    if not isinstance(value, str):
        raise refuse(key, value, "a string")
    if len(value) > MAX_TEXT_CHARS:
        raise InvalidConfig(
            key, "is too long", remedy=f"Use at most {MAX_TEXT_CHARS:,} characters."
        )
    if _UNUSABLE.search(value):
        problem = "contains characters that are not text"
        raise InvalidConfig(key, problem, remedy="Remove NUL characters and lone surrogates.")
    return str(value)


def read_texts(key: str, value: object) -> tuple[str, ...]:
    """Return a list of strings."""
    if not isinstance(value, list | tuple):
        raise refuse(key, value, "a list of strings")
    items = cast("list[object]", value)
    return tuple(read_text(f"{key}[{place}]", item) for place, item in enumerate(items))


def read_names(key: str, value: object) -> tuple[str, ...]:
    """Return a list of names or patterns without empty ones and without repetition."""
    names = read_texts(key, value)
    if not all(name.strip() for name in names):
        raise InvalidConfig(key, "contains an empty name", remedy="Remove it.")
    return tuple(dict.fromkeys(names))


def read_some_names(key: str, value: object) -> tuple[str, ...]:
    """Return a list of at least one name or pattern.

    An empty list may be meant as nothing or as everything, so it is refused.
    """
    names = read_names(key, value)
    if not names:
        raise InvalidConfig(key, "is empty", remedy="Leave it out to allow everything.")
    return names


def read_name_or_names(key: str, value: object) -> tuple[str, ...]:
    """Return a list of names; a single string is a list of one, and any iterable will do."""
    if isinstance(value, str):
        return read_names(key, (value,))
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise refuse(key, cast("object", value), "a string or a list of strings")
    return read_names(key, tuple(cast("Iterable[object]", value)))


def read_table(key: str, value: object) -> Json:
    """Return a table with strings as keys."""
    if not isinstance(value, Mapping):
        raise refuse(key, value, "a table")
    table = cast("Mapping[Any, Any]", value)
    return {read_text(key, name): table[name] for name in table}


def read_strings(key: str, value: object) -> Mapping[str, str]:
    """Return a table of strings without empty keys."""
    table = read_table(key, value)
    if not all(name.strip() for name in table):
        raise InvalidConfig(key, "contains an empty key", remedy="Remove it.")
    return {name: read_text(f"{key}.{join_keys(name)}", text) for name, text in table.items()}


def read_flag(key: str, value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise refuse(key, value, "true or false")
    return value


TEXT = ValueCheck("a string", read_text)
TEXTS = ValueCheck("a list of strings", read_texts)
NAMES = ValueCheck("a list of names", read_names)
PATTERNS = ValueCheck("a list of patterns", read_names)
SOME_PATTERNS = ValueCheck("a list of at least one pattern", read_some_names)
NAME_OR_NAMES = ValueCheck("a string or a list of strings", read_name_or_names)
STRINGS = ValueCheck("a table of strings", read_strings)
FLAG = ValueCheck("true or false", read_flag)


def check_number(least: float, most: float) -> ValueCheck[float]:
    """Return a check for numbers in a range."""
    return _check_range(float, least, most)


def check_whole(least: int, most: int) -> ValueCheck[int]:
    """Return a check for whole numbers in a range."""
    return _check_range(int, least, most)


def _check_range(kind: type[Value], least: float, most: float) -> ValueCheck[Value]:
    name = "whole number" if kind is int else "number"
    expected = f"a {name} from {least:,} to {most:,}"
    accepted = int if kind is int else (int, float)

    def read(key: str, value: object) -> Value:
        is_number = isinstance(value, accepted) and not isinstance(value, bool)
        if not is_number or not least <= cast("float", value) <= most:
            raise refuse(key, value, expected)
        return cast("Value", value)

    return ValueCheck(expected, read, (least, most))


def check_choice(choices: type[Choice]) -> ValueCheck[Choice]:
    """Return a check for one of a closed set of words."""
    expected = f"one of {', '.join(choices)}"

    def read(key: str, value: object) -> Choice:
        if not isinstance(value, str):
            raise refuse(key, value, expected)
        if value not in list(choices):
            problem = f"is {to_one_line(value, WORD_CHARS)!r}"
            raise InvalidConfig(key, problem, remedy=f"Use {expected}.")
        return choices(value)

    return ValueCheck(expected, read)


def check_groups(kind: type[Group], expected: str) -> ValueCheck[Mapping[str, Group]]:
    """Return a check for a table whose members are groups of options, each under a name."""

    def read(key: str, value: object) -> Mapping[str, Group]:
        found: dict[str, Group] = {}
        for name, table in read_table(key, value).items():
            with prefix_keys(key, name):
                found[name] = table if isinstance(table, kind) else kind.from_mapping(table)
        return found

    return ValueCheck(expected, read)
