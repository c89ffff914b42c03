"""Read tools and labelled queries from a folder.

A folder holds `tools.jsonl` (or `tools.jsonl.gz`): one object a line with `id`, `name`,
`description`, `input_schema`, `server`; and, where there are questions, `queries.jsonl`: `id`,
`query`, `relevant` (tool ids), and maybe `kind` and `split`. Gives a checked `Dataset`.

Ids are the truth, names need not be unique. Tools of equal (server, name) are variants of one
tool and form a *group*: finding any of them finds the group, once. Relevance is counted in groups.
Exposed names are made unique here (`name`, `name_2`, `name_3`, in file order).
It ranks nothing and ships no data.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, TextIO, cast

from toolscout.catalog import RESERVED_NAMES
from toolscout.errors import InvalidFile, InvalidTool
from toolscout.tools import Tool

Json = dict[str, Any]

TOOL_FILES = ("tools.jsonl", "tools.jsonl.gz")
QUERY_FILE = "queries.jsonl"
SAMPLE_SEED = 20260901
NAME_LENGTH = 64

_TOOL_REMEDY = 'Write {"id": "…", "name": "…", "description": "…", "input_schema": {…}} on a line.'
_QUERY_REMEDY = 'Write {"id": "…", "query": "…", "relevant": ["tool id", …]} on a line.'


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request and the tools that serve it."""

    id: str
    text: str
    relevant: tuple[str, ...]
    """Tool ids, at least one, all of them in the dataset."""
    kind: str = ""
    split: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Tools, and the questions asked of them."""

    name: str
    tools: tuple[Tool, ...]
    ids: tuple[str, ...]
    """The id of each tool, in the order of `tools`."""
    groups: tuple[int, ...]
    """The group of each tool, in the order of `tools`."""
    queries: tuple[Question, ...]

    def group_by_name(self) -> dict[str, int]:
        """Return the group of each exposed name."""
        return {tool.name: group for tool, group in zip(self.tools, self.groups, strict=True)}

    def find_relevant_groups(self) -> list[frozenset[int]]:
        """Return what each query wants, in groups."""
        group_of = dict(zip(self.ids, self.groups, strict=True))
        return [frozenset(group_of[key] for key in query.relevant) for query in self.queries]

    def sample(self, limit: int) -> "Dataset":
        """Return the dataset with at most `limit` queries, drawn at random from a fixed seed.

        They keep the order of the file, and a smaller sample is part of every larger one.
        """
        order = list(range(len(self.queries)))
        Random(f"{SAMPLE_SEED} {self.name}").shuffle(order)
        return replace(self, queries=tuple(self.queries[i] for i in sorted(order[:limit])))


def read_dataset(folder: str | Path) -> Dataset:
    """Return the dataset of a folder, with no queries where it has no `queries.jsonl`.

    Raises `InvalidFile` for whatever cannot be read, with its line.
    """
    folder = Path(folder)
    ids, tools = _read_tools(_find_tool_file(folder))
    queries = folder / QUERY_FILE
    return Dataset(
        name=folder.resolve().name,
        tools=tools,
        ids=ids,
        groups=_group_tools(tools),
        queries=_read_queries(queries, frozenset(ids)) if queries.exists() else (),
    )


def read_datasets(folders: Iterable[Path], *, limit: int | None = None) -> list[Dataset]:
    """Read datasets, at most `limit` queries of each, always the same ones.

    A folder with a tools file is one dataset; any other stands for all the datasets in it that
    have queries.
    """
    datasets = [read_dataset(inner) for folder in folders for inner in _find_labelled(folder)]
    return datasets if limit is None else [dataset.sample(limit) for dataset in datasets]


def _find_labelled(path: Path) -> list[Path]:
    if not path.is_dir() or _has_tools(path):
        return [path]
    inner = sorted(child for child in path.iterdir() if child.is_dir() and _has_tools(child))
    return [child for child in inner if (child / QUERY_FILE).exists()] or [path]


def make_names_unique(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools with a number behind every exposed name that came before or is ours."""
    taken = set(RESERVED_NAMES)
    unique: list[Tool] = []
    for tool in tools:
        name = _free_name(tool.name, taken)
        taken.add(name)
        unique.append(tool if name == tool.name else replace(tool, name=name))
    return tuple(unique)


