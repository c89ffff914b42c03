"""A server that offers skills as SEP-2640 says: whatever is in a JSON file at the moment.

The file has `skills`, the entries, and `files`, texts by address. With a second argument, the
entries come in pages of one.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

FILE = Path(sys.argv[1])
HAS_PAGES = len(sys.argv) > 2


def read_file() -> dict[str, Any]:
    return json.loads(FILE.read_text())


async def list_skills(ctx: Any, params: types.PaginatedRequestParams) -> dict[str, Any]:
    skills = read_file()["skills"]
    rest: dict[str, Any] = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
    if HAS_PAGES:
        at = int(params.cursor or 0)
        if at + 1 < len(skills):
            rest["nextCursor"] = str(at + 1)
        skills = skills[at : at + 1]
    return {"skills": skills, **rest}


async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    files = [types.Resource(uri=uri, name=uri) for uri in read_file()["files"]]
    return types.ListResourcesResult(resources=files)


async def read_resource(ctx: Any, params: types.ReadResourceRequestParams) -> Any:
    uri = str(params.uri)
    text = types.TextResourceContents(uri=uri, text=read_file()["files"][uri])
    return types.ReadResourceResult(contents=[text])


async def main() -> None:
    server: Server[Any] = Server(
        "librarian", on_list_resources=list_resources, on_read_resource=read_resource
    )
    server.extensions["io.modelcontextprotocol/skills"] = {}
    server.add_request_handler("skills/list", types.PaginatedRequestParams, list_skills)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
