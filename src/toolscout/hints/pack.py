"""The hints that ship with toolscout, matched to tools by their definitions.

The same definition has the same hint, whatever its server is called here. A definition that was
reworded still matches by its leaf name and a description that is much alike. A leaf name says
little about what a tool does (every tracker has a `list_projects`), so it also counts whether the
tool's server, name or description mentions the service that the hint was written for; a tool of
another service gets nothing.

A pack is one file of arrays, as `training/pack.py` writes it.
"""

import hashlib
import re
import threading
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import check_file
from toolscout.errors import InvalidFile
from toolscout.names import fold_name, normalize
from toolscout.schemas import is_object, to_canonical_json
from toolscout.tools import Tool

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
