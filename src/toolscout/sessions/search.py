"""`tool_search`: from the model's queries to a reply, and to loaded tools.

Asks the index, separates new hits from callable ones, decides which of them are sure enough to be
loaded or shown whole, and has `replies` write the text. The reply then takes the form of the
session's mode: text, references or definitions; the shape on the wire is the dialect's.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from toolscout.catalog import Status
from toolscout.errors import ModelError
from toolscout.names import clean_text, to_one_line
from toolscout.query import Query, query_from_text
from toolscout.schemas import Json
from toolscout.search.feedback import hash_query
from toolscout.search.hits import Confidence, Hit, Result
from toolscout.sessions.metatools import SearchRequest
from toolscout.sessions.replies import (
    QUERY_CHARS,
    QueryAnswer,
    Reply,
    ReplyContext,
    SearchText,
    describe_drawback,
    describe_note_tool,
    render_search,
)
from toolscout.sessions.session_state import SessionState
from toolscout.sessions.texts import (
    DESCRIBE_NOT_LOADED,
    GIVE_UP,
    NEXT_AFTER_SEARCH,
    SEARCH_AGAIN,
    SEARCH_OR_DESCRIBE,
    report_empty_catalog,
)
from toolscout.settings import Mode
from toolscout.tokens import count_definition_tokens
from toolscout.tools import Effect, Tool

SURE = (Confidence.EXACT, Confidence.STRONG)
SEARCHED = 20
"""Hits asked of the index beyond the loaded ones, so that past calls have some to raise."""
KNOWN_LIMIT = 40
GUESSES = 3
"""Weak hits that are shown if there are no others."""
SELECTED_WHOLE = 3
"""Selected tools whose definitions come along unasked."""
NOTE_CHARS = 1_000
"""Providers limit descriptions."""

_AnsweredQueries = Sequence[tuple[QueryAnswer, Query | None]]
"""Answers, each with its query, or None if the query could not be read."""


class _QueryHits(NamedTuple):
    """What one query found, before it is known how much of it has room to be loaded."""

    query: Query
    result: Result
    fresh: tuple[Hit, ...]
    known: tuple[Hit, ...]


def search_tools(state: SessionState, request: SearchRequest) -> Reply:
    """Return the reply to a search, after loading what it says is loaded."""
    state.prepare()
    if not state.list_visible():
        return _report_empty(state, request)
    searched = [_run_query(state, text, request.limit) for text in request.queries]
    loads = _choose_loads(state, [one for one in searched if isinstance(one, _QueryHits)])
    failed = _find_failed_servers(state)
    answered = [_answer_query(state, one, request, loads, failed) for one in searched]
    answers = [answer for answer, _ in answered]
    fruitless = all(answer.is_fruitless for answer in answers)
    state.fruitless = state.fruitless + 1 if fruitless else 0
    context = _describe_context(state, request, answered, fruitless=fruitless)
    page = render_search(answers, context, request.max_tokens, detail=request.detail)
    added = _load_shown(state, page, loads, answered)
    details = _build_details(state, request, page, answers, context)
    details["loaded"] = added
    details["form"] = _name_form(query for _, query in answered)
    return _build_reply(page, answers, details, added)


def deliver(state: SessionState, reply: Reply, *, is_search: bool) -> Reply:
    """Return a reply in the form that the session's mode asks for."""
    match state.settings.mode:
        case Mode.REFERENCE:
            return replace(reply, by_reference=True)
        case Mode.DEFINITIONS if is_search:
            tools = _choose_definitions(state, reply)
            note_delivered(state, tools)
            return replace(reply, definitions=(*tools,) or (_build_note(reply),))
        case _:
            return reply


def note_delivered(state: SessionState, tools: Iterable[Tool]) -> None:
    """Note that the conversation's items hold the definitions of these tools."""
    if state.settings.mode is Mode.DEFINITIONS:
        for tool in tools:
            state.record.show(tool)


# Asking the index.


def _run_query(state: SessionState, text: str, limit: int) -> _QueryHits | QueryAnswer:
    """Return what a query found, or the answer to one that cannot be read."""
    try:
        query = query_from_text(text)
        result = _ask_index(state, query, limit)
    except ModelError as error:
        asked = clean_text(text, QUERY_CHARS)
        return QueryAnswer(query=asked, error=str(error), code=error.code)
    return _QueryHits(query, result, *_separate_hits(state, result, limit))


