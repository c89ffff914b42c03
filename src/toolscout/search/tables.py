"""The tables of a catalogue in PostgreSQL: how they are read and how they are changed.

A term has its postings in buckets of 65,536 places, so that a change rewrites only the buckets of
its tools. `Snapshot` reads within one transaction, and puts candidates together to a `State`;
`Change` writes within one. Which tools are candidates is left to `postgres`.
"""

import hashlib
import json
import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, LiteralString, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from toolscout.catalog import make_collision
from toolscout.encoders.encoder import (
    GRID,
    Floats,
    take_leading,
)
from toolscout.hints.hints import digest_definition
from toolscout.names import fold_name, read_spellings
from toolscout.search.build import Stored, Writer
from toolscout.search.index import (
    SHORTEST_BEGINNING,
)
from toolscout.search.rank import (
    FEW,
    Question,
)
from toolscout.search.shard import (
    ROUGH_HINT,
    ByTerm,
    Ints,
    Mask,
    Postings,
    Shard,
    SpellingTable,
    State,
    Vocabulary,
    blend_vectors,
    compute_rarities,
)
from toolscout.search.text import (
    STOP_WORDS,
    Field,
    split_token,
    split_tokens,
    split_whole_words,
    stem,
)
from toolscout.stores.postgres import Connection, Database
from toolscout.tools import Effect, Tool

LAYOUT = 2
"""Grows whenever the tables change."""
SCANNED = 800
"""The size of pgvector's list of candidates may be at most 1,000."""
NAMED = 500
"""How many tools of one name are looked at."""
COPIED_BYTES = 1 << 18
START_CHARS = 64
KNOWN_TERMS = 50_000


_BUCKET_BITS = 16
_STEPS = 255 / (1 + ROUGH_HINT)
"""A weight is stored as a whole number of these."""
_FIELDS = tuple(
    field.name
    for field in fields(Tool)
    if field.init and field.name not in ("function", "convert", "uncleaned", "name")
)
_DEFAULTS = Tool(name="tool")
_NO_MEMBERS: dict[str, Any] = {}
"""For tools of which only the names matter; making an object for each would take longer."""

CREATE_TABLES = """
    CREATE EXTENSION IF NOT EXISTS vector;
    CREATE SCHEMA IF NOT EXISTS {schema};
    CREATE TABLE IF NOT EXISTS {schema}.catalog (
        made_with text NOT NULL, version bigint NOT NULL, tools integer NOT NULL,
        places integer NOT NULL, hinted integer NOT NULL
    );
    CREATE TABLE IF NOT EXISTS {schema}.servers (
        number integer PRIMARY KEY, name bytea NOT NULL, tools integer NOT NULL,
        version bigint NOT NULL
    );
    CREATE TABLE IF NOT EXISTS {schema}.terms (
        number integer PRIMARY KEY, digest bytea NOT NULL UNIQUE, tools integer NOT NULL,
        version bigint NOT NULL
    );
    CREATE TABLE IF NOT EXISTS {schema}.words (
        number integer PRIMARY KEY, digest bytea NOT NULL UNIQUE, word bytea NOT NULL,
        term integer NOT NULL, tools integer NOT NULL, version bigint NOT NULL
    );
    CREATE TABLE IF NOT EXISTS {schema}.postings (
        term integer, bucket integer, entries bytea STORAGE EXTERNAL NOT NULL,
        PRIMARY KEY (term, bucket)
    );
    CREATE TABLE IF NOT EXISTS {schema}.tools (
        place integer PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE, server integer NOT NULL,
        leaf bytea NOT NULL, kind bytea NOT NULL, kind_folded bytea NOT NULL,
        effect text NOT NULL, is_context bool NOT NULL, is_special bool NOT NULL,
        mark bytea NOT NULL, digest bytea NOT NULL, name_start bytea NOT NULL,
        leaf_start bytea NOT NULL, spellings bigint[] NOT NULL, terms bytea NOT NULL,
        weights bytea NOT NULL, masks bytea NOT NULL, words bytea NOT NULL,
        vector halfvec, hint halfvec, blend halfvec
    );
    CREATE TABLE IF NOT EXISTS {schema}.definitions (
        place integer PRIMARY KEY, definition bytea NOT NULL
    );
    CREATE TABLE IF NOT EXISTS {schema}.free_places (place integer PRIMARY KEY);
    CREATE INDEX IF NOT EXISTS servers_version ON {schema}.servers (version);
    CREATE INDEX IF NOT EXISTS terms_version ON {schema}.terms (version);
    CREATE INDEX IF NOT EXISTS words_version ON {schema}.words (version);
    CREATE INDEX IF NOT EXISTS tools_server ON {schema}.tools (server);
    CREATE INDEX IF NOT EXISTS tools_special ON {schema}.tools (name) WHERE is_special;
    CREATE INDEX IF NOT EXISTS tools_kind ON {schema}.tools (kind, server) WHERE kind <> 'tool';
    CREATE INDEX IF NOT EXISTS tools_digest ON {schema}.tools (digest);
    CREATE INDEX IF NOT EXISTS tools_name_start ON {schema}.tools (name_start);
    CREATE INDEX IF NOT EXISTS tools_leaf_start ON {schema}.tools (leaf_start);
    CREATE INDEX IF NOT EXISTS tools_spellings ON {schema}.tools USING gin (spellings)
"""
BEGIN_READING = """
    BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
    SET LOCAL jit = off;
    SELECT version, tools, places, hinted FROM {schema}.catalog
"""
_ROWS = """
    SELECT place, name, server, leaf, kind, terms, weights, masks, words, vector, hint
    FROM {schema}.tools WHERE place = ANY(%s::int[]) ORDER BY place
"""
_NEAREST = "(SELECT place FROM {schema}.tools ORDER BY vector <#> %s::halfvec LIMIT %s)"
_NEAREST_BLEND = """(
    SELECT place FROM {schema}.tools WHERE blend IS NOT NULL ORDER BY blend <#> %s::halfvec LIMIT %s
)"""
_SPELT = """(
    WITH found AS MATERIALIZED (
        SELECT place, name FROM {schema}.tools WHERE spellings @> ARRAY[%s::bigint]
    ) SELECT %s::int, place FROM found ORDER BY name LIMIT %s
)"""

