"""`CatalogUpdater`: turns the lists of servers into tools of the catalogue, and stores them.

Stored lists are searchable before their server has started (R86). A worker thread takes one list
after the other, turns it into tools, indexes and stores it, so that the event loop stays free.
"""

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from fnmatch import fnmatchcase, translate
from typing import Any, TypeVar
from urllib.parse import unquote

from mcp.shared.exceptions import MCPError

from toolscout.calls.shapes import forget_shapes
from toolscout.catalog import Catalog, Pace, Status
from toolscout.config.file import Config
from toolscout.config.references import resolve_options
from toolscout.config.servers import Changes, ServerConfig, ToolOverride, Transport
from toolscout.errors import InvalidConfig, InvalidTool, ToolscoutError
from toolscout.names import clean_text, find_near_names, make_exposed_name, to_one_line
from toolscout.options import join_keys, quote_name
from toolscout.schemas import (
    Json,
    clean_texts,
    find_problem,
    is_list,
    is_object,
    list_parameters,
    remove_arguments,
    to_canonical_json,
)
from toolscout.search.text import split_words
from toolscout.servers.approvals import (
    ApprovalDecision,
    Approvals,
    Checked,
    HeldDefinition,
    Lock,
    compute_config_key,
)
from toolscout.servers.connection import Connection, Delays
from toolscout.servers.manifest import (
    LAYOUT,
    PROMPT,
    RESOURCE,
    TEMPLATE,
    TOOL,
    Manifest,
    manifest_from_bytes,
)
from toolscout.servers.skills import build_manifest, open_folders
from toolscout.servers.state import Phase, ServerState
from toolscout.sessions.prompt import SUMMARY_CHARS
from toolscout.skills.skill import SKILL, SKILL_FILE, is_for_people, tool_from_entry
from toolscout.stores.memory import MemoryStore
from toolscout.stores.store import Store
from toolscout.tools import (
    APP_URI,
    DESCRIPTION_LIMIT,
    PASSED_MEMBERS,
    TITLE_LIMIT,
    Effect,
    Tool,
    take_first_sentence,
)

MANIFEST_KIND = "manifest"
STOPPED_REASON = "it was stopped"
TOOLS_LIMIT = 20_000
HELD_LOGGED = 10
"""How many held definitions of one list have a line each in the log."""
INSTRUCTIONS_CHARS = 4_000
META_CHARS = 16_000
"""Longer metadata of a tool is left out."""
ICONS_LIMIT = 8
ICONS_CHARS = 32_000
"""For all icons of a tool together; those that no longer fit are left out."""
KEPT_SCHEMES = ("ui://", "skill://")
"""The schemes of apps and skills, by which clients know them."""
OWN_PLACE = "toolscout"
"""The place of addresses that the gateway makes."""
DECODED_TIMES = 3
"""How often a server may decode an address."""
PLAIN_TITLE_WORDS = frozenset({"a", "for", "mcp", "server", "the"})
"""Words that do not make a title say more than the server's name."""

