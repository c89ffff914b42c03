"""The scripts of the contract: what the model does, and what each request must then contain.

A scenario is a list of turns, each a list of steps. A new agent plays each turn from the state
that the previous one saved. Nothing here knows an SDK or a dialect.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from adapters.moves import Move, calls_of
from adapters.provider import Provider
from adapters.specs import FAILURE, SPECS, Ledger
from adapters.surfaces import Agent, Case, Errand, Maker, Voice, voice_of
from adapters.wires.requests import Request

FIRST = Errand(
    query="refund an invoice",
    name="refund_invoice",
    arguments={"invoice_id": "inv-7", "amount": 500},
)
SECOND = Errand(
    query="translate a contract into another language",
    name="translate_contract",
    arguments={"contract_id": "con-3", "language": "german"},
)
THIRD = Errand(
    query="audit the past of a gift card",
    name="audit_gift_card",
    arguments={"gift_card_id": "gc-1", "period": {"first": "2026-03-01", "last": "2026-03-31"}},
)
NEVER_FOUND = Errand(
    query="restart a database",
    name="restart_database",
    arguments={"database_id": "db-2", "manner": "gently"},
)
FIRST_AGAIN = replace(FIRST, arguments={"invoice_id": "inv-8", "amount": 700})
FIRST_WRONG = replace(FIRST, arguments={"invoice_id": "inv-7", "amount": "lots"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One move, and what follows from it."""

    move: Move
    label: str
    """What the step is, for messages."""
    loads: tuple[str, ...] = ()
    """Tools that the model has from then on."""
    answers: tuple[str, ...] = ()
    """One of these must be in the text of the result; nothing is asked of an empty tuple."""
    text: str = ""
    """What ends the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a scenario did."""

    case: Case
    steps: list[Step]
    requests: list[Request]
    ledger: Ledger

    def place(self, at: int) -> str:
        """Return which request is meant, for messages."""
        before = f"after {self.steps[at - 1].label}" if at else "the first"
        return f"Request {at + 1} of {len(self.requests)} ({before})"

    def loaded(self, at: int) -> list[str]:
        """Return what the model has found before a request, in order."""
        return list(dict.fromkeys(name for step in self.steps[:at] for name in step.loads))

    def new_results(self, at: int) -> list[str]:
        """Return the results that a request has and the one before it has not."""
        results = self.case.surface.results
        known = set(results(self.requests[at - 1])) if at else set[str]()
        return [text for id_, text in results(self.requests[at]).items() if id_ not in known]


def search(case: Case, errand: Errand) -> Step:
    """Return the step that finds an errand's tool."""
    return Step(
        move=case.search(errand),
        label=f"the search for {errand.name}",
        loads=(errand.name,),
        answers=(errand.name,),
    )


def do(case: Case, errand: Errand, again: str = "") -> Step:
    """Return the step that does an errand."""
    first = next(iter(errand.arguments.values()))
    done = f"{errand.name} done: {first}"
    return Step(move=case.do(errand), label=f"the {again}call of {errand.name}", answers=(done,))


def do_unfound(case: Case, errand: Errand) -> Step:
    """Return the step that calls a tool that was never found; the answer says to search."""
    label = f"the call of {errand.name}, which was never found"
    return Step(move=case.do_unfound(errand), label=label, answers=(case.search_name,))


def final(case: Case, text: str) -> Step:
    """Return the step that ends a turn."""
    return Step(move=case.surface.final(text), label="the final text", text=text)


def errands(case: Case) -> list[list[Step]]:
    """Return the main conversation: two errands and a refusal; then, resumed, two more."""
    first = [search(case, FIRST), do(case, FIRST), search(case, SECOND), do(case, SECOND)]
    first += [do_unfound(case, NEVER_FOUND), final(case, "Both errands are done.")]
    second = [do(case, FIRST_AGAIN, "second "), search(case, THIRD), do(case, THIRD)]
    return [first, [*second, final(case, "These are done as well.")]]


