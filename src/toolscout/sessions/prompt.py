"""`Prompt`: what a request carries because of a session: its tools and its part of the prompt.

Decisions that are made once, such as whether tools are hidden at all, go into the record, so that
the beginning of a conversation never changes its bytes (R98). The listing depends on the tools
alone and shows each server by names and sentences, by names, or by a count, as its budget allows.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from toolscout.dialects import Dialect, check_definitions, to_definition, to_search
from toolscout.errors import UsageError
from toolscout.names import find_near_names, list_some, to_one_line
from toolscout.schemas import Json
from toolscout.sessions.metatools import INSTRUCTIONS, SEARCH, build_meta_tools
from toolscout.sessions.record import Record
from toolscout.sessions.texts import (
    LISTING_HEAD,
    MORE_SERVERS,
    NEW_TOOLS,
    OWN_TOOLS,
    REMOVED_TOOLS,
)
from toolscout.settings import Hiding, Mode, Settings
from toolscout.tokens import count_definition_tokens, count_tokens
from toolscout.tools import Tool

SENTENCE_CHARS = 80
SERVER_CHARS = 60
DELTA_NAMES = 20
"""Names that an announcement lists for one server."""
MANY_TOOLS = 2_000
"""A server with more tools than this is never listed by names."""
AUTO_COUNTED = 2_000
"""Beyond this many tools a catalogue is large whatever its definitions cost."""


@dataclass(frozen=True, slots=True)
class ShownTool:
    """A tool that a request declares to the provider."""

    tool: Tool
    deferred: bool = False
    """Whether the provider keeps it from the model until something refers to it."""


@dataclass(slots=True)
class Prompt:
    """What the requests of one session say about tools."""

    record: Record
    settings: Settings
    visible: Callable[[], Sequence[Tool]]
    """The tools that this session may see now, by name."""
    is_waiting: Callable[[], bool]
    """Whether a server is still connecting."""
    meta_allowed: bool = True
    """False where the host takes no meta-tools: then nothing can be hidden (R95)."""
    _names: dict[str, tuple[str, ...]] | None = None
    """The tools behind the digests in `record.told`, while this process remembers them."""
    _listed: dict[str, tuple[str, ...]] | None = None
    """The same for `record.listed`."""

    def decide(self) -> bool:
        """Return whether tools are hidden: decided once, and later only from no to yes (R94)."""
        if self.record.hiding is True and self.meta_allowed:
            return True
        hides = self._should_hide()
        if self.record.hiding is None and not hides:
            self.record.declared = [tool.name for tool in self.visible()]
        self.record.hiding = hides
        return hides

    def build_definitions(
        self, dialect: Dialect | str, *, listing: bool = False, forced: str = ""
    ) -> list[Json]:
        """Return the definitions of a request, the same bytes for the same state.

        `listing` puts what exists into `tool_search`. A `forced` tool is added at the end for
        this request alone (R80).
        """
        if self.settings.mode is Mode.DEFINITIONS:
            check_definitions(dialect)
        definitions: list[Json] = []
        for shown in self.list_shown(listing=listing):
            if self.settings.mode is Mode.DEFINITIONS and shown.tool.name == SEARCH:
                definitions.append(to_search(shown.tool, dialect))
            else:
                definitions.append(to_definition(shown.tool, dialect, deferred=shown.deferred))
        return self._add_forced(definitions, forced, dialect) if forced else definitions

    def render_system_prompt(self, *, listing: bool = True) -> str:
        """Return the text for the system prompt; empty where nothing is hidden (R100)."""
        if not self.decide():
            return ""
        listed = self.freeze_listing() if listing else ""
        return f"{INSTRUCTIONS}\n\n{listed}" if listed else INSTRUCTIONS

    def freeze_listing(self) -> str:
        """Return what exists, as it was when first asked for."""
        if self.record.listing is None:
            share = self.settings.context_window * self.settings.listing_share / 100
            budget = min(self.settings.listing_tokens, int(share))
            hidden = list(self._list_hidden())
            self.record.listing = render_listing(hidden, budget)
            self._names = self._listed = _group_names(hidden)
            self.record.listed = _hash_names(self._listed)
            self.record.told = dict(self.record.listed)
        return self.record.listing

    def render_announcement(self, *, again: bool = False) -> str:
        """Return a message about tools that came and went since the last one, or nothing.

        `again` starts from the listing, for a conversation that lost its earlier messages.
        """
        if self.record.listing is None:
            return ""
        if again:
            self.record.told = dict(self.record.listed)
            self._names = self._listed
        hidden = list(self._list_hidden())
        now = _group_names(hidden)
        digests = _hash_names(now)
        text = self._render_changed(hidden, digests)
        self.record.told = digests
        self._names = now
        return text

    def compact(self) -> None:
        """Go back to the listing with the record: later announcements were dropped."""
        self._names = self._listed

    def compute_cache_key(self, dialect: Dialect | str) -> str:
        """Return a hash of all that a request carries, to watch a cache with (R107)."""
        carried = json.dumps(
            [self.build_definitions(dialect), self.render_system_prompt()], ensure_ascii=False
        )
        return hashlib.sha256(carried.encode()).hexdigest()[:16]

    def _should_hide(self) -> bool:
        if not self.meta_allowed or self.settings.hiding is Hiding.OFF:
            return False
        if self.settings.hiding is Hiding.AUTO and not self._is_large():
            return False
        # R105: with nothing to hide and nothing on its way, meta-tools would only cost.
        return any(self._list_hidden()) or self.is_waiting()

    def _is_large(self) -> bool:
        tools, share = self.visible(), self.settings.auto_share
        if share == 0:
            return True
        if share == 100:
            return False
        if len(tools) > min(self.settings.auto_tools, AUTO_COUNTED):
            return True
        room = self.settings.context_window * share / 100
        return sum(map(count_definition_tokens, tools)) > room

    def _list_hidden(self) -> Iterator[Tool]:
        declared = {name for name, entry in self.record.entries.items() if entry.pinned}
        declared.update(self.record.declared)
        return (tool for tool in self.visible() if tool.name not in declared)

    def list_shown(self, *, listing: bool = False) -> list[ShownTool]:
        """Return the tools of a request in order, before they take a provider's shape."""
        hides = self.decide()
        by_name = {tool.name: tool for tool in self.visible()}
        if not hides:
            late = [name for name in by_name if name not in set(self.record.declared)]
            self.record.declared += late
        before = [by_name[name] for name in self.record.declared if name in by_name]
        if not hides:
            return [*map(ShownTool, before)]
        meta = build_meta_tools(self.freeze_listing() if listing else "")
        declared = set(self.record.declared)
        everything = self.settings.mode is Mode.NATIVE
        loaded = [e.name for e in self.record.entries.values() if e.pinned or everything]
        after = [by_name[name] for name in loaded if name in by_name and name not in declared]
        shown = [*map(ShownTool, (*before, *meta, *after))]
        if self.settings.mode is Mode.REFERENCE:
            declared.update(tool.name for tool in after)
            hidden = [tool for name, tool in by_name.items() if name not in declared]
            shown += [ShownTool(tool, deferred=True) for tool in hidden]
        return shown

    def _add_forced(self, definitions: list[Json], name: str, dialect: Dialect | str) -> list[Json]:
        by_name = {tool.name: tool for tool in self.visible()}
        if name not in by_name:
            near = ", ".join(find_near_names(name, by_name)) or "none"
            raise UsageError(f"There is no tool {name!r} to force. Near: {near}.")
        tool = by_name[name]
        if not self.record.holds(tool):
            # R50: what a request declares, the session accepts.
            self.record.offer([tool])
        whole = to_definition(tool, dialect)
        if whole in definitions:
            return definitions
        deferred = to_definition(tool, dialect, deferred=True)
        return [*(shown for shown in definitions if shown != deferred), whole]

    def _render_changed(self, hidden: list[Tool], digests: dict[str, str]) -> str:
        before = self.record.told
        servers = {*before, *digests}
        changed = {name for name in servers if before.get(name) != digests.get(name)}
        names = self._names
        if names is None:
            # Digests do not say which tools a server had, so all of them are announced.
            added = [tool for tool in hidden if tool.server in changed]
            gone = changed - {tool.server for tool in self.visible()}
            return render_changes(added, [f"{_format_server(server)} (all)" for server in gone])
        known = {name for server in changed for name in names.get(server, ())}
        added = [t for t in hidden if t.server in changed and t.name not in known]
        # A tool that was pinned meanwhile is no longer hidden, but it is not gone.
        return render_changes(added, [*(known - {tool.name for tool in self.visible()})])