_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
_GRID_FROM_HALF = np.rint(np.nan_to_num(_HALVES).clip(-1, 1) * GRID).astype(np.int16)
"""For the bits of each half, its number on the grid."""

Places = NDArray[np.int64]
_A = TypeVar("_A", bound=NDArray[Any])


@dataclass(frozen=True, slots=True)
class Entries:
    """The postings of one term: places in order, weights in steps, and field bits."""

    places: Ints
    weights: NDArray[np.uint8]
    masks: NDArray[np.uint8]

    @classmethod
    def read(cls, rows: Sequence[tuple[int, bytes]]) -> Self:
        """Return what is stored as buckets, in order."""
        places: list[Ints] = [np.zeros(0, np.int32)]
        weights: list[NDArray[np.uint8]] = [np.zeros(0, np.uint8)]
        masks: list[NDArray[np.uint8]] = [np.zeros(0, np.uint8)]
        for bucket, data in rows:
            count = len(data) // 4
            low = np.frombuffer(data, "<u2", count).astype(np.int32)
            places.append(low + np.int32(bucket << _BUCKET_BITS))
            weights.append(np.frombuffer(data, np.uint8, count, 2 * count))
            masks.append(np.frombuffer(data, np.uint8, count, 3 * count))
        return cls(np.concatenate(places), np.concatenate(weights), np.concatenate(masks))

    @property
    def size_bytes(self) -> int:
        """How much memory they take."""
        return 200 + 6 * len(self.places)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedByTerm(ByTerm):
    """The postings of the few terms that a question has; `starts` is empty."""

    spans: Mapping[int, tuple[int, int]]

    def find_spans(self, numbers: Iterable[int]) -> list[tuple[int, int]]:
        """Return where the rows of some terms begin and end."""
        return [self.spans.get(number, (0, 0)) for number in numbers]


@dataclass(frozen=True, kw_only=True)
class AskedPostings(Postings):
    """Postings of which a search reads only some terms; sorting the others would take longer."""

    asked: tuple[int, ...]

    @cached_property
    def by_term(self) -> ByTerm:
        """The entries of these terms, sorted by term."""
        entries = np.isin(self.terms, np.array(self.asked, np.int32)).nonzero()[0]
        entries = entries.take(self.terms.take(entries).argsort(kind="stable"))
        terms = self.terms.take(entries)
        weights = self.weights.take(entries)
        masks = self.masks.take(entries)
        numbers = sorted(self.asked)
        begins = terms.searchsorted(numbers).tolist()
        ends = terms.searchsorted(numbers, "right").tolist()
        return AskedByTerm(
            starts=np.zeros(0, np.int64),
            rows=(self.starts.searchsorted(entries, "right") - 1).astype(np.int32),
            weights=weights,
            rough=weights + np.float32(ROUGH_HINT) * ((masks & Field.HINT.bit) > 0),
            masks=masks,
            spans=dict(zip(numbers, zip(begins, ends, strict=True), strict=True)),
        )


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What a process knows of a whole catalogue at one version."""

    version: int
    count: int
    places: int
    hinted: int
    frequencies: NDArray[np.int64]
    changed: NDArray[np.int64]
    """The version at which the postings of each term last changed."""
    words: tuple[str, ...]
    word_terms: Ints
    word_counts: Ints
    word_vectors: Floats
    servers: Mapping[int, str]
    """Those that have tools."""
    server_spellings: Mapping[tuple[int, str], frozenset[int]]

    @cached_property
    def rarity(self) -> Floats:
        """How rare each term is."""
        return compute_rarities(self.frequencies, self.count)

    @cached_property
    def live_words(self) -> tuple[str, ...]:
        """The words of the names of tools, sorted."""
        return tuple(
            sorted(word for word, n in zip(self.words, self.word_counts.tolist(), strict=True) if n)
        )

    @cached_property
    def folded_servers(self) -> Mapping[str, int]:
        """The number of each server by its folded name."""
        return {fold_name(name): number for number, name in self.servers.items()}


NO_TABLES = Tables(
    version=-1,
    count=0,
    places=0,
    hinted=0,
    frequencies=np.zeros(0, np.int64),
    changed=np.zeros(0, np.int64),
    words=(),
    word_terms=np.zeros(0, np.int32),
    word_counts=np.zeros(0, np.int32),
    word_vectors=np.zeros((0, 0), np.float32),
    servers={},
    server_spellings={},
)


@dataclass(frozen=True)
class Candidates(State):
    """Some tools of a catalogue, with the statistics of all of it."""

    tables: Tables
    numbered: Callable[[Iterable[str]], dict[str, int]]
    numbers: Places
    """The place of each row in the catalogue, ascending."""

    @cached_property
    def count(self) -> int:
        """How many tools the catalogue has."""
        return self.tables.count

    @cached_property
    def rarity(self) -> Floats:
        """How rare each term is in the catalogue."""
        return self.tables.rarity

    @cached_property
    def live_words(self) -> tuple[str, ...]:
        """The words of the names of all tools."""
        return self.tables.live_words

    def number_terms(self, terms: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those terms that some tool of the catalogue has."""
        return self.numbered(terms)

    def find_rows(self, places: Iterable[int]) -> list[int]:
        """Return the rows of those places in the catalogue that are here, in the order given."""
        wanted = np.array(list(places), np.int64)
        rows = self.numbers.searchsorted(wanted)
        listed: list[tuple[int, int]] = list(zip(rows.tolist(), wanted.tolist(), strict=True))
        size = len(self.numbers)
        return [row for row, place in listed if row < size and self.numbers[row] == place]

    def add_tools(self, tools: Mapping[int, Tool]) -> "Candidates":
        """Return the same with the whole definitions of some places in the catalogue."""
        if not self.shards or not tools:
            return self
        places: list[int] = self.numbers.tolist()
        own = self.shards[0].tools
        shard = replace(
            self.shards[0],
            tools=tuple(tools.get(place, tool) for place, tool in zip(places, own, strict=True)),
        )
        return replace(self, shards=(shard,))


