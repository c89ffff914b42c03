"""How commands print results: colour and tables on a terminal, plain lines in a pipe.

Results go to stdout; questions and progress bars go to stderr, and bars only if a person is
watching. The pages of `toolscout search` and `toolscout try` are laid out here.
`rich` is imported by the first thing that needs it, because `toolscout serve` needs none of it.
"""

import json
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from toolscout.names import to_one_line
from toolscout.search.hits import Hit, Result
from toolscout.tokens import count_definition_tokens

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import TaskID
    from rich.text import Text

REFRESH_SECONDS = 0.1
NAME_SHOWN = 40
"""Characters of a server's name in tables and lists."""
TOUR_INDENT = 6
ASKED_CHARS = 80
BAR_WIDTH = 20
ASK_AGAIN = "Describe what the tool should do, for example 'create a calendar event'."
STYLES = {"exact": "bold cyan", "strong": "bold green", "likely": "yellow", "weak": "red"}
TRY_NEXT = (
    ('toolscout search "refund an order" --explain', "see why each tool was found"),
    ('toolscout search "read a file" --catalog tools.json', "search your own tools"),
    ("toolscout search --help", "filters and JSON output"),
)

Progress = Callable[[str, int, int], None]
"""Takes the name of a stage, how much of it is done, and how much there is; 0 if unknown."""
Step = Callable[[int], None]
Cell = tuple[str, str]
"""A text and its style."""


def show(parts: "Iterable[RenderableType]") -> None:
    """Print to stdout; in a pipe nothing is wrapped, coloured or boxed."""
    from rich.console import Console

    text = StringIO()
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console = Console(file=text, width=100_000, color_system=None, highlight=False)
    for part in parts:
        console.print(part)
    if not sys.stdout.isatty():
        click.echo("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def style(*parts: Cell) -> "Text":
    """Return styled text; anything in it that looks like rich's markup stays as it is."""
    from rich.text import Text

    return Text.assemble(*parts)


def echo_json(value: object) -> None:
    """Print a value to stdout as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, default=str))


def write_text(file: Path, text: str, *, what: str) -> None:
    """Write a text to a file and say so, or to stdout if the file is `-`."""
    if str(file) == "-":
        click.echo(text, nl=False)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8", errors="backslashreplace")
    click.echo(f"Wrote {what} to {file}.", err=True)


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 server` or `2 servers`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ask(question: str) -> bool:
    """Ask a person to confirm; raises `click.UsageError` if nobody can answer."""
    with _need_person("pass --yes to confirm"):
        return click.confirm(question, err=True)


def ask_value(
    question: str, check: Callable[[str], str], *, is_hidden: bool = False, remedy: str
) -> str:
    """Ask a person for a value until it fits; a hidden one is not shown and may be empty."""
    with _need_person(remedy):
        return click.prompt(
            question,
            err=True,
            default="" if is_hidden else None,
            show_default=False,
            hide_input=is_hidden,
            value_proc=check,
        )


@contextmanager
def _need_person(remedy: str) -> Generator[None]:
    try:
        yield
    except click.Abort as error:
        # Both the end of input and Ctrl-C end up here.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        click.echo(err=True)
        raise click.UsageError(f"Not a terminal: {remedy}.") from None


def indent(part: "RenderableType", columns: int) -> "RenderableType":
    """Return a part moved to the right, including the lines that it wraps to."""
    from rich.padding import Padding

    return Padding(part, (0, 0, 0, columns), expand=False)


def make_table(
    head: Sequence[str], rows: "Iterable[Sequence[Cell | Text | str]]", *, right: Iterable[int] = ()
) -> "RenderableType":
    """Return a table without lines; the columns `right` are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    numbers = frozenset(right)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=any(head), header_style="dim")
    for place, title in enumerate(head):
        is_number = place in numbers
        justify = "right" if is_number else "left"
        table.add_column(Text(title), justify=justify, overflow="fold", no_wrap=is_number)
    for row in rows:
        texts = [(cell, "") if isinstance(cell, str) else cell for cell in row]
        table.add_row(*(text if isinstance(text, Text) else style(text) for text in texts))
    return table


