"""`tool_describe`: whole definitions by name, unchanged from their servers (R41).

Loads exactly what was named. A definition that alone is too long for a reply is cut and kept
under a handle like any long result.
"""

from collections.abc import Sequence

from toolscout.calls.cut import cut
from toolscout.errors import PART_SHOWN, ModelError, ServerUnavailable, suggest_reading
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.sessions import texts
from toolscout.sessions.call import find_tool
from toolscout.sessions.replies import Reply, limit_text, quote_server, render_definition
from toolscout.sessions.session_state import SessionState
from toolscout.settings import Mode
from toolscout.tokens import count_definition_tokens, count_tokens
from toolscout.tools import Tool

PROBLEM_CHARS = 400
LEFT_TOKENS = 80
TAIL_TOKENS = LEFT_TOKENS + 40
"""Room for what was left out and for the next step."""
NOTE_TOKENS = 60
"""Room for how to read on."""


def describe_tools(state: SessionState, names: Sequence[str], notes: Sequence[str]) -> Reply:
    """Return the definitions of tools, after loading them."""
    state.prepare()
    tools, errors = _find_named(state, names)
    problems = [_to_sentence(error) for error in errors]
    budget = state.settings.describe_tokens
    # Problems and news have a quarter of the reply, or all of it if there is nothing else.
    room = budget // 4 if tools else budget - TAIL_TOKENS
    said = state.find_unheard(tools) if state.settings.mode is not Mode.REFERENCE else {}
    quoted = [quote_server(*item) for item in said.items()]
    asides = limit_text("\n".join([*notes, *problems, *state.take_news(), *quoted]), room)
    heard = {server: text for server, text in said.items() if quote_server(server, text) in asides}
    state.note_heard(heard)
    shown, whole, left = _render_definitions(state, tools, asides)
    described = [tool for tool in tools if tool.name not in left]
    # Those loaded before become the most recent first, so that the new ones evict others.
    for tool in described:
        state.record.touch(tool.name)
    state.note_shown(whole)
    added = state.load(described)
    rest = limit_text(texts.LEFT_OUT.format(names=", ".join(left)), LEFT_TOKENS) if left else ""
    step = _choose_next_step(state, described)
    code = "ok" if described else errors[0].code
    details: Json = {
        "described": [tool.name for tool in described],
        "loaded": added,
        "left_off": left,
        "problems": problems,
        "instructions": [{"server": s, "text": text} for s, text in heard.items()],
        "max_tokens": budget,
        "code": code,
    }
    return Reply(
        text="\n".join(filter(None, [*shown, asides, rest, step])),
        code=code,
        is_error=not described,
        details=details,
        references=tuple(added),
        described=tuple(tool.name for tool in whole),
    )


def _choose_next_step(state: SessionState, described: Sequence[Tool]) -> str:
    if not state.hides_tools:
        return texts.NEXT_BY_OWN_NAME if described else texts.NAME_FROM_LIST
    if not described:
        return texts.SEARCH_BY_PURPOSE
    is_own = all(state.is_declared(tool.name) for tool in described)
    return texts.NEXT_BY_OWN_NAME if is_own else texts.NEXT_AFTER_DESCRIPTION[state.settings.mode]


def _find_named(
    state: SessionState, names: Sequence[str]
) -> tuple[list[Tool], list[ModelError | ServerUnavailable]]:
    tools: dict[str, Tool] = {}
    errors: list[ModelError | ServerUnavailable] = []
    for name in names:
        try:
            tool = find_tool(state, name)
        except (ModelError, ServerUnavailable) as error:
            errors.append(error)
        else:
            tools[tool.name] = tool
    return list(tools.values()), errors


def _to_sentence(error: Exception) -> str:
    problem = to_one_line(str(error).removeprefix("Not called: "), PROBLEM_CHARS)
    return problem[:1].upper() + problem[1:]


def _render_definitions(
    state: SessionState, tools: Sequence[Tool], asides: str
) -> tuple[list[str], list[Tool], list[str]]:
    """Return the definitions that fit, the tools that are whole among them, and the rest."""
    room = state.settings.describe_tokens - TAIL_TOKENS - count_tokens(asides)
    # R50: what is described stays callable, so all of it has to fit.
    pinned = {entry.name for entry in state.record.entries.values() if entry.pinned}
    costs = [(t.name, 0 if t.name in pinned else count_definition_tokens(t)) for t in tools]
    loadable = state.record.select_fitting(costs, state.settings.loaded_tokens)
    shown: list[str] = []
    whole: list[Tool] = []
    left: list[str] = []
    for tool in tools:
        shape = state.engine.shapes.describe(tool) if state.should_learn(tool) else ""
        seen = texts.SEEN_RESULTS.format(shape=shape) if shape else ""
        failures = state.engine.usage.describe_failures(tool)
        text = "\n".join(filter(None, (render_definition(tool), seen, failures)))
        cost = count_tokens(text) + 1
        if shown and (cost > room or tool.name not in loadable):
            left.append(tool.name)
        elif cost > room:
            shown.append(_render_first_page(state, tool, text, room))
            room = 0
        else:
            shown.append(text)
            whole.append(tool)
            room -= cost
    return shown, whole, left


def _render_first_page(state: SessionState, tool: Tool, text: str, room: int) -> str:
    """Return the beginning of a definition that is too long, and how to read on."""
    page = state.results.cut_page(text)
    shown = f"{page.text}\n{page.note}"
    if state.hides_tools and count_tokens(shown) < room:
        return shown
    # A result may be longer than a description, so nothing was kept.
    if not (state.hides_tools and page.handle):
        return limit_text(f"{tool.render_signature(optional=0)}\n{texts.TOO_LONG}", room - 1)
    end = cut(text, 0, room - NOTE_TOKENS)
    part = PART_SHOWN.format(start=0, end=end, total=len(text))
    return f"{text[:end]}\n{part} {suggest_reading(page.handle, {'start': end})}"