class PostingCache:
    """The postings that were used last, up to a number of bytes; threads may share it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._known: dict[int, tuple[int, Entries]] = {}
        self._size = 0

    def get(self, term: int, version: int) -> Entries | None:
        """Return the postings of a term as of a version."""
        with self._lock:
            found = self._known.get(term)
            if found is None or found[0] != version:
                return None
            self._known[term] = self._known.pop(term)  # the order is that of the last use
            return found[1]

    def put(self, term: int, version: int, entries: Entries) -> None:
        """Keep the postings of a term."""
        with self._lock:
            old = self._known.pop(term, None)
            self._size -= old[1].size_bytes if old else 0
            self._known[term] = version, entries
            self._size += entries.size_bytes
            while self._size > self._limit:
                oldest = next(iter(self._known))
                self._size -= self._known.pop(oldest)[1].size_bytes


class Snapshot:
    """A catalogue as one transaction sees it."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        tables: Tables,
        known: dict[str, int],
        cache: PostingCache,
        leading: int,
        functions: Mapping[str, Tool],
    ) -> None:
        self._database = database
        self._connection: Connection | None = connection
        self.tables = tables
        self._known = known
        self._cache = cache
        self._leading = leading
        self._functions = functions
        self._numbers: dict[str, int | None] = {}

    def close(self) -> None:
        """End it; what was read stays usable."""
        self._connection = None

    def fetch(self, statement: LiteralString, *values: object) -> list[Any]:
        """Return the rows of a statement."""
        assert self._connection is not None, "nothing is read after the end of a transaction"
        built = self._database.build(statement)
        return self._connection.execute(built, values, binary=True).fetchall()

    # Terms and postings.

    def number_terms(self, terms: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those terms that some tool has."""
        listed = list(dict.fromkeys(terms))
        new = [term for term in listed if term not in self._numbers]
        for term in new:
            self._numbers[term] = self._known.get(term)
        new = [term for term in new if self._numbers[term] is None]
        if new and self._connection is not None:
            digests = {digest_text(term): term for term in new}
            found = self.fetch(
                "SELECT digest, number FROM {schema}.terms WHERE digest = ANY(%s)", list(digests)
            )
            if len(self._known) > KNOWN_TERMS:
                self._known.clear()
            for digest, number in found:
                self._numbers[digests[digest]] = self._known[digests[digest]] = number
        frequency = self.tables.frequencies.item
        size = len(self.tables.frequencies)
        numbers = {term: self._numbers.get(term) for term in listed}
        return {t: n for t, n in numbers.items() if n is not None and n < size and frequency(n)}

    def list_entries(self, numbers: Sequence[int]) -> dict[int, Entries]:
        """Return the postings of some terms."""
        changed = self.tables.changed.item
        found = {number: self._cache.get(number, changed(number)) for number in numbers}
        new = [number for number, entries in found.items() if entries is None]
        if new:
            rows = self.fetch(
                "SELECT term, bucket, entries FROM {schema}.postings WHERE term = ANY(%s) "
                "ORDER BY term, bucket",
                new,
            )
            by_term: dict[int, list[tuple[int, bytes]]] = {number: [] for number in new}
            for term, bucket, data in rows:
                by_term[term].append((bucket, data))
            for number in new:
                entries = found[number] = Entries.read(by_term[number])
                self._cache.put(number, changed(number), entries)
        return cast("dict[int, Entries]", found)

    def score_words(self, question: Question) -> Floats:
        """Return the BM25F score of every place, rounded."""
        scores = np.zeros(self.tables.places, np.float32)
        steps = np.arange(256, dtype=np.float32) / np.float32(_STEPS)
        entries = self.list_entries(question.numbers)
        for number, gain in zip(question.numbers, question.gains, strict=True):
            one = entries[number]
            worth = steps * np.float32(self.tables.rarity.item(number) * gain)
            scores[one.places] += worth.take(one.weights)
        return scores

    def mask_filter(self, name: str, values: Iterable[str]) -> Mask:
        """Return the places whose tools have one of some values of a filter."""
        mask = np.zeros(self.tables.places, np.bool_)
        numbers = self.number_terms(name_filter(name, value) for value in values)
        for entries in self.list_entries(list(numbers.values())).values():
            mask[entries.places] = True
        return mask

    def mask_possible(self, text: str) -> Mask:
        """Return at least the places of the tools that have a required term."""
        mask = np.ones(self.tables.places, np.bool_)
        for token in split_tokens(text):
            mask &= self._mask_word(token)
        listed = split_whole_words(text)
        if len(listed) == 1 and len(listed[0]) >= SHORTEST_BEGINNING:
            begins = [
                number
                for number, name in self.tables.servers.items()
                if listed[0] in name.casefold()
            ]
            mask[self.find_server_places(begins)] = True
        return mask

    def _mask_word(self, token: str) -> Mask:
        parts = split_token(token)
        whole = "".join(parts)
        if whole != token.casefold():
            ways = [parts]
        else:
            ways = [(whole,), parts, *((whole[:at], whole[at:]) for at in range(1, len(whole)))]
        mask = np.zeros(self.tables.places, np.bool_)
        self.number_terms(stem(word) for way in ways for word in way)  # all at once
        for way in dict.fromkeys(ways):
            listed = [stem(word) for word in way if word not in STOP_WORDS or len(way) == 1]
            numbers = self.number_terms(listed)
            if not listed or len(numbers) < len(set(listed)):
                continue
            entries = list(self.list_entries(list(numbers.values())).values())
            places = entries[0].places
            for other in entries[1:]:
                places = np.intersect1d(places, other.places, assume_unique=True)
            mask[places] = True
        return mask

    def mask_beginning(self, text: str) -> Mask:
        """Return the places of the tools that may have a word in their name that begins so."""
        [word] = split_whole_words(text)
        terms = {stem(known) for known in self.tables.words if known.startswith(word)}
        mask = np.zeros(self.tables.places, np.bool_)
        for entries in self.list_entries(list(self.number_terms(terms).values())).values():
            mask[entries.places] = True
        return mask

    # Places.

    def find_server_places(self, servers: Sequence[int]) -> Places:
        """Return the places of all tools of some servers."""
        rows = (
            self.fetch("SELECT place FROM {schema}.tools WHERE server = ANY(%s)", list(servers))
            if servers
            else []
        )
        return np.array([place for (place,) in rows], np.int64)

    def find_place(self, name: str) -> int | None:
        """Return the place of the tool of an exposed name."""
        found = self.find_places([name])
        return found[0] if found else None

    def find_places(self, names: Sequence[str]) -> list[int]:
        """Return the places of the tools of exposed names."""
        known = [name for name in names if name.isascii() and name.isprintable()]
        if not known:
            return []
        rows = self.fetch("SELECT place FROM {schema}.tools WHERE name = ANY(%s)", known)
        return [place for (place,) in rows]

    def resolve(self, text: str) -> list[int]:
        """Return the places of the tools that a name may mean, by name, as a catalogue does."""
        exposed = self.find_place(text)
        if exposed is not None:
            return [exposed]
        spellings = read_spellings(text)
        if not spellings:
            return []
        values: list[object] = []
        for order, spelling in enumerate(spellings):
            values += [hash_spelling(spelling), order, NAMED]
        parts: list[LiteralString] = [_SPELT] * len(spellings)
        rows = self.fetch(" UNION ALL ".join(parts), *values)
        first = min((order for order, _ in rows), default=0)
        return [place for order, place in rows if order == first]

    def find_nearest(self, vectors: Sequence[tuple[Floats, int]]) -> Places:
        """Return the places of about the nearest tools to some vectors, of each so many."""
        parts: list[LiteralString] = []
        values: list[object] = []
        for vector, count in vectors:
            text = _write_vector(vector)
            parts.append(_NEAREST)
            values += [text, count]
            if self.tables.hinted:
                parts.append(_NEAREST_BLEND)
                values += [text, count // 2]
        assert self._connection is not None, "nothing is read after the end of a transaction"
        most = max(count for _, count in vectors)
        mode = "relaxed_order" if most > SCANNED else "off"
        self._connection.execute(
            f"SET LOCAL hnsw.ef_search = {min(most, SCANNED)}; "
            f"SET LOCAL hnsw.iterative_scan = {mode}".encode()
        )
        rows = self.fetch(" UNION ALL ".join(parts), *values)
        return np.array([place for (place,) in rows], np.int64)

    # Tools.

    def fetch_tools(self, places: Sequence[int]) -> dict[int, Tool]:
        """Return the tools of some places."""
        rows = (
            self.fetch(
                "SELECT place, definition FROM {schema}.definitions WHERE place = ANY(%s::int[])",
                write_array(places),
            )
            if places
            else []
        )
        tools = {place: read_tool(data) for place, data in rows}
        if not self._functions:
            return tools
        return {place: self._add_function(tool) for place, tool in tools.items()}

    def _add_function(self, tool: Tool) -> Tool:
        """Return the tool of this process if it was made from a function, which no table keeps."""
        own = self._functions.get(tool.name)
        return own if own is not None and own.fingerprint == tool.fingerprint else tool

    def fetch_candidates(
        self, places: Iterable[int], *, whole: bool = False, asked: tuple[int, ...] | None = None
    ) -> Candidates:
        """Return some tools as a state; only with `whole` do they have all of their definition.

        With `asked`, nothing but these terms will be looked for in them.
        """
        rows = self.fetch(_ROWS, write_array(sorted({int(place) for place in places})))
        tables = self.tables
        shards: tuple[Shard, ...] = ()
        if rows:
            numbers, names, servers, leaves, kinds, terms, weights, masks, words, *vectors = zip(
                *rows, strict=True
            )
            if whole:
                found = self.fetch_tools(numbers)
                tools = tuple(found[place] for place in numbers)
            else:
                tools = tuple(
                    Tool(
                        name=name,
                        server=tables.servers[server],
                        leaf=leaf.decode(),
                        kind=kind.decode(),
                        input_schema=_NO_MEMBERS,
                        fixed_arguments=_NO_MEMBERS,
                        extras=_NO_MEMBERS,
                    )
                    for name, server, leaf, kind in zip(names, servers, leaves, kinds, strict=True)
                )
            lengths = np.array([len(mask) for mask in masks], np.int64)
            word_lengths = np.array([len(word) // 4 for word in words], np.int64)
            postings = Postings(
                starts=_compute_starts(lengths),
                terms=np.frombuffer(b"".join(terms), "<i4"),
                weights=np.frombuffer(b"".join(weights), "<f4"),
                masks=np.frombuffer(b"".join(masks), np.uint8),
            )
            shards = (
                self._build_shard(
                    tools,
                    postings if asked is None else AskedPostings(**vars(postings), asked=asked),
                    (_compute_starts(word_lengths), np.frombuffer(b"".join(words), "<i4")),
                    vectors,
                ),
            )
        return Candidates(
            vocabulary=Vocabulary(),
            shards=shards,
            alive=tuple(np.ones(shard.size, np.bool_) for shard in shards),
            frequencies=tables.frequencies,
            words=tables.words,
            word_terms=tables.word_terms,
            word_vectors=tables.word_vectors,
            tables=tables,
            numbered=self.number_terms,
            numbers=np.array([row[0] for row in rows], np.int64),
        )

    def _build_shard(
        self,
        tools: tuple[Tool, ...],
        postings: Postings,
        names: tuple[NDArray[np.int64], Ints],
        columns: Sequence[Sequence[bytes | None]],
    ) -> Shard:
        vectors, hints = (_read_vectors(column) for column in columns)
        scanned = scanned_blends = None
        if vectors is not None:
            scanned = self._prepare_scan(vectors)
            if hints is not None:
                scanned_blends = self._prepare_scan(blend_vectors(vectors, hints))
        return Shard(
            tools=tools,
            postings=postings,
            keys=(),
            vectors=vectors,
            scanned=scanned,
            scanned_blends=scanned_blends,
            hint_keys=(),
            hint_vectors=hints,
            name_starts=names[0],
            name_words=names[1],
            spellings=SpellingTable.build(()),
        )

    def _prepare_scan(self, vectors: NDArray[np.int16] | Floats) -> Floats | None:
        if len(vectors) <= FEW:  # which are compared in all dimensions
            return None
        exact = vectors.astype(np.float32)
        return np.asfortranarray(take_leading(exact, self._leading) if self._leading else exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A tool that is to be written."""

    tool: Tool
    mark: bytes
    definition: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a change has written, tools by name; a tool with new content is in both lists."""

    version: int = 0
    added: tuple[Tool, ...] = ()
    removed: tuple[Tool, ...] = ()


class Change:
    """Writes the tools of some servers within one transaction."""

    def __init__(self, database: Database, connection: Connection, writer: Writer) -> None:
        self._database = database
        self._connection = connection
        self._writer = writer
        self._version = 0
        self._places = 0
        self._hinted = 0

    def write(
        self,
        servers: Mapping[str, Mapping[str, Tool]],
        *,
        keep_others: bool = False,
        unwanted: Collection[str] = (),
    ) -> Written:
        """Make these the tools of their servers, and count the change if there is one.

        With `keep_others`, other tools of these servers stay, but for the `unwanted` ones, which
        are given by exposed name or leaf.
        """
        [row] = self._fetch("SELECT version, tools, places, hinted FROM {schema}.catalog")
        self._version = row[0] + 1
        self._places = row[2]
        self._hinted = row[3]
        numbers = self._number_servers(servers)
        wanted = self._read_rows(servers)
        rows = self._fetch(
            "SELECT place, name, mark, leaf, server FROM {schema}.tools WHERE server = ANY(%s)",
            list(numbers.values()),
        )
        known = {name: (place, bytes(mark)) for place, name, mark, _, _ in rows}
        changed = [r for name, r in wanted.items() if known.get(name, (0, b""))[1] != r.mark]
        leaves = {encode_text(text) for text in unwanted}
        gone = {
            name: place
            for place, name, _, leaf, _ in rows
            if name not in wanted and (not keep_others or name in unwanted or bytes(leaf) in leaves)
        }
        if not changed and not gone:
            return Written()
        self._check_names([row.tool for row in changed if row.tool.name not in known], numbers)
        stored = self._writer.store([row.tool for row in changed])
        places = self._assign(
            [known.get(row.tool.name, (None,))[0] for row in changed], list(gone.values())
        )
        out = [*gone.values(), *(known[r.tool.name][0] for r in changed if r.tool.name in known)]
        removed = [
            read_tool(data)
            for (data,) in self._fetch(
                "DELETE FROM {schema}.definitions WHERE place = ANY(%s) RETURNING definition", out
            )
        ]
        terms, words = self._take_out(out)
        new_terms, new_words = self._put_in(changed, stored, places, numbers)
        self._count("terms", np.concatenate([terms, new_terms]), len(terms))
        self._count("words", np.concatenate([words, new_words]), len(words))
        counts = Counter(server for _, name, _, _, server in rows if name not in gone)
        counts.update(numbers[r.tool.server] for r in changed if r.tool.name not in known)
        for number in numbers.values():
            self._run(
                "UPDATE {schema}.servers SET tools = %s, version = %s WHERE number = %s",
                *(counts[number], self._version, number),
            )
        self._run(
            "UPDATE {schema}.catalog SET version = %s, tools = tools + %s, places = %s, "
            "hinted = %s",
            *(self._version, len(changed) - len(out), self._places, self._hinted),
        )
        return Written(
            version=self._version,
            added=tuple(sorted((row.tool for row in changed), key=lambda tool: tool.name)),
            removed=tuple(sorted(removed, key=lambda tool: tool.name)),
        )

    def _fetch(self, statement: LiteralString, *values: object) -> list[Any]:
        built = self._database.build(statement)
        return self._connection.execute(built, values, binary=True).fetchall()

    def _run(self, statement: LiteralString, *values: object) -> None:
        self._connection.execute(self._database.build(statement), values)

    def _copy(self, table: LiteralString, rows: Iterable[Sequence[bytes | None]]) -> None:
        """Add rows of values in PostgreSQL's binary form."""
        copy: LiteralString = f"COPY {{schema}}.{table} FROM STDIN (FORMAT BINARY)"
        with self._connection.cursor().copy(self._database.build(copy)) as file:
            waiting = bytearray(b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0))
            for row in rows:
                waiting += _pack_row(row)
                if len(waiting) >= COPIED_BYTES:
                    file.write(waiting)
                    waiting = bytearray()
            file.write(waiting + struct.pack(">h", -1))

    def _number_servers(self, servers: Iterable[str]) -> dict[str, int]:
        """Return the numbers of servers, and give new ones a number."""
        names = {encode_text(server): server for server in servers}
        rows = self._fetch(
            "SELECT name, number FROM {schema}.servers WHERE name = ANY(%s)", list(names)
        )
        numbers = {names[bytes(name)]: number for name, number in rows}
        [(following,)] = self._fetch("SELECT coalesce(max(number) + 1, 0) FROM {schema}.servers")
        new = [server for server in names.values() if server not in numbers]
        for server in new:
            numbers[server] = following
            following += 1
        zero = struct.pack(">i", 0)
        version = struct.pack(">q", self._version)
        self._copy(
            "servers",
            ((struct.pack(">i", numbers[name]), encode_text(name), zero, version) for name in new),
        )
        return numbers

    def _read_rows(self, servers: Mapping[str, Mapping[str, Tool]]) -> dict[str, _Row]:
        tools = [tool for own in servers.values() for tool in own.values()]
        self._writer.share(tools)
        rows: dict[str, _Row] = {}
        for tool in tools:
            if tool.name in rows:
                raise make_collision(rows[tool.name].tool, tool)
            definition = _write_tool(tool)
            mark = hashlib.blake2b(self._writer.mark(tool).encode() + definition, digest_size=16)
            rows[tool.name] = _Row(tool=tool, mark=mark.digest(), definition=definition)
        return rows

    def _check_names(self, tools: Sequence[Tool], numbers: Mapping[str, int]) -> None:
        """Raise `DuplicateTool` if another server has a tool of the same exposed name."""
        by_name = {tool.name: tool for tool in tools}
        rows = self._fetch(
            "SELECT d.definition FROM {schema}.tools AS t JOIN {schema}.definitions AS d "
            "USING (place) WHERE t.name = ANY(%s) AND t.server <> ALL(%s) LIMIT 1",
            *(list(by_name), list(numbers.values())),
        )
        if rows:
            other = read_tool(rows[0][0])
            raise make_collision(other, by_name[other.name])

    def _assign(self, known: Sequence[int | None], gone: Sequence[int]) -> list[int]:
        """Return a place for each tool: its own, one that is free, or a new one."""
        needed = sum(place is None for place in known)
        free = list(gone[:needed])
        rows = self._fetch(
            "DELETE FROM {schema}.free_places WHERE place IN "
            "(SELECT place FROM {schema}.free_places ORDER BY place LIMIT %s) RETURNING place",
            needed - len(free),
        )
        free += [place for (place,) in rows]
        self._run(
            "INSERT INTO {schema}.free_places SELECT * FROM unnest(%s::int[])", list(gone[needed:])
        )
        fresh = range(self._places, self._places + needed - len(free))
        self._places = max(self._places, fresh.stop)
        following = iter([*sorted(free), *fresh])
        return [next(following) if place is None else place for place in known]

    def _take_out(self, places: Sequence[int]) -> tuple[Ints, Ints]:
        """Delete the rows and postings of some places; return their terms and words."""
        empty = np.zeros(0, np.int32)
        if not places:
            return empty, empty
        rows = self._fetch(
            "DELETE FROM {schema}.tools WHERE place = ANY(%s) "
            "RETURNING place, terms, words, kind_folded, effect, hint IS NOT NULL",
            list(places),
        )
        self._hinted -= sum(row[5] for row in rows)
        filters = {(bytes(row[3]), row[4]) for row in rows}
        values = {
            digest_text(name_filter(name, value))
            for kind, effect in filters
            for name, value in (("kind", kind.decode()), ("effect", effect))
        }
        numbers = dict(
            self._fetch(
                "SELECT digest, number FROM {schema}.terms WHERE digest = ANY(%s)", list(values)
            )
        )
        terms: list[Ints] = []
        owners: list[Ints] = []
        for place, data, _, kind, effect, _ in rows:
            own = np.frombuffer(data, "<i4")
            extra = [
                numbers[digest_text(name_filter("kind", bytes(kind).decode()))],
                numbers[digest_text(name_filter("effect", effect))],
            ]
            terms.append(np.concatenate([own, np.array(extra, np.int32)]))
            owners.append(np.full(len(own) + 2, place, np.int32))
        all_terms = np.concatenate(terms)
        self._change_postings(all_terms, np.concatenate(owners), None)
        return all_terms, np.concatenate([np.frombuffer(row[2], "<i4") for row in rows])

    def _put_in(
        self,
        rows: Sequence[_Row],
        stored: Stored,
        places: Sequence[int],
        servers: Mapping[str, int],
    ) -> tuple[Ints, Ints]:
        """Write tools at their places; return their terms and words."""
        empty = np.zeros(0, np.int32)
        if not rows:
            return empty, empty
        terms = self._number("terms", stored.terms)
        word_terms = self._number("terms", [stem(word) for word in stored.words])
        words = self._number("words", stored.words, word_terms)
        kinds = sorted({row.tool.kind.casefold() for row in rows})
        effects = sorted({_read_effect(row.tool) for row in rows})
        filters = [name_filter("kind", kind) for kind in kinds]
        filters += [name_filter("effect", effect) for effect in effects]
        filter_numbers = dict(zip(filters, self._number("terms", filters).tolist(), strict=True))
        postings = stored.postings
        entry_terms = terms.take(postings.terms)
        name_words = words.take(stored.name_words) if len(stored.name_words) else empty
        vectors = _pack_vectors(stored.vectors) if len(stored.vectors) else [None] * len(rows)
        hints: Sequence[bytes | None] = [None] * len(rows)
        blends: Sequence[bytes | None] = hints
        if len(stored.hint_vectors):
            has_hint: list[bool] = np.logical_or.reduce(stored.hint_vectors, axis=1).tolist()
            pairs = zip(_pack_vectors(stored.hint_vectors), has_hint, strict=True)
            hints = [data if has else None for data, has in pairs]
            blended = _pack_vectors(blend_vectors(stored.vectors, stored.hint_vectors))
            blends = [data if has else None for data, has in zip(blended, has_hint, strict=True)]
            self._hinted += sum(has_hint)

        def pack(at: int) -> list[bytes | None]:
            tool = rows[at].tool
            span = slice(postings.starts[at], postings.starts[at + 1])
            named = slice(stored.name_starts[at], stored.name_starts[at + 1])
            return [
                struct.pack(">i", places[at]),
                tool.name.encode(),
                struct.pack(">i", servers[tool.server]),
                encode_text(tool.leaf),
                encode_text(tool.kind),
                encode_text(tool.kind.casefold()),
                _read_effect(tool).encode(),
                b"\1" if tool.is_context else b"\0",
                b"\1" if tool.always_load or tool.is_for_apps else b"\0",
                rows[at].mark,
                digest_text(digest_definition(tool)),
                encode_text(tool.name.casefold()[:START_CHARS]),
                encode_text(tool.leaf.casefold()[:START_CHARS]),
                _pack_numbers([hash_spelling(spelling) for spelling in tool.spellings]),
                entry_terms[span].astype("<i4").tobytes(),
                postings.weights[span].astype("<f4").tobytes(),
                postings.masks[span].tobytes(),
                name_words[named].astype("<i4").tobytes(),
                vectors[at],
                hints[at],
                blends[at],
            ]

        self._copy("tools", (pack(at) for at in range(len(rows))))
        self._copy(
            "definitions",
            ((struct.pack(">i", p), r.definition) for p, r in zip(places, rows, strict=True)),
        )
        extra = [filter_numbers[name_filter("kind", row.tool.kind.casefold())] for row in rows] + [
            filter_numbers[name_filter("effect", _read_effect(row.tool))] for row in rows
        ]
        at = np.array(places, np.int32)
        owners = np.concatenate([at.repeat(np.diff(postings.starts)), at, at])
        rough = postings.weights + np.float32(ROUGH_HINT) * ((postings.masks & Field.HINT.bit) > 0)
        weights = np.rint(rough * _STEPS).clip(1, 255).astype(np.uint8)
        all_terms = np.concatenate([entry_terms, np.array(extra, np.int32)])
        zeros = np.zeros(len(extra), np.uint8)
        self._change_postings(
            all_terms,
            owners,
            (np.concatenate([weights, zeros]), np.concatenate([postings.masks, zeros])),
        )
        return all_terms, name_words

    def _number(
        self, table: Literal["terms", "words"], texts: Sequence[str], terms: Ints | None = None
    ) -> Ints:
        """Return the numbers of terms or words, and give new ones a number."""
        digests = [digest_text(text) for text in texts]
        statement = f"SELECT digest, number FROM {{schema}}.{table} WHERE digest = ANY(%s)"
        known: dict[bytes, int] = dict(self._fetch(statement, digests))
        statement = f"SELECT coalesce(max(number) + 1, 0) FROM {{schema}}.{table}"
        [(following,)] = self._fetch(statement)
        rows: list[list[bytes]] = []
        tail = [struct.pack(">i", 0), struct.pack(">q", self._version)]
        for at, digest in enumerate(digests):
            if digest not in known:
                known[digest] = following
                row = [struct.pack(">i", following), digest]
                if terms is not None:
                    row += [encode_text(texts[at]), struct.pack(">i", terms[at])]
                rows.append([*row, *tail])
                following += 1
        self._copy(table, rows)
        return np.array([known[digest] for digest in digests], np.int32)

    def _count(self, table: Literal["terms", "words"], numbers: Ints, gone: int) -> None:
        """Change how many tools have each term or word; the first `gone` numbers are taken away."""
        changes = np.ones(len(numbers), np.int64)
        changes[:gone] = -1
        unique, inverse = np.unique(numbers, return_inverse=True)
        sums = np.bincount(inverse, changes, len(unique)).astype(np.int64)
        statement = (
            f"UPDATE {{schema}}.{table} AS t SET tools = t.tools + n.change, version = %s "
            "FROM unnest(%s::int[], %s::int[]) AS n (number, change) WHERE t.number = n.number"
        )
        self._run(statement, self._version, unique.tolist(), sums.tolist())

    def _change_postings(
        self,
        terms: Ints,
        places: Ints,
        content: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None,
    ) -> None:
        """Add postings with weights and masks, or take those of some places out."""
        buckets = places >> _BUCKET_BITS
        keys = terms.astype(np.int64) << 32 | buckets
        order = np.lexsort((places, keys))
        keys = keys[order]
        low = (places[order] & ((1 << _BUCKET_BITS) - 1)).astype(np.uint16)
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        ends = np.append(starts[1:], len(keys))
        unique: list[int] = keys[starts].tolist()
        rows = self._fetch(
            "DELETE FROM {schema}.postings USING unnest(%s::int[], %s::int[]) AS n (t, b) "
            "WHERE term = n.t AND bucket = n.b RETURNING term, bucket, entries",
            *([key >> 32 for key in unique], [key & 0xFFFFFFFF for key in unique]),
        )
        old = {term << 32 | bucket: data for term, bucket, data in rows}
        parts = None if content is None else (content[0][order], content[1][order])

        def join() -> Iterable[tuple[bytes, bytes, bytes]]:
            for key, begin, end in zip(unique, starts.tolist(), ends.tolist(), strict=True):
                before = old.get(key)
                if parts is None:
                    data = _leave_out(before or b"", low[begin:end])
                elif before is None:
                    data = (
                        low[begin:end].astype("<u2").tobytes()
                        + parts[0][begin:end].tobytes()
                        + parts[1][begin:end].tobytes()
                    )
                else:
                    data = _merge(before, low[begin:end], parts[0][begin:end], parts[1][begin:end])
                if data:
                    yield struct.pack(">i", key >> 32), struct.pack(">i", key & 0xFFFFFFFF), data

        self._copy("postings", join())


