"""`Prompt`: what a request carries because of a session: its tools and its part of the prompt.

Decisions that are made once, such as whether tools are hidden at all, go into the record, so that
the beginning of a conversation never changes its bytes (R98). The listing of what exists is part of
the description of `tool_search`, or of the system prompt if the host wants it there. It depends on
what the session may see, not on what it has loaded.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from toolscout.catalog import Sample
from toolscout.dialects import Dialect, check_definitions, to_definition, to_search
from toolscout.errors import UsageError
from toolscout.names import find_near_names, list_some, make_exposed_name, to_one_line
from toolscout.schemas import Json
from toolscout.search.text import COMMON_WORDS, STOP_WORDS, split_words, stem
from toolscout.sessions import texts
from toolscout.sessions.metatools import INSTRUCTIONS, SEARCH, build_meta_tools, build_run_tool
from toolscout.sessions.record import Record
from toolscout.settings import Hiding, Listing, Mode, Settings
from toolscout.tokens import count_definition_tokens, count_tokens
from toolscout.tools import Tool

SERVER_CHARS = 60
SUMMARY_CHARS = 60
DELTA_NAMES = 20
"""Names that an announcement lists for one server."""
LISTING_SHARE = 0.05
"""The most of a context window that a listing takes."""
NAMES_SHARE = 0.6
"""The share of its budget up to which a listing has names; the rest is for many servers."""
LEAST_NAMES_TOKENS = 8
"""With less room than this for each server, a listing has no names."""
LEAST_SERVER_TOKENS = 4
"""No server takes less of a listing."""
LISTINGS_KEPT = 8
READ_TOOLS = 200
"""Tools of one server that are read to find words for it."""
SUMMARY_WORDS = 4
WORD_CHARS = 20
NOT_LISTED = frozenset({"resource", "template", "prompt"})
"""Kinds of entries that come and go with a server's data: searches find them, but a listing that
named or counted them would change all the time."""
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
    sample: Callable[[], Sample]
    """The tools that this session may see and list now."""
    find: Callable[[str], Tool | None]
    """Returns the tool of a name if this session may see it."""
    is_waiting: Callable[[], bool]
    """Whether a server is still connecting."""
    unlisted: Callable[[], tuple[str, ...]]
    """The servers that this session may know of and whose tools are not known yet."""
    summaries: Callable[[], Mapping[str, str]]
    """What servers are for, in a few words."""
    listings: "ListingCache"
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
            self.record.declared = [tool.name for tool in self.sample().tools]
        self.record.hiding = hides
        return hides

    def build_definitions(
        self, dialect: Dialect | str, *, listing: bool = True, forced: str = ""
    ) -> list[Json]:
        """Return the definitions of a request, the same bytes for the same state.

        Without `listing`, `tool_search` does not say what exists. A `forced` tool is added at the
        end for this request alone (R80).
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

    def render_system_prompt(self, *, listing: bool = False) -> str:
        """Return the text for the system prompt; empty where nothing is hidden (R100)."""
        if not self.decide():
            return ""
        listed = self.get_listing() if listing else ""
        return f"{INSTRUCTIONS}\n\n{listed}" if listed else INSTRUCTIONS

    def get_listing(self) -> str:
        """Return what exists: in a conversation, as it was when first asked for.

        Where several conversations share a session, none of them must read an old one.
        """
        if self.settings.listing is Listing.OFF:
            return ""
        if self.settings.shared:
            return self.listings.render(self._build_view())
        if self.record.listing is None:
            self.record.listing = self.listings.render(self._build_view())
            self._names = self._listed = _group_names(self._list_hidden())
            self.record.listed = _hash_names(self._listed)
            self.record.told = dict(self.record.listed)
        return self.record.listing

    def has_listing(self) -> bool:
        """Tell whether `get_listing` returns at once."""
        is_frozen = self.record.listing is not None or self.settings.listing is Listing.OFF
        return is_frozen or self.listings.find(self._build_view()) is not None

    def _build_view(self) -> "ListedView":
        settings = self.settings
        share = int(settings.context_window * LISTING_SHARE)
        sample = self.sample()
        return ListedView(
            tools=sample.tools,
            more=sample.more,
            shown=frozenset(self._list_declared()),
            unlisted=self.unlisted(),
            summaries=self.summaries(),
            budget=min(settings.listing_tokens, share),
            has_names=settings.listing is Listing.NAMES,
        )

    def render_announcement(self, *, again: bool = False) -> str:
        """Return a message about tools that came and went since the last one, or nothing.

        `again` starts from the listing, for a conversation that lost its earlier messages.
        """
        if self.record.listing is None or self.sample().more:
            return ""  # of a part of the tools, nobody knows which are new
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
        return any(self._list_hidden()) or bool(self.sample().more) or self.is_waiting()

    def _is_large(self) -> bool:
        sample = self.sample()
        share = self.settings.auto_share
        if share == 0:
            return True
        if share == 100:
            return False
        if sample.count > min(self.settings.auto_tools, AUTO_COUNTED):
            return True
        room = self.settings.context_window * share / 100
        return sum(map(count_definition_tokens, sample.tools)) > room

    def _list_declared(self) -> set[str]:
        pinned = {name for name, entry in self.record.entries.items() if entry.pinned}
        return pinned.union(self.record.declared)

    def _list_hidden(self) -> Iterator[Tool]:
        declared = self._list_declared()
        return (tool for tool in self.sample().tools if tool.name not in declared)

    def list_shown(self, *, listing: bool = True) -> list[ShownTool]:
        """Return the tools of a request in order, before they take a provider's shape."""
        hides = self.decide()
        listed = self.sample().tools
        if not hides:
            known = set(self.record.declared)
            self.record.declared += [tool.name for tool in listed if tool.name not in known]
        before = [*filter(None, map(self.find, self.record.declared))]
        programs = self.settings.programs
        is_offered = programs.enabled and self.meta_allowed
        run = [build_run_tool(programs.effects)] if is_offered else []
        if not hides:
            return [*map(ShownTool, (*before, *run))]
        meta = [*build_meta_tools(self.get_listing() if listing else ""), *run]
        declared = set(self.record.declared)
        everything = self.settings.mode is Mode.NATIVE
        loaded = [e.name for e in self.record.entries.values() if e.pinned or everything]
        wanted = [name for name in loaded if name not in declared]
        after = [*filter(None, map(self.find, wanted))]
        shown = [*map(ShownTool, (*before, *meta, *after))]
        if self.settings.mode is Mode.REFERENCE:
            declared.update(tool.name for tool in after)
            hidden = [tool for tool in listed if tool.name not in declared]
            shown += [ShownTool(tool, deferred=True) for tool in hidden]
        return shown

    def _add_forced(self, definitions: list[Json], name: str, dialect: Dialect | str) -> list[Json]:
        tool = self.find(name)
        if tool is None:
            names = [tool.name for tool in self.sample().tools]
            near = ", ".join(find_near_names(name, names)) or "none"
            raise UsageError(f"There is no tool {name!r} to force. Near: {near}.")
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
            gone = changed - {tool.server for tool in self.sample().tools}
            return render_changes(added, [f"{_format_server(server)} (all)" for server in gone])
        known = {name for server in changed for name in names.get(server, ())}
        added = [t for t in hidden if t.server in changed and t.name not in known]
        # A tool that was pinned meanwhile is no longer hidden, but it is not gone.
        return render_changes(added, [*(known - {tool.name for tool in self.sample().tools})])