def _free_name(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        ending = f"_{number}"
        free = name[: NAME_LENGTH - len(ending)] + ending
    return free


def _group_tools(tools: Sequence[Tool]) -> tuple[int, ...]:
    known: dict[tuple[str, str], int] = {}
    return tuple(known.setdefault((tool.server, tool.leaf), len(known)) for tool in tools)


def _has_tools(folder: Path) -> bool:
    return any((folder / name).exists() for name in TOOL_FILES)


def _find_tool_file(folder: Path) -> Path:
    for name in TOOL_FILES:
        if (folder / name).exists():
            return folder / name
    raise InvalidFile(
        str(folder),
        f"there is no {' or '.join(TOOL_FILES)}",
        remedy="Name a folder that holds one.",
    )


def _read_tools(path: Path) -> tuple[tuple[str, ...], tuple[Tool, ...]]:
    tools: dict[str, Tool] = {}
    for line, row in _read_rows(path, remedy=_TOOL_REMEDY):
        reader = _Reader(path, line, row, _TOOL_REMEDY)
        key = reader.read_text("id")
        if key in tools:
            raise reader.make_error(f"the id {key!r} came before")
        tools[key] = _tool_from_row(reader)
    return tuple(tools), make_names_unique(list(tools.values()))


def _tool_from_row(reader: "_Reader") -> Tool:
    try:
        return Tool.define(
            reader.read_text("name"),
            server=reader.read_text("server", optional=True),
            description=reader.read_text("description", optional=True),
            input_schema=reader.read_object("input_schema"),
        )
    except InvalidTool as error:
        raise reader.make_error(f"the tool {error.tool!r} {error.problem}") from error


def _read_queries(path: Path, ids: frozenset[str]) -> tuple[Question, ...]:
    queries: dict[str, Question] = {}
    for line, row in _read_rows(path, remedy=_QUERY_REMEDY):
        reader = _Reader(path, line, row, _QUERY_REMEDY)
        query = _question_from_row(reader)
        if query.id in queries:
            raise reader.make_error(f"the id {query.id!r} came before")
        unknown = [key for key in query.relevant if key not in ids]
        if unknown:
            names = ", ".join(repr(key) for key in unknown)
            raise reader.make_error(f"no tool has the relevant id {names}")
        queries[query.id] = query
    return tuple(queries.values())


def _question_from_row(reader: "_Reader") -> Question:
    return Question(
        id=reader.read_text("id"),
        text=reader.read_text("query"),
        relevant=reader.read_texts("relevant"),
        kind=reader.read_text("kind", optional=True),
        split=reader.read_text("split", optional=True),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """The checked fields of one line."""

    path: Path
    line: int
    row: Json
    remedy: str

    def make_error(self, problem: str) -> InvalidFile:
        return InvalidFile(str(self.path), problem, line=self.line, remedy=self.remedy)

    def read_text(self, key: str, *, optional: bool = False) -> str:
        value = self.row.get(key)
        if optional and value is None:
            return ""
        if not isinstance(value, str) or not (optional or value.strip()):
            raise self.make_error(f"{key!r} is not a text")
        return value

    def read_object(self, key: str) -> Json:
        value = self.row.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.make_error(f"{key!r} is not an object")
        return cast(Json, value)

    def read_texts(self, key: str) -> tuple[str, ...]:
        value = self.row.get(key)
        if not isinstance(value, list) or not value:
            raise self.make_error(f"{key!r} is not a list of ids")
        items = cast(list[object], value)
        if not all(isinstance(item, str) for item in items):
            raise self.make_error(f"{key!r} is not a list of ids")
        return tuple(dict.fromkeys(cast(list[str], items)))


def _read_rows(path: Path, *, remedy: str) -> Iterator[tuple[int, Json]]:
    """Yield each object with the number of its line; blank lines are passed over."""
    line = 0
    try:
        with _open_file(path) as file:
            for line, text in enumerate(file, start=1):
                if text.strip():
                    yield line, _object_from_text(text)
    except UnicodeDecodeError as error:
        raise InvalidFile(str(path), "it is not UTF-8", remedy=remedy) from error
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidFile(str(path), f"it cannot be read ({error})", remedy=remedy) from error
    except ValueError as error:
        raise InvalidFile(str(path), str(error), line=line, remedy=remedy) from error


def _open_file(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _object_from_text(text: str) -> Json:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg})") from error
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return cast(Json, value)
