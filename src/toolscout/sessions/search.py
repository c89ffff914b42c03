"""`tool_search`: from the model's queries to a reply, and to loaded tools.

Asks the index, separates new hits from callable ones, decides which of them are sure enough to be
loaded or shown whole, and has `replies` write the text. The reply then takes the form of the
session's mode: text, references or definitions. `suggest_tools` does the same for a user message
before the model searches.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from toolscout.catalog import Status
from toolscout.errors import BrokenPolicy, ModelError
from toolscout.names import clean_text, list_some, to_one_line
from toolscout.query import Query, query_from_text
from toolscout.schemas import Json, list_signature_parameters
from toolscout.search.feedback import hash_query
from toolscout.search.hits import Confidence, Hit, Result
from toolscout.search.text import split_words
from toolscout.sessions import texts
from toolscout.sessions.metatools import SearchRequest
from toolscout.sessions.pins import find_routed
from toolscout.sessions.replies import (
    QUERY_CHARS,
    REMEMBERED_LINES,
    QueryAnswer,
    Reply,
    ReplyContext,
    SearchText,
    describe_drawback,
    render_search,
)
from toolscout.sessions.session_state import SessionState
from toolscout.settings import Mode, Scope
from toolscout.tokens import count_definition_tokens
from toolscout.tools import Effect, Tool

SURE = (Confidence.EXACT, Confidence.STRONG)
SHOWS_TEXT = (Mode.BRIDGE, Mode.NATIVE)
"""In other modes, definitions or references to them replace the text of a reply."""
SEARCHED = 20
"""Hits asked of the index beyond the loaded ones, so that past calls have some to raise."""
KNOWN_LIMIT = 40
GUESSES = 3
"""Weak hits that are shown if there are no others."""
SELECTED_WHOLE = 3
"""Selected tools whose definitions come along unasked."""
KIND_CHARS = 40
TITLE_CHARS = 200
DESCRIPTION_CHARS = 1_000
TOTALS = ("hits", "loaded", "hidden", "catalogued")
NOTE_CHARS = 1_000
"""Providers limit descriptions."""
MESSAGE_CHARS = 500
"""How much of a user message is read."""


def search_tools(state: SessionState, request: SearchRequest) -> Reply:
    """Return the reply to a search, after loading what it says is loaded."""
    state.prepare()
    if not state.sample().count:
        return _report_empty(state, request)
    unready = state.engine.catalog.unready.items()
    failed = frozenset([name for name, at in unready if at.status is Status.FAILED])
    answers = [_run_query(state, text, request, failed) for text in request.queries]
    loads = _choose_loads(state, answers)
    for answer in answers:
        answer.loads = loads
    fruitless = all(answer.is_fruitless for answer in answers)
    is_waiting = fruitless and bool(state.list_absent(Status.PENDING))
    if not is_waiting:  # a server that is still connecting may have what was asked for
        state.fruitless = state.fruitless + 1 if fruitless else 0
    context = _describe_context(state, request, answers, fruitless=fruitless, is_waiting=is_waiting)
    page = render_search(answers, context, request.max_tokens, detail=request.detail)
    added = _load_shown(state, page, loads, answers)
    state.note_heard(page.said)
    is_error = all(answer.error for answer in answers)
    known = tuple([hit for answer in answers for hit in answer.known])
    is_empty = not (known or any(answer.hits for answer in answers))
    return Reply(
        text=page.text,
        code=answers[0].code if is_error else "no_match" if is_empty else "ok",
        is_error=is_error,
        details=_build_details(state, request, page, answers, context, added),
        hits=page.hits,
        known=known,
        references=tuple(added),
        described=page.described,
    )


def _report_empty(state: SessionState, request: SearchRequest) -> Reply:
    absent = _describe_absent_servers(state)
    context = ReplyContext(
        **absent,
        notes=request.notes,
        news=state.take_news(),
        next_step=texts.report_empty_catalog(is_pending=bool(absent["pending"])),
    )
    page = render_search([], context, request.max_tokens)
    details = _build_details(state, request, page, [], context, [])
    return Reply(text=page.text, code="empty_catalog", details=details)


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


def _run_query(
    state: SessionState, text: str, request: SearchRequest, failed: frozenset[str]
) -> QueryAnswer:
    """Return what a query found, before it is known how much of it there is room to load."""
    # If several conversations share a session, no tool counts as known to all of them.
    known_count = 0 if state.settings.shared else len(state.record.entries)
    room = max(SEARCHED, request.limit) + min(known_count, KNOWN_LIMIT)
    allowed = None if state.sees_all else state.sees
    try:
        query = query_from_text(text)
        index = state.engine.index
        feedback = state.engine.usage.feedback
        if feedback.is_empty:
            result = index.search(query, room, allowed=allowed)
        else:
            result = feedback.search(index, query, room, allowed=allowed, principal=state.principal)
    except ModelError as error:
        asked = clean_text(text, QUERY_CHARS)
        return QueryAnswer(query=asked, error=str(error), code=error.code)
    fresh, known = _separate_hits(state, result, request.limit)
    state.note_found(fresh)
    query = result.query  # as it was read: the name of a server is a filter
    is_list = not (query.words or query.required or query.select)
    return QueryAnswer(
        query=query.text,
        parsed=query,
        hits=fresh,
        known=known,
        winners=_choose_whole(state, query, fresh, known, request.detail),
        missing=result.missing,
        corrected=result.corrected,
        further=max(0, result.total - len(fresh) - len(known)) if is_list else 0,
        discovers=not query.load,
        failed=failed,
        declared=frozenset(h.tool.name for h in known if state.is_declared(h.tool.name)),
    )


def _separate_hits(
    state: SessionState, result: Result, limit: int
) -> tuple[tuple[Hit, ...], tuple[Hit, ...]]:
    """Return the new hits that are worth showing, and the sure ones that are callable already."""
    selected = bool(result.query.select)
    fresh: list[Hit] = []
    known: list[Hit] = []
    if selected or state.knows_tools:
        room = len(result) if selected else limit
        for hit in result.best:
            if state.is_known(hit.tool):
                # R43: loaded tools use no slots; weak ones would only be noise.
                if hit.confidence is not Confidence.WEAK:
                    known.append(hit)
            elif len(fresh) < room:
                fresh.append(hit)
    else:
        # Hits are made when they are read: where none can be known, no more than are shown.
        fresh += result.found[: min(result.worth, limit)]
    if all(hit.confidence is Confidence.WEAK for hit in fresh):
        # R31: guesses are shown only when nothing better exists, and few of them.
        fresh = [] if known else fresh[:GUESSES]
    return tuple(fresh), tuple(known)


# What to load and to show whole.


def _choose_loads(state: SessionState, answers: Sequence[QueryAnswer]) -> frozenset[str]:
    """Return the tools that this search may load, as far as the budget goes.

    What it reports as loaded already counts first, so that nothing new evicts it (R50).
    """
    known = {hit.tool.name for answer in answers for hit in answer.known}
    loaded = state.record.loaded if known else ()
    costs = {entry.name: entry.tokens for entry in loaded if entry.name in known}
    for answer in answers:
        for hit in () if answer.discovers else answer.hits:
            if hit.confidence is not Confidence.WEAK:
                costs[hit.tool.name] = count_definition_tokens(hit.tool)
    fitting = state.record.select_fitting(list(costs.items()), state.settings.loaded_tokens)
    return frozenset(fitting) - known


def _load_shown(
    state: SessionState, page: SearchText, loads: frozenset[str], answers: Sequence[QueryAnswer]
) -> list[str]:
    """Load and note what a reply shows; return the tools that are new."""
    shown = {hit.tool.name: hit.tool for hit in page.hits if hit.tool.name in loads}
    if shown:
        for answer in answers:
            for hit in answer.known:
                state.record.touch(hit.tool.name)
    added: list[str] = []
    for answer in reversed(answers):  # the first query's tools are the most recent
        mine = [shown.pop(h.tool.name) for h in answer.hits if h.tool.name in shown]
        if mine:
            added = state.load(mine, _to_stored_query(state, answer.query)) + added
    names = {hit.tool.name for hit in page.hits} - loads
    for answer in answers:
        if answer.discovers:  # it shows tools without making them callable
            continue
        if page.described:
            state.note_shown([tool for tool in answer.winners if tool.name in page.described])
        weak = [hit.tool for hit in answer.hits if hit.tool.name in names]
        if weak:
            state.record.offer(weak, _to_stored_query(state, answer.query))
    return added


def _to_stored_query(state: SessionState, query: str) -> str:
    return hash_query(query) if state.settings.hash_queries else query


def _choose_whole(
    state: SessionState, query: Query, fresh: tuple[Hit, ...], known: tuple[Hit, ...], detail: str
) -> tuple[Tool, ...]:
    """Return the tools whose definitions go along, unless the conversation has them already."""
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
    # A tool that every request declares is called directly, and its definition is there.
    own = {tool.name for tool in chosen if state.is_known(tool) and state.is_declared(tool.name)}
    return tuple(tool for tool in chosen if not (state.has_shown(tool) or tool.name in own))


def _find_clear_winner(state: SessionState, hits: Sequence[Hit]) -> list[Tool]:
    best = max(hits, key=lambda h: (h.confidence is Confidence.EXACT, h.score), default=None)
    if best is None or best.confidence not in SURE:
        return []
    fits = count_definition_tokens(best.tool) <= state.settings.schema_tokens
    return [best.tool] if fits else []


# What the reply says.


def _describe_context(
    state: SessionState,
    request: SearchRequest,
    answers: Sequence[QueryAnswer],
    *,
    fruitless: bool,
    is_waiting: bool,
) -> ReplyContext:
    # If all that the queries name is here, no absent server could have more.
    is_complete = all(
        answer.parsed is not None
        and answer.parsed.select
        and (answer.hits or answer.known)
        and not answer.missing
        for answer in answers
    )
    absent: Json = {} if is_complete else _describe_absent_servers(state)
    next_step = _choose_next_step(state, answers)
    if is_waiting and state.hides_tools:
        next_step = texts.SEARCH_LATER
    elif fruitless and state.fruitless >= state.settings.fruitless:
        next_step = texts.GIVE_UP_PARTLY if state.list_absent(Status.FAILED) else texts.GIVE_UP
    servers = state.sample().count_by_server() if fruitless else Counter[str]()
    named = {server or texts.OWN_TOOLS: count for server, count in servers.items()}
    has_text = state.settings.mode in SHOWS_TEXT
    best = [answer.hits[0] for answer in answers if answer.hits and has_text]
    return ReplyContext(
        **absent,
        notes=request.notes,
        news=state.take_news(),
        servers=tuple(sorted(named.items(), key=lambda item: (-item[1], item[0]))),
        said=state.find_unheard(h.tool for h in best if h.confidence is not Confidence.WEAK),
        next_step=next_step,
    )


def _describe_absent_servers(state: SessionState) -> Json:
    """Return, for a `ReplyContext`, the servers that are connecting or failed, and why (R45).

    The text names them only if the conversation has not just read the same.
    """
    unready = state.list_unready().items()
    pending = tuple((name, at.reason) for name, at in unready if at.status is Status.PENDING)
    failed = tuple((name, at.reason) for name, at in unready if at.status is Status.FAILED)
    return {
        "pending": pending,
        "failed": failed,
        "tells_pending": state.tell("pending", pending),
        "tells_failed": state.tell("failed", failed),
    }


def _choose_next_step(state: SessionState, answers: Sequence[QueryAnswer]) -> str:
    """Return the next call that the session will accept (R49, R50)."""
    live = [(a, hit) for a in answers for hit in a.hits if hit.tool.server not in a.failed]
    known = [(a, hit) for a in answers for hit in a.known if hit.tool.server not in a.failed]
    own = [hit for answer, hit in known if hit.tool.name in answer.declared]
    loads = [hit for answer, hit in live if hit.tool.name in answer.loads]
    if not state.hides_tools:
        return texts.NEXT_BY_OWN_NAME if live or known else texts.NOTHING_HIDDEN
    if loads or len(own) < len(known):
        is_marked = any(describe_drawback(hit, answer) for answer, hit in live)
        mode = state.settings.mode
        rest = texts.DESCRIBE_NOT_LOADED if is_marked else ""
        rest += texts.CALL_OWN_DIRECTLY if own and mode is Mode.BRIDGE else ""
        return texts.NEXT_AFTER_SEARCH[mode] + rest
    if own:
        return texts.NEXT_BY_OWN_NAME
    return texts.SEARCH_OR_DESCRIBE if live else texts.SEARCH_AGAIN


# The same for programs, as JSON (R42).


def _build_details(
    state: SessionState,
    request: SearchRequest,
    page: SearchText,
    answers: Sequence[QueryAnswer],
    context: ReplyContext,
    loaded: list[str],
) -> Json:
    shown = {hit.tool.name for hit in page.hits}
    forms = {_name_form(answer.parsed) for answer in answers}
    return {
        "queries": [_answer_to_json(state, answer, shown) for answer in answers],
        "loaded": loaded,
        "described": list(page.described),
        "pending": [server for server, _ in context.pending],
        "failed": [{"server": server, "reason": reason} for server, reason in context.failed],
        "instructions": [{"server": s, "text": text} for s, text in page.said.items()],
        "news": list(context.news),
        "notes": list(request.notes),
        "limit": request.limit,
        "max_tokens": request.max_tokens,
        "mode": state.settings.mode.value,
        "form": "mixed" if len(forms) > 1 else "".join(forms),
        "totals": _count_totals(state, len(page.hits)),
    }


def _answer_to_json(state: SessionState, answer: QueryAnswer, shown: set[str]) -> Json:
    return {
        "query": answer.query,
        "code": answer.code,
        "error": answer.error,
        "hits": [
            {
                "name": hit.tool.name,
                "server": hit.tool.server,
                **_describe_tool(hit.tool),
                "score": hit.score,
                "confidence": hit.confidence.value,
                "loaded": state.is_callable(hit.tool),
                "available": hit.tool.server not in answer.failed,
            }
            for hit in answer.hits
            if hit.tool.name in shown
        ],
        "left_off": [hit.tool.name for hit in answer.hits if hit.tool.name not in shown],
        "already_loaded": [hit.tool.name for hit in answer.known],
        "missing": [{"name": m.name, "near": list(m.near)} for m in answer.missing],
        "corrected": dict(answer.corrected),
        "further": answer.further,
    }


@lru_cache(maxsize=REMEMBERED_LINES)
def _describe_tool(tool: Tool) -> Json:
    return {
        "kind": to_one_line(tool.kind, KIND_CHARS),
        "title": to_one_line(tool.title, TITLE_CHARS),
        "description": to_one_line(tool.summary or tool.description, DESCRIPTION_CHARS),
        "parameters": list_signature_parameters(tool.input_schema),
    }


def add_refused_queries(state: SessionState, reply: Reply, asked: Sequence[str]) -> Reply:
    """Return a refused search with what the details of every search have."""
    if "queries" in reply.details:
        return reply
    cleaned = [clean_text(text, QUERY_CHARS) for text in asked]
    answers = [QueryAnswer(query=text, error=reply.text, code=reply.code) for text in cleaned]
    try:
        totals = _count_totals(state, 0)
    except BrokenPolicy:
        totals = dict.fromkeys(TOTALS, 0)
    queries = [_answer_to_json(state, answer, set()) for answer in answers]
    return replace(reply, details=reply.details | {"queries": queries, "totals": totals})


def _count_totals(state: SessionState, hits: int) -> Json:
    catalogued = state.sample().count
    hidden = max(0, catalogued - len(state.record.entries))
    counts = (hits, len(state.record.loaded), hidden, catalogued)
    return dict(zip(TOTALS, counts, strict=True))


def _name_form(query: Query | None) -> str:
    """Return which form a query has; None is one that could not be read."""
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
    description = texts.NOTE_TOOL.format(note=text)
    return Tool(name=f"search_note_{digest}", description=description, effect=Effect.READ)


# What a user message asks for.


def suggest_tools(state: SessionState, message: str) -> Reply:
    """Load what a user message asks for; return a line about it, or an empty one.

    The host's routing keywords come first; meaning follows where the settings allow it. Only tools
    that the session may use are ever named (R102), and what is named is loaded (R104).
    """
    unloaded = state.record.begin_turn(keep=state.settings.scope is Scope.SESSION)
    state.prepare()
    text = to_one_line(message, MESSAGE_CHARS)
    found = [*_find_by_keyword(state, text), *_find_by_meaning(state, text)]
    fresh = {tool.name: tool for tool in found if not state.is_callable(tool)}
    costs = [(name, count_definition_tokens(tool)) for name, tool in fresh.items()]
    # What the reply names must not be evicted at once.
    fitting = state.record.select_fitting(costs, state.settings.loaded_tokens)
    added = state.load([fresh[name] for name in fitting], _to_stored_query(state, text))
    state.record.suggest(added)
    news = state.take_news()
    line = texts.SUGGESTED.format(names=list_some(added)) if added else ""
    return Reply(
        text="\n".join(filter(None, (line, *news))),
        references=tuple(added),
        details={"code": "ok", "loaded": added, "unloaded": unloaded, "news": list(news)},
    )


def _find_by_keyword(state: SessionState, text: str) -> list[Tool]:
    def rank(tools: list[Tool]) -> list[Tool]:
        names = {tool.name for tool in tools}
        best = [hit.tool for hit in _search_words(state, text, lambda tool: tool.name in names)]
        return list({tool.name: tool for tool in (*best, *tools)}.values())

    if not state.settings.routes:
        return []
    return find_routed(text, state.list_possible(state.settings.routes), state.settings, rank)


def _find_by_meaning(state: SessionState, text: str) -> list[Tool]:
    if not state.settings.suggest:
        return []
    suggested = set(state.record.suggested)
    hits = _search_words(state, text, state.sees)
    sure = [hit.tool for hit in hits if hit.confidence is not Confidence.WEAK]
    return [tool for tool in sure if tool.name not in suggested][: state.settings.suggestions]


def _search_words(
    state: SessionState, text: str, allowed: Callable[[Tool], bool]
) -> tuple[Hit, ...]:
    if not split_words(text):
        return ()
    try:
        # A user's message is words: what looks like an operator in it is none.
        query = Query(text=text, words=text)
        return state.engine.index.search(query, SEARCHED, allowed=allowed).best
    except ModelError:
        return ()
