"""Masks secrets in texts that people read.

`SecretMask` replaces known secret values in log lines and messages. The other functions guess
from names and shapes which parts of a command or URL may be secret.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

from toolscout.config.redaction import SecretKind, redact_text
from toolscout.config.references import is_literal
from toolscout.names import to_one_line

MASK = "…"
MIN_SECRET_CHARS = 6
"""Shorter values are masked only where they stand alone: they would match in half of all lines."""
MIN_WORD_CHARS = 3
"""Values that are shorter still are not masked."""
TEXT_CHARS = 120
"""The longest command or URL that is shown."""

_SECRET_NAME = re.compile(
    r"token|secret|passw|pwd|key|credential|auth|cookie|bearer|dsn|session|private|signature"
    r"|connection|database_?ur[il]|\bpat\b|_pat$|jwt",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)([=:])(.*)", re.DOTALL)
_BEARER = re.compile(r"""\b(bearer)\s+(?!\$\{)[^\s"',}]+""", re.IGNORECASE)
_BEARER_VARIABLE = re.compile(r"\bbearer\s+\$\{(?:env:)?([A-Za-z_]\w*)", re.IGNORECASE)
_HEADER_FLAGS = ("-H", "--header", "--headers")
# Mixed letters and digits without the punctuation of a path, package or address, or the beginning
# that a well-known service gives to its keys.
_OPAQUE = re.compile(
    r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[\w-]{24,}"
    r"|(?:sk|pk|rk|gh[opsu]|github_pat|glpat|xox[abp]|hf|npm|pypi|shpat|lin_api)[-_]"
    r"(?=[\w-]*\d)[\w-]{6,}"
)
_USUAL_PATHS = ("", "/", "/mcp", "/mcp/", "/sse")


class SecretMask:
    """Replaces known secret values in texts, and what looks like a secret of some kinds.

    Share one mask with everything that writes logs, and call `update` when the configuration
    is reloaded. URLs are not removed but shortened to what `mask_url` shows.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        urls: Iterable[str] = (),
        *,
        kinds: Collection[SecretKind] = (),
    ) -> None:
        self.update(secrets, urls, kinds=kinds)

    def update(
        self,
        secrets: Iterable[str],
        urls: Iterable[str] = (),
        *,
        kinds: Collection[SecretKind] = (),
    ) -> None:
        """Replace the set of secrets; texts masked from now on use the new one."""
        masks = {url: mask_url(url) for url in urls if url}
        masks |= {secret: MASK for secret in secrets if len(secret) >= MIN_WORD_CHARS}
        longest_first = sorted(masks, key=len, reverse=True)
        self._kinds = frozenset(kinds)
        self._masks = masks
        self._pattern = re.compile("|".join(map(_write_pattern, longest_first)))

    def apply(self, text: str) -> str:
        """Return a text without the secrets."""
        masks = self._masks
        if masks:
            text = self._pattern.sub(lambda match: masks[match.group()], text)
        return redact_text(text, self._kinds) if self._kinds else text


def is_secret_name(name: str) -> bool:
    """Tell whether a value with this name is likely to be a secret."""
    return _SECRET_NAME.search(name) is not None


def mask_url(url: str) -> str:
    """Return the scheme and host of a URL, without user, query or an unusual path."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or MASK
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return MASK
    if not parts.scheme:
        return MASK
    path = parts.path if parts.path in _USUAL_PATHS and not parts.query else f"/{MASK}"
    return to_one_line(f"{parts.scheme}://{host}{port}{path}", TEXT_CHARS)


def list_url_secrets(url: str) -> Iterator[str]:
    """Yield the parts of a URL that may be secret, as they are written and decoded."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    found = [password if colon else user]
    found += filter(_OPAQUE.fullmatch, parts.path.split("/"))
    for pair in parts.query.split("&"):
        name, _, value = pair.partition("=")
        if len(value) >= MIN_SECRET_CHARS or is_secret_name(name):
            found.append(value)
    for text in filter(None, found):
        yield text
        yield from {unquote(text), unquote_plus(text)} - {text}


def list_arg_secrets(args: tuple[str, ...]) -> Iterator[str]:
    """Yield the parts of arguments that `mask_args` hides."""
    for arg, masked in zip(args, mask_args(args), strict=True):
        head, mask, tail = masked.partition(MASK)
        if "://" in arg:
            # Before the scheme there may be the name of an option.
            scheme, _, rest = arg.partition("://")
            yield from list_url_secrets(f"{scheme.rpartition('=')[2]}://{rest}")
        if mask and arg != masked and arg.startswith(head) and arg.endswith(tail):
            yield arg[len(head) : len(arg) - len(tail)]


def mask_args(args: Iterable[str]) -> Iterator[str]:
    """Yield arguments, each masked if it may be secret."""
    flag = ""
    for arg in args:
        yield _mask_arg(arg, flag)
        flag = arg if arg.startswith("-") and "=" not in arg else ""


def has_secret_args(args: tuple[str, ...]) -> bool:
    """Tell whether arguments seem to contain a secret in plain text."""
    return any(
        MASK in masked and arg != masked and (is_literal(arg) or _BEARER.search(arg) is not None)
        for arg, masked in zip(args, mask_args(args), strict=True)
    )


def has_secret_url(url: str) -> bool:
    """Tell whether a URL seems to contain a secret in plain text."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    values = [value for name, value in parse_qsl(parts.query) if is_secret_name(name)]
    return any(is_literal(value) for value in (*values, parts.password or "") if value)


def find_secret_keys(values: Mapping[str, str]) -> list[str]:
    """Return the keys whose values seem to be, or to contain, secrets in plain text."""
    return [
        name
        for name, value in values.items()
        if (value.strip() and is_literal(value) and is_secret_name(name)) or _BEARER.search(value)
    ]


def find_bearer_variables(text: str) -> list[str]:
    """Return the variables from which a text, such as a header, takes a bearer token."""
    return _BEARER_VARIABLE.findall(text)


def _write_pattern(text: str) -> str:
    pattern = re.escape(text)
    return pattern if len(text) >= MIN_SECRET_CHARS else rf"(?<!\w){pattern}(?!\w)"


def _mask_arg(arg: str, flag: str) -> str:
    if (is_secret_name(flag) and not arg.startswith("-")) or _OPAQUE.fullmatch(arg):
        return MASK
    arg = _BEARER.sub(rf"\1 {MASK}", arg)
    assignment = _ASSIGNMENT.fullmatch(arg)
    if assignment is None:
        return arg
    name, sign, value = assignment.groups()
    if is_secret_name(name) or flag in _HEADER_FLAGS or name in _HEADER_FLAGS:
        return f"{name}{sign}{MASK}"
    if "://" in value:
        return f"{name}{sign}{mask_url(value)}"
    return mask_url(arg) if sign == ":" and value.startswith("//") else arg