def _split_entries(
    data: bytes,
) -> tuple[NDArray[np.uint16], NDArray[np.uint8], NDArray[np.uint8]]:
    count = len(data) // 4
    return (
        np.frombuffer(data, "<u2", count),
        np.frombuffer(data, np.uint8, count, 2 * count),
        np.frombuffer(data, np.uint8, count, 3 * count),
    )


def _leave_out(data: bytes, low: NDArray[np.uint16]) -> bytes:
    """Return the entries of a bucket without some places."""
    places, weights, masks = _split_entries(data)
    kept = ~np.isin(places, low)
    return places[kept].tobytes() + weights[kept].tobytes() + masks[kept].tobytes()


def _merge(
    data: bytes, low: NDArray[np.uint16], weights: NDArray[np.uint8], masks: NDArray[np.uint8]
) -> bytes:
    """Return the entries of a bucket with others, in the order of their places."""
    old = _split_entries(data)
    places = np.concatenate([old[0], low])
    order = places.argsort(kind="stable")
    joined = (places, np.concatenate([old[1], weights]), np.concatenate([old[2], masks]))
    return b"".join(part[order].tobytes() for part in joined)


def encode_text(text: str) -> bytes:
    """Return a text as it is stored, which may have characters that PostgreSQL's texts lack."""
    return text.encode("utf-8", "surrogatepass")


