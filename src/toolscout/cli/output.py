"""How commands show what they found: colour and tables on a terminal, plain lines in a pipe.

Results go to stdout; what is going on goes to stderr, and only where a person is watching.

Bars for what takes longer than a second: making an index, and encoding with a model.

They go to stderr, and only where a person is watching.

How answers to a search are laid out: in colour and within the window, or plain for a pipe.

Takes `Answer` values and gives renderables of rich; searching is the part of `search`.
"""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from time import monotonic
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from toolscout.catalog import Catalog
    from toolscout.encoders.encoder import Encoder, Floats, Kind
    from toolscout.scout import Scout
    from toolscout.search.hits import Hit, Result


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
    console = Console(stderr=True)
    # No refreshing thread: it would take time from searches that are timed.
    with Bars(*columns, console=console, auto_refresh=False, transient=True) as drawn:
        tasks: dict[str, TaskID] = {}
        last = 0.0

        def progress(stage: str, done: int, total: int) -> None:
            nonlocal last
            if stage not in tasks:
                for task in tasks.values():
                    drawn.update(task, visible=False)
                tasks[stage] = drawn.add_task(stage, total=total or None)
            if monotonic() - last > REFRESH_SECONDS or done == total:
                drawn.update(tasks[stage], completed=done, refresh=True)
                last = monotonic()

        yield progress


MANY_TOOLS = {"static": 2_000, "none": 2_000, "onnx": 100}
"""From here on, indexing with an encoder takes long enough to show how far it is."""

Step = Callable[[int], None]


def watched_scout(catalog: "Catalog", encoder: str) -> "Scout":
    """Return a scout over a catalogue; whoever waits for its index sees how far it is."""
    from toolscout.scout import Scout

    count = len(catalog)
    with bar(f"Indexing {count:,} tools", count, when=count >= MANY_TOOLS[encoder]) as step:
        return Scout(catalog, encoder=_encoder(encoder, step))


@contextmanager
def bar(text: str, total: int, *, when: bool = True) -> Generator[Step]:
    """Give a callback that moves a bar on, if a person is watching."""
    if not when:
        yield lambda _: None
        return
    with bars() as progress:
        done = 0
        progress(text, done, total)

        def step(number: int) -> None:
            nonlocal done
            done += number
            progress(text, done, total)

        yield step


def _encoder(name: str, step: Step) -> "Encoder | None":
    # Classes of their own, because the encoders tell the index more than `encode` alone.
    from toolscout.encoders.onnx import OnnxEncoder
    from toolscout.encoders.static import StaticEncoder

    class WatchedStatic(StaticEncoder):
        def encode(self, texts: Sequence[str], *, kind: "Kind") -> "Floats":
            vectors = super().encode(texts, kind=kind)
            if kind == "tool":
                step(len(texts))
            return vectors

    class WatchedOnnx(OnnxEncoder):
        def encode(self, texts: Sequence[str], *, kind: "Kind") -> "Floats":
            vectors = super().encode(texts, kind=kind)
            if kind == "tool":
                step(len(texts))
            return vectors

    if name == "static":
        return WatchedStatic()
    if name == "onnx":
        return WatchedOnnx()
    return None


TOUR_INDENT = 6
BAR_WIDTH = 20
SMALL_SHARE = 0.15
"""A signal with less of the score than this is no reason worth a word."""
WORD_SIGNALS = ("words", "name")
"""Signals that the matched words already tell about."""
ASK_AGAIN = "Say what the tool should do to what, for example 'create a calendar event'."
STYLES = {"exact": "bold cyan", "strong": "bold green", "likely": "yellow", "weak": "red"}

