"""Details: what the reply to a search says, as JSON for programs (R42)."""

from collections.abc import Iterable, Sequence

from toolscout.query import Query
from toolscout.schemas import Json
from toolscout.search.hits import Hit
from toolscout.sessions.requests import SearchRequest
from toolscout.sessions.session import Session
from toolscout.sessions.sheets import Answer, Situation, Written


def details_of(
    session: Session,
    request: SearchRequest,
    page: Written,
    answers: Sequence[Answer],
    situation: Situation,
) -> Json:
    """Return the details of a search that loaded nothing."""
    shown = {hit.tool.name for hit in page.hits}
    return {
        "queries": [_answer_json(session, answer, shown) for answer in answers],
        "loaded": list[str](),
        "described": list(page.described),
        "pending": list(situation.pending),
        "failed": [{"server": server, "reason": reason} for server, reason in situation.failed],
        "news": list(situation.news),
        "notes": list(request.notes),
        "limit": request.limit,
        "max_tokens": request.max_tokens,
        "mode": session.settings.mode.value,
        "form": "",
        "totals": _totals(session, page),
    }


def form_of(queries: Iterable[Query | None]) -> str:
    """Return which form all queries have; nothing stands for one that could not be read."""
    forms = {_form(query) for query in queries}
    return forms.pop() if len(forms) == 1 else "mixed"


def _form(query: Query | None) -> str:
    if query is None:
        return "invalid"
    if query.select:
        return "select"
    if query.prefix:
        return "prefix"
    if query.pattern:
        return "pattern"
    return "words" if query.words or query.required else "filter"


def _answer_json(session: Session, answer: Answer, shown: set[str]) -> Json:
    return {
        "query": answer.query,
        "code": answer.code,
        "error": answer.error,
        "hits": [_hit_json(session, hit, answer) for hit in answer.hits if hit.tool.name in shown],
        "left_off": [hit.tool.name for hit in answer.hits if hit.tool.name not in shown],
        "already_loaded": [hit.tool.name for hit in answer.known],
        "missing": [{"name": m.name, "near": list(m.near)} for m in answer.missing],
        "corrected": dict(answer.corrected),
        "further": answer.further,
    }


def _hit_json(session: Session, hit: Hit, answer: Answer) -> Json:
    return {
        "name": hit.tool.name,
        "server": hit.tool.server,
        "score": hit.score,
        "confidence": hit.confidence.value,
        "loaded": session.is_callable(hit.tool),
        "available": hit.tool.server not in answer.failed,
    }


def _totals(session: Session, page: Written) -> Json:
    catalogued = len(session.visible())
    return {
        "hits": len(page.hits),
        "loaded": len(session.record.loaded),
        "hidden": max(0, catalogued - len(session.record.entries)),
        "catalogued": catalogued,
    }
