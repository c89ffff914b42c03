"""`Searches`: a query answered for a person: hits with their reasons, and what a model would read.

Asks the same index and the same past calls as the scout does. Nothing is loaded, kept or counted:
a person who looks must not change what is seen.

`Indexes`: one catalogue under several encoders, so that a person can compare them.

The scout's own index is there already; others are made when they are first asked for, which takes
as long as indexing does, and follow the catalogue from then on.
"""

import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec

from toolscout.catalog import Catalog
from toolscout.console.views import BAD, Refused, View
from toolscout.encoders.onnx import PACKAGE, OnnxEncoder
from toolscout.encoders.static import StaticEncoder
from toolscout.errors import ModelError, UsageError
from toolscout.query import Query, query_from_text
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.search.hits import Confidence, Hit, Result, Why
from toolscout.search.index import Index
from toolscout.sessions.metatools import search_request
from toolscout.sessions.record import Record
from toolscout.sessions.search import SEARCHED, Search
from toolscout.tokens import count_definition_tokens
from toolscout.tools import Tool

STATIC, LEXICAL, ONNX = "static", "lexical", "onnx"
FAMILIES = {"static": STATIC, "minilm": ONNX}
ONNX_MOST = 3_000
"""Tools up to which a model may encode them on demand; it takes milliseconds for each."""
ONNX_PACKAGES = ("onnxruntime", PACKAGE)


class Indexes:
    """Indexes by the name of their encoder; threads may share it."""

    def __init__(self, catalog: Catalog, index: Index) -> None:
        self._catalog = catalog
        self.main = index
        encoder = index.encoder
        self.main_name = LEXICAL if encoder is None else FAMILIES.get(encoder.family, "own")
        self._made = {self.main_name: index}
        self._making = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The encoders that can be chosen, the scout's own first."""
        further = [STATIC, LEXICAL, *([ONNX] if self._has_onnx() else [])]
        return list(dict.fromkeys((*self._made, *further)))

    def get(self, name: str = "") -> Index:
        """Return an index, made if need be; raises `Refused` for one that cannot be had."""
        name = name or self.main_name
        with self._making:
            if name not in self._made:
                if name not in self.names:
                    hint = f"Use one of: {', '.join(self.names)}."
                    raise Refused(BAD, "unknown_encoder", f"There is no encoder {name!r}.", hint)
                self._made[name] = self._index(name)
            return self._made[name]

    def close(self) -> None:
        """Stop following the catalogue; the scout's own index goes on."""
        for name, index in self._made.items():
            if name != self.main_name:
                index.close()

    def _index(self, name: str) -> Index:
        makers = {STATIC: StaticEncoder, ONNX: OnnxEncoder}
        return Index(self._catalog, encoder=makers[name]() if name in makers else None)

    def _has_onnx(self) -> bool:
        is_small = len(self._catalog) <= ONNX_MOST
        return is_small and all(find_spec(package) is not None for package in ONNX_PACKAGES)


LIMIT, LIMIT_MOST = 10, 50
RANKED = 200
"""Hits among which "why not this tool?" looks for it."""
BUSY_SECONDS = 1.0
"""How long after a search another one is to be expected."""
PREVIEW = "console"
"""The name of the session in which a person looks; it is never kept."""
ASK_AGAIN = "Say what the tool should do to what, for example 'create a calendar event'."


