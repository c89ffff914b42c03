"""What the contract expects of requests, results and the ledger; failures name the request."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from adapters.scenarios import Played, calls_in
from adapters.specs import SPECS, Ledger
from adapters.surfaces import Case, Errand
from adapters.wires.requests import Request

Json = dict[str, Any]
SHOWN = 6


def expect_tools(played: Played, *, ordered: bool = True) -> None:
    """Expect of every request exactly the tools that its mode says, byte for byte."""
    case, first = played.case, played.requests[0]
    _expect_start(played)
    for at, request in enumerate(played.requests):
        place, loaded = played.place(at), played.loaded(at)
        if case.mode == "native":
            _expect_same(
                place, "tools", _names(first, loaded, request, ordered), request.tool_names
            )
            _expect_grown(played, at)
        else:
            _expect_constant(place, "tools array", first.tools_bytes, request.tools_bytes)
        if case.mode in ("reference", "definitions"):
            sent = request.references if ordered else sorted(request.references)
            expected = loaded if ordered else sorted(loaded)
            _expect_same(place, "tools that results refer to", expected, sent)
        _expect_constant(place, "system prompt", first.system_bytes, request.system_bytes)
        _expect_dialect(place, case, request)


def expect_results(played: Played) -> None:
    """Expect that each call of every step is answered, with the required texts."""
    for at, step in enumerate(played.steps[:-1]):
        if not calls_in(step.move) or step.text:
            continue
        place, results = played.place(at + 1), played.new_results(at + 1)
        _expect_same(place, "number of new results", calls_in(step.move), len(results))
        for result in results:
            assert result.strip(), f"{place}: a result is empty. Send a sentence."
            found = any(part.casefold() in result.casefold() for part in step.answers)
            assert found or not step.answers, (
                f"{place}: expected a result with {' or '.join(map(repr, step.answers))}, "
                f"sent {_short(result)}."
            )


def expect_ledger(ledger: Ledger, errands: Sequence[Errand], *, ordered: bool = True) -> None:
    """Expect that exactly these errands were done, with exactly these arguments."""
    expected = [(errand.name, errand.arguments) for errand in errands]
    done = ledger.calls if ordered else sorted(ledger.calls, key=str)
    expected = expected if ordered else sorted(expected, key=str)
    assert done == expected, (
        f"The tools that ran are not the allowed ones.\n  expected: {expected}\n  ran: {done}"
    )


def expect_same_requests(ours: Played, theirs: Played, what: str) -> None:
    """Expect that two ways to ask the same send the same."""
    _expect_same(what, "number of requests", len(theirs.requests), len(ours.requests))
    for at, (one, other) in enumerate(zip(ours.requests, theirs.requests, strict=True)):
        place = f"{what}, {ours.place(at)}"
        _expect_constant(place, "tools array", other.tools_bytes, one.tools_bytes)
        _expect_constant(place, "system prompt", other.system_bytes, one.system_bytes)
        _expect_same(place, "history", list(_list_history(other)), list(_list_history(one)))


def expect_definitions(played: Played, plain: dict[str, Json]) -> None:
    """Expect of found tools the definition that the SDK sends without toolscout."""
    last = played.requests[-1]
    for name, expected in plain.items():
        definition = last.definition(name)
        assert definition is not None, f"The last request has no definition of {name!r}."
        sent = {key: value for key, value in definition.sent.items() if key != "defer_loading"}
        _expect_same(f"The definition of {name!r}", "JSON", expected, sent)


def _expect_start(played: Played) -> None:
    """Expect the meta-tools, the SDK's additions and the mode's definitions at the start."""
    surface, first = played.case.surface, played.requests[0]
    place = played.place(0)
    always = [*map(surface.rename, surface.meta), *surface.own]
    shown = [name for name in first.tool_names if name not in first.deferred_names]
    _expect_same(place, "tools that are not deferred", sorted(always), sorted(shown))
    deferred = len(SPECS) if played.case.mode == "reference" else 0
    expected = len(always) + deferred if surface.declared is None else surface.declared
    _expect_same(place, "number of definitions", expected, len(first.definitions))


def _names(first: Request, loaded: list[str], request: Request, ordered: bool) -> list[str]:
    """Return the tools that a request is to have; without an order, as it has the found ones."""
    start = first.tool_names
    if ordered or sorted(request.tool_names[len(start) :]) != sorted(loaded):
        return [*start, *loaded]
    return request.tool_names


def _expect_grown(played: Played, at: int) -> None:
    """Expect that the tools of the request before stand at the beginning, byte for byte."""
    if at == 0:
        return
    before, now = (played.requests[i].definitions_bytes for i in (at - 1, at))
    pairs = zip(before, now, strict=False)
    changed = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
    assert changed is None, (
        f"{played.place(at)}: definition {changed} is not the one of the request before.\n"
        f"  before: {_short(before[changed])}\n  sent: {_short(now[changed])}"
    )
    assert len(now) >= len(before), f"{played.place(at)}: lost {len(before) - len(now)} tools."


def _expect_dialect(place: str, case: Case, request: Request) -> None:
    _expect_same(place, "dialect", case.dialect, request.dialect)


def _expect_constant(place: str, what: str, first: bytes, now: bytes) -> None:
    if first == now:
        return
    at = next((i for i, (a, b) in enumerate(zip(first, now, strict=False)) if a != b), 0)
    begin = max(0, at - 40)
    raise AssertionError(
        f"{place}: the {what} changed, and with it the prompt cache is lost "
        f"({len(first)} bytes were sent at first, now {len(now)}; they differ from byte {at} on).\n"
        f"  at first: …{first[begin : at + 120].decode(errors='replace')}…\n"
        f"  now: …{now[begin : at + 120].decode(errors='replace')}…"
    )


def _expect_same(place: str, what: str, expected: object, sent: object) -> None:
    assert sent == expected, (
        f"{place}: {what}\n  expected: {_some(expected)}\n  sent: {_some(sent)}"
    )


def _list_history(request: Request) -> Iterator[object]:
    """Yield a request's history without ids and outer blanks, which an SDK may give itself."""
    history = request.history
    yield from ((role, text.strip()) for role, text in history.said)
    yield from ((made.name, made.arguments) for made in history.calls.values())
    yield from history.results.values()
    yield from history.references


def _some(value: object) -> str:
    if not isinstance(value, list):
        return repr(value)
    listed = cast("list[object]", value)
    if len(listed) <= SHOWN * 2:
        return repr(listed)
    return f"{listed[:SHOWN]} … {listed[-SHOWN:]} ({len(listed)})"


def _short(value: str | bytes) -> str:
    shown = repr(value)
    return shown if len(shown) <= 300 else f"{shown[:300]}…"