def _group_names(tools: Iterable[Tool]) -> dict[str, tuple[str, ...]]:
    groups = _group_tools(tools).items()
    return {server: tuple(tool.name for tool in group) for server, group in groups}


def _hash_names(names: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {
        server: hashlib.sha256("\n".join(group).encode()).hexdigest()[:8]
        for server, group in names.items()
    }


# The listing.


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedView:
    """What a listing is made from; equal views have equal listings."""

    tools: tuple[Tool, ...]
    """What the session may see."""
    more: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many other tools servers have."""
    shown: frozenset[str] = frozenset()
    """Tools that every request carries anyway."""
    unlisted: tuple[str, ...] = ()
    """Servers whose tools are not known yet."""
    summaries: Mapping[str, str] = field(default_factory=dict[str, str])
    budget: int
    """In tokens."""
    has_names: bool = True


class ListingCache:
    """The listings of the views that were last asked for; sessions that see the same share one."""

    def __init__(self) -> None:
        self._recent: tuple[tuple[ListedView, str], ...] = ()

    def find(self, view: ListedView) -> str | None:
        """Return the listing of a view if it was rendered before."""
        # The tools of a catalogue are one tuple until it changes, so comparing takes no time.
        return next((text for known, text in self._recent if known == view), None)

    def render(self, view: ListedView) -> str:
        """Return the listing of a view, which may take tens of milliseconds."""
        text = self.find(view)
        if text is None:
            text = render_listing(view)
            self._recent = ((view, text), *self._recent)[:LISTINGS_KEPT]
        return text


def render_listing(view: ListedView) -> str:
    """Return what exists within a number of tokens; nothing if there is no room or no server.

    Servers come first and names last: some clients cut long descriptions.
    """
    groups: dict[str, list[Tool]] = {server: [] for server in (*view.unlisted, *view.more)}
    for tool in view.tools:
        if tool.name not in view.shown:
            group = groups.setdefault(tool.server, [])
            if tool.kind not in NOT_LISTED:
                group.append(tool)
    room = view.budget - count_tokens(texts.LISTING_HEAD) - 1
    sizes = Counter({server: len(tools) for server, tools in groups.items()})
    sizes.update(view.more)
    rows, room = _render_servers(groups, sizes, view.summaries, room)
    if view.has_names and len(rows) == len(groups):
        rows += _render_names(groups, sizes, room - int(view.budget * (1 - NAMES_SHARE)))
    text = "\n".join([texts.LISTING_HEAD, *rows]) if rows else ""
    return text if count_tokens(text) <= view.budget else ""


def _render_servers(
    groups: Mapping[str, list[Tool]],
    sizes: Mapping[str, int],
    summaries: Mapping[str, str],
    room: int,
) -> tuple[list[str], int]:
    """Return a line for each server, and the room that is left.

    Large servers keep their words longest. Those for which there is not even a line are counted.
    """
    by_size = sorted(groups, key=lambda server: (-sizes[server], server))
    lines: dict[str, str] = {}
    if len(groups) * LEAST_SERVER_TOKENS <= room:
        lines = {server: _render_server(server, sizes[server]) for server in by_size}
        left = room - sum(map(_count_line, lines.values()))
        if left >= 0:
            for server in by_size:
                summary = summaries.get(server, "") or find_words(groups[server])
                words = to_one_line(summary, SUMMARY_CHARS).rstrip(".")
                line = f"{lines[server]}: {words}" if words else lines[server]
                more = _count_line(line) - _count_line(lines[server])
                if more <= left:
                    lines[server] = line
                    left -= more
            return [lines[server] for server in sorted(groups)], left
    room -= _count_line(_render_more(sizes, by_size))
    kept: list[str] = []
    for server in by_size:
        room -= _count_line(_render_server(server, sizes[server]))
        if room < 0:
            break
        kept.append(server)
    rows = [_render_server(server, sizes[server]) for server in sorted(kept)]
    return [*rows, _render_more(sizes, by_size[len(kept) :])], 0


def _render_server(server: str, tools: int) -> str:
    count = f" ({tools:,})" if tools else ""
    return f"- {_format_server(server)}{count}"


def _render_more(sizes: Mapping[str, int], servers: Sequence[str]) -> str:
    tools = sum(sizes[server] for server in servers)
    return texts.MORE_SERVERS.format(servers=len(servers), tools=tools)


def _render_names(
    groups: Mapping[str, list[Tool]], sizes: Mapping[str, int], room: int
) -> list[str]:
    """Return lines with names; each server has the same room, and leaves what it does not need."""
    named = sorted((server for server in groups if groups[server]), key=lambda s: len(groups[s]))
    room -= _count_line(texts.LISTING_NAMES)
    lines: dict[str, str] = {}
    for left, server in zip(range(len(named), 0, -1), named, strict=True):
        prefix = make_exposed_name(server, "x").removesuffix("x") if server else ""
        head = f"- {prefix.removesuffix('__') or texts.OWN_TOOLS}: "
        names = [tool.name.removeprefix(prefix) for tool in groups[server]]
        if room // left < LEAST_NAMES_TOKENS:
            return []
        is_part = sizes[server] > len(names)
        listed = _choose_names(names, room // left - count_tokens(head) - 1, is_part=is_part)
        if listed:
            lines[server] = head + listed
            room -= _count_line(lines[server])
    return [texts.LISTING_NAMES, *(lines[server] for server in sorted(lines))] if lines else []


def _choose_names(names: list[str], room: int, *, is_part: bool) -> str:
    """Return the names that fit; if they are not all, evenly chosen, with `…` at the end."""
    count = min(len(names), room // 2)  # a name and its comma cost two tokens or more
    while count > 0:
        chosen = [names[at * len(names) // count] for at in range(count)]
        text = ", ".join(chosen) + ("" if count == len(names) and not is_part else ", …")
        cost = count_tokens(text)
        if cost <= room:
            return text
        count = min(count - 1, count * room // cost)
    return ""


def find_words(tools: Sequence[Tool]) -> str:
    """Return the commonest words that say what tools are for: first of names, then of sentences."""
    found: dict[str, str] = {}
    own = {stem(word) for tool in tools[:1] for word in split_words(tool.server)}
    for source in ("leaf", "first_sentence"):
        counts: Counter[str] = Counter()
        forms: dict[str, str] = {}
        for tool in tools[:READ_TOOLS]:
            read = filter(_is_telling, split_words(getattr(tool, source)))
            words = {stem(word): word for word in read}
            counts.update(words.keys() - own)
            for term, word in words.items():
                forms[term] = min(forms.get(term, word), word, key=lambda form: (len(form), form))
        for term, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            found.setdefault(term, forms[term])
        if len(found) >= SUMMARY_WORDS:
            break
    return ", ".join(list(found.values())[:SUMMARY_WORDS])


def _is_telling(word: str) -> bool:
    is_common = word in STOP_WORDS or word in COMMON_WORDS or stem(word) in COMMON_WORDS
    return 2 < len(word) <= WORD_CHARS and not is_common and not word.isdigit()


def _count_line(line: str) -> int:
    return count_tokens(line) + 1


def render_changes(added: Sequence[Tool], removed: Sequence[str]) -> str:
    """Return a line about tools that came and went since the listing, or nothing."""
    parts: list[str] = []
    for server, group in _group_tools(added).items():
        listed = list_some([tool.name for tool in group], DELTA_NAMES)
        parts.append(texts.NEW_TOOLS.format(server=_format_server(server), names=listed))
    if removed:
        parts.append(texts.REMOVED_TOOLS.format(names=list_some(sorted(removed), DELTA_NAMES)))
    return " ".join(parts)


def _group_tools(tools: Iterable[Tool]) -> dict[str, list[Tool]]:
    groups: dict[str, list[Tool]] = {}
    for tool in sorted(tools, key=lambda tool: (tool.server, tool.name)):
        groups.setdefault(tool.server, []).append(tool)
    return groups


def _format_server(server: str) -> str:
    return to_one_line(server, SERVER_CHARS) or texts.OWN_TOOLS
