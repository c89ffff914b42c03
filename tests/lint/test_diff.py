"""What changed between two catalogues."""

from dataclasses import replace

import pytest

from toolscout.demo import load_demo_tools
from toolscout.lint.diff import Detail, compare_catalogs
from toolscout.schemas import Json
from toolscout.tools import Effect, Tool

TOOL = Tool.define("find", server="s", description="Find a page.", effect="read")


def details(new: Tool) -> list[Detail]:
    found = compare_catalogs([TOOL], [new])
    return [detail for changed in found.changed for detail in changed.changes]


def test_equal_catalogues_do_not_differ_whatever_their_order():
    tools = load_demo_tools()

    found = compare_catalogs(tools, reversed(tools))

    assert not found
    assert found.unchanged == len(tools)


def test_what_is_added_one_way_is_removed_the_other():
    tools = load_demo_tools()

    there, back = compare_catalogs(tools[:9], tools[5:]), compare_catalogs(tools[5:], tools[:9])

    assert there and set(there.added) == {tool.name for tool in tools[9:]}
    assert there.added == back.removed == tuple(sorted(there.added))
    assert there.removed == back.added


@pytest.mark.parametrize(
    ("member", "value", "text"),
    [
        ("effect", Effect.WRITE, "'read' became 'write'"),
        ("title", "Finder", "nothing became 'Finder'"),
        ("hint", "look up", "nothing became 'look up'"),
        ("tags", ("a",), "[] became ['a']"),
        ("always_load", True, "'False' became 'True'"),
        ("description", "Find\x1b all.", "'Find a page.' became 'Find all.'"),
    ],
)
def test_every_member_that_changed_is_told(member: str, value: object, text: str):
    assert details(replace(TOOL, **{member: value})) == [Detail(what=member, text=text)]


def test_a_schema_that_changed_in_no_parameter_is_told_all_the_same():
    stricter: Json = {"type": "object", "properties": {}, "additionalProperties": False}

    assert details(replace(TOOL, input_schema=stricter, output_schema={"type": "object"})) == [
        Detail(what="parameters", text="a rule of the schema changed"),
        Detail(what="output", text="the schema of its results changed"),
    ]


def test_a_parameter_of_another_type_is_told():
    def taking(kind: str) -> Tool:
        return replace(TOOL, input_schema={"type": "object", "properties": {"n": {"type": kind}}})

    found = compare_catalogs([taking("string")], [taking("integer")])

    assert found.changed[0].changes == (
        Detail(what="parameters", text="n was string and is integer"),
    )


def test_names_that_could_steer_a_terminal_are_cleaned():
    schema: Json = {"type": "object", "properties": {"a\x1b[31m\nb": {"enum": ["\x07"]}}}

    (detail,) = details(replace(TOOL, input_schema=schema))

    assert detail.text == "a[31m b (string, optional) is new"