def _ask_index(state: SessionState, query: Query, limit: int) -> Result:
    # Where several conversations share a session nothing counts as known, so none steps aside.
    known = 0 if state.settings.shared else len(state.record.entries)
    room = max(SEARCHED, limit) + min(known, KNOWN_LIMIT)
    allowed = None if state.policy.is_open else state.policy.sees
    result = state.engine.index.search(query, room, allowed=allowed)
    feedback = state.engine.usage.feedback
    return result if feedback.is_empty else feedback.apply(result, room)


def _separate_hits(
    state: SessionState, result: Result, limit: int
) -> tuple[tuple[Hit, ...], tuple[Hit, ...]]:
    """Return the new hits that are worth showing, and the sure ones that are callable already."""
    selected = bool(result.query.select)
    if selected or state.can_know_tools:
        fresh, known = _separate_known(state, result.best, len(result) if selected else limit)
    else:
        # Hits are made when they are read: where none can be known, no more than are shown.
        fresh = list(result.found[: min(result.worth, limit)])
        known = list[Hit]()
    if all(hit.confidence is Confidence.WEAK for hit in fresh):
        # R31: guesses are shown only when nothing better exists, and few of them.
        fresh = [] if known else fresh[:GUESSES]
    return tuple(fresh), tuple(known)


def _separate_known(
    state: SessionState, hits: Sequence[Hit], limit: int
) -> tuple[list[Hit], list[Hit]]:
    """Return the first hits that are new, and all sure ones that are known."""
    fresh: list[Hit] = []
    known: list[Hit] = []
    for hit in hits:
        if state.is_known(hit.tool):
            # R43: loaded tools use no slots; weak ones would only be noise.
            if hit.confidence is not Confidence.WEAK:
                known.append(hit)
        elif len(fresh) < limit:
            fresh.append(hit)
    return fresh, known


# What to load and to show whole.


def _choose_loads(state: SessionState, searched: Sequence[_QueryHits]) -> frozenset[str]:
    """Return the tools that this search may load, as far as the budget goes.

    What it reports as loaded already counts first, so that nothing new evicts it (R50).
    """
    known = {hit.tool.name for one in searched for hit in one.known}
    loaded = state.record.loaded if known else ()
    costs = {entry.name: entry.tokens for entry in loaded if entry.name in known}
    for one in searched:
        for hit in one.fresh if one.query.load else ():
            if hit.confidence is not Confidence.WEAK:
                costs[hit.tool.name] = count_definition_tokens(hit.tool)
    fitting = state.record.select_fitting(list(costs.items()), state.settings.loaded_tokens)
    return frozenset(fitting) - known


def _load_shown(
    state: SessionState,
    page: SearchText,
    loads: frozenset[str],
    answered: _AnsweredQueries,
) -> list[str]:
    shown = {hit.tool.name: hit.tool for hit in page.hits if hit.tool.name in loads}
    if shown:
        for answer, _ in answered:
            for hit in answer.known:
                state.record.touch(hit.tool.name)
    added: list[str] = []
    for answer, query in reversed(answered):  # the first query's tools are the most recent
        mine = [shown.pop(h.tool.name) for h in answer.hits if h.tool.name in shown]
        if query is not None and mine:
            added = state.load(mine, _format_query(state, answer)) + added
    for answer, _ in answered:
        _note_shown(state, page, answer)
    return added


def _note_shown(state: SessionState, page: SearchText, answer: QueryAnswer) -> None:
    """Note what the conversation now has; what `discover:` shows changes nothing."""
    if answer.discovers:
        return
    if page.described:
        state.note_shown([tool for tool in answer.winners if tool.name in page.described])
    shown = {hit.tool.name for hit in page.hits}
    weak = [
        hit.tool
        for hit in answer.hits
        if hit.tool.name in shown and hit.tool.name not in answer.loads
    ]
    if weak:
        state.record.offer(weak, _format_query(state, answer))


def _format_query(state: SessionState, answer: QueryAnswer) -> str:
    return hash_query(answer.query) if state.settings.hash_queries else answer.query


