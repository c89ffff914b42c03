"""Configuration files as tables: JSON, with comments and trailing commas, and TOML.

`read_document` tells the two apart by what they begin with. `toml_text` writes tables back, and
`write_private` puts a text into a file that its owner alone may read, as a whole or not at all.
What the tables mean is the business of `formats` and `config`.
"""

import json
import os
import re
import secrets
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from toolscout.errors import InvalidFile
from toolscout.schemas import Json, is_object

MAX_FILE_BYTES = 64 << 20
"""Claude Code keeps its history in the file that names its servers."""
OWNER_ONLY = 0o600

# What has no end ends with the file, so that nothing is looked at twice.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_LINE = re.compile(r"at line (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One parsed file."""

    path: Path
    is_toml: bool
    tables: Json


def read_document(path: Path) -> Document:
    """Return the tables of a file; raises `InvalidFile`, whose words quote nothing of it."""
    return document_from_text(path, _read_text(path))


def document_from_text(path: Path, text: str) -> Document:
    """Return the tables of what a file holds, or is about to."""
    is_toml = not text.lstrip().startswith(("{", "[{", "//", "/*"))
    try:
        tables: object = tomllib.loads(text) if is_toml else _json(text)
    except RecursionError:
        raise _invalid(path, "is nested too deep") from None
    except ValueError as error:
        raise _unparsed(path, error, "TOML" if is_toml else "JSON") from None
    if not is_object(tables):
        raise _invalid(path, "holds no object")
    return Document(path=path, is_toml=is_toml, tables=tables)


def format_toml(tables: Json) -> str:
    """Return tables as TOML."""
    return tomlkit.dumps(tables)


def is_file(path: Path) -> bool:
    """Tell whether there is a file that this user may know of."""
    try:
        return path.is_file()
    except OSError:  # a folder on the way that may not be entered
        return False


def keep_backup(path: Path) -> None:
    """Copy a file, where there is one, to `FILE.bak`, which its owner alone may read."""
    if is_file(path):
        write_private(path.with_name(f"{path.name}.bak"), path.read_bytes())


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file of mode 600 in place of what was there, all or nothing."""
    write_with_mode(path, content, OWNER_ONLY)


def write_with_mode(path: Path, content: str | bytes, mode: int) -> None:
    """Write a file of this mode in place of what was there, all or nothing."""
    data = content.encode() if isinstance(content, str) else content
    # Through a link, as an editor would: who keeps settings elsewhere keeps the link.
    path = path.resolve() if path.is_symlink() else path
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if mode != OWNER_ONLY:
            beside.chmod(mode)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise InvalidFile(
            str(path),
            f"cannot be written ({error.strerror or error})",
            remedy="Check that its folder may be written to.",
        ) from error


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise _invalid(path, "is not a file" if path.exists() else "does not exist")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise _invalid(path, f"is larger than {MAX_FILE_BYTES:,} bytes")
        # TOML knows no other line breaks.
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise _invalid(path, "is not UTF-8") from None
    except OSError as error:
        raise _invalid(path, f"cannot be read ({error.strerror or error})") from None
    except ValueError:  # a path with a NUL
        raise _invalid(path, "is no path") from None


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return json.loads(_COMMA.sub(_without_comma, _COMMENT.sub(_without_comment, text)))


def _without_comment(match: re.Match[str]) -> str:
    found = match.group()
    # Line breaks stay, so that an error still tells the right line.
    return found if found.startswith('"') else " " + "\n" * found.count("\n")


def _without_comma(match: re.Match[str]) -> str:
    found = match.group()
    return found if found.startswith('"') else ""


def _unparsed(path: Path, error: ValueError, kind: str) -> InvalidFile:
    if isinstance(error, json.JSONDecodeError):
        line: int | None = error.lineno
    else:
        match = _LINE.search(str(error))
        line = int(match[1]) if match else None
    return _invalid(path, f"is not {kind}", line)


def _invalid(path: Path, problem: str, line: int | None = None) -> InvalidFile:
    remedy = "Name a configuration file of toolscout or of an MCP client."
    return InvalidFile(str(path), problem, line=line, remedy=remedy)
