"""A catalogue of made-up services to try toolscout on, without a server or a network.

Each JSON file beside this module is one server's `tools/list`: `{"server": …, "tools": […]}`.
The texts are toolscout's own; the services behave like their namesakes only in the descriptions.
Nothing here can be called: these are definitions for searching, examples and tests.
"""

import json
from collections.abc import Iterator
from importlib.resources import files

from toolscout.catalog import Catalog
from toolscout.tools import Tool

__all__ = ["load_demo_catalog", "load_demo_tools"]


def load_demo_tools() -> list[Tool]:
    """Return the tools of all demo servers, by server and then in the server's own order."""
    return [tool for _, tools in _read_servers() for tool in tools]


def load_demo_catalog() -> Catalog:
    """Return a new catalogue with all demo servers, which the caller may change."""
    catalog = Catalog()
    for server, tools in _read_servers():
        catalog.replace(server, tools)
    return catalog


def _read_servers() -> Iterator[tuple[str, list[Tool]]]:
    listings = (entry for entry in files(__name__).iterdir() if entry.name.endswith(".json"))
    for entry in sorted(listings, key=lambda entry: entry.name):
        listing = json.loads(entry.read_text(encoding="utf-8"))
        server: str = listing["server"]
        yield server, [Tool.from_mcp(definition, server=server) for definition in listing["tools"]]
