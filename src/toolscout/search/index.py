"""`Index`: search over a catalogue, kept up to date with it.

The index subscribes to the changes of a catalogue; `search` takes a query and returns a `Result`.
Each search works on one immutable state, whatever other threads change meanwhile. The filters of a
query are masks over the places of that state, applied before ranking, so that a required term also
limits what the encoder can find (R6).
"""

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
import re2
from numpy.typing import NDArray

from toolscout.catalog import Catalog, Change
from toolscout.encoders.encoder import (
    Encoder,
    Floats,
    StaticEncoder,
    WordMemory,
    encode_questions,
)
from toolscout.encoders.onnx import OnnxEncoder, need_onnx
from toolscout.errors import UnknownServer, UsageError
from toolscout.hints.hints import HintPack, Hints
from toolscout.names import find_near_names, fold_name
from toolscout.query import PATTERN_MEMORY_BYTES, Query, query_from_text
from toolscout.search.build import Writer, read_stored, write_stored
from toolscout.search.fusion import (
    Doubles,
    Fusion,
    Signal,
    confidence_from_chance,
    count_worth_showing,
)
from toolscout.search.hits import Confidence, Hit, Hits, Missing, Result, Why
from toolscout.search.rank import Ranker, Ranking, explain
from toolscout.search.shard import Mask, State
from toolscout.search.text import (
    STOP_WORDS,
    Field,
    compile_split,
    drop_stop_words,
    has_split,
    split_token,
    split_tokens,
    split_whole_words,
    split_words,
    stem,
)
from toolscout.tools import Tool

PATTERN_TEXT_LIMIT = 4_000
NEAR_NAMED = 3
"""Unknown names of one selection for which near names are looked up."""
SPELT_OUT_WORDS = 7
"""A query of more words is not taken for the names of a server and its tool."""
SHORTEST_BEGINNING = 3
"""Letters of the shortest word that is also looked for at the beginning of words."""
DEFINITION_FIELDS = 0xFF & ~Field.HINT.bit
ALL = 0.999999
"""A share above this is the whole; sums may be rounded."""


def mask_admitted(state: State, query: Query, allowed: Callable[[Tool], bool] | None) -> Mask:
    """Return the places that a query admits; `state.open` itself if it excludes nothing."""
    mask = state.open
    if allowed is not None:
        mask = mask & state.mask_accepted(allowed)
    if query.servers:
        mask = mask & _mask_servers(state, query.servers, mask)
    if query.effects:
        mask = mask & state.mask_accepted(
            lambda tool: (tool.claimed_effect or tool.effect) in query.effects
        )
    if query.kinds:
        kinds = {kind.casefold() for kind in query.kinds}
        mask = mask & state.mask_accepted(lambda tool: tool.kind.casefold() in kinds)
    seen = mask
    for required in query.required:
        mask = mask & _mask_required(state, required, seen)
    for excluded in query.excluded:
        mask = mask & ~_mask_term(state, excluded)
    return mask


def _mask_servers(state: State, servers: Sequence[str], seen: Mask) -> Mask:
    """Return the places of some servers.

    A server without a visible tool counts as unknown and is not suggested as a near name.
    """
    mask = np.zeros(len(state.open), np.bool_)
    for server in servers:
        name = state.live_servers.get(fold_name(server))
        if name is None or not seen[state.servers[name]].any():
            known = [s for s in state.live_servers.values() if seen[state.servers[s]].any()]
            raise UnknownServer(server, find_near_names(server, known))
        mask[state.servers[name]] = True
    return mask


def _mask_required(state: State, text: str, seen: Mask) -> Mask:
    """Return the places of tools that have a required term.

    A single word may also be the beginning of a word of the server's name (`git` for `github`), or
    of the tool's own name if none of the tools in `seen` would remain otherwise.
    """
    mask = _mask_term(state, text).copy()
    listed = split_whole_words(text)
    if len(listed) != 1 or len(listed[0]) < SHORTEST_BEGINNING:
        return mask
    pattern = re.compile(rf"(?<![^\W_]){re.escape(listed[0])}", re.IGNORECASE)
    for server, places in state.servers.items():
        if pattern.search(server):
            mask[places] = True
    if seen.any() and not (mask & seen).any():
        starts, words = state.name_words
        begins = [word.startswith(listed[0]) for word in state.words]
        owners = np.arange(len(starts) - 1).repeat(np.diff(starts))
        mask[owners[np.array(begins, np.bool_)[words]]] = True
    return mask


