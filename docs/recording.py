"""Record commands in a terminal, and draw the recording as a moving picture.

`python docs/recording.py record`, or `make recording`, runs `COMMANDS` in an empty home folder,
with two real MCP servers, and writes what they printed and when to `images/terminal.json`.
`make docs` draws `images/terminal.svg` from it. The same recording always gives the same picture.
It moves without scripts, so it also moves where a page shows it as an image.
"""

import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

import pyte
import pyte.screens

IMAGES = Path(__file__).parent / "images"
RECORDING = IMAGES / "terminal.json"
PICTURE = IMAGES / "terminal.svg"
HOME = "/home/ada"
"""How the recording writes the home folder."""
COMMANDS = (
    'toolscout search "create a pull request" --limit 3',
    "toolscout servers add time --command uvx mcp-server-time",
    "toolscout servers add git --command uvx mcp-server-git",
    "toolscout servers test",
    'toolscout search "what time is it in Tokyo"',
    "toolscout call time__get_current_time timezone=Asia/Tokyo",
)
COLUMNS = 98
WIDEST = 400
"""Columns of the screen that reads the output; a long path must not be broken in two."""
READ_BYTES = 65_536

ROWS = 24
CHAR = 8.4
LINE = 19
FONT_SIZE = 14
MARGIN = 18
TITLE = 34
TYPED_PER_SECOND = 32.0
PAUSE_SECONDS = 0.5
"""Between a typed command and its output, at least."""
LONGEST_WAIT_SECONDS = 1.6
"""A wait in the recording that took longer is shown as this long."""
READ_SECONDS = 2.6
"""Time to read the output of a command."""
END_SECONDS = 5.0
CAPTION = "A terminal: toolscout finds tools, and calls one of two servers behind it."
FONTS = (
    'ui-monospace,"SF Mono","JetBrains Mono","Cascadia Code",Menlo,Consolas,"Liberation Mono",'
    "monospace"
)
BACKGROUND = "#16191d"
PROMPT = "#63d2bd"
COLOURS = {
    "default": "#dfe3e6",
    "black": "#7d868f",
    "red": "#ff9d94",
    "green": "#7fdca8",
    "brown": "#f0c674",
    "blue": "#8fc1ff",
    "magenta": "#d9a6e8",
    "cyan": "#7cd5e8",
    "white": "#dfe3e6",
    "brightblack": "#7d868f",
}


@dataclass(frozen=True, slots=True)
class Span:
    """Characters of one colour; `column` is that of the first."""

    column: int
    text: str
    colour: str = "default"
    is_bold: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of output, and when its first character came, in seconds from the command's start."""

    at: float
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A command and what it printed."""

    command: str
    lines: tuple[Line, ...]


def make_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a newcomer with an empty home in a folder.

    Their `uvx` starts the servers of this Python environment, so that nothing is downloaded.
    """
    programs = Path(sys.executable).parent
    home = folder / "home"
    (home / "project").mkdir(parents=True)
    uvx = folder / "bin" / "uvx"
    uvx.parent.mkdir()
    uvx.write_text(f'#!/bin/sh\nname=$1\nshift\nexec {programs}/"$name" "$@"\n', "utf-8")
    uvx.chmod(0o755)
    return {
        "HOME": str(home),
        "PATH": os.pathsep.join((str(uvx.parent), str(programs), os.environ["PATH"])),
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
    }


def run_command(command: str, environment: dict[str, str]) -> Step:
    """Run a command and return what a terminal shows of it."""
    return Step(command, tuple(_run_in_terminal(shlex.split(command), environment)))