def _choose_whole(state: SessionState, searched: _QueryHits, detail: str) -> tuple[Tool, ...]:
    """Return the tools whose definitions go along, unless the conversation has them already."""
    query, _, fresh, known = searched
    if detail == "names":
        return ()
    if detail == "schemas":
        chosen = [hit.tool for hit in (*fresh, *known) if hit.confidence is not Confidence.WEAK]
    elif query.select:
        chosen = [hit.tool for hit in fresh] if len(fresh) <= SELECTED_WHOLE else []
    elif query.words or query.required:
        chosen = _find_clear_winner(state, [*fresh, *known])
    else:
        chosen = []
    return tuple(tool for tool in chosen if not state.has_shown(tool))


def _find_clear_winner(state: SessionState, hits: Sequence[Hit]) -> list[Tool]:
    best = max(hits, key=_rate_sureness, default=None)
    if best is None or best.confidence not in SURE:
        return []
    fits = count_definition_tokens(best.tool) <= state.settings.schema_tokens
    return [best.tool] if fits else []


def _rate_sureness(hit: Hit) -> tuple[bool, float]:
    return hit.confidence is Confidence.EXACT, hit.score


# What the reply says.


def _answer_query(
    state: SessionState,
    searched: _QueryHits | QueryAnswer,
    request: SearchRequest,
    loads: frozenset[str],
    failed: frozenset[str],
) -> tuple[QueryAnswer, Query | None]:
    if isinstance(searched, QueryAnswer):
        return searched, None
    query, result, fresh, known = searched
    is_list = not (query.words or query.required or query.select)
    answer = QueryAnswer(
        query=query.text,
        hits=fresh,
        known=known,
        winners=_choose_whole(state, searched, request.detail),
        missing=result.missing,
        corrected=result.corrected,
        further=max(0, result.total - len(fresh) - len(known)) if is_list else 0,
        loads=loads,
        discovers=not query.load,
        failed=failed,
    )
    return answer, query


def _describe_context(
    state: SessionState,
    request: SearchRequest,
    answered: _AnsweredQueries,
    *,
    fruitless: bool,
) -> ReplyContext:
    is_complete = all(map(_is_complete, answered))
    pending, failed = ((), ()) if is_complete else _list_absent_servers(state)
    gives_up = fruitless and state.fruitless >= state.settings.fruitless
    return ReplyContext(
        notes=request.notes,
        news=state.take_news(),
        pending=pending,
        failed=failed,
        servers=_count_tools_by_server(state) if fruitless else (),
        next_step=GIVE_UP if gives_up else _choose_next_step(state, [a for a, _ in answered]),
    )


def _report_empty(state: SessionState, request: SearchRequest) -> Reply:
    pending, failed = _list_absent_servers(state)
    context = ReplyContext(
        notes=request.notes,
        news=state.take_news(),
        pending=pending,
        failed=failed,
        next_step=report_empty_catalog(is_pending=bool(pending)),
    )
    page = render_search([], context, request.max_tokens)
    details = _build_details(state, request, page, [], context)
    return Reply(text=page.text, code="empty_catalog", details=details)


def _find_failed_servers(state: SessionState) -> frozenset[str]:
    unready = state.engine.catalog.unready
    if not unready:
        return frozenset()
    return frozenset(name for name, at in unready.items() if at.status is Status.FAILED)