def _mask_term(state: State, text: str) -> Mask:
    """Return the places of tools that have every word of a term in some field."""
    mask = state.open
    tokens = split_tokens(text)
    for token in tokens:
        mask = mask & _mask_word(state, token)
    if not tokens:  # only symbols, such as an emoji, so search the texts themselves
        mask = state.mask_accepted(lambda tool: text in f"{tool.leaf} {tool.description}")
    return mask


def _mask_word(state: State, token: str) -> Mask:
    """Return the places of tools that have a word, written as one (`github`) or split (`GitHub`).

    The index splits words at capitals, so for a split spelling it knows which tools have the
    parts; whether they stand next to each other is looked up in the texts of these. Of hints, only
    those count that were given with the tool: nobody sees the others.
    """
    parts = split_token(token)
    whole = "".join(parts)
    if whole != token.casefold():  # overlapping pairs of characters
        masks = [_mask_given(state, stem(part)) for part in parts]
        return np.logical_and.reduce(np.broadcast_arrays(state.open, *masks))
    mask = _mask_given(state, stem(whole))
    splits = {parts, *((whole[:at], whole[at:]) for at in range(1, len(whole)))} - {(whole,)}
    for split in splits:
        fields = _find_fields(state, [word for word in split if word not in STOP_WORDS])
        fields *= state.open & ~mask
        places: list[int] = np.flatnonzero(fields).tolist()
        if places:
            pattern = compile_split(split)
            mask[[p for p in places if has_split(state.tools[p], fields[p], split, pattern)]] = True
    return mask


def _mask_given(state: State, term: str) -> Mask:
    """Return the places whose tools have a term in the definition or in a hint given with them."""
    number = state.find(term)
    if number is None:
        return np.zeros(len(state.open), np.bool_)
    fields = state.find_fields(number)
    mask = (fields & DEFINITION_FIELDS) > 0
    hinted: list[int] = np.flatnonzero(fields == Field.HINT.bit).tolist()
    for place in hinted:
        given = state.tools[place].hint
        mask[place] = bool(given) and term in map(stem, split_words(given))
    return mask


def _find_fields(state: State, listed: Sequence[str]) -> NDArray[np.uint8]:
    """Return for each place which fields, one bit each, have all of some words."""
    numbers = [state.find(stem(word)) for word in listed]
    fields = np.zeros(len(state.open), np.uint8)
    if numbers and None not in numbers:
        fields[:] = 0xFF
        for number in numbers:
            fields &= state.find_fields(cast("int", number))
    return fields


def find_by_pattern(state: State, source: str, mask: Mask) -> list[int]:
    """Return the tools whose name matches, then those whose description does, sorted by name."""
    engine: Any = re2  # its module is only half typed
    options = engine.Options()
    options.max_mem = PATTERN_MEMORY_BYTES
    options.log_errors = False
    options.case_sensitive = False
    pattern = engine.compile(source, options)
    named: list[int] = []
    described: list[int] = []
    for place in state.sort_by_name(np.flatnonzero(mask)):
        tool = state.tools[place]
        if pattern.search(tool.name) or pattern.search(tool.leaf):
            named.append(place)
        elif pattern.search(tool.description[:PATTERN_TEXT_LIMIT]):
            described.append(place)
    return named + described


def find_by_prefix(state: State, prefix: str, mask: Mask) -> list[int]:
    """Return the tools whose exposed name or leaf has a prefix, sorted by name."""
    begin = prefix.casefold().removeprefix("mcp__")
    found = [
        place
        for place in np.flatnonzero(mask).tolist()
        if state.tools[place].name.casefold().startswith((begin, prefix.casefold()))
        or state.tools[place].leaf.casefold().startswith(prefix.casefold())
    ]
    return state.sort_by_name(found)


def find_spelt_out(state: State, ranking: Ranking) -> list[int]:
    """Return the candidates whose server and leaf have just the words asked for, in any order."""
    question = ranking.question
    if not 1 < len(question.words) <= SPELT_OUT_WORDS:
        return []
    is_covered = ranking.evidence[:, Signal.NAME] > ALL
    if not is_covered.any():
        return []
    covered: list[int] = ranking.places[is_covered].tolist()
    length = sum(map(len, question.words))
    slack = len(question.words) + 2  # for separators and endings
    sizes = {p: len(state.tools[p].server) + len(state.tools[p].leaf) for p in covered}
    places = [place for place, size in sizes.items() if abs(size - length) <= slack]
    if not places:
        return []
    asked = (_stem_all(split_words(question.text)), _stem_all(split_whole_words(question.text)))
    return [place for place in places if _is_spelt_out(state.tools[place], asked)]


