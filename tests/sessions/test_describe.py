import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from demos import make_demo_scout
from hostile import ANYTHING, Tools, catalog_of, tool_lists
from toolscout import Catalog, Scout, Session, Settings, Tool
from toolscout.demo import load_demo_catalog
from toolscout.stores import MemoryStore
from toolscout.tokens import count_definition_tokens


def demo(**members: Any) -> Session:
    return make_demo_scout(settings=Settings(**members)).session("a")


def of(*tools: Tool, **members: Any) -> Session:
    catalog = Catalog({"": list(tools)})
    return Scout(catalog, settings=Settings(**members)).session("a")


def long_tool(leaf: str, words: int) -> Tool:
    return Tool.define(leaf, description=" ".join(f"word{n}" for n in range(words)))


@pytest.mark.requirement("R41")
def test_definitions_are_complete_and_unchanged():
    """R41: several at once, in the order of the names."""
    session = demo()
    catalog = load_demo_catalog()
    wanted = ["gmail__send_email", "github__create_issue"]

    reply = session.describe(wanted)

    *told, step = reply.text.splitlines()
    assert step == "Next: tool_call with one of these names and its arguments."
    for line, name in zip(told, wanted, strict=True):
        tool = catalog.get(name)
        assert tool is not None
        assert json.loads(line) == {
            "name": name,
            "description": tool.description,
            "input_schema": tool.input_schema,
            "output_schema": tool.output_schema,
        }
    assert reply.described == tuple(wanted)


@pytest.mark.requirement("R54")
def test_exactly_what_was_named_is_loaded():
    """R54"""
    session = demo()

    reply = session.describe(["gmail__send_email", "nope"])

    assert reply.references == session.loaded == ("gmail__send_email",)
    assert reply.details["loaded"] == ["gmail__send_email"]


@pytest.mark.requirement("R44")
def test_unknown_names_are_reported_with_near_names():
    """R44"""
    reply = demo().describe(["github__create_isue", "gmail__send_email"])

    near = "github__create_issue, github__get_issue, github__update_issue"
    assert f"There is no tool 'github__create_isue'. Near: {near}." in reply.text
    assert (reply.code, reply.is_error) == ("ok", False)


@pytest.mark.requirement("R49")
def test_where_nothing_is_found_the_next_step_is_a_search():
    """R49"""
    reply = demo().describe("zzzz")

    assert reply.text == (
        "There is no tool 'zzzz'. Find it with tool_search.\n"
        "Next: tool_search for what the tool should do."
    )
    assert (reply.code, reply.is_error, reply.references) == ("unknown_tool", True, ())


@pytest.mark.requirement("R48")
def test_definitions_that_do_not_fit_are_left_off_by_name_and_not_loaded():
    """R48"""
    session = of(*(long_tool(leaf, 120) for leaf in ("one", "two", "three")), describe_tokens=500)

    reply = session.describe(["one", "two", "three"])

    assert "Left out for length, ask for them again: two, three." in reply.text
    assert session.loaded == ("one",)
    assert reply.details["left_off"] == ["two", "three"]
    assert reply.tokens <= 500


@pytest.mark.requirement("R48")
@pytest.mark.parametrize("room", [500, 3_000])
def test_one_definition_that_is_too_long_is_cut_and_read_on(room: int):
    """R48: under the handle of a long result."""
    tool = long_tool("endless", 20_000)
    session = of(tool, describe_tokens=room)

    reply = session.describe("endless")

    assert reply.tokens <= room
    assert reply.described == () and session.loaded == ("endless",)
    handle, _, rest = reply.text.partition('tool_call(name="')[2].partition('"')
    start = int(rest.partition('"start": ')[2].partition("}")[0])
    further = session.call_sync(handle, {"start": start}).text
    assert reply.text.startswith('{"name":"endless","description":"word0 word1')
    last = reply.text[:start].rstrip().rpartition(" word")[2]
    assert further.startswith(f"word{int(last) + 1} ")


@pytest.mark.requirement("R48")
def test_a_definition_too_long_to_show_but_too_short_to_keep_is_shown_by_its_signature():
    """R48"""
    tool = long_tool("long", 300)
    session = of(tool, describe_tokens=500, result_tokens=5_000)

    reply = session.describe("long")

    assert reply.text.startswith("long()\nThe full definition is too long for a reply.")
    assert reply.tokens <= 500


@pytest.mark.requirement("R50")
def test_tools_that_cannot_stay_loaded_together_are_not_described_together():
    """R50"""
    tools = [long_tool(leaf, 20) for leaf in ("one", "two", "three")]
    session = of(*tools, loaded_tokens=2 * count_definition_tokens(tools[0]) + 5)

    reply = session.describe(["one", "two", "three"])

    assert reply.references == session.loaded == ("one", "two")
    assert reply.details["left_off"] == ["three"]