_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")
_ICON_SCHEMES = ("https://", "http://", "data:image/")
_WARNINGS = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""The values with which the hints of a tool warn; the others reassure."""
_PLACE_END = re.compile(r"[/\\?#]")
_PLACEHOLDER = re.compile(r"\{[+#./;?&]?([\w.,*]+)\}")


class CatalogUpdater:
    """Updates one catalogue. Call `close` at the end."""

    def __init__(self, catalog: Catalog, store: Store, lock: Lock | None = None) -> None:
        self.approvals = Approvals(store, lock)
        self.on_decision: Callable[[ApprovalDecision], None] = lambda decision: None
        """Called with what became of a changed definition, in any thread."""
        self.approvals.on_decision = lambda decision: self.on_decision(decision)
        self._catalog = catalog
        self._store = store
        self._worker = ThreadPoolExecutor(1, "toolscout-catalog")

    def recall(self, server: ServerState) -> None:
        """Offer the stored tools of a server, or mark it as pending; blocks."""
        self._catalog.set_pending(server.name, summary=summarize(server.config))
        manifest = read_stored_manifest(self._store, server.config)
        if manifest is not None:
            self.offer(server, manifest)

    def offer(self, server: ServerState, manifest: Manifest) -> None:
        """Offer the tools of a list that nobody else uses; blocks."""
        self._replace(server, manifest)
        server.phase = Phase.KNOWN

    async def recall_later(self, server: ServerState) -> None:
        """Offer the stored tools of a server, unless it lists its tools before that."""
        self._catalog.set_pending(server.name, summary=summarize(server.config))
        manifest = await asyncio.to_thread(read_stored_manifest, self._store, server.config)
        if manifest is None or server.manifest is not None:
            return
        await self.publish(server, manifest)
        if server.phase is Phase.CONFIGURED:
            server.phase = Phase.KNOWN

    async def adopt(self, server: ServerState) -> None:
        """Offer the tools of a server as another gateway has listed and stored them.

        A server that is connected here is asked itself: what is called here is what it lists.
        """
        if server.connection is not None:
            server.list_again()
            return
        manifest = await asyncio.to_thread(read_stored_manifest, self._store, server.config)
        if manifest is None:
            return
        if not is_same(manifest, server.manifest):
            await self.publish(server, manifest)
            if server.phase is Phase.CONFIGURED:
                server.phase = Phase.KNOWN

    async def refresh(self, server: ServerState, connection: Connection) -> None:
        """Ask a server for its listings, then publish and store them if they have changed."""
        async with asyncio.timeout(server.config.start_seconds):
            manifest = await connection.read_manifest()
        work = self._worker.submit(self._replace_if_changed, server, manifest)
        if await asyncio.wrap_future(work):
            self._worker.submit(self._save, server.config, manifest)

    async def follow(
        self,
        server: ServerState,
        connection: Connection,
        has_changed: asyncio.Event,
        delays: Delays,
    ) -> None:
        """Refresh the lists whenever they have changed; a burst of changes counts as one."""
        pause = delays.change
        while True:
            await has_changed.wait()
            await asyncio.sleep(pause)
            has_changed.clear()
            try:
                await self.refresh(server, connection)
            except (ToolscoutError, MCPError, TimeoutError) as error:
                _log.warning("The lists of server %s cannot be read: %s", server.name, error)
            # Some servers announce a change whenever they are asked for their lists.
            pause = pause * 2 if has_changed.is_set() else delays.change
            pause = min(pause, delays.most_change)

    async def publish(self, server: ServerState, manifest: Manifest) -> None:
        """Make the tools of a manifest those of a server and mark the server as ready."""
        await asyncio.wrap_future(self._worker.submit(self._replace, server, manifest))

    async def decide(
        self, server: ServerState, held: Sequence[HeldDefinition], *, approve: bool, by: str
    ) -> None:
        """Approve or reject definitions, and offer what may be used now."""

        def work() -> None:
            self.approvals.decide(server.config, held, approve=approve, by=by)
            self._check_again(server)

        await asyncio.wrap_future(self._worker.submit(work))

    async def apply_decisions(self, servers: Mapping[str, ServerState]) -> None:
        """Offer what somebody has approved in another process, and nothing that was rejected."""

        def work() -> None:
            for name in self.approvals.read_news():
                if name in servers:
                    self._check_again(servers[name])

        await asyncio.wrap_future(self._worker.submit(work))

    async def remove(self, name: str) -> None:
        """Take a server out of the catalogue."""
        await asyncio.wrap_future(self._worker.submit(self._catalog.remove, name))

    async def close(self) -> None:
        """Finish all jobs and end the worker."""
        await asyncio.to_thread(self._worker.shutdown)

    def read_whole(self, server: ServerState) -> Manifest | None:
        """Return the listings of a server with its tools, which may be only in the store."""
        manifest = server.manifest
        if manifest is None or not manifest.whole:
            return manifest
        return read_stored_manifest(self._store, server.config)

    def is_ready(self, server: ServerState) -> bool:
        """Tell whether the catalogue lists a server as ready."""
        state = self._catalog.state(server.name)
        return state is not None and state.status is Status.READY

    # In the worker.

    def _replace_if_changed(self, server: ServerState, manifest: Manifest) -> bool:
        if is_same(manifest, server.manifest) and self.is_ready(server):
            return False
        self._replace(server, manifest)
        return True

    def _check_again(self, server: ServerState) -> None:
        manifest = self.read_whole(server)
        if manifest is not None:
            self._replace(server, manifest)

    def _replace(self, server: ServerState, manifest: Manifest) -> None:
        if server.is_held:
            return
        checked = self.approvals.check(server.config, manifest)
        entries, problems = build_entries(server.config, checked.manifest)
        tools = self._choose_free(server.config, entries, problems)
        problems += checked.problems
        problems += list_unused_overrides(server.config, manifest)
        for problem in problems:
            if problem not in server.problems:
                is_drift = self.approvals.is_locked and problem in checked.problems
                level = logging.ERROR if is_drift else logging.WARNING
                _log.log(level, "Server %s: %s", server.name, problem)
        summary = summarize(server.config, checked.manifest)
        held = build_held_entries(server.config, checked.held)
        found = {find_place(uri) for tool in tools for uri in list_kept_uris(tool)}
        places = frozenset(found - {""})
        before = server.manifest, server.held_definitions, server.places
        known = {item.id for item in server.held_definitions}
        server.held_definitions = checked.held
        server.manifest = manifest  # calls may arrive as soon as the tools are there
        server.places |= places
        try:
            self._catalog.replace(server.name, tools, summary=summary, held=held)
        except BaseException:
            server.manifest, server.held_definitions, server.places = before
            raise
        server.places = places
        server.problems = tuple(problems)
        if not self._catalog.is_local:  # it is for more tools than memory holds
            server.manifest = leave_out_tools(manifest)
            self.approvals.release(server.config)
        if server.is_held:  # it was stopped meanwhile, which marked it as failed before
            self._catalog.set_failed(server.name, STOPPED_REASON)
        self._report_changes(server, checked, known)

    def _report_changes(self, server: ServerState, checked: Checked, known: Set[str]) -> None:
        """Report what is held or allowed and was not known yet, the first ones by name."""
        held = [item for item in checked.held if item.id not in known and not item.is_rejected]
        is_denied = server.config.changes == Changes.DENY or self.approvals.is_locked
        outcome = "denied" if is_denied else "held"
        for said, items in ((outcome, held), ("allowed", checked.allowed)):
            level = logging.INFO if said == "allowed" else logging.WARNING
            for item in items[:HELD_LOGGED]:
                fields = {"server": server.name, "tool": item.label, "change": item.change.value}
                fields |= {"digest": item.digest, "findings": item.codes or "none"}
                text = "%s server=%s name=%s change=%s digest=%s findings=%s"
                _log.log(level, text, said, *fields.values(), extra=fields)
                self.on_decision(
                    ApprovalDecision(
                        server=server.name, name=item.label, digest=item.digest, outcome=said
                    )
                )
            more = len(items) - HELD_LOGGED
            if more > 0:
                fields = {"server": server.name, "more": more}
                _log.log(level, "%s server=%s more=%d", said, server.name, more, extra=fields)
                self.on_decision(
                    ApprovalDecision(
                        server=server.name, name="", digest="", outcome=said, more=more
                    )
                )

    def _choose_free(
        self, config: ServerConfig, entries: list[Tool], problems: list[str]
    ) -> list[Tool]:
        """Return the tools that the catalogue can have, and add why it cannot have the others."""
        owners = self._catalog.find_owners([tool.name for tool in entries])
        free: list[Tool] = []
        for tool in entries:
            owner = owners.get(tool.name, tool.server)
            if owner != tool.server:
                # R84: if two servers want one name, neither loses its other tools.
                problems.append(f"{tool.leaf!r} would be {tool.name!r}, which {owner!r} has.")
            elif not self._catalog.is_local and _has_secret_arguments(config, tool):
                problems.append(
                    f"{tool.leaf!r} has a fixed argument that is read from elsewhere, which a "
                    "catalogue in a database would show. Give the value to the server itself, for "
                    "example in `env` or `headers`. Until then, the tool is left out."
                )
            else:
                free.append(tool)
        return free

    def _save(self, config: ServerConfig, manifest: Manifest) -> None:
        try:
            self.approvals.save(config)
            save_manifest(self._store, config, replace(manifest, is_checked=True))
        except Exception:  # a cache that cannot be written is no reason to lose a server
            _log.warning("The lists of server %s were not stored.", config.name, exc_info=True)


def recall_catalog(config: Config, store: Store | None) -> Catalog:
    """Return the tools that the servers of a configuration listed last; the others are pending."""
    catalog = Catalog()
    for server in config.servers:
        if server.disabled:
            continue
        if server.transport is Transport.SKILLS:
            _read_folders(catalog, server, store)
        elif store is None:
            catalog.set_pending(server.name, summary=summarize(server))
        else:
            CatalogUpdater(catalog, store).recall(ServerState(config=server))
    return catalog


def _read_folders(catalog: Catalog, config: ServerConfig, store: Store | None) -> None:
    """Offer the skills of folders as they are now, without what waits for approval."""
    try:
        folder = open_folders(config.resolve())
    except InvalidConfig as error:
        catalog.set_failed(config.name, str(error))
        return
    # Only a gateway that uses them for the first time approves them.
    is_known = store is not None and read_stored_manifest(store, config) is not None
    updater = CatalogUpdater(catalog, store if store is not None and is_known else MemoryStore())
    updater.offer(ServerState(config=config), build_manifest(folder))


def find_held(config: Config, store: Store) -> Iterator[tuple[ServerConfig, HeldDefinition]]:
    """Yield what servers listed last and nobody may use before a person approves it."""
    approvals = Approvals(store)
    for server in config.servers:
        manifest = None if server.disabled else read_stored_manifest(store, server)
        if manifest is not None:
            for item in approvals.check(server, manifest).held:
                yield server, item


def find_override_problems(config: Config, store: Store) -> Iterator[str]:
    """Yield why single tools of servers, as they were listed last, are not as configured."""
    for server in config.servers:
        is_changed = bool(server.tools) and not server.disabled
        manifest = read_stored_manifest(store, server) if is_changed else None
        if manifest is not None:
            yield from build_entries(server, replace(manifest, problems=()))[1]
            yield from list_unused_overrides(server, manifest)


def read_stored_manifest(store: Store, config: ServerConfig) -> Manifest | None:
    """Return the listings that a server last had under this configuration."""
    data = store.read(MANIFEST_KIND, config.name)
    return None if data is None else manifest_from_bytes(data, compute_config_key(config))


def forget_server(store: Store, name: str) -> None:
    """Delete what is known of a server, whose next list is then its first."""
    # In this order: listings without the approvals that they were compared with are held.
    store.write(MANIFEST_KIND, name, None)
    Approvals(store).forget(name)
    forget_shapes(store, make_exposed_name(name, "x").removesuffix("x"))


def save_manifest(store: Store, config: ServerConfig, manifest: Manifest) -> None:
    """Store the listings of a server for the next run."""
    row = {f.name: getattr(manifest, f.name) for f in fields(manifest) if f.name != "whole"}
    row |= {"layout": LAYOUT, "key": compute_config_key(config)}
    store.write(MANIFEST_KIND, config.name, json.dumps(row).encode())


def leave_out_tools(manifest: Manifest) -> Manifest:
    """Return listings without the tools, which are still the same as the whole ones."""
    return replace(manifest, tools=(), whole=_digest(manifest))


def is_same(one: Manifest, other: Manifest | None) -> bool:
    """Tell whether two listings are the same, even if the tools of one are left out."""
    if other is None or not (one.whole or other.whole):
        return one == other
    return _digest(one) == _digest(other)


def _digest(manifest: Manifest) -> str:
    listed = [getattr(manifest, f.name) for f in fields(manifest) if f.compare]
    return manifest.whole or hashlib.sha256(to_canonical_json(listed)).hexdigest()


def summarize(config: ServerConfig, manifest: Manifest | None = None) -> str:
    """Return what a server is for, in a few words of its owner or of its own; may be empty."""
    if config.hint or manifest is None:
        return to_one_line(config.hint, SUMMARY_CHARS)
    title = to_one_line(manifest.title, SUMMARY_CHARS)
    if {*split_words(title)} - {*split_words(config.name)} - PLAIN_TITLE_WORDS:
        return title
    return take_first_sentence(manifest.instructions, SUMMARY_CHARS)


def build_entries(config: ServerConfig, manifest: Manifest) -> tuple[list[Tool], list[str]]:
    """Return the tools that a configuration admits, and why others are missing.

    Tools are filtered, changed, renamed and pinned, and get the effects and hints of the
    configuration.
    Resources, prompts and skills become entries of their own kind, so that one search finds them
    all (R27). An invalid definition is left out and reported; its server keeps the others.
    """
    problems = list(manifest.problems)
    found: dict[str, Tool] = {}
    is_allowed = _compile_patterns(config.allow)
    is_denied = _compile_patterns(config.deny)
    is_pinned = _compile_patterns(config.pins)
    pace = Pace(len(manifest.tools))
    instructions = clean_text(manifest.instructions, INSTRUCTIONS_CHARS).strip()
    for tool in _read_entries(config.name, manifest, problems):
        pace.step()
        if not is_allowed(tool.leaf) or is_denied(tool.leaf):
            continue
        override = config.tools.get(tool.leaf) if tool.kind == TOOL else None
        if override is not None:
            if not override.enabled:
                continue
            try:
                tool = _apply_override(config, override, tool)
            except InvalidConfig as error:  # more would be allowed without it
                problems.append(f"{error} Until then, {tool.leaf!r} is left out.")
                continue
        # What a server marks would be in every request of every client, whoever wrote it.
        pinned = (tool.always_load and config.may_pin) or bool(is_pinned(tool.leaf))
        adjusted = _adjust(config, tool, instructions=instructions, always_load=pinned)
        entry = _make_distinct(adjusted, found)
        if entry.name in found:
            problems.append(f"{tool.leaf!r} is offered twice; the first one counts.")
        elif len(found) >= TOOLS_LIMIT:
            problems.append(f"More than {TOOLS_LIMIT:,} tools; the rest is left out.")
            break
        else:
            found[entry.name] = entry
    return list(found.values()), problems


def _apply_override(config: ServerConfig, override: ToolOverride, tool: Tool) -> Tool:
    """Return a tool as the operator changed it; raises `InvalidConfig` if that cannot be done."""
    place = join_keys("servers", config.name, "tools", tool.leaf)
    plain = resolve_options(override, None, key=place)
    schema = tool.input_schema
    known = {parameter.name for parameter in list_parameters(schema, max_depth=1)}
    for key, names in (("arguments", plain.arguments), ("hidden", plain.hidden)):
        for name in names:
            if name not in known:
                problem = f"names {quote_name(name)}, which is no argument of the tool"
                near = find_near_names(name, known, limit=1)
                remedy = f"Use {near[0]!r}." if near else "Remove it."
                raise InvalidConfig(f"{place}.{key}", problem, remedy=remedy)
    changed = remove_arguments(schema, dict(plain.arguments), plain.hidden)
    if changed is None:
        problem = "leaves no call that the tool's schema accepts"
        remedy = "Hide only optional arguments, and fix values that the schema allows."
        raise InvalidConfig(place, problem, remedy=remedy)
    left = {parameter.name for parameter in list_parameters(changed, max_depth=1)}
    for name in (*plain.arguments, *plain.hidden):
        if name in left:
            problem = f"names {quote_name(name)}, which the schema declares in a reference"
            raise InvalidConfig(place, problem, remedy="Leave it to the model, or use `enabled`.")
    return replace(
        tool,
        description=clean_text(plain.description, DESCRIPTION_LIMIT) or tool.description,
        input_schema=changed,
        fixed_arguments=dict(plain.arguments),
        hidden_arguments=plain.hidden,
    )


def list_unused_overrides(config: ServerConfig, manifest: Manifest) -> list[str]:
    """Return a problem for each tool that a configuration changes and the server does not have."""
    offered = [str(row.get("name")) for row in manifest.tools]
    problems: list[str] = []
    for name in config.tools.keys() - set(offered):
        near = find_near_names(name, offered, limit=1)
        remedy = f"Use {near[0]!r}." if near else "Remove it."
        place = join_keys("servers", config.name, "tools", name)
        problem = "is for a tool that the server does not have"
        problems.append(str(InvalidConfig(place, problem, remedy=remedy)))
    return sorted(problems)


def _has_secret_arguments(config: ServerConfig, tool: Tool) -> bool:
    """Tell whether a fixed argument of a tool has another value than the configuration shows."""
    override = config.tools.get(tool.leaf)
    return override is not None and dict(override.arguments) != tool.fixed_arguments


def list_kept_uris(tool: Tool) -> list[str]:
    """Return the addresses with a kept scheme that an entry of the catalogue announces."""
    if tool.kind == RESOURCE:
        given: list[object] = [tool.extras.get("uri")]
    elif tool.kind == TEMPLATE:
        given = [tool.extras.get("uriTemplate")]
    elif tool.kind == SKILL:
        given = [tool.extras[SKILL]["uri"]]
    else:
        named = tool.app.values() if tool.kind == TOOL else ()
        given = [value.get(APP_URI) if is_object(value) else value for value in named]
    return [uri for uri in given if isinstance(uri, str) and find_kept_scheme(uri)]


def find_kept_scheme(uri: str) -> str:
    """Return the scheme of an address if clients know such addresses by it; otherwise nothing."""
    return next((scheme for scheme in KEPT_SCHEMES if uri.startswith(scheme)), "")


def find_place(uri: str) -> str:
    """Return scheme and place of an address, in one spelling; empty if it is not certain."""
    scheme, _, rest = uri.partition("://")
    name = _PLACE_END.split(rest, maxsplit=1)[0]
    if "%" in name:  # what it means may be shorter
        name = _PLACE_END.split(decode_uri(name), maxsplit=1)[0]
    name = name.casefold()
    return "" if name == OWN_PLACE or "{" in name else f"{scheme}://{name}"


def decode_uri(uri: str) -> str:
    """Return an address as a server may read it that decodes what was decoded before."""
    for _ in range(DECODED_TIMES):
        uri = unquote(uri)
    return uri


def build_held_entries(config: ServerConfig, held: Iterable[HeldDefinition]) -> list[Tool]:
    """Return the tools that definitions which wait for approval would be."""
    named = [item for item in held if item.name]
    tools = tuple(item.definition for item in named if not item.is_skill)
    skills = tuple(item.definition for item in named if item.is_skill)
    return build_entries(config, Manifest(tools=tools, skills=skills))[0]


def _compile_patterns(patterns: Iterable[str]) -> Callable[[str], object]:
    """Return a function that tells whether one of some glob patterns matches a name."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)").match


