"""`tool_run`: programs in a session, and the gate that each of their calls passes."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from toolscout import Catalog, Effect, Policy, Reply, Scout, Session, Settings, Tool
from toolscout.policies import Decision
from toolscout.schemas import Json
from toolscout.sessions.events import Called, Event, Ran, Searched
from toolscout.sessions.metatools import RUN, build_run_tool
from toolscout.settings import ProgramEffects, Programs
from toolscout.tokens import count_definition_tokens

TEACHING_TOKENS = 350


class World:
    """Tools of every effect, a scout over them, and what was called."""

    def __init__(self, *, policy: Policy | None = None, **options: Any) -> None:
        self.made: list[tuple[str, Json]] = []
        self.events: list[Event] = []
        names = {
            "list_issues": Effect.READ,
            "get_issue": Effect.READ,
            "close_issue": Effect.WRITE,
            "delete_issue": Effect.DESTRUCTIVE,
            "poke": Effect.UNKNOWN,
            "break": Effect.READ,
        }
        schema = {
            "type": "object",
            "properties": {"number": {"type": "integer"}, "note": {"type": "string"}},
        }
        tools = [
            Tool.define(
                name,
                server="tracker",
                description=f"{name.replace('_', ' ').capitalize()} of the tracker.",
                effect=effect,
                input_schema=schema,
            )
            for name, effect in names.items()
        ]
        programs = Programs.from_mapping({"enabled": True, **options})
        settings = Settings(programs=programs, calls_by_name=True, result_tokens=200)
        self.scout = Scout(
            Catalog({"tracker": tools}),
            executors=self.execute,
            settings=settings,
            policy=policy,
            on_event=self.events.append,
        )
        self.session = self.scout.session("conversation")

    async def execute(self, tool: Tool, arguments: Json) -> object:
        self.made.append((tool.leaf, arguments))
        if tool.leaf == "break":
            raise OSError("the tracker is down")
        if tool.leaf == "list_issues":
            return [{"number": n, "title": f"Issue {n}", "body": "text " * 50} for n in range(40)]
        return {"number": arguments.get("number"), "done": tool.leaf}

    def run(self, code: str, session: Session | None = None) -> Reply:
        async def work() -> Reply:
            try:
                return await (session or self.session).handle(RUN, {"code": code})
            finally:
                await self.scout.close()

        return asyncio.run(work())


@pytest.fixture
def world() -> Iterator[World]:
    yield World()


def test_a_program_keeps_long_results_to_itself_and_returns_little(world: World):
    reply = world.run("len(tracker__list_issues()), tracker__list_issues()[-1]['title']")

    assert reply.text == '[40, "Issue 39"]'
    assert reply.details["data"] == [40, "Issue 39"]
    assert [call["code"] for call in reply.details["calls"]] == ["ok", "ok"]


def test_every_call_of_a_program_has_the_event_of_a_call(world: World):
    world.run("tracker__get_issue(number=1)\nsearch('close an issue')")

    kinds = [type(event) for event in world.events]
    assert kinds == [Called, Searched, Ran]
    called, _, ran = world.events
    assert isinstance(called, Called)
    assert (called.tool, called.made) == ("tracker__get_issue", True)
    assert isinstance(ran, Ran)
    assert (ran.code, ran.calls) == ("ok", 1)


def test_arguments_are_checked_and_repaired_as_for_the_model(world: World):
    world.run("tracker__get_issue(number='7')")
    reply = world.run("tracker__get_issue(number='many')")

    assert world.made == [("get_issue", {"number": 7})]
    assert reply.code == "program_failed"
    assert (
        "ValueError: Not called: the arguments of 'tracker__get_issue' do not match" in reply.text
    )


def test_arguments_without_names_follow_the_signature(world: World):
    world.run("tracker__get_issue(7, 'please')\ncall('tracker__get_issue', {'number': 8})")
    world.run("tracker__get_issue({'number': 9})")

    assert [made["number"] for _, made in world.made] == [7, 8, 9]
    assert world.made[0][1]["note"] == "please"


def test_a_long_value_is_cut_and_kept_under_a_handle(world: World):
    reply = world.run("tracker__list_issues()")

    handle = reply.details["handle"]
    assert handle.startswith("result_")
    rest = world.run(f"call({handle!r}, {{'path': '$[39].title'}})")
    assert rest.text == "Issue 39" or json.loads(rest.text) == "Issue 39"


def test_a_failed_tool_is_an_exception_and_the_reply_lists_the_calls(world: World):
    reply = world.run("tracker__get_issue(number=1)\ntracker__break()")

    assert reply.is_error
    assert "in line 2 (`tracker__break()`): RuntimeError" in reply.text
    assert "the tracker is down" in reply.text
    assert reply.text.endswith("Calls made: tracker__get_issue 1, tracker__break 1 (1 failed).")


def test_a_program_can_go_on_after_a_failed_call(world: World):
    code = (
        "found = []\n"
        "for name in ['tracker__break', 'tracker__get_issue']:\n"
        "    try:\n"
        "        found.append(call(name, {'number': 3})['number'])\n"
        "    except RuntimeError:\n"
        "        found.append(None)\n"
        "found"
    )

    assert world.run(code).text == "[null, 3]"


def test_a_program_can_search_and_describe(world: World):
    code = (
        "names = [hit['name'] for hit in search('close an issue')]\n"
        "[names[0], describe(names[0])['input_schema']['properties']['number']]"
    )

    assert world.run(code).details["data"] == ["tracker__close_issue", {"type": "integer"}]


def test_programs_are_kept_with_the_session(world: World):
    world.run("tracker__get_issue(number=1)")
    world.run("1 / 0")

    first, second = world.session.list_programs()
    assert first.source == "tracker__get_issue(number=1)"
    assert [(call.name, call.code) for call in first.calls] == [("tracker__get_issue", "ok")]
    assert (second.code, second.calls) == ("program_failed", ())
    assert "ZeroDivisionError" in second.message
    world.scout.forget("conversation")
    assert world.session.list_programs() == []


def test_the_text_that_teaches_programs_is_short_and_sent_only_where_they_are_enabled():
    for effects in ProgramEffects:
        assert count_definition_tokens(build_run_tool(effects)) <= TEACHING_TOKENS

    def list_names(world: World) -> list[str]:
        return [tool["function"]["name"] for tool in world.session.tools("openai-chat")]

    assert RUN in list_names(World())
    assert RUN not in list_names(World(enabled=False))


def test_a_program_is_refused_where_programs_are_switched_off():
    world = World(enabled=False)

    reply = world.run("tracker__get_issue(number=1)")

    assert reply.code == "program_stopped"
    assert "programs are switched off here" in reply.text
    assert world.made == []


def test_a_request_without_a_program_is_answered(world: World):
    reply = asyncio.run(world.session.handle(RUN, {}))

    assert "The program is missing" in reply.text


def test_a_program_between_code_marks_is_read(world: World):
    assert world.run("```python\n1 + 1\n```").text == "2"


@pytest.mark.parametrize(
    ("effects", "allowed"),
    [
        ("read", {"get_issue"}),
        ("write", {"get_issue", "close_issue"}),
        ("all", {"get_issue", "close_issue"}),
    ],
)
def test_a_program_calls_tools_of_the_configured_effects_only(effects: str, allowed: set[str]):
    world = World(effects=effects)

    for leaf in ("get_issue", "close_issue", "delete_issue", "poke"):
        world.run(f"tracker__{leaf}(number=1)")

    assert {leaf for leaf, _ in world.made} == allowed


def test_each_destructive_call_needs_an_approval_of_its_own():
    world = World(effects="all")
    asked: list[tuple[str, Json, Decision]] = []

    async def confirm(tool: Tool, arguments: Json, decision: Decision) -> bool:
        asked.append((tool.leaf, arguments, decision))
        return arguments["number"] != 2

    code = (
        "for n in (1, 2, 3):\n"
        "    try:\n"
        "        tracker__delete_issue(number=n)\n"
        "    except PermissionError as error:\n"
        "        print(error)\n"
    )

    async def work() -> Reply:
        try:
            return await world.session.handle(RUN, {"code": code}, confirm=confirm)
        finally:
            await world.scout.close()

    reply = asyncio.run(work())

    assert [arguments["number"] for _, arguments, _ in asked] == [1, 2, 3]
    assert all(decision.each for _, _, decision in asked)
    assert [made["number"] for _, made in world.made] == [1, 3]
    assert "needs the user's approval" in reply.text


def test_the_time_that_a_person_takes_does_not_count():
    world = World(effects="all", seconds=0.5)

    async def confirm(tool: Tool, arguments: Json, decision: Decision) -> bool:
        await asyncio.sleep(0.7)  # longer than the program may run
        return True

    async def work() -> Reply:
        code = {"code": "tracker__delete_issue(number=1)"}
        try:
            return await world.session.handle(RUN, code, confirm=confirm)
        finally:
            await world.scout.close()

    assert asyncio.run(work()).code == "ok"


def test_a_program_whose_calls_take_too_long_is_stopped():
    world = World(seconds=0.3)

    async def never(tool: Tool, arguments: Json) -> object:
        await asyncio.Event().wait()
        return None

    world.scout.connect("tracker", never)
    reply = world.run("tracker__get_issue(number=1)")

    assert reply.code == "program_stopped"
    assert "longer than 0.3 s" in reply.text
