"""`tool_describe`: whole definitions by name, unchanged from their servers (R41).

Loads exactly what was named. A definition that alone is too long for a reply is cut and kept
under a handle like any long result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from toolscout.calls.cut import cut
from toolscout.calls.results import Results
from toolscout.catalog import Catalog
from toolscout.errors import ModelError, ServerUnavailable
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.sessions.call import tool_named
from toolscout.sessions.replies import Reply, definition_text, limited
from toolscout.sessions.session import Session
from toolscout.settings import Mode
from toolscout.tokens import count_definition_tokens, count_tokens
from toolscout.tools import Tool

PROBLEM_CHARS = 400
LEFT_TOKENS = 80
TAIL_TOKENS = LEFT_TOKENS + 40
"""Room for what was left off and for the next step."""
NOTE_TOKENS = 60
"""Room for how to read on."""


@dataclass(slots=True)
class _Found:
    """What the names stand for."""

    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    problems: list[str] = field(default_factory=list[str])
    codes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Describe:
    """Describes tools for sessions of one scout."""

    catalog: Catalog
    results: Callable[[Session], Results]
    known: Callable[[Tool], str]
    """What past calls of a tool tell, as a sentence or nothing."""

    def __call__(self, session: Session, names: Sequence[str], notes: Sequence[str]) -> Reply:
        """Return the definitions, after loading their tools."""
        session.refresh()
        session.prompt.decide()
        found = self._find(session, names)
        tools = list(found.tools.values())
        asides = _asides([*notes, *found.problems, *session.take_news()], session, alone=not tools)
        texts, whole, left = self._texts(session, tools, asides)
        told = [tool for tool in tools if tool.name not in left]
        added = self._load(session, told, whole)
        again = f"Left off for length, ask for them again: {', '.join(left)}."
        rest = [limited(again, LEFT_TOKENS)] if left else []
        step = _NEXT[session.settings.mode] if told else _ABSENT
        code = "ok" if told else found.codes[0]
        details: Json = {
            "described": [tool.name for tool in told],
            "loaded": added,
            "left_off": left,
            "problems": found.problems,
            "max_tokens": session.settings.describe_tokens,
            "code": code,
        }
        return Reply(
            text="\n".join([*texts, *asides, *rest, step]),
            code=code,
            is_error=not told,
            details=details,
            references=tuple(added),
            described=tuple(tool.name for tool in whole),
        )

    def _load(self, session: Session, told: Sequence[Tool], whole: Sequence[Tool]) -> list[str]:
        # Those loaded before become the most recent first, so that the new ones evict others.
        for tool in told:
            session.record.touch(tool.name)
        session.tell(whole)
        return session.load(told)

    def _find(self, session: Session, names: Sequence[str]) -> _Found:
        found = _Found()
        for name in names:
            try:
                tool = tool_named(session, self.catalog, name)
            except (ModelError, ServerUnavailable) as error:
                problem = to_one_line(str(error).removeprefix("Not called: "), PROBLEM_CHARS)
                found.problems.append(problem[:1].upper() + problem[1:])
                found.codes.append(error.code)
            else:
                found.tools[tool.name] = tool
        return found

    def _texts(
        self, session: Session, tools: Sequence[Tool], asides: Sequence[str]
    ) -> tuple[list[str], list[Tool], list[str]]:
        """Return the definitions that fit, the tools that are whole among them, and the rest."""
        room = session.settings.describe_tokens - TAIL_TOKENS - count_tokens("\n".join(asides))
        may_load = self._loadable(session, tools)
        texts: list[str] = []
        whole: list[Tool] = []
        left: list[str] = []
        for tool in tools:
            text = "\n".join(filter(None, (definition_text(tool), self.known(tool))))
            cost = count_tokens(text) + 1
            if texts and (cost > room or tool.name not in may_load):
                left.append(tool.name)
            elif cost > room:
                texts.append(self._first_page(session, tool, text, room))
                room = 0
            else:
                texts.append(text)
                whole.append(tool)
                room -= cost
        return texts, whole, left

    def _loadable(self, session: Session, tools: Sequence[Tool]) -> set[str]:
        """Return the tools that can be loaded together: what is told stays callable (R50)."""
        pinned = {entry.name for entry in session.record.entries.values() if entry.pinned}
        costs = [(t.name, 0 if t.name in pinned else count_definition_tokens(t)) for t in tools]
        return set(session.record.fitting(costs, session.settings.loaded_tokens))

    def _first_page(self, session: Session, tool: Tool, text: str, room: int) -> str:
        """Return the beginning of a definition that is too long, and how to read on."""
        page = self.results(session).page(text)
        shown = f"{page.text}\n{page.note}"
        if count_tokens(shown) < room:
            return shown
        if not page.handle:  # a result may be longer than a description, so nothing was kept
            return limited(f"{tool.render_signature(optional=0)}\n{_TOO_LONG}", room - 1)
        end = cut(text, 0, room - NOTE_TOKENS)
        further = f'tool_call(name="{page.handle}", arguments={{"start": {end}}})'
        return f"{text[:end]}\nCharacters 0 to {end:,} of {len(text):,}. Read on with {further}."


def _asides(lines: Sequence[str], session: Session, *, alone: bool) -> list[str]:
    """Return what is said besides definitions, in a quarter of the reply unless it is all."""
    budget = session.settings.describe_tokens
    room = budget - TAIL_TOKENS if alone else budget // 4
    text = limited("\n".join(lines), room)
    return text.split("\n") if text else []


_TOO_LONG = "The definition itself is longer than a reply may be."
_ABSENT = "Next: tool_search for what the tool should do."
_NEXT: dict[Mode, str] = {
    Mode.BRIDGE: "Next: tool_call with one of these names and its arguments.",
    Mode.NATIVE: "Next: call one by its name; from your next step on it is among your tools.",
    Mode.REFERENCE: "Next: call one by its name.",
    Mode.DEFINITIONS: "Next: tool_call with one of these names and its arguments.",
}