def _read_entries(server: str, manifest: Manifest, problems: list[str]) -> Iterable[Tool]:
    lists = {
        TOOL: manifest.tools,
        SKILL: manifest.skills,
        RESOURCE: manifest.resources,
        TEMPLATE: manifest.templates,
        PROMPT: manifest.prompts,
    }
    for kind, rows in lists.items():
        for row in rows:
            try:
                if kind == TOOL:
                    yield Tool.from_mcp(row, server=server)
                elif kind == SKILL:
                    if not is_for_people(row):
                        yield tool_from_entry(row, server)
                else:
                    yield _entry_from_row(kind, row, server)
            except InvalidTool as error:
                problems.append(str(error))


def _adjust(config: ServerConfig, tool: Tool, *, instructions: str, always_load: bool) -> Tool:
    effect = _find_first(config.effects, tool.leaf)
    # A server may lie about what its tools do; toolscout itself chooses the method of an HTTP API.
    is_trusted = config.trust_effects or config.transport is Transport.OPENAPI
    is_harmless = tool.kind == TOOL and tool.effect in (Effect.READ, Effect.WRITE)
    is_doubted = is_harmless and effect is None and not is_trusted
    hint = _find_first(config.hints, tool.leaf) or config.hint
    changed = replace(
        tool,
        input_schema=clean_texts(tool.input_schema),
        output_schema=clean_texts(tool.output_schema),
        effect=Effect.UNKNOWN if is_doubted else effect or tool.effect,
        claimed_effect=tool.effect if is_doubted else None,
        hint=" ".join(filter(None, (tool.hint, hint))),
        instructions=instructions,
        always_load=always_load,
        extras=_check_extras(tool, is_trusted=is_trusted) if tool.kind == TOOL else tool.extras,
    )
    new = config.renames.get(tool.leaf)
    if new is None:
        return changed
    # Calls must use the old name, which the server knows.
    renamed = replace(changed, leaf=new).move_to(tool.server)
    return replace(renamed, extras={**changed.extras, "leaf": tool.leaf}, aliases=(tool.leaf,))


