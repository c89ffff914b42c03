"""Keep results that are too long for one reply, and read them page by page (R48).

`Results.cut_page` takes a tool's text and returns its first page; `Results.read` returns further
pages by place, line, words or JSON path. Pages are exact pieces of the text, so consecutive pages
make up the whole. The oldest results are deleted when there are too many or they are too large.
"""

import bisect
import hashlib
import json
import re
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from toolscout import errors
from toolscout.calls.cut import count_tokens_safely, cut
from toolscout.names import find_near_names, is_handle, to_one_line
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


class _Entry(NamedTuple):
    """A row of the index of kept results."""

    handle: str
    size: int
    """In bytes."""
    total: int
    """Characters of the whole text; the store may hold only the first of them."""


class _Kept(NamedTuple):
    handle: str
    text: str
    lost: int
    """How many characters at the end were not kept."""


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
        self._store = store
        self._owner = owner
        self.limit = limit
        self._kept = kept
        self._max_bytes = max_bytes
        self.on_keep: Callable[[str, int], None] = lambda key, size: None
        """Called with the key and the bytes of each text that was stored."""

    def cut_page(self, text: str) -> Page:
        """Return the first page of a text, and keep the text if there are more."""
        # A token has at least one character, so a short text needs no count.
        is_short = text.isascii() and len(text) <= self.limit
        if is_short or cut(text, 0, self.limit) == len(text):
            return Page(text=text, end=len(text), total=len(text))
        page = self._cut_piece(self._keep(text), 0)
        if not page.handle:
            return page
        return replace(page, note=f"{page.note} {errors.OTHER_WAYS}")

    def read(self, handle: str, arguments: Json) -> Page:
        """Return a further page, or raise `UnknownResult` or `InvalidRequest`.

        Without arguments it is the page after the first.
        """
        data = self._store.read(KIND, self._build_key(handle)) if is_handle(handle) else None
        entry = next((entry for entry in self._load_index() if entry.handle == handle), None)
        if data is None or entry is None:
            raise errors.UnknownResult(to_one_line(handle, 64))
        text = data.decode("utf-8", "surrogatepass")
        kept = _Kept(handle, text, lost=entry.total - len(text))
        given = {key: value for key, value in arguments.items() if value is not None}
        if not any(given.keys() <= ways for ways in _COMBINATIONS):
            named = ", ".join(to_one_line(str(key), 40) for key in list(given)[:8])
            raise errors.InvalidRequest.from_keys(named)
        if "path" in given:
            return self._read_path(kept, given["path"])
        if "find" in given:
            words = given["find"]
            if not isinstance(words, str) or not 0 < len(words) <= MAX_WORDS:
                raise errors.InvalidRequest.from_words(MAX_WORDS)
            start = _read_number("start", given.get("start", 0), 0, len(kept.text) - 1)
            return _search(kept, words, start, self.limit)
        return self._cut_piece(kept, *self._find_range(kept.text, given))

    def clear(self) -> None:
        """Delete all results of this owner."""
        for entry in self._load_index():
            self._store.write(KIND, self._build_key(entry.handle), None)
        self._store.write(KIND, self._owner, None)

    def _find_range(self, text: str, given: Json) -> tuple[int, int]:
        if not given:
            return cut(text, 0, self.limit), len(text)
        if "line" in given:
            return _find_line_range(text, given["line"], None)
        if "lines" in given:
            pair = given["lines"]
            if not is_list(pair) or len(pair) != 2:
                raise errors.InvalidRequest.from_lines()
            return _find_line_range(text, pair[0], pair[1])
        start = _read_number("start", given.get("start", 0), 0, len(text) - 1)
        end = _read_number("end", given.get("end", len(text)), start + 1, len(text))
        return start, end

    def _cut_piece(self, kept: _Kept, start: int, stop: int | None = None) -> Page:
        """Return the page from `start`; its note says how to read on as far as `stop`."""
        text = kept.text
        end = cut(text, start, self.limit, stop)
        page = Page(text=text[start:end], start=start, end=end, total=len(text))
        lost = errors.END_LOST.format(lost=kept.lost) if kept.lost else ""
        if end == len(text):
            return replace(page, note=lost)
        further: Json = {"start": end}
        if stop is not None and end < stop < len(text):
            further["end"] = stop
        part = errors.PART_SHOWN.format(start=start, end=end, total=len(text))
        notes = (part, errors.suggest_reading(kept.handle, further), lost)
        return replace(page, handle=kept.handle, note=" ".join(filter(None, notes)))

    def _read_path(self, kept: _Kept, path: object) -> Page:
        if not isinstance(path, str):
            raise errors.InvalidRequest.from_path(to_one_line(repr(path)[:100], SHOWN_KEY))
        try:
            root: object = json.loads(kept.text)
        except (ValueError, RecursionError):
            raise errors.InvalidRequest.from_text(is_cut=kept.lost > 0) from None
        return self.cut_page(_format_json(_evaluate_path(root, _parse_path(path))))

    def _keep(self, text: str) -> _Kept:
        data = text.encode("utf-8", "surrogatepass")
        handle = f"{KIND}_{hashlib.sha256(data).hexdigest()[:10]}"
        size = self._max_bytes  # less if that would split a character
        while size < len(data) and data[size] & 0xC0 == 0x80:
            size -= 1
        data = data[:size]
        self._store.write(KIND, self._build_key(handle), data)
        entries = [old for old in self._load_index() if old.handle != handle]
        entries.append(_Entry(handle, size=len(data), total=len(text)))
        while len(entries) > self._kept or sum(entry.size for entry in entries) > self._max_bytes:
            self._store.write(KIND, self._build_key(entries.pop(0).handle), None)
        self._store.write(KIND, self._owner, json.dumps(entries).encode())
        self.on_keep(self._build_key(handle), len(data))
        shown = data.decode("utf-8", "surrogatepass")
        return _Kept(handle, shown, lost=len(text) - len(shown))

    def list_sizes(self) -> dict[str, int]:
        """Return the keys of the kept results, oldest first, and their bytes."""
        return {self._build_key(entry.handle): entry.size for entry in self._load_index()}

    def _load_index(self) -> list[_Entry]:
        """Return the kept results, oldest first."""
        data = self._store.read(KIND, self._owner)
        return [_Entry(*row) for row in json.loads(data)] if data else []

    def _build_key(self, handle: str) -> str:
        return f"{self._owner}/{handle}"


