"""`Materials`: resources, prompts and completions of all servers, under names of their own.

A resource of a server is listed as `toolscout://SERVER/URI`, a prompt by its exposed name. What a
session may not see is neither listed nor read. Requests go to the server that owns the thing.
"""

from collections.abc import Callable, Iterator
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from toolscout.errors import ToolscoutError
from toolscout.names import exposed_name, near_names
from toolscout.schemas import Json
from toolscout.sessions import Session
from toolscout.upstream.connections import Relay
from toolscout.upstream.manifests import Manifest
from toolscout.upstream.pool import Pool

SCHEME = "toolscout://"


class Materials:
    """What servers offer besides tools."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def resources(self, session: Session) -> list[Json]:
        """Return the resources that a session may read."""
        rows = self._rows(session, lambda manifest: manifest.resources)
        return [{**row, "uri": f"{SCHEME}{server}/{row['uri']}"} for server, _, row in rows]

    def templates(self, session: Session) -> list[Json]:
        """Return the resource templates that a session may fill in."""
        rows = self._rows(session, lambda manifest: manifest.templates)
        return [
            {**row, "uriTemplate": f"{SCHEME}{server}/{row['uriTemplate']}"}
            for server, _, row in rows
        ]

    def prompts(self, session: Session) -> list[Json]:
        """Return the prompts that a session may get."""
        rows = self._rows(session, lambda manifest: manifest.prompts)
        return [{**row, "name": name} for _, name, row in rows]

    async def read(self, session: Session, uri: str, relay: Relay) -> Json:
        """Return a resource, with the addresses of its parts as this gateway lists them."""
        server, own = self._owner(session, uri)
        result = await self._asked(server, "resources/read", {"uri": own}, relay)
        parts = [
            {**part, "uri": f"{SCHEME}{server}/{part['uri']}"} if "uri" in part else part
            for part in result.get("contents", ())
        ]
        return {**result, "contents": parts}

    async def prompt(self, session: Session, name: str, arguments: Json, relay: Relay) -> Json:
        """Return a prompt with its arguments filled in."""
        server, own = self._named_prompt(session, name)
        params = {"name": own, "arguments": arguments}
        return await self._asked(server, "prompts/get", params, relay)

    async def complete(self, session: Session, params: Json) -> Json:
        """Return what may stand for an argument of a prompt or template."""
        asked: Json = params["ref"]
        if asked.get("type") == "ref/prompt":
            server, own = self._named_prompt(session, str(asked.get("name")))
            reference = {**asked, "name": own}
        else:
            server, own = self._owner(session, str(asked.get("uri")))
            reference = {**asked, "uri": own}
        return await self._asked(server, "completion/complete", {**params, "ref": reference}, None)

    def _rows(
        self, session: Session, part: Callable[[Manifest], tuple[Json, ...]]
    ) -> Iterator[tuple[str, str, Json]]:
        """Yield server, exposed name and definition of what a session may see, in order."""
        visible = {tool.name for tool in session.visible()}
        for server, member in sorted(self._pool.members.items()):
            if member.manifest is None:
                continue
            for row in part(member.manifest):
                leaf = row.get("name") or row.get("uri") or row.get("uriTemplate")
                name = exposed_name(server, str(leaf))
                if name in visible:
                    yield server, name, row

    def _owner(self, session: Session, uri: str) -> tuple[str, str]:
        server, slash, own = uri.removeprefix(SCHEME).partition("/")
        known = {tool.server for tool in session.visible()}
        if not uri.startswith(SCHEME) or not slash or server not in known:
            raise _unknown(f"No resource {uri!r}. Use an address that resources/list shows.")
        return server, own

    def _named_prompt(self, session: Session, name: str) -> tuple[str, str]:
        rows = {n: (s, str(row["name"])) for s, n, row in self._rows(session, _prompts_of)}
        if name not in rows:
            near = ", ".join(near_names(name, rows)) or "none"
            raise _unknown(f"No prompt {name!r}. Near: {near}.")
        return rows[name]

    async def _asked(self, server: str, method: str, params: Json, relay: Relay | None) -> Json:
        try:
            return await self._pool.request(server, method, params, relay)
        except ToolscoutError as error:
            raise MCPError(code=types.INTERNAL_ERROR, message=str(error)) from error


def _prompts_of(manifest: Manifest) -> tuple[Json, ...]:
    return manifest.prompts


def _unknown(message: str) -> Any:
    return MCPError(code=types.INVALID_PARAMS, message=message)
