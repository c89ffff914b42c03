"""Keep results that are too long for one reply, and read them page by page (R48).

`Results.cut_page` takes a tool's text and returns its first page; `Results.read` returns further
pages by place, line, words or JSON path. Pages are exact pieces of the text, so consecutive pages
make up the whole. The oldest results are deleted when there are too many or they are too large.
A `Store` holds the bytes, and `replies` renders the pages.

A JSON path such as `$.items[0].name` has the steps `.key`, `['key']`, `[n]` (from the end if it is
negative), `[a:b]` and `[*]`; after a slice or a star, the rest applies to each element that has
it. There are no filters, expressions or recursive descent, so a path's length bounds its cost.
"""

import bisect
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from toolscout.calls.cut import MIN_TOKENS, count_tokens_safely, cut
from toolscout.errors import InvalidConfig, InvalidRequest, UnknownResult
from toolscout.names import find_near_names, to_one_line
from toolscout.schemas import Json, is_list, is_object
from toolscout.stores.store import Store

PAGE_TOKENS = 2_000
KEPT_RESULTS = 32
KEPT_BYTES = 16 * 1024 * 1024
KIND = "result"
LONG_LINE = 400
CONTEXT_CHARACTERS = 120
SHORT_JSON = 200
MAX_WORDS = 200
MAX_PATH = 500
SHOWN_KEYS = 12
SHOWN_KEY = 60
SYNTAX = "Write a path such as $.items[0].name; use ['key'], [n], [a:b] and [*]."

