"""Searches inside agent SDKs, compared on what their model receives."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pytest

from benchmarks.sdks import SEATS, Received, Seat, compare_sdks, plain, tabulate_comparison
from benchmarks.systems import MissingPeer
from toolscout import Tool
from toolscout.errors import MissingExtra, UsageError
from toolscout.evaluate.datasets import Dataset, Question
from toolscout.tokens import count_tokens

TOOLS = tuple(
    Tool.define(name, description=text, input_schema={"type": "object", "properties": {}})
    for name, text in (
        ("refund_order", "Pay the money for an order back to the customer."),
        ("track_parcel", "Tell where a parcel is."),
        ("book_flight", "Book a flight between two airports."),
        ("translate_text", "Translate a text into another language."),
        ("open_safe", "Open the safe with a code."),
    )
)
QUESTIONS = (
    Question(id="1", text="refund the money of an order", relevant=("refund_order",)),
    Question(id="2", text="where is my parcel", relevant=("track_parcel",)),
)


def dataset(name: str = "shop", *questions: Question) -> Dataset:
    return Dataset(
        name=name,
        tools=TOOLS,
        ids=tuple(tool.name for tool in TOOLS),
        groups=tuple(range(len(TOOLS))),
        queries=questions or QUESTIONS,
    )


@dataclass
class Fixed:
    """A seat that gives the same answer to everything."""

    answer: list[str]

    def names(self, received: Received) -> list[str]:
        return received.reply.split()

    async def ask(self, query: str, *, deep: bool) -> Received:
        shown = self.answer if deep else self.answer[:1]
        tools: list[dict[str, Any]] = [{"name": name} for name in shown]
        return Received(reply=" ".join(shown), tools=tools, started=1.0, ended=1.25)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


def fixed(*answer: str) -> Callable[[Sequence[Tool]], Seat]:
    return lambda tools: Fixed(list(answer))


def absent(tools: Sequence[Tool]) -> Seat:
    raise MissingPeer("haystack", package="haystack-ai")


def test_ranking_is_judged_at_ten_hits_and_cost_at_the_usual_number():
    makers = {"sdk": {"its own": fixed("track_parcel", "refund_order", "unknown")}}
    found = compare_sdks([dataset(), dataset("other", QUESTIONS[1])], makers=makers)
    shop, other = found.datasets["shop"]["sdk"], found.datasets["other"]["sdk"]

    assert shop["its own"].ndcg == pytest.approx((1 + 1 / 1.5849625) / 2)
    assert other["its own"].ndcg == 1.0
    assert found.macro["sdk"]["its own"].ndcg == pytest.approx((shop["its own"].ndcg + 1) / 2)
    assert shop["its own"].milliseconds == 250.0
    cost = count_tokens("track_parcel") + count_tokens('{"name":"track_parcel"}')
    assert shop["its own"].tokens == cost


def test_what_is_not_installed_is_left_out_and_named():
    makers = {"one": {"its own": fixed("track_parcel")}, "two": {"its own": absent}}
    found = compare_sdks([dataset()], makers=makers)

    assert list(found.macro) == ["one"]
    assert "haystack-ai" in found.missing["two: its own"]
    assert found.to_json()["macro"]["one"]["its own"]["ms"] == 250.0


def test_tables_have_a_row_for_each_search_and_each_dataset():
    makers = {"sdk": {"its own": fixed("track_parcel"), "ours": fixed("refund_order")}}
    macro, ndcg, *_ = tabulate_comparison(compare_sdks([dataset()], makers=makers))

    assert [row[0] for row in macro.rows] == ["sdk: its own", "sdk: ours"]
    assert ndcg.rows == (("shop", "0.500", "0.500"), ("macro", "0.500", "0.500"))


def test_nothing_to_compare_is_refused():
    with pytest.raises(UsageError, match="No SDK is installed"):
        compare_sdks([dataset()], makers={"two": {"its own": absent}})
    with pytest.raises(UsageError, match="nothing to ask"):
        compare_sdks([])


def test_words_stay_words_where_toolscout_would_read_operators():
    assert plain("-x /tmp +now select:name at 10:30") == "x tmp now select: name at 10: 30"


@pytest.mark.parametrize(
    ("sdk", "search"), [(sdk, search) for sdk, searches in SEATS.items() for search in searches]
)
def test_a_search_in_its_sdk_gives_the_model_the_tool_that_fits(sdk: str, search: str):
    try:
        seat = SEATS[sdk][search](TOOLS)
    except (MissingPeer, MissingExtra) as missing:
        pytest.skip(str(missing))

    async def ask() -> tuple[Received, Received]:
        async with seat:
            usual = await seat.ask("refund the money of an order", deep=False)
            return usual, await seat.ask("refund the money of an order", deep=True)

    usual, deep = asyncio.run(ask())

    assert seat.names(usual)[0] == seat.names(deep)[0] == "refund_order"
    assert len(seat.names(usual)) <= len(seat.names(deep))
    assert usual.tokens > 0
    assert usual.seconds > 0
    assert usual.tools