@pytest.mark.requirement("R50")
def test_a_described_tool_is_not_evicted_by_one_described_with_it():
    """R50"""
    tools = [long_tool(leaf, 20) for leaf in ("one", "two", "three")]
    session = of(*tools, loaded_tokens=2 * count_definition_tokens(tools[0]) + 5)
    session.describe("one")
    session.describe("two")

    session.describe(["one", "three"])

    assert set(session.loaded) == {"one", "three"}


@pytest.mark.requirement("R55")
@pytest.mark.parametrize(
    ("mode", "step"),
    [
        ("native", "Next: call one by name; it joins your tools from your next step on."),
        ("reference", "Next: call one by name."),
    ],
)
def test_a_description_says_when_its_tools_are_usable(mode: str, step: str):
    """R55"""
    assert demo(mode=mode).describe("gmail__send_email").text.splitlines()[-1] == step


@pytest.mark.requirement("R25")
def test_a_definition_has_the_description_not_the_summary():
    """R25"""
    session = of(Tool.define("x", description="The whole story.", summary="Short."))

    assert "The whole story." in session.describe("x").text
    assert "Short." not in session.describe("x").text


@pytest.mark.requirement("R12")
@pytest.mark.requirement("R48")
@pytest.mark.requirement("R50")
@given(
    tool_lists(),
    st.lists(st.sampled_from(("nope", "x" * 500, "検" * 200, "create_issue", 7)), max_size=6),
    ANYTHING,
    st.sampled_from((500, 800, 8_000)),
    st.sampled_from((0, 300, 16_000)),
    st.sampled_from((100, 2_000)),
)
@example(Tools(), [], "nope", 500, 0, 100)
@settings(max_examples=60)
def test_any_description_fits_its_budget_and_keeps_its_promises(
    tools: Tools, unknown: list[object], other: object, room: int, loaded: int, page: int
):
    """R12, R48, R50"""
    chosen = Settings(describe_tokens=room, loaded_tokens=loaded, result_tokens=page)
    scout = Scout(catalog_of(tools), settings=chosen)
    session = scout.session("a")
    by_name = {tool.name: tool for tool in tools}
    for names in ([*unknown, *by_name], [*by_name][::-1], other):
        before = set(session.loaded)

        reply = session.handle_sync("tool_describe", {"names": names})

        assert reply.code != "broken_index"
        assert reply.tokens <= room
        assert set(reply.references) == set(session.loaded) - before
        assert all(session.may_call(by_name[name]) for name in reply.details.get("described", ()))
        assert all(f'{{"name":"{name}"' in reply.text for name in reply.described)
        json.dumps(reply.details, ensure_ascii=False).encode()


@pytest.mark.requirement("R48")
@given(tool_lists(max_size=2), st.sampled_from((500, 8_000)), ANYTHING)
@settings(max_examples=25)
def test_any_refused_call_fits_the_same_budget(tools: Tools, room: int, arguments: object):
    """R48"""
    scout = Scout(catalog_of(tools), settings=Settings(describe_tokens=room))
    session = scout.session("a")
    for tool in tools:
        first = session.call_sync(tool.name, arguments)
        session.search(f"select:{tool.name}")
        second = session.call_sync(tool.name, arguments)

        assert first.is_error and second.is_error
        assert first.tokens <= room and second.tokens <= room


def list_issues(page: int = 1) -> dict[str, object]:
    """List issues."""
    return {"issues": [{"id": 7, "title": "secret plans"}], "next": None}


def test_a_description_shows_what_results_looked_like_and_no_value():
    scout = Scout(Catalog({"tracker": [list_issues]}), store=MemoryStore())
    session = scout.session("ann")
    before = session.describe("tracker__list_issues")
    session.call_sync("tracker__list_issues", pick="$.next")

    seen = scout.session("bob").describe("tracker__list_issues")

    line = "Seen in results, but not promised: {issues: [{id: integer, title}], next: null}"
    assert "Seen in results" not in before.text
    assert seen.text.splitlines()[1] == line
    assert "secret plans" not in seen.text


@pytest.mark.parametrize("is_declared", [False, True])
def test_what_is_declared_is_not_learned_and_learning_can_be_switched_off(is_declared: bool):
    schema: dict[str, Any] = {"output_schema": {"type": "object"}} if is_declared else {}
    tool = Tool.from_callable(list_issues, server="tracker", **schema)
    settings = Settings(learn_results=is_declared)
    session = Scout(Catalog({"tracker": [tool]}), settings=settings).session("ann")
    session.describe("tracker__list_issues")
    session.call_sync("tracker__list_issues")

    assert "Seen in results" not in session.describe("tracker__list_issues").text


def test_results_of_failed_calls_are_not_learned():
    failed = {"content": [{"type": "text", "text": "{}"}], "isError": True}
    tool = Tool.define("act", server="s", description="Act.", function=lambda: failed)
    session = Scout(Catalog({"s": [tool]})).session("ann")
    session.describe("s__act")
    session.call_sync("s__act")

    assert "Seen in results" not in session.describe("s__act").text