def _check_extras(tool: Tool, *, is_trusted: bool) -> Json:
    """Return the extras of a tool with only such metadata, icons and hints as clients may see.

    Icons and metadata are bounded, because every list of the tool repeats them. A hint that says
    that a tool is harmless needs a server that is trusted.
    """
    extras = {key: value for key, value in tool.extras.items() if key not in PASSED_MEMBERS}
    hints = tool.extras.get("annotations")
    if is_object(hints):
        kept = {
            key: hints[key]
            for key, warning in _WARNINGS.items()
            if hints.get(key) is warning or (is_trusted and isinstance(hints.get(key), bool))
        }
        title = hints.get("title")
        if isinstance(title, str):
            kept["title"] = clean_text(title, TITLE_LIMIT)
        extras["annotations"] = kept
    meta = tool.extras.get("_meta")
    if is_object(meta) and not find_problem(meta) and len(json.dumps(meta)) <= META_CHARS:
        extras["_meta"] = clean_texts(meta)
    icons = tool.extras.get("icons")
    if is_list(icons):
        extras["icons"] = list(_choose_icons(icons))
    return extras


def _choose_icons(icons: list[Any]) -> Iterator[Json]:
    room = ICONS_CHARS
    for icon in icons[:ICONS_LIMIT]:
        source = str(icon.get("src")) if is_object(icon) and not find_problem(icon) else ""
        if source.casefold().startswith(_ICON_SCHEMES):
            size = len(json.dumps(icon))
            if size <= room:
                room -= size
                yield icon


