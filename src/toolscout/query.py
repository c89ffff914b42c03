"""Parse the text that a model typed into a `Query`.

A query has selected names, a prefix, required and excluded terms, filters, a pattern and free
words. `query_from_text` accepts any value and raises only `InvalidQuery`, which lists the valid
forms. It never looks at the catalogue; `search` finds out whether a name or server exists.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import re2

from toolscout.errors import InvalidQuery
from toolscout.names import clean_text
from toolscout.tools import Effect

TEXT_LIMIT = 20_000
QUERIES_LIMIT = 10
REMEMBERED_QUERIES = 500
PATTERN_LIMIT = 512
PREFIX_LIMIT = 200
TERMS_LIMIT = 32
"""Required and excluded terms that are read as such; each is looked for in all tools."""
PATTERN_MEMORY_BYTES = 1 << 20

_FILTER = re.compile(r'(?<!\S)(server|effect|kind):(?:"([^"]*)"|([^\s"]\S*))', re.IGNORECASE)
_TOKEN = re.compile(r'(?<!\S)[+-]"[^"]*"|\S+')
_PATTERN = re.compile(r"/(.+)/(i?)", re.IGNORECASE | re.DOTALL)
_PATH = re.compile(r"[\w.~-]*(?:/[\w.~-]*)+")
_CONTEXT = re.compile(r"\b(?:resource|prompt|template)s?\b", re.IGNORECASE)
_NUMBER = re.compile(r"[+-][\d.,:%/-]+")
_PREFIX = re.compile(r"([^*]*[^\W_][^*]*)\*+|(.*[^\W_]_+|.*[\w-][./])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A parsed query. Without words, prefix, pattern or selection, it lists tools by filter."""

    text: str
    """The whole query, cleaned."""
    words: str = ""
    """The text that remains without the operators, as typed."""
    select: tuple[str, ...] = ()
    prefix: str = ""
    required: tuple[str, ...] = ()
    """Required terms; all words of a term must match."""
    excluded: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    kinds: tuple[str, ...] = ()
    pattern: str = ""
    """RE2 source that is known to compile."""
    load: bool = True
    """Whether to load the hits; False after `discover:`, which only shows them."""

    @property
    def wants_context(self) -> bool:
        """Whether the query asks for resources or prompts, which otherwise come after tools."""
        return bool(self.kinds) or _CONTEXT.search(self.words) is not None

    @property
    def has_filter(self) -> bool:
        """Whether the query narrows the catalogue by server, effect or kind."""
        return bool(self.servers or self.effects or self.kinds)


def query_from_text(text: object) -> Query:
    """Return the parsed query.

    Operators are recognised at the start of a word, in upper or lower case. `discover:` comes
    first; `select:` takes everything after it except filters. Unknown operators and addresses
    are words.
    """
    if not isinstance(text, str):
        raise InvalidQuery.from_type(type(text))
    return _parse(text)


# Cached, because feedback parses the query again for every call of a tool that it found.
@lru_cache(maxsize=REMEMBERED_QUERIES)
def _parse(text: str) -> Query:
    whole = text[:TEXT_LIMIT].encode("utf-8", "ignore").decode()
    whole = " ".join(clean_text(whole, TEXT_LIMIT).split())
    rest = _strip_operator(whole, "discover:")
    load = rest is None
    rest = whole if rest is None else rest
    filters, rest = _take_filters(rest)
    build = partial(Query, text=whole, load=load, **filters)
    query = _read(rest, build, has_filter=any(filters.values()))
    has_operator = query.select or query.prefix or query.pattern or query.required
    if not (has_operator or query.has_filter or _has_content(query.words)):
        raise InvalidQuery.from_nothing()
    return query


