"""Turn text into words and terms, in the same way for tools and queries (R13 to R20).

`split_words` splits and folds a text, `stem` turns a word into its term, and `drop_stop_words`
filters words. `split_clauses` divides a long request, `name_values` says what kind of value an
address or a file name is, and `remove_values` drops quoted strings and numbers. `list_fields` and
`build_encoding_text` choose the texts of a tool that are searched; `find_shared_lines` and
`drop_lines` leave out what most tools of a server say in the same words. Scoring happens elsewhere.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import IntEnum
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

import Stemmer as stemming

from toolscout.names import normalize
from toolscout.schemas import list_parameters
from toolscout.tools import Tool

ENCODED_DESCRIPTION = 600
ENCODED_PARAMETERS = 200
SEARCHED_INSTRUCTIONS = 400
"""Characters of a server's instructions that are searched with each of its tools."""

_STOP_WORDS = (
    "a an the and or but if of to in on at by for with from as into onto about over under via per "
    "up out is are was were be been being am do does did done have has had having will would can "
    "could should shall may might must i me my mine we us our you your he him his she her it its "
    "they them their this that these those there here what which who whom whose when where why how "
    "please want need like just also so than too very some any each every all both more most other "
    "such no nor not only own same then once again let lets hi hello hey thanks thank im ive id s "
    "t re ve ll d m using use"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
_COMMON_WORDS = (
    "access across action add api apply between call check command count create current data "
    "delete description detail execute fetch filter find get given help id including info "
    "information item key list make manage mcp name new object option parameter perform post "
    "provide put query read remove request result return run search send server service set show "
    "single specific specified string tool type update user value view with within without write"
)
COMMON_WORDS = frozenset(_COMMON_WORDS.split())
"""Words of many tools, which say little about what a server is for; searches do not drop them."""

# Words in Han characters and kana have no spaces between them; hangul is split the same way.
_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
# A number such as 17.5 is one word, unlike a version such as 1.2.3.
_TOKEN = re.compile(
    r"(?<![\w.])\d++\.\d++(?!\.?\w)|[^\W_]+(?:[+#]+(?!\w))?|(?<!\w)\.net\b", re.IGNORECASE
)
_LAST_TOKEN = re.compile(r"[^\W_]++\Z")
_FIRST_TOKEN = re.compile(r"[^\W_]++")
_CJK_RUN = re.compile(f"[{_CJK}]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DIGITS = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
# Possessive quantifiers keep the time linear in the length of the text.
_CLAUSE_END = re.compile(
    # This lookahead rejects most characters at once.
    r"(?=[.!?;,\s\u3002\uff01\uff1f\uff1b])(?:"
    r"(?<![.!?;])[.!?;]++\s++|[\u3002\uff01\uff1f\uff1b]++|,\s++(?:and|then|also|but)\s++"
    r"|(?<!\s)\s++(?:and then|and also|as well as|after that|then)\s++"
    r"|(?<!\s)\s++and\s++(?=[a-z]{1,30}\s)|\n++)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\"[^\"]{0,300}\"|\u201c[^\u201d]{0,300}\u201d|(?<!\w)'[^']{1,60}'(?!\w)")
_ASCII_RUN = re.compile(r"[!-~]++")
# Every quoted string, mail address and number contains one of these.
_ADDRESS = re.compile(r"\b(?:https?|ftp)://\S+", re.IGNORECASE)
_FILE_NAME = re.compile(
    r"(?<![\w/.@])[\w-]{1,100}\.(?:csv|db|docx?|gif|html?|jpe?g|json|log|md|mp[34]|pdf|png|pptx?|py|sql"
    r"|svg|toml|tsv|txt|wav|xlsx?|xml|ya?ml|zip)\b",
    re.IGNORECASE,
)
_VALUE_DOT = re.compile(r"\.\w|://")
_VALUE_SIGN = re.compile(r"[\"'\u201c@0-9]")
CLAUSE_LIMIT = 8

KNOWN_CHARS = 64
"""Longer words are not remembered: what a model sends would fill the memory."""
_stemmer: Any = stemming.Stemmer("english")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped
_forgetful_stemmer: Any = stemming.Stemmer("english", 0)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped


def fold(text: str) -> str:
    """Return text without accents and compatibility forms; keeps case, which splits names."""
    if text.isascii():
        return text
    bare = "".join(c for c in normalize("NFKD", text) if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", bare)  # composes hangul syllables again


def split_tokens(text: str) -> list[str]:
    """Return the raw tokens of a text; `split_token` splits each into words."""
    return _TOKEN.findall(fold(text))


def split_token(token: str) -> tuple[str, ...]:
    """Return the case-folded words of a token, split at camel case, acronyms and digits.

    Runs of Chinese, Japanese and Korean characters become bigrams.
    """
    if token.isascii() and token.isalpha() and token.islower():
        return (token,)
    if not token.isascii() and _CJK_RUN.search(token):
        return tuple(_split_mixed(token))
    spaced = _CAMEL.sub(" ", token)
    if any(map(str.isdigit, spaced)):
        spaced = _DIGITS.sub(" ", spaced)
    return tuple(spaced.casefold().split())


def _split_mixed(token: str) -> Iterable[str]:
    end = 0
    for match in _CJK_RUN.finditer(token):
        if match.start() > end:
            yield from split_token(token[end : match.start()])
        run = match[0]
        end = match.end()
        yield from (run[i : i + 2] for i in range(len(run) - 1)) if len(run) > 1 else (run,)
    if end < len(token):
        yield from split_token(token[end:])


_split_known = lru_cache(maxsize=10_000)(split_token)


def split_words(text: str) -> list[str]:
    """Return the case-folded words of a text, in order."""
    return [
        word
        for token in split_tokens(text)
        for word in (_split_known(token) if len(token) <= KNOWN_CHARS else split_token(token))
    ]


def split_whole_words(text: str) -> list[str]:
    """Return the case-folded words of a text without splitting any at its capitals."""
    return [token.casefold() for token in split_tokens(text)]


def stem(word: str) -> str:
    """Return the term of a word: its English stem, or the word itself."""
    return _stem_known(word) if len(word) <= KNOWN_CHARS else _forgetful_stemmer.stemWord(word)


@lru_cache(maxsize=20_000)
def _stem_known(word: str) -> str:
    return _stemmer.stemWord(word)


def drop_stop_words(all_words: list[str]) -> list[str]:
    """Return the words that are not stop words, or all words if every one is."""
    return [word for word in all_words if word not in STOP_WORDS] or all_words


def join_name_words(name: str) -> list[str]:
    """Return the terms of neighbouring words of a name, and of all its words, joined (R14)."""
    parts = split_words(name)
    if len(parts) < 2:
        return []
    pairs = [pair_term(a, b) for a, b in pairwise(parts)]
    return pairs if len(parts) == 2 else [*pairs, pair_term("".join(parts[:-1]), parts[-1])]


def pair_term(first: str, second: str) -> str:
    """Return the term of two joined words; only the second one is stemmed."""
    return first + stem(second)


_OPPOSITES = """
create make new insert / delete remove destroy drop
add / remove delete
enable activate / disable deactivate
start begin resume / stop end pause
open / close
lock / unlock
subscribe follow / unsubscribe unfollow
archive / unarchive
mute / unmute
block / unblock
pin / unpin
star / unstar
assign / unassign
mark / unmark
install / uninstall
publish / unpublish
connect attach / disconnect detach
increase raise / decrease lower
show / hide
upload / download
import / export
push / pull
forward next / back previous
encrypt / decrypt
mount / unmount
deposit / withdraw
approve accept / reject decline
"""


def _read_opposites(text: str) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for line in text.strip().splitlines():
        left, right = (frozenset(map(stem, side.split())) for side in line.split("/"))
        for term in left | right:
            found[term] = found.get(term, frozenset()) | (right if term in left else left)
    return found


@lru_cache(maxsize=20_000)
def stem_name(leaf: str) -> frozenset[str]:
    """Return the terms of a tool's own name."""
    return frozenset(map(stem, drop_stop_words(split_words(leaf))))


OPPOSITES = _read_opposites(_OPPOSITES)
"""The terms that mean the opposite of a term."""


def split_clauses(text: str) -> list[str]:
    """Return the parts of a request that may each need a different tool."""
    parts = [part.strip() for part in _CLAUSE_END.split(text)]
    clauses = [part for part in parts if len(part.split()) > 1 or _CJK_RUN.search(part)]
    return clauses[:CLAUSE_LIMIT] if len(clauses) > 1 else [text]


def name_values(text: str) -> str:
    """Return a request in which "URL" follows a web address and "file" the name of a file.

    Tools say what kind of value they take, and a request often has only the value.
    """
    if not _VALUE_DOT.search(text):
        return text
    return _FILE_NAME.sub(r"\g<0> file ", _ADDRESS.sub(r"\g<0> URL ", text))


def remove_values(text: str) -> str:
    """Return a request without quoted strings, addresses and numbers, which name no tool."""
    if not _VALUE_SIGN.search(text) and "://" not in text:
        return " ".join(text.split()) or text
    plain = _ASCII_RUN.sub(_remove_value, _QUOTED.sub(" ", text))
    return " ".join(plain.split()) or text


def _remove_value(match: re.Match[str]) -> str:
    run = match[0]
    is_value = "@" in run or "://" in run or any(map(str.isdigit, run))
    return " " if is_value else run


class Field(IntEnum):
    """The parts of a tool that are searched, each with its own weight."""

    NAME = 0
    SERVER = 1
    DESCRIPTION = 2
    PARAMETER = 3
    PARAMETER_DESCRIPTION = 4
    ENUM = 5
    KEYWORDS = 6
    """Aliases and tags."""
    TITLE = 7
    INSTRUCTIONS = 8
    HINT = 9
    """What people call the tool; no part of its definition, and evidence of its own."""

    @property
    def bit(self) -> int:
        """Stands for the field in a byte.

        The names and descriptions of parameters share one, and so do titles and keywords.
        """
        return _FIELD_BITS[self]


_FIELD_BITS = (1, 2, 4, 8, 8, 16, 64, 64, 128, 32)


def list_fields(tool: Tool, hint: str | None = None) -> list[str]:
    """Return the searched texts of a tool, by `Field`, with its own hint or another one."""
    listed = list_parameters(tool.input_schema)
    fields = _list_own_fields(tool)
    if hint is not None:
        fields[Field.HINT] = hint
    fields[Field.PARAMETER] = " ".join(parameter.name for parameter in listed)
    fields[Field.PARAMETER_DESCRIPTION] = " ".join(parameter.description for parameter in listed)
    fields[Field.ENUM] = " ".join(value for parameter in listed for value in parameter.enum)
    return fields


_PARAMETER_BITS = Field.PARAMETER.bit | Field.ENUM.bit


def _list_own_fields(tool: Tool) -> list[str]:
    """Return the searched texts of a tool with nothing about its parameters."""
    keywords = " ".join((*tool.aliases, *tool.tags))
    title = "" if split_words(tool.title) == split_words(tool.leaf) else tool.title
    instructions = tool.instructions[:SEARCHED_INSTRUCTIONS]
    names = [tool.leaf, tool.server, tool.description]
    return [*names, "", "", "", keywords, title, instructions, tool.hint]


def build_encoding_text(tool: Tool, fields: list[str]) -> str:
    """Return the text of a tool for an encoder: its names, description and parameters."""
    names = (Field.SERVER, Field.NAME, Field.TITLE, Field.KEYWORDS)
    spelt = " ".join(word for name in names for word in split_words(fields[name]))
    arguments = " ".join(split_words(fields[Field.PARAMETER]))[:ENCODED_PARAMETERS]
    return f"{spelt} {tool.description[:ENCODED_DESCRIPTION]} {arguments}".strip()


SHARED_BY = 4
SHARED_SHARE = 0.6
_LINE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n")


def find_shared_lines(
    tools: Sequence[Tool], step: Callable[[], None] = lambda: None
) -> frozenset[str]:
    """Return the sentences and lines that most of a server's tools have in their descriptions.

    Most means 60 % of them, and at least four. Case and blanks do not matter. Calls `step` after
    each tool.
    """
    least = max(SHARED_BY, SHARED_SHARE * len(tools))
    if len(tools) < least:
        return frozenset()
    counts: Counter[str] = Counter()
    for tool in tools:
        counts.update(_list_lines(tool.description))
        step()
    return frozenset(line for line, count in counts.items() if count >= least)


def drop_lines(tool: Tool, shared: AbstractSet[str]) -> Tool:
    """Return a tool without some lines of its description, unless no word of it would be left."""
    if not shared or shared.isdisjoint(_list_lines(tool.description)):
        return tool
    kept = [p for p in _LINE_END.split(tool.description) if _fold_line(p) not in shared]
    description = "\n".join(kept)
    return replace(tool, description=description) if _TOKEN.search(description) else tool


@lru_cache(maxsize=1_000)  # for a server whose tools come one by one
def _list_lines(description: str) -> frozenset[str]:
    return frozenset(map(_fold_line, _LINE_END.split(description)))


def _fold_line(line: str) -> str:
    return " ".join(line.casefold().split())


SPLITS_CHECKED = 20
"""Places in a tool's text that may have a split word and are looked at closely."""
EDGE_CHARS = 40


def compile_split(split: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for places where a word may be written in parts; `has_split` checks them.

    Parts that are stop words must not stand apart: `YouTube` is the word, "you tube" is not.
    """
    gap = "[_-]?" if STOP_WORDS.intersection(split) else "[ _-]?"
    return re.compile(gap.join(map(re.escape, split)), re.IGNORECASE)


def has_split(tool: Tool, fields: int, split: Sequence[str], pattern: re.Pattern[str]) -> bool:
    """Tell whether one of some fields of a tool, given as bits, has these words as neighbours."""
    listed = list_fields(tool) if fields & _PARAMETER_BITS else _list_own_fields(tool)
    searched = (text for field, text in zip(Field, listed, strict=True) if fields & field.bit)
    text = fold("\n".join(searched))
    terms = [stem(word) for word in split]
    for match in islice(pattern.finditer(text), SPLITS_CHECKED):
        before = _LAST_TOKEN.search(text, max(0, match.start() - EDGE_CHARS), match.start())
        after = _FIRST_TOKEN.match(text, match.end(), match.end() + EDGE_CHARS)
        begin = before.start() if before else match.start()
        end = after.end() if after else match.end()
        found = [stem(word) for word in split_words(text[begin:end])]
        if any(found[at : at + len(terms)] == terms for at in range(len(found))):
            return True
    return False
