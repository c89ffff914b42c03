"""Results too long for one reply: cut, kept under a handle, and read on (R48).

`Results.page` takes a tool's text and gives its first page; `Results.read` gives further ones,
by place, by line, by words or by JSON path. Pages are exact pieces of the text, so those that
follow each other make up the whole. Old results go when there are too many or too large ones.
Where the bytes are kept is the shelf's matter, and how a page is shown is that of `replies`.

A small reader of paths such as `$.items[0].name` in JSON.

`.key`, `['key']`, `[n]` (from the end with a minus), `[a:b]` and `[*]` are understood; after a
slice or a star, the rest is read from each element that has it. There are no filters, no
expressions and no recursive descent: what a path costs is plain from its length.
"""

import bisect
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from toolscout.calls.cut import MIN_TOKENS, cut, tokens_of
from toolscout.errors import InvalidConfig, InvalidRequest, UnknownResult
from toolscout.names import find_near_names, to_one_line
from toolscout.schemas import Json, is_list, is_object
from toolscout.stores.store import Store

MAX_PATH = 500
SHOWN_KEYS = 12
SHOWN_KEY = 60
SYNTAX = "Write a path such as $.items[0].name; use ['key'], [n], [a:b] and [*]."

_STEP = re.compile(
    r"""\.(?P<key>[^.\[\]'"*\s]+) | \[\s*(?:
        (?P<star>\*) | (?P<index>-?\d{1,9}) | (?P<low>-?\d{0,9}):(?P<high>-?\d{0,9})
        | '(?P<single>[^']*)' | "(?P<double>[^"]*)" )\s*\]""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    text: str
    """The step as it was written."""
    key: str | None = None
    index: int | None = None
    part: slice | None = None


def value_at_path(root: object, path: str) -> Any:
    """Return what a path leads to, or raise `InvalidRequest` that names what is there."""
    nodes: list[Any] = [root]
    is_many = False
    walked = "$"
    for step in _steps(path):
        found = [_below(node, step) for node in nodes]
        if nodes and all(values is None for values in found):
            raise _lost(walked, step, nodes[0])
        is_many = is_many or step.part is not None
        nodes = [value for values in found if values for value in values]
        walked += step.text
    return nodes if is_many else nodes[0]


def _steps(path: str) -> list[_Step]:
    text = path.strip().removeprefix("$")
    if text and text[0] not in ".[":
        text = f".{text}"
    steps: list[_Step] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or len(text) > MAX_PATH:
            raise InvalidRequest(
                f"The path {to_one_line(path, SHOWN_KEY)!r} cannot be read", remedy=SYNTAX
            )
        steps.append(_step(found))
        at = found.end()
    return steps


def _step(found: re.Match[str]) -> _Step:
    text = found.group()
    if found["star"]:
        return _Step(text=text, part=slice(None))
    if found["index"]:
        return _Step(text=text, index=int(found["index"]))
    if found["low"] is not None:
        return _Step(text=text, part=slice(_end(found["low"]), _end(found["high"])))
    key = next(found[name] for name in ("key", "single", "double") if found[name] is not None)
    return _Step(text=text, key=key)


def _end(text: str) -> int | None:
    return int(text) if text.strip("-") else None


def _below(node: object, step: _Step) -> list[Any] | None:
    """Return what one step leads to, one value or those of a slice, or none if it cannot go on."""
    if is_object(node):
        if step.key is not None:
            return [node[step.key]] if step.key in node else None
        return list(node.values()) if step.part == slice(None) else None
    if not is_list(node):
        return None
    if step.part is not None:
        return node[step.part]
    index = step.index
    return [node[index]] if index is not None and -len(node) <= index < len(node) else None


def _lost(walked: str, step: _Step, node: object) -> InvalidRequest:
    where = to_one_line(walked, 2 * SHOWN_KEY)
    return InvalidRequest(
        f"{where!r} has nothing at {to_one_line(step.text, SHOWN_KEY)!r}",
        remedy=_present(node, step),
    )


def _present(node: object, step: _Step) -> str:
    if is_list(node):
        return f"It is a list of {len(node)}; use [n] with n below that, [a:b] or [*]."
    if not is_object(node):
        return "It is a single value; leave the rest of the path off."
    near = find_near_names((step.key or "")[:SHOWN_KEY], node)
    names = [*near, *(name for name in node if name not in near)]
    shown = ", ".join(to_one_line(name, SHOWN_KEY) for name in names[:SHOWN_KEYS])
    more = f", … ({len(names)} in all)" if len(names) > SHOWN_KEYS else ""
    return f"Keys there: {shown}{more}." if names else "It is an empty object."


PAGE_TOKENS = 2_000
KEPT_RESULTS = 32
KEPT_BYTES = 16 * 1024 * 1024
KIND = "result"
LONG_LINE = 400
CONTEXT_CHARACTERS = 120
SHORT_JSON = 200
MAX_WORDS = 200

_HANDLE = re.compile(r"result_[0-9a-f]{10}")
_WAYS = (
    'Use {"start": 4000} (and "end"), {"line": 120}, {"lines": [120, 180]}, {"find": "words"} '
    '(and "start"), or {"path": "$.items[0]"}.'
)
_COMBINATIONS = ({"start", "end"}, {"line"}, {"lines"}, {"find", "start"}, {"path"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A piece of a result."""

    text: str
    handle: str = ""
    """The name to read on with; empty if nothing is left."""
    start: int = 0
    end: int = 0
    total: int = 0
    """All in characters of the whole text."""
    note: str = ""
    """What was left off and the call that reads on; empty if nothing was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A kept result as the index knows it."""

    handle: str
    size: int
    """In bytes."""
    total: int
    """Characters of the whole text, of which only the first may have been kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    handle: str
    text: str
    lost: int
    """Characters at the end that were too many to keep."""


def is_handle(name: object) -> TypeGuard[str]:
    """Tell whether a name is the handle of a result rather than of a tool."""
    return isinstance(name, str) and _HANDLE.fullmatch(name) is not None


class Results:
    """The long results of one owner, for example of one session."""

    def __init__(
        self,
        store: Store,
        owner: str,
        *,
        limit: int = PAGE_TOKENS,
        kept: int = KEPT_RESULTS,
        max_bytes: int = KEPT_BYTES,
    ) -> None:
        """`limit` is in tokens for each page; `kept` and `max_bytes` bound what is kept."""
        for key, value, least in (
            ("limit", limit, MIN_TOKENS),
            ("kept", kept, 1),
            ("max_bytes", max_bytes, 4),
        ):
            if value < least:
                raise InvalidConfig(key, f"is {value}", remedy=f"Use at least {least}.")
        self._store, self._owner = store, owner
        self._limit, self._kept, self._max_bytes = limit, kept, max_bytes

    def page(self, text: str) -> Page:
        """Return the first page of a text, which is kept only if it has to be cut."""
        if cut(text, 0, self._limit) == len(text):
            return Page(text=text, end=len(text), total=len(text))
        page = self._piece(self._keep(text), 0)
        if not page.handle:
            return page
        return replace(page, note=f"{page.note} Or give find, line, lines or path instead.")

    def read(self, handle: str, arguments: Json) -> Page:
        """Return a further page, or raise `UnknownResult` or `InvalidRequest`.

        Without arguments it is the page after the first.
        """
        kept = self._load(handle)
        given = {key: value for key, value in arguments.items() if value is not None}
        if not any(given.keys() <= ways for ways in _COMBINATIONS):
            named = ", ".join(to_one_line(str(key), 40) for key in list(given)[:8])
            raise InvalidRequest(f"A result cannot be read by {named}", remedy=_WAYS)
        if "path" in given:
            return self._at_path(kept, given["path"])
        if "find" in given:
            return self._find(kept, given)
        return self._piece(kept, *self._range(kept.text, given))

    def _range(self, text: str, given: Json) -> tuple[int, int]:
        if not given:
            return cut(text, 0, self._limit), len(text)
        if "line" in given:
            return _line_range(text, given["line"], None)
        if "lines" in given:
            return _line_range(text, *_pair(given["lines"]))
        start = _number(given, "start", 0, 0, len(text) - 1)
        return start, _number(given, "end", len(text), start + 1, len(text))

    def _piece(self, kept: _Kept, start: int, stop: int | None = None) -> Page:
        """Return the page from `start`; a range that is longer than a page goes on to `stop`."""
        text = kept.text
        end = cut(text, start, self._limit, stop)
        page = Page(text=text[start:end], start=start, end=end, total=len(text))
        lost = f"The last {kept.lost:,} characters of the result were not kept."
        if end == len(text):
            return replace(page, note=lost if kept.lost else "")
        further: Json = {"start": end}
        if stop is not None and end < stop < len(text):
            further["end"] = stop
        shown = f"Characters {start:,} to {end:,} of {len(text):,}."
        note = f"{shown} {_call(kept.handle, further)}{f' {lost}' if kept.lost else ''}"
        return replace(page, handle=kept.handle, note=note)

    def _at_path(self, kept: _Kept, path: object) -> Page:
        if not isinstance(path, str):
            raise InvalidRequest("A path has to be text", remedy=_WAYS)
        try:
            root: object = json.loads(kept.text)
        except (ValueError, RecursionError):
            why = "was too long to keep all of it" if kept.lost else "is not JSON"
            raise InvalidRequest(
                f"The result {why}", remedy=f"A path needs JSON. {_WAYS}"
            ) from None
        return self.page(_json_text(value_at_path(root, path)))

    def _find(self, kept: _Kept, given: Json) -> Page:
        words = given["find"]
        if not isinstance(words, str) or not 0 < len(words) <= MAX_WORDS:
            raise InvalidRequest(
                f"Give 1 to {MAX_WORDS} characters to find", remedy='Use {"find": "words"}.'
            )
        start = _number(given, "start", 0, 0, len(kept.text) - 1)
        return _Search(kept, words, start, self._limit).page()

    def clear(self) -> None:
        """Forget all results of this owner."""
        for entry in self._index():
            self._store.write(KIND, self._key(entry.handle), None)
        self._store.write(KIND, self._owner, None)

    def _keep(self, text: str) -> _Kept:
        data = text.encode("utf-8", "surrogatepass")
        handle = f"{KIND}_{hashlib.sha256(data).hexdigest()[:10]}"
        data = _first_bytes(data, self._max_bytes)
        entry = _Entry(handle=handle, size=len(data), total=len(text))
        self._store.write(KIND, self._key(handle), data)
        self._shelve([*(old for old in self._index() if old.handle != handle), entry])
        shown = data.decode("utf-8", "surrogatepass")
        return _Kept(handle=handle, text=shown, lost=len(text) - len(shown))

    def _shelve(self, entries: list[_Entry]) -> None:
        """Write the index, oldest first, without what has become too much."""
        while len(entries) > self._kept or sum(entry.size for entry in entries) > self._max_bytes:
            self._store.write(KIND, self._key(entries.pop(0).handle), None)
        rows = [[entry.handle, entry.size, entry.total] for entry in entries]
        self._store.write(KIND, self._owner, json.dumps(rows).encode())

    def _index(self) -> list[_Entry]:
        data = self._store.read(KIND, self._owner)
        rows: list[tuple[str, int, int]] = json.loads(data) if data else []
        return [_Entry(handle=handle, size=size, total=total) for handle, size, total in rows]

    def _load(self, handle: str) -> _Kept:
        data = self._store.read(KIND, self._key(handle)) if is_handle(handle) else None
        entry = next((entry for entry in self._index() if entry.handle == handle), None)
        if data is None or entry is None:
            raise UnknownResult(to_one_line(handle, 64))
        text = data.decode("utf-8", "surrogatepass")
        return _Kept(handle=handle, text=text, lost=entry.total - len(text))

    def _key(self, handle: str) -> str:
        return f"{self._owner}/{handle}"


class _Search:
    """The places of some words in a kept text, written out as far as they fit."""

    def __init__(self, kept: _Kept, words: str, start: int, limit: int) -> None:
        self.kept, self.words, self.limit = kept, words, limit
        pattern = re.compile(re.escape(words), re.IGNORECASE)
        self.places = [found.start() for found in pattern.finditer(kept.text, start)]
        self.ends = _line_ends(kept.text)

    def page(self) -> Page:
        total, quoted = len(self.kept.text), to_one_line(self.words, 60)
        if not self.places:
            note = f"Nothing contains '{quoted}'. {_WAYS}"
            return Page(text="", handle=self.kept.handle, total=total, note=note)
        text, shown, end = self._written()
        counted = f"{shown:,} of {len(self.places):,} matches of '{quoted}' are shown."
        if shown == len(self.places):
            around = {"line": self._line(self.places[0]) + 1}
            note = f"{counted} {_call(self.kept.handle, around, 'Read from one')}"
        else:
            note = f"{counted} {_call(self.kept.handle, {'find': self.words, 'start': end})}"
        return Page(
            text=text,
            handle=self.kept.handle,
            start=self.places[0],
            end=end,
            total=total,
            note=note,
        )

    def _written(self) -> tuple[str, int, int]:
        """Return the text, how many places it shows, and where it stops in the whole."""
        text, shown, end = "", 0, self.places[0]
        for entry, covered, stop in self._entries():
            longer = f"{text}\n{entry}" if text else entry
            if tokens_of(longer) > self.limit:
                if text:
                    break
                longer = longer[: cut(longer, 0, self.limit)]
            text, shown, end = longer, shown + covered, stop
        return text, shown, end

    def _entries(self) -> Iterator[tuple[str, int, int]]:
        """Return each spot with matches: its text, how many matches it has, where it ends."""
        at = 0
        while at < len(self.places):
            entry, stop = self._spot(self.places[at])
            after = bisect.bisect_left(self.places, stop, at + 1)
            yield entry, after - at, stop
            at = after

    def _spot(self, place: int) -> tuple[str, int]:
        line = self._line(place)
        low, high = self._bounds(line)
        if high - low > LONG_LINE:
            left = max(low, place - CONTEXT_CHARACTERS)
            right = min(high, place + len(self.words) + CONTEXT_CHARACTERS)
            return f"{line + 1} (character {left}): …{self.kept.text[left:right]}…", right
        rows = [self._context(line - 1), f"{line + 1}: {self.kept.text[low:high]}"]
        rows.append(self._context(line + 1))
        return "\n".join(filter(None, rows)), max(high, place + 1)

    def _context(self, line: int) -> str:
        if not 0 <= line < len(self.ends):
            return ""
        low, high = self._bounds(line)
        return f"{line + 1}- {self.kept.text[low : min(high, low + CONTEXT_CHARACTERS)]}"

    def _line(self, place: int) -> int:
        return bisect.bisect_right(self.ends, place)

    def _bounds(self, line: int) -> tuple[int, int]:
        """Return where a line begins and where its text ends, without the line end."""
        low = self.ends[line - 1] if line else 0
        high = self.ends[line]
        return low, high - (self.kept.text[high - 1 : high] == "\n")


def _call(handle: str, arguments: Mapping[str, object], verb: str = "Read on") -> str:
    written = json.dumps(arguments, ensure_ascii=False)
    return f'{verb} with tool_call(name="{handle}", arguments={written}).'


def _number(given: Mapping[str, Any], key: str, default: int, low: int, high: int) -> int:
    """Return a whole number, also one in quotes, or raise `InvalidRequest`."""
    value = given.get(key, default)
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 16:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(
            f"{key!r} is {to_one_line(repr(value)[:100], 40)}",
            remedy=f"Give a whole number from {low} to {high}.",
        )
    return value


def _pair(value: object) -> tuple[object, object]:
    if not is_list(value) or len(value) != 2:
        raise InvalidRequest("'lines' needs two numbers", remedy='Use {"lines": [120, 180]}.')
    return value[0], value[1]


def _line_range(text: str, first: object, last: object) -> tuple[int, int]:
    """Return where the lines from first to last begin and end; None is the last of all."""
    ends = _line_ends(text)
    low = _number({"line": first}, "line", 1, 1, len(ends))
    high = len(ends) if last is None else _number({"lines": last}, "lines", 1, low, len(ends))
    return (ends[low - 2] if low > 1 else 0), ends[high - 1]


def _line_ends(text: str) -> list[int]:
    """Return where each line ends, its line end included."""
    ends = [found.end() for found in re.finditer("\n", text)]
    return ends if text.endswith("\n") else [*ends, len(text)]


def _json_text(value: object) -> str:
    """Return JSON on one line if it is short, else with a line for each element."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= SHORT_JSON:
        return text
    if is_list(value):
        rows = [json.dumps(item, ensure_ascii=False) for item in value]
    elif is_object(value):
        # Each an object of one member, without its braces.
        rows = [json.dumps({key: item}, ensure_ascii=False)[1:-1] for key, item in value.items()]
    else:
        return text
    lines = ",\n".join(rows)
    return f"{text[0]}\n{lines}\n{text[-1]}"


def _first_bytes(data: bytes, size: int) -> bytes:
    """Return at most `size` bytes of UTF-8 without a character cut in two."""
    while size < len(data) and data[size] & 0xC0 == 0x80:
        size -= 1
    return data[:size]