def _is_spelt_out(tool: Tool, asked: Sequence[set[str]]) -> bool:
    """Tell whether terms are those of a tool's server and leaf; `GitHub` may be one word or two."""
    leaf = split_words(tool.leaf)
    servers = (split_words(tool.server), split_whole_words(tool.server))
    return bool(tool.server) and any(_stem_all([*server, *leaf]) in asked for server in servers)


def _stem_all(listed: list[str]) -> set[str]:
    return {stem(word) for word in drop_stop_words(listed)}


DEFAULT_LIMIT = 10
REMEMBERED_QUESTIONS = 256
"""Questions whose vectors are kept: what past calls teach needs them a second time."""
EncoderChoice = Encoder | Literal["static", "onnx", "none"] | None
_BUILT_IN_ENCODERS = {"static": StaticEncoder, "onnx": OnnxEncoder}


class SearchIndex(ABC):
    """What a `Scout` asks of an index, in memory or in a database."""

    def __init__(
        self, encoder: EncoderChoice, hints: Hints | Literal["shipped"] | None = "shipped"
    ) -> None:
        self._encoder = choose_encoder(encoder)
        self._questions = None
        if self._encoder is not None:
            encode = partial(encode_questions, self._encoder)
            self._questions = WordMemory(encode, limit=REMEMBERED_QUESTIONS)
        self.hints = Hints(HintPack.load_shipped()) if hints == "shipped" else hints
        """What is known about tools besides their definitions, if that is used."""
        # Without others, there still are the hints that were given with tools.
        self._known_hints = self.hints or Hints()

    @property
    def encoder(self) -> Encoder | None:
        """The encoder that turns texts into vectors, if there is one."""
        return self._encoder

    @property
    def encode_questions(self) -> Callable[[Sequence[str]], list[Floats]] | None:
        """Returns the vectors of questions and remembers the latest; None without an encoder."""
        return None if self._questions is None else self._questions.get

    @abstractmethod
    def __len__(self) -> int:
        """Return how many tools can be found."""

    @abstractmethod
    def search(
        self,
        query: str | Query,
        limit: int = DEFAULT_LIMIT,
        *,
        allowed: Callable[[Tool], bool] | None = None,
        also: Iterable[str] = (),
    ) -> Result:
        """Return the best tools for a query, exact names first."""

    def search_many(
        self,
        queries: Iterable[str | Query],
        limit: int = DEFAULT_LIMIT,
        *,
        allowed: Callable[[Tool], bool] | None = None,
    ) -> list[Result]:
        """Return the result of each query, in order."""
        return [self.search(query, limit, allowed=allowed) for query in queries]

    @abstractmethod
    def explain(self, query: str | Query, name: str) -> Why:
        """Return what speaks for and against one tool."""

    @abstractmethod
    def list_vectors(self) -> tuple[tuple[Tool, ...], NDArray[np.int16] | None]:
        """Return tools and their vectors, or None without an encoder."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything that the index uses."""


