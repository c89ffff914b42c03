"""Sheets: what a search tells the model, within a token budget.

Takes what each query found and what else is to be said, as values; gives the text and which of
the hits it shows. Nothing is decided here but what to leave out when room is short: definitions
first, then optional parameters, sentences, signatures and hits, the best hit last; a signature
that is shown has all required parameters (R40).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from toolscout.names import one_line
from toolscout.search.hits import Confidence, Hit, Missing
from toolscout.sessions.replies import LISTED, hit_line, some_names, told_whole
from toolscout.tokens import count_tokens
from toolscout.tools import Tool

QUERY_CHARS = 80
REASON_CHARS = 120
ERROR_CHARS = 600
REMEMBERED_LINES = 5_000
MISSING_LISTED = 20
"""Unknown names of one query that get a line with near names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one query of a search found."""

    query: str
    hits: tuple[Hit, ...] = ()
    """To be shown and not callable before."""
    known: tuple[Hit, ...] = ()
    """Found, but callable already (R43)."""
    winners: tuple[Tool, ...] = ()
    """Those of the hits that are sure enough for their whole definition."""
    missing: tuple[Missing, ...] = ()
    corrected: Mapping[str, str] = field(default_factory=dict[str, str])
    further: int = 0
    """Tools that a list query names beyond its limit."""
    error: str = ""
    code: str = "ok"
    loads: frozenset[str] = frozenset()
    """Those of the hits that the session loads."""
    discovers: bool = False
    """Whether the query was to show tools without making them callable."""
    failed: frozenset[str] = frozenset()
    """Servers whose tools cannot be called now."""

    @property
    def is_fruitless(self) -> bool:
        """Whether nothing was found that is worth a call."""
        sure = any(hit.confidence is not Confidence.WEAK for hit in self.hits)
        return not (sure or self.known or self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a reply says besides its answer."""

    notes: tuple[str, ...] = ()
    """What was read otherwise than written: a clamped limit, a name in another case."""
    news: tuple[str, ...] = ()
    """What happened to loaded tools: evicted, gone, changed."""
    pending: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    """Servers and why."""
    servers: tuple[tuple[str, int], ...] = ()
    """What exists, most tools first; told where a search found nothing."""
    next_step: str = ""


class Written(NamedTuple):
    """What a search tells: its text, and what of the answers found room in it."""

    text: str
    hits: tuple[Hit, ...]
    described: tuple[str, ...]


class _Part:
    """A piece of the reply in ever shorter forms; the last may be empty."""

    __slots__ = ("_at", "_forms", "cost", "hit", "text", "tool")

    def __init__(
        self, forms: tuple[str, ...], hit: Hit | None = None, tool: Tool | None = None
    ) -> None:
        self.hit, self.tool = hit, tool
        self._forms = forms
        self._take(0)

    def _take(self, at: int) -> None:
        self._at, self.text = at, self._forms[at]
        self.cost = count_tokens(self.text) + 1 if self.text else 0

    def shorten(self, *, away: bool) -> None:
        """Take the next form; the empty one only where the part may go away."""
        further = self._forms[self._at + 1 :]
        if further and (further[0] or away):
            self._take(self._at + 1)


def written(
    answers: Sequence[Answer], situation: Situation, budget: int, *, detail: str = "signatures"
) -> Written:
    """Return what a search tells within a budget; hits that found no room are not shown."""
    sheet = _Sheet(answers, situation, detail)
    text = sheet.fitted(budget)
    hits = tuple([part.hit for part in sheet.lines if part.hit is not None and part.text])
    told = tuple([part.tool.name for part in sheet.schemas if part.tool is not None and part.text])
    return Written(text, hits, told)


_LEFT_OFF_TOKENS = 40
_FORM_LIMIT = 5
"""More forms than any part has."""


