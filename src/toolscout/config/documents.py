"""Configuration files as tables: TOML, YAML, and JSON with comments and trailing commas.

`formats` and `file` interpret the tables.
"""

import json
import os
import re
import secrets
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from toolscout.errors import InvalidFile, MissingExtra
from toolscout.schemas import Json, is_list, is_object

MAX_FILE_BYTES = 64 << 20
"""Claude Code keeps its history in the same file as its servers."""
OWNER_ONLY = 0o600
YAML_NESTING = 100
YAML_VALUES = 500_000
"""With all that aliases repeat: a few lines can stand for billions."""
YAML_ENDINGS = (".yaml", ".yml")

# A string or comment without an end runs to the end of the file, so that nothing is read twice.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_NOT_BREAK = re.compile(r"[^\n]")
_PLACE = re.compile(r"line (\d+),? column (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDocument:
    """One parsed file."""

    path: Path
    is_toml: bool
    tables: Json
    is_yaml: bool = False


def read_document(path: Path) -> ConfigDocument:
    """Return the tables of a file, or raise `InvalidFile`, which quotes nothing of it."""
    try:
        if not path.is_file():
            raise _refuse(path, "is not a file" if path.exists() else "does not exist")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise _refuse(path, f"is larger than {MAX_FILE_BYTES:,} bytes")
        # TOML knows no other line breaks than these two.
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise _refuse(path, "is not UTF-8") from None
    except OSError as error:
        raise _refuse(path, f"cannot be read ({error.strerror or error})") from None
    except ValueError:  # a path with a NUL
        raise _refuse(path, "is not a valid path") from None
    return document_from_text(path, text)


def document_from_text(path: Path, text: str) -> ConfigDocument:
    """Return the tables of a file's text.

    The beginning of the text tells TOML and JSON apart; only the name of a file says YAML.
    """
    is_yaml = path.suffix in YAML_ENDINGS
    is_toml = not is_yaml and not text.lstrip().startswith(("{", "[{", "//", "/*"))
    parse = parse_yaml if is_yaml else tomllib.loads if is_toml else _parse_json
    try:
        tables: object = parse(text)
    except RecursionError:
        raise _refuse(path, "is nested too deep") from None
    except OverflowError:
        raise _refuse(path, f"holds more than {YAML_VALUES:,} values") from None
    except ValueError as error:
        match = _PLACE.search(str(error))
        last = text.rsplit("\n", 1)[-1]  # an error without a place is one at the end
        place = (int(match[1]), int(match[2])) if match else (text.count("\n") + 1, len(last) + 1)
        language = "YAML" if is_yaml else "TOML" if is_toml else "JSON"
        raise _refuse(path, f"is not {language}", *place) from None
    if not is_object(tables):
        raise _refuse(path, "is not a table of settings")
    if is_yaml and not has_text_keys(tables):
        raise _refuse(path, "has a key that is not a text")
    return ConfigDocument(path=path, is_toml=is_toml, tables=tables, is_yaml=is_yaml)


def is_file(path: Path) -> bool:
    """Tell whether there is a file that this user can see."""
    try:
        return path.is_file()
    except OSError:  # a folder on the way is not accessible
        return False


def keep_backup(path: Path) -> None:
    """Copy a file, if there is one, to `FILE.bak`, which only its owner can read."""
    if is_file(path):
        write_private(path.with_name(f"{path.name}.bak"), path.read_bytes())


def write_private(path: Path, content: str | bytes, mode: int = OWNER_ONLY) -> None:
    """Write or replace a file, completely or not at all; only its owner can read it by default."""
    data = content.encode() if isinstance(content, str) else content
    # Write through a link, as an editor would, so that it stays a link.
    path = path.resolve() if path.is_symlink() else path
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if mode != OWNER_ONLY:
            temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        problem = f"cannot be written ({error.strerror or error})"
        remedy = "Check that its folder is writable."
        raise InvalidFile(str(path), problem, remedy=remedy) from error


def _parse_json(text: str) -> object:
    def drop(match: re.Match[str]) -> str:
        found = match.group()
        # What follows stays in its place, so that an error names the right line and column.
        return found if found.startswith('"') else _NOT_BREAK.sub(" ", found)

    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return json.loads(_COMMA.sub(drop, _COMMENT.sub(drop, text)))


def parse_yaml(text: str) -> object:
    """Return the value of YAML of bounded size; raises `ValueError` with the place of a mistake."""
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        raise MissingExtra("yaml", extra="gateway") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_yaml(yaml.parse(text, Loader=loader))
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        # Its own words quote the file.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        place = f"line {mark.line + 1} column {mark.column + 1}" if mark else "not YAML"
        raise ValueError(place) from None


def _check_yaml(events: Iterable[Any]) -> None:
    """Raise `RecursionError` or `OverflowError` for YAML that is nested too deep or too large.

    Values count as often as aliases repeat them, because merging mappings (`<<`) copies them.
    """
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    count = 0
    for event in events:
        kind = type(event).__name__
        count += 1
        if kind == "AliasEvent":
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise RecursionError
            count += sizes.get(event.anchor, 0)
        elif kind.endswith("StartEvent"):
            open_nodes.append((getattr(event, "anchor", None), count))
        elif kind.endswith("EndEvent"):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = count - before
        if len(open_nodes) > YAML_NESTING:
            raise RecursionError
        if count > YAML_VALUES:
            raise OverflowError


def has_text_keys(tables: Json) -> bool:
    """Tell whether all keys are texts, which YAML does not demand."""
    nodes: list[object] = [tables]
    seen: set[int] = set()  # aliases can name one node many times, and itself
    for node in nodes:  # the loop appends to it
        if id(node) in seen:
            continue
        if is_list(node):
            seen.add(id(node))
            nodes.extend(node)
        elif is_object(node):
            seen.add(id(node))
            if not all(isinstance(key, str) for key in cast("dict[object, object]", node)):
                return False
            nodes.extend(node.values())
    return True


def _refuse(
    path: Path, problem: str, line: int | None = None, column: int | None = None
) -> InvalidFile:
    remedy = "Name a configuration file of toolscout or of an MCP client."
    if line is not None:
        remedy = "Correct what stands there, or just before."
    return InvalidFile(str(path), problem, line=line, column=column, remedy=remedy)