def _group_names(tools: Iterable[Tool]) -> dict[str, tuple[str, ...]]:
    groups = _group_tools(tools).items()
    return {server: tuple(tool.name for tool in group) for server, group in groups}


def _hash_names(names: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {
        server: hashlib.sha256("\n".join(group).encode()).hexdigest()[:8]
        for server, group in names.items()
    }


# The listing.


def render_listing(tools: Iterable[Tool], budget: int) -> str:
    """Return what exists within a number of tokens; nothing if there is no room or no tool."""
    lines = [_ServerLine(server, group) for server, group in _group_tools(tools).items()]
    room = budget - count_tokens(LISTING_HEAD) - 1
    spent = sum(line.cost for line in lines)
    if spent > room:
        rows = _render_counts(lines, room)
    else:
        for level in (1, 2):
            # Small servers first: more servers are listed in full for the same tokens.
            for line in sorted(lines, key=lambda line: (line.count_cost(level), line.server)):
                more = line.count_cost(level) - line.cost
                if line.level == level - 1 and spent + more <= room:
                    line.level = level
                    spent += more
        rows = [line.render(line.level) for line in lines]
    text = "\n".join([LISTING_HEAD, *rows]) if lines else ""
    return text if count_tokens(text) <= budget else ""


def render_changes(added: Sequence[Tool], removed: Sequence[str]) -> str:
    """Return a line about tools that came and went since the listing, or nothing."""
    parts: list[str] = []
    for server, group in _group_tools(added).items():
        listed = list_some([tool.name for tool in group], DELTA_NAMES)
        parts.append(NEW_TOOLS.format(server=_format_server(server), names=listed))
    if removed:
        parts.append(REMOVED_TOOLS.format(names=list_some(sorted(removed), DELTA_NAMES)))
    return " ".join(parts)


def _group_tools(tools: Iterable[Tool]) -> dict[str, list[Tool]]:
    groups: dict[str, list[Tool]] = {}
    for tool in sorted(tools, key=lambda tool: (tool.server, tool.name)):
        groups.setdefault(tool.server, []).append(tool)
    return groups


def _format_server(server: str) -> str:
    return to_one_line(server, SERVER_CHARS) or OWN_TOOLS


@dataclass(slots=True)
class _ServerLine:
    """One server, shown by a count (level 0), by names (1), or by names and sentences (2)."""

    server: str
    tools: list[Tool]
    level: int = 0

    @property
    def cost(self) -> int:
        return self.count_cost(self.level)

    def count_cost(self, level: int) -> int:
        # Names cost at least two tokens each, so a big server is dear without being counted.
        if level and len(self.tools) > MANY_TOOLS:
            return MANY_TOOLS * MANY_TOOLS
        return count_tokens(self.render(level)) + 1

    def render(self, level: int) -> str:
        head = f"- {_format_server(self.server)}:"
        if level == 0:
            return f"{head} {len(self.tools):,}"
        if level == 1:
            return f"{head} {', '.join(tool.name for tool in self.tools)}"
        lines = [head]
        for tool in self.tools:
            sentence = to_one_line(tool.first_sentence, SENTENCE_CHARS)
            lines.append(f"  - {tool.name}: {sentence}" if sentence else f"  - {tool.name}")
        return "\n".join(lines)


def _render_counts(lines: list[_ServerLine], room: int) -> list[str]:
    """Return the counts of the largest servers that fit, by name, and what is left off."""
    by_size = sorted(lines, key=lambda line: (-len(line.tools), line.server))
    room -= count_tokens(_render_more(lines)) + 1
    kept: list[_ServerLine] = []
    for line in by_size:
        room -= line.cost
        if room < 0:
            break
        kept.append(line)
    left = by_size[len(kept) :]
    shown = [line.render(line.level) for line in sorted(kept, key=lambda line: line.server)]
    return [*shown, _render_more(left)]


def _render_more(lines: list[_ServerLine]) -> str:
    return MORE_SERVERS.format(servers=len(lines), tools=sum(len(line.tools) for line in lines))
