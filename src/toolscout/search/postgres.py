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
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, LiteralString, Self, TypeVar, cast

import numpy as np
import re2
from numpy.typing import NDArray
from psycopg import sql

from toolscout.catalog import collect_tools
from toolscout.encoders.encoder import (
    Encoder,
    Floats,
)
from toolscout.errors import CatalogUnavailable, StoreUnavailable, UnknownServer, UsageError
from toolscout.hints.hints import Hints
from toolscout.names import find_near_names, fold_name, list_server_spellings
from toolscout.query import PATTERN_MEMORY_BYTES, Query, query_from_text
from toolscout.search.build import Writer, hash_analysis
from toolscout.search.fusion import Fusion
from toolscout.search.hits import Missing, Result, Why
from toolscout.search.index import (
    DEFAULT_LIMIT,
    NEAR_NAMED,
    PATTERN_TEXT_LIMIT,
    SHORTEST_BEGINNING,
    EncoderChoice,
    SearchIndex,
    build_result,
    choose_encoder,
    find_spelt_out,
    list_hits,
    list_server_hits,
    mask_admitted,
)
from toolscout.search.rank import (
    CANDIDATES,
    FEW,
    Question,
    Ranker,
    Ranking,
    explain,
    find_best_rows,
    is_latin,
    read_question,
)
from toolscout.search.shard import Mask, State
from toolscout.search.tables import (
    BEGIN_READING,
    CREATE_TABLES,
    LAYOUT,
    NAMED,
    NO_TABLES,
    START_CHARS,
    Candidates,
    Change,
    Places,
    PostingCache,
    Snapshot,
    Tables,
    Written,
    digest_text,
    encode_text,
    grow_array,
)
from toolscout.search.text import (
    split_whole_words,
    split_words,
)
from toolscout.stores.postgres import Connection, Database
from toolscout.tools import Tool

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
LISTED_AT_ONCE = 500
LISTED = 5_000
"""How many tools a list looks at, if each has to be checked."""
DESCRIBED = 20_000
"""How many descriptions a pattern is tried on."""
COMPARED_NAMES = 20_000
"""Up to this many names, all are compared with a misspelt one."""
NEIGHBOURS_FROM = 20_000
"""From this many tools on, vectors have an approximate index."""
LOADED_AT_ONCE = 20_000
WRITE_SECONDS = 3_600.0
POOL_SIZE = 8
TRIES = 2
SCHEMA_PATTERN = "^toolscout_index_[0-9a-f]{12}$"
"""What `name_schema` returns."""
# Fewer links than by default: it is built in half the time, and found nearly as well.
_INDEX_VECTORS: LiteralString = """
    CREATE INDEX IF NOT EXISTS tools_vector ON {schema}.tools
    USING hnsw (vector halfvec_ip_ops) WITH (m = 12, ef_construction = 40)
"""
_INDEX_BLENDS: LiteralString = """
    CREATE INDEX IF NOT EXISTS tools_blend ON {schema}.tools
    USING hnsw (blend halfvec_ip_ops) WITH (m = 12, ef_construction = 40)
    WHERE blend IS NOT NULL
"""
_T = TypeVar("_T")


_DROPPING = 0x746F6F6C6472
"""The advisory lock for dropping unused indexes."""
_USED = "toolscout used it on "
"""How the comment on a schema begins."""
_LIST_SCHEMAS = """
    SELECT nspname, obj_description(oid, 'pg_namespace') FROM pg_namespace
    WHERE nspname ~ %s AND obj_description(oid, 'pg_namespace') LIKE %s
"""
_log = logging.getLogger(__name__)


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


