"""Names that every provider accepts, and text that is safe to show.

`make_exposed_name` builds the name that the model sees, `fold_name` decides when two spellings mean
the same name, and `find_near_names` suggests names for a misspelt one. `clean_text`, `to_one_line`
and `to_error_text` remove what must not reach a prompt from a server's text (R85). The catalogue
checks whether an exposed name is still free.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import Literal, TypeGuard

from rapidfuzz import fuzz, process

NAME_LIMIT = 64
HASH_DIGITS = 8
LEAF_SHARE = 36
"""How many characters of a leaf take precedence over the server's name in an overlong name."""

SERVER_WORDS = 7
SERVER_CHARS = 100
"""A text with more blanks or characters is not the name of a server."""
NEAR_SCORE = 60.0
MARKS_IN_A_ROW = 30
"""How many marks of one letter are read, as in Unicode's stream-safe text format."""
NAMES_LISTED = 8
"""How many names a line lists before it says how many more there are."""

_SEPARATOR_RUN = re.compile(r"[ ./:@\\]+")
_UNSAFE_RUN = re.compile(r"[^A-Za-z0-9_-]+")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HANDLE = re.compile(r"result_[0-9a-f]{10}")
_FOLD = dict.fromkeys(map(ord, "_-./:"))
_WORD_GAP = re.compile(r"[\W_]+")
_SERVER_FILLERS = frozenset({"mcp", "server", "servers", "the", "tool", "tools"})
_SPACED = str.maketrans(dict.fromkeys("_-./:", " "))

# Invisible characters can hide instructions from people: controls, direction overrides, byte order
# marks, fillers, soft hyphens, variation selectors and the tag block. A joiner stays between
# letters of scripts that need it, such as Persian, and in emoji; so does a selector after a symbol.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    r"|(?<![#*0-9\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001fbff])[\ufe0e\ufe0f]"
    r"|[\u200c\u200d](?=[\x00-\x7f\u200c\u200d])|(?<=[\x00-\x7f\u200c\u200d])[\u200c\u200d]"
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# All marks that combine with the letter before them lie beyond these characters.
_POSSIBLE_MARKS = re.compile(rf"[^\x00-\u02ff]{{{MARKS_IN_A_ROW + 1},}}")
# Letters and marks that count as printable and show nothing.
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_CUT = " … "
_BLANKS = re.compile(r"\s+")


def make_exposed_name(server: str, leaf: str) -> str:
    """Return `server__leaf` in at most 64 characters of `[A-Za-z0-9_-]`.

    A run of separators (space `.` `/` `:` `@` and backslash) becomes `_`. If any other character
    has to be replaced, that part of the name ends in a hash of the original. `a.b` and `a/b`
    therefore still collide; the catalogue reports such a collision with both owners.
    """
    tail = _make_safe_part(leaf, "tool")
    head = _make_safe_part(server, "server") if server else ""
    name = f"{head}__{tail}" if head else tail
    if len(name) <= NAME_LIMIT:
        return name
    return f"{_shorten(head, tail)}_{_hash(server + chr(0) + leaf)}"


def is_exposed_name(name: str) -> bool:
    """Tell whether every provider accepts a name as it is."""
    return _SAFE_NAME.fullmatch(name) is not None


def is_handle(name: object) -> TypeGuard[str]:
    """Tell whether a name is the handle of a long result rather than of a tool."""
    return isinstance(name, str) and _HANDLE.fullmatch(name) is not None


def _make_safe_part(text: str, fallback: str) -> str:
    if _SAFE_NAME.fullmatch(text):
        return text
    plain = _SEPARATOR_RUN.sub("_", text.strip())
    if plain.strip("_") and not _UNSAFE_RUN.search(plain):
        return plain
    letters = "".join(c for c in normalize("NFKD", plain) if not unicodedata.combining(c))
    slug = _UNSAFE_RUN.sub("_", letters).strip("_")
    return f"{slug or fallback}_{_hash(text)}"


def _shorten(head: str, tail: str) -> str:
    room = NAME_LIMIT - HASH_DIGITS - 1
    if not head:
        return tail[:room]
    kept = head[: max(room - 2 - min(len(tail), LEAF_SHARE), 0)]
    return f"{kept}__{tail}"[:room]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]


def normalize(form: Literal["NFKC", "NFKD"], text: str) -> str:
    """Return a text in a normal form of Unicode, without the marks that no letter can carry.

    Python sorts the marks of a letter in quadratic time, and no other thread runs meanwhile.
    """
    return unicodedata.normalize(form, _POSSIBLE_MARKS.sub(_drop_marks, text))


def _drop_marks(match: re.Match[str]) -> str:
    kept: list[str] = []
    marks = 0
    for char in match[0]:
        marks = marks + 1 if unicodedata.combining(char) else 0
        if marks <= MARKS_IN_A_ROW:
            kept.append(char)
    return "".join(kept)


