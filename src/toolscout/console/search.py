"""Searches of a person: hits with their reasons, and the reply that a model would read.

`SearchPreview` asks the same index and the same past calls as the scout does, but loads, keeps
and counts nothing: looking must not change what agents see. `Indexes` has one index for each
encoder, so that a person can compare them.
"""

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec

from toolscout.catalog import Catalog
from toolscout.console.catalog import row_from_tool
from toolscout.console.views import ApiError, View
from toolscout.encoders.encoder import StaticEncoder
from toolscout.encoders.onnx import PACKAGE, OnnxEncoder
from toolscout.errors import ModelError, UsageError
from toolscout.query import Query, query_from_text
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.search.hits import Confidence, Hit, Result, Why
from toolscout.search.index import Index, SearchIndex
from toolscout.sessions.search import SEARCHED
from toolscout.tools import Tool

LIMIT = 10
LIMIT_MAX = 50
HITS_RANKED = 200
"""Hits among which "why not this tool?" looks for the tool."""
BUSY_SECONDS = 1.0
"""How long after a search the next one is to be expected."""
ASK_AGAIN = "Say what the tool should do to what, for example 'create a calendar event'."
STATIC, LEXICAL, ONNX = "static", "lexical", "onnx"
ENCODER_FAMILIES = {"static": STATIC, "minilm": ONNX}
ONNX_TOOLS_MAX = 3_000
"""Tools up to which a model may encode them on demand; it takes milliseconds for each."""
ONNX_PACKAGES = ("onnxruntime", PACKAGE)


class SearchPreview:
    """Answers queries over the indexes of one scout."""

    def __init__(self, scout: Scout, indexes: "Indexes") -> None:
        self._scout = scout
        self._indexes = indexes
        self._last_search = -BUSY_SECONDS

    def is_busy(self) -> bool:
        """Tell whether somebody is likely to be typing."""
        return time.monotonic() - self._last_search < BUSY_SECONDS

    def search(self, view: View, text: str, *, limit: int = LIMIT, encoder: str = "") -> Json:
        """Return the hits of a query with the share of each signal, and a model's reply."""
        self._last_search = time.monotonic()
        index = self._indexes.get(encoder)
        query = query_from_text(text)
        started = time.perf_counter()
        result = self._rank(view, index, query, limit)
        milliseconds = (time.perf_counter() - started) * 1e3
        # What a model would read in a session that begins here.
        reply = self._scout.preview(
            text, limit=limit, allowed=view.narrows, index=index, principal=view.principal_name
        )
        return {
            "query": query.text,
            "milliseconds": round(milliseconds, 3),
            "total": result.total,
            "worth": result.worth,
            "corrected": dict(result.corrected),
            "hits": [
                {**row_from_tool(hit.tool), **_describe_rank(hit), "matched": _list_fields(hit.why)}
                for hit in result.hits
            ],
            "missing": [{"name": m.name, "near": list(m.near)} for m in result.missing],
            "message": _explain_result(result),
            "reply": {"text": reply.text, "tokens": reply.tokens},
        }

    def explain(self, view: View, text: str, name: str, *, encoder: str = "") -> Json:
        """Return what speaks for and against one tool, whether it is a hit or not."""
        tool = view.get_tool(name, with_disabled=True)
        index = self._indexes.get(encoder)
        query = query_from_text(text)
        result = self._rank(view, index, query, HITS_RANKED)
        names = [hit.tool.name for hit in result.hits]
        rank = names.index(tool.name) + 1 if tool.name in names else None
        hit = result.hits[rank - 1] if rank else None
        best = result.hits[0] if result.hits else None
        why = Why(matched={}, shares={}, held_back=())
        if hit is not None:
            why = hit.why
        else:
            # It raises if the tool has just left, or if the query ranks nothing.
            with contextlib.suppress(ModelError, UsageError):
                why = index.explain(query, tool.name)
        return {
            "tool": tool.name,
            "rank": rank,
            "score": None,
            "confidence": None,
            "signals": _round_shares(why.shares),
            "asked_before": [],
            **(_describe_rank(hit) if hit is not None else {}),
            "matched": _list_fields(why),
            "best": None
            if best is None
            else {
                "name": best.tool.name,
                "score": round(best.score, 4),
                "signals": _round_shares(best.why.shares),
            },
            "reasons": [*_list_exclusions(view, query, tool), *why.held_back],
        }

    def _rank(self, view: View, index: SearchIndex, query: Query, limit: int) -> Result:
        wide = max(SEARCHED, limit)
        principal = view.principal_name
        search = self._scout.feedback.search
        result = search(index, query, wide, allowed=view.allowed, principal=principal)
        return replace(result, found=result.found[:limit], worth=min(result.worth, limit))


