"""An OpenAPI 3.x document as checked values.

`read_document` takes a file or a text. `Document` follows references inside a document and counts
the work that is done on it. What it says of values is the business of `schemas`, what it says of
calls that of `operations`.
"""

import math
import os
from pathlib import Path
from typing import cast
from urllib.parse import unquote

from toolscout.errors import InvalidFile
from toolscout.names import clean_text
from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.openapi.texts import (
    DOCUMENT_BYTES,
    DOCUMENT_NESTING,
    parse,
    read_text,
    too_large,
)

DOCUMENT_VALUES = 3_000_000
WORK = 20_000_000
"""Values looked at for all tools of a document together; each is looked at a few times."""
NUMBER_BITS = 4_096
REFERENCE_CHARS = 2_000
HOPS = 20


def read_document(source: str | os.PathLike[str]) -> Json:
    """Return the OpenAPI document of a file, or of a text that is one; raises `InvalidFile`.

    A string with a line break or a leading brace is a text, any other a path. YAML is read as
    OpenAPI wants it: scalars of JSON, string keys, no merging.
    """
    is_text = isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{"))
    where = "OpenAPI text" if is_text else str(source)
    text = str(source) if is_text else read_text(Path(source), where)
    if len(text) > DOCUMENT_BYTES:
        raise too_large(where, f"is longer than {DOCUMENT_BYTES:,} bytes")
    return checked_document(parse(text, where), where)


def checked_document(value: object, where: str) -> Json:
    """Return an OpenAPI 3.x document as a JSON tree of its own, or raise `InvalidFile`."""
    root = _Copy(where).copy(value, 0)
    version = root.get("openapi") if is_object(root) else None
    if is_object(root) and isinstance(version, str) and version.startswith("3."):
        return root
    if is_object(root) and "swagger" in root:
        raise InvalidFile(
            where,
            f"is Swagger {clean_text(str(root['swagger']), 20)}, not OpenAPI 3",
            remedy="Convert it to OpenAPI 3 first, for example with swagger2openapi.",
        )
    raise InvalidFile(
        where, "is no OpenAPI 3 document", remedy="Its member `openapi` has to say 3.0 or later."
    )


class _Copy:
    """Copies JSON into a tree that shares nothing; what is no bounded JSON is refused."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._left = DOCUMENT_VALUES

    def copy(self, node: object, depth: int) -> object:
        if isinstance(node, str):
            return node if node.isascii() else node.encode("utf-8", "replace").decode()
        if isinstance(node, dict | list):
            return self._container(cast("dict[object, object] | list[object]", node), depth + 1)
        if not _is_scalar(node):
            raise InvalidFile(
                self._where,
                f"holds a {type(node).__name__} that JSON cannot express",
                remedy="Give an OpenAPI 3 document in JSON or YAML.",
            )
        return node

    def _container(self, node: dict[object, object] | list[object], depth: int) -> object:
        self._left -= len(node)
        if self._left < 0:
            raise too_large(self._where, f"holds more than {DOCUMENT_VALUES:,} values")
        if depth > DOCUMENT_NESTING:
            raise too_large(self._where, f"is nested deeper than {DOCUMENT_NESTING} levels")
        if isinstance(node, list):
            return [self.copy(value, depth) for value in node]
        return {str(self.copy(key, depth)): self.copy(value, depth) for key, value in node.items()}


def _is_scalar(node: object) -> bool:
    if isinstance(node, float):
        return math.isfinite(node)
    return node is None or (isinstance(node, int) and node.bit_length() <= NUMBER_BITS)


class Document:
    """A checked document, its references, and the work that may still be done on it."""

    def __init__(self, value: object, *, where: str) -> None:
        self.root = checked_document(value, where)
        self.is_oldest = str(self.root["openapi"]).startswith("3.0")
        self._where = where
        self._work = WORK

    def spend(self, work: int) -> None:
        """Count values that are looked at; raises `InvalidFile` when it becomes too many."""
        self._work -= work
        if self._work < 0:
            raise too_large(self._where, "asks for more work than a document may")

    def refused(self, problem: str) -> InvalidFile:
        """Return the error that says why this document is too large."""
        return too_large(self._where, problem)

    def at(self, reference: str) -> object:
        """Return what a reference inside the document leads to, or None."""
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
        """Return the object that a node is or refers to; an empty one if there is none."""
        for _ in range(HOPS):
            self.spend(1)
            if not is_object(node):
                break
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return node
            node = self.at(reference)
        return {}