def fold_name(text: str) -> str:
    """Return a name without case and separators, for comparing spellings (R3)."""
    if not text.isascii():
        text = normalize("NFKC", normalize("NFKC", text).casefold())
    return "".join(text.casefold().translate(_FOLD).split())


Spelling = tuple[int, str]
"""One way to write a tool's name: 0 for its qualified name, 1 for an alias or 2 for its leaf, then
the folded name."""


def read_spellings(text: str) -> list[Spelling]:
    """Return the spellings that a text may mean, in the order to try; the first match wins.

    Claude Code and others write `mcp__server__leaf`, so a leading "mcp" is also tried without.
    """
    key = fold_name(text)
    bare = key.removeprefix("mcp")
    if not key:
        return []
    return [(0, key), *([(0, bare)] if bare != key else []), (1, key), (2, key)]


def list_server_spellings(text: str) -> list[tuple[int, str]]:
    """Return how a server may be spelt: its folded name, then that without words such as "mcp".

    Works for a server's name and for what someone typed; equal spellings mean the same server.
    """
    if text.count(" ") >= SERVER_WORDS or len(text) > SERVER_CHARS:
        return []
    words = _WORD_GAP.split(text.casefold())
    bare = "".join([word for word in words if word not in _SERVER_FILLERS])
    if not bare.isascii():
        bare = fold_name(bare)
    return [(rank, key) for rank, key in enumerate((fold_name(text), bare)) if key]


def find_near_names(wanted: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """Return up to `limit` names that resemble `wanted`, nearest first; ties go by name.

    `wanted` is compared with the whole name and with its leaf, and the better match counts.
    """
    listed = sorted(set(names))
    if not listed:
        return []
    whole = _compare_names(wanted, listed)
    leaves = _compare_names(wanted, [name.rpartition("__")[2] for name in listed])
    scored = zip(map(max, whole, leaves), listed, strict=True)
    near = [(-score, name) for score, name in scored if score >= NEAR_SCORE]
    return [name for _, name in nsmallest(limit, near)]


def _compare_names(wanted: str, names: list[str]) -> list[float]:
    spaced = [name.casefold().translate(_SPACED) for name in names]
    target = wanted.casefold().translate(_SPACED)
    return process.cdist([target], spaced, scorer=fuzz.ratio, score_cutoff=NEAR_SCORE)[0].tolist()


def clean_text(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, without invisible ones.

    Lone surrogates become U+FFFD.
    """
    if len(text) > limit:
        text = text[:limit]
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATE.sub("\ufffd", _INVISIBLE.sub("", text))


def has_invisible(text: str) -> bool:
    """Tell whether `clean_text` removes characters from a text, other than carriage returns."""
    return _INVISIBLE.search(text.replace("\r", "")) is not None


def to_one_line(text: str, limit: int) -> str:
    """Return cleaned text on one line, cut at a word; angle brackets become similar characters."""
    # Reading four times the limit leaves room for characters that cleaning removes.
    line = _BLANKS.sub(" ", clean_text(text, 4 * limit)).strip()
    line = line.replace("<", "\u2039").replace(">", "\u203a")  # so that nothing opens a tag
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    word = cut.rpartition(" ")[0]
    return (word if len(word) > limit // 2 else cut).rstrip(" ,;:") + "…"


def to_error_text(text: str, limit: int, *, keep_lines: bool = False) -> str:
    """Return cleaned text of an error, cut in the middle: its cause often stands at the end.

    It is on one line, unless `keep_lines`; angle brackets become similar characters.
    """
    if len(text) > 8 * limit:  # which leaves room for characters that cleaning removes
        text = f"{text[: 4 * limit]} {text[-4 * limit :]}"
    text = clean_text(text, len(text)).replace("<", "\u2039").replace(">", "\u203a")
    lines = (_BLANKS.sub(" ", line).strip() for line in text.split("\n"))
    shown = ("\n" if keep_lines else " ").join(filter(None, lines))
    if len(shown) <= limit:
        return shown
    room = limit - len(_CUT)
    head = shown[: room // 2].rstrip()
    return f"{head}{_CUT}{shown[-(room - room // 2) :].lstrip()}"


def escape_hidden(text: str) -> str:
    """Return a text in which every character that people cannot see is written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _is_visible(c) else c.encode("unicode_escape").decode() for c in text)


def _is_visible(char: str) -> bool:
    is_selector = "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"
    return char.isprintable() and char not in _BLANK_LETTERS and not is_selector


def list_some(names: Sequence[str], limit: int = NAMES_LISTED) -> str:
    """Return the first names of a list, and how many more there are."""
    more = len(names) - limit
    shown = ", ".join(names[:limit])
    return f"{shown} and {more:,} more" if more > 0 else shown


def digest_session(session: str) -> str:
    """Return a short name for a session that tells nothing about its id, which is a secret."""
    return hashlib.blake2b(session.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
