"""`Manifest`: what a server offers, as it last said so.

Kept between runs, so that a search finds the tools of a server that has not been started (R86).
Definitions stay the server's own JSON; making tools of them is done on the way to the catalogue.

What a server offers, made into tools as its configuration wants them.

Takes a manifest; gives tools: filtered, renamed, pinned, with effects and hints put right.
Resources and prompts become entries of their own kind, so that one search finds them all (R27).
A definition that cannot be used is left out and told, and never takes its server with it.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar, cast

from toolscout.config.servers import ServerConfig, is_matched
from toolscout.errors import InvalidTool
from toolscout.schemas import Json, is_list, is_object, to_canonical_json
from toolscout.tools import Effect, Tool

MANIFEST_KIND = "manifest"
LAYOUT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The listings of one server."""

    tools: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    templates: tuple[Json, ...] = ()
    prompts: tuple[Json, ...] = ()
    problems: tuple[str, ...] = ()
    """Why some of what the server listed is not here."""
    instructions: str = ""
    protocol: str = ""
    """The protocol version that was agreed upon."""

    def to_bytes(self, key: str) -> bytes:
        """Return JSON to be stored; `key` tells which configuration it belongs to."""
        lists = {
            "tools": self.tools,
            "resources": self.resources,
            "templates": self.templates,
            "prompts": self.prompts,
            "problems": self.problems,
            "instructions": self.instructions,
            "protocol": self.protocol,
        }
        return json.dumps({"layout": LAYOUT, "key": key, **lists}).encode()


def manifest_from_bytes(data: bytes, key: str) -> Manifest | None:
    """Return a stored manifest, or nothing if it is unreadable or of another configuration."""
    try:
        row = cast("object", json.loads(data))
    except (ValueError, RecursionError):
        return None
    if not is_object(row) or row.get("layout") != LAYOUT or row.get("key") != key:
        return None
    tools, resources, templates, prompts = (
        tuple(filter(is_object, _list(row, key)))
        for key in ("tools", "resources", "templates", "prompts")
    )
    return Manifest(
        tools=tools,
        resources=resources,
        templates=templates,
        prompts=prompts,
        problems=tuple(map(str, _list(row, "problems"))),
        instructions=str(row.get("instructions", "")),
        protocol=str(row.get("protocol", "")),
    )


def _list(row: Json, key: str) -> list[Any]:
    value: object = row.get(key)
    return value if is_list(value) else []


TOOL, RESOURCE, TEMPLATE, PROMPT = "tool", "resource", "template", "prompt"
TOOLS_LIMIT = 20_000

_PLACEHOLDER = re.compile(r"\{[+#./;?&]?([\w.,*]+)\}")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntries:
    """A server's tools, and why some are missing."""

    tools: tuple[Tool, ...]
    problems: tuple[str, ...] = ()


def build_entries(config: ServerConfig, manifest: Manifest) -> CatalogEntries:
    """Return the tools that a configuration lets through, each under its own name."""
    problems = list(manifest.problems)
    found: dict[str, Tool] = {}
    for tool in _all(config.name, manifest, problems):
        if not _passes(config, tool.leaf):
            continue
        shown = _told_apart(_adjusted(config, tool), found)
        if shown.name in found:
            problems.append(f"{tool.leaf!r} is offered twice; the first one counts.")
        elif len(found) >= TOOLS_LIMIT:
            problems.append(f"More than {TOOLS_LIMIT:,} tools; the rest is left out.")
            break
        else:
            found[shown.name] = shown
    return CatalogEntries(tools=tuple(found.values()), problems=tuple(problems))


def _all(server: str, manifest: Manifest, problems: list[str]) -> Iterable[Tool]:
    makers: tuple[tuple[Iterable[Json], Callable[[Json, str], Tool]], ...] = (
        (manifest.tools, lambda row, name: Tool.from_mcp(row, server=name)),
        (manifest.resources, _resource),
        (manifest.templates, _template),
        (manifest.prompts, _prompt),
    )
    for rows, make in makers:
        for row in rows:
            try:
                yield make(row, server)
            except InvalidTool as error:
                problems.append(str(error))


def _passes(config: ServerConfig, leaf: str) -> bool:
    return is_matched(leaf, config.allow) and not is_matched(leaf, config.deny)


def _adjusted(config: ServerConfig, tool: Tool) -> Tool:
    effect = _first(config.effects, tool.leaf)
    hint = _first(config.hints, tool.leaf) or config.hint
    pinned = is_matched(tool.leaf, config.pins)
    changed = replace(
        tool,
        effect=effect or tool.effect,
        hint=" ".join(filter(None, (tool.hint, hint))),
        always_load=tool.always_load or pinned,
    )
    new = config.renames.get(tool.leaf)
    if new is None:
        return changed
    # The server still knows it by its old name, which a call has to use.
    renamed = replace(changed, leaf=new).move_to(tool.server)
    return replace(renamed, extras={**tool.extras, "leaf": tool.leaf}, aliases=(tool.leaf,))


def _told_apart(tool: Tool, found: Mapping[str, Tool]) -> Tool:
    """Return an entry other than a tool under a name that no other has.

    A prompt often has the name of the tool that it explains, and resources are named as their
    authors like. The server knows them by other means than our name.
    """
    if tool.name not in found or tool.kind == TOOL:
        return tool
    renamed = replace(tool, leaf=f"{tool.leaf}_{tool.kind}").move_to(tool.server)
    if renamed.name not in found:
        return renamed
    digest = hashlib.sha256(to_canonical_json(dict(tool.extras))).hexdigest()[:8]
    return replace(tool, leaf=f"{tool.leaf}_{digest}").move_to(tool.server)


def _first(values: Mapping[str, _Value], leaf: str) -> _Value | None:
    return next((value for glob, value in values.items() if fnmatchcase(leaf, glob)), None)


def _resource(row: Json, server: str) -> Tool:
    return Tool.define(
        str(row.get("name") or row.get("uri")),
        server=server,
        title=row.get("title") or "",
        description=row.get("description") or f"Read {row.get('uri')}.",
        kind=RESOURCE,
        effect=Effect.READ,
        extras={"uri": row.get("uri"), "mimeType": row.get("mimeType")},
    )


def _template(row: Json, server: str) -> Tool:
    uri = str(row.get("uriTemplate"))
    names = [name.strip("*") for part in _PLACEHOLDER.findall(uri) for name in part.split(",")]
    return Tool.define(
        str(row.get("name") or uri),
        server=server,
        title=row.get("title") or "",
        description=row.get("description") or f"Read {uri}.",
        input_schema=_texts_schema(dict.fromkeys(names), list(dict.fromkeys(names))),
        kind=TEMPLATE,
        effect=Effect.READ,
        extras={"uriTemplate": uri},
    )


def _prompt(row: Json, server: str) -> Tool:
    given: Any = row.get("arguments")
    listed = [a for a in given if is_object(a) and a.get("name")] if is_list(given) else []
    told = {str(a["name"]): a.get("description") for a in listed}
    required = [str(a["name"]) for a in listed if a.get("required") is True]
    return Tool.define(
        str(row.get("name")),
        server=server,
        title=row.get("title") or "",
        description=row.get("description") or "",
        input_schema=_texts_schema(told, required),
        kind=PROMPT,
        effect=Effect.READ,
        extras={"prompt": row.get("name")},
    )


def _texts_schema(told: Mapping[str, str | None], required: list[str]) -> Json:
    properties: Json = {
        name: {"type": "string"} | ({"description": text} if text else {})
        for name, text in told.items()
    }
    return {"type": "object", "properties": properties, "required": required}
