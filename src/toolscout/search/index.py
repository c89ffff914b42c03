"""`Index`: search over a catalogue, kept up to date with it.

The index subscribes to the changes of a catalogue; `search` takes a query and returns a `Result`.
Each search works on one immutable state, whatever other threads change meanwhile. The index does
not remember queries and never changes the catalogue.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from toolscout.catalog import Catalog, Change
from toolscout.encoders.encoder import Encoder
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.encoders.static import StaticEncoder
from toolscout.errors import UsageError
from toolscout.names import find_near_names
from toolscout.query import Query, query_from_text
from toolscout.search.build import Stored, Writer, read_stored, write_stored
from toolscout.search.filters import find_by_pattern, find_by_prefix, mask_admitted
from toolscout.search.fusion import Doubles, Fusion, confidence_from_chance, count_worth_showing
from toolscout.search.hits import Confidence, Hit, Hits, Missing, Result, Why
from toolscout.search.rank import Ranker, Ranking, explain
from toolscout.search.shard import Mask, State
from toolscout.search.text import split_words
from toolscout.tools import Tool

DEFAULT_LIMIT = 10
EncoderChoice = Encoder | Literal["static", "onnx"] | None
_BUILT_IN_ENCODERS = {"static": StaticEncoder, "onnx": OnnxEncoder}


class Index:
    """Search over a catalogue.

    `encoder` is `"static"` (the default), `"onnx"`, any `Encoder`, or None to match only words.
    `approximate` uses an approximate index of vectors instead of scanning all of them; by default,
    this starts at 100,000 tools if the `ann` extra is installed. `file` is one that `save` wrote.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        encoder: EncoderChoice = "static",
        approximate: bool | None = None,
        fusion: Fusion | None = None,
        file: Path | None = None,
    ) -> None:
        self._encoder = choose_encoder(encoder)
        self._catalog = catalog
        self._writing = threading.Lock()
        self._writer = Writer(self._encoder, approximate=approximate)
        self._ranker = Ranker(self._encoder, self._writer.word_vectors, fusion)
        # Subscribing before catching up makes sure that no change is lost in between.
        self._unsubscribe = catalog.subscribe(self._follow)
        self._catch_up(read_stored(file) if file else None)

    @classmethod
    def load(
        cls,
        path: str | Path,
        catalog: Catalog,
        *,
        encoder: EncoderChoice = "static",
        approximate: bool | None = None,
    ) -> Self:
        """Return an index of a catalogue that reuses a file written by `save`.

        Only tools that are new or changed since then are indexed. A file from another encoder or
        an older version of the format is ignored; a corrupt file raises `InvalidFile`.
        """
        return cls(catalog, encoder=encoder, approximate=approximate, file=Path(path))

    def save(self, path: str | Path) -> None:
        """Write the index to a file, atomically."""
        with self._writing:
            write_stored(Path(path), self._writer.export(self._state))

    @property
    def encoder(self) -> Encoder | None:
        """The encoder that turns texts into vectors, if there is one."""
        return self._encoder

    def __len__(self) -> int:
        return self._state.count

    def close(self) -> None:
        """Stop following the catalogue."""
        self._unsubscribe()

    def search(
        self,
        query: str | Query,
        limit: int = DEFAULT_LIMIT,
        *,
        allowed: Callable[[Tool], bool] | None = None,
    ) -> Result:
        """Return the best tools for a query, exact names first.

        `allowed` says which tools the caller may see; others leave no trace in the result.
        Raises a `ModelError` if the query is invalid or names an unknown server.
        """
        if limit < 1:
            raise UsageError(f"A limit of {limit} gives no result. Use 1 or more.")
        state = self._state
        asked = query_from_text(query) if isinstance(query, str) else query
        mask = mask_admitted(state, asked, allowed)
        if asked.select:
            return self._select(state, asked, mask)
        if asked.pattern:
            return _list_places(state, asked, find_by_pattern(state, asked.pattern, mask), limit)
        if asked.prefix:
            named = _find_named(state, asked.prefix, mask)
            places = dict.fromkeys([*named, *find_by_prefix(state, asked.prefix, mask)])
            return _list_places(state, asked, list(places), limit)
        text = " ".join((asked.words, *asked.required)).strip()
        if not text or (asked.required and not split_words(text)):
            return _list_places(state, asked, state.sort_by_name(np.flatnonzero(mask)), limit)
        return self._rank(state, asked, text, mask, limit)

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
        state = self._state
        asked = query_from_text(query) if isinstance(query, str) else query
        place = state.find_place(name)
        if place is None:
            near = ", ".join(find_near_names(name, state.live_names)) or "none"
            raise UsageError(f"There is no tool {name!r}. Near: {near}.")
        text = " ".join((asked.words or asked.text, *asked.required)).strip()
        ranking = self._ranker.rank(state, text, state.open, also=(place,))
        return explain(state, ranking, int(np.flatnonzero(ranking.places == place)[0]))

    def collect_evidence(
        self, text: str, *, hidden: Iterable[str] = ()
    ) -> tuple[tuple[Tool, ...], Doubles, float]:
        """Return the candidates for a text, the signals of each, and the text's length.

        A fusion is fitted on these; `hidden` names tools to leave out.
        """
        state = self._state
        mask = state.open.copy()
        for name in hidden:
            place = state.find_place(name)
            if place is not None:
                mask[place] = False
        ranking = self._ranker.rank(state, text, mask)
        places: list[int] = ranking.places.tolist()
        tools = tuple(state.tools[place] for place in places)
        return tools, ranking.evidence, ranking.question.length

    def list_vectors(self) -> tuple[tuple[Tool, ...], NDArray[np.int16] | None]:
        """Return all tools and their quantized vectors, or None without an encoder."""
        state = self._state
        places: list[int] = state.places.tolist()
        tools = tuple(state.tools[place] for place in places)
        shards = zip(state.shards, state.alive, strict=True)
        rows = [
            shard.vectors[mask]
            for shard, mask in shards
            if mask.any() and shard.vectors is not None
        ]
        return tools, np.concatenate(rows) if rows else None

    def _catch_up(self, stored: Stored | None) -> None:
        with self._writing:
            snapshot = self._catalog.snapshot()
            self._version = snapshot.version
            self._state = self._writer.build(snapshot.tools, stored)

    def _follow(self, change: Change) -> None:
        with self._writing:
            if change.version <= self._version:
                return
            self._state = self._writer.change(self._state, change.added, change.removed)
            self._version = change.version

    def _select(self, state: State, query: Query, mask: Mask) -> Result:
        places: dict[int, None] = {}
        missing: list[Missing] = []
        for name in query.select:
            found = _find_named(state, name, mask)
            places.update(dict.fromkeys(found))
            if not found:
                visible = [n for n in state.live_names if mask[state.find_place(n)]]
                missing.append(Missing(name=name, near=tuple(find_near_names(name, visible))))
        return replace(
            _list_places(state, query, list(places), len(places)), missing=tuple(missing)
        )

    def _rank(self, state: State, query: Query, text: str, mask: Mask, limit: int) -> Result:
        exact = _find_named(state, query.words, mask) if query.words else []
        ranking, swap = self._ranker.rank_corrected(state, text, mask, limit + len(exact))
        return _build_result(state, query, ranking, exact, limit, swap)


