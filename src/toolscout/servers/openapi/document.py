"""Read an OpenAPI 3.x document, in JSON or YAML, into checked values.

`read_document` takes a file or a text. `Document` follows references inside a document and counts
the work done on it. `jsonschema` translates the schemas, `operations` lists the operations.
"""

import json
import math
import os
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from toolscout.errors import InvalidFile, MissingExtra
from toolscout.names import clean_text
from toolscout.schemas import Json, is_list, is_object

DOCUMENT_BYTES = 64 << 20
DOCUMENT_NESTING = 100
DOCUMENT_VALUES = 3_000_000
WORK = 20_000_000
"""How many values may be visited for all tools of a document; each is visited a few times."""
NUMBER_BITS = 4_096
REFERENCE_CHARS = 2_000
HOPS = 20
YAML_ENDINGS = (".yaml", ".yml")

_YAML_SCALARS: dict[str, object] = {"": None, "~": None, "null": None, "true": True, "false": False}
_YAML_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_REMEDY = "Give an OpenAPI 3 document in JSON or YAML."
_TOO_DEEP = f"it is nested deeper than {DOCUMENT_NESTING} levels"


def _parse(text: str, where: str) -> object:
    """Parse a text in JSON or YAML."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            pass  # YAML mappings may have braces too
        except (ValueError, RecursionError) as error:
            raise _make_unreadable(where, "JSON", error) from None
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        raise MissingExtra("yaml", extra="gateway") from None
    try:
        events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return _build_from_yaml(events, where)
    except (yaml.YAMLError, ValueError) as error:
        raise _make_unreadable(where, "YAML", error) from None


def _make_unreadable(where: str, language: str, error: Exception) -> InvalidFile:
    mark: Any = getattr(error, "problem_mark", None)
    reason = clean_text(str(getattr(error, "problem", None) or error), 200).rstrip(".")
    line = mark.line + 1 if mark is not None else None
    return InvalidFile(where, f"it is not {language} ({reason})", line=line, remedy=_REMEDY)


def make_size_error(where: str, problem: str) -> InvalidFile:
    """Return the error for a document that exceeds a limit."""
    return InvalidFile(where, problem, remedy="Keep only the paths that you need.")


def _build_from_yaml(events: Iterable[Any], where: str) -> object:
    """Build a value from YAML events.

    PyYAML's own loaders recurse for each level, in C without a limit, and copy merged mappings
    again and again; reading events avoids both.
    """
    documents: list[object] = []
    open_nodes: list[tuple[list[object], str | None]] = [(documents, None)]
    anchors: dict[str, object] = {}
    for event in events:
        kind = type(event).__name__
        if kind in ("SequenceStartEvent", "MappingStartEvent"):
            if len(open_nodes) > DOCUMENT_NESTING:
                raise make_size_error(where, _TOO_DEEP)
            open_nodes.append(([], event.anchor))
            continue
        if kind == "ScalarEvent":
            value = _read_scalar(event)
            anchor = event.anchor
        elif kind == "SequenceEndEvent":
            value, anchor = open_nodes.pop()
        elif kind == "MappingEndEvent":
            members, anchor = open_nodes.pop()
            value = dict(zip(map(_to_key, members[::2]), members[1::2], strict=True))
        elif kind == "AliasEvent":
            if event.anchor not in anchors:
                raise ValueError("an alias comes before the end of its anchor")
            value = anchors[event.anchor]
            anchor = None
        elif kind == "DocumentStartEvent" and documents and documents[-1] is not None:
            raise ValueError("it contains several documents")
        else:
            continue
        if anchor:
            anchors[anchor] = value
        open_nodes[-1][0].append(value)
    return documents[-1] if documents else None


def _to_key(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        raise ValueError("a key is not a string")
    return json.dumps(value)


def _read_scalar(event: Any) -> object:
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text.lower() in _YAML_SCALARS:
        return _YAML_SCALARS[text.lower()]
    number = _YAML_NUMBER.fullmatch(text)
    if number is None:
        return text
    return float(text) if number[1] or number[2] else int(text)


def is_openapi_file(path: Path) -> bool:
    """Return whether a file holds an OpenAPI document, valid or not."""
    if path.suffix in YAML_ENDINGS:
        return True
    if path.suffix != ".json":
        return False
    try:
        value: object = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False  # reading it as a file of tools reports the problem
    return is_object(value) and ("openapi" in value or "swagger" in value)


def read_document(source: str | os.PathLike[str]) -> Json:
    """Return the OpenAPI document in a file or a text; raises `InvalidFile`.

    A string with a line break or a leading brace is a text, any other a path. YAML follows the
    rules of OpenAPI: only JSON's scalars, string keys and no merging.
    """
    is_text = isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{"))
    where = "OpenAPI text" if is_text else str(source)
    problem = ""
    text = str(source)
    try:
        size = len(text) if is_text else Path(source).stat().st_size
        if size > DOCUMENT_BYTES:
            raise make_size_error(where, f"it is longer than {DOCUMENT_BYTES:,} bytes")
        if not is_text:
            text = Path(source).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        problem = "it is not UTF-8"
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
    except ValueError:  # a path with a null character
        problem = "it is not a path"
    if problem:
        raise InvalidFile(where, problem, remedy="Check the path and the file.")
    return check_document(_parse(text, where), where)


def check_document(value: object, where: str) -> Json:
    """Return a copy of an OpenAPI 3.x document as plain JSON; raises `InvalidFile`."""
    left = DOCUMENT_VALUES
    texts: dict[int, str] = {}
    """By identity: YAML can name one text in many places."""

    def copy(node: object, depth: int) -> object:
        """Copy JSON into a tree without shared parts; refuse anything but bounded JSON."""
        nonlocal left
        if isinstance(node, str):
            if id(node) not in texts:
                is_plain = node.isascii()
                texts[id(node)] = node if is_plain else node.encode("utf-8", "replace").decode()
            return texts[id(node)]
        if not isinstance(node, dict | list):
            is_small = isinstance(node, int) and node.bit_length() <= NUMBER_BITS
            if node is None or is_small or (isinstance(node, float) and math.isfinite(node)):
                return node
            problem = f"it contains a {type(node).__name__} that JSON cannot express"
            raise InvalidFile(where, problem, remedy=_REMEDY)
        container = cast("dict[object, object] | list[object]", node)
        left -= len(container)
        if left < 0:
            raise make_size_error(where, f"it contains more than {DOCUMENT_VALUES:,} values")
        if depth >= DOCUMENT_NESTING:
            raise make_size_error(where, _TOO_DEEP)
        if isinstance(container, list):
            return [copy(value, depth + 1) for value in container]
        return {str(copy(k, depth + 1)): copy(v, depth + 1) for k, v in container.items()}

    root = copy(value, 0)
    version = root.get("openapi") if is_object(root) else None
    if is_object(root) and isinstance(version, str) and version.startswith("3."):
        return root
    problem = "it is not an OpenAPI 3 document"
    remedy = "Set its `openapi` member to 3.0 or later."
    if is_object(root) and "swagger" in root:
        problem = f"it is Swagger {clean_text(str(root['swagger']), 20)}, not OpenAPI 3"
        remedy = "Convert it to OpenAPI 3 first, for example with swagger2openapi."
    raise InvalidFile(where, problem, remedy=remedy)


class Document:
    """A checked document that follows its references and limits the work done on it."""

    def __init__(self, value: object, *, where: str) -> None:
        self.root = check_document(value, where)
        self.is_oldest = str(self.root["openapi"]).startswith("3.0")
        self.where = where
        self._work = WORK

    def count_work(self, work: int) -> None:
        """Count visited values; raises `InvalidFile` once there are too many."""
        self._work -= work
        if self._work < 0:
            raise make_size_error(self.where, "it takes more work to read than is allowed")

    def find_target(self, reference: str) -> object:
        """Return the target of a reference within the document, or None."""
        if not reference.startswith("#/") or len(reference) > REFERENCE_CHARS:
            return None
        node: object = self.root
        for step in unquote(reference[2:]).split("/")[:DOCUMENT_NESTING]:
            key = step.replace("~1", "/").replace("~0", "~")
            if is_object(node):
                node = node.get(key)
            elif is_list(node) and key.isdecimal() and len(key) < 9 and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
        return node

    def follow(self, node: object) -> Json:
        """Return the object that a node is or refers to, or an empty one."""
        for _ in range(HOPS):
            self.count_work(1)
            if not is_object(node):
                break
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return node
            node = self.find_target(reference)
        return {}
