"""Learn what tools return: the names and types of fields in their results, never values.

`shape_from_json` reads one result, `merge_shapes` combines several, and `render_shape` writes the
outcome on one line. `ResultShapes` does this for all tools of a scout, in a thread, and keeps what
it has learned in the store. A result may be hostile: what is read, kept and shown of it is bounded,
and a key that looks like data rather than the name of a field becomes `*`.
"""

import json
import logging
import re
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from itertools import islice, pairwise
from typing import NamedTuple, TypeVar, cast

from toolscout.errors import ToolscoutError
from toolscout.names import clean_text, normalize
from toolscout.schemas import Json, is_list, is_object
from toolscout.stores.store import Store
from toolscout.tools import Tool

KIND = "shape"
FIELDS_KEPT = 60
"""Fields of one tool; the deepest are left out first."""
DEEPEST = 6
MEMBERS_READ = 50
"""An object with more members is a map from data to values."""
ITEMS_READ = 20
VALUES_READ = 1_000
TEXT_READ = 400_000
"""Characters of JSON text that are parsed."""
NAME_CHARS = 40
NAME_DIGITS = 3
NAME_WORDS = 6
LIKE_MEMBERS = 3
"""So many members of the same form are entries of a map."""
RANDOM_CHARS = 8
RANDOM_SHARE = 0.4
WAITING_RESULTS = 16
WAIT_SECONDS = 2.0
"""How long a description waits for what is being read."""
ALWAYS_LEARNED = 8
THEN_EVERY = 16
"""After the first results of a tool, only some are read."""
TOOLS_REMEMBERED = 1_000
TOOLS_STORED = 5_000

ITEM = "[]"
ANY_KEY = "*"
_OBJECT = "object"
_ARRAY = "array"
_TEXT = "text"
"""A result that is not JSON."""
_TYPES = (_OBJECT, _ARRAY, "string", "integer", "number", "boolean", "null", _TEXT)
_NAME = re.compile(r"[$@_]?[^\W\d_][\w-]*")
_ID = re.compile(r"(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}|(?=[A-Z]*\d)[0-9A-Z]{12,}")
_WORD = re.compile(r"[^\W_]+")
_DIGITS = re.compile(r"\d+")

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
Path = tuple[str, ...]
"""Where a value sits: names of fields, `[]` for items of a list, `*` for values of a map."""


class Field(NamedTuple):
    """What is known of the values at one path."""

    types: frozenset[str]
    is_optional: bool = False
    """Whether an object was seen without it."""


Shape = Mapping[Path, Field]


def shape_from_json(value: object) -> Shape:
    """Return the shape of one result; a part that is too large is read in part."""
    return _bound(_Reader().read(value, ()))


def merge_shapes(one: Shape, other: Shape) -> Shape:
    """Return what both shapes allow; the order of merging makes no difference."""
    merged: dict[Path, Field] = {}
    for path in one.keys() | other.keys():
        first = one.get(path)
        second = other.get(path)
        if first is not None and second is not None:
            is_optional = first.is_optional or second.is_optional
            merged[path] = Field(first.types | second.types, is_optional)
            continue
        field, rest = (second, one) if first is None else (first, other)
        parent = rest.get(path[:-1]) if path and path[-1] not in (ITEM, ANY_KEY) else None
        is_missing = parent is not None and _OBJECT in parent.types
        if field is not None:
            merged[path] = field._replace(is_optional=field.is_optional or is_missing)
    return _bound(merged)


def render_shape(shape: Shape) -> str:
    """Return a shape on one line, such as `{items: [{id: integer, title?}]}`.

    `?` marks fields that are not always there. Strings have no type.
    """
    return _render(shape, ()) if () in shape else ""


def _bound(shape: Shape) -> Shape:
    if len(shape) <= FIELDS_KEPT:
        return shape
    # Parents come before their children, so none of them is lost.
    return {path: shape[path] for path in sorted(shape, key=_order)[:FIELDS_KEPT]}


def _order(path: Path) -> tuple[int, Path]:
    return len(path), path


def _render(shape: Shape, path: Path) -> str:
    types = shape[path].types
    shown = sorted(types - ({"integer"} if "number" in types else set()), key=_TYPES.index)
    return "|".join(_render_type(shape, path, kind) for kind in shown)


