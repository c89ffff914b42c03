import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile import Tools, is_safe, tool_lists
from toolscout.search.hits import Confidence, Hit, Missing, Why
from toolscout.sessions.replies import QueryAnswer, Reply, ReplyContext, render_search
from toolscout.tools import Tool

CREATE = Tool.define(
    "create_issue",
    server="github",
    description="Open an issue. It is public at once.",
    input_schema={
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "state": {"enum": ["open", "closed"]},
            "labels": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["title"],
    },
)


def found(
    answers: Sequence[QueryAnswer],
    situation: ReplyContext,
    budget: int,
    *,
    detail: str = "signatures",
) -> Reply:
    page = render_search(answers, situation, budget, detail=detail)
    return Reply(text=page.text, hits=page.hits, described=page.described)


def hit(tool: Tool, confidence: Confidence = Confidence.STRONG) -> Hit:
    return Hit(tool=tool, score=0.87, confidence=confidence, explain=why)


def why() -> Why:
    return Why(matched={"name": ("issue",)}, shares={"words": 1.0}, held_back=())


def answer(*tools: Tool, **members: Any) -> QueryAnswer:
    loads = frozenset(tool.name for tool in tools)
    given: dict[str, Any] = {"query": "issue", "hits": tuple(map(hit, tools)), "loads": loads}
    return QueryAnswer(**(given | members))


def wide(number: int, required: int = 0) -> Tool:
    names = [f"field_{at}" for at in range(required)]
    properties = {name: {"type": "string"} for name in names}
    return Tool.define(
        f"tool_{number:03}",
        description=f"Do the work of number {number} and say how it went.",
        input_schema={"properties": properties, "required": names},
    )


@pytest.mark.requirement("R39")
@pytest.mark.requirement("R34")
def test_a_hit_is_one_line_with_signature_and_first_sentence():
    """R39, R34: the line has neither score nor reasons, the hit has both."""
    reply = found([answer(CREATE)], ReplyContext(next_step="Next: go on."), 500)

    assert reply.text == (
        "Found for 'issue':\n"
        "- github__create_issue(title*, state?: open|closed, labels?: string[]) "
        "\N{EN DASH} Open an issue. [strong]\n"
        "Next: go on."
    )
    assert (reply.hits[0].score, reply.hits[0].why.matched) == (0.87, {"name": ("issue",)})


@pytest.mark.requirement("R25")
def test_a_summary_stands_for_the_description_in_a_line_but_not_in_the_definition():
    """R25"""
    tool = Tool.define("issue", description="A long story about issues.", summary="Make issues.")

    reply = found([answer(tool, winners=(tool,))], ReplyContext(), 500)

    line, _, definition = reply.text.partition("Definition of issue:\n")
    assert "Make issues." in line and "long story" not in line
    assert json.loads(definition)["description"] == "A long story about issues."


@pytest.mark.requirement("R40")
def test_a_signature_has_every_required_parameter_and_says_what_it_leaves_off():
    """R40: types, at most 8 values of an enum, one nested level, and `…` where it is lossy."""
    tool = Tool.define(
        "make",
        input_schema={
            "properties": {
                "kind": {"enum": [f"k{number}" for number in range(10)]},
                "where": {"type": "object", "properties": {"x": {}, "y": {}}, "required": ["x"]},
                **{f"extra_{number}": {"type": "integer"} for number in range(20)},
            },
            "required": ["kind", "where", "unlisted"],
        },
    )

    line = found([answer(tool)], ReplyContext(), 2_000).text.splitlines()[1]

    assert line == (
        "- make(kind*: k0|k1|k2|k3|k4|k5|k6|k7|…, where*: {x*: any, y?: any}, unlisted*: any, "
        + ", ".join(f"extra_{number}?: integer" for number in range(12))
        + ", …) [strong]"
    )


@pytest.mark.requirement("R40")
def test_what_gives_way_last_is_the_required_parameters():
    """R40: options go first, then the sentence; with no room for all, no signature is shown."""
    tool = Tool.define(
        "make",
        description="Make a thing of a kind that is wanted.",
        input_schema={
            "properties": {f"field_{n}": {"type": "integer"} for n in range(40)},
            "required": [f"field_{n}" for n in range(30)],
        },
    )
    budgets = range(400, 199, -1)
    replies = (found([answer(tool)], ReplyContext(), budget) for budget in budgets)
    lines = list(dict.fromkeys(reply.text.splitlines()[1] for reply in replies))

    required = ", ".join(f"field_{n}*: integer" for n in range(30))
    options = ", ".join(f"field_{n}?: integer" for n in range(30, 40))
    sentence = "\N{EN DASH} Make a thing of a kind that is wanted."
    assert lines == [
        f"- make({required}, {options}) {sentence} [strong]",
        f"- make({required}, …) {sentence} [strong]",
        f"- make({required}, …) [strong]",
        "- make (tool_describe shows its parameters) [strong]",
    ]


