"""References to values that are kept outside the configuration.

`${VAR}` and `${env:VAR}` refer to a variable, `${VAR:-text}` gives a default for one that is unset
or empty, `${file:PATH}` refers to the content of a file without its last line break, and `$${` is
a plain `${`. References in the values found are not expanded. Errors never contain a value.
"""

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from glob import escape as escape_pattern
from pathlib import Path
from typing import TypeVar

from toolscout.errors import InvalidConfig
from toolscout.options import Option, Options

MAX_FILE_BYTES = 1 << 20

Resolved = TypeVar("Resolved", bound=Options)

# A body ends at the next `$`, so that a text of many openings without an end is read only once.
_TOKEN = re.compile(r"\$\$\{|\$\{(?P<body>[^}$]*)\}|(?P<open>\$\{)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expand(text: str, env: Mapping[str, str], *, key: str = "reference") -> str:
    """Return a text with plain values in place of its references, or raise `InvalidConfig`."""

    def look_up(match: re.Match[str]) -> str:
        if match["open"]:
            problem = "contains a '${' without a '}'"
            raise InvalidConfig(key, problem, remedy="Write '$${' for a plain '${'.")
        body = match["body"]
        if body is None:
            return "${"
        if body.startswith("file:"):
            return _read_file(body.removeprefix("file:"), key)
        return _read_variable(body.removeprefix("env:"), env, key)

    return _TOKEN.sub(look_up, text)


def expand_path(text: str, env: Mapping[str, str], *, key: str = "reference") -> str:
    """Return a path with its references, and `~` at its beginning, expanded."""
    path = expand(text, env, key=key)
    home = env.get("HOME") or env.get("USERPROFILE")
    if home and (path == "~" or path.startswith(("~/", "~\\"))):
        return home + path[1:]
    return path


def escape(text: str) -> str:
    """Return a text that `expand` turns into this one."""
    return text.replace("${", "$${")


def is_literal(text: str) -> bool:
    """Tell whether a text contains no references."""
    return not any(match.group() != "$${" for match in _TOKEN.finditer(text))


def is_possible_value(value: str, text: str) -> bool:
    """Tell whether a text may become a value once its references are looked up."""
    pieces = [""]
    end = 0
    for match in _TOKEN.finditer(text):
        if match.group() != "$${":
            pieces[-1] += text[end : match.start()]
            pieces.append("")
            end = match.end()
    pieces[-1] += text[end:]
    return fnmatchcase(value, "*".join(map(escape_pattern, pieces)))


def anchor(text: str, folder: Path) -> str:
    """Return a text whose references to relative files start at a folder."""

    def move(match: re.Match[str]) -> str:
        kind, colon, name = (match["body"] or "").partition(":")
        if kind != "file" or not colon or not _is_relative(name):
            return match.group()
        path = str(folder / name)
        return match.group() if "}" in path or "$" in path else f"${{file:{path}}}"

    return _TOKEN.sub(move, text)


def anchor_path(text: str, folder: Path) -> str:
    """Return a path that starts at a folder if it is relative; URLs stay as they are."""
    text = anchor(text, folder)
    if not text or text.startswith("${") or "://" in text or not _is_relative(text):
        return text
    return escape(str(folder)) + "/" + text


def resolve_options(options: Resolved, env: Mapping[str, str] | None, *, key: str) -> Resolved:
    """Return options with plain values in place of references; errors put `key` in front.

    Variables come from this process unless others are given.
    """

    def resolve(declared: Option, name: str, text: str) -> str:
        lookup = expand_path if declared.path else expand
        return lookup(text, os.environ if env is None else env, key=f"{key}.{name}")

    return options.map_references(resolve)


def list_variables(options: Options) -> frozenset[str]:
    """Return the variables that options refer to, apart from those in paths."""
    found: set[str] = set()

    def note(declared: Option, _: str, text: str) -> str:
        bodies = [match["body"] for match in _TOKEN.finditer(text) if match["body"]]
        if not declared.path:
            found.update(body.removeprefix("env:").partition(":-")[0] for body in bodies)
        return text

    options.map_references(note)
    return frozenset(found)


def list_values(options: Options, env: Mapping[str, str]) -> dict[str, str]:
    """Return the values that options refer to, apart from those in paths.

    Each has the name of its variable; one from a file has the reference itself.
    """
    found: dict[str, str] = {}

    def note(declared: Option, name: str, text: str) -> str:
        for match in _TOKEN.finditer("" if declared.path else text):
            body = match["body"] or ""
            is_file = body.startswith("file:")
            key = match.group() if is_file else body.removeprefix("env:").partition(":-")[0]
            found[key] = expand(match.group(), env, key=name)
        return text

    options.map_references(note)
    return found


def anchor_options(options: Resolved, folder: Path) -> Resolved:
    """Return options that mean the same when their file is moved out of this folder."""
    return options.map_references(
        lambda declared, _, text: (anchor_path if declared.path else anchor)(text, folder)
    )


def _is_relative(path: str) -> bool:
    return not path.startswith("~") and not Path(path).is_absolute()


def _read_variable(body: str, env: Mapping[str, str], key: str) -> str:
    name, has_default, default = body.partition(":-")
    if not _NAME.fullmatch(name):
        # It is not shown, because it may be the secret itself.
        problem = "contains a reference without a valid variable name"
        remedy = "Write ${VAR}, ${VAR:-default} or ${file:PATH}."
        raise InvalidConfig(key, problem, remedy=remedy)
    found = env.get(name)
    if has_default:
        return found or default
    if found is None:
        problem = f"refers to the variable {name!r}, which is not set"
        remedy = f"Set {name}, or write ${{{name}:-default}}."
        raise InvalidConfig(key, problem, remedy=remedy)
    return found


def _read_file(name: str, key: str) -> str:
    path = Path(name)
    try:
        path = path.expanduser()
        if not path.is_file():
            raise FileNotFoundError(2, "no such file")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ValueError("too large")
        return data.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except (OSError, RuntimeError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = "not UTF-8"  # the error's own words quote the content
        problem = f"refers to the file {str(path)!r}, which cannot be read ({reason})"
        remedy = f"Name a UTF-8 text file of at most {MAX_FILE_BYTES:,} bytes."
        raise InvalidConfig(key, problem, remedy=remedy) from None
