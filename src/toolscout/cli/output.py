"""How commands show what they found: colour and tables on a terminal, plain lines in a pipe.

Results go to stdout; what is going on goes to stderr, and only where a person is watching.
"""

import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from io import StringIO
from time import monotonic
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

PLAIN_WIDTH = 100_000
REFRESH_SECONDS = 0.1

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is; 0 if nobody knows."""
Cell = tuple[str, str]
"""A text and its style."""


def show(parts: "Iterable[RenderableType]") -> None:
    """Print to stdout; in a pipe nothing is wrapped, coloured or boxed."""
    from rich.console import Console

    if sys.stdout.isatty():
        console = Console(highlight=False)
        for part in parts:
            console.print(part)
        return
    text = StringIO()
    plain = Console(file=text, width=PLAIN_WIDTH, color_system=None, highlight=False)
    for part in parts:
        plain.print(part)
    click.echo("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def styled(*parts: Cell) -> "Text":
    """Return styled text; what looks like rich's markup in it stays as it is."""
    from rich.text import Text

    return Text.assemble(*parts)


def indented(part: "RenderableType", columns: int) -> "RenderableType":
    """Return something set to the right of the margin, also where it is wrapped."""
    from rich.padding import Padding

    return Padding(part, (0, 0, 0, columns), expand=False)


def table(
    head: Sequence[str], rows: Iterable[Sequence[Cell | str]], *, right: Iterable[int] = ()
) -> "RenderableType":
    """Return a table without lines; columns `right` are set to the right."""
    from rich.table import Table

    numbers = frozenset(right)
    grid = Table(box=None, padding=(0, 2, 0, 0), show_header=any(head), header_style="dim")
    for place, title in enumerate(head):
        grid.add_column(
            styled((title, "")),
            justify="right" if place in numbers else "left",
            overflow="fold",
            no_wrap=place in numbers,
        )
    for row in rows:
        grid.add_row(*(styled((cell, "") if isinstance(cell, str) else cell) for cell in row))
    return grid


@contextmanager
def bars() -> Generator[Progress]:
    """Give a callback that draws a bar for each thing that is done, if a person is watching."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
    from rich.progress import Progress as Bars
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Bars(*columns, console=Console(stderr=True), transient=True) as drawn:
        tasks: dict[str, TaskID] = {}
        last = 0.0

        def progress(stage: str, done: int, total: int) -> None:
            nonlocal last
            if stage not in tasks:
                for task in tasks.values():
                    drawn.update(task, visible=False)
                tasks[stage] = drawn.add_task(stage, total=total or None)
            if monotonic() - last > REFRESH_SECONDS or done == total:
                drawn.update(tasks[stage], completed=done)
                last = monotonic()

        yield progress
