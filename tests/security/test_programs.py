"""Programs get past no rule: they reach no tool that their session may not call."""

import asyncio
import os
import subprocess
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from security.hostile_programs import TEMPLATES, make_hostile_programs
from toolscout import Catalog, Effect, Permission, Policy, Reply, Scout, Session, Settings, Tool
from toolscout.schemas import Json
from toolscout.settings import Programs

SAMPLE = len(TEMPLATES)
ASK = Permission.ASK
DENY = Permission.DENY
AT_ONCE = 2


@dataclass
class Place:
    """Some tools that a session may call and some that it may not, and what was called."""

    policy: Policy
    calls_by_name: bool = True
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    made: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}

        def define(leaf: str, effect: Effect = Effect.READ, **more: Any) -> Tool:
            return Tool.define(leaf, effect=effect, input_schema=schema, **more)

        tools = [
            define("note", description="Note a text."),
            define("forbidden", description="Do what is forbidden.", aliases=("secret_way",)),
            define("off", description="Do what is switched off."),
            define("asked", description="Do what a person has to approve."),
            define("write", Effect.WRITE, description="Write a text."),
            define("destroy", Effect.DESTRUCTIVE, description="Destroy a text."),
            define("unknown", Effect.UNKNOWN, description="Do something."),
            define("page", description="A page.", kind="resource"),
            define("secret_page", description="A secret page.", kind="resource"),
            define("secret_skill", description="Know a secret.", kind="skill"),
            define(
                "app_only",
                description="For apps.",
                extras={"_meta": {"ui": {"visibility": ["app"]}}},
            ),
        ]
        programs = Programs.from_mapping({"enabled": True, "seconds": 1, **self.options})
        self.scout = Scout(
            Catalog({"": tools}),
            executors=self.execute,
            settings=Settings(programs=programs, calls_by_name=self.calls_by_name),
            policy=self.policy,
        )
        self.session: Session = self.scout.session("hostile")

    async def execute(self, tool: Tool, arguments: Json) -> object:
        self.made.append(tool.name)
        return {"tool": tool.name, "text": "noted " * 2000}

    async def run(self, code: str) -> Reply:
        return await self.session.handle("tool_run", {"code": code})


def decide(tool: Tool, arguments: Json) -> Permission:
    return Permission.ASK if tool.name == "asked" else Permission.ALLOW


STRICT = Policy(
    allowed=lambda tool: tool.name not in ("forbidden", "secret_page", "secret_skill"),
    disabled={"off": "not today"},
    permit=decide,
)

ATTEMPTS = [
    "{name}()",
    "call('{name}')",
    "call('{name}', {{'text': 'x'}})",
    "call(name='{name}', arguments={{}})",
    "f = {name}\nf()",
    "fs = [{name}]\nfs[0]()",
    "call('{head}' + '{tail}')",
    "call(''.join(['{head}', '{tail}']))",
    "call('{name}'.upper())",
    "call(' {name} ')",
    "call('{name}\\n')",
    "call('mcp__toolscout__{name}')",
    "call('mcp__{name}')",
    "call('.{name}')",
    "call('__{name}')",
    "call('secret_way')",
    "secret_way()",
    "call('tool_call', {{'name': '{name}'}})",
    "tool_call(name='{name}')",
    "tool_call(calls=[{{'name': '{name}'}}])",
    "call('tool_call', {{'calls': [{{'name': '{name}'}}] * 2}})",
    "call(['{name}'])",
    "call({{'name': '{name}'}})",
    "call('note', {{'text': 'x', 'name': '{name}'}})\ncall('{name}')",
    "tool_run(code='{name}()')",
    "call('tool_run', {{'code': '{name}()'}})",
    "call('mcp__toolscout__tool_run', {{'code': '{name}()'}})",
    "eval('{name}()')",
    "exec('{name}()')",
    "search('select:{name}')\n{name}()",
    "search('{name}')\ncall('{name}')",
    "describe('{name}')\n{name}()",
    "try:\n    {name}()\nexcept PermissionError:\n    call('{name}', {{}})",
    "import asyncio\nawait asyncio.gather({name}(), {name}(text='x'))",
    "import asyncio\nawait asyncio.gather(note(text='x'), call('{name}'))",
    "{name}(approved=True)",
    "call('{name}', {{}}, approved=True)",
    "call('{name}', {{'approved': True}})",
    "def note(**given): return {name}(**given)\nnote(text='x')",
    "getattr(note, '__self__').call('{name}')",
    "note.__call__('{name}')",
    "list(map({name}, ['x']))",
    "sorted(['x'], key={name})",
    "import functools\nfunctools.partial({name}, text='x')()",
    "call(note(text='{name}')['text'])\ncall('{name}')",
    "import tools\ntools.{name}()",
    "class A:\n    def go(self): return {name}()\nA().go()",
]