class Searches:
    """Answers queries over the indexes of one scout."""

    def __init__(self, scout: Scout, indexes: Indexes) -> None:
        self._scout, self._indexes = scout, indexes
        self._last = -BUSY_SECONDS

    def is_busy(self) -> bool:
        """Tell whether somebody is likely to be typing."""
        return time.monotonic() - self._last < BUSY_SECONDS

    def found(self, view: View, text: str, *, limit: int = LIMIT, encoder: str = "") -> Json:
        """Return the hits of a query, what each owes to which signal, and a model's reply."""
        self._last = time.monotonic()
        index = self._indexes.get(encoder)
        query = query_from_text(text)
        started = time.perf_counter()
        result = self._result(view, index, query, limit)
        milliseconds = (time.perf_counter() - started) * 1e3
        return {
            "query": query.text,
            "milliseconds": round(milliseconds, 3),
            "total": result.total,
            "worth": result.worth,
            "corrected": dict(result.corrected),
            "hits": [_hit_row(hit) for hit in result.hits],
            "missing": [{"name": m.name, "near": list(m.near)} for m in result.missing],
            "message": _message(result),
            "reply": self._reply(view, index, text, limit),
        }

    def why(self, view: View, text: str, name: str, *, encoder: str = "") -> Json:
        """Return what speaks for and against one tool, found or not."""
        tool, index = view.known(name), self._indexes.get(encoder)
        query = query_from_text(text)
        result = self._result(view, index, query, RANKED)
        ranks = {hit.tool.name: rank for rank, hit in enumerate(result.hits, 1)}
        rank = ranks.get(tool.name)
        hit = result.hits[rank - 1] if rank else None
        why = hit.why if hit is not None else _explained(index, query, tool)
        best = result.hits[0] if result.hits else None
        return {
            "tool": tool.name,
            "rank": rank,
            "score": round(hit.score, 4) if hit is not None else None,
            "confidence": hit.confidence.value if hit is not None else None,
            "signals": _rounded(why.shares),
            "matched": _fields_by_word(why),
            "best": None if best is None else _best(best),
            "reasons": [*_outside(view, query, tool), *why.held_back],
        }

    def _result(self, view: View, index: Index, query: Query, limit: int) -> Result:
        result = index.search(query, max(SEARCHED, limit), allowed=view.allowed)
        return self._scout.feedback.apply(result, limit)

    def _reply(self, view: View, index: Index, text: str, limit: int) -> Json:
        """Return what a model would read in a conversation that begins here."""
        scout = self._scout
        blank = Record(id=PREVIEW).to_json()
        session = scout.restore(blank, allowed=view.narrows, keep=False)
        request = search_request([text], limit, None, None, session.settings)
        reply = Search(scout.catalog, index, scout.feedback)(session, request)
        return {"text": reply.text, "tokens": reply.tokens}


def _hit_row(hit: Hit) -> Json:
    tool, why = hit.tool, hit.why
    return {
        "name": tool.name,
        "server": tool.server,
        "leaf": tool.leaf,
        "kind": tool.kind,
        "effect": tool.effect.value,
        "title": tool.title,
        "signature": tool.render_signature(),
        "sentence": tool.first_sentence,
        "tokens": count_definition_tokens(tool),
        "score": round(hit.score, 4),
        "confidence": hit.confidence.value,
        "signals": _rounded(why.shares),
        "matched": _fields_by_word(why),
    }


def _best(hit: Hit) -> Json:
    return {
        "name": hit.tool.name,
        "score": round(hit.score, 4),
        "signals": _rounded(hit.why.shares),
    }


def _rounded(shares: Mapping[str, float]) -> Json:
    return {name: round(share, 4) for name, share in shares.items()}


def _fields_by_word(why: Why) -> Json:
    """Return, for each word of the query that a tool has, the fields that have it."""
    found: dict[str, list[str]] = {}
    for field, words in why.matched.items():
        for word in words:
            found.setdefault(word, []).append(field)
    return found


def _message(result: Result) -> str:
    if not result.hits:
        return "" if result.missing else f"No tool fits {result.query.text!r}. {ASK_AGAIN}"
    is_guess = all(hit.confidence is Confidence.WEAK for hit in result.hits)
    return f"Nothing fits well; these are guesses. {ASK_AGAIN}" if is_guess else ""


def _explained(index: Index, query: Query, tool: Tool) -> Why:
    try:
        return index.explain(query, tool.name)
    except (ModelError, UsageError):  # it left the catalogue meanwhile, or words rank nothing here
        return Why(matched={}, shares={}, held_back=())


def _outside(view: View, query: Query, tool: Tool) -> list[str]:
    """Return what keeps a tool out of a result, whatever it fits."""
    said: list[str] = []
    reason = view.policy.why_disabled(tool)
    if reason:
        said.append(f"It is hidden by policy: {reason}.")
    wanted = (
        ("server", tool.server, query.servers),
        ("effect", tool.effect.value, tuple(effect.value for effect in query.effects)),
        ("kind", tool.kind, query.kinds),
    )
    for key, has, asked in wanted:
        if asked and has.lower() not in map(str.lower, asked):
            said.append(f"The query asks for {key}:{asked[0]}, and its {key} is {has}.")
    if query.select and tool.name not in query.select:
        said.append("The query selects other names.")
    return said
