"""The contract that every adapter keeps, checked on the requests that reach the provider.

A test of an SDK writes a `Maker` and calls the checks with the adapter's mode and dialect. Each
check plays scripts through the provider and raises an `AssertionError` that names the request and
what it should have contained. `test_adapters_plain.py` is the smallest example.
"""

import asyncio
import json
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from adapters import expectations, scenarios
from adapters.moves import Action, Move
from adapters.provider import Provider
from adapters.scenarios import FIRST, SECOND, THIRD, Played
from adapters.specs import SPECS, Ledger, Spec, ToolFailure
from adapters.surfaces import (
    Agent,
    Case,
    DialectName,
    Errand,
    Maker,
    Mode,
    Surface,
    voice_of,
)
from adapters.wires.requests import Request

__all__ = [
    "SPECS",
    "Agent",
    "Errand",
    "Ledger",
    "Maker",
    "Mode",
    "Spec",
    "Surface",
    "ToolFailure",
    "check_async",
    "check_concurrent_conversations",
    "check_contract",
    "check_streaming",
    "check_two_conversations_do_not_share",
]

REPORT_VARIABLE = "TOOLSCOUT_CONTRACT_REPORT"
"""Names the file to which passed checks are written, one to a line."""
MEETING_SECONDS = 20.0
ANN, BOB = "Errand of Ann", "Errand of Bob"


def check_contract(
    maker: Maker,
    *,
    mode: Mode,
    dialect: DialectName,
    surface: Surface | None = None,
    plain: Maker | None = None,
) -> None:
    """Check a conversation that is saved and resumed, slips of the model, and calls in pairs.

    `plain` makes the SDK's agent without toolscout: found tools must then have the very
    definition that the SDK sends without it. In mode `bridge` none is sent, and none compared.
    """
    case = Case(maker=maker, mode=mode, dialect=dialect, surface=surface or Surface())
    played = _check_errands(case)
    if plain is not None and mode != "bridge":
        expectations.expect_definitions(played, scenarios.plain_definitions(case, plain))
    _check_mistakes(case)
    _check_pairs(case)
    _note_passed("contract", case)


def check_streaming(
    maker: Maker, *, mode: Mode, dialect: DialectName, surface: Surface | None = None
) -> None:
    """Check that `ask_streaming` streams, keeps the contract and sends what `ask` sends."""
    case = Case(maker=maker, mode=mode, dialect=dialect, surface=surface or Surface())
    streamed = _check_voice(replace(case, voice="ask_streaming"))
    for at, request in enumerate(streamed.requests):
        assert _is_stream(request), f"{streamed.place(at)}: ask_streaming asked for no stream."
    _note_passed("streaming", case)


def check_async(
    maker: Maker, *, mode: Mode, dialect: DialectName, surface: Surface | None = None
) -> None:
    """Check that `ask_async` keeps the contract and sends what `ask` sends."""
    case = Case(maker=maker, mode=mode, dialect=dialect, surface=surface or Surface())
    _check_voice(replace(case, voice="ask_async"))
    _note_passed("async", case)


def check_two_conversations_do_not_share(
    maker: Maker, *, mode: Mode, dialect: DialectName, surface: Surface | None = None
) -> None:
    """Check that a conversation cannot call what an earlier one has found.

    The second is `agent.another()` where the agent has it, and a new agent otherwise.
    """
    case = Case(maker=maker, mode=mode, dialect=dialect, surface=surface or Surface())
    end, ledger = case.surface.final, Ledger()
    ann = [case.search(FIRST), case.do(FIRST), end("Ann is served.")]
    ann += [case.do(FIRST), case.do_unfound(SECOND), end("Ann is served again.")]
    bob = [case.search(SECOND), case.do_unfound(FIRST), case.do(SECOND), end("Bob is served.")]
    with Provider({ANN: ann, BOB: bob}) as provider:
        first, second = _two_agents(case, ledger, provider.base_url)
        first.ask(f"{ANN}: {FIRST.query}.")
        second.ask(f"{BOB}: {SECOND.query}.")
        first.ask(f"{ANN}: {FIRST.query} once more.")

    expectations.expect_ledger(ledger, [FIRST, SECOND, FIRST])
    _expect_foreign_refused(case, provider.requests[5], FIRST, "Bob")
    _expect_foreign_refused(case, provider.requests[-1], SECOND, "Ann")
    _note_passed("two conversations", case)


