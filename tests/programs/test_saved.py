"""Saved programs: reviewed, approved by digest, and called like tools."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from toolscout import Catalog, Effect, Policy, Reply, Scout, Session, Settings, Tool
from toolscout.errors import UsageError
from toolscout.programs.saved import (
    SAVED_SERVER,
    SavedProgram,
    approve_program,
    find_program,
    list_approved,
    publish_programs,
    remove_program,
    save_program,
)
from toolscout.schemas import Json
from toolscout.settings import Programs
from toolscout.stores import MemoryStore

PARAMETERS: Json = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
}
TOTAL = SavedProgram(
    name="sum_of_orders",
    description="Add up the totals of the first orders.",
    source="sum(shop__get_order(number=n)['total'] for n in range(count))",
    parameters=PARAMETERS,
    calls=("shop__get_order",),
    by="ann",
)


class Shop:
    """A scout with two tools and saved programs."""

    def __init__(self, *programs: SavedProgram, **options: Any) -> None:
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
        tools = [
            Tool.define("get_order", server="shop", effect=Effect.READ, input_schema=schema),
            Tool.define("get_secret", server="shop", effect=Effect.READ, input_schema=schema),
        ]
        self.made: list[str] = []
        self.scout = Scout(
            Catalog({"shop": tools}),
            executors={"shop": self.execute},
            settings=Settings(
                programs=Programs.from_mapping({"enabled": True, **options}), calls_by_name=True
            ),
        )
        publish_programs(self.scout.catalog, programs)

    async def execute(self, tool: Tool, arguments: Json) -> object:
        self.made.append(tool.leaf)
        return {"total": 10}

    def call(self, name: str, arguments: Json, session: Session | None = None) -> Reply:
        async def work() -> Reply:
            try:
                chosen = session or self.scout.session("a")
                return await chosen.handle("tool_call", {"name": name, "arguments": arguments})
            finally:
                await self.scout.close()

        return asyncio.run(work())


def test_a_saved_program_is_found_and_called_like_a_tool():
    shop = Shop(TOTAL)

    hits = shop.scout.session("a").search("add up order totals").hits
    reply = shop.call("programs__sum_of_orders", {"count": 3})

    assert hits[0].tool.name == "programs__sum_of_orders"
    assert reply.text == "30"
    assert shop.made == ["get_order"] * 3


def test_its_arguments_are_checked_by_its_schema():
    reply = Shop(TOTAL).call("programs__sum_of_orders", {"count": "many"})

    assert reply.code == "invalid_arguments"


def test_a_session_that_may_not_call_everything_it_calls_does_not_see_it():
    shop = Shop(TOTAL)
    limited = shop.scout.session("b", allowed=lambda tool: tool.leaf != "get_order")

    reply = shop.call("programs__sum_of_orders", {"count": 1}, limited)

    names = [hit.tool.name for hit in limited.search("add up order totals").hits]
    assert "programs__sum_of_orders" not in names
    assert limited.find_tool("programs__sum_of_orders") is None
    assert reply.code == "unknown_tool"
    assert shop.made == []


def test_a_program_is_not_found_while_a_tool_that_it_calls_is_missing():
    lost = replace(TOTAL, calls=("shop__get_order", "shop__gone"))
    session = Shop(lost).scout.session("a")

    found = session.search("add up order totals")

    assert "programs__sum_of_orders" not in [hit.tool.name for hit in found.hits]
    assert "sum_of_orders" not in session.get_listing()
    assert session.find_tool("programs__sum_of_orders") is None


def test_it_calls_nothing_that_was_not_approved():
    sly = replace(TOTAL, source="call('shop__get_' + 'secret')")
    shop = Shop(sly)

    reply = shop.call("programs__sum_of_orders", {"count": 1})

    assert "not among the tools that this program was approved to call" in reply.text
    assert shop.made == []


def test_a_program_cannot_run_a_saved_one():
    shop = Shop(TOTAL)

    async def work() -> Reply:
        session = shop.scout.session("a")
        try:
            return await session.run("programs__sum_of_orders(count=1)")
        finally:
            await shop.scout.close()

    assert "a program cannot run another program" in asyncio.run(work()).text
    assert shop.made == []


def test_a_saved_program_may_do_what_the_most_dangerous_of_its_calls_may_do():
    catalog = Catalog(
        {
            "shop": [
                Tool.define("read", server="shop", effect=Effect.READ),
                Tool.define("drop", server="shop", effect=Effect.DESTRUCTIVE),
            ]
        }
    )

    def effect_of(*calls: str) -> Effect:
        return replace(TOTAL, calls=calls).to_tool(catalog).effect

    assert effect_of("shop__read") is Effect.READ
    assert effect_of("shop__read", "shop__drop") is Effect.DESTRUCTIVE
    assert effect_of("shop__gone") is Effect.UNKNOWN


def test_nothing_that_a_server_lists_passes_for_a_saved_program():
    row = {"name": "x", "inputSchema": {"type": "object"}, "program": "1", "kind": "program"}

    assert Tool.from_mcp(row, server=SAVED_SERVER).function is None


def test_only_the_version_that_was_approved_is_used():
    store = MemoryStore()
    first = save_program(store, TOTAL)

    assert list_approved(store) == []
    approve_program(store, TOTAL.name, first.digest, "bob")
    assert list_approved(store) == [first]

    second = save_program(store, replace(TOTAL, source="count"))
    assert (second.version, list_approved(store)) == (2, [first])
    approve_program(store, TOTAL.name, second.digest, "bob")
    assert list_approved(store) == [second]
    assert find_program(store, TOTAL.name)[1]["by"] == "bob"


def test_a_digest_that_no_version_has_is_refused():
    store = MemoryStore()
    save_program(store, TOTAL)

    with pytest.raises(UsageError, match="No version of 'sum_of_orders' has this digest"):
        approve_program(store, TOTAL.name, "0" * 64, "bob")
    assert list_approved(store) == []


def test_a_removed_program_is_gone():
    store = MemoryStore()
    save_program(store, TOTAL)
    remove_program(store, TOTAL.name)

    with pytest.raises(UsageError, match="There is no saved program 'sum_of_orders'"):
        find_program(store, TOTAL.name)


@pytest.mark.parametrize(
    "change", [{"name": "no name"}, {"parameters": {"type": "array"}}, {"parameters": {"a": {1}}}]
)
def test_a_program_with_a_wrong_name_or_schema_is_not_saved(change: Json):
    with pytest.raises(UsageError):
        save_program(MemoryStore(), replace(TOTAL, **change))


def test_a_policy_hides_nothing_from_those_who_may_call_everything():
    shop = Shop(TOTAL)
    shop.scout.policy = Policy(allowed=lambda tool: True)

    assert shop.scout.session("c").search("add up order totals").hits
