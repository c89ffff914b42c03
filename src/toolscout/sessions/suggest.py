"""Tools that a user message asks for, loaded before the model searches.

The host's routing keywords come first; meaning follows where the settings allow it. Only tools
that the session may use are ever named (R102), and what is named is loaded (R104).
"""

from collections.abc import Callable, Mapping

from toolscout.errors import ModelError
from toolscout.names import to_one_line
from toolscout.query import Query
from toolscout.search.feedback import hash_query
from toolscout.search.hits import Confidence, Hit
from toolscout.search.text import split_words
from toolscout.sessions.pins import find_routed
from toolscout.sessions.replies import Reply
from toolscout.sessions.session_state import SessionState
from toolscout.sessions.texts import report_suggested
from toolscout.settings import Scope
from toolscout.tokens import count_definition_tokens
from toolscout.tools import Tool

MESSAGE_CHARS = 500
"""How much of a user message is read."""
SEARCHED = 20


def suggest_tools(state: SessionState, message: str) -> Reply:
    """Return a line for the conversation, empty if there is nothing to suggest."""
    unloaded = state.record.begin_turn(keep=state.settings.scope is Scope.SESSION)
    state.prepare()
    text = to_one_line(message, MESSAGE_CHARS)
    found = [*_find_by_keyword(state, text), *_find_by_meaning(state, text)]
    fresh = {tool.name: tool for tool in found if not state.is_callable(tool)}
    query = hash_query(text) if state.settings.hash_queries else text
    added = state.load(_select_fitting(state, fresh), query)
    state.record.suggest(added)
    news = state.take_news()
    line = report_suggested(added) if added else ""
    return Reply(
        text="\n".join(filter(None, (line, *news))),
        references=tuple(added),
        details={"code": "ok", "loaded": added, "unloaded": unloaded, "news": list(news)},
    )


def _find_by_keyword(state: SessionState, text: str) -> list[Tool]:
    def rank(tools: list[Tool]) -> list[Tool]:
        names = {tool.name for tool in tools}
        best = [hit.tool for hit in _search(state, text, lambda tool: tool.name in names)]
        return list({tool.name: tool for tool in (*best, *tools)}.values())

    if not state.settings.routes:
        return []
    return find_routed(text, state.list_visible(), state.settings, rank)


def _find_by_meaning(state: SessionState, text: str) -> list[Tool]:
    if not state.settings.suggest:
        return []
    suggested = set(state.record.suggested)
    hits = _search(state, text, state.policy.sees)
    sure = [hit.tool for hit in hits if hit.confidence is not Confidence.WEAK]
    return [tool for tool in sure if tool.name not in suggested][: state.settings.suggestions]


def _search(state: SessionState, text: str, allowed: Callable[[Tool], bool]) -> tuple[Hit, ...]:
    if not split_words(text):
        return ()
    try:
        # A user's message is words: what looks like an operator in it is none.
        query = Query(text=text, words=text)
        return state.engine.index.search(query, SEARCHED, allowed=allowed).best
    except ModelError:
        return ()


def _select_fitting(state: SessionState, tools: Mapping[str, Tool]) -> list[Tool]:
    """Return those that the budget has room for: what is named must not be evicted at once."""
    costs = [(name, count_definition_tokens(tool)) for name, tool in tools.items()]
    fitting = state.record.select_fitting(costs, state.settings.loaded_tokens)
    return [tools[name] for name in fitting]