@pytest.mark.requirement("R48")
def test_what_does_not_fit_is_left_off_between_entries_and_counted():
    """R48"""
    tools = [wide(number) for number in range(60)]

    reply = found([answer(*tools)], ReplyContext(next_step="Next: go on."), 200)

    shown = [line for line in reply.text.splitlines() if line.startswith("- ")]
    assert reply.tokens <= 200
    assert [h.tool.name for h in reply.hits] == [f"tool_{n:03}" for n in range(len(shown))]
    assert all(re.fullmatch(r"- tool_\d{3}\(\) \[strong\]", line) for line in shown)
    assert reply.text.endswith(
        f"Left out for length: {60 - len(shown)}. Raise max_tokens, "
        "use detail 'names' or send fewer queries.\nNext: go on."
    )


@pytest.mark.requirement("R48")
def test_definitions_give_way_before_signatures_and_are_counted():
    """R48"""
    tools = [wide(number, required=30) for number in range(3)]

    reply = found([answer(*tools, winners=tuple(tools))], ReplyContext(), 900)

    assert reply.described == ("tool_000",)
    assert len(reply.hits) == 3
    assert "Definitions left out for length: 2. Use tool_describe." in reply.text


@pytest.mark.requirement("R48")
def test_the_best_hit_is_the_last_to_be_cut():
    """R48"""
    failed = tuple((f"server{number}", "no answer " * 20) for number in range(8))
    missing = tuple(Missing(name="x" * 60, near=("y" * 60,)) for _ in range(20))

    reply = found([answer(CREATE, missing=missing)], ReplyContext(failed=failed), 200)

    assert [h.tool for h in reply.hits] == [CREATE]
    assert reply.tokens <= 200


def test_a_tool_that_two_queries_found_is_shown_once():
    reply = found([answer(CREATE), answer(CREATE, query="ticket")], ReplyContext(), 500)

    assert reply.text.count("title*") == 1
    assert reply.text.endswith("Found for 'ticket':\n- github__create_issue [strong]")


def test_detail_names_shows_names_only():
    reply = found([answer(CREATE)], ReplyContext(), 500, detail="names")

    assert reply.text == "Found for 'issue':\n- github__create_issue [strong]"


@pytest.mark.requirement("R43")
@pytest.mark.requirement("R44")
@pytest.mark.requirement("R45")
def test_everything_has_its_place():
    """R43, R44, R45"""
    known = tuple(hit(wide(number)) for number in range(10))
    missing = (Missing(name="craete", near=("create", "creator")), Missing(name="zz", near=()))
    situation = ReplyContext(
        notes=("limit must be 1 to 20; 20 was used.",),
        news=("old is gone.",),
        pending=(("slack", "npx may still be installing it"),),
        failed=(("jira", "refused <b>\nthe key"),),
        servers=(("github", 1_200),),
    )

    reply = found(
        [
            QueryAnswer(
                query="q", known=known, missing=missing, corrected={"isue": "issue"}, further=7
            )
        ],
        situation,
        1_000,
    )

    assert reply.text == (
        "Read 'isue' as 'issue'.\n"
        "There is no tool 'craete'. Near: create, creator.\n"
        "There is no tool 'zz'.\n"
        "Already loaded: tool_000, tool_001, tool_002, tool_003, tool_004, tool_005, tool_006, "
        "tool_007 and 2 more.\n"
        "7 more match; narrow the query or raise limit.\n"
        "limit must be 1 to 20; 20 was used.\n"
        "old is gone.\n"
        "Still connecting, may have more: slack (npx may still be installing it).\n"
        "Failed to connect: jira (refused \u2039b\u203a the key).\n"
        "Servers with tools: github (1,200)."
    )


def test_unknown_names_beyond_twenty_are_counted():
    missing = tuple(Missing(name=f"n{number}", near=()) for number in range(25))

    reply = found([QueryAnswer(query="select:…", missing=missing)], ReplyContext(), 1_000)

    assert reply.text.count("There is no tool") == 20
    assert reply.text.endswith("5 more names were not found.")


@pytest.mark.requirement("R50")
@pytest.mark.parametrize(
    ("members", "mark"),
    [
        ({}, "[strong]"),
        ({"loads": frozenset[str]()}, "[strong, not loaded]"),
        ({"failed": frozenset({"github"})}, "[strong, unavailable]"),
        ({"hits": (hit(CREATE, Confidence.WEAK),), "loads": frozenset[str]()}, "[weak]"),
        (
            {
                "hits": (hit(CREATE, Confidence.WEAK),),
                "loads": frozenset[str](),
                "discovers": True,
            },
            "[weak, not loaded]",
        ),
    ],
)
def test_a_hit_is_marked_where_a_call_would_be_refused(members: dict[str, Any], mark: str):
    """R50"""
    reply = found([answer(CREATE, **members)], ReplyContext(), 500)

    assert reply.text.splitlines()[1].endswith(mark)


@pytest.mark.requirement("R48")
@given(tool_lists(), st.integers(200, 3_000), st.sampled_from(("names", "signatures", "schemas")))
@settings(max_examples=60)
def test_any_hits_fit_any_budget_with_whole_signatures(tools: Tools, budget: int, detail: str):
    """R48, R40"""
    reply = found([answer(*tools, winners=tuple(tools))] * 3, ReplyContext(), budget, detail=detail)

    assert reply.tokens <= budget
    assert is_safe(reply.text)
    by_name = {tool.name: tool for tool in tools}
    for name, parameters in re.findall(r"^- ([\w-]+)\((.*)$", reply.text, re.MULTILINE):
        for required in by_name[name].input_schema["required"]:
            assert re.search(rf"\b{required}\*", parameters)
