"""Tools that a user message asks for, loaded before the model searches.

Keywords that the host set come first; where the settings allow, meaning follows. Only tools that
the session may use are ever named (R102), and what is named is loaded (R104).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toolscout.errors import ModelError
from toolscout.names import to_one_line
from toolscout.query import Query
from toolscout.search.feedback import hash_query
from toolscout.search.hits import Confidence, Hit
from toolscout.search.index import Index
from toolscout.search.text import split_words
from toolscout.sessions.pins import routed
from toolscout.sessions.replies import Reply, some_names
from toolscout.sessions.session import Session
from toolscout.tokens import count_definition_tokens
from toolscout.tools import Tool

MESSAGE_CHARS = 500
"""Of a user message, so much is looked at."""
LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class Suggest:
    """Suggests tools to sessions of one scout."""

    index: Index

    def __call__(self, session: Session, message: str) -> Reply:
        """Return a line for the conversation, empty if there is nothing to suggest."""
        unloaded = session.end_turn_scope()
        session.refresh()
        session.prompt.decide()
        text = to_one_line(message, MESSAGE_CHARS)
        found = [*self._routed(session, text), *self._meant(session, text)]
        fresh = {tool.name: tool for tool in found if not session.is_callable(tool)}
        query = hash_query(text) if session.settings.hash_queries else text
        added = session.load(_fitting(session, fresh), query)
        session.record.suggest(added)
        news = session.take_news()
        helpful = f"Tools that may help, loaded: {some_names(added)}." if added else ""
        return Reply(
            text="\n".join(filter(None, (helpful, *news))),
            references=tuple(added),
            details={"code": "ok", "loaded": added, "unloaded": unloaded, "news": list(news)},
        )

    def _routed(self, session: Session, text: str) -> list[Tool]:
        def ranked(tools: list[Tool]) -> list[Tool]:
            names = {tool.name for tool in tools}
            best = [hit.tool for hit in self._hits(text, lambda tool: tool.name in names)]
            return list({tool.name: tool for tool in (*best, *tools)}.values())

        if not session.settings.routes:
            return []
        return routed(text, session.visible(), session.settings, ranked)

    def _meant(self, session: Session, text: str) -> list[Tool]:
        if not session.settings.suggest:
            return []
        told = set(session.record.suggested)
        hits = self._hits(text, session.policy.sees)
        sure = [hit.tool for hit in hits if hit.confidence is not Confidence.WEAK]
        return [tool for tool in sure if tool.name not in told][: session.settings.suggestions]

    def _hits(self, text: str, allowed: Callable[[Tool], bool]) -> tuple[Hit, ...]:
        if not split_words(text):
            return ()
        try:
            # A user's message is words: what looks like an operator in it is none.
            query = Query(text=text, words=text)
            return self.index.search(query, LOOKED_AT, allowed=allowed).best
        except ModelError:
            return ()


def _fitting(session: Session, tools: Mapping[str, Tool]) -> list[Tool]:
    """Return those that the budget has room for: what is named must not be evicted at once."""
    costs = [(name, count_definition_tokens(tool)) for name, tool in tools.items()]
    return [tools[name] for name in session.record.fitting(costs, session.settings.loaded_tokens)]