def mistakes(case: Case) -> list[list[Step]]:
    """Return a conversation with arguments that do not fit and a tool that raises."""
    wrong = Step(
        move=case.do(FIRST_WRONG), label="the call with a wrong 'amount'", answers=("amount",)
    )
    failed = Step(
        move=case.do(SECOND),
        label="the call of a tool that raises",
        answers=(FAILURE, "error", "fail"),
    )
    steps = [search(case, FIRST), wrong, do(case, FIRST), search(case, SECOND), failed]
    if case.surface.tool_errors == "reported":
        steps.append(final(case, "One of two is done."))
    return [steps]


def side_by_side(case: Case) -> list[list[Step]]:
    """Return a conversation whose calls come in pairs."""
    both = (FIRST.name, SECOND.name)
    searches = Step(
        move=[case.search(FIRST), case.search(SECOND)],
        label="two searches at once",
        loads=both,
        answers=both,
    )
    calls = Step(move=[case.do(FIRST), case.do(SECOND)], label="two calls at once", answers=both)
    return [[searches, calls, final(case, "Both are done.")]]


def play(case: Case, turns: Sequence[Sequence[Step]], ledger: Ledger) -> Played:
    """Play turns, each with a new agent that goes on from what the one before saved."""
    steps = [step for turn in turns for step in turn]
    with Provider([step.move for step in steps]) as provider, Asking() as asking:
        saved: object | None = None
        for number, turn in enumerate(turns, 1):
            agent = case.maker(SPECS, ledger, provider.base_url, saved)
            said = asking(agent, case.voice, f"Please do the errands of list {number}.")
            expected = turn[-1].text
            assert said.strip() == expected, (
                f"Turn {number}: {case.voice} returned {said!r}; the model said {expected!r}."
            )
            saved = agent.saved()
    return Played(case=case, steps=steps, requests=provider.requests, ledger=ledger)


def play_to_the_error(case: Case, turns: Sequence[Sequence[Step]], ledger: Ledger) -> Played:
    """Play a turn that must end in the exception of a tool."""
    raised: Exception | None = None
    steps = [step for turn in turns for step in turn]
    with Provider([step.move for step in steps]) as provider, Asking() as asking:
        agent = case.maker(SPECS, ledger, provider.base_url, None)
        try:
            asking(agent, case.voice, "Please do the errands of list 1.")
        except Exception as error:
            raised = error
    assert raised is not None, "A tool raised; the agent was expected to let it out and did not."
    trace = "".join(traceback.format_exception(raised))
    assert FAILURE in trace, f"A tool raised {FAILURE!r}; the agent raised something else:\n{trace}"
    return Played(case=case, steps=steps, requests=provider.requests, ledger=ledger)


class Asking:
    """Asks agents by any voice; coroutines run in one loop, as an SDK's clients expect."""

    def __enter__(self) -> "Asking":
        self._runner = asyncio.Runner()
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def __call__(self, agent: Agent, voice: Voice, message: str) -> str:
        """Return the agent's last text."""
        if voice == "ask":
            return agent.ask(message)
        answer = voice_of(agent, voice)(message)
        return answer if isinstance(answer, str) else self._runner.run(_await(answer))


async def _await(answer: Awaitable[str]) -> str:
    return await answer


def plain_definitions(case: Case, plain: Maker) -> dict[str, dict[str, Any]]:
    """Return what the SDK sends for the errands' tools without toolscout, by name."""
    wanted = {FIRST.name, SECOND.name, THIRD.name}
    specs = [spec for spec in SPECS if spec.name in wanted]
    with Provider([case.surface.final("Nothing to do.")]) as provider:
        plain(specs, Ledger(), provider.base_url, None).ask("Hello.")
    sent = {entry.name: entry.sent for entry in provider.requests[0].definitions}
    return {name: definition for name, definition in sent.items() if name in wanted}


def calls_in(move: Move) -> int:
    """Return how many results a move asks for."""
    assert not callable(move)
    return len(calls_of(cast("Any", move)))