def _make_distinct(tool: Tool, found: Mapping[str, Tool]) -> Tool:
    """Rename a resource, a prompt or a skill whose name is taken.

    A prompt often has the name of the tool that it explains. The server does not know our name
    for it, so it may change. Of two skills with one name, the second is named by its whole path.
    """
    if tool.name not in found or tool.kind == TOOL:
        return tool
    if tool.kind == SKILL and found[tool.name].kind == SKILL:
        path = str(tool.extras[SKILL]["uri"]).partition("://")[2].removesuffix(f"/{SKILL_FILE}")
        renamed = replace(tool, leaf=path).move_to(tool.server)
        if renamed.name not in found:
            return renamed
    renamed = replace(tool, leaf=f"{tool.leaf}_{tool.kind}").move_to(tool.server)
    if renamed.name not in found:
        return renamed
    digest = hashlib.sha256(to_canonical_json(dict(tool.extras))).hexdigest()[:8]
    return replace(tool, leaf=f"{tool.leaf}_{digest}").move_to(tool.server)


def _find_first(values: Mapping[str, _Value], leaf: str) -> _Value | None:
    return next((value for glob, value in values.items() if fnmatchcase(leaf, glob)), None)


def _entry_from_row(kind: str, row: Json, server: str) -> Tool:
    """Return a resource, a template or a prompt as an entry of the catalogue."""
    address = str(row.get("uri" if kind == RESOURCE else "uriTemplate") or "")
    extras: Json = {"uri": row.get("uri"), "mimeType": row.get("mimeType")}
    descriptions: dict[str, Any] = {}
    required: list[str] = []
    if kind == TEMPLATE:
        parts = [part.split(",") for part in _PLACEHOLDER.findall(address)]
        descriptions = dict.fromkeys(name.strip("*") for part in parts for name in part)
        required = list(descriptions)
        extras = {"uriTemplate": address}
    elif kind == PROMPT:
        value: Any = row.get("arguments")
        arguments = [a for a in value if is_object(a) and a.get("name")] if is_list(value) else []
        descriptions = {str(a["name"]): a.get("description") for a in arguments}
        required = [str(a["name"]) for a in arguments if a.get("required") is True]
        extras = {"prompt": row.get("name")}
    properties: Json = {
        name: {"type": "string", "description": text} if text else {"type": "string"}
        for name, text in descriptions.items()
    }
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool.define(
        str(row.get("name") or address),
        server=server,
        title=row.get("title") or "",
        description=row.get("description") or (f"Read {address}." if address else ""),
        input_schema=None if kind == RESOURCE else schema,
        kind=kind,
        effect=Effect.READ,
        extras=extras,
    )
