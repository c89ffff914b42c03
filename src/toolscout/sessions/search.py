"""`tool_search`: from the model's queries to a reply, and to loaded tools.

Asks the index, sorts hits into new and already callable, decides which of them are sure enough to
be loaded or shown whole, and has the reply written. What it says a tool is, the session holds to.

Details: what the reply to a search says, as JSON for programs (R42).

How the answer to a search reaches the model: as text, as references, or as definitions.

Takes a session and what a verb replied; gives the reply in the form of the session's mode. What was
found and loaded is decided before; the shape on the wire is the dialect's.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from toolscout.catalog import Catalog, Status
from toolscout.errors import ModelError
from toolscout.names import clean_text, to_one_line
from toolscout.query import Query, query_from_text
from toolscout.schemas import Json
from toolscout.search.feedback import Feedback, hash_query
from toolscout.search.hits import Confidence, Hit, Result
from toolscout.search.index import Index
from toolscout.sessions.metatools import SearchRequest
from toolscout.sessions.replies import (
    QUERY_CHARS,
    Answer,
    Reply,
    Situation,
    Written,
    reserve,
    written,
)
from toolscout.sessions.session import Session
from toolscout.settings import Mode
from toolscout.tokens import count_definition_tokens
from toolscout.tools import Effect, Tool


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


SURE = (Confidence.EXACT, Confidence.STRONG)
SEARCHED = 20
"""Hits asked of the index beyond those that are loaded, so that past calls have some to raise."""
KNOWN_LIMIT = 40
GUESSES = 3
"""Weak hits that are shown where there are no others."""
SELECTED_WHOLE = 3
"""Selected tools whose definitions come along unasked."""


_Asked = Sequence[tuple[Answer, Query | None]]
"""Answers, each with its query, or nothing where it could not be read."""


class _Found(NamedTuple):
    """What one query found, before it is known how much of it has room to be loaded."""

    query: Query
    result: Result
    fresh: tuple[Hit, ...]
    known: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """Searches for sessions of one scout."""

    catalog: Catalog
    index: Index
    feedback: Feedback

    def __call__(self, session: Session, request: SearchRequest) -> Reply:
        """Return the reply, after loading what it says is loaded."""
        session.refresh()
        session.prompt.decide()
        if not session.visible():
            return self._empty(session, request)
        looked = [self._looked(session, text, request.limit) for text in request.queries]
        loads = self._loads(session, [one for one in looked if isinstance(one, _Found)])
        failed = self._failed()
        asked = [_answered(session, one, request, loads, failed) for one in looked]
        answers = [answer for answer, _ in asked]
        fruitless = all(answer.is_fruitless for answer in answers)
        session.fruitless = session.fruitless + 1 if fruitless else 0
        situation = self._situation(session, request, asked, fruitless=fruitless)
        page = written(answers, situation, request.max_tokens, detail=request.detail)
        added = self._load(session, page, loads, asked)
        details = details_of(session, request, page, answers, situation)
        details |= {"loaded": added, "form": form_of(query for _, query in asked)}
        return _reply(page, answers, details, added)

    def _looked(self, session: Session, text: str, limit: int) -> _Found | Answer:
        """Return what a query found, or the answer to one that cannot be read."""
        try:
            query = query_from_text(text)
            result = self._result(session, query, limit)
        except ModelError as error:
            asked = clean_text(text, QUERY_CHARS)
            return Answer(query=asked, error=str(error), code=error.code)
        return _Found(query, result, *_sorted_out(session, result, limit))

    def _failed(self) -> frozenset[str]:
        unready = self.catalog.unready
        if not unready:
            return frozenset()
        return frozenset(s for s, state in unready.items() if state.status is Status.FAILED)

    def _result(self, session: Session, query: Query, limit: int) -> Result:
        # Where several conversations share a session nothing counts as known, so none steps aside.
        known = 0 if session.settings.shared else len(session.record.entries)
        room = max(SEARCHED, limit) + min(known, KNOWN_LIMIT)
        allowed = None if session.policy.is_open else session.policy.sees
        result = self.index.search(query, room, allowed=allowed)
        return self.feedback.apply(result, room)

    def _loads(self, session: Session, looked: Sequence[_Found]) -> frozenset[str]:
        """Return the tools that this search may load, as far as the budget goes.

        What it reports as loaded already counts first, so that nothing new evicts it (R50).
        """
        known = {hit.tool.name for one in looked for hit in one.known}
        loaded = session.record.loaded if known else ()
        costs = {entry.name: entry.tokens for entry in loaded if entry.name in known}
        for one in looked:
            for hit in one.fresh if one.query.load else ():
                if hit.confidence is not Confidence.WEAK:
                    costs[hit.tool.name] = count_definition_tokens(hit.tool)
        fitting = session.record.fitting(list(costs.items()), session.settings.loaded_tokens)
        return frozenset(fitting) - known

    def _load(
        self, session: Session, page: Written, loads: frozenset[str], asked: _Asked
    ) -> list[str]:
        shown = {hit.tool.name: hit.tool for hit in page.hits if hit.tool.name in loads}
        if shown:
            for answer, _ in asked:
                for hit in answer.known:
                    session.record.touch(hit.tool.name)
        added: list[str] = []
        for answer, query in reversed(asked):  # the first query's tools are to be the most recent
            mine = [shown.pop(h.tool.name) for h in answer.hits if h.tool.name in shown]
            if query is not None and mine:
                added = session.load(mine, _kept_query(session, answer)) + added
        _note_shown(session, page, [answer for answer, _ in asked])
        return added

    def _situation(
        self,
        session: Session,
        request: SearchRequest,
        asked: _Asked,
        *,
        fruitless: bool,
    ) -> Situation:
        pending, failed = ((), ()) if all(map(_is_settled, asked)) else _absent_servers(session)
        resigned = fruitless and session.fruitless >= session.settings.fruitless
        return Situation(
            notes=request.notes,
            news=session.take_news(),
            pending=pending,
            failed=failed,
            servers=_servers(session) if fruitless else (),
            next_step=_RESIGNED if resigned else _next_step(session, [a for a, _ in asked]),
        )

    def _empty(self, session: Session, request: SearchRequest) -> Reply:
        pending, failed = _absent_servers(session)
        situation = Situation(
            notes=request.notes,
            news=session.take_news(),
            pending=pending,
            failed=failed,
            next_step="There are no tools at all here yet. "
            + ("Search again shortly." if pending else "Go on without a tool."),
        )
        page = written([], situation, request.max_tokens)
        details = details_of(session, request, page, [], situation)
        return Reply(text=page.text, code="empty_catalog", details=details)


def _answered(
    session: Session,
    looked: _Found | Answer,
    request: SearchRequest,
    loads: frozenset[str],
    failed: frozenset[str],
) -> tuple[Answer, Query | None]:
    if isinstance(looked, Answer):
        return looked, None
    query, result, fresh, known = looked
    listed = not (query.words or query.required or query.select)
    answer = Answer(
        query=query.text,
        hits=fresh,
        known=known,
        winners=_winners(session, query, fresh, known, request.detail),
        missing=result.missing,
        corrected=result.corrected,
        further=max(0, result.total - len(fresh) - len(known)) if listed else 0,
        loads=loads,
        discovers=not query.load,
        failed=failed,
    )
    return answer, query


def _reply(page: Written, answers: Sequence[Answer], details: Json, added: list[str]) -> Reply:
    failed_all = all(answer.error for answer in answers)
    known = tuple([hit for answer in answers for hit in answer.known])
    nothing = not (known or any(answer.hits for answer in answers))
    return Reply(
        text=page.text,
        code=answers[0].code if failed_all else "no_match" if nothing else "ok",
        is_error=failed_all,
        details=details,
        hits=page.hits,
        known=known,
        references=tuple(added),
        described=page.described,
    )


def _note_shown(session: Session, page: Written, answers: Sequence[Answer]) -> None:
    """Note what the conversation now has; what `discover:` shows changes nothing."""
    shown = {hit.tool.name for hit in page.hits}
    for answer in answers:
        if answer.discovers:
            continue
        if page.described:
            session.tell([tool for tool in answer.winners if tool.name in page.described])
        weak = [
            hit.tool
            for hit in answer.hits
            if hit.tool.name in shown and hit.tool.name not in answer.loads
        ]
        if weak:
            session.record.offer(weak, _kept_query(session, answer))


def _kept_query(session: Session, answer: Answer) -> str:
    return hash_query(answer.query) if session.settings.hash_queries else answer.query


def _sorted_out(
    session: Session, result: Result, limit: int
) -> tuple[tuple[Hit, ...], tuple[Hit, ...]]:
    """Return the new hits that are worth showing, and the sure ones that are callable already."""
    selected = bool(result.query.select)
    if selected or session.may_know:
        fresh, known = _apart(session, result.best, len(result) if selected else limit)
    else:
        # Hits are made when they are read: where none can be known, no more than are shown.
        fresh, known = list(result.found[: min(result.worth, limit)]), []
    if all(hit.confidence is Confidence.WEAK for hit in fresh):
        # R31: guesses are shown only when nothing better exists, and few of them.
        fresh = [] if known else fresh[:GUESSES]
    return tuple(fresh), tuple(known)


def _apart(session: Session, hits: Sequence[Hit], limit: int) -> tuple[list[Hit], list[Hit]]:
    """Return the first hits that are new, and all sure ones that are known."""
    fresh: list[Hit] = []
    known: list[Hit] = []
    for hit in hits:
        if session.is_known(hit.tool):
            # R43: loaded tools use no slots; weak ones would only be noise.
            if hit.confidence is not Confidence.WEAK:
                known.append(hit)
        elif len(fresh) < limit:
            fresh.append(hit)
    return fresh, known


def _winners(
    session: Session, query: Query, fresh: Sequence[Hit], known: Sequence[Hit], detail: str
) -> tuple[Tool, ...]:
    """Return the tools whose definitions go along, unless the conversation has them already."""
    if detail == "names":
        return ()
    if detail == "schemas":
        chosen = [hit.tool for hit in (*fresh, *known) if hit.confidence is not Confidence.WEAK]
    elif query.select:
        chosen = [hit.tool for hit in fresh] if len(fresh) <= SELECTED_WHOLE else []
    else:
        chosen = _clear_winner(session, query, fresh, known)
    return tuple(tool for tool in chosen if not session.has_shown(tool))


def _clear_winner(
    session: Session, query: Query, fresh: Sequence[Hit], known: Sequence[Hit]
) -> list[Tool]:
    listed = not (query.words or query.required)
    best = max((*fresh, *known), key=_sureness, default=None)
    if listed or best is None or best.confidence not in SURE:
        return []
    fits = count_definition_tokens(best.tool) <= session.settings.schema_tokens
    return [best.tool] if fits else []


def _sureness(hit: Hit) -> tuple[bool, float]:
    return hit.confidence is Confidence.EXACT, hit.score


def _absent_servers(session: Session) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the servers that are still connecting, and those that failed and why (R45)."""
    unready = session.unready().items()
    if not unready:
        return (), ()
    pending = tuple(server for server, state in unready if state.status is Status.PENDING)
    failed = tuple((server, s.reason) for server, s in unready if s.status is Status.FAILED)
    return pending, failed


