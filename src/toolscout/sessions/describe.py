"""`tool_describe`: whole definitions by name, unchanged from their servers (R41).

Loads exactly what was named. A definition that alone is too long for a reply is cut and kept
under a handle like any long result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from toolscout.calls.cut import cut
from toolscout.errors import ModelError, ServerUnavailable
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.sessions.call import find_tool
from toolscout.sessions.replies import Reply, limit_text, render_definition
from toolscout.sessions.session_state import SessionState
from toolscout.sessions.texts import (
    NEXT_AFTER_DESCRIPTION,
    SEARCH_BY_PURPOSE,
    TOO_LONG,
    point_to_rest,
    report_left_out,
)
from toolscout.tokens import count_definition_tokens, count_tokens
from toolscout.tools import Tool

PROBLEM_CHARS = 400
LEFT_TOKENS = 80
TAIL_TOKENS = LEFT_TOKENS + 40
"""Room for what was left out and for the next step."""
NOTE_TOKENS = 60
"""Room for how to read on."""


@dataclass(slots=True)
class _Named:
    """What the names stand for."""

    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    problems: list[str] = field(default_factory=list[str])
    codes: list[str] = field(default_factory=list[str])


def describe_tools(state: SessionState, names: Sequence[str], notes: Sequence[str]) -> Reply:
    """Return the definitions of tools, after loading them."""
    state.prepare()
    named = _find_named(state, names)
    tools = list(named.tools.values())
    lines = [*notes, *named.problems, *state.take_news()]
    asides = _fit_asides(state, lines, alone=not tools)
    texts, whole, left = _render_definitions(state, tools, asides)
    described = [tool for tool in tools if tool.name not in left]
    added = _load_described(state, described, whole)
    rest = [limit_text(report_left_out(left), LEFT_TOKENS)] if left else []
    step = NEXT_AFTER_DESCRIPTION[state.settings.mode] if described else SEARCH_BY_PURPOSE
    code = "ok" if described else named.codes[0]
    details: Json = {
        "described": [tool.name for tool in described],
        "loaded": added,
        "left_off": left,
        "problems": named.problems,
        "max_tokens": state.settings.describe_tokens,
        "code": code,
    }
    return Reply(
        text="\n".join([*texts, *asides, *rest, step]),
        code=code,
        is_error=not described,
        details=details,
        references=tuple(added),
        described=tuple(tool.name for tool in whole),
    )


def _load_described(
    state: SessionState, described: Sequence[Tool], whole: Sequence[Tool]
) -> list[str]:
    # Those loaded before become the most recent first, so that the new ones evict others.
    for tool in described:
        state.record.touch(tool.name)
    state.note_shown(whole)
    return state.load(described)


def _find_named(state: SessionState, names: Sequence[str]) -> _Named:
    named = _Named()
    for name in names:
        try:
            tool = find_tool(state, name)
        except (ModelError, ServerUnavailable) as error:
            problem = to_one_line(str(error).removeprefix("Not called: "), PROBLEM_CHARS)
            named.problems.append(problem[:1].upper() + problem[1:])
            named.codes.append(error.code)
        else:
            named.tools[tool.name] = tool
    return named


def _render_definitions(
    state: SessionState, tools: Sequence[Tool], asides: Sequence[str]
) -> tuple[list[str], list[Tool], list[str]]:
    """Return the definitions that fit, the tools that are whole among them, and the rest."""
    room = state.settings.describe_tokens - TAIL_TOKENS - count_tokens("\n".join(asides))
    loadable = _select_loadable(state, tools)
    texts: list[str] = []
    whole: list[Tool] = []
    left: list[str] = []
    for tool in tools:
        failures = state.engine.usage.describe_failures(tool)
        text = "\n".join(filter(None, (render_definition(tool), failures)))
        cost = count_tokens(text) + 1
        if texts and (cost > room or tool.name not in loadable):
            left.append(tool.name)
        elif cost > room:
            texts.append(_render_first_page(state, tool, text, room))
            room = 0
        else:
            texts.append(text)
            whole.append(tool)
            room -= cost
    return texts, whole, left


def _select_loadable(state: SessionState, tools: Sequence[Tool]) -> set[str]:
    """Return the tools that can be loaded together: what is described stays callable (R50)."""
    pinned = {entry.name for entry in state.record.entries.values() if entry.pinned}
    costs = [(t.name, 0 if t.name in pinned else count_definition_tokens(t)) for t in tools]
    return set(state.record.select_fitting(costs, state.settings.loaded_tokens))


def _render_first_page(state: SessionState, tool: Tool, text: str, room: int) -> str:
    """Return the beginning of a definition that is too long, and how to read on."""
    page = state.engine.open_results(state.record.id).cut_page(text)
    shown = f"{page.text}\n{page.note}"
    if count_tokens(shown) < room:
        return shown
    if not page.handle:  # a result may be longer than a description, so nothing was kept
        return limit_text(f"{tool.render_signature(optional=0)}\n{TOO_LONG}", room - 1)
    end = cut(text, 0, room - NOTE_TOKENS)
    return f"{text[:end]}\n{point_to_rest(page.handle, end, len(text))}"


def _fit_asides(state: SessionState, lines: Sequence[str], *, alone: bool) -> list[str]:
    """Return what is said besides definitions, in a quarter of the reply unless it is all."""
    budget = state.settings.describe_tokens
    room = budget - TAIL_TOKENS if alone else budget // 4
    text = limit_text("\n".join(lines), room)
    return text.split("\n") if text else []
