"""Read and write tools as JSON or JSON lines, compressed if the file name ends in `.gz`.

`read_tools` accepts every definition that `Tool.from_any` knows: in a list, one on each line, or
under `tools` or `servers`. `write_tools` writes toolscout's own format, which reads back to equal
tools, and replaces a file atomically. `export_tools` can also write the formats of providers, which
contain only what a model would receive. Indexes and vectors are stored elsewhere.
"""

import gzip
import json
import os
import secrets
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import IO, Any

from toolscout.dialects import Dialect, to_definition
from toolscout.errors import InvalidFile, InvalidTool
from toolscout.schemas import Json, is_list, is_object
from toolscout.tools import Effect, Tool

LINES_AT_ONCE = 500
SHARED_TEXT_LIMIT = 60
"""Longer strings rarely repeat, so looking them up would cost more than it saves."""

SHAPES = (
    "Expected a list of tool definitions, one definition on each line, {'tools': [...]} "
    "or {'servers': {name: [...]}}."
)

_DEFAULTS = Tool(name="tool")
_PLAIN_FIELDS = ("title", "description", "summary", "hint", "kind", "always_load")

Row = tuple[int | None, object]
"""A definition and its line number, or None if the file is a single document."""


def read_tools(path: str | os.PathLike[str]) -> list[Tool]:
    """Return the tools in a `.json` or `.jsonl` file, in order, or raise `InvalidFile`."""
    shared: dict[str, str] = {}
    tools: list[Tool] = []
    for line, row, server in _read_rows(Path(path)):
        try:
            tools.append(_share_strings(Tool.from_any(row, server), shared))
        except InvalidTool as error:
            raise InvalidFile(
                str(path), str(error).rstrip("."), line=line, remedy="Fix or remove that tool."
            ) from error
    return tools


def write_tools(path: str | os.PathLike[str], tools: Iterable[Tool]) -> None:
    """Write tools to a `.json` or `.jsonl` file and atomically replace an existing one."""
    place = Path(path)
    text = export_tools(tools, Shape.JSONL if _is_lines(place) else Shape.JSON)
    # UTF-8 cannot encode a lone surrogate, so it is written as a JSON escape.
    data = text.encode("utf-8", "backslashreplace")
    if place.suffix == ".gz":
        data = gzip.compress(data, mtime=0)  # the same tools give the same bytes
    # `tempfile` would create a file that other users cannot read.
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
        temporary.replace(place)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise InvalidFile(
            str(place),
            f"cannot be written ({error.strerror or error})",
            remedy="Check that its folder exists and is writable.",
        ) from error


def json_from_tool(tool: Tool) -> Json:
    """Return a tool in toolscout's own format, without members that have their default."""
    row: Json = {"server": tool.server, "name": tool.leaf}
    for name in _PLAIN_FIELDS:
        value = getattr(tool, name)
        if value != getattr(_DEFAULTS, name):
            row[name] = value
    row["input_schema"] = tool.input_schema
    if tool.output_schema is not None:
        row["output_schema"] = tool.output_schema
    if tool.effect is not Effect.UNKNOWN:
        row["effect"] = tool.effect.value
    for name in ("aliases", "tags"):
        if getattr(tool, name):
            row[name] = list(getattr(tool, name))
    if tool.extras:
        row["extra"] = tool.extras
    return row


def _is_lines(path: Path) -> bool:
    name = path.name.removesuffix(".gz")
    if name.endswith((".jsonl", ".ndjson")):
        return True
    if name.endswith(".json"):
        return False
    raise InvalidFile(
        str(path),
        "has a name that does not say which format it is in",
        remedy="Name it .json or .jsonl, followed by .gz if it is compressed.",
    )


def _read_rows(path: Path) -> Iterator[tuple[int | None, object, str]]:
    parsed: Iterable[Row]
    if _is_lines(path):
        parsed = _parse_lines(path)
    else:
        with _open_text(path) as file:
            parsed = [(None, _parse(path, file.read()))]
    for line, value in parsed:
        for row, server in _list_definitions(path, line, value):
            yield line, row, server