_HANDLE = re.compile(r"result_[0-9a-f]{10}")
_WAYS = (
    'Use {"start": 4000} (and "end"), {"line": 120}, {"lines": [120, 180]}, {"find": "words"} '
    '(and "start"), or {"path": "$.items[0]"}.'
)
_COMBINATIONS = ({"start", "end"}, {"line"}, {"lines"}, {"find", "start"}, {"path"})
_STEP = re.compile(
    r"""\.(?P<key>[^.\[\]'"*\s]+) | \[\s*(?:
        (?P<star>\*) | (?P<index>-?\d{1,9}) | (?P<low>-?\d{0,9}):(?P<high>-?\d{0,9})
        | '(?P<single>[^']*)' | "(?P<double>[^"]*)" )\s*\]""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A piece of a result."""

    text: str
    handle: str = ""
    """The name under which to read on; empty if nothing is left."""
    start: int = 0
    end: int = 0
    total: int = 0
    """`start`, `end` and `total` count characters of the whole text."""
    note: str = ""
    """Says what is missing and which call reads on; empty if nothing is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A row of the index of kept results."""

    handle: str
    size: int
    """In bytes."""
    total: int
    """Characters of the whole text; the store may hold only the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    handle: str
    text: str
    lost: int
    """How many characters at the end were not kept."""


def is_handle(name: object) -> TypeGuard[str]:
    """Tell whether a name is the handle of a result rather than of a tool."""
    return isinstance(name, str) and _HANDLE.fullmatch(name) is not None


class Results:
    """The long results of one owner, such as a session."""

    def __init__(
        self,
        store: Store,
        owner: str,
        *,
        limit: int = PAGE_TOKENS,
        kept: int = KEPT_RESULTS,
        max_bytes: int = KEPT_BYTES,
    ) -> None:
        """`limit` is the tokens of a page; `kept` and `max_bytes` bound what the store holds."""
        for key, value, least in (
            ("limit", limit, MIN_TOKENS),
            ("kept", kept, 1),
            ("max_bytes", max_bytes, 4),
        ):
            if value < least:
                raise InvalidConfig(key, f"is {value}", remedy=f"Use at least {least}.")
        self._store = store
        self._owner = owner
        self._limit = limit
        self._kept = kept
        self._max_bytes = max_bytes

    def cut_page(self, text: str) -> Page:
        """Return the first page of a text, and keep the text if there are more."""
        if cut(text, 0, self._limit) == len(text):
            return Page(text=text, end=len(text), total=len(text))
        page = self._cut_piece(self._keep(text), 0)
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
            return self._read_path(kept, given["path"])
        if "find" in given:
            return self._find_words(kept, given)
        return self._cut_piece(kept, *self._find_range(kept.text, given))

    def clear(self) -> None:
        """Delete all results of this owner."""
        for entry in self._load_index():
            self._store.write(KIND, self._build_key(entry.handle), None)
        self._store.write(KIND, self._owner, None)

    def _find_range(self, text: str, given: Json) -> tuple[int, int]:
        if not given:
            return cut(text, 0, self._limit), len(text)
        if "line" in given:
            return _find_line_range(text, given["line"], None)
        if "lines" in given:
            return _find_line_range(text, *_read_pair(given["lines"]))
        start = _read_number(given, "start", 0, 0, len(text) - 1)
        return start, _read_number(given, "end", len(text), start + 1, len(text))

    def _cut_piece(self, kept: _Kept, start: int, stop: int | None = None) -> Page:
        """Return the page from `start`; its note says how to read on as far as `stop`."""
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
        note = f"{shown} {_suggest_call(kept.handle, further)}{f' {lost}' if kept.lost else ''}"
        return replace(page, handle=kept.handle, note=note)

    def _read_path(self, kept: _Kept, path: object) -> Page:
        if not isinstance(path, str):
            raise InvalidRequest("A path has to be text", remedy=_WAYS)
        try:
            root: object = json.loads(kept.text)
        except (ValueError, RecursionError):
            why = "was too long to keep all of it" if kept.lost else "is not JSON"
            raise InvalidRequest(
                f"The result {why}", remedy=f"A path needs JSON. {_WAYS}"
            ) from None
        return self.cut_page(_format_json(_evaluate_path(root, path)))

    def _find_words(self, kept: _Kept, given: Json) -> Page:
        words = given["find"]
        if not isinstance(words, str) or not 0 < len(words) <= MAX_WORDS:
            raise InvalidRequest(
                f"Give 1 to {MAX_WORDS} characters to find", remedy='Use {"find": "words"}.'
            )
        start = _read_number(given, "start", 0, 0, len(kept.text) - 1)
        return _Search(kept, words, start, self._limit).render_page()

    def _keep(self, text: str) -> _Kept:
        data = text.encode("utf-8", "surrogatepass")
        handle = f"{KIND}_{hashlib.sha256(data).hexdigest()[:10]}"
        data = _clip_bytes(data, self._max_bytes)
        entry = _Entry(handle=handle, size=len(data), total=len(text))
        self._store.write(KIND, self._build_key(handle), data)
        self._write_index([*(old for old in self._load_index() if old.handle != handle), entry])
        shown = data.decode("utf-8", "surrogatepass")
        return _Kept(handle=handle, text=shown, lost=len(text) - len(shown))

    def _write_index(self, entries: list[_Entry]) -> None:
        """Write the index, oldest first, and delete the oldest results beyond the limits."""
        while len(entries) > self._kept or sum(entry.size for entry in entries) > self._max_bytes:
            self._store.write(KIND, self._build_key(entries.pop(0).handle), None)
        rows = [[entry.handle, entry.size, entry.total] for entry in entries]
        self._store.write(KIND, self._owner, json.dumps(rows).encode())

    def _load_index(self) -> list[_Entry]:
        data = self._store.read(KIND, self._owner)
        rows: list[tuple[str, int, int]] = json.loads(data) if data else []
        return [_Entry(handle=handle, size=size, total=total) for handle, size, total in rows]

    def _load(self, handle: str) -> _Kept:
        data = self._store.read(KIND, self._build_key(handle)) if is_handle(handle) else None
        entry = next((entry for entry in self._load_index() if entry.handle == handle), None)
        if data is None or entry is None:
            raise UnknownResult(to_one_line(handle, 64))
        text = data.decode("utf-8", "surrogatepass")
        return _Kept(handle=handle, text=text, lost=entry.total - len(text))

    def _build_key(self, handle: str) -> str:
        return f"{self._owner}/{handle}"


class _Search:
    """Finds words in a kept text and renders as many matches as fit on a page."""

    def __init__(self, kept: _Kept, words: str, start: int, limit: int) -> None:
        self.kept = kept
        self.words = words
        self.limit = limit
        pattern = re.compile(re.escape(words), re.IGNORECASE)
        self.places = [found.start() for found in pattern.finditer(kept.text, start)]
        self.ends = _find_line_ends(kept.text)

    def render_page(self) -> Page:
        total, quoted = len(self.kept.text), to_one_line(self.words, 60)
        if not self.places:
            note = f"Nothing contains '{quoted}'. {_WAYS}"
            return Page(text="", handle=self.kept.handle, total=total, note=note)
        text, shown, end = self._render_matches()
        counted = f"{shown:,} of {len(self.places):,} matches of '{quoted}' are shown."
        if shown == len(self.places):
            around = {"line": self._find_line(self.places[0]) + 1}
            note = f"{counted} {_suggest_call(self.kept.handle, around, 'Read from one')}"
        else:
            note = (
                f"{counted} {_suggest_call(self.kept.handle, {'find': self.words, 'start': end})}"
            )
        return Page(
            text=text,
            handle=self.kept.handle,
            start=self.places[0],
            end=end,
            total=total,
            note=note,
        )

    def _render_matches(self) -> tuple[str, int, int]:
        """Return the text, how many matches it shows, and where it ends in the whole."""
        text, shown, end = "", 0, self.places[0]
        for entry, covered, stop in self._render_spots():
            longer = f"{text}\n{entry}" if text else entry
            if count_tokens_safely(longer) > self.limit:
                if text:
                    break
                longer = longer[: cut(longer, 0, self.limit)]
            text, shown, end = longer, shown + covered, stop
        return text, shown, end

    def _render_spots(self) -> Iterator[tuple[str, int, int]]:
        """Yield the text of each spot with matches, its number of matches, and where it ends."""
        at = 0
        while at < len(self.places):
            entry, stop = self._render_spot(self.places[at])
            after = bisect.bisect_left(self.places, stop, at + 1)
            yield entry, after - at, stop
            at = after

    def _render_spot(self, place: int) -> tuple[str, int]:
        line = self._find_line(place)
        low, high = self._find_bounds(line)
        if high - low > LONG_LINE:
            left = max(low, place - CONTEXT_CHARACTERS)
            right = min(high, place + len(self.words) + CONTEXT_CHARACTERS)
            return f"{line + 1} (character {left}): …{self.kept.text[left:right]}…", right
        rows = [self._render_context(line - 1), f"{line + 1}: {self.kept.text[low:high]}"]
        rows.append(self._render_context(line + 1))
        return "\n".join(filter(None, rows)), max(high, place + 1)

    def _render_context(self, line: int) -> str:
        if not 0 <= line < len(self.ends):
            return ""
        low, high = self._find_bounds(line)
        return f"{line + 1}- {self.kept.text[low : min(high, low + CONTEXT_CHARACTERS)]}"

    def _find_line(self, place: int) -> int:
        return bisect.bisect_right(self.ends, place)

    def _find_bounds(self, line: int) -> tuple[int, int]:
        """Return where a line begins and ends, without its line break."""
        low = self.ends[line - 1] if line else 0
        high = self.ends[line]
        return low, high - (self.kept.text[high - 1 : high] == "\n")


def _suggest_call(handle: str, arguments: Mapping[str, object], verb: str = "Read on") -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return f'{verb} with tool_call(name="{handle}", arguments={text}).'


def _read_number(given: Mapping[str, Any], key: str, default: int, low: int, high: int) -> int:
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


def _read_pair(value: object) -> tuple[object, object]:
    if not is_list(value) or len(value) != 2:
        raise InvalidRequest("'lines' needs two numbers", remedy='Use {"lines": [120, 180]}.')
    return value[0], value[1]


def _find_line_range(text: str, first: object, last: object) -> tuple[int, int]:
    """Return where the lines from `first` to `last` begin and end; None is the last line."""
    ends = _find_line_ends(text)
    low = _read_number({"line": first}, "line", 1, 1, len(ends))
    high = len(ends) if last is None else _read_number({"lines": last}, "lines", 1, low, len(ends))
    return (ends[low - 2] if low > 1 else 0), ends[high - 1]


def _find_line_ends(text: str) -> list[int]:
    """Return where each line ends, including its line break."""
    ends = [found.end() for found in re.finditer("\n", text)]
    return ends if text.endswith("\n") else [*ends, len(text)]


def _format_json(value: object) -> str:
    """Return JSON on one line if it is short, else with a line for each element."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= SHORT_JSON:
        return text
    if is_list(value):
        rows = [json.dumps(item, ensure_ascii=False) for item in value]
    elif is_object(value):
        # Each row is an object of one member without its braces.
        rows = [json.dumps({key: item}, ensure_ascii=False)[1:-1] for key, item in value.items()]
    else:
        return text
    lines = ",\n".join(rows)
    return f"{text[0]}\n{lines}\n{text[-1]}"


def _clip_bytes(data: bytes, size: int) -> bytes:
    """Return at most `size` bytes of UTF-8 without splitting a character."""
    while size < len(data) and data[size] & 0xC0 == 0x80:
        size -= 1
    return data[:size]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    text: str
    """The step as the model wrote it."""
    key: str | None = None
    index: int | None = None
    part: slice | None = None


def _evaluate_path(root: object, path: str) -> Any:
    """Return the value at a path, or raise `InvalidRequest` with the keys that exist."""
    nodes: list[Any] = [root]
    is_many = False
    walked = "$"
    for step in _parse_path(path):
        found = [_take_step(node, step) for node in nodes]
        if nodes and all(values is None for values in found):
            where = to_one_line(walked, 2 * SHOWN_KEY)
            raise InvalidRequest(
                f"{where!r} has nothing at {to_one_line(step.text, SHOWN_KEY)!r}",
                remedy=_describe_node(nodes[0], step),
            )
        is_many = is_many or step.part is not None
        nodes = [value for values in found if values for value in values]
        walked += step.text
    return nodes if is_many else nodes[0]


def _parse_path(path: str) -> list[_Step]:
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
        steps.append(_step_from_match(found))
        at = found.end()
    return steps


def _step_from_match(found: re.Match[str]) -> _Step:
    text = found.group()
    if found["star"]:
        return _Step(text=text, part=slice(None))
    if found["index"]:
        return _Step(text=text, index=int(found["index"]))
    if found["low"] is not None:
        return _Step(text=text, part=slice(_parse_bound(found["low"]), _parse_bound(found["high"])))
    key = next(found[name] for name in ("key", "single", "double") if found[name] is not None)
    return _Step(text=text, key=key)


def _parse_bound(text: str) -> int | None:
    return int(text) if text.strip("-") else None


def _take_step(node: object, step: _Step) -> list[Any] | None:
    """Return the values that one step leads to, or None if it leads nowhere."""
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


def _describe_node(node: object, step: _Step) -> str:
    if is_list(node):
        return f"It is a list of {len(node)}; use [n] with n below that, [a:b] or [*]."
    if not is_object(node):
        return "It is a single value; leave the rest of the path off."
    near = find_near_names((step.key or "")[:SHOWN_KEY], node)
    names = [*near, *(name for name in node if name not in near)]
    shown = ", ".join(to_one_line(name, SHOWN_KEY) for name in names[:SHOWN_KEYS])
    more = f", … ({len(names)} in all)" if len(names) > SHOWN_KEYS else ""
    return f"Keys there: {shown}{more}." if names else "It is an empty object."