def _search(kept: _Kept, words: str, start: int, limit: int) -> Page:
    """Return as many matches of some words, from `start` on, as fit on a page."""
    text = kept.text
    quoted = to_one_line(words, 60)
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    places = array("Q", (found.start() for found in pattern.finditer(text, start)))
    if not places:
        note = errors.report_matches(0, 0, quoted)
        return Page(text="", handle=kept.handle, total=len(text), note=note)
    ends = _find_line_ends(text)
    matches = ""
    shown = 0
    end = places[0]
    while shown < len(places):
        match, stop = _render_match(text, ends, places[shown], len(words))
        longer = f"{matches}\n{match}" if matches else match
        if count_tokens_safely(longer) > limit:
            if matches:
                break
            longer = longer[: cut(longer, 0, limit)]
        matches = longer
        end = stop
        shown = bisect.bisect_left(places, stop, shown + 1)
    if shown == len(places):
        first = {"line": bisect.bisect_right(ends, places[0]) + 1}
        step = errors.suggest_reading(kept.handle, first, "Read from one")
    else:
        step = errors.suggest_reading(kept.handle, {"find": words, "start": end})
    note = f"{errors.report_matches(shown, len(places), quoted)} {step}"
    return Page(
        text=matches, handle=kept.handle, start=places[0], end=end, total=len(text), note=note
    )


def _render_match(text: str, ends: Sequence[int], place: int, size: int) -> tuple[str, int]:
    """Return a match with its surroundings, and where they end."""
    line = bisect.bisect_right(ends, place)
    low, high = _find_line_bounds(text, ends, line)
    if high - low > LONG_LINE:
        left = max(low, place - CONTEXT_CHARACTERS)
        right = min(high, place + size + CONTEXT_CHARACTERS)
        return f"{line + 1} (character {left}): …{text[left:right]}…", right
    rows: list[str] = []
    for near in range(max(0, line - 1), min(line + 2, len(ends))):
        first, last = _find_line_bounds(text, ends, near)
        if near == line:
            rows.append(f"{near + 1}: {text[first:last]}")
        else:
            rows.append(f"{near + 1}- {text[first : min(last, first + CONTEXT_CHARACTERS)]}")
    return "\n".join(rows), max(high, place + 1)


def _find_line_bounds(text: str, ends: Sequence[int], line: int) -> tuple[int, int]:
    """Return where a line begins and ends, without its line break."""
    low = ends[line - 1] if line else 0
    high = ends[line]
    return low, high - (text[high - 1 : high] == "\n")