def check_concurrent_conversations(
    maker: Maker, *, mode: Mode, dialect: DialectName, surface: Surface | None = None
) -> None:
    """Check the same for two conversations at the same time.

    Each waits with its next move until the other has searched too. They run in one event loop
    where the agent has `ask_async`, and in two threads otherwise.
    """
    case = Case(maker=maker, mode=mode, dialect=dialect, surface=surface or Surface())
    ledger, meeting = Ledger(), threading.Barrier(2, timeout=MEETING_SECONDS)
    ann = _meeting_script(case, FIRST, SECOND, meeting)
    bob = _meeting_script(case, SECOND, FIRST, meeting)
    with Provider({ANN: ann, BOB: bob}) as provider:
        agents = _two_agents(case, ledger, provider.base_url)
        _ask_at_once(agents, [f"{ANN}: {FIRST.query}.", f"{BOB}: {SECOND.query}."])

    expectations.expect_ledger(ledger, [FIRST, SECOND], ordered=False)
    _note_passed("concurrent conversations", case)


def _check_errands(case: Case) -> Played:
    ledger = Ledger()
    played = scenarios.play(case, scenarios.errands(case), ledger)
    expectations.expect_tools(played)
    expectations.expect_results(played)
    expectations.expect_ledger(ledger, [FIRST, SECOND, scenarios.FIRST_AGAIN, THIRD])
    return played


def _check_mistakes(case: Case) -> None:
    ledger, turns = Ledger(failing={SECOND.name}), scenarios.mistakes(case)
    is_reported = case.surface.tool_errors == "reported"
    play = scenarios.play if is_reported else scenarios.play_to_the_error
    played = play(case, turns, ledger)
    expectations.expect_tools(played)
    expectations.expect_results(played)
    expectations.expect_ledger(ledger, [FIRST])


def _check_pairs(case: Case) -> None:
    ledger = Ledger()
    played = scenarios.play(case, scenarios.side_by_side(case), ledger)
    # An SDK may run both at once, so either may be the first to be loaded.
    expectations.expect_tools(played, ordered=False)
    expectations.expect_results(played)
    expectations.expect_ledger(ledger, [FIRST, SECOND], ordered=False)


def _check_voice(case: Case) -> Played:
    asked = scenarios.play(replace(case, voice="ask"), scenarios.errands(case), Ledger())
    played = _check_errands(case)
    expectations.expect_same_requests(played, asked, f"{case.voice} against ask")
    return played


def _is_stream(request: Request) -> bool:
    return request.body.get("stream") is True or "streamGenerateContent" in request.path


def _two_agents(case: Case, ledger: Ledger, base_url: str) -> tuple[Agent, Agent]:
    first = case.maker(SPECS, ledger, base_url, None)
    another = getattr(first, "another", None)
    return first, another() if another else case.maker(SPECS, ledger, base_url, None)


def _expect_foreign_refused(case: Case, request: Request, errand: Errand, whose: str) -> None:
    results = list(case.surface.results(request).values())
    refusal = results[-1]
    assert case.search_name in refusal and "done" not in refusal, (
        f"{whose} called {errand.name!r}, which only the other conversation found. Expected a "
        f"result that refuses and mentions {case.search_name!r}, sent {refusal[:200]!r}."
    )


def _meeting_script(
    case: Case, mine: Errand, other: Errand, meeting: threading.Barrier
) -> list[Move]:
    def do_once_both_have_searched(request: Request) -> Action:
        meeting.wait()
        return case.do(mine)

    end = case.surface.final(f"Done: {mine.name}.")
    return [case.search(mine), do_once_both_have_searched, case.do_unfound(other), end]


def _ask_at_once(agents: Sequence[Agent], messages: Sequence[str]) -> None:
    pairs = list(zip(agents, messages, strict=True))
    if all(hasattr(agent, "ask_async") for agent in agents):

        async def ask_both() -> None:
            asked = (voice_of(agent, "ask_async")(message) for agent, message in pairs)
            await asyncio.gather(*(one for one in asked if not isinstance(one, str)))

        asyncio.run(ask_both())
        return
    with ThreadPoolExecutor(len(pairs)) as pool:
        for asked in [pool.submit(agent.ask, message) for agent, message in pairs]:
            asked.result()


def _note_passed(check: str, case: Case) -> None:
    """Tell the report of environments that a check was passed."""
    path = os.environ.get(REPORT_VARIABLE)
    if path:
        line = json.dumps({"check": check, "mode": case.mode, "dialect": case.dialect})
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
