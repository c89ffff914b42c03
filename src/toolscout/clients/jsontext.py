"""Where the members of a JSON object stand in a text, so that some can be changed and no others.

`object_at` follows keys into a text and tells where that object and its members begin and end;
`with_members` gives the text with another set of members in it. Comments and trailing commas are
understood. Nothing is checked beyond that: who edits reads the result back.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_PLAIN = re.compile(r"[^\s,\]}/]*")
# What a nested value may hold: a text, a comment, a bracket, or something of no interest.
_PIECE = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)|[{}\[\]]|[^"/{}\[\]]+|/', re.DOTALL
)
STEP = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member: its key, where it begins, where its value begins and where it ends."""

    key: str
    begin: int
    value: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An object from its opening brace to behind its closing one."""

    begin: int
    end: int
    members: tuple[Member, ...]

    def member(self, key: str) -> Member | None:
        """Return the member that counts under a key: the last, as readers of JSON have it."""
        return next((m for m in reversed(self.members) if m.key == key), None)


def object_at(text: str, keys: Sequence[str] = ()) -> Span | None:
    """Return the object to which keys lead from the outermost one, if there is one."""
    begin = _after_blank(text, 0)
    span = _object(text, begin)
    for key in keys:
        member = span.member(key) if span else None
        span = _object(text, member.value) if member else None
    return span


def with_members(text: str, span: Span, keep: Iterable[Member], added: Sequence[str]) -> str:
    """Return a text whose object has only some of its members, and further ones at its end.

    What stands in front of a member belongs to it; comments behind the last one stay.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = _indent(text, span.begin)
    lead = _lead(text, span, newline + indent + ("\t" if "\t" in indent else STEP))
    parts = [_part(text, span, member) for member in keep]
    parts += [lead + one.replace("\n", lead) for one in added]
    tail = _tail(text, span)
    if parts and "\n" not in tail:
        tail = newline + indent
    return f"{text[: span.begin]}{{{','.join(parts)}{tail}}}{text[span.end :]}"


def member_text(text: str, member: Member) -> str:
    """Return a member as it stands, without the indent of its lines."""
    indent = _indent(text, member.begin)
    first, *rest = text[member.begin : member.end].replace("\r\n", "\n").split("\n")
    return "\n".join([first, *(line.removeprefix(indent) for line in rest)])


def _part(text: str, span: Span, member: Member) -> str:
    """Return a member with what stands in front of it."""
    place = span.members.index(member)
    begin = span.members[place - 1].end if place else span.begin + 1
    front = text[begin : member.begin]
    if place:  # the comma goes, and with it the end of a line that a comment may share
        front = front[_comma(front) + 1 :]
    return front + text[member.begin : member.end]


def _comma(front: str) -> int:
    place = _after_blank(front, 0)
    # A comment in front of the comma is told of the member before it, which may be gone.
    return place if front[place : place + 1] == "," else -1


def _tail(text: str, span: Span) -> str:
    if not span.members:
        return text[span.begin + 1 : span.end - 1]
    rest = text[span.members[-1].end : span.end - 1]
    return rest[_comma(rest) + 1 :]


def _lead(text: str, span: Span, otherwise: str) -> str:
    """Return the line break and indent with which the object's members begin."""
    if not span.members:
        return otherwise
    blank = text[: span.members[0].begin]
    line = blank[blank.rfind("\n") + 1 :]
    if line.strip() or "\n" not in blank[span.begin :]:
        return otherwise
    return ("\r\n" if "\r\n" in text else "\n") + line


def _indent(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


def _object(text: str, begin: int) -> Span | None:
    if text[begin : begin + 1] != "{":
        return None
    members: list[Member] = []
    place = _after_blank(text, begin + 1)
    while place < len(text) and text[place] == '"':
        member = _member(text, place)
        members.append(member)
        place = _after_blank(text, member.end)
        if text[place : place + 1] == ",":
            place = _after_blank(text, place + 1)
    if text[place : place + 1] != "}":
        return None
    return Span(begin=begin, end=place + 1, members=tuple(members))


def _member(text: str, begin: int) -> Member:
    key = _STRING.match(text, begin)
    end = key.end() if key else begin + 1
    colon = _after_blank(text, end)
    value = _after_blank(text, colon + 1)
    return Member(key=_plain(text[begin:end]), begin=begin, value=value, end=_past(text, value))


def _past(text: str, begin: int) -> int:
    """Return where the value that begins here ends."""
    if text[begin : begin + 1] == '"':
        found = _STRING.match(text, begin)
        return found.end() if found else len(text)
    if text[begin : begin + 1] not in ("{", "["):
        found = _PLAIN.match(text, begin)
        return max(found.end() if found else 0, begin + 1)
    depth = 0
    for piece, end in _pieces(text, begin):
        depth += (piece in "{[") - (piece in "}]")
        if not depth:
            return end
    return len(text)


def _pieces(text: str, begin: int) -> Iterator[tuple[str, int]]:
    """Yield the brackets of a text and where each ends."""
    for found in _PIECE.finditer(text, begin):
        if found.end() - found.start() == 1 and found.group() in "{}[]":
            yield found.group(), found.end()


def _after_blank(text: str, begin: int) -> int:
    found = _BLANK.match(text, begin)
    return found.end() if found else begin


def _plain(quoted: str) -> str:
    """Return a key as it reads without quotes and escapes."""
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        return quoted
