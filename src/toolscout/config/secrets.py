"""What of a server may be shown to a person, and where secrets stand in plain text.

A name tells: what is called a token, key or password is one. Commands and addresses are shown
without the parts that may be secret. This is for lists and notes; nothing is decided by it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from toolscout.config.references import is_literal
from toolscout.names import one_line

MASK = "…"
COMMAND_SHOWN = 120

_SECRET_NAME = re.compile(
    r"token|secret|passw|pwd|key|credential|auth|cookie|bearer|dsn|session|private|signature"
    r"|connection|database_?ur[il]|\bpat\b|_pat$|jwt",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)([=:])(.*)", re.DOTALL)
_HEADER_FLAGS = ("-H", "--header", "--headers")
# Letters and digits mixed, without anything that a path, package or address would have.
_OPAQUE = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[\w-]{24,}")
_USUAL_PATHS = ("", "/", "/mcp", "/mcp/", "/sse")


def is_secret_name(name: str) -> bool:
    """Tell whether what has this name is likely to be a secret."""
    return _SECRET_NAME.search(name) is not None


def shown_command(command: str, args: Iterable[str]) -> str:
    """Return a command on one line, with a mask for each argument that may be secret."""
    return one_line(" ".join((command, *masked_args(args))), COMMAND_SHOWN)


def shown_url(url: str) -> str:
    """Return where a URL leads; user, query and unusual paths are left out."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or MASK, f":{parts.port}" if parts.port else ""
    except ValueError:
        return MASK
    if not parts.scheme:
        return MASK
    path = parts.path if parts.path in _USUAL_PATHS and not parts.query else f"/{MASK}"
    return one_line(f"{parts.scheme}://{host}{port}{path}", COMMAND_SHOWN)


def masked_args(args: Iterable[str]) -> Iterator[str]:
    """Yield arguments with a mask in place of each that may be secret."""
    flag = ""
    for arg in args:
        yield _masked(arg, flag)
        flag = arg if arg.startswith("-") and "=" not in arg else ""


def secret_args(args: tuple[str, ...]) -> bool:
    """Tell whether arguments seem to hold a secret in plain text."""
    pairs = zip(args, masked_args(args), strict=True)
    return any(MASK in shown and arg != shown and is_literal(arg) for arg, shown in pairs)


def secret_url(url: str) -> bool:
    """Tell whether a URL seems to hold a secret in plain text."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    given = [value for name, value in parse_qsl(parts.query) if is_secret_name(name)]
    return any(is_literal(value) for value in (*given, parts.password or "") if value)


def secret_keys(values: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys whose values seem to be secrets in plain text."""
    for name, value in values.items():
        if value.strip() and is_secret_name(name) and is_literal(value):
            yield name


def _masked(arg: str, flag: str) -> str:
    if (is_secret_name(flag) and not arg.startswith("-")) or _OPAQUE.fullmatch(arg):
        return MASK
    assigned = _ASSIGNED.fullmatch(arg)
    if assigned is None:
        return arg
    name, sign, value = assigned.groups()
    if is_secret_name(name) or flag in _HEADER_FLAGS:
        return f"{name}{sign}{MASK}"
    if "://" in value:
        return f"{name}{sign}{shown_url(value)}"
    return shown_url(arg) if sign == ":" and value.startswith("//") else arg
