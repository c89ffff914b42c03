"""Tools from wherever they are described: files, OpenAPI documents, servers of a configuration.

A file may hold an MCP listing, OpenAI or Anthropic definitions, toolscout's own shape, or an
OpenAPI 3 document. What a configuration's servers offered last is known without starting them.
"""

import asyncio
import json
from pathlib import Path

from toolscout.catalog import Catalog
from toolscout.config.file import Config
from toolscout.files import read_tools
from toolscout.schemas import is_object
from toolscout.servers.openapi import read_document, tools_from_openapi
from toolscout.servers.server import CatalogUpdater, ServerState
from toolscout.sessions.session import Store
from toolscout.tools import Tool

YAML_ENDINGS = (".yaml", ".yml")
OPENAPI_MEMBERS = ("openapi", "swagger")


def import_tools(path: Path, server: str = "") -> list[Tool]:
    """Return the tools of a file, those without a server as of `server`; raises `InvalidFile`.

    The operations of an OpenAPI document belong to a server named like the file unless told.
    """
    if is_openapi(path):
        return tools_from_openapi(read_document(path), server or path.name.partition(".")[0])
    tools = read_tools(path)
    return [tool if tool.server or not server else tool.move_to(server) for tool in tools]


def is_openapi(path: Path) -> bool:
    """Tell whether a file holds an OpenAPI document, well or badly written."""
    if path.suffix in YAML_ENDINGS:
        return True
    if path.suffix != ".json":
        return False
    try:
        value: object = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False  # whoever reads it as tools says what is wrong
    return is_object(value) and any(member in value for member in OPENAPI_MEMBERS)


def recall_catalog(config: Config, store: Store | None) -> Catalog:
    """Return what the servers of a configuration offered last; the others are pending."""
    catalog = Catalog()
    for server in config.servers:
        if server.disabled:
            continue
        if store is None:
            catalog.set_pending(server.name)
        else:
            member = ServerState(config=server, slots=asyncio.Semaphore(server.concurrency))
            CatalogUpdater(catalog, store).recall(member)
    return catalog