class Index(SearchIndex):
    """Search over a catalogue.

    `encoder` is `"static"` (the default), `"onnx"`, any `Encoder`, or `"none"` to match only words.
    `approximate` uses an approximate index of vectors instead of scanning all of them; by default,
    this starts at 100,000 tools if the `ann` extra is installed. `hints` are words that people use
    for tools; by default those that ship with toolscout. `file` is one that `save` wrote.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        encoder: EncoderChoice = "static",
        hints: Hints | Literal["shipped"] | None = "shipped",
        approximate: bool | None = None,
        fusion: Fusion | None = None,
        file: Path | None = None,
    ) -> None:
        super().__init__(encoder, hints)
        known = self._known_hints
        self._writing = threading.Lock()
        self._writer = Writer(self._encoder, known, approximate=approximate)
        self._ranker = Ranker(self._encoder, self._writer.word_vectors, fusion, self._questions)
        # Subscribing before catching up makes sure that no change is lost in between.
        self._unsubscribe = [catalog.subscribe(self._follow), known.subscribe(self._follow_hints)]
        stored = read_stored(file) if file else None
        with self._writing:
            snapshot = catalog.snapshot()
            self._version = snapshot.version
            self._state = self._writer.build(snapshot.tools, stored)

    @classmethod
    def load(
        cls,
        path: str | Path,
        catalog: Catalog,
        *,
        encoder: EncoderChoice = "static",
        hints: Hints | Literal["shipped"] | None = "shipped",
        approximate: bool | None = None,
    ) -> Self:
        """Return an index of a catalogue that reuses a file written by `save`.

        Only tools that are new or changed since then are indexed. A file from another encoder or
        an older version of the format is ignored; a corrupt file raises `InvalidFile`.
        """
        return cls(catalog, encoder=encoder, hints=hints, approximate=approximate, file=Path(path))

    def save(self, path: str | Path) -> None:
        """Write the index to a file, atomically."""
        with self._writing:
            write_stored(Path(path), self._writer.export(self._state))

    def __len__(self) -> int:
        return self._state.count

    def close(self) -> None:
        """Stop following the catalogue and the hints."""
        for end in self._unsubscribe:
            end()

    def search(
        self,
        query: str | Query,
        limit: int = DEFAULT_LIMIT,
        *,
        allowed: Callable[[Tool], bool] | None = None,
        also: Iterable[str] = (),
    ) -> Result:
        """Return the best tools for a query, exact names first.

        `allowed` says which tools the caller may see; others leave no trace in the result.
        Tools named in `also` are judged too, even if they seem far from the query.
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
            return list_hits(state, asked, find_by_pattern(state, asked.pattern, mask), limit)
        if asked.prefix:
            named = find_named(state, asked.prefix, mask)
            found = find_by_prefix(state, asked.prefix, mask)
            found = found or state.find_server_places(asked.prefix, mask)
            return list_hits(state, asked, list(dict.fromkeys([*named, *found])), limit)
        text = " ".join((asked.words, *asked.required)).strip()
        if not text or (asked.required and not split_words(text)):
            return list_hits(state, asked, state.sort_by_name(np.flatnonzero(mask)), limit)
        exact = find_named(state, asked.words, mask) if asked.words else []
        last = state.context
        if last is not None and asked.wants_context:
            last = None
        of_server = [] if asked.required else state.find_server_places(text, mask)
        if of_server:
            ranking = self._ranker.rank(state, text, mask, wanted=limit, last=last)
            return list_server_hits(state, asked, ranking, exact, of_server, limit)
        named = [state.find_place(name) for name in also]
        judged = [place for place in named if place is not None and mask[place]]
        if asked.required and self._encoder is None:
            # A tool may be admitted for another spelling of its only word, which scores nothing.
            judged += state.sort_by_name(np.flatnonzero(mask))[:limit]

        def rank(text: str, swap: Mapping[str, str]) -> Ranking:
            wanted = limit + len(exact)
            return self._ranker.rank(
                state, text, mask, wanted=wanted, also=judged, last=last, swap=swap
            )

        ranking, swap = self._ranker.rank_corrected(rank, text, int(np.count_nonzero(mask)))
        if not (exact or swap):
            exact = find_spelt_out(state, ranking)
        return build_result(state, asked, ranking, exact, limit, swap)

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

    def _follow(self, change: Change) -> None:
        with self._writing:
            if change.version <= self._version:
                return
            self._state = self._writer.change(self._state, change.added, change.removed)
            self._version = change.version

    def _follow_hints(self, digests: Collection[str]) -> None:
        with self._writing:
            self._state = self._writer.refresh_hints(self._state, digests)

    def _select(self, state: State, query: Query, mask: Mask) -> Result:
        found = {name: find_named(state, name, mask) for name in query.select}
        unknown = [name for name in query.select if not found[name]]
        # Comparing a name with all others is slow, and a model may send thousands of names.
        visible = [n for n in state.live_names if mask[state.find_place(n)]] if unknown else []
        missing = [
            Missing(
                name=name, near=tuple(find_near_names(name, visible) if at < NEAR_NAMED else ())
            )
            for at, name in enumerate(unknown)
        ]
        places = dict.fromkeys(chain.from_iterable(found.values()))
        return replace(list_hits(state, query, list(places), len(places)), missing=tuple(missing))


def choose_encoder(choice: EncoderChoice) -> Encoder | None:
    """Return the encoder that a name stands for; encoders and None are returned as they are."""
    if not isinstance(choice, str):
        return choice
    if choice == "none":
        return None
    if choice == "onnx":
        need_onnx()
    found = _BUILT_IN_ENCODERS.get(choice)
    if found is None:
        raise UsageError(
            f"There is no encoder {choice!r}. Use 'static', 'onnx', 'none' or an `Encoder`."
        )
    return found()


