"""`Hints`: what is known about tools besides their definitions, and where it comes from.

A hint is a line of words and short phrases that people use for a tool: "late invoices; who owes us
money". Searches match it as evidence of its own. It is never shown to a model or a client.

Shipped hints are a `HintPack`: one file of arrays, as `training/pack.py` writes it. The same
definition has the same hint, whatever its server is called here. A definition that was reworded
still matches by its leaf name and a description that is much alike. A leaf name says little about
what a tool does (every tracker has a `list_projects`), so it also counts whether the tool's server,
name or description mentions the service that the hint was written for; a tool of another service
gets nothing.

Written hints, and which hints are switched off, are kept in the store as a log of changes. A tool
is known there by the digest of its definition, so a hint outlives another name of its server, but
not another definition. Every process that shares the store replays the log, and `refresh` reads
what is new in it.
"""

import hashlib
import json
import re
import threading
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import check_file
from toolscout.errors import InvalidFile, InvalidHint
from toolscout.names import clean_text, fold_name, normalize, to_one_line
from toolscout.schemas import Json, is_list, is_object, to_canonical_json
from toolscout.settings import HintUse, Settings
from toolscout.stores.memory import MemoryStore
from toolscout.stores.store import Store
from toolscout.tools import Tool

HINTS_KIND = "hints"
HINT_CHARS = 400
HINT_WORDS = 40
READ_CHARS = 4 * HINT_CHARS
"""A longer text is refused before it is cleaned."""
AUTHOR_CHARS = 80
SPARE_ROWS = 1_000
"""The log may have this many rows more than twice those in use before it is written anew."""
ALL_SHIPPED = "shipped"
"""The row that switches off all shipped hints; digests have digits only."""

Listener = Callable[[Collection[str]], None]
"""Receives the definition digests whose hints have changed."""
_LETTERS = re.compile(r"\w+")

PACK_FILE = Path(__file__).parent / "shipped.npz"
PACK_SHA256 = "3c3ab269a781d054c1c771c00971b1d894405156a9622b9a3d4c39ada49b5aa7"

DIGEST_DIGITS = 32
DESCRIPTION_WORDS = 16
DESCRIPTION_CHARS = 400
PARAMETERS = 12
WORD_LETTERS = 6
"""Words are cut to these letters, so that "create" and "created" are one word."""

# Chosen on tools of other versions and of other services; see "The pack" in docs/hints.md.
LIKE_OF_SERVICE = 0.25
"""How much alike descriptions must be if the tool mentions the service of the hint."""
LIKE_OF_ONE = 0.6
"""The same, if it does not and no other service in the pack has a tool of that name."""
LIKE_OF_MANY = 0.8
"""The same, if another service has one, or if the tool's server is called like another service."""
SERVICE_BONUS = 0.3
"""What mentioning the service is worth when hints of several services compete."""
TIE = 0.05
TELLING_WORDS = 4
"""A definition with fewer words besides its name could be any service's."""
COPY_WORDS = 10
"""A definition with so many words is not written twice: the same one is a copy of the tool."""

_STOP_TEXT = (
    "a an and are as at be by for from in is it its of on or that the this to use used using with "
    "you your"
)
_STOP_WORDS = frozenset(_STOP_TEXT.split())
_EAST_ASIAN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_EAST_ASIAN}]|[^\W_{_EAST_ASIAN}]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ARGUMENTS = re.compile(r"\b(?:args|arguments|parameters|returns|raises|examples?|usage)\s*:")
_DAMAGE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error)


# Shipped hints, and how their tools are recognised.


