"""References to values that are kept outside the configuration.

`${VAR}` and `${env:VAR}` refer to a variable, `${VAR:-text}` gives a default for one that is unset
or empty, `${file:PATH}` refers to the content of a file without its last line break, and `$${` is
a plain `${`. `${keyring:NAME}` refers to a password in the system's keychain, and `${command:…}` to
what a command prints; these are read once and kept until `forget_secrets`. References in the values
found are not expanded. Errors never contain a value.
"""

import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from glob import escape as escape_pattern
from pathlib import Path
from typing import TypeVar

from toolscout.config.redaction import SecretKind, redact_text
from toolscout.errors import InvalidConfig, UsageError
from toolscout.names import to_error_text
from toolscout.options import Option, Options

MAX_FILE_BYTES = 1 << 20
KEYRING_SERVICE = "toolscout"
"""The service under which the keychain has our passwords."""
COMMAND_SECONDS = 30.0
RETRY_SECONDS = 10.0
"""How long a secret that could not be read is not tried again."""
REASON_CHARS = 200
MAX_NAMES = 100
"""Names that are tried for a password that is moved to the keychain."""

Resolved = TypeVar("Resolved", bound=Options)

# A body ends at the next `$`, so that a text of many openings without an end is read only once.
_TOKEN = re.compile(r"\$\$\{|\$\{(?P<body>[^}$]*)\}|(?P<open>\$\{)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"(keyring|command):(?!-)")


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
        if _SECRET.match(body):
            return _find_secret(body).read(env, key)
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
        if kind == "command" and name.startswith(("./", "../")):
            program, space, rest = name.partition(" ")
            moved = shlex.quote(str(folder / program)) + space + rest
        elif kind == "file" and colon and _is_relative(name):
            moved = str(folder / name)
        else:
            return match.group()
        return match.group() if "}" in moved or "$" in moved else f"${{{kind}:{moved}}}"

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
            names = (body.removeprefix("env:").partition(":-")[0] for body in bodies)
            found.update(filter(_NAME.fullmatch, names))
        return text

    options.map_references(note)
    return frozenset(found)


def list_values(options: Options, env: Mapping[str, str]) -> dict[str, str]:
    """Return the values that options refer to, apart from those in paths.

    Each has the name of its variable; one from elsewhere has the reference itself.
    """
    found: dict[str, str] = {}

    def note(declared: Option, name: str, text: str) -> str:
        for match in _TOKEN.finditer("" if declared.path else text):
            body = match["body"] or ""
            is_elsewhere = body.startswith("file:") or _SECRET.match(body)
            key = match.group() if is_elsewhere else body.removeprefix("env:").partition(":-")[0]
            found[key] = expand(match.group(), env, key=name)
        return text

    options.map_references(note)
    return found


def anchor_options(options: Resolved, folder: Path) -> Resolved:
    """Return options that mean the same when their file is moved out of this folder."""
    return options.map_references(
        lambda declared, _, text: (anchor_path if declared.path else anchor)(text, folder)
    )


def escape_secrets(options: Resolved) -> Resolved:
    """Return the options of another program's file, in which no command is to be run.

    What looks like a reference to a command or to the keychain means nothing to that program.
    """

    def change(declared: Option, name: str, text: str) -> str:
        return _TOKEN.sub(
            lambda match: ("$" if _SECRET.match(match["body"] or "") else "") + match.group(), text
        )

    return options.map_references(change)


def list_secret_references(options: Options) -> list[str]:
    """Return the references of options to the keychain and to commands, as `keyring:NAME`."""
    found: list[str] = []

    def note(declared: Option, name: str, text: str) -> str:
        bodies = (match["body"] or "" for match in _TOKEN.finditer(text))
        found.extend(filter(_SECRET.match, bodies))
        return text

    options.map_references(note)
    return list(dict.fromkeys(found))


def has_unread_secrets(options: Options) -> bool:
    """Tell whether to resolve the options would ask the keychain or run a command."""
    return any(_find_secret(body).value is None for body in list_secret_references(options))


def forget_secrets() -> None:
    """Read what the keychain and commands give again when it is needed next."""
    _find_secret.cache_clear()


def has_keyring() -> bool:
    """Tell whether this system has a keychain that toolscout can use."""
    try:
        import keyring

        return keyring.get_keyring().priority > 0
    except Exception:  # no package, or a backend that cannot be loaded
        return False


def choose_keyring_name(label: str, value: str, taken: Mapping[str, str]) -> str:
    """Return a name under which the keychain has this password, or none yet."""
    try:
        for name in (label, *(f"{label}-{number}" for number in range(2, MAX_NAMES))):
            if (taken[name] if name in taken else _ask_keyring(name)) in (None, value):
                return name
    except InvalidConfig as error:
        raise UsageError(f"Nothing can be moved, {error.problem}. {error.remedy}") from None
    raise UsageError(f"The keychain has other passwords as {label!r}. Remove one of them.")


def write_keyring(name: str, value: str) -> None:
    """Store a password in the keychain under a name."""
    import keyring

    try:
        keyring.set_password(KEYRING_SERVICE, name, value)
    except Exception as error:  # a backend may fail in its own way
        reason = _quote_reason(str(error), value) or type(error).__name__
        problem = f"The keychain did not take {name!r} ({reason})."
        raise UsageError(f"{problem} Unlock it, or leave out --keyring.") from None


class _Secret:
    """A value from the keychain or a command, which is read when it is first needed."""

    def __init__(self, body: str) -> None:
        self.value: str | None = None
        self._body = body
        self._failure = InvalidConfig("", "", remedy="")
        self._retry_at = 0.0
        self._lock = threading.Lock()

    def read(self, env: Mapping[str, str], key: str) -> str:
        """Return the value, or raise `InvalidConfig`; others wait meanwhile."""
        with self._lock:
            if self.value is not None:
                return self.value
            if time.monotonic() >= self._retry_at:
                kind, _, name = self._body.partition(":")
                try:
                    self.value = _read_keyring(name) if kind == "keyring" else _run(name, env)
                    return self.value
                except InvalidConfig as error:
                    self._failure = error
                self._retry_at = time.monotonic() + RETRY_SECONDS
            problem = f"refers to ${{{self._body}}}, {self._failure.problem}"
            raise InvalidConfig(key, problem, remedy=self._failure.remedy)


@cache
def _find_secret(body: str) -> _Secret:
    return _Secret(body)


def _explain(problem: str, remedy: str) -> InvalidConfig:
    """Return why a secret cannot be read; `_Secret` says which, and where it is needed."""
    return InvalidConfig("", problem, remedy=remedy)


def _read_keyring(name: str) -> str:
    value = _ask_keyring(name)
    if value is None:
        remedy = f"Run `keyring set {KEYRING_SERVICE} {shlex.quote(name)}`."
        raise _explain("which the keychain does not have", remedy)
    return value


def _ask_keyring(name: str) -> str | None:
    """Return a password of the keychain, if it has one of this name."""
    try:
        import keyring
    except ImportError:
        remedy = "Run `pip install 'toolscout[keyring]'`."
        raise _explain("but 'keyring' is not installed", remedy) from None
    try:
        return keyring.get_password(KEYRING_SERVICE, name)
    except Exception as error:  # a backend may fail in its own way
        reason = _quote_reason(str(error), "") or type(error).__name__
        remedy = "Unlock it; `keyring diagnose` shows which one is used."
        raise _explain(f"but the keychain cannot be read ({reason})", remedy) from None


def _run(command: str, env: Mapping[str, str]) -> str:
    """Return what a command prints, without its last line break."""
    remedy = "Run it by hand; it has to print the value and nothing else."
    try:
        words = shlex.split(command, posix=os.name != "nt")
        # Without a program, the error would quote the list.
        with subprocess.Popen(
            words or [""],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                output, said = process.communicate(timeout=COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                problem = f"which took longer than {COMMAND_SECONDS:g} s"
                raise _explain(problem, remedy) from None
        value = output.decode().removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or "not UTF-8"
        if isinstance(error, ValueError) and not isinstance(error, UnicodeDecodeError):
            reason = str(error)  # of quotation marks in the command
        raise _explain(f"which cannot be run ({reason})", remedy) from None
    if process.returncode or not value or "\x00" in value:
        reason = _quote_reason(said.decode(errors="replace"), value)
        ended = f"which ended with exit code {process.returncode}"
        ended = ended if process.returncode else "which printed no value"
        raise _explain(f"{ended} ({reason})" if reason else ended, remedy)
    return value


def _quote_reason(text: str, secret: str) -> str:
    """Return what a program says about a failure, without what may be secret."""
    plain = text.replace(secret, "…") if secret else text
    return to_error_text(redact_text(plain, tuple(SecretKind)), REASON_CHARS)


def _is_relative(path: str) -> bool:
    return not path.startswith("~") and not Path(path).is_absolute()


def _read_variable(body: str, env: Mapping[str, str], key: str) -> str:
    name, has_default, default = body.partition(":-")
    if not _NAME.fullmatch(name):
        # It is not shown, because it may be the secret itself.
        problem = "contains a reference without a valid variable name"
        remedy = "Write ${VAR}, ${VAR:-default}, ${file:PATH}, ${keyring:NAME} or ${command:…}."
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
