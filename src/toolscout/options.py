"""Values out of a configuration's tables, each checked for its kind.

A check takes a key and a value of unknown kind, and gives the value or raises `InvalidConfig`.
No message shows a text that was found, since it may be a secret in the wrong place; a word of a
closed set and a number are shown. What belongs into which table is said by `config`.
"""

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar, cast

from toolscout.errors import InvalidConfig
from toolscout.names import find_near_names, to_one_line
from toolscout.schemas import Json

MAX_TEXT = 100_000
WORD_SHOWN = 40

Check = Callable[[str, object], object]
_Choice = TypeVar("_Choice", bound=StrEnum)
_Value = TypeVar("_Value")

_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f]')
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# NUL ends texts for the system, and UTF-8 has no lone surrogates.
_UNUSABLE = re.compile(r"[\x00\ud800-\udfff]")
_KINDS: Mapping[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
}


def key_path(*parts: str) -> str:
    """Return keys as TOML writes them, with dots between."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else quoted(part) for part in parts)


def quoted(text: str) -> str:
    """Return a text as TOML writes it."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    found = match.group()
    return f"\\{found}" if found in ('"', "\\") else f"\\u{ord(found):04x}"


@contextmanager
def under(*parts: str) -> Generator[None]:
    """Put these keys in front of the key of an `InvalidConfig`."""
    try:
        yield
    except InvalidConfig as error:
        key = f"{key_path(*parts)}.{error.key}" if error.key else key_path(*parts)
        raise InvalidConfig(key, error.problem, remedy=error.remedy) from None


def check_fields(value: object, checks: Mapping[str, Check]) -> None:
    """Put the fields of a frozen value through their checks, which may change their kind."""
    for name, check in checks.items():
        object.__setattr__(value, name, check(name, getattr(value, name)))


def from_table(kind: type[_Value], table: object, checks: Mapping[str, Check]) -> _Value:
    """Return a value out of a table in which unknown keys are refused (R109)."""
    members = as_table("", table)
    for key in members:
        if key not in checks:
            raise unknown_key(key, list(checks))
    return kind(**members)


def unknown_key(key: str, known: list[str]) -> InvalidConfig:
    """Return the error for a key that does not exist, with the nearest that does (R109)."""
    near = find_near_names(key, known, limit=1)
    remedy = f"Use {near[0]!r}." if near else f"Use one of {', '.join(sorted(known))}."
    return InvalidConfig(key_path(key), "does not exist", remedy=remedy)


def as_text(key: str, value: object) -> str:
    """Return a text that the system can take."""
    if not isinstance(value, str):
        raise _wrong(key, value, "Use a text.")
    if len(value) > MAX_TEXT or _UNUSABLE.search(value):
        problem = "is too long" if len(value) > MAX_TEXT else "holds characters that are no text"
        raise InvalidConfig(key, problem, remedy=f"Use at most {MAX_TEXT:,} plain characters.")
    return str(value)


def as_texts(key: str, value: object) -> tuple[str, ...]:
    """Return a list of texts."""
    if not isinstance(value, (list, tuple)):
        raise _wrong(key, value, "Use a list of texts.")
    items = cast("list[object]", value)
    return tuple(as_text(f"{key}[{place}]", item) for place, item in enumerate(items))


def as_names(key: str, value: object) -> tuple[str, ...]:
    """Return a list of names or patterns, none of them empty, each once."""
    names = as_texts(key, value)
    if not all(name.strip() for name in names):
        raise InvalidConfig(key, "holds an empty name", remedy="Leave it out.")
    return tuple(dict.fromkeys(names))


def as_some_names(key: str, value: object) -> tuple[str, ...]:
    """Return a list of names or patterns with at least one.

    Whoever writes an empty list may mean nothing or everything, so it is refused.
    """
    names = as_names(key, value)
    if not names:
        raise InvalidConfig(key, "is empty", remedy="Leave it out to allow everything.")
    return names


def as_table(key: str, value: object) -> Json:
    """Return a table with texts as keys."""
    if not isinstance(value, Mapping):
        raise _wrong(key, value, "Use a table.")
    table = cast("Mapping[Any, Any]", value)
    return {as_text(key, name): table[name] for name in table}


def as_mapping(key: str, value: object) -> Mapping[str, str]:
    """Return a table of texts, none of its keys empty."""
    table = as_table(key, value)
    if not all(name.strip() for name in table):
        raise InvalidConfig(key, "holds an empty key", remedy="Leave it out.")
    return {name: as_text(f"{key}.{key_path(name)}", text) for name, text in table.items()}


def as_flag(key: str, value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise _wrong(key, value, "Use true or false.")
    return value


def number(least: float, most: float) -> Check:
    """Return a check for numbers of a range."""
    return _number_check(least, most, (int, float), "number")


def whole(least: int, most: int) -> Check:
    """Return a check for whole numbers of a range."""
    return _number_check(least, most, (int,), "whole number")


def choice(choices: type[_Choice]) -> Callable[[str, object], _Choice]:
    """Return a check for one of a closed set of words."""

    def check(key: str, value: object) -> _Choice:
        remedy = f"Use one of {', '.join(choices)}."
        if not isinstance(value, str):
            raise _wrong(key, value, remedy)
        if value not in list(choices):
            raise InvalidConfig(key, f"is {to_one_line(value, WORD_SHOWN)!r}", remedy=remedy)
        return choices(value)

    return check


def _number_check(least: float, most: float, kinds: tuple[type, ...], what: str) -> Check:
    remedy = f"Use a {what} from {least:g} to {most:g}."

    def check(key: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise _wrong(key, value, remedy)
        found = cast("float", value)
        if not least <= found <= most:
            raise InvalidConfig(key, "is out of range", remedy=remedy)
        return found

    return check


def _wrong(key: str, value: object, remedy: str) -> InvalidConfig:
    kind = "a table" if isinstance(value, Mapping) else _KINDS.get(type(value), "of another kind")
    return InvalidConfig(key, f"is {kind}", remedy=remedy)