@contextmanager
def show_bars() -> Generator[Progress]:
    """Give a callback that draws a bar for each stage, if a person is watching."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as ProgressBars

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # No refreshing thread: it would take time from searches that are timed.
    with ProgressBars(*columns, console=console, auto_refresh=False, transient=True) as bars:
        tasks: dict[str, TaskID] = {}
        last = 0.0

        def update(stage: str, done: int, total: int) -> None:
            nonlocal last
            if stage not in tasks:
                for task in tasks.values():
                    bars.update(task, visible=False)
                tasks[stage] = bars.add_task(stage, total=total or None)
            if monotonic() - last > REFRESH_SECONDS or done == total:
                bars.update(tasks[stage], completed=done, refresh=True)
                last = monotonic()

        yield update


@contextmanager
def show_bar(text: str, total: int, *, when: bool = True) -> Generator[Step]:
    """Give a callback that moves one bar on, if a person is watching."""
    if not when:
        yield lambda _: None
        return
    with show_bars() as update:
        done = 0
        update(text, done, total)

        def step(number: int) -> None:
            nonlocal done
            done += number
            update(text, done, total)

        yield step


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of one query, and the cost of its reply."""

    result: Result
    hits: tuple[Hit, ...]
    reply_tokens: int
    definition_tokens: int
    tools: int


def render_answers(answers: Sequence[Answer], *, explain: bool) -> "Iterator[RenderableType]":
    """Yield the hits of each query, the reasons if wanted, and remarks."""
    for place, answer in enumerate(answers):
        if place:
            yield ""
        if len(answers) > 1:
            yield style((f"Query: {answer.result.query.text}", "bold"))
        if answer.hits:
            yield _make_hit_table(answer.hits)
            for rank, hit in enumerate(answer.hits, 1) if explain else ():
                yield ""
                yield from _explain_hit(rank, hit)
            yield ""
        yield from (style((remark, "")) for remark in _list_remarks(answer))
        every = f"All {answer.tools:,} definitions: {answer.definition_tokens:,} tokens"
        yield style((f"This reply: {answer.reply_tokens:,} tokens. {every} (estimated).", "dim"))


def render_tour(answers: Sequence[Answer], *, servers: int) -> "Iterator[RenderableType]":
    """Yield the page of `toolscout try`."""
    tools = answers[0].tools
    yield style((f"A demo catalogue: {tools} tools of {servers} servers. An agent asks:", ""))
    for answer in answers:
        yield ""
        yield style((f"> {answer.result.query.text}", "bold"))
        yield from (style((f"  {text}", "dim")) for text in _list_corrections(answer))
        for hit in answer.hits:
            name, sentence = hit.tool.name, hit.tool.first_sentence
            yield style((f"  {name}", "bold cyan"), (f"  {hit.confidence}", STYLES[hit.confidence]))
            yield indent(style((sentence, "")), TOUR_INDENT)
            yield indent(style((f"because: {_summarize_reasons(hit)}", "dim")), TOUR_INDENT)
    yield ""
    # A model also reads the whole definition of the tool that it goes on to call.
    called = {answer.hits[0].tool for answer in answers if answer.hits}
    read = sum(answer.reply_tokens for answer in answers)
    read += sum(map(count_definition_tokens, called))
    definitions = answers[0].definition_tokens
    savings = (
        f"These {len(answers)} replies and the full definitions of their first tools: {read:,} "
        f"tokens. All {tools:,} definitions: {definitions:,} tokens. "
        f"Saved: {1 - read / definitions:.0%} (estimated)."
    )
    yield style((savings, "bold"))
    yield ""
    yield "Try next:"
    yield from render_steps(TRY_NEXT)


def render_steps(steps: Sequence[tuple[str, str]]) -> "Iterator[RenderableType]":
    """Yield commands, each with what it is for."""
    width = max(len(command) for command, _ in steps)
    for command, purpose in steps:
        yield style((f"  {command:<{width}}", "cyan"), (f"  {purpose}", ""))