class _Sheet:
    """The parts of a search reply, and the order in which they give way."""

    def __init__(self, answers: Sequence[Answer], situation: Situation, detail: str) -> None:
        self.lines: list[_Part] = []
        self.schemas: list[_Part] = []
        self._heads: list[_Part] = []
        self._asides: list[_Part] = []
        self._order: list[_Part] = []
        self._told: set[str] = set()
        self._next = situation.next_step
        for number, answer in enumerate(answers, 1):
            self._add_answer(number, answer, detail)
        for tool in dict.fromkeys(tool for answer in answers for tool in answer.winners):
            self._add(self.schemas, _Part((told_whole(tool), ""), None, tool))
        for text in _asides(situation):
            self._add(self._asides, _aside(text, one_line(text, 60)))

    def _add_answer(self, number: int, answer: Answer, detail: str) -> None:
        self._add(self._heads, _Part(_heads(number, answer)))
        for hit in answer.hits:
            mark = f" [{hit.confidence}{reserve(hit, answer)}]"
            short = detail == "names" or hit.tool.name in self._told
            forms = (f"- {hit.tool.name}{mark}", "") if short else _forms(hit.tool, mark)
            self._add(self.lines, _Part(forms, hit))
            self._told.add(hit.tool.name)
        for forms in _remarks(answer):
            self._add(self._asides, _aside(*forms))

    def _add(self, kind: list[_Part], part: _Part) -> None:
        kind.append(part)
        self._order.append(part)

    def fitted(self, budget: int) -> str:
        """Return the text, each part in the longest form that the whole has room for."""
        cost = count_tokens(self._next) + _LEFT_OFF_TOKENS
        for part in self._order:
            cost += part.cost
        # Parts cost at least as much alone as together; the whole is counted when it may fit.
        if cost <= budget and count_tokens(text := self._text()) <= budget:
            return text
        for part, away in self._yielding():
            cost -= part.cost
            part.shorten(away=away)
            cost += part.cost
            if cost <= budget and count_tokens(text := self._text()) <= budget:
                return text
        return self._text()

    def _yielding(self) -> Iterator[tuple[_Part, bool]]:
        """Yield parts in the order in which each is to give way by one form, or to go."""
        best, others = self.lines[:1], self.lines[1:]
        stages = [(self.schemas, True), *[(self.lines, False)] * _FORM_LIMIT]
        stages += [(self._asides, False), (others, True), (self._asides, True)]
        stages += [*[(self._heads, True)] * _FORM_LIMIT, (best, True)]
        for parts, away in stages:
            yield from ((part, away) for part in reversed(parts))

    def _text(self) -> str:
        texts = [part.text for part in self._order if part.text]
        shown = {part.hit.tool.name for part in self.lines if part.hit is not None and part.text}
        if len(shown) < len(self._told):
            texts.append(
                f"Left off for length: {len(self._told) - len(shown):,}. "
                "Ask with a larger max_tokens, detail 'names' or fewer queries."
            )
        untold = sum(1 for part in self.schemas if not part.text)
        if untold:
            texts.append(f"Definitions left off for length: {untold:,}. tool_describe has them.")
        if self._next:
            texts.append(self._next)
        return "\n".join(texts)


def _aside(*forms: str) -> _Part:
    return _Part((*dict.fromkeys(forms), ""))


def _heads(number: int, answer: Answer) -> tuple[str, ...]:
    asked = repr(one_line(answer.query, QUERY_CHARS))
    last = f"Query {number}."
    if answer.error:
        return one_line(answer.error, ERROR_CHARS), one_line(answer.error, QUERY_CHARS), last
    if not answer.hits:
        known = f"Nothing new for {asked}." if answer.known else f"No tool found for {asked}."
        return ("",) if answer.missing else (known, last)
    if answer.is_fruitless:
        return f"Nothing fits {asked} well. Guesses:", last
    return f"Found for {asked}:", last


def _lines(tool: Tool) -> tuple[str, ...]:
    """Return a tool in ever shorter lines; the last may have no parameters."""
    short = tool.signature(optional=0)
    lines = (hit_line(tool), hit_line(tool, optional=0), short)
    bare = f"{tool.name} (tool_describe tells its parameters)"
    return (*dict.fromkeys(lines), *((bare,) if len(bare) < len(short) else ()))


@lru_cache(maxsize=REMEMBERED_LINES)
def _forms(tool: Tool, mark: str) -> tuple[str, ...]:
    return (*(f"- {line}{mark}" for line in _lines(tool)), "")


def reserve(hit: Hit, answer: Answer) -> str:
    """Return what speaks against a call of a hit."""
    if hit.tool.server in answer.failed:
        return ", unavailable"
    # A weak hit is accepted by tool_call all the same; that another is not loaded is news.
    is_offered = hit.confidence is Confidence.WEAK and not answer.discovers
    return "" if is_offered or hit.tool.name in answer.loads else ", not loaded"


def _remarks(answer: Answer) -> Iterator[tuple[str, ...]]:
    if answer.corrected:
        pairs = [f"{one_line(a, 60)!r} as {one_line(b, 60)!r}" for a, b in answer.corrected.items()]
        yield (f"Read {', '.join(pairs[:LISTED])}.",)
    for missing in answer.missing[:MISSING_LISTED]:
        absent = f"There is no tool {one_line(missing.name, 64)!r}."
        near = f" Near: {', '.join(missing.near)}." if missing.near else ""
        yield f"{absent}{near}", absent
    if len(answer.missing) > MISSING_LISTED:
        yield (f"{len(answer.missing) - MISSING_LISTED:,} more names were not found.",)
    if answer.known:
        names = [f"{h.tool.name}{_unavailable(h, answer)}" for h in answer.known]
        yield f"Already loaded: {some_names(names)}.", f"Already loaded: {len(names):,}."
    if answer.further:
        yield (f"{answer.further:,} more match; narrow the query or raise limit.",)


def _unavailable(hit: Hit, answer: Answer) -> str:
    return " (unavailable)" if hit.tool.server in answer.failed else ""


def _asides(situation: Situation) -> Iterator[str]:
    yield from situation.notes
    yield from situation.news
    if situation.pending:
        told = [one_line(server, 60) for server in situation.pending]
        yield f"Still connecting, may have more: {some_names(told)}."
    if situation.failed:
        told = [f"{one_line(s, 60)} ({one_line(r, REASON_CHARS)})" for s, r in situation.failed]
        yield f"Failed to connect: {some_names(told)}."
    if situation.servers:
        told = [f"{one_line(server, 60)} ({count:,})" for server, count in situation.servers]
        yield f"Servers with tools: {some_names(told)}."