def choose_encoder(choice: EncoderChoice) -> Encoder | None:
    """Return the encoder that a name stands for; encoders and None are returned as they are."""
    if not isinstance(choice, str):
        return choice
    found = _BUILT_IN_ENCODERS.get(choice)
    if found is None:
        raise UsageError(
            f"There is no encoder {choice!r}. Use 'static', 'onnx', None or an `Encoder`."
        )
    return found()


def _find_named(state: State, name: str, mask: Mask) -> list[int]:
    return [place for place in state.resolve(name) if mask[place]]


def _build_result(
    state: State,
    query: Query,
    ranking: Ranking,
    exact: list[int],
    limit: int,
    corrected: Mapping[str, str],
) -> Result:
    best = _Best(state, ranking)
    found: Sequence[Hit] = Hits(len(best.places), best.build_hits)
    if exact:
        named = set(exact)
        others = [hit for place, hit in zip(best.places, found, strict=True) if place not in named]
        found = (*_build_exact_hits(state, ranking, named), *others)[:limit]
    return Result(
        query=query,
        found=found,
        worth=count_worth_showing([hit.score for hit in found] if exact else best.chances),
        total=max(ranking.total, len(found)),
        corrected=corrected,
    )


class _Best:
    """The best candidates of a ranking, as plain numbers that are cheap to read one by one."""

    __slots__ = ("chances", "places", "ranking", "rows", "state")

    def __init__(self, state: State, ranking: Ranking) -> None:
        self.state = state
        self.ranking = ranking
        self.rows: list[int] = ranking.best.tolist()
        self.places: list[int] = ranking.places.take(ranking.best).tolist()
        self.chances = ranking.chances

    def build_hits(self, ranks: range) -> list[Hit]:
        """Return the hits of a range of ranks."""
        state = self.state
        ranking = self.ranking
        tools = state.tools
        some = slice(ranks.start, ranks.stop)
        return [
            Hit(
                tool=tools[place],
                score=chance,
                confidence=confidence_from_chance(chance),
                explain=partial(explain, state, ranking, row),
            )
            for place, chance, row in zip(
                self.places[some], self.chances[some], self.rows[some], strict=True
            )
        ]


def _build_exact_hits(state: State, ranking: Ranking, named: set[int]) -> list[Hit]:
    """Return the named tools in the order of the ranking, then those not in it, by name."""
    listed: list[int] = ranking.places.tolist()
    order: list[int] = ranking.order.tolist()
    rows = {listed[row]: row for row in order if listed[row] in named}
    first = [*rows, *state.sort_by_name(named - rows.keys())]
    return [_build_exact_hit(state, place, ranking, rows.get(place)) for place in first]


def _build_exact_hit(state: State, place: int, ranking: Ranking | None, row: int | None) -> Hit:
    return Hit(
        tool=state.tools[place],
        score=1.0,
        confidence=Confidence.EXACT,
        explain=partial(_explain_exact, state, ranking, row),
    )


def _explain_exact(state: State, ranking: Ranking | None, row: int | None) -> Why:
    ranked = None if ranking is None or row is None else explain(state, ranking, row)
    return Why(matched=ranked.matched if ranked else {}, shares={"exact name": 1.0}, held_back=())


def _list_places(state: State, query: Query, places: list[int], limit: int) -> Result:
    hits = tuple(_build_exact_hit(state, place, None, None) for place in places[:limit])
    return Result(query=query, found=hits, worth=len(hits), total=len(places))