def _make_hit_table(hits: Sequence[Hit]) -> "RenderableType":
    is_terminal = sys.stdout.isatty()
    rows: list[list[Cell | Text | str]] = []
    for rank, hit in enumerate(hits, 1):
        name = (hit.tool.name, "bold cyan")
        match = (hit.confidence, STYLES[hit.confidence])
        sentence = hit.tool.first_sentence
        arguments = (hit.tool.render_signature().removeprefix(hit.tool.name), "dim")
        # A window is too narrow for one more column; in a pipe each hit is one line.
        rest = [style((f"{sentence}\n", ""), arguments)] if is_terminal else [arguments, sentence]
        rows.append([str(rank), name, match, *rest])
    head = ("#", "tool", "match", "what it does, and its arguments")
    return make_table(head if is_terminal else ("",) * 5, rows, right=(0,))


def _explain_hit(rank: int, hit: Hit) -> "Iterator[RenderableType]":
    block = "\N{FULL BLOCK}" if sys.stdout.isatty() else "#"
    why = hit.why
    chance = (f"  {hit.score:.0%} likely to be the right tool", "dim")
    match = (f"  {hit.confidence}", STYLES[hit.confidence])
    yield style((f"{rank}  {hit.tool.name}", "bold cyan"), match, chance)
    rows: list[tuple[str, Text | str]] = []
    for signal, share in _sort_shares(why.shares):
        bar = block * max(1, round(share * BAR_WIDTH))
        row = style((f"{bar:<{BAR_WIDTH}}", "cyan"), (f"{share:5.0%}", ""))
        rows.append((f"   {signal}", row))
    matched = "; ".join(f"{field}: {', '.join(words)}" for field, words in why.matched.items())
    asked = ", ".join(f"'{to_one_line(text, ASKED_CHARS)}'" for text in why.asked_before)
    before = f"asked for before as {asked}" if asked else ""
    held_back = " ".join(why.held_back)
    for label, found in (("matched", matched), ("learned", before), ("held back", held_back)):
        if found:
            rows.append((f"   {label}", found))
    yield make_table(("", ""), rows)


def _list_remarks(answer: Answer) -> Iterator[str]:
    result, shown = answer.result, len(answer.hits)
    yield from _list_corrections(answer)
    for missing in result.missing:
        near = f" Near: {', '.join(missing.near)}." if missing.near else ""
        yield f"There is no tool {missing.name!r}.{near}"
    if not result.hits and not result.missing:
        yield f"No tool found for {result.query.text!r}. {ASK_AGAIN}"
    elif shown and all(hit.confidence == "weak" for hit in answer.hits):
        yield f"Nothing fits well; these are guesses. {ASK_AGAIN}"
    if shown < len(result.hits):
        yield f"Weaker hits not shown: {len(result.hits) - shown}. Add --all to see them."
    is_listing = not (result.query.words or result.query.required)
    if is_listing and result.total > len(result.hits):
        yield f"Showing {shown} of {result.total}. Raise --limit to see more."


def _list_corrections(answer: Answer) -> Iterator[str]:
    for typed, read in answer.result.corrected.items():
        yield f"Read {typed!r} as {read!r}."


def _summarize_reasons(hit: Hit) -> str:
    """Return the reasons for a hit on one line; each word is mentioned once."""
    mentioned: set[str] = set()
    reasons: list[str] = []
    for field, words in hit.why.matched.items():
        fresh = [word for word in words if word not in mentioned]
        mentioned.update(fresh)
        if fresh:
            reasons.append(f"{', '.join(map(repr, fresh))} in its {field}")
    # The matched words explain two signals already; a small share of the score is no reason.
    signals = [s for s, share in _sort_shares(hit.why.shares) if share >= 0.15]
    reasons += [signal for signal in signals if signal not in ("words", "name")]
    return "; ".join(reasons) or "a little of everything"


def _sort_shares(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the signals that speak for a hit, the strongest first."""
    return sorted(((s, share) for s, share in shares.items() if share > 0), key=lambda p: -p[1])
