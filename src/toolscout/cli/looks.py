"""How answers to a search are laid out: in colour and within the window, or plain for a pipe.

Takes `Answer` values and gives renderables of rich; searching is the part of `search`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolscout.cli.output import indented, styled

if TYPE_CHECKING:
    from rich.console import RenderableType

    from toolscout.search.hits import Hit, Result

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
                name, sentence = hit.tool.name, hit.tool.first_sentence()
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
            arguments = styled((hit.tool.signature().removeprefix(hit.tool.name), "dim"))
            sentence = styled((hit.tool.first_sentence(), ""))
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
    from toolscout.tokens import definition_tokens

    # A model also reads the whole definition of the tool that it goes on to call.
    called = {answer.hits[0].tool for answer in answers if answer.hits}
    read = sum(answer.reply_tokens for answer in answers) + sum(map(definition_tokens, called))
    first = answers[0]
    return (
        f"These {len(answers)} replies and the full definitions of their first tools: {read:,} "
        f"tokens. All {first.tools:,} definitions: {first.definition_tokens:,} tokens. "
        f"Saved: {1 - read / first.definition_tokens:.0%} (estimated)."
    )