def _read_number(key: str, value: object, low: int, high: int) -> int:
    """Return a whole number, also one in quotes, or raise `InvalidRequest`."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 16:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise errors.InvalidRequest.from_number(key, to_one_line(repr(value)[:100], 40), low, high)
    return value


def _find_line_range(text: str, first: object, last: object) -> tuple[int, int]:
    """Return where the lines from `first` to `last` begin and end; None is the last line."""
    ends = _find_line_ends(text)
    low = _read_number("line", first, 1, len(ends))
    high = len(ends) if last is None else _read_number("lines", last, low, len(ends))
    return (ends[low - 2] if low > 1 else 0), ends[high - 1]


def _find_line_ends(text: str) -> Sequence[int]:
    """Return where each line ends, including its line break."""
    # A text of many megabytes may have as many lines, and a list takes 40 bytes for each.
    ends = array("Q", (found.end() for found in re.finditer("\n", text)))
    if not text.endswith("\n"):
        ends.append(len(text))
    return ends


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


def check_pick(path: object) -> None:
    """Raise `InvalidRequest` if a part of a result is to be picked at something that is no path."""
    try:
        _parse_path(path if isinstance(path, str) else "*")
    except errors.InvalidRequest:
        raise errors.InvalidRequest.from_pick(to_one_line(str(path)[:100], SHOWN_KEY)) from None


def pick_part(text: str, data: object, path: str) -> str:
    """Return the part at a path of structured content or JSON text, or raise `InvalidRequest`."""
    roots = [] if data is None else [data]
    with suppress(ValueError, RecursionError):
        roots.append(json.loads(text))
    problem = errors.InvalidRequest.from_result()
    for root in reversed(roots):
        try:
            return _format_json(_evaluate_path(root, _parse_path(path)))
        except errors.InvalidRequest as error:
            problem = error
    raise problem


class _Step(NamedTuple):
    text: str
    """The step as the model wrote it."""
    to: str | int | slice
    """A key, an index or several indexes."""


def _evaluate_path(root: object, steps: Sequence[_Step]) -> Any:
    """Return the value at a path, or raise `InvalidRequest` with the keys that exist.

    Steps are `.key`, `['key']`, `[n]` (from the end if negative), `[a:b]` and `[*]`; after a slice
    or a star, the rest applies to each element that has it. There are no filters, expressions or
    recursive descent, so a path's length bounds its cost.
    """
    nodes: list[Any] = [root]
    is_many = False
    walked = "$"
    for step in steps:
        found = [_take_step(node, step.to) for node in nodes]
        if nodes and all(values is None for values in found):
            raise _explain_dead_end(nodes[0], to_one_line(walked, 2 * SHOWN_KEY), step)
        is_many = is_many or isinstance(step.to, slice)
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
            raise errors.InvalidRequest.from_path(to_one_line(path, SHOWN_KEY))
        if found["star"]:
            to = slice(None)
        elif found["index"]:
            to = int(found["index"])
        elif found["low"] is not None:
            ends = found.group("low", "high")
            to = slice(*(int(end) if end.strip("-") else None for end in ends))
        else:
            to = next(key for key in found.group("key", "single", "double") if key is not None)
        steps.append(_Step(found.group(), to))
        at = found.end()
    return steps


def _take_step(node: object, to: str | int | slice) -> list[Any] | None:
    """Return the values that one step leads to, or None if it leads nowhere."""
    if is_object(node):
        if isinstance(to, str):
            return [node[to]] if to in node else None
        return list(node.values()) if to == slice(None) else None
    if not is_list(node) or isinstance(to, str):
        return None
    if isinstance(to, slice):
        return node[to]
    return [node[to]] if -len(node) <= to < len(node) else None


def _explain_dead_end(node: object, where: str, step: _Step) -> errors.InvalidRequest:
    keys: str | None = None
    if is_object(node):
        key = step.to if isinstance(step.to, str) else ""
        near = find_near_names(key[:SHOWN_KEY], node)
        names = [*near, *(name for name in node if name not in near)]
        keys = ", ".join(to_one_line(name, SHOWN_KEY) for name in names[:SHOWN_KEYS])
        if len(names) > SHOWN_KEYS:
            keys += f", … ({len(names)} in all)"
    size = len(node) if is_list(node) else None
    return errors.InvalidRequest.from_step(
        where, to_one_line(step.text, SHOWN_KEY), size=size, keys=keys
    )
