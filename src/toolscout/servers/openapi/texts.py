"""A file or a text, in JSON or YAML, as plain values.

YAML is read as OpenAPI wants it: scalars of JSON, string keys, no merging. Length and depth are
bounded; what the values mean is the business of `documents`.
"""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from toolscout.errors import InvalidFile, MissingExtra
from toolscout.names import clean_text

DOCUMENT_BYTES = 64 << 20
DOCUMENT_NESTING = 100

_YAML_SCALARS: dict[str, object] = {"": None, "~": None, "null": None, "true": True, "false": False}
_YAML_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_OPENERS = ("SequenceStartEvent", "MappingStartEvent")


def read_text(path: Path, where: str) -> str:
    """Return the text of a file, or raise `InvalidFile`."""
    try:
        if path.stat().st_size > DOCUMENT_BYTES:
            raise too_large(where, f"is longer than {DOCUMENT_BYTES:,} bytes")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
    except ValueError:  # a path with a null character
        problem = "is no path"
    raise InvalidFile(where, problem, remedy="Check the path and the file.")


def parse(text: str, where: str) -> object:
    """Return the value of a text in JSON or YAML, or raise `InvalidFile`."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            pass  # a YAML mapping may be written in braces as well
        except (ValueError, RecursionError) as error:
            raise _unreadable(where, "JSON", error) from None
    return _parsed_yaml(text, where)


def _parsed_yaml(text: str, where: str) -> object:
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        raise MissingExtra("yaml", extra="gateway") from None
    reader = _YamlReader(where)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            reader.take(type(event).__name__, event)
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(where, "YAML", error) from None
    return reader.value


def _unreadable(where: str, language: str, error: Exception) -> InvalidFile:
    mark: Any = getattr(error, "problem_mark", None)
    said = clean_text(str(getattr(error, "problem", None) or error), 200).rstrip(".")
    return InvalidFile(
        where,
        f"is not {language} ({said})",
        line=mark.line + 1 if mark is not None else None,
        remedy="Give an OpenAPI 3 document in JSON or YAML.",
    )


def too_large(where: str, problem: str) -> InvalidFile:
    """Return the error that says which bound a document breaks."""
    return InvalidFile(where, problem, remedy="Keep only the paths that you need.")


class _YamlReader:
    """Builds a value from YAML's events.

    PyYAML's own loaders call themselves for each level, in C without a limit, and multiply what
    is merged; events do neither.
    """

    def __init__(self, where: str) -> None:
        self.value: object = None
        self._where = where
        self._open: list[tuple[list[object], str | None]] = []
        self._anchors: dict[str, object] = {}

    def take(self, kind: str, event: Any) -> None:
        if kind in _OPENERS:
            if len(self._open) >= DOCUMENT_NESTING:
                raise too_large(self._where, f"is nested deeper than {DOCUMENT_NESTING} levels")
            self._open.append(([], event.anchor))
        elif kind == "SequenceEndEvent":
            self._put(*self._open.pop())
        elif kind == "MappingEndEvent":
            members, anchor = self._open.pop()
            self._put(dict(zip(map(_key, members[::2]), members[1::2], strict=True)), anchor)
        elif kind == "ScalarEvent":
            self._put(_scalar(event), event.anchor)
        elif kind == "AliasEvent":
            if event.anchor not in self._anchors:
                raise ValueError("an alias stands before the end of its anchor")
            self._put(self._anchors[event.anchor], None)
        elif kind == "DocumentStartEvent" and self.value is not None:
            raise ValueError("it holds several documents")

    def _put(self, value: object, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = value
        if self._open:
            self._open[-1][0].append(value)
        else:
            self.value = value


def _key(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        raise ValueError("a key is not a string")
    return json.dumps(value)


def _scalar(event: Any) -> object:
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text.lower() in _YAML_SCALARS:
        return _YAML_SCALARS[text.lower()]
    number = _YAML_NUMBER.fullmatch(text)
    if number is None:
        return text
    return float(text) if number[1] or number[2] else int(text)