TRY_NEXT = (
    ('toolscout search "refund an order" --explain', "why each tool was found"),
    ('toolscout search "read a file" --tools tools.json', "search your own tools"),
    ("toolscout search --help", "filters and JSON output"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One query's result as it is shown."""

    result: "Result"
    hits: "tuple[Hit, ...]"
    reply_tokens: int
    definition_tokens: int
    tools: int

    @property
    def tokens_line(self) -> str:
        """What a model reads, against what it would read without a search."""
        return (
            f"This reply: {self.reply_tokens:,} tokens. "
            f"All {self.tools:,} definitions: {self.definition_tokens:,} tokens (estimated)."
        )


class Look:
    """How answers are laid out: in colour and within the window, or plain for a pipe.

    Both go the same way through rich; a pipe's lines are never wrapped, coloured or boxed.
    """

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._block = "\N{FULL BLOCK}" if terminal else "#"

    def pages(self, answers: Sequence[Answer], *, explain: bool) -> "Iterator[RenderableType]":
        """Yield the hits of each query, the reasons if asked for, and what else to know."""
        for place, answer in enumerate(answers):
            if place:
                yield ""
            if len(answers) > 1:
                yield styled((f"Query: {answer.result.query.text}", "bold"))
            if answer.hits:
                yield self._table(answer.hits)
            if explain:
                for rank, hit in enumerate(answer.hits, 1):
                    yield ""
                    yield from self._reasons(rank, hit)
            if answer.hits:
                yield ""
            yield from (styled((remark, "")) for remark in _remarks(answer))
            yield styled((answer.tokens_line, "dim"))

    def tour(self, answers: Sequence[Answer], *, servers: int) -> "Iterator[RenderableType]":
        """Yield the page of `toolscout try`."""
        tools = answers[0].tools
        yield styled((f"A demo catalogue: {tools} tools of {servers} servers. An agent asks:", ""))
        for answer in answers:
            yield ""
            yield styled((f"> {answer.result.query.text}", "bold"))
            yield from (styled((f"  {text}", "dim")) for text in _corrections(answer))
            for hit in answer.hits:
                name, sentence = hit.tool.name, hit.tool.first_sentence
                yield styled((f"  {name}", "bold cyan"), (f"  {hit.confidence}", style_of(hit)))
                yield indented(styled((sentence, "")), TOUR_INDENT)
                yield indented(styled((f"because: {_because(hit)}", "dim")), TOUR_INDENT)
        yield ""
        yield styled((_savings(answers), "bold"))
        yield ""
        yield "Type next:"
        width = max(len(command) for command, _ in TRY_NEXT)
        for command, purpose in TRY_NEXT:
            yield styled((f"  {command:<{width}}", "cyan"), (f"  {purpose}", ""))

    def _table(self, hits: "Sequence[Hit]") -> "RenderableType":
        from rich.table import Table

        table = Table(
            box=None, padding=(0, 2, 0, 0), show_header=self._terminal, header_style="dim"
        )
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column("tool", overflow="fold")
        table.add_column("match", no_wrap=True)
        table.add_column("what it does, and its arguments")
        for rank, hit in enumerate(hits, 1):
            arguments = styled((hit.tool.render_signature().removeprefix(hit.tool.name), "dim"))
            sentence = styled((hit.tool.first_sentence, ""))
            # A window is too narrow for one more column; a line of a pipe is a whole hit.
            rest = [sentence + "\n" + arguments] if self._terminal else [arguments, sentence]
            name = styled((hit.tool.name, "bold cyan"))
            table.add_row(str(rank), name, styled((hit.confidence, style_of(hit))), *rest)
        return table

    def _reasons(self, rank: int, hit: "Hit") -> "Iterator[RenderableType]":
        from rich.table import Table

        why = hit.why
        yield styled(
            (f"{rank}  {hit.tool.name}", "bold cyan"),
            (f"  {hit.confidence}", style_of(hit)),
            (f"  {hit.score:.0%} likely to be wanted", "dim"),
        )
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for signal, share in falling(why.shares):
            bar = self._block * max(1, round(share * BAR_WIDTH))
            table.add_row(
                f"   {signal}", styled((f"{bar:<{BAR_WIDTH}}", "cyan"), (f"{share:5.0%}", ""))
            )
        matched = [f"{field}: {', '.join(words)}" for field, words in why.matched.items()]
        for label, found in (
            ("matched", "; ".join(matched)),
            ("held back", " ".join(why.held_back)),
        ):
            if found:
                table.add_row(f"   {label}", styled((found, "")))
        yield table


def style_of(hit: "Hit") -> str:
    """Return the style of how sure a hit is."""
    return STYLES[hit.confidence]


def _remarks(answer: Answer) -> Iterator[str]:
    result, shown = answer.result, len(answer.hits)
    yield from _corrections(answer)
    for missing in result.missing:
        near = f" Near: {', '.join(missing.near)}." if missing.near else ""
        yield f"There is no tool {missing.name!r}.{near}"
    if not result.hits and not result.missing:
        yield f"No tool found for {result.query.text!r}. {ASK_AGAIN}"
    elif shown and all(hit.confidence == "weak" for hit in answer.hits):
        yield f"Nothing fits well; these are guesses. {ASK_AGAIN}"
    if shown < len(result.hits):
        yield f"Weaker hits not shown: {len(result.hits) - shown}. Add --all to see them."
    lists = not (result.query.words or result.query.required)
    if lists and result.total > len(result.hits):
        yield f"Shown: {shown} of {result.total}. Raise --limit to see more."


def _corrections(answer: Answer) -> Iterator[str]:
    for typed, read in answer.result.corrected.items():
        yield f"Read {typed!r} as {read!r}."


def _because(hit: "Hit") -> str:
    """Return the reasons for a hit on one line; each word counts where it says most."""
    why = hit.why
    told: set[str] = set()
    reasons: list[str] = []
    for field, words in why.matched.items():
        fresh = [word for word in words if word not in told]
        told.update(fresh)
        if fresh:
            reasons.append(f"{', '.join(map(repr, fresh))} in its {field}")
    signals = [s for s, share in falling(why.shares) if share >= SMALL_SHARE]
    reasons += [signal for signal in signals if signal not in WORD_SIGNALS]
    return "; ".join(reasons) or "a little of everything"


def falling(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the signals that speak for a hit, the strongest first."""
    return sorted(((s, share) for s, share in shares.items() if share > 0), key=lambda p: -p[1])


def _savings(answers: Sequence[Answer]) -> str:
    from toolscout.tokens import count_definition_tokens

    # A model also reads the whole definition of the tool that it goes on to call.
    called = {answer.hits[0].tool for answer in answers if answer.hits}
    read = sum(answer.reply_tokens for answer in answers) + sum(
        map(count_definition_tokens, called)
    )
    first = answers[0]
    return (
        f"These {len(answers)} replies and the full definitions of their first tools: {read:,} "
        f"tokens. All {first.tools:,} definitions: {first.definition_tokens:,} tokens. "
        f"Saved: {1 - read / first.definition_tokens:.0%} (estimated)."
    )