def find_named(state: State, name: str, mask: Mask) -> list[int]:
    """Return the places in a mask of the tools that a name may mean."""
    return [place for place in state.resolve(name) if mask[place]]


def build_result(
    state: State,
    query: Query,
    ranking: Ranking,
    exact: list[int],
    limit: int,
    corrected: Mapping[str, str],
) -> Result:
    """Return the result of a ranking, with the places in `exact` first."""
    found: Sequence[Hit] = _build_ranked_hits(state, ranking)
    if exact:
        others = _leave_out(found, ranking, exact)
        found = (*_build_exact_hits(state, ranking, set(exact)), *others)[:limit]
    return Result(
        query=query,
        found=found,
        worth=count_worth_showing([h.score for h in found]) if exact else ranking.worth,
        total=max(ranking.total, len(found)),
        corrected=corrected,
        nearest=_find_nearest(ranking),
    )


def _find_nearest(ranking: Ranking) -> float:
    meaning, match = ranking.evidence[:, Signal.MEANING], ranking.evidence[:, Signal.MATCH]
    return float(np.maximum.reduce(meaning if meaning.any() else match, initial=0.0))


def list_server_hits(
    state: State, query: Query, ranking: Ranking, exact: list[int], of_server: list[int], limit: int
) -> Result:
    """Return what a filter by a server lists, before other tools that its name fits as a word."""
    places = list(dict.fromkeys([*exact, *of_server]))
    servers = dict.fromkeys(state.tools[place].server for place in of_server)
    listed = list_hits(state, query, places, limit)
    ranked = _leave_out(_build_ranked_hits(state, ranking), ranking, places)
    others = [hit for hit in ranked if hit.confidence is not Confidence.WEAK]
    found = (*listed.found, *others)[:limit]
    return Result(
        query=replace(query, words="", servers=tuple(servers)),
        found=found,
        worth=len(found),
        total=len(places) + len(others),
    )


def _build_ranked_hits(state: State, ranking: Ranking) -> Hits:
    rows: list[int] = ranking.best.tolist()
    places: list[int] = ranking.places.take(ranking.best).tolist()
    chances = ranking.chances

    def build_hits(ranks: range) -> list[Hit]:
        tools = state.tools
        return [
            Hit(
                tool=tools[places[rank]],
                score=chances[rank],
                confidence=confidence_from_chance(chances[rank]),
                explain=partial(explain, state, ranking, rows[rank]),
            )
            for rank in ranks
        ]

    return Hits(len(places), build_hits)


def _leave_out(hits: Sequence[Hit], ranking: Ranking, left: Iterable[int]) -> list[Hit]:
    """Return the hits of a ranking, without those of some places."""
    places: list[int] = ranking.places.take(ranking.best).tolist()
    out = set(left)
    return [hit for place, hit in zip(places, hits, strict=True) if place not in out]


def _build_exact_hits(state: State, ranking: Ranking, named: set[int]) -> list[Hit]:
    """Return the named tools in the order of the ranking, then those not in it, by name."""
    listed: list[int] = ranking.places.tolist()
    order: list[int] = ranking.order.tolist()
    rows = {listed[row]: row for row in order if listed[row] in named}
    first = [*rows, *state.sort_by_name(named - rows.keys())]
    return [_build_exact_hit(state, place, ranking, rows.get(place)) for place in first]


def _build_exact_hit(
    state: State, place: int, ranking: Ranking | None = None, row: int | None = None
) -> Hit:
    def explain_exact() -> Why:
        found = None if ranking is None or row is None else explain(state, ranking, row)
        return Why(matched=found.matched if found else {}, shares={"exact name": 1.0}, held_back=())

    tool = state.tools[place]
    return Hit(tool=tool, score=1.0, confidence=Confidence.EXACT, explain=explain_exact)


def list_hits(state: State, query: Query, places: list[int], limit: int) -> Result:
    """Return a list of tools; resources and prompts come last unless they are asked for."""
    if state.context is not None and not (query.select or query.wants_context):
        places = sorted(places, key=state.context.item)
    hits = tuple(_build_exact_hit(state, place) for place in places[:limit])
    return Result(query=query, found=hits, worth=len(hits), total=len(places))