def _list_absent_servers(
    state: SessionState,
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the servers that are still connecting, and those that failed and why (R45)."""
    unready = state.list_unready().items()
    if not unready:
        return (), ()
    pending = tuple(name for name, at in unready if at.status is Status.PENDING)
    failed = tuple((name, at.reason) for name, at in unready if at.status is Status.FAILED)
    return pending, failed


def _is_complete(answered: tuple[QueryAnswer, Query | None]) -> bool:
    """Tell whether no further server could have more for a query: all that it names is here."""
    answer, query = answered
    is_named = query is not None and bool(query.select)
    return is_named and bool(answer.hits or answer.known) and not answer.missing


def _count_tools_by_server(state: SessionState) -> tuple[tuple[str, int], ...]:
    counts = Counter(tool.server for tool in state.list_visible())
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _choose_next_step(state: SessionState, answers: Sequence[QueryAnswer]) -> str:
    """Return the next call that the session will accept (R49, R50)."""
    live = [(a, hit) for a in answers for hit in a.hits if hit.tool.server not in a.failed]
    known = any(hit.tool.server not in a.failed for a in answers for hit in a.known)
    if known or any(hit.tool.name in answer.loads for answer, hit in live):
        is_marked = any(describe_drawback(hit, answer) for answer, hit in live)
        return NEXT_AFTER_SEARCH[state.settings.mode] + (DESCRIBE_NOT_LOADED if is_marked else "")
    return SEARCH_OR_DESCRIBE if live else SEARCH_AGAIN


def _build_reply(
    page: SearchText, answers: Sequence[QueryAnswer], details: Json, added: list[str]
) -> Reply:
    is_error = all(answer.error for answer in answers)
    known = tuple([hit for answer in answers for hit in answer.known])
    is_empty = not (known or any(answer.hits for answer in answers))
    return Reply(
        text=page.text,
        code=answers[0].code if is_error else "no_match" if is_empty else "ok",
        is_error=is_error,
        details=details,
        hits=page.hits,
        known=known,
        references=tuple(added),
        described=page.described,
    )


# The same for programs, as JSON (R42).


def _build_details(
    state: SessionState,
    request: SearchRequest,
    page: SearchText,
    answers: Sequence[QueryAnswer],
    context: ReplyContext,
) -> Json:
    """Return the details of a search that loaded nothing."""
    shown = {hit.tool.name for hit in page.hits}
    return {
        "queries": [_answer_to_json(state, answer, shown) for answer in answers],
        "loaded": list[str](),
        "described": list(page.described),
        "pending": list(context.pending),
        "failed": [{"server": server, "reason": reason} for server, reason in context.failed],
        "news": list(context.news),
        "notes": list(request.notes),
        "limit": request.limit,
        "max_tokens": request.max_tokens,
        "mode": state.settings.mode.value,
        "form": "",
        "totals": _count_totals(state, page),
    }


def _answer_to_json(state: SessionState, answer: QueryAnswer, shown: set[str]) -> Json:
    return {
        "query": answer.query,
        "code": answer.code,
        "error": answer.error,
        "hits": [_json_from_hit(state, h, answer) for h in answer.hits if h.tool.name in shown],
        "left_off": [hit.tool.name for hit in answer.hits if hit.tool.name not in shown],
        "already_loaded": [hit.tool.name for hit in answer.known],
        "missing": [{"name": m.name, "near": list(m.near)} for m in answer.missing],
        "corrected": dict(answer.corrected),
        "further": answer.further,
    }


def _json_from_hit(state: SessionState, hit: Hit, answer: QueryAnswer) -> Json:
    return {
        "name": hit.tool.name,
        "server": hit.tool.server,
        "score": hit.score,
        "confidence": hit.confidence.value,
        "loaded": state.is_callable(hit.tool),
        "available": hit.tool.server not in answer.failed,
    }


def _count_totals(state: SessionState, page: SearchText) -> Json:
    catalogued = len(state.list_visible())
    return {
        "hits": len(page.hits),
        "loaded": len(state.record.loaded),
        "hidden": max(0, catalogued - len(state.record.entries)),
        "catalogued": catalogued,
    }


def _name_form(queries: Iterable[Query | None]) -> str:
    """Return which form all queries have; None stands for one that could not be read."""
    forms = {_name_query_form(query) for query in queries}
    return forms.pop() if len(forms) == 1 else "mixed"


def _name_query_form(query: Query | None) -> str:
    if query is None:
        return "invalid"
    if query.select:
        return "select"
    if query.prefix:
        return "prefix"
    if query.pattern:
        return "pattern"
    return "words" if query.words or query.required else "filter"


# Definitions that answer a search.


def _choose_definitions(state: SessionState, reply: Reply) -> list[Tool]:
    """Return what a search made callable, and of the rest what the items lack.

    A tool that was loaded otherwise, or whose definition was dropped from the conversation, is
    delivered again; so is one that is all that was found. They stand in the order of loading, so
    that a session rebuilt from the conversation has the same.
    """
    fresh = [hit.tool for hit in reply.hits if state.is_callable(hit.tool)]
    known = [hit.tool for hit in reply.known if not state.is_declared(hit.tool.name)]
    lacking = [tool for tool in known if not state.has_shown(tool)]
    chosen = [*fresh, *lacking] or known
    by_name = {tool.name: tool for tool in chosen}
    return [by_name[name] for name in state.record.entries if name in by_name]


def _build_note(reply: Reply) -> Tool:
    """Return what a search without a tool to deliver says, as a definition.

    An output of definitions has no room for text, and an empty one would be a dead end.
    """
    text = to_one_line(reply.text, NOTE_CHARS)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Tool(
        name=f"search_note_{digest}",
        description=describe_note_tool(text),
        effect=Effect.READ,
    )
