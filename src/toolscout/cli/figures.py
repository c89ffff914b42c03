"""How benchmark commands show their figures: tables, JSON, and progress for who watches.

Only results go to stdout; progress goes to stderr, and only where a person is watching.
"""

import json
import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from toolscout.bench.quality import Progress
    from toolscout.bench.report import Table

REFRESH_SECONDS = 0.1

json_option = click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
report_option = click.option(
    "--report",
    "report_folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write report.md and its plots into this folder.",
)
save_option = click.option(
    "--save",
    "save_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the JSON into this file as well.",
)


def command_line(name: str, *arguments: Path, **options: Iterable[object]) -> str:
    """Return the command line that repeats this run; an option has one word for each value."""
    words = ["toolscout", "bench", name, *map(str, arguments)]
    for option, values in options.items():
        for value in values:
            words += [f"--{option}", str(value)]
    return shlex.join(words)


def give(
    figures: Mapping[str, Any],
    tables: "Sequence[Table]",
    *,
    as_json: bool,
    save_file: Path | None,
) -> None:
    """Print tables or JSON, and write the JSON into a file where one is named."""
    text = json.dumps(figures, indent=2, ensure_ascii=False)
    if save_file:
        save_file.write_text(text + "\n", encoding="utf-8")
    if as_json:
        click.echo(text)
    elif sys.stdout.isatty():
        _print_tables(tables)
    else:
        click.echo("\n\n".join(table.to_text() for table in tables))


def _print_tables(tables: "Sequence[Table]") -> None:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    console = Console()
    for table in tables:
        grid = Grid(title=Text(table.title), title_justify="left")
        for place, head in enumerate(table.head):
            grid.add_column(Text(head), justify="right" if place else "left")
        for row in table.rows:
            grid.add_row(*map(Text, row))
        console.print(grid)


@contextmanager
def query_bars() -> "Generator[Progress | None]":
    """Give a callback that draws a bar for each dataset and system, if a person is watching."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    # A refreshing thread would take time from the searches that are timed.
    with Bars(console=Console(stderr=True), auto_refresh=False, transient=True) as bars:
        tasks: dict[tuple[str, str], TaskID] = {}
        drawn = 0.0

        def progress(dataset: str, system: str, done: int, total: int) -> None:
            nonlocal drawn
            if (dataset, system) not in tasks:
                tasks[dataset, system] = bars.add_task(f"{dataset} {system}", total=total)
            bars.update(tasks[dataset, system], completed=done, visible=done < total)
            if monotonic() - drawn > REFRESH_SECONDS:
                bars.refresh()
                drawn = monotonic()

        yield progress


@contextmanager
def status() -> Generator[Callable[[str], None]]:
    """Give a callback that shows what is going on, if a person is watching."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    # Lines rather than a spinner: a spinner's thread would run beside what is timed.
    yield lambda text: console.print(text, style="dim", highlight=False)