def _render_type(shape: Shape, path: Path, kind: str) -> str:
    if kind == _ARRAY:
        return f"[{_render(shape, (*path, ITEM))}]" if (*path, ITEM) in shape else "[]"
    if kind != _OBJECT:
        return kind
    depth = len(path) + 1
    below = [p for p in shape if len(p) == depth and p[:-1] == path and p[-1] != ITEM]
    parts: list[str] = []
    for inner in sorted(below):
        mark = "?" if shape[inner].is_optional else ""
        type_ = _render(shape, inner)
        parts.append(f"{inner[-1]}{mark}" + ("" if type_ == "string" else f": {type_}"))
    return "{" + ", ".join(parts) + "}"


class _Reader:
    """Reads one value, up to a number of values inside it."""

    def __init__(self) -> None:
        self._left = VALUES_READ

    def read(self, value: object, path: Path) -> Shape:
        kind = _find_type(value)
        self._left -= 1
        if not kind or self._left < 0:
            return {}
        shape: Shape = {path: Field(frozenset({kind}))}
        if len(path) == DEEPEST:
            return shape
        if is_list(value):
            items: Shape = {}
            for item in value[:ITEMS_READ]:
                items = merge_shapes(items, self.read(item, (*path, ITEM)))
            return {**shape, **items}
        if is_object(value):
            return {**shape, **self._read_members(value, path)}
        return shape

    def _read_members(self, members: Json, path: Path) -> Shape:
        is_map = _is_map(members)
        fields: Shape = {}
        entries: Shape = {}
        for key, item in islice(members.items(), MEMBERS_READ):
            if is_map or not _is_field_name(key):
                entries = merge_shapes(entries, self.read(item, (*path, ANY_KEY)))
            else:
                fields = {**fields, **self.read(item, (*path, key))}
        return {**fields, **entries}


def _find_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case dict():
            return _OBJECT
        case list():
            return _ARRAY
        case _:
            return ""


def _is_map(members: Json) -> bool:
    """Tell whether the keys of an object are data: there are many, or its members are all alike."""
    if len(members) > MEMBERS_READ:
        return True
    stems = Counter(_DIGITS.sub("0", key) for key in members if _is_field_name(key))
    if any(count >= LIKE_MEMBERS for count in stems.values()):
        return True
    values = list(members.values())
    first = values[0] if values else None
    if len(values) < LIKE_MEMBERS or not is_object(first) or not first:
        return False
    return all(
        is_object(value) and len(value) <= MEMBERS_READ and value.keys() == first.keys()
        for value in values
    )


def _is_field_name(key: object) -> bool:
    """Tell whether a key is the name of a field, not an id, a date, an address or a sentence."""
    if not isinstance(key, str) or len(key) > NAME_CHARS or not _NAME.fullmatch(key):
        return False
    if not key.isascii() and (clean_text(key, NAME_CHARS) != key or normalize("NFKC", key) != key):
        return False
    digits = sum(char.isdigit() for char in key)
    is_data = digits > NAME_DIGITS or _ID.search(key) is not None or _is_random(key)
    return not is_data and len(_WORD.findall(key)) <= NAME_WORDS


def _is_random(key: str) -> bool:
    """Tell whether capitals and digits change with other letters as often as in a token."""
    letters = "".join(_WORD.findall(key))
    kinds = [1 if char.isupper() else 2 if char.isdigit() else 0 for char in letters]
    changes = sum(one != other for one, other in pairwise(kinds))
    return len(letters) >= RANDOM_CHARS and changes > RANDOM_SHARE * len(letters)


class _Learned(NamedTuple):
    fingerprint: str
    """Of the definition that the results belong to."""
    shape: Shape

    def is_of(self, tool: Tool) -> bool:
        """Tell whether the definition is still the same."""
        return self.fingerprint == tool.fingerprint

    def to_bytes(self) -> bytes:
        """Return it for the store."""
        rows = [
            [path, sorted(field.types), field.is_optional] for path, field in self.shape.items()
        ]
        return json.dumps({"fingerprint": self.fingerprint, "fields": rows}).encode()