class PostgresIndex(SearchIndex):
    """Search over a catalogue in the database at `postgresql://user:password@host/name`.

    The database needs the extension `vector` (pgvector 0.8 or newer). Processes that open the same
    `schema` share one catalogue; `replace` and `remove` change it for all of them. `encoder` and
    `hints` are those of `Index`. The function of a tool is known only to the process that wrote it.
    Opening and writing raise `StoreUnavailable` if the database fails or cannot be reached, and
    reading raises `CatalogUnavailable`.
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
        super().__init__(encoder, hints)
        self._schema = schema
        self._word_vectors = self._make_writer().word_vectors
        self._ranker = Ranker(self._encoder, self._word_vectors, fusion, self._questions)
        self._cache = PostingCache(cache_bytes)
        self._terms: dict[str, int] = {}
        self._tables = NO_TABLES
        self._functions: dict[str, Tool] = {}
        self._made_with = _describe_making(self._encoder)
        self._database = Database(url, schema=schema, pool_size=pool_size, prepare=self._prepare)
        self._unsubscribe = self._known_hints.subscribe(self._follow_hints)
        self.read(lambda snapshot: None)

    def __len__(self) -> int:
        return self.read(lambda snapshot: snapshot.tables.count)

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
        return self.read(lambda snapshot: tuple(sorted(snapshot.tables.servers.values())))

    def get(self, name: str) -> Tool | None:
        """Return the tool of an exposed name."""

        def find(snapshot: Snapshot) -> Tool | None:
            place = snapshot.find_place(name)
            return None if place is None else snapshot.fetch_tools([place])[place]

        return self.read(find)

    def resolve(self, text: str) -> list[Tool]:
        """Return the tools that a name may mean, sorted by name, as `Catalog.resolve` does."""

        def find(snapshot: Snapshot) -> list[Tool]:
            places = snapshot.resolve(text)
            tools = snapshot.fetch_tools(places)
            return [tools[place] for place in places]

        return self.read(find)

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
        return self.read(lambda snapshot: self._search(snapshot, asked, limit, allowed, names))

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
            state = _take_state(ranking).add_tools(snapshot.fetch_tools([place]))
            [own] = state.find_rows([place])
            return explain(state, ranking, int(np.flatnonzero(ranking.places == own)[0]))

        return self.read(find)

    def read(self, work: Callable[[Snapshot], _T]) -> _T:
        """Do some work with one snapshot of the catalogue."""
        try:
            return self._database.run(lambda connection: self._read_with(connection, work), TRIES)
        except StoreUnavailable as error:
            raise CatalogUnavailable from error

    def drop_unused(self, days: float) -> None:
        """Note that this index is in use, and drop those that nobody has used for some days.

        Only schemas that `name_schema` has named are dropped.
        """
        today = datetime.now(UTC)
        note = cast("LiteralString", f"COMMENT ON SCHEMA {{schema}} IS '{_USED}{today:%Y-%m-%d}'")
        oldest = today - timedelta(days=days)

        def drop(connection: Connection) -> None:
            # PostgreSQL lets only one process at a time change a comment or drop a schema.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_DROPPING,))
            connection.execute(self._database.build(note))
            rows = connection.execute(_LIST_SCHEMAS, (SCHEMA_PATTERN, f"{_USED}%")).fetchall()
            for name, comment in rows:
                used = datetime.fromisoformat(comment.removeprefix(_USED)).replace(tzinfo=UTC)
                if used < oldest:
                    dropped = sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name))
                    connection.execute(dropped)
                    _log.info("Dropped the index %s, last used on %s.", name, f"{used:%Y-%m-%d}")

        def run(connection: Connection) -> None:
            with connection.transaction():
                drop(connection)

        self._database.run_long(run, WRITE_SECONDS)

    def list_vectors(self) -> tuple[tuple[Tool, ...], NDArray[np.int16] | None]:
        """Return the first `ALL_OF` tools by name and their vectors, as `Index` does for all."""

        def find(snapshot: Snapshot) -> tuple[tuple[Tool, ...], NDArray[np.int16] | None]:
            rows = snapshot.fetch("SELECT place FROM {schema}.tools ORDER BY name LIMIT %s", ALL_OF)
            state = snapshot.fetch_candidates([place for (place,) in rows], whole=True)
            vectors = state.shards[0].vectors if state.shards else None
            return tuple(state.tools), vectors

        return self.read(find)

    def _read_with(self, connection: Connection, work: Callable[[Snapshot], _T]) -> _T:
        cursor = connection.execute(self._database.build(BEGIN_READING))
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
                self._functions,
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
        old = self._tables if self._tables.version < version else NO_TABLES
        build = self._database.build

        def fetch(statement: LiteralString) -> list[Any]:
            return connection.execute(build(statement), (old.version,), binary=True).fetchall()

        [(data,)] = fetch(
            "SELECT string_agg(int4send(number) || int4send(tools) || int8send(version), '') "
            "FROM {schema}.terms WHERE version > %s"
        )
        terms = np.frombuffer(data or b"", [("number", ">i4"), ("tools", ">i4"), ("at", ">i8")])
        size = max(int(terms["number"].max(initial=-1)) + 1, len(old.frequencies))
        frequencies = grow_array(old.frequencies, size)
        frequencies[terms["number"]] = terms["tools"]
        changed = grow_array(old.changed, size)
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
        word_terms = grow_array(old.word_terms, len(words))
        word_counts = grow_array(old.word_counts, len(words))
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
            found, total = self._list_page(
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
            judged += self._list_page(snapshot, scope, limit)[0]

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
        state = state.add_tools(snapshot.fetch_tools(places))
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
        state = state.add_tools(snapshot.fetch_tools(places))
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
        places, total = self._list_page(snapshot, scope, limit, last=not asked.wants_context)
        return self._show(snapshot, asked, places, limit, total)

    def _list_prefixed(self, snapshot: Snapshot, asked: Query, scope: Scope, limit: int) -> Result:
        named = self._find_named(snapshot, asked.prefix, scope)
        prefix = asked.prefix.casefold()
        starts = dict.fromkeys((prefix.removeprefix("mcp__"), prefix))
        parts: list[LiteralString] = ["name_start >= %s AND name_start < %s"] * len(starts)
        parts.append("leaf_start >= %s AND leaf_start < %s")
        values: list[object] = []
        for start in (*starts, prefix):
            begin = encode_text(start[:START_CHARS])
            values += [begin, begin + b"\xff"]

        def has_prefix(tool: Tool) -> bool:
            name = tool.name.casefold()
            return name.startswith(tuple(starts)) or tool.leaf.casefold().startswith(prefix)

        condition = (f"({' OR '.join(parts)})", values)
        check = has_prefix if len(prefix) > START_CHARS else None
        last = not asked.wants_context
        places, total = self._list_page(snapshot, scope, limit, condition, check=check, last=last)
        if not places:
            servers = self._find_server(snapshot, asked.prefix)
            if servers:
                condition = ("server = ANY(%s)", [servers])
                places, total = self._list_page(snapshot, scope, limit, condition, last=last)
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

    def _list_page(
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

    def replace(self, server: str, tools: Iterable[object]) -> Written:
        """Make these the tools of a server, all or nothing; only what has changed is written.

        Accepts `Tool`s and everything that `Tool.from_any` reads. Returns what has changed.
        """
        return self._write({server: collect_tools(server, tools)})

    def add(self, server: str, tools: Iterable[object]) -> Written:
        """Add tools to a server, replacing those of the same name; returns what has changed."""
        return self._write({server: collect_tools(server, tools)}, keep_others=True)

    def remove(self, server: str, names: Iterable[str] | None = None) -> Written:
        """Remove a server, or some of its tools by exposed name or leaf; ignores unknown ones."""
        if names is None:
            return self._write({server: {}})
        return self._write({server: {}}, keep_others=True, unwanted=set(names))

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
                [digest_text(digest) for digest in digests],
            )
            servers = [server for (server,) in rows]
            tools = snapshot.fetch_tools(snapshot.find_server_places(servers).tolist())
            found: dict[str, dict[str, Tool]] = {}
            for tool in tools.values():
                found.setdefault(tool.server, {})[tool.name] = tool
            return found

        self._write(self.read(find))

    def _prepare(self, database: Database, connection: Connection) -> None:
        with connection.transaction():
            self._lock(connection)
            connection.execute(database.build(CREATE_TABLES))
            row = connection.execute(
                database.build("SELECT made_with FROM {schema}.catalog")
            ).fetchone()
            if row is None:
                connection.execute(
                    database.build("INSERT INTO {schema}.catalog VALUES (%s, 0, 0, 0, 0)"),
                    (self._made_with,),
                )
                self._set_width(database, connection)
            elif row[0] != self._made_with:
                raise UsageError(
                    f"The index in schema {self._schema!r} was made with another encoder or "
                    "another version of toolscout. Open another schema and load the tools into "
                    "it, or drop this one."
                )

    def _set_width(self, database: Database, connection: Connection) -> None:
        """Say how many numbers a vector has, which an index of vectors needs to know."""
        if self._encoder is None:
            return
        width: int = self._encoder.encode(["tool"], kind="tool").shape[1]
        kind: LiteralString = cast("LiteralString", f"halfvec({width})")
        statement: LiteralString = "ALTER TABLE {schema}.tools ALTER vector TYPE KIND, "
        statement += "ALTER hint TYPE KIND, ALTER blend TYPE KIND"
        connection.execute(database.build(statement.replace("KIND", kind)))

    def _lock(self, connection: Connection) -> None:
        """Wait until no other process writes to the same schema."""
        number = int.from_bytes(digest_text(self._schema)[:8], "big", signed=True)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))

    def _write(
        self,
        servers: Mapping[str, Mapping[str, Tool]],
        *,
        keep_others: bool = False,
        unwanted: Collection[str] = (),
        ends: bool = True,
    ) -> Written:
        """Change the tools of some servers, as `Change.write` does."""

        def run(connection: Connection) -> Written:
            with connection.transaction():
                self._lock(connection)
                change = Change(self._database, connection, self._make_writer())
                written = change.write(servers, keep_others=keep_others, unwanted=unwanted)
            if ends and self._encoder is not None:
                self._add_neighbours(connection)
            return written

        written = self._database.run_long(run, WRITE_SECONDS)
        tools = [tool for own in servers.values() for tool in own.values()]
        # Searches in other threads read this while it changes.
        kept = dict(self._functions)
        for tool in (*written.removed, *tools):
            kept.pop(tool.name, None)
        kept.update({tool.name: tool for tool in tools if tool.function is not None})
        self._functions = kept
        return written

    def _add_neighbours(self, connection: Connection) -> None:
        """Build the approximate index of vectors, once there are enough of them."""
        build = self._database.build
        row = connection.execute(
            build(
                "SELECT tools, to_regclass('{schema}.tools_vector') IS NOT NULL "
                "FROM {schema}.catalog"
            )
        ).fetchone()
        if row is None or row[0] < NEIGHBOURS_FROM or row[1]:
            return
        with connection.transaction():
            self._lock(connection)
            connection.execute("SET LOCAL maintenance_work_mem = '2GB'")
            for statement in (_INDEX_VECTORS, _INDEX_BLENDS):
                connection.execute(build(statement))


def name_schema(encoder: EncoderChoice, *parts: str) -> str:
    """Return a name for the tables of an encoder, this version of toolscout and something else."""
    described = "\n".join([_describe_making(choose_encoder(encoder)), *parts])
    return f"toolscout_index_{hashlib.sha256(described.encode()).hexdigest()[:12]}"


def _describe_making(encoder: Encoder | None) -> str:
    return f"{LAYOUT} {hash_analysis()} {encoder.name if encoder else ''}"


def _take_state(ranking: Ranking) -> Candidates:
    assert isinstance(ranking.state, Candidates), "it was ranked here"
    return ranking.state
