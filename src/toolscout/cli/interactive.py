"""`toolscout search --interactive`: results as you type.

`View` is what is on the screen, a value that `pressed` replaces with each key; `Page` draws it.
"""

import json
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import TYPE_CHECKING

import click

from toolscout.cli import ExitCode
from toolscout.cli.output import BAR_WIDTH, falling, style_of, styled
from toolscout.cli.screens import RESIZED, Screen
from toolscout.errors import ToolscoutError

if TYPE_CHECKING:
    from rich.text import Text

    from toolscout.scout import Scout
    from toolscout.search.hits import Hit

PROMPT = "> "
MARK = "\u25b8 "
LIMIT = 50
NARROW = 60
HELP = "up/down choose  enter show  tab reasons  esc leave"
SHOWING_HELP = "up/down scroll  esc back"
EMPTY = "Type what a tool should do to what, for example: create a calendar event"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a person sees: a query and its hits, or the definition of one of them."""

    query: str = ""
    cursor: int = 0
    hits: "tuple[Hit, ...]" = ()
    message: str = ""
    chosen: int = 0
    is_open: bool = False
    """Whether the definition of the chosen hit is shown."""
    scroll: int = 0
    explain: bool = False
    left: int | None = field(default=None)
    """The exit code, once the person is done."""


def search_live(scout: "Scout", query: str, *, explain: bool) -> None:
    """Search until the person leaves."""
    view = _searched(scout, View(query=query, cursor=len(query), explain=explain))
    with Screen() as screen:
        page = Page(tools=len(scout.catalog))
        page.show(screen, view)
        for keys in screen.batches():
            before = view.query
            for key in keys:
                view = pressed(view, key)
                if view.left is not None:
                    break
            if view.left is not None:
                break
            if view.query != before:
                view = _searched(scout, view)
            page.show(screen, view)
    if view.left:
        raise click.exceptions.Exit(view.left)


def pressed(view: View, key: str) -> View:
    """Return what is seen after a key."""
    if key == "ctrl-c":
        return replace(view, left=ExitCode.INTERRUPTED)
    if key == "ctrl-d":
        return replace(view, left=0)
    if key == RESIZED:
        return view
    return _pressed_in_definition(view, key) if view.is_open else _pressed_in_list(view, key)


def _pressed_in_definition(view: View, key: str) -> View:
    steps = {"up": -1, "down": 1, "page up": -10, "page down": 10}
    if key in steps:
        return replace(view, scroll=max(0, view.scroll + steps[key]))
    if key in ("escape", "enter", "left", "backspace"):
        return replace(view, is_open=False, scroll=0)
    return view


def _pressed_in_list(view: View, key: str) -> View:
    steps = {"up": -1, "down": 1, "page up": -5, "page down": 5}
    if key in steps:
        last = max(0, len(view.hits) - 1)
        return replace(view, chosen=min(max(0, view.chosen + steps[key]), last))
    if key == "enter":
        return replace(view, is_open=bool(view.hits), scroll=0)
    if key == "escape":
        return replace(view, left=0)
    if key == "tab":
        return replace(view, explain=not view.explain)
    return _edited(view, key)


def _edited(view: View, key: str) -> View:
    """Return the view with its query edited, or its cursor moved."""
    before, after = view.query[: view.cursor], view.query[view.cursor :]
    match key:
        case "left" | "right" | "home" | "end":
            places = {"left": view.cursor - 1, "right": view.cursor + 1, "home": 0}
            place = places.get(key, len(view.query))
            return replace(view, cursor=min(max(0, place), len(view.query)))
        case "backspace":
            before = before[:-1]
        case "delete":
            after = after[1:]
        case "clear":
            before = ""
        case "word":
            before = before.rstrip()[: before.rstrip().rfind(" ") + 1]
        case _ if len(key) == 1:
            before += key
        case _:
            return view
    return replace(view, query=before + after, cursor=len(before), chosen=0)


def _searched(scout: "Scout", view: View) -> View:
    """Return the view with the hits of its query; half a query may be one that is no query."""
    if not view.query.strip():
        return replace(view, hits=(), message="", chosen=0)
    try:
        result = scout.index.search(view.query, LIMIT)
    except ToolscoutError as error:
        return replace(view, hits=(), message=str(error), chosen=0)
    read = [f"Read {typed!r} as {known!r}." for typed, known in result.corrected.items()]
    message = " ".join(read) if result.hits else "No tool found. Use other words."
    return replace(view, hits=result.hits, message=message, chosen=0)


class Page:
    """Lays a view out within a window."""

    def __init__(self, *, tools: int) -> None:
        self._tools = tools

    def show(self, screen: Screen, view: View) -> None:
        """Draw a view."""
        width, height = screen.size
        lines = self.lines(view, width, height)
        begin = _first_shown(view, width)
        column = _cells(PROMPT + view.query[begin : view.cursor])
        cursor = None if view.is_open else (min(column, width - 1), 0)
        screen.draw([_drawn(line, width) for line in lines[:height]], cursor)

    def lines(self, view: View, width: int, height: int) -> "list[Text]":
        """Return the lines of a view, as many as the window has."""
        room = max(0, height - 3)
        if view.is_open:
            head = styled((view.hits[view.chosen].tool.name, "bold cyan"))
            body = _definition(view.hits[view.chosen], width)
            top = min(view.scroll, max(0, len(body) - room))
            body, foot = body[top : top + room], SHOWING_HELP
        else:
            shown = view.query[_first_shown(view, width) :]
            head = styled((PROMPT, "bold cyan"), (shown, ""))
            body, foot = self._body(view, width, room), HELP
        body += [styled(("", ""))] * (room - len(body))
        return [head, styled((self._status(view), "dim")), *body, styled((foot, "dim"))]

    def _status(self, view: View) -> str:
        count = f"{len(view.hits)} of {self._tools:,} tools"
        return f"{count}. {view.message}" if view.message else count

    def _body(self, view: View, width: int, room: int) -> "list[Text]":
        if not view.query.strip():
            return [styled((EMPTY, "dim"))][:room]
        reasons = _reasons(view.hits[view.chosen], width) if view.explain and view.hits else []
        reasons = reasons[: room // 2]
        space = max(1, (room - len(reasons)) // 2) if room else 0
        first = max(0, view.chosen - space + 1)
        rows: list[Text] = []
        for place, hit in enumerate(view.hits[first : first + space], first):
            rows += _row(hit, width, is_chosen=place == view.chosen)
        return rows[: room - len(reasons)] + reasons


def _row(hit: "Hit", width: int, *, is_chosen: bool) -> "list[Text]":
    # The mark tells the chosen one where there is no colour.
    mark = MARK if is_chosen else "  "
    name = "bold reverse" if is_chosen else "bold cyan"
    head = styled((mark, "bold"), (hit.tool.name, name), ("  ", ""))
    head.append(str(hit.confidence), style_of(hit))
    if width >= NARROW:
        head.append("  " + hit.tool.render_signature().removeprefix(hit.tool.name), "dim")
    return [head, styled((f"    {hit.tool.first_sentence}", ""))]


def _reasons(hit: "Hit", width: int) -> "list[Text]":
    why = hit.why
    bar = min(BAR_WIDTH, max(4, width - 30))
    rows = [styled((f"why {hit.tool.name}: {hit.score:.0%} likely to be wanted", "dim"))]
    for signal, share in falling(why.shares):
        drawn = "\N{FULL BLOCK}" * max(1, round(share * bar))
        rows.append(
            styled((f"  {signal:<16} ", ""), (f"{drawn:<{bar}}", "cyan"), (f" {share:.0%}", ""))
        )
    return rows


def _definition(hit: "Hit", width: int) -> "list[Text]":
    from rich.console import Console

    tool = hit.tool
    schema = json.dumps(tool.input_schema, indent=2, ensure_ascii=False)
    text = f"{tool.description.strip()}\n\n{tool.render_signature()}\n\nserver: {tool.server}\n"
    text += f"effect: {tool.effect}\n\n{schema}"
    console = Console(width=max(1, width), file=StringIO())
    return list(styled((_harmless(text), "")).wrap(console, max(1, width)))


def _harmless(text: str) -> str:
    from toolscout.names import clean_text

    return clean_text(text, len(text)).expandtabs(2)


def _drawn(line: "Text", width: int) -> str:
    """Return a line as the terminal takes it, cut to its width."""
    from rich.console import Console

    cut = line.copy()
    cut.truncate(max(1, width), overflow="ellipsis")
    sink = StringIO()
    console = Console(file=sink, force_terminal=True, width=width + 1, highlight=False)
    console.print(cut, end="", no_wrap=True, crop=False)
    return sink.getvalue()


def _first_shown(view: View, width: int) -> int:
    """Return where the shown part of a long query begins, so that the cursor is in it."""
    begin = 0
    while begin < view.cursor and _cells(PROMPT + view.query[begin : view.cursor]) >= width:
        begin += 1
    return begin


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
