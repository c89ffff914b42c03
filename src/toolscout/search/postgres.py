"""`PostgresIndex`: search over a catalogue that PostgreSQL keeps, for more tools than memory holds.

Definitions, postings and vectors are tables. A search takes the postings of its words out of them,
scores all tools by words, asks pgvector for the nearest by meaning, and puts the few hundred best
together to a small `State`. From there on, the same code as for an index in memory ranks them: how
rare a term is is known for the whole catalogue, so the evidence for a tool is the same number.

The tools of a server are replaced all at once or not at all, by one writer at a time; every search
reads one snapshot. What a process keeps is bounded: how often each term occurs, the words of names,
the names of servers, and the postings of the terms that were asked for last.
"""

import hashlib
import json
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, Literal, LiteralString, Self, TypeVar, cast

import numpy as np
import re2
from numpy.typing import NDArray

from toolscout.catalog import collect_tools, make_collision
from toolscout.encoders.encoder import (
    GRID,
    Encoder,
    Floats,
    WordMemory,
    encode_questions,
    take_leading,
)
from toolscout.errors import UnknownServer, UsageError
from toolscout.hints.hints import Hints
from toolscout.hints.pack import HintPack, digest_definition
from toolscout.names import find_near_names, fold_name, list_server_spellings, read_spellings
from toolscout.query import PATTERN_MEMORY_BYTES, Query, query_from_text
from toolscout.search.build import Stored, Writer, hash_analysis
from toolscout.search.fusion import Fusion
from toolscout.search.hits import Missing, Result, Why
from toolscout.search.index import (
    DEFAULT_LIMIT,
    NEAR_NAMED,
    PATTERN_TEXT_LIMIT,
    REMEMBERED_QUESTIONS,
    SHORTEST_BEGINNING,
    EncoderChoice,
    build_result,
    choose_encoder,
    find_spelt_out,
    list_hits,
    list_server_hits,
    mask_admitted,
)
from toolscout.search.lexical import (
    ROUGH_HINT,
    ByTerm,
    Ints,
    Postings,
    Vocabulary,
    compute_rarities,
)
from toolscout.search.question import Question, read_question
from toolscout.search.rank import (
    CANDIDATES,
    FEW,
    Ranker,
    Ranking,
    explain,
    find_best_rows,
    is_latin,
)
from toolscout.search.shard import Mask, Shard, SpellingTable, State, blend_vectors
from toolscout.search.text import (
    STOP_WORDS,
    Field,
    split_token,
    split_tokens,
    split_whole_words,
    split_words,
    stem,
)
from toolscout.stores.postgres import Connection, Database
from toolscout.tools import Effect, Tool

CACHE_BYTES = 128_000_000
"""Postings that a process keeps."""
ALL_OF = 2_000
"""If a query admits no more tools than this, all of them are compared."""
BY_WORDS = 224
"""How many tools are taken for their words, and how many for their meaning."""
BY_MEANING = 160
BY_CLAUSE = 80
MORE = 4
"""Each further step takes this many times as many, if a caller may see too few of them."""
STEPS = 3
ASKED_CLAUSES = 3
SCANNED = 800
"""The size of pgvector's list of candidates may be at most 1,000."""
NAMED = 500
"""How many tools of one name are looked at."""
LISTED_AT_ONCE = 500
LISTED = 5_000
"""How many tools a list looks at, if each has to be checked."""
DESCRIBED = 20_000
"""How many descriptions a pattern is tried on."""
COMPARED_NAMES = 20_000
"""Up to this many names, all are compared with a misspelt one."""
NEIGHBOURS_FROM = 20_000
"""From this many tools on, vectors have an approximate index."""
LINKS = 12
"""Of each vector in that index, and among how many near ones they are chosen."""
LINKED_AMONG = 40
LOADED_AT_ONCE = 20_000
WRITE_SECONDS = 3_600.0
POOL_SIZE = 8
COPIED_BYTES = 1 << 18
TRIES = 2
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

_TABLES = """
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
        effect text NOT NULL, is_context bool NOT NULL,
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
    CREATE INDEX IF NOT EXISTS tools_digest ON {schema}.tools (digest);
    CREATE INDEX IF NOT EXISTS tools_name_start ON {schema}.tools (name_start);
    CREATE INDEX IF NOT EXISTS tools_leaf_start ON {schema}.tools (leaf_start);
    CREATE INDEX IF NOT EXISTS tools_spellings ON {schema}.tools USING gin (spellings)
"""
_BEGIN = """
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
_COLUMNS = """place, name, server, leaf, kind, effect, is_context, mark, digest, name_start,
    leaf_start, spellings, terms, weights, masks, words, vector, hint, blend"""

_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
_GRID_FROM_HALF = np.rint(np.nan_to_num(_HALVES).clip(-1, 1) * GRID).astype(np.int16)
"""For the bits of each half, its number on the grid."""

Places = NDArray[np.int64]
_T = TypeVar("_T")
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


_NOTHING = Tables(
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

    def with_tools(self, tools: Mapping[int, Tool]) -> "Candidates":
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


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which tools a query admits: what tables can tell, and what has to be asked of each tool."""

    admitted: Mask | None
    """Places in the catalogue; None for all of them."""
    conditions: tuple[tuple[LiteralString, object], ...]
    """The same for SQL, but for required and excluded terms."""
    query: Query
    """The filters that are left to check."""
    allowed: Callable[[Tool], bool] | None

    @property
    def asks_tools(self) -> bool:
        """Whether each tool has to be looked at."""
        return self.allowed is not None or bool(self.query.required or self.query.excluded)

    def mask(self, state: State) -> Mask:
        """Return which of some tools are admitted; they must have whole definitions."""
        return mask_admitted(state, self.query, self.allowed) if self.asks_tools else state.open


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
    ) -> None:
        self._database = database
        self._connection: Connection | None = connection
        self.tables = tables
        self._known = known
        self._cache = cache
        self._leading = leading
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
            digests = {_digest(term): term for term in new}
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
                found[number] = Entries.read(by_term[number])
                self._cache.put(number, changed(number), found[number])
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
        numbers = self.number_terms(_name_filter(name, value) for value in values)
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
            values += [_hash_spelling(spelling), order, NAMED]
        rows = self.fetch(" UNION ALL ".join([_SPELT] * len(spellings)), *values)
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
                values += [text, count]
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
                "SELECT place, definition FROM {schema}.definitions WHERE place = ANY(%s)",
                list(places),
            )
            if places
            else []
        )
        return {place: _read_tool(data) for place, data in rows}

    def fetch_candidates(
        self, places: Iterable[int], *, whole: bool = False, asked: tuple[int, ...] | None = None
    ) -> Candidates:
        """Return some tools as a state; only with `whole` do they have all of their definition.

        With `asked`, nothing but these terms will be looked for in them.
        """
        rows = self.fetch(_ROWS, _write_array(sorted({int(place) for place in places})))
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


