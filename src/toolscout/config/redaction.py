"""Replaces values that look like secrets in what servers return and log.

`secrets` masks the values that toolscout itself was given. This module guesses: it knows the
formats of common tokens, and values with a name such as `password`. It is switched on for each
server with the option `redact`. Work is linear in the length of a text.
"""

import math
import re
from collections import Counter
from collections.abc import Collection
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

import re2

from toolscout.schemas import is_list, is_object

TOO_DEEP = "[redacted: nested too deep to check]"
LEAST_SECRET_CHARS = 8
LEAST_OPAQUE_CHARS = 16
LEAST_ENTROPY_BITS = 3.0
"""Per character. Words and repeated digits have less."""
NAME_CHARS = 200
"""The part of a key that is read as the name of its values, for each of them anew."""
PATTERN_BYTES = 32 << 20
DEEPEST = 200
"""Objects and lists inside each other; results of tools are far shallower."""

_BINARY_KEYS = ("data", "blob")
_SURROGATE = re.compile("[\ud800-\udfff]")


class SecretKind(StrEnum):
    """A kind of secret that can be redacted."""

    GITHUB = "github"
    GITLAB = "gitlab"
    SLACK = "slack"
    AWS = "aws"
    GOOGLE = "google"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    STRIPE = "stripe"
    NPM = "npm"
    PYPI = "pypi"
    JWT = "jwt"
    PRIVATE_KEY = "private-key"
    CONNECTION = "connection"
    """The password in a URL such as `postgres://user:password@host`."""
    BEARER = "bearer"
    """The value of an `Authorization` header."""
    NAMED = "named"
    """A value that looks random beside a name such as `password` or `api_key`."""


class _Detector(NamedTuple):
    kind: SecretKind
    label: str
    """What the mark says in place of the secret."""
    pattern: str
    """In the syntax of RE2; its last group is the secret, and one before that its name."""


_NAME = (
    r"(?:passwords?|passwd|passphrase|pwd|secrets?|tokens?|api[_ -]?keys?|apikey|access[_-]?keys?|"
    r"private[_-]?keys?|secret[_-]?keys?|account[_-]?keys?|credentials?)"
)
_HARMLESS_NAME = re.compile(
    r"page|next|cursor|contin|sync|count|max|min|limit|usage|total|num|type|name|hash|public|url"
    r"|(?:_|\b)ids?$|path|file|expir|length|budget|prompt|completion|format|hint|polic|arn",
    re.IGNORECASE,
)

CONTEXTUAL = frozenset({SecretKind.CONNECTION, SecretKind.BEARER, SecretKind.NAMED})
"""Kinds that are recognised by what stands beside them."""

DETECTORS = (
    _Detector(
        SecretKind.PRIVATE_KEY,
        "private key",
        r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:\\r|\\n|\s)+[A-Za-z-]{1,40}: [^\n\\]{0,200})*[A-Za-z0-9+/=\s\\]{40,}"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?)",
    ),
    _Detector(
        SecretKind.JWT,
        "JWT",
        r"\b(eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})",
    ),
    _Detector(
        SecretKind.GITHUB,
        "GitHub token",
        r"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})",
    ),
    _Detector(SecretKind.GITLAB, "GitLab token", r"\b(gl(?:pat|ptt|dt|rt)-[A-Za-z0-9_-]{20,})"),
    _Detector(
        SecretKind.SLACK,
        "Slack token",
        r"\b(xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Z0-9]{8,}-[0-9]+-[a-f0-9]{32,}|"
        r"https://hooks\.slack\.com/services/T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]{16,})",
    ),
    _Detector(SecretKind.AWS, "AWS access key", r"\b((?:AKIA|ASIA)[A-Z2-7]{16})\b"),
    _Detector(
        SecretKind.GOOGLE,
        "Google key",
        r"\b(AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{28})",
    ),
    _Detector(SecretKind.ANTHROPIC, "Anthropic key", r"\b(sk-ant-[A-Za-z0-9_-]{20,})"),
    _Detector(
        SecretKind.OPENAI,
        "OpenAI key",
        r"\b(sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9]{40,})",
    ),
    _Detector(
        SecretKind.STRIPE,
        "Stripe key",
        r"\b((?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,})",
    ),
    _Detector(SecretKind.NPM, "npm token", r"\b(npm_[A-Za-z0-9]{36,})"),
    _Detector(SecretKind.PYPI, "PyPI token", r"\b(pypi-AgEI[A-Za-z0-9_-]{50,})"),
    _Detector(
        SecretKind.CONNECTION,
        "password in a URL",
        r"""\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@"'<>]{0,100}:([^\s/@"'<>{}\[\]$*]{3,200})@""",
    ),
    _Detector(
        SecretKind.BEARER,
        "authorization",
        r"(?i:\bauthorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:bearer |basic |token )?|\bbearer )"
        r"([A-Za-z0-9._~+/=-]{16,})",
    ),
    _Detector(
        SecretKind.NAMED,
        "secret",
        r"(?i:\b([A-Za-z0-9_.-]{0,40}" + _NAME + r"[A-Za-z0-9_-]{0,20})"
        r"\\?[\"']?\s{0,4}(?:=>|[:=])\s{0,4}\\?[\"']?)([^\s\"',;&<>(){}\[\]\\]{8,})",
    ),
)
_NAMED_VALUE = re.compile(rf"(?:^|[_.\s-]|[a-z](?=[A-Z])){_NAME}(?:$|[_.\s-])", re.IGNORECASE)
_EXAMPLES = frozenset(
    ("password", "passwd", "pass", "pwd", "secret", "user", "token", "changeme", "admin", "test")
)