def _describe_rank(hit: Hit) -> Json:
    return {
        "score": round(hit.score, 4),
        "confidence": hit.confidence.value,
        "signals": _round_shares(hit.why.shares),
        "asked_before": list(hit.why.asked_before),
    }


def _round_shares(shares: Mapping[str, float]) -> Json:
    return {name: round(share, 4) for name, share in shares.items()}


def _list_fields(why: Why) -> Json:
    """Return, for each word of the query that a tool has, the fields that have it."""
    fields: dict[str, list[str]] = {}
    for field, words in why.matched.items():
        for word in words:
            fields.setdefault(word, []).append(field)
    return fields


def _explain_result(result: Result) -> str:
    if not result.hits:
        return "" if result.missing else f"No tool fits {result.query.text!r}. {ASK_AGAIN}"
    is_guess = all(hit.confidence is Confidence.WEAK for hit in result.hits)
    return f"Nothing fits well; these are guesses. {ASK_AGAIN}" if is_guess else ""


def _list_exclusions(view: View, query: Query, tool: Tool) -> list[str]:
    """Return what keeps a tool out of a result, however well it fits."""
    reasons: list[str] = []
    reason = view.policy.explain_disabled(tool)
    if reason:
        reasons.append(f"It is hidden by policy: {reason}.")
    filters = (
        ("server", tool.server, query.servers),
        ("effect", tool.effect.value, tuple(effect.value for effect in query.effects)),
        ("kind", tool.kind, query.kinds),
    )
    for key, value, wanted in filters:
        if wanted and value.lower() not in map(str.lower, wanted):
            reasons.append(f"The query asks for {key}:{wanted[0]}, and its {key} is {value}.")
    if query.select and tool.name not in query.select:
        reasons.append("The query selects other names.")
    return reasons


class Indexes:
    """Indexes of one catalogue by the name of their encoder; threads may share it.

    The scout's own index exists already. Another one is built when somebody first asks for it,
    which takes as long as indexing does, and follows the catalogue from then on.
    """

    def __init__(self, catalog: Catalog, index: SearchIndex) -> None:
        self._catalog = catalog
        encoder = index.encoder
        self._main_name = (
            LEXICAL if encoder is None else ENCODER_FAMILIES.get(encoder.family, "own")
        )
        self._indexes = {self._main_name: index}
        self._hints = index.hints
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The encoders to choose from, the scout's own first."""
        names = [*self._indexes, STATIC, LEXICAL]
        is_small = len(self._catalog) <= ONNX_TOOLS_MAX
        if is_small and all(find_spec(package) is not None for package in ONNX_PACKAGES):
            names.append(ONNX)
        return list(dict.fromkeys(names))

    def get(self, name: str = "") -> SearchIndex:
        """Return an index, built if need be; raises `ApiError` for an unknown name."""
        name = name or self._main_name
        with self._lock:
            if name not in self._indexes:
                if name not in self.names:
                    hint = f"Use one of: {', '.join(self.names)}."
                    raise ApiError(400, "unknown_encoder", f"There is no encoder {name!r}.", hint)
                encoders = {STATIC: StaticEncoder, ONNX: OnnxEncoder}
                encoder = encoders[name]() if name in encoders else None
                self._indexes[name] = Index(self._catalog, encoder=encoder, hints=self._hints)
            return self._indexes[name]

    def close(self) -> None:
        """Let the indexes built here stop following the catalogue."""
        for name, index in self._indexes.items():
            if name != self._main_name:
                index.close()