def digest_text(text: str) -> bytes:
    """Return what stands for a term, a word or a definition in the tables."""
    return hashlib.blake2b(encode_text(text), digest_size=16).digest()


def hash_spelling(spelling: tuple[int, str]) -> int:
    """Return the number that stands for a spelling of a name in the tables."""
    data = f"{spelling[0]} {spelling[1]}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


def name_filter(name: str, value: str) -> str:
    """Return the term that stands for a filter; no word has a blank."""
    return f" {name} {value}"


def _read_effect(tool: Tool) -> str:
    return (tool.claimed_effect or tool.effect).value


def _write_tool(tool: Tool) -> bytes:
    """Return a whole tool, without members that have their default."""
    row = {name: getattr(tool, name) for name in _FIELDS}
    content = {n: value for n, value in row.items() if value != getattr(_DEFAULTS, n)}
    return json.dumps({"name": tool.name, **content}, separators=(",", ":")).encode()


def read_tool(data: bytes) -> Tool:
    """Return the tool of a definition that was stored."""
    row: dict[str, Any] = json.loads(data)
    for name in ("aliases", "tags", "hidden_arguments"):
        if name in row:
            row[name] = tuple(row[name])
    for name in ("effect", "claimed_effect"):
        if row.get(name):
            row[name] = Effect(row[name])
    return Tool(**row)