class PostgresIndex:
    """Search over a catalogue in the database at `postgresql://user:password@host/name`.

    The database needs the extension `vector` (pgvector 0.8 or newer). Processes that open the same
    `schema` share one catalogue; `replace` and `remove` change it for all of them. `encoder` and
    `hints` are those of `Index`. Functions of tools are not kept: give executors to a `Scout`.
    Raises `StoreUnavailable` if the database fails or cannot be reached.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "toolscout_index",
        encoder: EncoderChoice = "static",
        hints: Hints | Literal["shipped"] | None = "shipped",
        fusion: Fusion | None = None,
        cache_bytes: int = CACHE_BYTES,
        pool_size: int = POOL_SIZE,
    ) -> None:
        self._encoder = choose_encoder(encoder)
        self._schema = schema
        self.hints = Hints(HintPack.load_shipped()) if hints == "shipped" else hints
        """What is known about tools besides their definitions, if that is used."""
        self._known_hints = self.hints or Hints()
        self._questions = None
        if self._encoder is not None:
            encode = partial(encode_questions, self._encoder)
            self._questions = WordMemory(encode, limit=REMEMBERED_QUESTIONS)
        self._word_vectors = self._make_writer().word_vectors
        self._ranker = Ranker(self._encoder, self._word_vectors, fusion, self._questions)
        self._cache = PostingCache(cache_bytes)
        self._terms: dict[str, int] = {}
        self._tables = _NOTHING
        self._made_with = f"{hash_analysis()} {self._encoder.name if self._encoder else ''}"
        self._database = Database(url, schema=schema, pool_size=pool_size, prepare=self._prepare)
        self._unsubscribe = self._known_hints.subscribe(self._follow_hints)
        self._read(lambda snapshot: None)

    @property
    def encoder(self) -> Encoder | None:
        """The encoder that turns texts into vectors, if there is one."""
        return self._encoder

    @property
    def encode_questions(self) -> Callable[[Sequence[str]], list[Floats]] | None:
        """Returns the vectors of questions and remembers the latest; None without an encoder."""
        return None if self._questions is None else self._questions.get

    def __len__(self) -> int:
        return self._read(lambda snapshot: snapshot.tables.count)

    def close(self) -> None:
        """End all connections."""
        self._unsubscribe()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading.

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that have tools, sorted."""
        return self._read(lambda snapshot: tuple(sorted(snapshot.tables.servers.values())))

    def get(self, name: str) -> Tool | None:
        """Return the tool of an exposed name."""

        def find(snapshot: Snapshot) -> Tool | None:
            place = snapshot.find_place(name)
            return None if place is None else snapshot.fetch_tools([place])[place]

        return self._read(find)

    def resolve(self, text: str) -> list[Tool]:
        """Return the tools that a name may mean, sorted by name, as `Catalog.resolve` does."""

        def find(snapshot: Snapshot) -> list[Tool]:
            places = snapshot.resolve(text)
            tools = snapshot.fetch_tools(places)
            return [tools[place] for place in places]

        return self._read(find)

    def search(
        self,
        query: str | Query,
        limit: int = DEFAULT_LIMIT,
        *,
        allowed: Callable[[Tool], bool] | None = None,
        also: Iterable[str] = (),
    ) -> Result:
        """Return the best tools for a query, exact names first, as `Index.search` does.

        A caller who may see few of very many tools finds them by name, by server and by words that
        few tools have; other searches look at some thousand tools before they give up.
        """
        if limit < 1:
            raise UsageError(f"A limit of {limit} gives no result. Use 1 or more.")
        asked = query_from_text(query) if isinstance(query, str) else query
        names = tuple(also)
        return self._read(lambda snapshot: self._search(snapshot, asked, limit, allowed, names))

    def search_many(
        self,
        queries: Iterable[str | Query],
        limit: int = DEFAULT_LIMIT,
        *,
        allowed: Callable[[Tool], bool] | None = None,
    ) -> list[Result]:
        """Return the result of each query, in order."""
        return [self.search(query, limit, allowed=allowed) for query in queries]

    def explain(self, query: str | Query, name: str) -> Why:
        """Return what speaks for and against one tool, whether or not the query finds it."""
        asked = query_from_text(query) if isinstance(query, str) else query
        text = " ".join((asked.words or asked.text, *asked.required)).strip()

        def find(snapshot: Snapshot) -> Why:
            place = snapshot.find_place(name)
            everything = self._limit(snapshot, Query(text=""), None)
            if place is None:
                near = ", ".join(self._find_near(snapshot, name, everything)) or "none"
                raise UsageError(f"There is no tool {name!r}. Near: {near}.")
            ranking = self._rank(snapshot, everything, text, {}, 1, also=[place])
            state = _take_state(ranking).with_tools(snapshot.fetch_tools([place]))
            [own] = state.find_rows([place])
            return explain(state, ranking, int(np.flatnonzero(ranking.places == own)[0]))

        return self._read(find)

    def _read(self, work: Callable[[Snapshot], _T]) -> _T:
        """Do some work with one snapshot of the catalogue."""

        return self._database.run(lambda connection: self._read_with(connection, work), TRIES)

    def _read_with(self, connection: Connection, work: Callable[[Snapshot], _T]) -> _T:
        cursor = connection.execute(self._database.build(_BEGIN))
        snapshot = None
        try:
            cursor.nextset()
            cursor.nextset()
            row = cursor.fetchone()
            assert row is not None, "opening has written it"
            tables = self._tables
            if tables.version != row[0]:
                tables = self._read_tables(connection, *row)
            snapshot = Snapshot(
                self._database,
                connection,
                tables,
                self._terms,
                self._cache,
                self._encoder.leading if self._encoder else 0,
            )
            return work(snapshot)
        finally:
            if snapshot is not None:
                snapshot.close()
            connection.rollback()

    def _read_tables(
        self, connection: Connection, version: int, count: int, places: int, hinted: int
    ) -> Tables:
        """Return the tables at a version, reading only what has changed since the ones we have."""
        old = self._tables if self._tables.version < version else _NOTHING
        build = self._database.build

        def fetch(statement: LiteralString) -> list[Any]:
            return connection.execute(build(statement), (old.version,), binary=True).fetchall()

        [(data,)] = fetch(
            "SELECT string_agg(int4send(number) || int4send(tools) || int8send(version), '') "
            "FROM {schema}.terms WHERE version > %s"
        )
        terms = np.frombuffer(data or b"", [("number", ">i4"), ("tools", ">i4"), ("at", ">i8")])
        size = max(int(terms["number"].max(initial=-1)) + 1, len(old.frequencies))
        frequencies = _grow(old.frequencies, size)
        frequencies[terms["number"]] = terms["tools"]
        changed = _grow(old.changed, size)
        changed[terms["number"]] = terms["at"]
        words = list(old.words)
        rows = fetch(
            "SELECT number, word, term, tools FROM {schema}.words WHERE version > %s "
            "ORDER BY number"
        )
        new = [
            bytes(row[1]).decode("utf-8", "surrogatepass") for row in rows if row[0] >= len(words)
        ]
        words += new
        word_terms = _grow(old.word_terms, len(words))
        word_counts = _grow(old.word_counts, len(words))
        for number, _, term, tools in rows:
            word_terms[number] = term
            word_counts[number] = tools
        vectors = old.word_vectors
        if new and self._word_vectors is not None:
            made = [
                np.array(self._word_vectors.get(new[begin : begin + 1_000]))
                for begin in range(0, len(new), 1_000)
            ]
            vectors = np.concatenate([vectors, *made] if len(vectors) else made)
        servers = dict(old.servers)
        spellings = dict(old.server_spellings)
        for number, name, tools in fetch(
            "SELECT number, name, tools FROM {schema}.servers WHERE version > %s"
        ):
            text = bytes(name).decode()
            known = number in servers
            if tools:
                servers[number] = text
            else:
                servers.pop(number, None)
            if known != bool(tools):
                for spelling in list_server_spellings(text):
                    spellings[spelling] = spellings.get(spelling, frozenset()) ^ {number}
        tables = Tables(
            version=version,
            count=count,
            places=places,
            hinted=hinted,
            frequencies=frequencies,
            changed=changed,
            words=tuple(words),
            word_terms=word_terms,
            word_counts=word_counts,
            word_vectors=vectors,
            servers=servers,
            server_spellings=spellings,
        )
        if version > self._tables.version:
            self._tables = tables
        return tables

    # Searching.

    def _search(
        self,
        snapshot: Snapshot,
        asked: Query,
        limit: int,
        allowed: Callable[[Tool], bool] | None,
        also: Sequence[str],
    ) -> Result:
        scope = self._limit(snapshot, asked, allowed)
        if asked.select:
            return self._select(snapshot, asked, scope)
        if asked.pattern:
            return self._list_matching(snapshot, asked, scope, limit)
        if asked.prefix:
            return self._list_prefixed(snapshot, asked, scope, limit)
        text = " ".join((asked.words, *asked.required)).strip()
        if not text or (asked.required and not split_words(text)):
            return self._list(snapshot, asked, scope, limit)
        exact = self._find_named(snapshot, asked.words, scope) if asked.words else []
        of_server = [] if asked.required else self._find_server(snapshot, text)
        if of_server:
            found, total = self._page(
                snapshot, scope, max(limit, NAMED), ("server = ANY(%s)", [of_server])
            )
            if found:
                ranking = self._rank(
                    snapshot, scope, text, {}, limit, include=[*exact, *found], asked=asked
                )
                return self._finish_server(snapshot, asked, ranking, exact, found, total, limit)
        judged = snapshot.find_places(also) if also else []
        if asked.required and self._encoder is None:
            # A tool may be admitted for another spelling of its only word, which scores nothing.
            judged += self._page(snapshot, scope, limit)[0]

        def rank(text: str, swap: Mapping[str, str]) -> Ranking:
            wanted = limit + len(exact)
            return self._rank(
                snapshot, scope, text, swap, wanted, also=judged, include=exact, asked=asked
            )

        count = snapshot.tables.count
        if scope.admitted is not None:
            count = int(np.count_nonzero(scope.admitted))
        ranking, swap = self._ranker.rank_corrected(rank, text, count)
        state = _take_state(ranking)
        named = state.find_rows(exact)
        if not (named or swap):
            named = find_spelt_out(state, ranking)
        shown = [*named[: limit + 1], *ranking.places.take(ranking.best).tolist()]
        places = state.numbers.take(np.array(shown, np.int64)).tolist()
        state = state.with_tools(snapshot.fetch_tools(places))
        return build_result(state, asked, ranking, named, limit, swap)

    def _finish_server(
        self,
        snapshot: Snapshot,
        asked: Query,
        ranking: Ranking,
        exact: Sequence[int],
        found: Sequence[int],
        total: int,
        limit: int,
    ) -> Result:
        state = _take_state(ranking)
        best: list[int] = ranking.places.take(ranking.best).tolist()
        places = [*exact, *found, *state.numbers.take(np.array(best, np.int64)).tolist()]
        state = state.with_tools(snapshot.fetch_tools(places))
        rows = state.find_rows(found)
        result = list_server_hits(state, asked, ranking, state.find_rows(exact), rows, limit)
        return replace(result, total=result.total + max(0, total - len(found)))

    def _limit(
        self, snapshot: Snapshot, asked: Query, allowed: Callable[[Tool], bool] | None
    ) -> Scope:
        """Return which tools a query admits, as far as the tables tell."""
        masks: list[Mask] = []
        conditions: list[tuple[LiteralString, object]] = []
        if asked.servers:
            numbers = [self._find_visible_server(snapshot, s, allowed) for s in asked.servers]
            mask = np.zeros(snapshot.tables.places, np.bool_)
            mask[snapshot.find_server_places(numbers)] = True
            masks.append(mask)
            conditions.append(("server = ANY(%s)", numbers))
        if asked.effects:
            effects = [effect.value for effect in asked.effects]
            masks.append(snapshot.mask_filter("effect", effects))
            conditions.append(("effect = ANY(%s)", effects))
        if asked.kinds:
            kinds = [kind.casefold() for kind in asked.kinds]
            masks.append(snapshot.mask_filter("kind", kinds))
            conditions.append(("kind_folded = ANY(%s)", [kind.encode() for kind in kinds]))
        for required in asked.required:
            mask = snapshot.mask_possible(required)
            if not np.logical_and.reduce([mask, *masks]).any() and split_words(required):
                listed = split_whole_words(required)
                if len(listed) == 1 and len(listed[0]) >= SHORTEST_BEGINNING:
                    mask |= snapshot.mask_beginning(required)
            masks.append(mask)
        return Scope(
            admitted=np.logical_and.reduce(masks) if masks else None,
            conditions=tuple(conditions),
            query=replace(asked, servers=(), effects=(), kinds=()),
            allowed=allowed,
        )

    def _find_visible_server(
        self, snapshot: Snapshot, server: str, allowed: Callable[[Tool], bool] | None
    ) -> int:
        tables = snapshot.tables
        number = tables.folded_servers.get(fold_name(server))
        if number is not None and self._sees(snapshot, number, allowed):
            return number
        near = find_near_names(server, tables.servers.values(), 20 if allowed else 3)
        if allowed is not None:
            folded = tables.folded_servers
            near = [n for n in near if self._sees(snapshot, folded[fold_name(n)], allowed)]
        raise UnknownServer(server, near[:3])

    def _sees(
        self, snapshot: Snapshot, server: int, allowed: Callable[[Tool], bool] | None
    ) -> bool:
        """Tell whether a caller may see some tool of a server."""
        if allowed is None:
            return True
        places = snapshot.find_server_places([server])
        for begin in range(0, len(places), LISTED_AT_ONCE):
            some: list[int] = places[begin : begin + LISTED_AT_ONCE].tolist()
            if any(map(allowed, snapshot.fetch_tools(some).values())):
                return True
        return False

    def _find_server(self, snapshot: Snapshot, text: str) -> list[int]:
        """Return the servers that a text names."""
        for spelling in list_server_spellings(text):
            found = snapshot.tables.server_spellings.get(spelling)
            if found:
                return sorted(found)
        return []

    def _find_named(self, snapshot: Snapshot, name: str, scope: Scope) -> list[int]:
        """Return the admitted places that a name may mean, by name."""
        return self._admit(snapshot, snapshot.resolve(name), scope)

    def _admit(self, snapshot: Snapshot, places: Sequence[int], scope: Scope) -> list[int]:
        """Return those of some places that a query admits."""
        if scope.admitted is not None:
            places = [place for place in places if scope.admitted[place]]
        if not scope.asks_tools or not places:
            return list(places)
        state = snapshot.fetch_candidates(places, whole=True)
        admitted = set(state.numbers[scope.mask(state)].tolist())
        return [place for place in places if place in admitted]

    def _rank(
        self,
        snapshot: Snapshot,
        scope: Scope,
        text: str,
        swap: Mapping[str, str],
        wanted: int,
        *,
        also: Sequence[int] = (),
        include: Sequence[int] = (),
        asked: Query | None = None,
    ) -> Ranking:
        """Return the ranking of a text; its state also has the tools to `include`.

        Tools in `also` are always candidates.
        """
        question = read_question(text, snapshot.number_terms, swap)
        scores = snapshot.score_words(question)
        if scope.admitted is not None:
            scores *= scope.admitted
        matched = int(np.count_nonzero(scores > 0))
        state: Candidates | None = None
        mask = np.zeros(0, np.bool_)
        for step in range(STEPS):
            places = self._choose_places(snapshot, scope, question, scores, matched, MORE**step)
            chosen = np.union1d(places, np.array([*also, *include], np.int64)).tolist()
            state = snapshot.fetch_candidates(
                chosen,
                whole=scope.asks_tools,
                asked=None if scope.asks_tools else question.numbers,
            )
            mask = scope.mask(state)
            if scope.admitted is not None and include:
                mask = mask & scope.admitted[state.numbers]
            if np.count_nonzero(mask) >= CANDIDATES or not scope.asks_tools:
                break
            if scope.admitted is None and len(chosen) >= snapshot.tables.count:
                break
        assert state is not None, "there is a first step"
        last = None if asked is not None and asked.wants_context else state.context
        ranking = self._ranker.rank(
            state,
            text,
            mask,
            wanted=wanted,
            also=[row for row in state.find_rows(also) if mask[row]],
            last=last,
            swap=swap,
        )
        total = ranking.total if scope.asks_tools else max(matched, ranking.total)
        return ranking._replace(total=total)

    def _choose_places(
        self,
        snapshot: Snapshot,
        scope: Scope,
        question: Question,
        scores: Floats,
        matched: int,
        times: int,
    ) -> Places:
        """Return the places of the best tools by words and of the nearest by meaning."""
        tables = snapshot.tables
        if scope.admitted is not None:
            admitted = scope.admitted.nonzero()[0]
            if len(admitted) <= ALL_OF * times:
                return admitted
        elif tables.count <= FEW:
            return np.array(
                [place for (place,) in snapshot.fetch("SELECT place FROM {schema}.tools")]
            )
        parts: list[Places] = []
        if matched:
            parts.append(self._take_best(snapshot, scores, matched, BY_WORDS * times))
        uses_meaning = self._questions is not None and not (
            matched and self._ranker.latin_only and not is_latin(question.text)
        )
        if uses_meaning and self._questions is not None:
            texts = list(dict.fromkeys((question.text, *question.clauses)))[: 1 + ASKED_CLAUSES]
            counts = [BY_MEANING * times, *([BY_CLAUSE * times] * (len(texts) - 1))]
            near = snapshot.find_nearest(list(zip(self._questions.get(texts), counts, strict=True)))
            parts.append(near if scope.admitted is None else near[scope.admitted[near]])
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    def _take_best(self, snapshot: Snapshot, scores: Floats, matched: int, count: int) -> Places:
        """Return the places with the highest scores; of those that tie with the last, by name."""
        if matched <= count:
            return scores.nonzero()[0]
        best = find_best_rows(scores, count)
        if len(best) == count:
            return best
        found = scores.take(best)
        level = best[found == found.min()]
        above = best[found > found.min()]
        rows = snapshot.fetch(
            "SELECT place FROM {schema}.tools WHERE place = ANY(%s) ORDER BY name LIMIT %s",
            level.tolist(),
            count - len(above),
        )
        return np.concatenate([above, np.array([place for (place,) in rows], np.int64)])

    # Lists.

    def _select(self, snapshot: Snapshot, asked: Query, scope: Scope) -> Result:
        found = {name: self._find_named(snapshot, name, scope) for name in asked.select}
        unknown = [name for name in asked.select if not found[name]]
        missing = [
            Missing(
                name=name,
                near=tuple(self._find_near(snapshot, name, scope) if at < NEAR_NAMED else ()),
            )
            for at, name in enumerate(unknown)
        ]
        places = list(dict.fromkeys(place for listed in found.values() for place in listed))
        result = self._show(snapshot, asked, places, len(places), len(places))
        return replace(result, missing=tuple(missing))

    def _find_near(self, snapshot: Snapshot, name: str, scope: Scope) -> list[str]:
        """Return up to three names of admitted tools that resemble a name."""
        tables = snapshot.tables
        if tables.count <= COMPARED_NAMES:
            rows = snapshot.fetch("SELECT name FROM {schema}.tools")
            names = [name for (name,) in rows]
        else:
            text = " ".join(split_words(name))
            everything = Scope(admitted=None, conditions=(), query=Query(text=""), allowed=None)
            names = [t.name for t in self._rank(snapshot, everything, text, {}, 1).state.tools]
        is_open = scope.admitted is None and not scope.asks_tools
        near = find_near_names(name, names, 3 if is_open else 100)
        if is_open:
            return near
        places = dict(self._place_names(snapshot, near))
        admitted = set(self._admit(snapshot, list(places.values()), scope))
        return [one for one in near if places.get(one) in admitted][:3]

    def _place_names(self, snapshot: Snapshot, names: Sequence[str]) -> list[tuple[str, int]]:
        return snapshot.fetch(
            "SELECT name, place FROM {schema}.tools WHERE name = ANY(%s)", list(names)
        )

    def _list(self, snapshot: Snapshot, asked: Query, scope: Scope, limit: int) -> Result:
        places, total = self._page(snapshot, scope, limit, last=not asked.wants_context)
        return self._show(snapshot, asked, places, limit, total)

    def _list_prefixed(self, snapshot: Snapshot, asked: Query, scope: Scope, limit: int) -> Result:
        named = self._find_named(snapshot, asked.prefix, scope)
        prefix = asked.prefix.casefold()
        starts = dict.fromkeys((prefix.removeprefix("mcp__"), prefix))
        parts: list[LiteralString] = ["name_start >= %s AND name_start < %s"] * len(starts)
        parts.append("leaf_start >= %s AND leaf_start < %s")
        values: list[object] = []
        for start in (*starts, prefix):
            begin = _encode(start[:START_CHARS])
            values += [begin, begin + b"\xff"]

        def has_prefix(tool: Tool) -> bool:
            name = tool.name.casefold()
            return name.startswith(tuple(starts)) or tool.leaf.casefold().startswith(prefix)

        condition = (f"({' OR '.join(parts)})", values)
        check = has_prefix if len(prefix) > START_CHARS else None
        last = not asked.wants_context
        places, total = self._page(snapshot, scope, limit, condition, check=check, last=last)
        if not places:
            servers = self._find_server(snapshot, asked.prefix)
            if servers:
                condition = ("server = ANY(%s)", [servers])
                places, total = self._page(snapshot, scope, limit, condition, last=last)
        whole = list(dict.fromkeys([*named, *places]))
        return self._show(snapshot, asked, whole, limit, total + len(whole) - len(places))

    def _list_matching(self, snapshot: Snapshot, asked: Query, scope: Scope, limit: int) -> Result:
        """Return the tools whose name matches a pattern, then those whose description does."""
        engine: Any = re2  # its module is only half typed
        options = engine.Options()
        options.max_mem = PATTERN_MEMORY_BYTES
        options.log_errors = False
        options.case_sensitive = False
        pattern = engine.compile(asked.pattern, options)
        rows = snapshot.fetch("SELECT place, name, leaf FROM {schema}.tools ORDER BY name")
        admitted = scope.admitted
        named: list[int] = []
        others: list[int] = []
        for place, name, leaf in rows:
            if admitted is None or admitted[place]:
                matches = pattern.search(name) or pattern.search(leaf.decode())
                (named if matches else others).append(place)
        named = self._admit(snapshot, named[:LISTED], scope)
        described: list[int] = []
        for begin in range(0, min(len(others), DESCRIBED), LISTED_AT_ONCE):
            tools = snapshot.fetch_tools(others[begin : begin + LISTED_AT_ONCE])
            described += [
                place
                for place in others[begin : begin + LISTED_AT_ONCE]
                if pattern.search(tools[place].description[:PATTERN_TEXT_LIMIT])
            ]
        places = [*named, *self._admit(snapshot, described, scope)]
        return self._show(snapshot, asked, places, limit, len(places))

    def _page(
        self,
        snapshot: Snapshot,
        scope: Scope,
        limit: int,
        condition: tuple[LiteralString, Sequence[object]] | None = None,
        *,
        check: Callable[[Tool], bool] | None = None,
        last: bool = False,
    ) -> tuple[list[int], int]:
        """Return the places of the first admitted tools by name, and how many there are.

        If each tool has to be checked, only the first `LISTED` ones are. With `last`, resources
        and prompts come after everything else.
        """
        wheres: list[str] = [where for where, _ in scope.conditions]
        values: list[object] = [value for _, value in scope.conditions]
        if condition is not None:
            wheres.append(condition[0])
            values += condition[1]
        if scope.query.required and scope.admitted is not None:
            wheres.append("place = ANY(%s)")
            values.append(scope.admitted.nonzero()[0].tolist())
        where = cast("LiteralString", " AND ".join(wheres) or "true")
        table: LiteralString = f"FROM {{schema}}.tools WHERE {where}"
        if not scope.asks_tools and check is None:
            order: LiteralString = "is_context, name" if last else "name"
            rows = snapshot.fetch(f"SELECT place {table} ORDER BY {order} LIMIT %s", *values, limit)
            [(count,)] = snapshot.fetch(f"SELECT count(*) {table}", *values)
            return [place for (place,) in rows], count
        found: list[int] = []
        contexts: list[int] = []
        name = ""
        for _ in range(0, LISTED, LISTED_AT_ONCE):
            rows = snapshot.fetch(
                f"SELECT place, name, is_context {table} AND name > %s ORDER BY name LIMIT %s",
                *(*values, name, LISTED_AT_ONCE),
            )
            places = self._admit(snapshot, [row[0] for row in rows], scope)
            if check is not None:
                tools = snapshot.fetch_tools(places)
                places = [place for place in places if check(tools[place])]
            is_context = {row[0] for row in rows if row[2] and last}
            contexts += [place for place in places if place in is_context]
            found += [place for place in places if place not in is_context]
            if len(rows) < LISTED_AT_ONCE:
                break
            name = rows[-1][1]
        found += contexts
        return found[:limit], len(found)

    def _show(
        self, snapshot: Snapshot, asked: Query, places: Sequence[int], limit: int, total: int
    ) -> Result:
        """Return a list of tools."""
        state = snapshot.fetch_candidates(places[:limit], whole=True)
        result = list_hits(state, asked, state.find_rows(places[:limit]), max(limit, 1))
        return replace(result, total=total)

    # Writing.

    def replace(self, server: str, tools: Iterable[object]) -> None:
        """Make these the tools of a server, all or nothing; only what has changed is written.

        Accepts `Tool`s and everything that `Tool.from_any` reads.
        """
        self._write({server: collect_tools(server, tools)})

    def remove(self, server: str) -> None:
        """Remove the tools of a server."""
        self._write({server: {}})

    def load(self, servers: Iterable[tuple[str, Iterable[object]]]) -> None:
        """Replace the tools of many servers, which is much faster than one by one.

        Some thousand tools at a time are written all or nothing.
        """
        waiting: dict[str, dict[str, Tool]] = {}
        count = 0
        for server, tools in servers:
            waiting[server] = collect_tools(server, tools)
            count += len(waiting[server])
            if count >= LOADED_AT_ONCE:
                self._write(waiting, ends=False)
                waiting = {}
                count = 0
        self._write(waiting)

    def _make_writer(self) -> Writer:
        return Writer(self._encoder, self._known_hints, approximate=False)

    def _follow_hints(self, digests: Collection[str]) -> None:
        """Index the tools again whose hints have changed."""

        def find(snapshot: Snapshot) -> dict[str, dict[str, Tool]]:
            rows = snapshot.fetch(
                "SELECT DISTINCT server FROM {schema}.tools WHERE digest = ANY(%s)",
                [_digest(digest) for digest in digests],
            )
            servers = [server for (server,) in rows]
            tools = snapshot.fetch_tools(snapshot.find_server_places(servers).tolist())
            found: dict[str, dict[str, Tool]] = {}
            for tool in tools.values():
                found.setdefault(tool.server, {})[tool.name] = tool
            return found

        self._write(self._read(find))

    def _prepare(self, database: Database, connection: Connection) -> None:
        with connection.transaction():
            self._lock(connection)
            connection.execute(database.build(_TABLES))
            row = connection.execute(
                database.build("SELECT made_with FROM {schema}.catalog")
            ).fetchone()
            if row is None:
                connection.execute(
                    database.build("INSERT INTO {schema}.catalog VALUES (%s, 0, 0, 0, 0)"),
                    (self._made_with,),
                )
            elif row[0] != self._made_with:
                raise UsageError(
                    f"The index in schema {self._schema!r} was made with another encoder or "
                    "another version of toolscout. Open another schema and load the tools into "
                    "it, or drop this one."
                )

    def _lock(self, connection: Connection) -> None:
        """Wait until no other process writes to the same schema."""
        number = int.from_bytes(_digest(self._schema)[:8], "big", signed=True)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))

    def _write(self, servers: Mapping[str, Mapping[str, Tool]], *, ends: bool = True) -> None:
        """Make these the tools of some servers."""

        def run(connection: Connection) -> None:
            with connection.transaction():
                self._lock(connection)
                Change(self._database, connection, self._make_writer()).write(servers)
            if ends and self._encoder is not None:
                self._add_neighbours(connection)

        self._database.run_long(run, WRITE_SECONDS)

    def _add_neighbours(self, connection: Connection) -> None:
        """Build the approximate index of vectors, once there are enough of them."""
        build = self._database.build
        [[tools, width, has_index]] = connection.execute(
            build(
                "SELECT tools, (SELECT vector_dims(vector) FROM {schema}.tools LIMIT 1), "
                "to_regclass('{schema}.tools_vector') IS NOT NULL FROM {schema}.catalog"
            )
        ).fetchall()
        if tools < NEIGHBOURS_FROM or has_index:
            return
        with connection.transaction():
            self._lock(connection)
            connection.execute("SET LOCAL maintenance_work_mem = '2GB'")
            for column, where in (("vector", "true"), ("blend", "blend IS NOT NULL")):
                connection.execute(
                    build(
                        cast(
                            "LiteralString",
                            f"ALTER TABLE {{schema}}.tools ALTER {column} TYPE halfvec({width})",
                        )
                    )
                )
                connection.execute(
                    build(
                        cast(
                            "LiteralString",
                            f"CREATE INDEX IF NOT EXISTS tools_{column} ON {{schema}}.tools "
                            f"USING hnsw ({column} halfvec_ip_ops) "
                            f"WITH (m = {LINKS}, ef_construction = {LINKED_AMONG}) WHERE {where}",
                        )
                    )
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A tool that is to be written."""

    tool: Tool
    mark: bytes
    definition: bytes


class Change:
    """Writes the tools of some servers within one transaction."""

    def __init__(self, database: Database, connection: Connection, writer: Writer) -> None:
        self._database = database
        self._connection = connection
        self._writer = writer
        self._version = 0
        self._places = 0
        self._hinted = 0

    def write(self, servers: Mapping[str, Mapping[str, Tool]]) -> None:
        """Make these the tools of their servers, and count the change if there is one."""
        [row] = self._fetch("SELECT version, tools, places, hinted FROM {schema}.catalog")
        self._version = row[0] + 1
        self._places = row[2]
        self._hinted = row[3]
        numbers = self._number_servers(servers)
        wanted = self._read_rows(servers)
        known = {
            name: (place, bytes(mark))
            for place, name, mark in self._fetch(
                "SELECT place, name, mark FROM {schema}.tools WHERE server = ANY(%s)",
                list(numbers.values()),
            )
        }
        changed = [r for name, r in wanted.items() if known.get(name, (0, b""))[1] != r.mark]
        gone = {name: place for name, (place, _) in known.items() if name not in wanted}
        if not changed and not gone:
            return
        self._check_names([row.tool for row in changed if row.tool.name not in known], numbers)
        stored = self._writer.store([row.tool for row in changed])
        places = self._assign(
            [known.get(row.tool.name, (None,))[0] for row in changed], list(gone.values())
        )
        out = [*gone.values(), *(known[r.tool.name][0] for r in changed if r.tool.name in known)]
        terms, words = self._take_out(out)
        new_terms, new_words = self._put_in(changed, stored, places, numbers)
        self._count("terms", np.concatenate([terms, new_terms]), len(terms))
        self._count("words", np.concatenate([words, new_words]), len(words))
        for server, number in numbers.items():
            self._run(
                "UPDATE {schema}.servers SET tools = %s, version = %s WHERE number = %s",
                *(len(servers[server]), self._version, number),
            )
        self._run(
            "UPDATE {schema}.catalog SET version = %s, tools = tools + %s, places = %s, "
            "hinted = %s",
            *(self._version, len(changed) - len(out), self._places, self._hinted),
        )

    def _fetch(self, statement: LiteralString, *values: object) -> list[Any]:
        built = self._database.build(statement)
        return self._connection.execute(built, values, binary=True).fetchall()

    def _run(self, statement: LiteralString, *values: object) -> None:
        self._connection.execute(self._database.build(statement), values)

    def _copy(self, table: LiteralString, rows: Iterable[Sequence[bytes | None]]) -> None:
        """Add rows of values in PostgreSQL's binary form."""
        copy = cast("LiteralString", f"COPY {{schema}}.{table} FROM STDIN (FORMAT BINARY)")
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
        names = {_encode(server): server for server in servers}
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
            ((struct.pack(">i", numbers[name]), _encode(name), zero, version) for name in new),
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
            other = _read_tool(rows[0][0])
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
        self._run("DELETE FROM {schema}.definitions WHERE place = ANY(%s)", list(places))
        self._hinted -= sum(row[5] for row in rows)
        filters = {(bytes(row[3]), row[4]) for row in rows}
        values = {
            _digest(_name_filter(name, value))
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
                numbers[_digest(_name_filter("kind", bytes(kind).decode()))],
                numbers[_digest(_name_filter("effect", effect))],
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
        filters = [_name_filter("kind", kind) for kind in kinds]
        filters += [_name_filter("effect", effect) for effect in effects]
        filter_numbers = dict(zip(filters, self._number("terms", filters).tolist(), strict=True))
        postings = stored.postings
        entry_terms = terms.take(postings.terms)
        name_words = words.take(stored.name_words) if len(stored.name_words) else empty
        vectors = _pack_vectors(stored.vectors) if len(stored.vectors) else [None] * len(rows)
        hints: Sequence[bytes | None] = [None] * len(rows)
        blends: Sequence[bytes | None] = hints
        if len(stored.hint_vectors):
            has_hint = stored.hint_vectors.any(axis=1).tolist()
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
                _encode(tool.leaf),
                _encode(tool.kind),
                _encode(tool.kind.casefold()),
                _read_effect(tool).encode(),
                b"\1" if tool.is_context else b"\0",
                rows[at].mark,
                _digest(digest_definition(tool)),
                _encode(tool.name.casefold()[:START_CHARS]),
                _encode(tool.leaf.casefold()[:START_CHARS]),
                _pack_numbers([_hash_spelling(spelling) for spelling in tool.spellings]),
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
        extra = [filter_numbers[_name_filter("kind", row.tool.kind.casefold())] for row in rows] + [
            filter_numbers[_name_filter("effect", _read_effect(row.tool))] for row in rows
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
        digests = [_digest(text) for text in texts]
        statement = f"SELECT digest, number FROM {{schema}}.{table} WHERE digest = ANY(%s)"
        known: dict[bytes, int] = dict(self._fetch(cast("LiteralString", statement), digests))
        statement = f"SELECT coalesce(max(number) + 1, 0) FROM {{schema}}.{table}"
        [(following,)] = self._fetch(cast("LiteralString", statement))
        rows: list[list[bytes]] = []
        tail = [struct.pack(">i", 0), struct.pack(">q", self._version)]
        for at, digest in enumerate(digests):
            if digest not in known:
                known[digest] = following
                row = [struct.pack(">i", following), digest]
                if terms is not None:
                    row += [_encode(texts[at]), struct.pack(">i", terms[at])]
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
        self._run(cast("LiteralString", statement), self._version, unique.tolist(), sums.tolist())

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


def _take_state(ranking: Ranking) -> Candidates:
    assert isinstance(ranking.state, Candidates), "it was ranked here"
    return ranking.state


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(_encode(text), digest_size=16).digest()


def _hash_spelling(spelling: tuple[int, str]) -> int:
    data = f"{spelling[0]} {spelling[1]}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


def _name_filter(name: str, value: str) -> str:
    """Return the term that stands for a filter; no word has a blank."""
    return f" {name} {value}"


def _read_effect(tool: Tool) -> str:
    return (tool.claimed_effect or tool.effect).value


def _write_tool(tool: Tool) -> bytes:
    """Return a whole tool, without members that have their default."""
    row = {name: getattr(tool, name) for name in _FIELDS}
    content = {n: value for n, value in row.items() if value != getattr(_DEFAULTS, n)}
    return json.dumps({"name": tool.name, **content}, separators=(",", ":")).encode()


def _read_tool(data: bytes) -> Tool:
    row: dict[str, Any] = json.loads(data)
    for name in ("aliases", "tags", "hidden_arguments"):
        if name in row:
            row[name] = tuple(row[name])
    for name in ("effect", "claimed_effect"):
        if row.get(name):
            row[name] = Effect(row[name])
    return Tool(**row)


def _write_array(numbers: Iterable[int]) -> str:
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
    width = max(len(data) if data else 0 for data in column)
    if not width:
        return None
    empty = bytes(width)
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


def _grow(array: _A, size: int) -> _A:
    grown = np.zeros(size, array.dtype)
    grown[: len(array)] = array
    return cast("_A", grown)