def _parse(path: Path, text: str, line: int | None = None) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"is not JSON ({error.msg})"
        raise InvalidFile(str(path), problem, line=line or error.lineno, remedy=SHAPES) from error
    except RecursionError as error:
        raise InvalidFile(str(path), "is nested too deep", line=line, remedy=SHAPES) from error


def _parse_lines(path: Path) -> Iterator[Row]:
    with _open_text(path) as file:
        lines = ((number, text) for number, text in enumerate(file, 1) if text.strip())
        while batch := list(islice(lines, LINES_AT_ONCE)):
            # Parsing lines together shares the keys of all objects, which halves their memory. If
            # that fails, parsing line by line finds the broken line.
            values: object = None
            with suppress(json.JSONDecodeError, RecursionError):
                values = json.loads("[" + ",".join(text for _, text in batch) + "]")
            if is_list(values) and len(values) == len(batch):
                yield from zip((number for number, _ in batch), values, strict=True)
            else:
                yield from ((number, _parse(path, text, number)) for number, text in batch)


@contextmanager
def _open_text(path: Path) -> Generator[IO[str]]:
    """Open a file for reading; errors while it is open become `InvalidFile`."""
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig", newline="\n") as file:
            yield file
        return
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"is not a complete gzip file ({error})"
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
    raise InvalidFile(str(path), problem, remedy="Check the path and the file.")


def _list_definitions(path: Path, line: int | None, value: object) -> Iterator[tuple[object, str]]:
    """Yield the definitions in one parsed value, each with the server that it is listed under."""
    if is_list(value):
        yield from ((row, "") for row in value)
        return
    if not is_object(value):
        raise InvalidFile(str(path), f"holds a {type(value).__name__}", line=line, remedy=SHAPES)
    servers = value.get("servers")
    tools = value.get("tools", value.get("result"))
    if is_object(servers):
        for server, rows in servers.items():
            for row, _ in _list_definitions(path, line, rows):
                yield row, server
    elif tools is not None and "name" not in value:
        server = value.get("server")
        for row, _ in _list_definitions(path, line, tools):
            yield row, server if isinstance(server, str) else ""
    elif line is None and "name" not in value and "function" not in value:
        raise InvalidFile(str(path), "holds an object without tools", remedy=SHAPES)
    else:
        yield value, ""


def _share_strings(tool: Tool, shared: dict[str, str]) -> Tool:
    """Replace equal short strings in a tool's JSON by one shared object, to save memory.

    This edits the JSON in place, which is safe because it was just parsed and nobody else has it.
    """
    nodes: list[Any] = [tool.input_schema, tool.output_schema, tool.extras]
    for node in nodes:  # grows while it is read
        if is_object(node):
            for key, value in node.items():
                if not isinstance(value, str):
                    nodes.append(value)
                elif len(value) <= SHARED_TEXT_LIMIT:
                    node[key] = shared.setdefault(value, value)
        elif is_list(node):
            nodes.extend(value for value in node if not isinstance(value, str))
            node[:] = [shared.setdefault(v, v) if isinstance(v, str) else v for v in node]
    return tool


class Shape(StrEnum):
    """A format for exporting a catalogue."""

    JSON = "json"
    JSONL = "jsonl"
    MCP = "mcp"
    """The result of `tools/list`."""
    OPENAI = "openai"
    """Chat Completions."""
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"


_DIALECTS = {
    Shape.MCP: Dialect.MCP,
    Shape.OPENAI: Dialect.OPENAI_CHAT,
    Shape.OPENAI_RESPONSES: Dialect.OPENAI_RESPONSES,
    Shape.ANTHROPIC: Dialect.ANTHROPIC,
}


def export_tools(tools: Iterable[Tool], shape: Shape) -> str:
    """Return tools as the text of a file, with a line break at the end."""
    dialect = _DIALECTS.get(shape)
    rows = [to_definition(t, dialect) if dialect else json_from_tool(t) for t in tools]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    if shape is Shape.JSONL:
        return "".join(f"{line}\n" for line in lines)
    listed = "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"
    return f'{{"tools": {listed}}}\n' if shape is Shape.MCP else f"{listed}\n"