def _is_settled(asked: tuple[Answer, Query | None]) -> bool:
    """Tell whether no further server could have more for a query: all that it names is here."""
    answer, query = asked
    named = query is not None and bool(query.select)
    return named and bool(answer.hits or answer.known) and not answer.missing


def _servers(session: Session) -> tuple[tuple[str, int], ...]:
    counts = Counter(tool.server for tool in session.visible())
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


_NEXT: dict[Mode, str] = {
    Mode.BRIDGE: "Next: tool_call with one of these names and its arguments.",
    Mode.NATIVE: "Next: call one by its name; from your next step on those not marked weak "
    "are among your tools.",
    Mode.REFERENCE: "Next: call one that is not marked weak by its name.",
    Mode.DEFINITIONS: "Next: call one that is not marked weak by its name.",
}


_RESIGNED = (
    "Several searches in a row found nothing: no tool here fits. "
    "Go on without one, or tell the user."
)
_UNMARKED = " Those marked 'not loaded' need tool_describe first."


def _next_step(session: Session, answers: Sequence[Answer]) -> str:
    """Return the next call that the session will accept (R49, R50)."""
    live = [(a, hit) for a in answers for hit in a.hits if hit.tool.server not in a.failed]
    known = any(hit.tool.server not in a.failed for a in answers for hit in a.known)
    if known or any(hit.tool.name in answer.loads for answer, hit in live):
        marked = any(reserve(hit, answer) for answer, hit in live)
        return _NEXT[session.settings.mode] + (_UNMARKED if marked else "")
    if live:
        return "Next: tool_search in other words; if one of these is right, tool_describe it."
    return "Next: tool_search in other words, or list a server with 'server:name'."


