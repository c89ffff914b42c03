"""`Reply`, and the text that the model reads in answer to a meta-tool, within a token budget.

A `Reply` is text for the model plus details from which programs read the same without parsing it
(R42). When room is short, a search reply gives up what servers say first, then definitions,
optional parameters, sentences, signatures and hits, the best hit last; a signature always has all
required parameters (R40).
"""

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from toolscout.calls.cut import cut
from toolscout.calls.results import Page
from toolscout.dialects import Dialect, to_result, to_search_output
from toolscout.names import NAMES_LISTED, list_some, to_error_text, to_one_line
from toolscout.query import Query
from toolscout.schemas import SHOWN_OPTIONAL, Json
from toolscout.search.hits import Confidence, Hit, Missing
from toolscout.tokens import count_tokens
from toolscout.tools import Tool

REMEMBERED_DEFINITIONS = 500
MARK_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to one call of a meta-tool."""

    text: str
    code: str = "ok"
    """Stable: `ok`, or why not (R78)."""
    is_error: bool = False
    details: Json = field(default_factory=dict[str, Any])
    """Plain JSON; what the text says, for programs."""
    hits: tuple[Hit, ...] = ()
    """What a search shows, query by query."""
    known: tuple[Hit, ...] = ()
    """What a search found that is callable already."""
    references: tuple[str, ...] = ()
    """Tools that this reply made callable."""
    described: tuple[str, ...] = ()
    """Tools whose whole definition is in the text."""
    by_reference: bool = False
    """Whether the provider shows the definitions of what was loaded."""
    definitions: tuple[Tool, ...] = ()
    """Tools whose definitions answer a search in place of the text, in mode `definitions`."""
    blocks: tuple[Json, ...] = ()
    """Content of a call's result that is not text: images, links to resources. After several
    calls, a text in front says whose it is."""
    page: Page | None = field(default=None, repr=False, compare=False)
    """What the text shows of a call's result."""

    @property
    def tokens(self) -> int:
        """What the text costs."""
        return count_tokens(self.text)

    @property
    def images(self) -> list[Json]:
        """Those of the blocks that are images, with `data` and `mimeType` as MCP has them."""
        return [block for block in self.blocks if block.get("type") == "image"]

    def to_message(self, dialect: Dialect | str, call_id: str = "") -> Json:
        """Return the reply as a provider's answer to the call of this id."""
        if self.definitions:
            return to_search_output(dialect, call_id, self.definitions)
        return to_result(
            dialect,
            call_id,
            self.text,
            is_error=self.is_error,
            blocks=self.blocks,
            references=self.references if self.by_reference else (),
        )


def render_hit_line(tool: Tool, *, optional: int = SHOWN_OPTIONAL) -> str:
    """Return a tool on one line: signature and first sentence (R39)."""
    sentence = tool.first_sentence
    rest = f" \N{EN DASH} {sentence}" if sentence else ""
    return f"{tool.render_signature(optional=optional)}{rest}"


@lru_cache(maxsize=REMEMBERED_DEFINITIONS)
def render_whole(tool: Tool) -> str:
    """Return a tool's definition for a reply that is about more than it."""
    # What a tool gives back is read when it does; tool_describe has it for those who plan ahead.
    return f"Definition of {tool.name}:\n{render_definition(tool, output=False)}"


def render_definition(tool: Tool, *, output: bool = True) -> str:
    """Return a tool's whole definition as JSON in which nothing opens a tag."""
    definition: Json = {"name": tool.name}
    if tool.description:
        definition["description"] = tool.description
    definition["input_schema"] = tool.input_schema
    if output and tool.output_schema is not None:
        definition["output_schema"] = tool.output_schema
    examples = tool.extras.get("input_examples")
    if examples:
        definition["input_examples"] = examples
    return to_json_text(definition)


# What opens a tag, and what steers a reader who cannot see it (R85).
_UNSAFE = re.compile(
    r"[<\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]"
)


