"""`Resources`: the resources, prompts, skills and completions of all servers.

The gateway lists a resource as `toolscout://SERVER/URI` and a prompt by its exposed name, and
passes requests on to the owning server. A session can neither list nor read what it may not see.

Apps and skills keep their scheme, because clients know them by it. They keep the whole address if
only one server has addresses in its place, such as `ui://clock`. Where several have, and where it
is not known whose the place is, the address is `ui://toolscout/SERVER/…`: no server can answer for
another by announcing the other's address.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache, partial

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

from toolscout.config.servers import EVERYTHING, Transport
from toolscout.errors import InvalidTool, ModelError, ToolscoutError
from toolscout.gateway.forward import ForwardedCall
from toolscout.names import find_near_names, to_one_line
from toolscout.schemas import Json, clean_texts
from toolscout.servers.listings import (
    OWN_PLACE,
    decode_uri,
    find_kept_scheme,
    find_place,
    list_kept_uris,
)
from toolscout.servers.manifest import PROMPT, RESOURCE, TEMPLATE, TOOL, Manifest
from toolscout.servers.pool import Pool
from toolscout.servers.state import Caller
from toolscout.sessions.session import Session
from toolscout.skills.skill import SKILL, SKILL_FILE, find_entry_problem
from toolscout.tokens import count_skill_tokens
from toolscout.tools import Effect, Tool

SCHEME = "toolscout://"
SHOWN_CHARS = 200
LONGEST_URI = 8_000
"""Longer addresses are those of no resource: what a client subscribes to is kept."""

_KEYS = {RESOURCE: ("uri", "uri"), TEMPLATE: ("uriTemplate",) * 2, PROMPT: ("name", "prompt")}
"""The members that identify an entry: in the server's definition, and in a tool's extras."""
_LISTS: dict[str, Callable[[Manifest], tuple[Json, ...]]] = {
    RESOURCE: lambda manifest: manifest.resources,
    TEMPLATE: lambda manifest: manifest.templates,
    PROMPT: lambda manifest: manifest.prompts,
}


class Resources:
    """Lists and reads the resources and prompts of a pool's servers."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def list_entries(self, session: Session, kind: str) -> list[Json]:
        """Return the resources, templates or prompts that a session may see."""
        rows = self._list_rows(session, kind)
        if kind == PROMPT:
            return [{**row, "name": name} for _, name, row in rows]
        key = _KEYS[kind][0]
        return [{**row, key: self.to_gateway_uri(server, row[key])} for server, _, row in rows]

    def list_skills(self, session: Session, *, most_tokens: int) -> list[Json]:
        """Return the entries of the skills that a client lists (SEP-2640).

        Those are all that a session may see, or the pinned ones if a client that put all names and
        descriptions into every prompt would need more tokens.
        """
        skills = session.list_kinds(SKILL)
        if count_skill_tokens(skills) > most_tokens:
            skills = [tool for tool in skills if tool.name in session.pinned]
        entries = [self._to_gateway_entry(tool) for tool in skills if _is_served(tool)]
        return sorted(entries, key=lambda entry: entry["uri"])

    def get_skill(self, session: Session, uri: str) -> Json:
        """Return the entry of a skill by the address of its `SKILL.md`, or raise `MCPError`."""
        server, own = self._split_uri(uri) if len(uri) <= LONGEST_URI else ("", uri)
        for tool in session.list_kinds(SKILL):
            if tool.server == server and tool.extras[SKILL]["uri"] == own and _is_served(tool):
                return self._to_gateway_entry(tool)
        text = f"No skill {to_one_line(uri, SHOWN_CHARS)!r}. Use an address that skills/list shows."
        raise MCPError(code=types.INVALID_PARAMS, message=text)

    def _to_gateway_entry(self, tool: Tool) -> Json:
        entry: Json = tool.extras[SKILL]
        to_address = partial(self.to_gateway_uri, tool.server)
        files = [{**row, "uri": to_address(row["uri"])} for row in entry["resources"]]
        return {**entry, "uri": to_address(entry["uri"]), "resources": files}

    async def read(self, session: Session, uri: str, forwarded: ForwardedCall) -> Json:
        """Return a resource."""

        def find() -> tuple[str, Tool, Json]:
            server, own = self.find_owner(session, uri)
            return own, *self._find_entry(session, server, own)

        own, entry, arguments = await session.run_locked(find)
        params: Json = {"uri": own}
        answer = forwarded.read_entry(session, entry, arguments, "resources/read", params, uri)
        return await _await_answer(answer)

    async def get_prompt(
        self, session: Session, name: str, arguments: Json, forwarded: ForwardedCall
    ) -> Json:
        """Return a prompt with its arguments filled in."""

        def find() -> tuple[str, Tool]:
            _, own = self._find_prompt(session, name)
            return own, next(tool for tool in session.list_kinds(PROMPT) if tool.name == name)

        own, entry = await session.run_locked(find)
        params = {"name": own, "arguments": arguments}
        answer = forwarded.read_entry(session, entry, arguments, "prompts/get", params, name)
        return await _await_answer(answer)

    async def complete(self, session: Session, params: Json, caller: Caller) -> Json:
        """Return possible values for an argument of a prompt or template."""
        asked: Json = params["ref"]
        if asked.get("type") == "ref/prompt":
            find = partial(self._find_prompt, session, str(asked.get("name")))
            server, own = await session.run_locked(find)
            reference = {**asked, "name": own}
        else:
            find = partial(self.find_owner, session, str(asked.get("uri")))
            server, own = await session.run_locked(find)
            reference = {**asked, "uri": own}
        params = {**params, "ref": reference}
        answer = self._pool.request(server, "completion/complete", params, caller=caller)
        return await _await_answer(answer)

    def find_owner(self, session: Session, uri: str) -> tuple[str, str]:
        """Return the server of a resource and its URI there; raise `MCPError` if there is none."""
        server, own = self._split_uri(uri) if len(uri) <= LONGEST_URI else ("", uri)
        if not self.sees(session, server, own):
            owners = sorted(self._find_owners(uri)) if find_kept_scheme(uri) else ()
            meant = [self.to_gateway_uri(s, uri) for s in owners if self.sees(session, s, uri)]
            shown = [repr(to_one_line(address, SHOWN_CHARS)) for address in (uri, *meant)]
            way = " or ".join(shown[1:]) or "an address that resources/list shows"
            text = f"No resource {shown[0]}. Use {way}."
            raise MCPError(code=types.INVALID_PARAMS, message=text)
        return server, own

    def to_gateway_uri(self, server: str, uri: str) -> str:
        """Return the address under which the gateway serves a resource of a server."""
        scheme = find_kept_scheme(uri)
        if not scheme:
            return f"{SCHEME}{server}/{uri}"
        if self._find_owners(uri) == frozenset((server,)):
            return uri
        return f"{scheme}{OWN_PLACE}/{server}/{uri.removeprefix(scheme)}"

    def _split_uri(self, uri: str) -> tuple[str, str]:
        """Return the server that an address means, empty if none, and the URI there."""
        scheme = find_kept_scheme(uri)
        if scheme and not uri.startswith(f"{scheme}{OWN_PLACE}/"):
            owners = self._find_owners(uri)
            return (next(iter(owners)) if len(owners) == 1 else ""), uri
        head = f"{scheme}{OWN_PLACE}/" if scheme else SCHEME
        server, slash, own = uri.removeprefix(head).partition("/")
        return (server if slash and uri.startswith(head) else ""), scheme + own

    def _find_owners(self, uri: str) -> frozenset[str]:
        """Return the servers that have addresses in the place of an address."""
        place = find_place(uri)
        servers = list(self._pool.servers.values())
        return frozenset(server.name for server in servers if place in server.places)

    def sees(self, session: Session, server: str, own: str) -> bool:
        """Tell whether a session may read a resource, or fill in a template, of a server.

        A resource that is not listed, such as a link in a result, is judged by its URI; a server
        whose resources are restricted has none but those that it lists.
        """
        member = self._pool.servers.get(server)
        if member is None or member.manifest is None:
            return False
        places = [
            (kind, str(row.get(_KEYS[kind][0])))
            for kind in (RESOURCE, TEMPLATE)
            for row in _LISTS[kind](member.manifest)
        ]
        plain = _normalize_uri(own)
        if any(_is_in_skill(plain, entry) for entry in member.manifest.skills):
            # What waits for approval is in no skill that a session sees.
            return self._find_skill(session, server, own) is not None
        if member.config.transport is Transport.SKILLS:
            return False
        meant = [p for p in places if _normalize_uri(p[1]).casefold() == plain.casefold()]
        if not meant and not _has_steps(own):
            meant = [
                p for p in places if p[0] == TEMPLATE and _match_template(p[1], own) is not None
            ]
        if meant:
            visible = self._map_visible_names(session)
            return any((server, kind, key) in visible for kind, key in meant)
        if find_kept_scheme(own) and self._has_app_at(session, server, own):
            return True
        if member.config.allow != EVERYTHING or member.config.deny:
            return False
        if session.policy.is_open:
            return True
        entry = _make_entry(server, plain)
        return entry is not None and session.policy.sees(entry)

    def _find_entry(self, session: Session, server: str, own: str) -> tuple[Tool, Json]:
        """Return the entry of the catalogue that rules about a resource see, and its arguments.

        That is a listed resource or a template that fits, otherwise one made from the URI.
        """
        templates: list[tuple[Tool, Json]] = []
        skill = self._find_skill(session, server, own)
        if skill is not None:
            return skill, {}
        plain = _normalize_uri(own).casefold()
        for tool in session.list_kinds(RESOURCE, TEMPLATE):
            if tool.server == server and tool.kind == RESOURCE:
                if _normalize_uri(str(tool.extras.get("uri"))).casefold() == plain:
                    return tool, {}
            elif tool.server == server and tool.kind == TEMPLATE:
                values = _match_template(str(tool.extras.get("uriTemplate")), own)
                templates += [] if values is None else [(tool, values)]
        if templates:
            return templates[0]
        return _make_entry(server, _normalize_uri(own)) or Tool(name=RESOURCE, server=server), {}

    def _find_skill(self, session: Session, server: str, own: str) -> Tool | None:
        """Return a skill that a session may see and that lists this file."""
        for tool in session.list_kinds(SKILL):
            if tool.server == server:
                rows: list[Json] = tool.extras[SKILL]["resources"]
                if any(row["uri"] == own for row in rows):
                    return tool
        return None

    def _has_app_at(self, session: Session, server: str, own: str) -> bool:
        """Tell whether a tool that a session may see has an app there, which need not be listed."""
        return any(
            tool.kind == TOOL and own in list_kept_uris(tool) and session.policy.sees(tool)
            for tool in self._pool.catalog.list_server(server)
        )

    def _map_visible_names(self, session: Session) -> dict[tuple[str, str, str], str]:
        """Return the exposed names of the resources, templates and prompts that a session sees."""
        return {
            (tool.server, tool.kind, str(tool.extras.get(_KEYS[tool.kind][1]))): tool.name
            for tool in session.list_kinds(*_KEYS)
        }

    def _list_rows(self, session: Session, kind: str) -> Iterator[tuple[str, str, Json]]:
        """Yield server, exposed name and definition of each entry that a session may see."""
        visible = self._map_visible_names(session)
        for server, member in sorted(self._pool.servers.items()):
            if member.manifest is None:
                continue
            for row in _LISTS[kind](member.manifest):
                name = visible.get((server, kind, str(row.get(_KEYS[kind][0]))))
                if name is not None:
                    yield server, name, clean_texts(row)

    def _find_prompt(self, session: Session, name: str) -> tuple[str, str]:
        rows = {n: (s, str(row["name"])) for s, n, row in self._list_rows(session, PROMPT)}
        if name not in rows:
            near = ", ".join(find_near_names(name, rows)) or "none"
            text = f"No prompt {name!r}. Near: {near}."
            raise MCPError(code=types.INVALID_PARAMS, message=text)
        return rows[name]


