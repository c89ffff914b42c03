"""The `--tools` option, and the catalogue that it names."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from toolscout.catalog import Catalog
    from toolscout.tools import Tool

TOOL_FILE_ENDINGS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")

tools_option = click.option(
    "--tools",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="A .json or .jsonl file of tools, or a folder of them; may be given again. "
    "Without it, the demo catalogue is used.",
)


def read_catalog(paths: Iterable[Path]) -> "Catalog":
    """Return the tools of files and folders, or the demo catalogue where none is named."""
    from toolscout.catalog import Catalog
    from toolscout.demo import demo_catalog
    from toolscout.files import read_tools

    files = dict.fromkeys(file for path in paths for file in _tool_files(path))
    if not files:
        return demo_catalog()
    by_server: dict[str, list[Tool]] = {}
    for file in files:
        for tool in read_tools(file):
            by_server.setdefault(tool.server, []).append(tool)
    # Listings put together by hand often hold a tool twice; only unlike ones are a mistake.
    return Catalog({server: dict.fromkeys(tools) for server, tools in by_server.items()})


def _tool_files(path: Path) -> list[Path]:
    """Return a file itself; of a folder, its `tools.…` file if it has one, else all that fit."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.endswith(TOOL_FILE_ENDINGS))
    if not found:
        from toolscout.errors import InvalidFile

        remedy = f"Name a file, or a folder with files that end in {', '.join(TOOL_FILE_ENDINGS)}."
        raise InvalidFile(str(path), "holds no file of tools", remedy=remedy)
    return [file for file in found if file.name.startswith("tools.")] or found