@pytest.mark.parametrize(
    "name",
    [
        "forbidden",
        "off",
        "asked",
        "destroy",
        "unknown",
        "app_only",
        "secret_page",
        "secret_skill",
    ],
)
def test_no_program_reaches_a_tool_that_its_session_may_not_call(name: str):
    place = Place(STRICT)

    async def work() -> None:
        for attempt in ATTEMPTS:
            code = attempt.format(name=name, head=name[:2], tail=name[2:])
            await place.run(code)
        await place.scout.close()

    asyncio.run(work())

    assert set(place.made) <= {"note"}


def test_the_attempts_reach_a_tool_that_may_be_called():
    """Or the attempts would prove nothing."""
    place = Place(Policy())

    async def work() -> int:
        reached = 0
        for attempt in ATTEMPTS:
            before = len(place.made)
            await place.run(attempt.format(name="page", head="pa", tail="ge"))
            reached += "page" in place.made[before:]
        await place.scout.close()
        return reached

    assert asyncio.run(work()) >= len(ATTEMPTS) // 3


LOOKS = [
    "search('select:{name}')",
    "search('{words}')",
    "search(['{name}', 'kind:resource', 'kind:skill', '{name}*'])",
    "describe('{name}')",
    "describe(['{name}', 'note'])",
    "call('note', {{'{name}': 1}})",
    "call('tool_describe', {{'names': ['{name}']}})",
    "{name}",
]


@pytest.mark.parametrize("name", ["forbidden", "app_only", "secret_page", "secret_skill"])
def test_no_program_reads_what_a_hidden_tool_is_for(name: str):
    place = Place(STRICT)
    tool = place.scout.catalog.get(name)
    assert tool is not None

    async def work() -> list[str]:
        codes = [look.format(name=name, words=tool.description) for look in LOOKS]
        replies = [await place.run(code) for code in codes]
        await place.scout.close()
        return [reply.text for reply in replies]

    assert [text for text in asyncio.run(work()) if tool.description in text] == []


def test_a_hidden_tool_would_be_read_by_one_who_may_see_it():
    """Or the looks would prove nothing."""
    place = Place(Policy())

    async def work() -> int:
        codes = [look.format(name="secret_page", words="A secret page.") for look in LOOKS]
        replies = [await place.run(code) for code in codes]
        await place.scout.close()
        return sum("A secret page." in reply.text for reply in replies)

    assert asyncio.run(work()) >= 5