def _run_in_terminal(words: list[str], environment: dict[str, str]) -> Iterator[Line]:
    home = Path(environment["HOME"])
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(WIDEST, ROWS * 4)
    stream = pyte.ByteStream(screen)
    begun = time.monotonic()
    process = subprocess.Popen(
        ["/usr/bin/env", *words],  # looks for the program in the newcomer's search path
        cwd=home / "project",
        env=environment,
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
    )
    os.close(secondary)
    seen = dict[int, float]()
    while True:
        try:
            data = os.read(primary, READ_BYTES)
        except OSError:  # how Linux reports that the other end is closed
            data = b""
        if not data:
            break
        stream.feed(data)
        for row, text in enumerate(screen.display):
            if text.strip():
                seen.setdefault(row, time.monotonic() - begun)
    os.close(primary)
    process.wait()
    last = max(seen, default=-1)
    at = 0.0
    for row in range(last + 1):
        at = max(at, seen.get(row, at))
        yield Line(round(at, 2), tuple(_list_spans(screen, row, home)))


def _list_spans(screen: pyte.Screen, row: int, home: Path) -> Iterator[Span]:
    """Yield the characters of a row of a screen, together where they look the same."""
    cells = [screen.buffer[row][column] for column in range(WIDEST)]
    text = "".join(cell.data for cell in cells)
    length = len(text.rstrip())
    column = shift = 0
    while column < length:
        end = column
        while end < length and _looks_like(cells[end], cells[column]):
            end += 1
        shown = text[column:end].replace(str(home), HOME)
        if shown.strip():
            blanks = len(shown) - len(shown.lstrip())
            style = cells[column]
            yield Span(column + shift + blanks, shown.strip(), str(style.fg), bool(style.bold))
        shift += len(shown) - (end - column)
        column = end


def _looks_like(one: pyte.screens.Char, other: pyte.screens.Char) -> bool:
    return (one.fg, one.bold) == (other.fg, other.bold)


def steps_from_json(text: str) -> list[Step]:
    """Return the steps of a stored recording."""
    return [
        Step(
            step["command"],
            tuple(
                Line(line["at"], tuple(Span(**span) for span in line["spans"]))
                for line in step["lines"]
            ),
        )
        for step in json.loads(text)
    ]