def digest_definition(tool: Tool) -> str:
    """Return hex digits that stand for a definition, whatever its server is called here.

    Leaf, description and the names of parameters count; case, white space, order and the ways in
    which Unicode writes the same letter do not.
    """
    description = " ".join(_fold_text(tool.description).split())
    names = sorted(map(_fold_text, _list_parameter_names(tool)))
    content = to_canonical_json([fold_name(tool.leaf), description, names])
    return hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS]


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case; a Chinese character is a word."""
    return _WORD.findall(_fold_text(text))


def split_name(name: str) -> list[str]:
    """Return the words of a tool's name."""
    return split_words(_CAMEL.sub(" ", name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackEntry:
    """One hint of a pack, and what it takes to recognise its tool."""

    leaf: int
    definition: int
    words: bytes
    """One byte for each word of the description and each parameter, in order."""
    services: str
    """The words that name the tool's service, with blanks between them."""
    hint: str

    @classmethod
    def from_tool(cls, tool: Tool, hint: str, *, services: str) -> Self:
        """Return the entry for a tool."""
        return cls(
            leaf=_hash_leaf(tool.leaf),
            definition=_hash_definition(tool),
            words=bytes(sorted(_hash_words(_list_description_words(tool), tool))),
            services=services,
            hint=hint,
        )


class HintPack:
    """Hints for public MCP tools; threads may share it.

    The file is read when the first tool is looked up.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _shipped: ClassVar["HintPack | None"] = None

    def __init__(self, file: Path, *, sha256: str = "") -> None:
        self._file = file
        self._sha256 = sha256

    @classmethod
    def load_shipped(cls) -> "HintPack":
        """Return the pack that ships with toolscout, the same one each time."""
        with cls._lock:
            if cls._shipped is None:
                cls._shipped = HintPack(PACK_FILE, sha256=PACK_SHA256)
            return cls._shipped

    def find(self, tool: Tool) -> str:
        """Return the hint of a tool with this definition, or an empty text.

        Raises `InvalidFile` if the pack is missing or damaged.
        """
        content = self._content
        rows = content.find_leaf(_hash_leaf(tool.leaf))
        if not len(rows):
            return ""
        match = _choose(content, _Question(tool), rows.tolist())
        return "" if match is None else content.read_hint(match)

    def list_entries(self) -> Iterator[PackEntry]:
        """Yield everything in the pack, server by server."""
        content = self._content
        for row in range(len(content.definitions)):
            yield content.read_entry(row)

    @property
    def common_words(self) -> frozenset[str]:
        """Words that name a service and that many definitions of other services have too."""
        return self._content.common

    @property
    def _content(self) -> "_Content":
        with self._lock:
            return self._loaded

    @cached_property
    def _loaded(self) -> "_Content":
        remedy = "Reinstall toolscout." if self._sha256 else "Build it with training/pack.py."
        if self._sha256:
            check_file(self._file, self._sha256, remedy=remedy)
        try:
            with np.load(self._file, allow_pickle=False) as parts:
                return _Content({name: parts[name] for name in parts.files})
        except _DAMAGE as error:
            raise InvalidFile(
                str(self._file), f"is not a pack of hints ({error})", remedy=remedy
            ) from error


class _Question:
    """What the pack needs to know of a tool; most of it only if no definition is the same."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.definition = _hash_definition(tool)
        self.server = {*split_words(tool.server), fold_name(tool.server)}

    @cached_property
    def description(self) -> list[str]:
        """The first words of the description."""
        return _list_description_words(self._tool)

    @cached_property
    def words(self) -> set[int]:
        """The words of the description and the parameters, as numbers."""
        return _hash_words(self.description, self._tool)

    @cached_property
    def is_telling(self) -> bool:
        """Whether the definition says more than the name of the tool."""
        name = split_name(self._tool.leaf)
        return len(self.words - _hash_description(name)) >= TELLING_WORDS

    @cached_property
    def _mentioned(self) -> set[str]:
        return {*self.description, *split_name(self._tool.leaf)}

    def is_of_service(self, services: Collection[str], common: frozenset[str]) -> bool:
        """Tell whether the tool's server, name or description names a service.

        A common word, such as "files", counts in the name of the server only.
        """
        if not self.server.isdisjoint(services):
            return True
        return any(word in self._mentioned and word not in common for word in services)


def _choose(content: "_Content", question: _Question, rows: list[int]) -> int | None:
    """Return which of the rows of a leaf describes the same tool, if any does."""
    rated: list[tuple[float, float, bool, int]] = []
    for row in rows:
        likeness = 1.0
        if content.definitions[row] != question.definition:
            likeness = _compare(question.words, content.read_words(row))
        known = question.is_of_service(content.read_services(row), content.common)
        rated.append((likeness + SERVICE_BONUS * known, likeness, known, row))
    score, likeness, known, best = max(rated, key=lambda entry: entry[:3])
    if known:
        return best if likeness >= LIKE_OF_SERVICE else None
    is_same = content.definitions[best] == question.definition
    if is_same and len(question.words) >= COPY_WORDS:
        return best
    own = content.read_services(best)
    others = [entry for entry in rated if not own & content.read_services(entry[3])]
    if any(entry[0] > score - TIE for entry in others):
        return None
    if is_same and question.description and not others:
        return best
    is_foreign = bool(others or question.server & content.names)
    enough = LIKE_OF_MANY if is_foreign else LIKE_OF_ONE
    return best if question.is_telling and likeness >= enough else None


def _compare(ours: set[int], theirs: set[int]) -> float:
    """Return the share of words that two descriptions have in common."""
    return len(ours & theirs) / (len(ours | theirs) or 1)


class _Content:
    """The arrays of a pack. A hint is kept as numbers of words."""

    def __init__(self, parts: dict[str, NDArray[Any]]) -> None:
        self._row_leaves = parts["leaves"]
        self._order = np.argsort(self._row_leaves, kind="stable")
        self._leaves = self._row_leaves[self._order]
        self._servers = parts["servers"]
        self._words = parts["words"].tobytes()
        self._word_ends = _add_up(parts["word_counts"])
        self._tokens = parts["tokens"]
        self._token_ends = _add_up(parts["token_counts"])
        self._vocabulary = parts["vocabulary"]
        self._services = _to_text(parts["services"]).split("\n")
        self.definitions = parts["definitions"]
        self.common = frozenset(_to_text(parts["common"]).split())
        self.names = frozenset(" ".join(self._services).split()) - self.common
        """Words that name a service in the pack and little else."""
        rows = len(self.definitions)
        lengths = {len(self._leaves), len(self._servers)}
        lengths |= {len(self._word_ends) - 1, len(self._token_ends) - 1}
        if lengths != {rows}:
            raise ValueError("its arrays differ in length")

    def find_leaf(self, leaf: int) -> NDArray[np.intp]:
        """Return the rows of the tools with a leaf name."""
        key = np.uint32(leaf)
        begin = self._leaves.searchsorted(key, "left")
        end = self._leaves.searchsorted(key, "right")
        return self._order[begin:end]

    def read_words(self, row: int) -> set[int]:
        """Return the words of a tool's definition."""
        return set(self._add_steps(row))

    def read_services(self, row: int) -> frozenset[str]:
        """Return the words that name a tool's service."""
        return frozenset(self._services[int(self._servers[row])].split())

    def read_hint(self, row: int) -> str:
        """Return the text of a hint."""
        numbers: list[int]
        numbers = self._tokens[self._token_ends[row] : self._token_ends[row + 1]].tolist()
        return " ".join([self._token_texts[number] for number in numbers]).replace(" ;", ";")

    def read_entry(self, row: int) -> PackEntry:
        """Return everything about one tool."""
        return PackEntry(
            leaf=int(self._row_leaves[row]),
            definition=int(self.definitions[row]),
            words=bytes(self._add_steps(row)),
            services=self._services[int(self._servers[row])],
            hint=self.read_hint(row),
        )

    def _add_steps(self, row: int) -> Iterator[int]:
        return accumulate(self._words[self._word_ends[row] : self._word_ends[row + 1]])

    @cached_property
    def _token_texts(self) -> list[str]:
        return _to_text(self._vocabulary).split("\n")


def _fold_text(text: str) -> str:
    return text.lower() if text.isascii() else normalize("NFKC", text).casefold()


def _list_parameter_names(tool: Tool) -> list[str]:
    properties = tool.input_schema.get("properties")
    return list(properties) if is_object(properties) else []


def _list_description_words(tool: Tool) -> list[str]:
    """Return the first words of a description, without what it says about arguments."""
    text = _fold_text(tool.description[:DESCRIPTION_CHARS])
    arguments = _ARGUMENTS.search(text)
    words = _WORD.findall(text[: arguments.start()] if arguments else text)
    new = dict.fromkeys(words)
    return [word for word in new if word not in _STOP_WORDS][:DESCRIPTION_WORDS]


def _hash_leaf(leaf: str) -> int:
    return zlib.crc32(fold_name(leaf).encode("utf-8", "surrogatepass"))


def _hash_definition(tool: Tool) -> int:
    return int(digest_definition(tool)[:8], 16)


def _hash_words(description: Iterable[str], tool: Tool) -> set[int]:
    words = _hash_description(description)
    for name in _list_parameter_names(tool)[:PARAMETERS]:
        words.add(zlib.crc32(b"parameter " + fold_name(name).encode("utf-8", "replace")) & 0xFF)
    return words


def _hash_description(words: Iterable[str]) -> set[int]:
    cut = [word.rstrip("s")[:WORD_LETTERS] for word in words]
    return {zlib.crc32(word.encode("utf-8", "replace")) & 0xFF for word in cut}


def _add_up(counts: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _to_text(data: NDArray[Any]) -> str:
    return data.tobytes().decode()


# All hints together.


class Source(StrEnum):
    """Where a hint comes from."""

    SHIPPED = "shipped"
    """Comes with toolscout, for public MCP tools."""
    WRITTEN = "written"
    """Written for this installation, by a model or by a person; replaces a shipped one."""
    CONFIGURED = "configured"
    """Given with the tool: by the configuration or by its author."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A line of words for one tool."""

    text: str
    source: Source
    by: str = ""
    """Who wrote it, such as `person` or `model NAME`; empty unless its source is `written`."""
    at: str = ""
    """When it was written, in ISO format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What the store has for one digest."""

    digest: str
    text: str = ""
    by: str = ""
    at: str = ""
    is_off: bool = False
    version: int = 0
    """Counts the changes; of two rows, the one with the higher number is newer."""

    @classmethod
    def from_json(cls, value: object) -> "_Row | None":
        """Return a row of the store, or None if it cannot be read."""
        if not is_object(value):
            return None
        digest = value.get("digest")
        version = value.get("version")
        texts = [value.get(key, "") for key in ("text", "by", "at")]
        if not isinstance(digest, str) or not isinstance(version, int):
            return None
        if not all(isinstance(text, str) for text in texts):
            return None
        text, by, at = map(str, texts)
        is_off = value.get("off") is True
        return cls(digest=digest, text=text, by=by, at=at, is_off=is_off, version=version)

    def to_json(self) -> Json:
        """Return it as the store keeps it."""
        row: Json = {"digest": self.digest, "version": self.version}
        if self.text:
            row |= {"text": self.text, "by": self.by, "at": self.at}
        return row | ({"off": True} if self.is_off else {})


class Hints:
    """Finds the hints of tools, and keeps those that were written; threads may share it.

    `pack` has the shipped hints. Without a `store`, written hints live as long as this object.
    Every method but `find` may block.
    """

    def __init__(self, pack: HintPack | None = None, store: Store | None = None) -> None:
        self._pack = pack
        self._store = MemoryStore() if store is None else store
        self._lock = threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._seen = 0
        """The number of the last entry of the log that was read."""
        self._logged = 0
        """How many rows the log has."""
        self._found: set[str] = set()
        """The digests for which the pack had a hint, which change if all of it is switched off."""
        self._listeners: list[Listener] = []
        self.refresh()

    @classmethod
    def from_settings(cls, settings: Settings, store: Store | None = None) -> Self | None:
        """Return the hints that settings ask for, or None if they ask for none."""
        if settings.hints is HintUse.OFF:
            return None
        is_shipped = settings.hints is HintUse.SHIPPED
        return cls(HintPack.load_shipped() if is_shipped else None, store)

    @property
    def has_shipped(self) -> bool:
        """Whether shipped hints are used."""
        return self._pack is not None and not self._is_off(ALL_SHIPPED)

    def find(self, tool: Tool) -> tuple[Hint, ...]:
        """Return what is known about a tool: a configured hint, and a written or a shipped one."""
        found = [Hint(tool.hint, Source.CONFIGURED)] if tool.hint else []
        if self._rows or self._pack is not None:
            digest = digest_definition(tool)
            row = self._rows.get(digest)
            # Noted even if it does not count now, so that a change of that is reported.
            shipped = self._pack.find(tool) if self._pack is not None else ""
            if shipped:
                self._found.add(digest)
            if row is not None and row.is_off:
                return tuple(found)
            if row is not None and row.text:
                found.append(Hint(row.text, Source.WRITTEN, row.by, row.at))
            elif shipped and not self._is_off(ALL_SHIPPED):
                found.append(Hint(shipped, Source.SHIPPED))
        return tuple(found)

    def is_off(self, tool: Tool) -> bool:
        """Tell whether the written and shipped hints of a tool are switched off."""
        return self._is_off(digest_definition(tool))

    def list_missing(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools without any hint, one for each definition; not those switched off."""
        missing: dict[str, Tool] = {}
        for tool in tools:
            if not self.find(tool) and not self.is_off(tool):
                missing.setdefault(digest_definition(tool), tool)
        return list(missing.values())

    def add(self, texts: Mapping[str, str], *, by: str) -> None:
        """Keep hints by digest, all of them or, if one is refused by `InvalidHint`, none.

        A hint replaces the one that was written before. What is switched off stays so.
        """
        clean = {digest: clean_hint(text) for digest, text in texts.items()}
        author = to_one_line(by, AUTHOR_CHARS)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self.refresh()
        self._write(
            _Row(digest=digest, text=text, by=author, at=at, is_off=self._is_off(digest))
            for digest, text in clean.items()
        )

    def remove(self, digests: Iterable[str]) -> None:
        """Forget the hints that were written for some definitions."""
        self.refresh()
        known = [row for digest in digests if (row := self._rows.get(digest)) is not None]
        self._write([_Row(digest=row.digest, is_off=row.is_off) for row in known if row.text])

    def set_off(self, digests: Iterable[str], is_off: bool) -> None:
        """Switch the written and shipped hints of some definitions off, or on again."""
        self.refresh()
        rows: list[_Row] = []
        for digest in dict.fromkeys(digests):
            row = self._rows.get(digest, _Row(digest=digest))
            if row.is_off != is_off:
                new = _Row(digest=digest, text=row.text, by=row.by, at=row.at, is_off=is_off)
                rows.append(new)
        self._write(rows)

    def set_shipped_off(self, is_off: bool) -> None:
        """Switch all shipped hints off, or on again."""
        self.set_off([ALL_SHIPPED], is_off)

    def refresh(self) -> None:
        """Read what others have changed in the store, and tell the listeners."""
        with self._lock:
            changed = self._read_news()
        if changed:
            for listener in tuple(self._listeners):
                listener(changed)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a listener after hints have changed, in the thread that notices; returns the end."""
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def _is_off(self, digest: str) -> bool:
        row = self._rows.get(digest)
        return row is not None and row.is_off

    def _write(self, rows: Iterable[_Row]) -> None:
        """Add changes to the log, in one entry, so that all of them are kept or none is.

        Call `refresh` before: a change of an older row would not count.
        """
        changes = [row.to_json() | {"version": self._compute_version(row.digest)} for row in rows]
        if not changes:
            return
        self._store.append(HINTS_KIND, json.dumps(changes, ensure_ascii=False).encode())
        self.refresh()
        with self._lock:
            if self._logged > 2 * len(self._rows) + SPARE_ROWS:
                self._rewrite()

    def _compute_version(self, digest: str) -> int:
        row = self._rows.get(digest)
        return 1 if row is None else row.version + 1

    def _rewrite(self) -> None:
        """Write what is in use once more, and delete the entries before it.

        What another process writes meanwhile has a higher version and is not deleted.
        """
        rows = [row.to_json() for row in self._rows.values()]
        last = self._seen
        self._store.append(HINTS_KIND, json.dumps(rows, ensure_ascii=False).encode())
        self._store.trim(HINTS_KIND, 0, through=last)
        self._logged = 0
        self._read_news()

    def _read_news(self) -> set[str]:
        changed: set[str] = set()
        for number, entry in self._store.scan(HINTS_KIND, self._seen):
            self._seen = number
            rows: object = json.loads(entry)
            for row in map(_Row.from_json, rows if is_list(rows) else ()):
                self._logged += 1
                if row is not None and self._apply(row):
                    changed |= self._found if row.digest == ALL_SHIPPED else {row.digest}
        return changed

    def _apply(self, row: _Row) -> bool:
        """Take over a row unless a newer one is known; tell whether that changes anything."""
        known = self._rows.get(row.digest, _Row(digest=row.digest))
        if row.version < known.version:
            return False
        self._rows[row.digest] = row
        return (row.text, row.is_off) != (known.text, known.is_off)


def clean_hint(text: str) -> str:
    """Return a hint on one line and without invisible characters, or raise `InvalidHint`."""
    if len(text) > READ_CHARS:
        raise InvalidHint(f"has {len(text):,} characters; at most {HINT_CHARS} are allowed")
    line = " ".join(clean_text(text, READ_CHARS).split())
    if not _LETTERS.search(line):
        raise InvalidHint("is empty")
    if len(line) > HINT_CHARS:
        raise InvalidHint(f"has {len(line):,} characters; at most {HINT_CHARS} are allowed")
    words = len(line.split())
    if words > HINT_WORDS:
        raise InvalidHint(f"has {words} words; at most {HINT_WORDS} are allowed")
    return line


def check_hint(tool: Tool, text: str) -> str:
    """Return a clean hint that adds something to a tool's definition, or raise `InvalidHint`."""
    line = clean_hint(text)
    known = f"{tool.leaf} {tool.leaf.replace('_', ' ')} {tool.title} {tool.description}"
    if set(_LETTERS.findall(line.casefold())) <= set(_LETTERS.findall(known.casefold())):
        raise InvalidHint("only repeats the definition")
    return line