def redact_text(text: str, kinds: Collection[SecretKind]) -> str:
    """Return a text with a mark in place of each value that looks like a secret."""
    if not kinds or len(text) < LEAST_SECRET_CHARS:
        return text
    # Known formats come first: their marks say more than the name beside a value does.
    for chosen in (frozenset(kinds) - CONTEXTUAL, CONTEXTUAL.intersection(kinds)):
        if chosen:
            text = _replace_secrets(text, chosen)
    return text


def redact_json(value: Any, kinds: Collection[SecretKind]) -> Any:
    """Return a copy of a JSON value with all its strings redacted.

    Images and other binary content stay as they are. What is nested too deep to be checked is
    replaced as a whole.
    """
    return _redact(value, kinds, "", DEEPEST)


def _redact(value: Any, kinds: Collection[SecretKind], key: str, depth: int) -> Any:
    if isinstance(value, str):
        if SecretKind.NAMED in kinds and _is_named_secret(key, value):
            return "[redacted: secret]"
        return redact_text(value, kinds)
    if not depth and (is_list(value) or is_object(value)):
        return TOO_DEEP
    if is_list(value):
        return [_redact(item, kinds, key, depth - 1) for item in value]
    if is_object(value):
        is_binary = "mimeType" in value
        return {
            name: item
            if is_binary and name in _BINARY_KEYS
            else _redact(item, kinds, name[:NAME_CHARS], depth - 1)
            for name, item in value.items()
        }
    return value


def _replace_secrets(text: str, kinds: frozenset[SecretKind]) -> str:
    pattern, detectors = _compile_detectors(kinds)
    pieces: list[str] = []
    end = 0
    # RE2 cannot read half of a character, which JSON may hold; the length stays the same.
    readable = text if text.isascii() else _SURROGATE.sub("\ufffd", text)
    for match in pattern.finditer(readable):
        detector, group = _find_detector(match, detectors)
        if _is_secret(detector, match, group):
            start, stop = match.span(group)
            pieces += (text[end:start], f"[redacted: {detector.label}]")
            end = stop
    return "".join((*pieces, text[end:])) if pieces else text


@cache
def _compile_detectors(
    kinds: frozenset[SecretKind],
) -> tuple[Any, tuple[tuple[_Detector, int], ...]]:
    """Return one pattern for some kinds, and each detector with the number of its last group."""
    engine: Any = re2  # its module is only half typed
    options = engine.Options()
    options.max_mem = PATTERN_BYTES
    options.log_errors = False
    chosen = [detector for detector in DETECTORS if detector.kind in kinds]
    numbered: list[tuple[_Detector, int]] = []
    groups = 0
    for detector in chosen:
        groups += re.compile(detector.pattern).groups
        numbered.append((detector, groups))
    pattern = "|".join(f"(?:{detector.pattern})" for detector in chosen)
    return engine.compile(pattern, options), tuple(numbered)


def _find_detector(
    match: Any, detectors: tuple[tuple[_Detector, int], ...]
) -> tuple[_Detector, int]:
    """Return which detector matched, and the number of the group that holds the secret."""
    return next(found for found in detectors if match.start(found[1]) >= 0)


def _is_secret(detector: _Detector, match: Any, group: int) -> bool:
    value: str = match[group]
    if detector.kind is SecretKind.CONNECTION:
        return value.casefold() not in _EXAMPLES
    if detector.kind is SecretKind.NAMED:
        return _is_named_secret(match[group - 1], value)
    if detector.kind is SecretKind.BEARER:
        return _is_random(value)
    return True


def _is_named_secret(name: str, value: str) -> bool:
    """Tell whether a value looks random and its name says that it is secret."""
    if len(value) < LEAST_SECRET_CHARS or not _NAMED_VALUE.search(name):
        return False
    if _HARMLESS_NAME.search(name) or "://" in value:
        return False
    return _is_random(value, least=_choose_length(name))


def _choose_length(name: str) -> int:
    """Return how long a value must be: passwords are shorter than tokens."""
    return LEAST_SECRET_CHARS if re.search(r"pass|pwd", name, re.I) else LEAST_OPAQUE_CHARS


def _is_random(value: str, least: int = LEAST_OPAQUE_CHARS) -> bool:
    if len(value) < least or any(character.isspace() for character in value):
        return False
    has_letter = any(character.isalpha() for character in value)
    has_other = any(not character.isalpha() for character in value.strip("-_."))
    if not (has_letter and has_other) or re.fullmatch(r"[a-z]+(?:[_.:-][a-z]+)*[:.]?", value, re.I):
        return False
    if re.search(r"[{}<>$*]|\.\.\.|…|your|example|xxxx|redacted", value, re.I):
        return False
    counts = Counter(value)
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return bits >= min(LEAST_ENTROPY_BITS, math.log2(len(value)) - 1)