@pytest.mark.parametrize(
    "change",
    [
        Policy(allowed=lambda tool: tool.name != "page"),
        Policy(disabled={"page": "not today"}),
        Policy(permit=lambda tool, given: DENY if tool.name == "page" else Permission.ALLOW),
        Policy(permit=lambda tool, given: ASK if tool.name == "page" else Permission.ALLOW),
    ],
    ids=["hidden", "disabled", "denied", "asked"],
)
def test_a_rule_that_changes_while_a_program_runs_holds_for_its_next_call(change: Policy):
    place = Place(Policy())

    async def execute(tool: Tool, arguments: Json) -> str:
        place.made.append(tool.name)
        if tool.name == "note":
            place.session.restrict(change)
        return "done"

    place.scout.connect("", execute)
    code = (
        "f = page\n"
        "page()\n"
        "note()\n"
        "for name in ('page', 'PAGE'):\n"
        "    try:\n"
        "        call(name)\n"
        "    except (NameError, PermissionError):\n"
        "        pass\n"
        "f()"
    )

    async def work() -> Reply:
        reply = await place.run(code)
        await place.scout.close()
        return reply

    assert asyncio.run(work()).code == "program_failed"
    assert place.made == ["page", "note"]


def test_settings_that_change_while_a_program_runs_hold_for_the_next_program():
    place = Place(Policy(), options={"effects": "write"})

    async def execute(tool: Tool, arguments: Json) -> str:
        place.made.append(tool.name)
        settings = replace(place.scout.settings, programs=Programs(enabled=False))
        place.scout.change_settings(settings)
        return "done"

    place.scout.connect("", execute)

    async def work() -> Reply:
        await place.run("note()")
        reply = await place.run("write()")
        await place.scout.close()
        return reply

    assert asyncio.run(work()).code == "program_stopped"
    assert place.made == ["note"]


def test_writing_is_refused_unless_the_configuration_permits_it():
    for effects, allowed in (("read", []), ("write", ["write"])):
        place = Place(Policy(), options={"effects": effects})

        async def work(place: Place = place) -> None:
            await place.run("write(text='x')")
            await place.scout.close()

        asyncio.run(work())
        assert place.made == allowed


def test_a_tool_that_no_search_has_found_needs_one_in_programs_too():
    place = Place(Policy(), calls_by_name=False)

    async def work() -> tuple[Reply, Reply]:
        before = await place.run("note(text='x')")
        after = await place.run("search('note a text')\nnote(text='x')['tool']")
        await place.scout.close()
        return before, after

    before, after = asyncio.run(work())

    assert "is not loaded yet" in before.text
    assert after.text == "note"


def test_a_program_reads_only_results_of_its_own_session():
    place = Place(Policy())
    other = place.scout.session("other")

    async def work() -> tuple[Reply, Reply]:
        long = await other.handle("tool_call", {"name": "note", "arguments": {}})
        handle = long.details["handle"]
        mine = await place.run(f"call({handle!r}, {{'start': 0}})")
        theirs = await other.handle("tool_run", {"code": f"len(call({handle!r}, {{'start': 0}}))"})
        await place.scout.close()
        return mine, theirs

    mine, theirs = asyncio.run(work())

    assert mine.is_error
    assert theirs.code == "ok"


def list_children() -> list[str]:
    found = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-x", "monty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.split()


async def attack(place: Place, programs: list[str]) -> list[Reply]:
    """Run hostile programs, some at once, for several users."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def run(number: int, code: str) -> Reply:
        async with slots:
            session = place.scout.session(f"user {number % 5}")
            return await session.handle("tool_run", {"code": code})

    replies = await asyncio.gather(*(run(*pair) for pair in enumerate(programs)))
    fine = await place.run("note(text='x')['tool']")
    assert fine.text == "note"
    return replies


@pytest.mark.timeout(600)
def test_hostile_programs_leave_everything_working_and_nothing_behind():
    place = Place(STRICT, options={"seconds": 0.5, "memory_mb": 30, "calls": 20})
    programs = list(make_hostile_programs(SAMPLE))

    async def work() -> list[Reply]:
        replies = await attack(place, programs)
        assert len(list_children()) <= place.scout.settings.programs.workers
        await place.scout.close()
        return replies

    replies = asyncio.run(work())

    assert len(replies) == SAMPLE
    assert {reply.code for reply in replies} <= {"ok", "program_failed", "program_stopped"}
    assert set(place.made) <= {"note"}
    assert all("root:" not in reply.text for reply in replies)
    assert list_children() == []