def to_json_text(value: object) -> str:
    """Return compact JSON; `<` and invisible characters are escaped and read back unchanged."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return _UNSAFE.sub(_escape, text.encode("utf-8", "replace").decode())


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def refuse(
    error: Exception,
    *,
    code: str,
    budget: int,
    definition: Tool | None = None,
    can_describe: bool = True,
    details: Json | None = None,
) -> Reply:
    """Return the reply to a call that was not made or did not succeed.

    A definition that has no room gives way to the signature, and that to a way to get it.
    `can_describe` says whether the model has `tool_describe`.
    """
    # Half of the budget at most, so that there is room for what follows.
    text = limit_text(str(error), budget // 2)
    described = ()
    if definition is not None:
        room = budget - count_tokens(text) - 1
        whole = render_whole(definition)
        forms = (whole, f"Signature: {definition.render_signature(optional=0)}")
        fits = next((form for form in forms if count_tokens(form) <= room), "")
        described = (definition.name,) if fits == whole else ()
        way = f"For its parameters: tool_describe with {definition.name!r}." if can_describe else ""
        text = "\n".join(filter(None, (text, fits or way)))
    return Reply(
        text=text,
        code=code,
        is_error=True,
        details={"code": code, "message": str(error)} | (details or {}),
        described=described,
    )


def label_replies(names: Sequence[object], replies: Sequence[Reply]) -> list[str]:
    """Return a line for the reply to each of several calls, with the tool that it is from.

    A number that no tool can know keeps one from writing a line like it into its result.
    """
    mark = secrets.token_hex(MARK_BYTES)
    labels: list[str] = []
    for number, (name, reply) in enumerate(zip(names, replies, strict=True), start=1):
        tool = reply.details.get("tool") or to_one_line(str(name), QUERY_CHARS)
        failed = ", failed" if reply.is_error else ""
        labels.append(f"Result {number} of {len(replies)} ({mark}), {tool}{failed}:")
    return labels


def join_replies(
    names: Sequence[object], replies: Sequence[Reply], notes: Sequence[str] = ()
) -> Reply:
    """Return one reply in place of those to several calls, in their order."""
    labels = label_replies(names, replies)
    parts = [f"{label}\n{reply.text}" for label, reply in zip(labels, replies, strict=True)]
    blocks: list[Json] = []
    for label, reply in zip(labels, replies, strict=True):
        blocks += [{"type": "text", "text": label}, *reply.blocks] if reply.blocks else []
    code = choose_code(replies)
    return Reply(
        text="\n\n".join([*parts, *notes]),
        code=code,
        is_error=all(reply.is_error for reply in replies),
        details={"code": code, "results": [reply.details for reply in replies]},
        references=tuple(dict.fromkeys(name for reply in replies for name in reply.references)),
        described=tuple(dict.fromkeys(name for reply in replies for name in reply.described)),
        blocks=tuple(blocks),
    )


def choose_code(replies: Sequence[Reply]) -> str:
    """Return one code for several calls: that of all of them if it is the same."""
    codes = {reply.code for reply in replies}
    return codes.pop() if len(codes) == 1 else "some_failed"


def limit_text(text: str, budget: int) -> str:
    """Return a text of at most a number of tokens; what is cut ends in `…`."""
    if count_tokens(text) <= budget:
        return text
    return f"{text[: cut(text, 0, max(1, budget - 2))].rstrip()}…"


QUERY_CHARS = 80
REASON_CHARS = 120
SAID_TOKENS = 150
"""How much of a server's instructions a reply quotes."""
ERROR_CHARS = 600
REMEMBERED_LINES = 5_000
MISSING_LISTED = 20
"""Unknown names of one query that get a line with near names."""


