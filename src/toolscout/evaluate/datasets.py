"""Read tools and labelled queries from a folder.

A folder holds `tools.jsonl` (or `tools.jsonl.gz`) with `id`, `name`, `description`, `input_schema`
and `server` on each line, and maybe `queries.jsonl` with `id`, `query`, `relevant` (tool ids), and
optionally `kind` and `split`. Exposed names are made unique here. Tools of equal server and name
are variants of one tool and form a *group*: finding any of them finds the group, once.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import cast

from toolscout.catalog import RESERVED_NAMES
from toolscout.errors import InvalidFile, InvalidTool
from toolscout.names import NAME_LIMIT
from toolscout.schemas import Json, is_list, is_object
from toolscout.tools import Tool

TOOL_FILES = ("tools.jsonl", "tools.jsonl.gz")
QUERY_FILE = "queries.jsonl"
SAMPLE_SEED = 20260901

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
    tool_file = _find_tool_file(folder)
    if tool_file is None:
        problem = f"there is no {' or '.join(TOOL_FILES)}"
        raise InvalidFile(str(folder), problem, remedy="Name a folder that holds one.")
    tools = _read_tools(tool_file)
    queries = folder / QUERY_FILE
    known: dict[tuple[str, str], int] = {}
    groups = [known.setdefault((tool.server, tool.leaf), len(known)) for tool in tools.values()]
    return Dataset(
        name=folder.resolve().name,
        tools=make_names_unique(tuple(tools.values())),
        ids=tuple(tools),
        groups=tuple(groups),
        queries=_read_queries(queries, tools.keys()) if queries.exists() else (),
    )


def read_datasets(folders: Iterable[Path], *, limit: int | None = None) -> list[Dataset]:
    """Read datasets, at most `limit` queries of each, always the same ones.

    A folder with a tools file is one dataset; any other stands for all the datasets in it that
    have queries.
    """
    datasets = [read_dataset(inner) for folder in folders for inner in _find_labelled(folder)]
    return datasets if limit is None else [dataset.sample(limit) for dataset in datasets]


def _find_labelled(path: Path) -> list[Path]:
    if not path.is_dir() or _find_tool_file(path):
        return [path]
    inner = [child for child in path.iterdir() if child.is_dir() and _find_tool_file(child)]
    return sorted(child for child in inner if (child / QUERY_FILE).exists()) or [path]


def make_names_unique(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools with a number behind every exposed name that came before or is ours."""
    taken = set(RESERVED_NAMES)
    unique: list[Tool] = []
    for tool in tools:
        name = tool.name
        number = 1
        while name in taken:
            number += 1
            ending = f"_{number}"
            name = tool.name[: NAME_LIMIT - len(ending)] + ending
        taken.add(name)
        unique.append(tool if name == tool.name else replace(tool, name=name))
    return tuple(unique)


def _find_tool_file(folder: Path) -> Path | None:
    return next((folder / name for name in TOOL_FILES if (folder / name).exists()), None)


def _read_tools(path: Path) -> dict[str, Tool]:
    """Return the tools of a file by their ids."""
    tools: dict[str, Tool] = {}

    def add(row: Json) -> None:
        key = _get_text(row, "id")
        if key in tools:
            raise ValueError(f"the id {key!r} came before")
        schema = row.get("input_schema")
        if schema is not None and not is_object(schema):
            raise ValueError("'input_schema' is not an object")
        try:
            tools[key] = Tool.define(
                _get_text(row, "name"),
                server=_get_text(row, "server", optional=True),
                description=_get_text(row, "description", optional=True),
                input_schema=schema or {},
            )
        except InvalidTool as error:
            raise ValueError(f"the tool {error.tool!r} {error.problem}") from error

    _read_rows(path, _TOOL_REMEDY, add)
    return tools


def _read_queries(path: Path, ids: Collection[str]) -> tuple[Question, ...]:
    queries: dict[str, Question] = {}

    def add(row: Json) -> None:
        relevant = row.get("relevant")
        is_texts = is_list(relevant) and all(isinstance(item, str) for item in relevant)
        if not relevant or not is_texts:
            raise ValueError("'relevant' is not a list of ids")
        query = Question(
            id=_get_text(row, "id"),
            text=_get_text(row, "query"),
            relevant=tuple(dict.fromkeys(cast(list[str], relevant))),
            kind=_get_text(row, "kind", optional=True),
            split=_get_text(row, "split", optional=True),
        )
        if query.id in queries:
            raise ValueError(f"the id {query.id!r} came before")
        unknown = ", ".join(repr(key) for key in query.relevant if key not in ids)
        if unknown:
            raise ValueError(f"no tool has the relevant id {unknown}")
        queries[query.id] = query

    _read_rows(path, _QUERY_REMEDY, add)
    return tuple(queries.values())


def _get_text(row: Json, key: str, *, optional: bool = False) -> str:
    value = row.get(key)
    if optional and value is None:
        return ""
    if not isinstance(value, str) or not (optional or value.strip()):
        raise ValueError(f"{key!r} is not a text")
    return value


def _read_rows(path: Path, remedy: str, add: Callable[[Json], None]) -> None:
    """Pass the object on each line to `add`; what it refuses with a `ValueError` is invalid."""
    line = 0
    open_text = gzip.open if path.suffix == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8") as file:
            for text in file:
                line += 1
                if not text.strip():
                    continue
                row = json.loads(text)
                if not is_object(row):
                    raise ValueError("it is not a JSON object")
                add(row)
    except UnicodeDecodeError as error:
        raise InvalidFile(str(path), "it is not UTF-8", remedy=remedy) from error
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidFile(str(path), f"it cannot be read ({error})", remedy=remedy) from error
    except json.JSONDecodeError as error:
        problem = f"it is not JSON ({error.msg})"
        raise InvalidFile(str(path), problem, line=line, remedy=remedy) from error
    except ValueError as error:
        raise InvalidFile(str(path), str(error), line=line, remedy=remedy) from error