def to_text(line: Line) -> str:
    """Return a line without colours."""
    text = ""
    for span in line.spans:
        text = text.ljust(span.column) + span.text
    return text


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the picture: when it appears, and how long its characters are typed."""

    at: float
    spans: tuple[Span, ...]
    typed_seconds: float = 0.0


def list_rows(steps: Sequence[Step]) -> Iterator[Row]:
    """Yield the rows of the picture in their order, with waits that nobody minds."""
    now = 0.8
    for step in steps:
        typed = len(step.command) / TYPED_PER_SECOND
        yield Row(now, (Span(0, "$", PROMPT), Span(2, step.command, is_bold=True)), typed)
        now += typed + PAUSE_SECONDS
        before = step.lines[0].at if step.lines else 0.0
        for line in step.lines:
            now += min(line.at - before, LONGEST_WAIT_SECONDS)
            before = line.at
            cut = tuple(_cut_spans(line.spans))
            yield Row(now, cut)
        now += READ_SECONDS
        yield Row(now, ())


def _cut_spans(spans: Sequence[Span]) -> Iterator[Span]:
    """Yield what of a line fits into the window."""
    for span in spans:
        room = COLUMNS - span.column
        if room > 1:
            text = span.text if len(span.text) <= room else span.text[: room - 1] + "…"
            yield Span(span.column, text, span.colour, span.is_bold)


def draw_picture(steps: Sequence[Step]) -> str:
    """Return a recording as an SVG file that moves, and stands still for those who prefer it."""
    rows = list(list_rows(steps))[:-1]
    total = rows[-1].at + rows[-1].typed_seconds + END_SECONDS
    width = round(COLUMNS * CHAR + 2 * MARGIN)
    height = TITLE + ROWS * LINE + MARGIN
    styles: list[str] = []
    shapes: list[str] = []
    offsets: list[tuple[float, int]] = [(0.0, 0)]
    for number, row in enumerate(rows):
        y = TITLE + number * LINE
        share = _format_share(row.at, total)
        styles.append(f"@keyframes r{number}{{0%,{share}{{opacity:0}}{share},to{{opacity:1}}}}")
        texts = "".join(_draw_span(span, y) for span in row.spans)
        if texts:
            shapes.append(f'<g style="animation-name:r{number}">{texts}{_draw_cover(row, y)}</g>')
        if row.typed_seconds:
            styles.append(_animate_typing(number, row, total))
            shapes[-1] = shapes[-1].replace("COVER", f"t{number}")
        if number >= ROWS:
            offsets.append((row.at, (number - ROWS + 1) * LINE))
    scroll = "".join(
        f"{_format_share(at, total)}{{transform:translateY(-{offset}px)}}" for at, offset in offsets
    )
    last = offsets[-1][1]
    styles.append(f"@keyframes s{{{scroll}to{{transform:translateY(-{last}px)}}}}")
    size = f'width="{width}" height="{height}"'
    colours = zip((20, 39, 58), ("#ff6b62", "#f5bf4f", "#5fc454"), strict=True)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>',
        f"<title>{CAPTION}</title>",
        "<style>",
        f"g,#s,.c{{animation:{total:.2f}s step-end infinite}}",
        f"text{{font:{FONT_SIZE}px {FONTS};fill:{COLOURS['default']};white-space:pre}}",
        ".b{font-weight:700}",
        f"#s{{animation-name:s;transform:translateY(-{last}px)}}",
        f".c{{fill:{BACKGROUND};transform:translateX({width}px)}}",
        *styles,
        "@media (prefers-reduced-motion:reduce){g,#s,.c{animation:none!important}}",
        "</style>",
        f'<clipPath id="w"><rect y="{TITLE}" width="{width}" height="{ROWS * LINE}"/></clipPath>',
        f'<rect {size} rx="10" fill="{BACKGROUND}"/>',
        *(f'<circle cx="{x}" cy="17" r="5.5" fill="{colour}"/>' for x, colour in colours),
        '<svg clip-path="url(#w)"><g id="s">',
        *shapes,
        "</g></svg>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _draw_span(span: Span, y: int) -> str:
    x = MARGIN + span.column * CHAR
    colour = COLOURS.get(span.colour, span.colour if span.colour.startswith("#") else "#dfe3e6")
    fill = f' fill="{colour}" style="fill:{colour}"' if colour != COLOURS["default"] else ""
    bold = ' class="b"' if span.is_bold else ""
    width = len(span.text) * CHAR
    return (
        f'<text x="{x:g}" y="{y + LINE - 5}" textLength="{width:g}"{bold}{fill}>'
        f"{escape(span.text, quote=False)}</text>"
    )


def _draw_cover(row: Row, y: int) -> str:
    """Return what hides the part of a command that is not typed yet, with the cursor before it."""
    if not row.typed_seconds:
        return ""
    x = MARGIN + row.spans[1].column * CHAR
    width = len(row.spans[1].text) * CHAR + CHAR
    return (
        f'<rect class="c" style="animation-name:COVER" x="{x:g}" y="{y}" '
        f'width="{width:g}" height="{LINE}"/>'
    )


def _animate_typing(number: int, row: Row, total: float) -> str:
    """Return the keyframes that uncover a command, letter by letter."""
    letters = len(row.spans[1].text)
    first = _format_share(row.at, total)
    last = _format_share(row.at + row.typed_seconds, total)
    return (
        f"@keyframes t{number}{{0%{{transform:none}}"
        f"{first}{{transform:none;animation-timing-function:steps({letters})}}"
        f"{last},to{{transform:translateX({letters * CHAR + CHAR:g}px)}}}}"
    )


def _format_share(at: float, total: float) -> str:
    return f"{at / total:.3%}"


def record() -> None:
    """Run the commands and store what they printed."""
    with tempfile.TemporaryDirectory() as folder:
        environment = make_environment(Path(folder))
        steps = [run_command(command, environment) for command in COMMANDS]
    text = json.dumps([asdict(step) for step in steps], indent=1, ensure_ascii=False)
    RECORDING.write_text(text + "\n", encoding="utf-8")


def draw() -> None:
    """Draw the stored recording."""
    steps = steps_from_json(RECORDING.read_text(encoding="utf-8"))
    PICTURE.write_text(draw_picture(steps), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        record()
    draw()