def _is_served(tool: Tool) -> bool:
    """Tell whether clients accept the entry of a skill; a name that breaks the rules is refused."""
    return not find_entry_problem(tool.extras[SKILL])


def _is_in_skill(plain: str, entry: Json) -> bool:
    """Tell whether an address, in one spelling, is in the folder of a skill."""
    root = _normalize_uri(entry["uri"]).removesuffix(SKILL_FILE)
    return f"{plain}/".casefold().startswith(root.casefold())


@lru_cache(maxsize=10_000)
def _normalize_uri(uri: str) -> str:
    """Return one spelling for all spellings of a URI that a server may accept.

    A hidden resource must be hidden in all of them: encoded, with empty or dot segments, with
    backslashes, or with the name of this machine in a file's address.
    """
    scheme, colon, rest = decode_uri(uri).replace("\\", "/").partition(":")
    if not colon:
        scheme, rest = "", scheme
    segments: list[str] = []
    for segment in rest.split("/"):
        if segment == "..":
            segments = segments[:-1]
        elif segment not in ("", "."):
            segments.append(segment)
    if scheme.casefold() == "file" and segments[:1] == ["localhost"]:
        del segments[0]
    return f"{scheme}:{'/'.join(segments)}"


def _has_steps(uri: str) -> bool:
    """Tell whether a URI has dot segments, which could lead out of a template."""
    return not {".", ".."}.isdisjoint(decode_uri(uri).replace("\\", "/").split("/"))


def _make_entry(server: str, name: str) -> Tool | None:
    """Return an entry of the catalogue for a resource that is not listed, if it can have one."""
    try:
        return Tool.define(name, server=server, kind=RESOURCE, effect=Effect.READ)
    except InvalidTool:
        return None


def _match_template(template: str, uri: str) -> Json | None:
    """Return the values with which a template gives a URI, or None if it cannot."""
    try:
        values = UriTemplate.parse(template).match(uri)
    except InvalidUriTemplate:
        return None
    return None if values is None else dict(values)


async def _await_answer(answer: Awaitable[Json]) -> Json:
    try:
        return await answer
    except ToolscoutError as error:
        code = types.INVALID_PARAMS if isinstance(error, ModelError) else types.INTERNAL_ERROR
        raise MCPError(code=code, message=str(error)) from error
