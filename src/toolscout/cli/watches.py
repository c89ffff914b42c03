"""`toolscout status --watch`: the same lines again and again, in place on a terminal."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from toolscout.errors import UpstreamError

if TYPE_CHECKING:
    from rich.text import Text

    from toolscout.schemas import Json

Ask = Callable[[], "Json"]
Lines = Callable[["Json"], list[str]]


def watch_status(told: "Json", ask: Ask, lines: Lines, *, every: float, as_json: bool) -> None:
    """Show what a gateway tells as lines until Ctrl-C; who does not answer is asked again."""
    if as_json or not sys.stdout.isatty():
        _watch_pipe(told, ask, lines, every=every, as_json=as_json)
    else:
        _watch_terminal(told, ask, lines, every=every)


def _watch_pipe(told: "Json", ask: Ask, lines: Lines, *, every: float, as_json: bool) -> None:
    while True:
        if as_json:
            click.echo(json.dumps(told, ensure_ascii=False))
        else:
            click.echo("\n".join(lines(told)) + "\n")
        time.sleep(every)
        told, problem = _asked(told, ask)
        while problem:
            click.echo(problem, err=True)
            time.sleep(every)
            told, problem = _asked(told, ask)


def _watch_terminal(told: "Json", ask: Ask, lines: Lines, *, every: float) -> None:
    from rich.live import Live

    problem = ""
    with Live(screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(_page(lines(told), problem, every), refresh=True)
            time.sleep(every)
            told, problem = _asked(told, ask)


def _asked(told: "Json", ask: Ask) -> tuple["Json", str]:
    """Return what the gateway tells, or what it told last and why it does not."""
    try:
        return ask(), ""
    except UpstreamError as error:
        return told, str(error)


def _page(lines: list[str], problem: str, every: float) -> "Text":
    from rich.text import Text

    head = problem or f"{time.strftime('%H:%M:%S')}, every {every:g} s. Ctrl-C ends it."
    page = Text(no_wrap=True, overflow="ellipsis")
    page.append(head, "bold red" if problem else "dim")
    text = "\n".join(lines)
    plain = click.unstyle(text) if os.environ.get("NO_COLOR") else text
    return page.append("\n\n").append_text(Text.from_ansi(plain))