class ResultShapes:
    """The shapes of all tools' results; threads may share it.

    A thread reads results and the store, so that neither holds up an answer.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.is_secret: Callable[[str], bool] = lambda name: False
        """Tells whether the name of a field must not be kept."""
        self._store = store
        self._known: OrderedDict[str, _Learned] = OrderedDict()
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._waiting: deque[tuple[Tool, str, object]] = deque()
        """Results to learn from; without text and data, a tool to look up in the store."""
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._is_late = False
        self._lock = threading.Lock()

    def learn(self, tool: Tool, text: str, data: object) -> None:
        """Take note of a result, as structured content or text; returns at once."""
        if data is None and not 0 < len(text) <= TEXT_READ:
            return
        with self._lock:
            seen = self._calls.pop(tool.name, 0) + 1
            _put(self._calls, tool.name, seen)
            if seen <= ALWAYS_LEARNED or seen % THEN_EVERY == 0:
                self._read_later(tool, text if data is None else "", data)

    def describe(self, tool: Tool) -> str:
        """Return the shape of a tool's results on one line; empty if it is not known.

        What is waiting is read first, unless the store is slow.
        """
        with self._lock:
            if tool.name not in self._known:
                self._read_later(tool, "", None)
        if not self._is_late:
            self._is_late = not self._is_idle.wait(WAIT_SECONDS)
        with self._lock:
            known = self._known.get(tool.name)
        return render_shape(known.shape) if known and known.is_of(tool) else ""

    def _read_later(self, tool: Tool, text: str, data: object) -> None:
        if len(self._waiting) >= WAITING_RESULTS:
            return
        self._waiting.append((tool, text, data))
        if self._is_idle.is_set():
            self._is_idle.clear()
            threading.Thread(target=self._read, name="toolscout-shapes", daemon=True).start()

    def _read(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_late = False
                    self._is_idle.set()
                    return
                tool, text, data = self._waiting.popleft()
                known = self._known.get(tool.name)
            try:
                before = known or self._recall(tool.name)
                learned = self._learn(tool, text, data, before if before.is_of(tool) else None)
            except ToolscoutError as error:
                _log.warning("The shape of a result of %s was not learned: %s", tool.name, error)
            except Exception:
                _log.exception("The shape of a result of %s was not learned.", tool.name)
            else:
                with self._lock:
                    _put(self._known, tool.name, learned or before)

    def _recall(self, name: str) -> _Learned:
        data = self._store.read(KIND, name) if self._store is not None else None
        return _learned_from_bytes(data or b"{}")

    def _learn(
        self, tool: Tool, text: str, data: object, before: _Learned | None
    ) -> _Learned | None:
        """Return what is known after a result, and store it; None if that is nothing new."""
        if data is None and not text:
            return None
        seen = shape_from_json(data) if data is not None else _shape_from_text(text)
        shape = {path: field for path, field in seen.items() if not any(map(self.is_secret, path))}
        after = merge_shapes(before.shape, shape) if before else shape
        if before and after == before.shape:
            return None
        learned = _Learned(tool.fingerprint, after)
        if self._store is not None:
            self._store.write(KIND, tool.name, learned.to_bytes())
            if before is None:
                for key in self._store.keys(KIND)[TOOLS_STORED:]:
                    self._store.write(KIND, key, None)
        return learned


def _put(held: OrderedDict[str, _T], name: str, value: _T) -> None:
    """Put a value to the end, and drop the oldest if there are too many."""
    held[name] = value
    held.move_to_end(name)
    if len(held) > TOOLS_REMEMBERED:
        held.popitem(last=False)


def forget_shapes(store: Store, prefix: str) -> None:
    """Delete what was learned of all tools whose names begin so."""
    for key in store.keys(KIND):
        if key.startswith(prefix):
            store.write(KIND, key, None)


def _shape_from_text(text: str) -> Shape:
    if text.lstrip()[:1] in ("{", "["):
        try:
            return shape_from_json(json.loads(text))
        except (ValueError, RecursionError):
            pass
    return {(): Field(frozenset({_TEXT}))}


def _learned_from_bytes(data: bytes) -> _Learned:
    """Return what is stored, or nothing if another version wrote it."""
    try:
        row = cast("Json", json.loads(data))
        shape: dict[Path, Field] = {}
        for steps, types, is_optional in row["fields"]:
            if all(step in (ITEM, ANY_KEY) or _is_field_name(step) for step in steps):
                shape[tuple(steps)] = Field(frozenset(types) & {*_TYPES}, is_optional is True)
        return _Learned(str(row["fingerprint"]), _bound(shape))
    except (ValueError, TypeError, KeyError, RecursionError):
        return _Learned("", {})