@dataclass(slots=True, kw_only=True)
class QueryAnswer:
    """What one query of a search found."""

    query: str
    parsed: Query | None = None
    """None if the query could not be read."""
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
    """What the session loads, known when all queries are answered."""
    discovers: bool = False
    """Whether the query was to show tools without making them callable."""
    failed: frozenset[str] = frozenset()
    """Servers whose tools cannot be called now."""
    declared: frozenset[str] = frozenset()
    """Those of `known` that every request declares, so that the model calls them by name."""

    @property
    def is_fruitless(self) -> bool:
        """Whether nothing was found that is worth a call."""
        sure = any(hit.confidence is not Confidence.WEAK for hit in self.hits)
        return not (sure or self.known or self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyContext:
    """What a reply says besides its answer."""

    notes: tuple[str, ...] = ()
    """What was read otherwise than written: a clamped limit, a name in another case."""
    news: tuple[str, ...] = ()
    """What happened to loaded tools: evicted, gone, changed."""
    pending: tuple[tuple[str, str], ...] = ()
    """Servers that are still connecting, and what keeps them."""
    failed: tuple[tuple[str, str], ...] = ()
    """Servers and why."""
    tells_pending: bool = True
    """Whether the text names the pending ones; not if the conversation has just read of them."""
    tells_failed: bool = True
    servers: tuple[tuple[str, int], ...] = ()
    """What exists, most tools first; listed where a search found nothing."""
    said: Mapping[str, str] = field(default_factory=dict[str, str])
    """Instructions of servers that the conversation has not read, by server."""
    next_step: str = ""


class SearchText(NamedTuple):
    """What a search says: its text, and what of the answers found room in it."""

    text: str
    hits: tuple[Hit, ...]
    described: tuple[str, ...]
    said: Mapping[str, str]
    """The instructions of servers, by server."""


class _Part:
    """A piece of the reply in ever shorter forms; the last may be empty."""

    __slots__ = ("_further", "hit", "text", "tool")

    def __init__(
        self, forms: tuple[str, ...], hit: Hit | None = None, tool: Tool | None = None
    ) -> None:
        self.hit = hit
        self.tool = tool
        self.text, *self._further = forms

    @property
    def cost(self) -> int:
        """How many tokens the part adds to a reply at most."""
        return count_tokens(self.text) + 1 if self.text else 0

    def shorten(self, *, away: bool) -> None:
        """Take the next form; the empty one only where the part may go away."""
        if self._further and (self._further[0] or away):
            self.text, *self._further = self._further


def render_search(
    answers: Sequence[QueryAnswer],
    context: ReplyContext,
    budget: int,
    *,
    detail: str = "signatures",
) -> SearchText:
    """Return what a search says within a budget; hits without room are not shown."""
    layout = ReplyLayout(answers, context, detail)
    text = layout.fit_budget(budget)
    hits = tuple([part.hit for part in layout.lines if part.hit is not None and part.text])
    whole = [part.tool.name for part in layout.schemas if part.tool is not None and part.text]
    shown = zip(context.said.items(), layout.said, strict=True)
    said = {server: words for (server, words), part in shown if part.text}
    return SearchText(text, hits, tuple(whole), said)


def quote_server(server: str, text: str) -> str:
    """Return what a server says about its tools, cut and quoted, so that it reads as data."""
    words = limit_text(" ".join(text.split()), SAID_TOKENS)
    return f"Server {to_one_line(server, 60)} says: {to_json_text(words)}"


_LEFT_OFF_TOKENS = 40
_FORM_LIMIT = 5
"""More forms than any part has."""


class ReplyLayout:
    """The parts of a search reply, and the order in which they give way."""

    def __init__(self, answers: Sequence[QueryAnswer], context: ReplyContext, detail: str) -> None:
        self.lines: list[_Part] = []
        self.schemas: list[_Part] = []
        self.said: list[_Part] = []
        self._heads: list[_Part] = []
        self._asides: list[_Part] = []
        self._order: list[_Part] = []
        self._named: set[str] = set()
        self._next = context.next_step
        for number, answer in enumerate(answers, 1):
            self._add(self._heads, _Part(_render_heads(number, answer)))
            for hit in answer.hits:
                kind = "" if hit.tool.kind == "tool" else f", {to_one_line(hit.tool.kind, 20)}"
                mark = f" [{hit.confidence}{kind}{describe_drawback(hit, answer)}]"
                short = detail == "names" or hit.tool.name in self._named
                forms = (f"- {hit.tool.name}{mark}", "") if short else _render_forms(hit.tool, mark)
                self._add(self.lines, _Part(forms, hit))
                self._named.add(hit.tool.name)
            for forms in _render_remarks(answer):
                self._add(self._asides, _make_aside(*forms))
        for tool in dict.fromkeys(tool for answer in answers for tool in answer.winners):
            self._add(self.schemas, _Part((render_whole(tool), ""), None, tool))
        for server, text in context.said.items():
            self._add(self.said, _Part((quote_server(server, text), "")))
        for text in _render_asides(context):
            self._add(self._asides, _make_aside(text, to_one_line(text, 60)))

    def _add(self, kind: list[_Part], part: _Part) -> None:
        kind.append(part)
        self._order.append(part)

    def fit_budget(self, budget: int) -> str:
        """Return the text, each part in the longest form that the whole has room for."""
        text = self._join()
        # A token has at least one byte, so most replies fit without being counted.
        if len(text.encode("utf-8", "replace")) + _LEFT_OFF_TOKENS <= budget:
            return text
        cost = count_tokens(self._next) + _LEFT_OFF_TOKENS + sum(p.cost for p in self._order)
        # Parts cost at least as much alone as together; the whole is counted when it may fit.
        if cost <= budget and count_tokens(text) <= budget:
            return text
        for part, away in self._order_yielding():
            cost -= part.cost
            part.shorten(away=away)
            cost += part.cost
            if cost <= budget and count_tokens(text := self._join()) <= budget:
                return text
        return self._join()

    def _order_yielding(self) -> Iterator[tuple[_Part, bool]]:
        """Yield parts in the order in which each is to give way by one form, or to go."""
        best, others = self.lines[:1], self.lines[1:]
        stages = [(self.said, True), (self.schemas, True), *[(self.lines, False)] * _FORM_LIMIT]
        stages += [(self._asides, False), (others, True), (self._asides, True)]
        stages += [*[(self._heads, True)] * _FORM_LIMIT, (best, True)]
        for parts, away in stages:
            yield from ((part, away) for part in reversed(parts))

    def _join(self) -> str:
        texts = [part.text for part in self._order if part.text]
        shown = {part.hit.tool.name for part in self.lines if part.hit is not None and part.text}
        if len(shown) < len(self._named):
            texts.append(
                f"Left out for length: {len(self._named) - len(shown):,}. "
                "Raise max_tokens, use detail 'names' or send fewer queries."
            )
        missing = sum(1 for part in self.schemas if not part.text)
        if missing:
            texts.append(f"Definitions left out for length: {missing:,}. Use tool_describe.")
        if self._next:
            texts.append(self._next)
        return "\n".join(texts)


def _make_aside(*forms: str) -> _Part:
    return _Part((*dict.fromkeys(forms), ""))


def _render_heads(number: int, answer: QueryAnswer) -> tuple[str, ...]:
    asked = repr(to_one_line(answer.query, QUERY_CHARS))
    last = f"Query {number}."
    if answer.error:
        return to_one_line(answer.error, ERROR_CHARS), to_one_line(answer.error, QUERY_CHARS), last
    if not answer.hits:
        known = f"Nothing new for {asked}." if answer.known else f"No tool found for {asked}."
        return ("",) if answer.missing else (known, last)
    if answer.is_fruitless:
        return f"Nothing fits {asked} well. Guesses:", last
    return f"Found for {asked}:", last


@lru_cache(maxsize=REMEMBERED_LINES)
def _render_forms(tool: Tool, mark: str) -> tuple[str, ...]:
    """Return a tool in ever shorter lines; the last but one may have no parameters."""
    short = tool.render_signature(optional=0)
    lines = [render_hit_line(tool), render_hit_line(tool, optional=0), short]
    bare = f"{tool.name} (tool_describe shows its parameters)"
    if len(bare) < len(short):
        lines.append(bare)
    return (*(f"- {line}{mark}" for line in dict.fromkeys(lines)), "")


def describe_drawback(hit: Hit, answer: QueryAnswer) -> str:
    """Return what speaks against a call of a hit."""
    if hit.tool.server in answer.failed:
        return ", unavailable"
    # A weak hit is accepted by tool_call all the same; that another is not loaded is news.
    is_offered = hit.confidence is Confidence.WEAK and not answer.discovers
    return "" if is_offered or hit.tool.name in answer.loads else ", not loaded"


def _render_remarks(answer: QueryAnswer) -> Iterator[tuple[str, ...]]:
    if answer.corrected:
        pairs = [
            f"{to_one_line(a, 60)!r} as {to_one_line(b, 60)!r}" for a, b in answer.corrected.items()
        ]
        yield (f"Read {', '.join(pairs[:NAMES_LISTED])}.",)
    for missing in answer.missing[:MISSING_LISTED]:
        absent = f"There is no tool {to_one_line(missing.name, 64)!r}."
        near = f" Near: {', '.join(missing.near)}." if missing.near else ""
        yield f"{absent}{near}", absent
    if len(answer.missing) > MISSING_LISTED:
        yield (f"{len(answer.missing) - MISSING_LISTED:,} more names were not found.",)
    for head, is_declared in (("Already among your tools", True), ("Already loaded", False)):
        names = [
            f"{h.tool.name} (unavailable)" if h.tool.server in answer.failed else h.tool.name
            for h in answer.known
            if (h.tool.name in answer.declared) is is_declared
        ]
        if names:
            yield f"{head}: {list_some(names)}.", f"{head}: {len(names):,}."
    if answer.further:
        yield (f"{answer.further:,} more match; narrow the query or raise limit.",)


def _render_asides(context: ReplyContext) -> Iterator[str]:
    yield from context.notes
    yield from context.news
    if context.pending and context.tells_pending:
        yield f"Still connecting, may have more: {_list_reasons(context.pending)}."
    if context.failed and context.tells_failed:
        yield f"Failed to connect: {_list_reasons(context.failed)}."
    if context.servers:
        names = [f"{to_one_line(server, 60)} ({count:,})" for server, count in context.servers]
        yield f"Servers with tools: {list_some(names)}."


def _list_reasons(servers: Sequence[tuple[str, str]]) -> str:
    names = [
        f"{to_one_line(server, 60)} ({to_error_text(reason, REASON_CHARS)})"
        if reason
        else to_one_line(server, 60)
        for server, reason in servers
    ]
    return list_some(names)
