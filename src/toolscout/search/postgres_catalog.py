"""`PostgresCatalog`: a catalogue whose tools lie in PostgreSQL, shared by several processes.

A process holds the tools that sessions asked for last, some of each large server for listings, and
what only it knows: the availability of its servers, their summaries and functions. A thread looks
every second whether another process has changed the tools. While the database is away, what is
held stays usable, and everything else raises `CatalogUnavailable`.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from toolscout.catalog import (
    RESERVED_NAMES,
    TOOL_KIND,
    Availability,
    Catalog,
    Change,
    Sample,
    Snapshot,
    Spellings,
    Status,
    group_by_server,
)
from toolscout.errors import CatalogUnavailable, UsageError
from toolscout.hints.hints import Hints
from toolscout.names import fold_name, is_exposed_name
from toolscout.query import Query
from toolscout.search import tables
from toolscout.search.index import EncoderChoice
from toolscout.search.postgres import PostgresIndex
from toolscout.search.tables import Written
from toolscout.tools import Tool

FOLLOW_SECONDS = 1.0
HELD_TOOLS = 4_000
"""Tools that a process keeps because sessions have asked for them."""
ALL_LISTED = 2_000
"""Up to this many tools, listings are made from all of them."""
SAMPLED_SERVERS = 100
SAMPLED_TOOLS = 20
READ_AT_ONCE = 500
MEANT = 2_000
"""How many tools one target may mean."""
NOTED = 200
"""How many tools of a server that another process has changed subscribers hear of."""
KEPT_LISTS = 16
_RESERVED_SPELLINGS = [
    tables.hash_spelling((kind, fold_name(name))) for name in RESERVED_NAMES for kind in (1, 2)
]
"""Aliases and leaves that are spelt like toolscout's own tools."""
_SAMPLE = """
    SELECT d.definition FROM
        (SELECT number FROM {schema}.servers WHERE tools > 0 ORDER BY tools DESC, name LIMIT %s) s,
        LATERAL (
            SELECT place FROM {schema}.tools WHERE server = s.number ORDER BY name LIMIT %s
        ) t
    JOIN {schema}.definitions d USING (place)
"""
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class PostgresCatalog(Catalog):
    """The tools in the tables of a `PostgresIndex`, whose arguments it takes.

    `tools` and `sample()` have all tools up to `ALL_LISTED`, and beyond that some of each of the
    largest servers; iterating reads all of them, some hundred at a time.
    """

    def __init__(
        self,
        url: str,
        servers: Mapping[str, Iterable[object]] | Iterable[object] | None = None,
        *,
        schema: str = "toolscout_index",
        encoder: EncoderChoice = "static",
        hints: Hints | Literal["shipped"] | None = "shipped",
    ) -> None:
        self.index = PostgresIndex(url, schema=schema, encoder=encoder, hints=hints)
        """Searches the same tables."""
        self._stored = -1
        """The version of the tables that everything held here belongs to."""
        self._known: dict[str, tuple[bytes, Tool | None]] = {}
        self._lists: dict[object, tuple[int, Any]] = {}
        self._special: tuple[Tool, ...] = ()
        self._namesakes: Mapping[str, Tool] = {}
        """The tools of servers that are named like toolscout's own, by exposed name."""
        self._spelt = Spellings()
        self._counts: Mapping[str, int] = {}
        self._others: Counter[str] = Counter()
        """How many of them are not tools but resources, prompts or skills."""
        self._following = threading.RLock()
        self._is_away = False
        self._closed = threading.Event()
        super().__init__()
        self.follow()
        self.sample()
        threading.Thread(target=self._run, name="toolscout-catalog", daemon=True).start()
        for server, tools in group_by_server(servers or {}).items():
            self.replace(server, tools)

    def close(self) -> None:
        """Stop following other processes and end all connections."""
        self._closed.set()
        self.index.close()

    def check(self) -> None:
        """Raise `CatalogUnavailable` if the database does not answer."""
        self.index.read(lambda snapshot: None)

    @property
    def is_local(self) -> bool:
        """False: reading may need the database."""
        return False

    # What a process holds.

    def follow(self) -> None:
        """Take over what other processes have changed; raises `CatalogUnavailable`."""
        with self._following:
            changes = self.index.read(self._read_changes)
            with self._lock:
                if self._is_away:
                    self._is_away = False
                    self._version += 1  # what could not be read is read again
                    _log.info("The database of the catalogue answers again.")
            for server, tools in changes:
                self._announce(server, tools, ())

    def _run(self) -> None:
        while not self._closed.wait(FOLLOW_SECONDS):
            try:
                self.follow()
                self.sample()  # so that nobody has to wait for it
            except CatalogUnavailable as error:
                if not self._is_away and not self._closed.is_set():
                    self._is_away = True
                    _log.warning("The catalogue cannot be read: %s", error.__cause__)
            except UsageError:
                return  # closed meanwhile
            except Exception:
                _log.exception("Following the changes of other processes failed.")

    def _read_changes(self, snapshot: tables.Snapshot) -> list[tuple[str, tuple[Tool, ...]]]:
        """Bring what is held up to a snapshot; return the servers that changed, with some tools."""
        since = self._stored
        version = snapshot.tables.version
        if version == since:
            return []
        with self._lock:
            names = set(self._known)
        rows = snapshot.fetch(
            "SELECT name, mark FROM {schema}.tools WHERE name = ANY(%s)", [*names]
        )
        marks = {name: bytes(mark) for name, mark in rows}
        rows = snapshot.fetch("SELECT place FROM {schema}.tools WHERE is_special ORDER BY name")
        special = tuple(snapshot.fetch_tools([place for (place,) in rows]).values())
        rows = snapshot.fetch(
            "SELECT place FROM {schema}.tools WHERE spellings && %s::bigint[] "
            "ORDER BY name LIMIT %s",
            *(_RESERVED_SPELLINGS, MEANT),
        )
        spelt_alike = snapshot.fetch_tools([place for (place,) in rows])
        namesakes = {tool.name: tool for tool in spelt_alike.values()}
        spelt = Spellings()
        for tool in namesakes.values():
            spelt.add(tool.name, tool.spellings)
        rows = snapshot.fetch("SELECT name, tools, version FROM {schema}.servers")
        decoded = [(bytes(name).decode(), count, at) for name, count, at in rows]
        others = snapshot.fetch(
            "SELECT server, count(*) FROM {schema}.tools WHERE kind <> 'tool' GROUP BY server"
        )
        changed = [server for server, _, at in decoded if at > since >= 0]
        found = [(server, self._read_server(snapshot, server, NOTED)) for server in changed]
        with self._lock:
            # What was added meanwhile may come from an older snapshot.
            self._known = {
                name: held
                for name, held in self._known.items()
                if name in names and held[0] == marks.get(name, b"")
            }
            self._special = special
            self._namesakes = namesakes
            self._spelt = spelt
            self._app_tools = frozenset(tool.name for tool in special if tool.is_for_apps)
            self._counts = {server: count for server, count, _ in decoded if count}
            named = {snapshot.tables.servers[number]: count for number, count in others}
            self._others = Counter(named)
            self._stored = version
            self._version += 1
        return found

    def _read_server(self, snapshot: tables.Snapshot, server: str, most: int) -> tuple[Tool, ...]:
        numbers = [n for n, name in snapshot.tables.servers.items() if name == server]
        rows = snapshot.fetch(
            "SELECT place FROM {schema}.tools WHERE server = ANY(%s) ORDER BY name LIMIT %s",
            *(numbers, most),
        )
        found = snapshot.fetch_tools([place for (place,) in rows])
        return tuple(found[place] for (place,) in rows)

    def _announce(self, server: str, added: tuple[Tool, ...], removed: tuple[Tool, ...]) -> None:
        with self._lock:
            self._version += 1
            change = Change(version=self._version, server=server, added=added, removed=removed)
            self._notices.queue.append(change)
        self._notices.deliver()

    def _keep(self, key: object, read: Callable[[tables.Snapshot], _T], empty: _T | None) -> _T:
        """Return a list that was read at this version, or read it; without a database, an old one.

        If there is none, `empty` stands for it.
        """
        version = self._version
        held = self._lists.get(key)
        if held is not None and held[0] == version:
            return held[1]
        try:
            value = self.index.read(read)
        except CatalogUnavailable:
            if held is None and empty is None:
                raise
            return held[1] if held is not None else empty  # pyright: ignore[reportReturnType]
        with self._lock:
            self._lists.pop(key, None)
            self._lists[key] = version, value
            for old in list(self._lists)[:-KEPT_LISTS]:
                del self._lists[old]
        return value

    # Reading.

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that have tools or an availability, sorted."""
        with self._lock:
            return tuple(sorted({*self._states, *self._counts}))

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that may be listed, sorted by name; see `sample`."""
        return self.sample().tools

    @property
    def unlisted(self) -> tuple[str, ...]:
        """The servers that are pending or failed and whose tools are not known, sorted."""
        with self._lock:
            return tuple(server for server in self.unready if server not in self._counts)

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with every change of the tables."""
        return f"{self._stored:016x}"

    def state(self, server: str) -> Availability | None:
        """Return the availability of a server; one of another process counts as ready."""
        known = super().state(server)
        if known is None and server in self._counts:
            return Availability(status=Status.READY)
        return known

    def get(self, name: str) -> Tool | None:
        """Return the tool of an exposed name."""
        if not is_exposed_name(name):
            return None
        with self._lock:
            held = self._known.pop(name, None)
            if held is not None:
                self._known[name] = held  # the order is that of the last use
                return held[1]

        def read(snapshot: tables.Snapshot) -> tuple[int, bytes, Tool | None]:
            place = snapshot.find_place(name)
            if place is None:
                return snapshot.tables.version, b"", None
            [(mark,)] = snapshot.fetch("SELECT mark FROM {schema}.tools WHERE place = %s", place)
            tool = snapshot.fetch_tools([place])[place]
            return snapshot.tables.version, bytes(mark), tool

        version, mark, tool = self.index.read(read)
        with self._lock:
            if version >= self._stored:
                self._known[name] = mark, tool
            for old in list(self._known)[: max(0, len(self._known) - HELD_TOOLS)]:
                del self._known[old]
        return tool

    def get_known(self, name: str) -> Tool | None:
        """Return the tool of an exposed name if this process holds it."""
        with self._lock:
            return self._known.get(name, (b"", None))[1]

    def find_owners(self, names: Collection[str]) -> Mapping[str, str]:
        """Return the servers of those tools of some exposed names that exist, by name."""

        def read(snapshot: tables.Snapshot) -> dict[str, str]:
            rows = snapshot.fetch(
                "SELECT name, server FROM {schema}.tools WHERE name = ANY(%s)", list(names)
            )
            return {name: snapshot.tables.servers[server] for name, server in rows}

        return self.index.read(read)

    def count_tools(self) -> Counter[str]:
        """Return how many tools each server has; resources, prompts and skills do not count."""
        with self._lock:
            return Counter(self._counts) - self._others

    def resolve(self, text: str) -> list[Tool]:
        """Return the tools that a name may mean, sorted by name, as every catalogue does.

        Whether a server has a tool of its own that is spelt like one of toolscout's is asked of
        every request, also in an event loop, so this needs no database.
        """
        if text.rpartition("__")[2] in RESERVED_NAMES:
            with self._lock:
                return [self._namesakes[name] for name in self._spelt.resolve(text)]
        tool = self.get(text)
        return self.index.resolve(text) if tool is None else [tool]

    def sample(self) -> Sample:
        """Return all tools, or some of each large server and how many others there are."""

        def read(snapshot: tables.Snapshot) -> Sample:
            if snapshot.tables.count <= ALL_LISTED:
                rows = snapshot.fetch("SELECT place FROM {schema}.tools ORDER BY name")
                found = snapshot.fetch_tools([place for (place,) in rows])
                return Sample(tools=tuple(found[place] for (place,) in rows))
            rows = snapshot.fetch(_SAMPLE, SAMPLED_SERVERS, SAMPLED_TOOLS)
            tools = sorted((tables.read_tool(data) for (data,) in rows), key=lambda t: t.name)
            sample = Sample(tools=tuple(tools))
            shown = sample.count_by_server()
            rows = snapshot.fetch("SELECT name, tools FROM {schema}.servers WHERE tools > 0")
            counts = {bytes(name).decode(): count for name, count in rows}
            more = {server: count - shown[server] for server, count in counts.items()}
            return Sample(tools=sample.tools, more={s: n for s, n in more.items() if n > 0})

        return self._keep("sample", read, None)

    def list_server(self, server: str) -> tuple[Tool, ...]:
        """Return the first `MEANT` tools of a server."""

        def read(snapshot: tables.Snapshot) -> tuple[Tool, ...]:
            return self._read_server(snapshot, server, MEANT)

        return self._keep(("server", server), read, ())

    def list_possible(self, targets: Iterable[str]) -> Sequence[Tool]:
        """Return the tools that are always loaded, and those that targets may mean."""
        asked = tuple(targets)

        def read(snapshot: tables.Snapshot) -> tuple[Tool, ...]:
            places: set[int] = set()
            for target in asked:
                places.update(_find_meant(snapshot, target))
            tools = [*snapshot.fetch_tools(list(places)).values(), *self._special]
            return tuple({tool.name: tool for tool in sorted(tools, key=lambda t: t.name)}.values())

        return self._keep(("possible", asked), read, self._special)

    def list_kinds(self, kinds: Collection[str]) -> Sequence[Tool]:
        """Return the tools of some kinds, by name."""
        asked = sorted(kinds)

        def read(snapshot: tables.Snapshot) -> tuple[Tool, ...]:
            rows = snapshot.fetch(
                "SELECT place FROM {schema}.tools "
                "WHERE kind = ANY(%s) AND (kind <> 'tool' OR %s) ORDER BY name",
                *([tables.encode_text(kind) for kind in asked], TOOL_KIND in asked),
            )
            found = snapshot.fetch_tools([place for (place,) in rows])
            return tuple(found[place] for (place,) in rows)

        return self._keep(("kinds", *asked), read, ())

    def find_near(self, name: str, sees: Callable[[Tool], bool] | None = None) -> list[str]:
        """Return the names of up to three visible tools that resemble a name."""
        result = self.index.search(Query(text=name, select=(name,)), allowed=sees)
        return [near for missing in result.missing for near in missing.near]

    def snapshot(self) -> Snapshot:
        """Return the tools that may be listed as they are now."""
        tools = self.tools
        by_name = {tool.name: tool for tool in tools}
        return Snapshot(version=self._version, by_name=by_name, servers=self.servers)

    def __iter__(self) -> Iterator[Tool]:
        name = ""
        while True:

            def read(snapshot: tables.Snapshot, after: str = name) -> list[Tool]:
                rows = snapshot.fetch(
                    "SELECT place FROM {schema}.tools WHERE name > %s ORDER BY name LIMIT %s",
                    *(after, READ_AT_ONCE),
                )
                found = snapshot.fetch_tools([place for (place,) in rows])
                return [found[place] for (place,) in rows]

            page = self.index.read(read)
            yield from page
            if len(page) < READ_AT_ONCE:
                return
            name = page[-1].name

    def __len__(self) -> int:
        return sum(self._counts.values())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    # Writing.

    def remove(self, server: str, names: Iterable[str] | None = None) -> None:
        """Remove a server, or some of its tools by exposed name or leaf; ignores unknown ones."""
        self._note(server, lambda: self.index.remove(server, names))
        if names is None:
            with self._lock:
                self._held.pop(server, None)
                self._set_state(server, None)
                self._summarize(server, "")

    def _change(
        self, server: str, wanted: dict[str, Tool], *, keep_others: bool, summary: str | None = None
    ) -> None:
        write = self.index.add if keep_others else self.index.replace
        self._note(server, lambda: write(server, wanted.values()))
        with self._lock:
            self._set_state(server, Availability(status=Status.READY))
            self._summarize(server, summary)

    def _note(self, server: str, write: Callable[[], Written]) -> None:
        """Write something, and tell subscribers what it has changed."""
        with self._writing:
            written = write()
            with self._lock:
                # The same definition may have another function.
                self._lists.clear()
                self._known = {
                    name: held
                    for name, held in self._known.items()
                    if held[1] is not None and held[1].server != server
                }
            with self._following:
                changes = self.index.read(self._read_changes)
        if written.version:
            self._announce(server, written.added, written.removed)
        for changed, tools in changes:
            if changed != server or not written.version:
                self._announce(changed, tools, ())


def _find_meant(snapshot: tables.Snapshot, target: str) -> list[int]:
    """Return at least the places of the tools that a target of a pin or a route means."""
    if "*" in target:
        pattern = target.casefold().removeprefix("mcp__")
        for character in "\\%_":
            pattern = pattern.replace(character, f"\\{character}")
        if "[" in pattern:
            pattern = pattern.partition("[")[0] + "*"
        like = pattern.replace("*", "%").replace("?", "_")
        rows = snapshot.fetch(
            "SELECT place FROM {schema}.tools WHERE lower(name) LIKE ANY(%s) "
            "ORDER BY name LIMIT %s",
            *([like, f"mcp\\_\\_{like}"], MEANT),
        )
        return [place for (place,) in rows]
    keys = {fold_name(form) for form in (target, target.casefold().removeprefix("mcp__"))} - {""}
    spellings = [tables.hash_spelling((kind, key)) for key in keys for kind in (0, 2)]
    servers = [snapshot.tables.folded_servers.get(key) for key in keys]
    rows = snapshot.fetch(
        "SELECT place FROM {schema}.tools WHERE spellings && %s::bigint[] LIMIT %s",
        *(spellings, MEANT),
    )
    rows += snapshot.fetch(
        "SELECT place FROM {schema}.tools WHERE server = ANY(%s) ORDER BY name LIMIT %s",
        *([number for number in servers if number is not None], MEANT),
    )
    return [place for (place,) in rows]
