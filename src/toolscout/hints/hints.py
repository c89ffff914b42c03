"""`Hints`: what is known about tools besides their definitions, and where it comes from.

A hint is a line of words and short phrases that people use for a tool: "late invoices; who owes us
money". Searches match it as evidence of its own. It is never shown to a model or a client.

Written hints, and which hints are switched off, are kept in the store as a log of changes. A tool
is known there by the digest of its definition, so a hint outlives another name of its server, but
not another definition. Every process that shares the store replays the log, and `refresh` reads
what is new in it.
"""

import json
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from toolscout.errors import InvalidHint
from toolscout.hints.pack import HintPack, digest_definition
from toolscout.names import clean_text, to_one_line
from toolscout.schemas import Json, is_list, is_object
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
_WORD = re.compile(r"\w+")


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
    if not _WORD.search(line):
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
    if set(_WORD.findall(line.casefold())) <= set(_WORD.findall(known.casefold())):
        raise InvalidHint("only repeats the definition")
    return line
