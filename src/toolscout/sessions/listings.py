"""What exists, for a prompt: servers and their tools, as much as fits a token budget.

Takes tools; gives text that depends on nothing else, sorted, so that equal catalogues give equal
bytes (R98). Each server is told by names and sentences, by names, or by a count, whatever fits.
Everything that a server wrote is cut to a line. Whether and when to send it is the session's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from toolscout.names import one_line
from toolscout.tokens import count_tokens
from toolscout.tools import Tool

SENTENCE_CHARS = 80
SERVER_CHARS = 60
DELTA_NAMES = 20

_HEAD = "Hidden tools, by server:"


def listing(tools: Iterable[Tool], budget: int) -> str:
    """Return what exists within a number of tokens; nothing if there is no room or no tool."""
    servers = _grouped(tools)
    text = _headed(_told(servers, budget)) if servers else ""
    return text if count_tokens(text) <= budget else ""


def _told(servers: dict[str, list[Tool]], budget: int) -> list[str]:
    chosen = [_Line(server, group) for server, group in servers.items()]
    room = budget - count_tokens(_HEAD) - 1
    spent = sum(line.cost for line in chosen)
    if spent > room:
        return _shortened(chosen, room)
    for level in (1, 2):
        # Small servers first: the most servers are told in full for the same tokens.
        for line in sorted(chosen, key=lambda line: (line.cost_at(level), line.server)):
            more = line.cost_at(level) - line.cost
            if line.level == level - 1 and spent + more <= room:
                line.level = level
                spent += more
    return [line.text for line in chosen]


def changes(added: Sequence[Tool], removed: Sequence[str]) -> str:
    """Return a line about tools that came and went since the listing, or nothing."""
    parts: list[str] = []
    for server, group in _grouped(added).items():
        names = [tool.name for tool in group]
        parts.append(f"New hidden tools of {_shown(server)}: {_some(names)}.")
    if removed:
        parts.append(f"Tools that are gone: {_some(sorted(removed))}.")
    return " ".join(parts)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:DELTA_NAMES])
    more = len(names) - DELTA_NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown


def _grouped(tools: Iterable[Tool]) -> dict[str, list[Tool]]:
    groups: dict[str, list[Tool]] = {}
    for tool in sorted(tools, key=lambda tool: (tool.server, tool.name)):
        groups.setdefault(tool.server, []).append(tool)
    return groups


def _shown(server: str) -> str:
    return one_line(server, SERVER_CHARS) or "this program"


@dataclass(slots=True)
class _Line:
    """One server, told at one of three levels."""

    server: str
    tools: list[Tool]
    level: int = 0

    @property
    def text(self) -> str:
        return _LEVELS[self.level](self.server, self.tools)

    @property
    def cost(self) -> int:
        return self.cost_at(self.level)

    def cost_at(self, level: int) -> int:
        # Names cost at least two tokens each, so a big server is dear without being counted.
        if level and len(self.tools) > MANY_TOOLS:
            return MANY_TOOLS * MANY_TOOLS
        return count_tokens(_LEVELS[level](self.server, self.tools)) + 1


MANY_TOOLS = 2_000


def _count(server: str, tools: list[Tool]) -> str:
    return f"- {_shown(server)}: {len(tools):,}"


def _names(server: str, tools: list[Tool]) -> str:
    return f"- {_shown(server)}: {', '.join(tool.name for tool in tools)}"


def _sentences(server: str, tools: list[Tool]) -> str:
    lines = [f"- {_shown(server)}:"]
    for tool in tools:
        sentence = one_line(tool.first_sentence(), SENTENCE_CHARS)
        lines.append(f"  - {tool.name}: {sentence}" if sentence else f"  - {tool.name}")
    return "\n".join(lines)


_LEVELS: tuple[Callable[[str, list[Tool]], str], ...] = (_count, _names, _sentences)


def _shortened(lines: list[_Line], room: int) -> list[str]:
    """Return the counts of the largest servers that fit, by name, and what is left off."""
    by_size = sorted(lines, key=lambda line: (-len(line.tools), line.server))
    room -= count_tokens(_rest(len(lines), sum(len(line.tools) for line in lines))) + 1
    kept: list[_Line] = []
    for line in by_size:
        room -= line.cost
        if room < 0:
            break
        kept.append(line)
    left = by_size[len(kept) :]
    shown = [line.text for line in sorted(kept, key=lambda line: line.server)]
    return [*shown, _rest(len(left), sum(len(line.tools) for line in left))]


def _rest(servers: int, tools: int) -> str:
    return f"- and {servers:,} more servers with {tools:,} tools"


def _headed(lines: list[str]) -> str:
    return "\n".join([_HEAD, *lines])