def write_array(numbers: Iterable[int]) -> str:
    """Return whole numbers as PostgreSQL writes an array, much faster than the driver does."""
    return f"{{{','.join(map(str, numbers))}}}"


def _write_vector(vector: Floats) -> str:
    return f"[{','.join(map(repr, (vector / GRID).tolist()))}]"


def _pack_vectors(vectors: NDArray[np.int16] | Floats) -> list[bytes]:
    """Return vectors in pgvector's binary form; halves hold every number of the grid."""
    head = struct.pack(">hh", vectors.shape[1], 0)
    return [head + row.tobytes() for row in (vectors / np.float32(GRID)).astype(">f2")]


def _read_vectors(column: Sequence[bytes | None]) -> NDArray[np.int16] | None:
    """Return vectors on the grid, zeros where there is none; None if there are none at all."""
    first = next(filter(None, column), None)
    if first is None:
        return None
    empty = bytes(len(first))
    halves = np.frombuffer(b"".join([data or empty for data in column]), ">u2")
    return _GRID_FROM_HALF.take(halves.reshape(len(column), -1)[:, 2:])


def _pack_row(row: Sequence[bytes | None]) -> bytes:
    parts = [struct.pack(">h", len(row))]
    for value in row:
        parts.append(struct.pack(">i", -1 if value is None else len(value)))
        if value is not None:
            parts.append(value)
    return b"".join(parts)


def _pack_numbers(numbers: Sequence[int]) -> bytes:
    """Return an array of bigint in PostgreSQL's binary form."""
    head = struct.pack(">iiiii", 1, 0, 20, len(numbers), 1)
    return head + b"".join(struct.pack(">iq", 8, number) for number in numbers)


def _compute_starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def grow_array(array: _A, size: int) -> _A:
    """Return a copy of an array, filled up with zeros."""
    grown = np.zeros(size, array.dtype)
    grown[: len(array)] = array
    return cast("_A", grown)