def _read(rest: str, build: "partial[Query]", *, has_filter: bool) -> Query:
    selected = _strip_operator(rest, "select:")
    if selected is not None:
        return build(select=_split_names(selected))
    pattern = _read_pattern(rest)
    if pattern:
        return build(pattern=pattern)
    words: list[str] = []
    required: list[str] = []
    excluded: list[str] = []
    for token in _TOKEN.findall(rest):
        if token[0] not in "+-" or len(required) + len(excluded) >= TERMS_LIMIT:
            words.append(token)
            continue
        term = token[1:].strip('"').strip()
        if token[0] == "+" and _has_content(term) and not _NUMBER.fullmatch(token):
            required.append(term)
        elif token[0] == "-" and _is_exclusion(token):
            excluded.append(term)
        else:
            words.append(token)
    if excluded and not (words or required or has_filter):
        return build(words=rest)  # there is nothing to exclude from
    prefix = _read_prefix(words)
    free = "" if prefix or words == ["*"] else " ".join(words)
    return build(
        words=free,
        prefix=prefix,
        required=tuple(dict.fromkeys(required)),
        excluded=tuple(dict.fromkeys(excluded)),
    )


def _strip_operator(text: str, operator: str) -> str | None:
    if text[: len(operator)].lower() != operator:
        return None
    return text[len(operator) :].strip()


def _take_filters(text: str) -> tuple[dict[str, tuple[Any, ...]], str]:
    """Return the members of a query that narrow the catalogue, and the rest of the text."""
    found: dict[str, list[str]] = {"server": [], "effect": [], "kind": []}

    def take(match: re.Match[str]) -> str:
        values = [match[2]] if match[3] is None else match[3].split(",")
        found[match[1].lower()] += filter(None, (value.strip() for value in values))
        return ""

    # A pattern may contain text that looks like a filter, so filters before it are taken first.
    while match := _FILTER.match(text):
        take(match)
        text = text[match.end() :].lstrip()
    if not _PATTERN.fullmatch(text):
        text = _FILTER.sub(take, text)
    filters = {
        "servers": tuple(dict.fromkeys(found["server"])),
        "effects": tuple(dict.fromkeys(map(_read_effect, found["effect"]))),
        "kinds": tuple(dict.fromkeys(found["kind"])),
    }
    return filters, " ".join(text.split())


def _read_effect(value: str) -> Effect:
    try:
        return Effect(value.lower())
    except ValueError:
        raise InvalidQuery.from_effect(value[:80], Effect) from None


def _split_names(text: str) -> tuple[str, ...]:
    listed = (name.strip(" \"'`") for name in re.split("[,\uff0c]", text))
    names = tuple(dict.fromkeys(name for name in listed if name))
    if not names:
        raise InvalidQuery.from_empty_selection()
    return names


def _read_pattern(text: str) -> str:
    """Return the RE2 source of `/…/` or `/…/i`, or an empty string.

    The slashes must enclose the whole text. Text such as `/etc/hosts/`, with a slash inside and
    only path characters, is a path and not a pattern.
    """
    match = _PATTERN.fullmatch(text)
    if match is None or ("/" in match[1] and _PATH.fullmatch(match[1])):
        return ""
    source = f"(?i){match[1]}" if match[2] else match[1]
    if len(source) > PATTERN_LIMIT:
        raise InvalidQuery.from_long_pattern(PATTERN_LIMIT)
    engine: Any = re2  # its module is only half typed
    options = engine.Options()
    options.max_mem = PATTERN_MEMORY_BYTES
    options.log_errors = False
    try:
        engine.compile(source, options)
    except engine.error as error:
        reason = error.args[0] if error.args else "unreadable"
        if isinstance(reason, bytes):
            reason = reason.decode("utf-8", "replace")
        raise InvalidQuery.from_pattern(str(reason)) from None
    return source


def _is_exclusion(token: str) -> bool:
    start = token[1:].lstrip('"')[:1]
    return start.isalnum() and _NUMBER.fullmatch(token) is None


def _read_prefix(words: list[str]) -> str:
    """Return the prefix that a lone word asks for: `git*`, `github__`, `files.` or `repos/`."""
    if len(words) != 1 or len(words[0]) > PREFIX_LIMIT:
        return ""
    match = _PREFIX.fullmatch(words[0])
    return (match[1] or match[2]) if match else ""


def _has_content(text: str) -> bool:
    """Tell whether a text has a letter, a digit or an emoji, and not only punctuation.

    Emoji have the category So, or none if they are newer than Python's Unicode data.
    """
    return any(char.isalnum() or unicodedata.category(char) in ("So", "Cn", "Co") for char in text)
