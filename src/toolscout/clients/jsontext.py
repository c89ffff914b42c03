"""Finds and replaces members of a JSON object in a text, leaving everything else as it is.

`find_object` follows keys into a text and returns where that object and its members begin and
end; `add_member` and `remove_members` return the text with other members in it. Comments, trailing
commas and a byte order mark are understood. Nothing else is checked: callers read the result back.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_BLANK = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_PLAIN = re.compile(r"[^\s,\]}/]*")
# The parts of a nested value: a string, a comment, a bracket, or anything else.
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


def find_object(text: str, keys: Sequence[str] = ()) -> Span | None:
    """Return the object under some keys, starting at the outermost one, if there is one."""
    span = _parse_object(text, _skip_blank(text, 0))
    for key in keys:
        # Of several members with one key, JSON parsers use the last.
        members = {member.key: member for member in span.members} if span else {}
        span = _parse_object(text, members[key].value) if key in members else None
    return span


def add_member(text: str, keys: Sequence[str], member: str) -> str:
    """Return a text with another member in an object, which is created if it is missing."""
    span = find_object(text, keys)
    if span is not None:
        return _replace_members(text, span, (), member)
    if not keys:
        return text
    inner = "\n".join(f"  {line}" for line in member.split("\n"))
    return add_member(text, keys[:-1], f"{json.dumps(keys[-1])}: {{\n{inner}\n}}")


def remove_members(text: str, keys: Sequence[str], names: Collection[str]) -> str:
    """Return a text without some members of an object."""
    span = find_object(text, keys)
    return text if span is None or not names else _replace_members(text, span, names)


def _replace_members(text: str, span: Span, gone: Collection[str], added: str = "") -> str:
    """Return a text whose object loses some of its members and may get one at its end.

    Comments in front of a member belong to it; comments after the last one stay.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = _extract_indent(text, span.begin)
    lead = newline + indent + ("\t" if "\t" in indent else STEP)
    if span.members:
        front = text[: span.members[0].begin]
        line = front[front.rfind("\n") + 1 :]
        if not line.strip() and "\n" in front[span.begin :]:
            lead = newline + line
    parts = [
        _extract_gap(text, span, place) + text[member.begin : member.end]
        for place, member in enumerate(span.members)
        if member.key not in gone
    ]
    parts += [lead + added.replace("\n", lead)] if added else []
    tail = _extract_gap(text, span, len(span.members))
    if parts and "\n" not in tail:
        tail = newline + indent
    return f"{text[: span.begin]}{{{','.join(parts)}{tail}}}{text[span.end :]}"


def format_member(text: str, member: Member) -> str:
    """Return the text of a member without the indent of its lines."""
    indent = _extract_indent(text, member.begin)
    first, *rest = text[member.begin : member.end].replace("\r\n", "\n").split("\n")
    return "\n".join([first, *(line.removeprefix(indent) for line in rest)])


def _extract_gap(text: str, span: Span, place: int) -> str:
    """Return the blanks and comments in front of a member, or behind the last one."""
    begin = span.members[place - 1].end if place else span.begin + 1
    end = span.members[place].begin if place < len(span.members) else span.end - 1
    gap = text[begin:end]
    comma = _skip_blank(gap, 0)
    # A comment in front of the comma belongs to the member before it, which may be gone.
    return gap[comma + 1 :] if place and gap[comma : comma + 1] == "," else gap


def _extract_indent(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


def _parse_object(text: str, begin: int) -> Span | None:
    if text[begin : begin + 1] != "{":
        return None
    members: list[Member] = []
    place = _skip_blank(text, begin + 1)
    while place < len(text) and text[place] == '"':
        key = _STRING.match(text, place)
        end = key.end() if key else place + 1
        colon = _skip_blank(text, end)
        value = _skip_blank(text, colon + 1)
        try:
            name = str(json.loads(text[place:end], strict=False))
        except ValueError:
            name = text[place:end]
        member = Member(key=name, begin=place, value=value, end=_find_end(text, value))
        members.append(member)
        place = _skip_blank(text, member.end)
        if text[place : place + 1] == ",":
            place = _skip_blank(text, place + 1)
    if text[place : place + 1] != "}":
        return None
    return Span(begin=begin, end=place + 1, members=tuple(members))


def _find_end(text: str, begin: int) -> int:
    """Return the end of the value that begins here."""
    if text[begin : begin + 1] == '"':
        found = _STRING.match(text, begin)
        return found.end() if found else len(text)
    if text[begin : begin + 1] not in ("{", "["):
        found = _PLAIN.match(text, begin)
        return max(found.end() if found else 0, begin + 1)
    depth = 0
    for found in _PIECE.finditer(text, begin):
        piece = found.group()
        depth += (piece in ("{", "[")) - (piece in ("}", "]"))
        if not depth:
            return found.end()
    return len(text)


def _skip_blank(text: str, begin: int) -> int:
    found = _BLANK.match(text, begin)
    return found.end() if found else begin