NOTE_CHARS = 1_000
"""Providers limit descriptions."""


def delivered(session: Session, reply: Reply, *, searched: bool) -> Reply:
    """Return a reply as the session's mode has it go to the model."""
    match session.settings.mode:
        case Mode.REFERENCE:
            return replace(reply, by_reference=True)
        case Mode.DEFINITIONS if searched:
            told = _definitions(session, reply)
            note_delivered(session, told)
            return replace(reply, definitions=(*told,) or (_note(reply),))
        case _:
            return reply


def note_delivered(session: Session, tools: Iterable[Tool]) -> None:
    """Note that the conversation's items hold the definitions of these tools."""
    if session.settings.mode is Mode.DEFINITIONS:
        for tool in tools:
            session.record.show(tool)


def _definitions(session: Session, reply: Reply) -> list[Tool]:
    """Return what a search made callable, and of the rest what the items lack.

    A tool that was loaded otherwise, or whose definition was dropped from the conversation, is
    delivered again; so is one that is all that was found. They stand in the order of loading, so
    that a session rebuilt from the conversation has the same.
    """
    fresh = [hit.tool for hit in reply.hits if session.is_callable(hit.tool)]
    known = [hit.tool for hit in reply.known if not _is_declared(session, hit.tool)]
    lacking = [tool for tool in known if not session.has_shown(tool)]
    chosen = [*fresh, *lacking] or known
    by_name = {tool.name: tool for tool in chosen}
    return [by_name[name] for name in session.record.entries if name in by_name]


def _is_declared(session: Session, tool: Tool) -> bool:
    """Tell whether every request carries a tool's definition."""
    entry = session.record.entries.get(tool.name)
    return entry is None or entry.pinned or tool.name in session.record.declared


def _note(reply: Reply) -> Tool:
    """Return what a search without a tool to deliver says, as a definition.

    An output of definitions has no room for text, and an empty one would be a dead end.
    """
    text = to_one_line(reply.text, NOTE_CHARS)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Tool(
        name=f"search_note_{digest}",
        description=f"No tool, only a note; do not call it. {text}",
        effect=Effect.READ,
    )
