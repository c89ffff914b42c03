import json
import subprocess
import sys
import threading
from copy import deepcopy
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscout.calls.arguments import prepare
from toolscout.calls.repairs import Prepared
from toolscout.errors import InvalidArguments, Problem
from toolscout.schemas import Json
from toolscout.tools import Tool

ISSUE: Json = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
    "additionalProperties": False,
}
SCHEMA: Json = {
    "type": "object",
    "required": ["query"],
    "additionalProperties": False,
    "$defs": {"Issue": ISSUE},
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        "ratio": {"type": "number"},
        "draft": {"type": "boolean"},
        "pull_number": {"type": "integer"},
        "state": {"enum": ["open", "closed", "not_planned"]},
        "labels": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object", "properties": {"depth": {"type": "integer"}}},
        "issues": {"type": "array", "items": {"$ref": "#/$defs/Issue"}},
        "parent": {"anyOf": [{"type": "integer"}, {"type": "null"}, {"$ref": "#/$defs/Issue"}]},
    },
}


def tool(schema: Json) -> Tool:
    return Tool.define("find", server="github", input_schema=schema)


def given_arguments(value: object, schema: Json = SCHEMA) -> Prepared:
    return prepare(tool(schema), value)


def problems(value: object, schema: Json = SCHEMA) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidArguments) as caught:
        prepare(tool(schema), value)
    return [(found.path, found.rule, found.message) for found in caught.value.problems]


def of(properties: Json, **more: object) -> Json:
    return {"type": "object", "properties": properties, **more}


@pytest.mark.requirement("R71")
@pytest.mark.parametrize(
    ("sent", "arguments", "repairs"),
    [
        (
            '{"query": "a"}',
            {"query": "a"},
            ["Read the arguments from JSON text."],
        ),
        (
            '```json\n{"query": "a"}\n```',
            {"query": "a"},
            ["Read the arguments from JSON text."],
        ),
        (
            json.dumps(json.dumps({"query": "a"})),
            {"query": "a"},
            ["Read the arguments from JSON text."],
        ),
        (
            {"arguments": {"query": "a"}},
            {"query": "a"},
            ["Took the arguments out of 'arguments'."],
        ),
        (
            {"find": '{"query": "a"}'},
            {"query": "a"},
            ["Took the arguments out of 'find'.", "Read the arguments from JSON text."],
        ),
        (
            [{"query": "a"}],
            {"query": "a"},
            ["Took the arguments out of a list."],
        ),
        (
            {"query": "a", "limit": "5", "ratio": " 0.5 ", "draft": "True"},
            {"query": "a", "limit": 5, "ratio": 0.5, "draft": True},
            [
                "Read 'draft' as true.",
                "Read 'limit' as the number 5.",
                "Read 'ratio' as the number 0.5.",
            ],
        ),
        (
            {"query": "a", "limit": "5.0"},
            {"query": "a", "limit": 5},
            ["Read 'limit' as the number 5."],
        ),
        (
            {"query": 5},
            {"query": "5"},
            ["Read 'query' as the text '5'."],
        ),
        (
            {"query": True},
            {"query": "true"},
            ["Read 'query' as the text 'true'."],
        ),
        (
            {"query": "a", "labels": "bug"},
            {"query": "a", "labels": ["bug"]},
            ["Read 'labels' as a list with this one value."],
        ),
        (
            {"query": "a", "labels": '["bug", "docs"]'},
            {"query": "a", "labels": ["bug", "docs"]},
            ["Read 'labels' as a list, from JSON text."],
        ),
        (
            {"query": "a", "options": '{"depth": "2"}'},
            {"query": "a", "options": {"depth": 2}},
            [
                "Read 'options' as an object, from JSON text.",
                "Read 'options.depth' as the number 2.",
            ],
        ),
        (
            {"Query": "a", "pullNumber": "7"},
            {"query": "a", "pull_number": 7},
            [
                "Read 'Query' as 'query'.",
                "Read 'pullNumber' as 'pull_number'.",
                "Read 'pull_number' as the number 7.",
            ],
        ),
        (
            {"query": "a", "state": "Not-Planned"},
            {"query": "a", "state": "not_planned"},
            ["Read 'state' as 'not_planned'."],
        ),
        (
            {"query": "a", "limit": None, "state": None},
            {"query": "a"},
            ["Left out 'limit', which was null.", "Left out 'state', which was null."],
        ),
        (
            {"query": "a", "issues": [{"id": 1}, {"ID": "2"}]},
            {"query": "a", "issues": [{"id": 1}, {"id": 2}]},
            [
                "Read 'issues[1].ID' as 'issues[1].id'.",
                "Read 'issues[1].id' as the number 2.",
            ],
        ),
        (
            {"query": "a", "issues": {"id": 1}},
            {"query": "a", "issues": [{"id": 1}]},
            ["Read 'issues' as a list with this one value."],
        ),
        (
            {"query": "a", "parent": "5"},
            {"query": "a", "parent": 5},
            ["Read 'parent' as the number 5."],
        ),
        (
            {"query": "a", "parent": "null"},
            {"query": "a", "parent": None},
            ["Read 'parent' as null."],
        ),
        (
            {"query": "a", "parent": {"id": "5", "note": 7}},
            {"query": "a", "parent": {"id": 5, "note": "7"}},
            ["Read 'parent.id' as the number 5.", "Read 'parent.note' as the text '7'."],
        ),
    ],
)
def test_harmless_slips_are_put_right_and_reported(
    sent: object, arguments: Json, repairs: list[str]
):
    """R71"""
    before = deepcopy(sent)

    prepared = given_arguments(sent)

    assert prepared.arguments == arguments
    assert sorted(prepared.repairs) == sorted(repairs)
    assert sent == before


@pytest.mark.parametrize("sent", [None, "", "  ", "null"])
def test_no_arguments_are_an_empty_object(sent: object):
    prepared = given_arguments(sent, of({}))

    assert prepared.arguments == {}
    assert "Read empty arguments as {}." in prepared.repairs


def test_a_missing_parameter_gets_the_default_of_the_schema():
    schema = of({"tags": {"type": "array", "default": ["a"]}}, required=["tags"])

    prepared = given_arguments({}, schema)
    prepared.arguments["tags"].append("b")

    assert prepared.repairs == ("Set 'tags' to its default [\"a\"].",)
    assert schema["properties"]["tags"]["default"] == ["a"]


def test_a_parameter_named_like_a_wrapper_is_no_wrapper():
    schema = of({"input": {"type": "object"}}, required=["input", "mode"])

    assert problems({"input": {"mode": "x"}}, schema) == [("mode", "required", "is required")]


def test_the_member_of_a_union_that_was_meant_is_repaired():
    def shape(kind: str, member: str) -> Json:
        return of({"kind": {"const": kind}, member: {"type": "integer"}}, required=["kind", member])

    schema = of({"shape": {"oneOf": [shape("circle", "radius"), shape("square", "side")]}})

    prepared = given_arguments({"shape": {"kind": "square", "side": "3"}}, schema)

    assert prepared.arguments == {"shape": {"kind": "square", "side": 3}}


@pytest.mark.parametrize(
    "sent",
    [
        {"query": "a", "limit": "five"},
        {"query": "a", "limit": "007"},
        {"query": "a", "limit": 5.5},
        {"query": "a", "limit": ""},
        {"query": "a", "draft": 1},
        {"query": "a", "labels": "bug, docs"},
        {"query": "a", "labels": "['bug']"},
        {"query": "a", "labels": 5},
        {"query": "a", "state": "-open"},
        {"query": {"text": "a"}},
        {"query": None},
        {"query": "a", "Limit": 3, "LIMIT": 4},
        {"query": "a", "extra": None},
        {"query": "a", "parent": {"ID": 1, "Id": 2}},
    ],
)
def test_what_might_mean_something_else_is_not_repaired(sent: Json):
    assert problems(sent)


@pytest.mark.parametrize(
    ("options", "sent"), [(["15"], "1.5"), (["v11"], "v1.1"), (["A"], "A-"), ([5], "-5")]
)
def test_options_that_differ_in_a_telling_sign_are_not_the_same(options: list[Any], sent: str):
    assert problems({"x": sent}, of({"x": {"enum": options}}))


@pytest.mark.requirement("R71")
@settings(max_examples=200)
@given(st.data())
def test_valid_arguments_are_never_altered(data: st.DataObject):
    """R71: repairs are for what does not fit, and for nothing else."""
    schema = of(data.draw(st.dictionaries(KEYS, st.sampled_from(PARTS), max_size=3)))
    schema["additionalProperties"] = data.draw(st.booleans())
    value = data.draw(st.dictionaries(KEYS, JSON_VALUES, max_size=3))

    if jsonschema_rs.Draft202012Validator(schema).is_valid(value):
        prepared = given_arguments(value, schema)

        assert prepared == Prepared(arguments=value)
        assert prepared.arguments is value


@settings(max_examples=200)
@given(st.data())
def test_repaired_arguments_are_valid(data: st.DataObject):
    schema = of(data.draw(st.dictionaries(KEYS, st.sampled_from(PARTS), max_size=3)))
    schema["required"] = data.draw(st.lists(KEYS, max_size=2, unique=True))
    value = data.draw(st.dictionaries(KEYS, JSON_VALUES, max_size=3))

    try:
        prepared = given_arguments(value, schema)
    except InvalidArguments as error:
        assert 1 <= len(error.problems) <= 5
    else:
        assert jsonschema_rs.Draft202012Validator(schema).is_valid(prepared.arguments)
        assert bool(prepared.repairs) == (prepared.arguments != value)


@settings(max_examples=200)
@given(st.data())
def test_nothing_but_arguments_or_a_refusal_comes_out(data: st.DataObject):
    schema = data.draw(st.just(SCHEMA) | st.dictionaries(st.sampled_from(KEYWORDS), ODD_VALUES))
    value = data.draw(ODD_VALUES | ODD_KEYS)

    try:
        prepared = given_arguments(value, schema)
    except InvalidArguments as error:
        assert error.problems
    else:
        json.dumps(prepared.arguments, allow_nan=False, ensure_ascii=False).encode()


KEYS = st.sampled_from(["a", "A", "b_c", "bC", "0"])
PARTS: list[Json] = [
    {"type": "integer"},
    {"type": "string"},
    {"type": ["boolean", "null"]},
    {"type": "array", "items": {"type": "number"}},
    {"enum": ["x", "y_z", 3]},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
]
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 2.0])
TEXTS = st.sampled_from(["5", "true", "null", "X", "y-z", "[1]", '{"a": 1}', "", "a,b", "0.5"])
JSON_VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=5,
)
KEYWORDS = ["type", "properties", "required", "$ref", "anyOf", "enum", "pattern", "items", "$id"]
ODD_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["object", "integer", "#", "#/properties", "http://127.0.0.1/", "(", "5"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYWORDS, "query", "limit"]), inner, max_size=3)
    ),
    max_leaves=8,
)
ODD_KEYS = st.dictionaries(st.integers() | st.text(), ODD_VALUES, max_size=2)


TOLD: list[tuple[object, list[tuple[str, str, str]]]] = [
    ({}, [("query", "required", "is required")]),
    (
        {"query": "a", "limit": "abc"},
        [("limit", "type", "expected integer, got the text 'abc'")],
    ),
    ({"query": "a", "limit": "500"}, [("limit", "maximum", "must be at most 100, got 500")]),
    (
        {"query": "a", "state": "opened"},
        [("state", "enum", "must be one of open, closed, not_planned")],
    ),
    (
        {"query": "a", "lables": []},
        [
            (
                "lables",
                "additionalProperties",
                "is not a parameter; known: labels, query, limit, ratio, draft, pull_number, "
                "state, options, … (10 in all)",
            )
        ],
    ),
    (
        {"query": "a", "issues": [{"id": 1}, {"id": 2}, {"id": []}]},
        [("issues[2].id", "type", "expected integer, got a list of 0")],
    ),
    (
        {"query": "a", "parent": []},
        [("parent", "anyOf", "matches none of: integer; null; object with id; got a list of 0")],
    ),
    (
        {"query": "a", "parent": {"id": "x"}},
        [("parent.id", "type", "expected integer, got the text 'x'")],
    ),
    ("find it", [("", "type", "expected object, got the text 'find it'")]),
    ([1, 2], [("", "type", "expected object, got a list of 2")]),
]


@pytest.mark.requirement("R74")
@pytest.mark.parametrize(("sent", "told"), TOLD)
def test_a_refusal_names_argument_and_rule(sent: object, told: list[tuple[str, str, str]]):
    """R74"""
    assert problems(sent) == told


@pytest.mark.requirement("R74")
def test_a_refusal_says_that_nothing_was_called():
    """R74"""
    with pytest.raises(InvalidArguments) as caught:
        given_arguments({"limit": 0})

    assert str(caught.value) == (
        "Not called: the arguments of 'github__find' do not match its schema. "
        "limit: must be at least 1, got 0 (minimum); query: is required (required)."
    )
    assert caught.value.problems[1] == Problem(path="query", rule="required", message="is required")


WORDS: list[tuple[object, object, str]] = [
    ({"minLength": 2}, "a", "must have at least 2 characters, got 1"),
    ({"maxItems": 1}, [1, 2], "must have at most 1 items, got 2"),
    ({"minProperties": 1}, {}, "must have at least 1 properties, got 0"),
    ({"exclusiveMinimum": 0}, 0, "must be above 0, got 0"),
    ({"multipleOf": 5}, 7, "must be a multiple of 5, got 7"),
    ({"pattern": "^a"}, "b", "must match the pattern ^a, got b"),
    ({"const": "x"}, "y", "must be x"),
    ({"uniqueItems": True}, [1, 1], "must not contain duplicates"),
    ({"contains": {"type": "null"}}, [1], "contains no item of the required kind"),
    ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "has a key that is not allowed"),
    ({"not": {"type": "string"}}, "a", "is a forbidden kind of value"),
    (False, 1, "is not allowed"),
    ({"oneOf": [{}, True]}, 1, "matches more than one alternative instead of exactly one"),
    ({"type": "integer"}, "<b>" + "x" * 99, "expected integer, got the text '\u2039b\u203axxx"),
]


@pytest.mark.parametrize(("part", "sent", "told"), WORDS)
def test_every_rule_is_told_in_our_own_words(part: object, sent: object, told: str):
    [(path, _, message)] = problems({"x": sent}, of({"x": part}))

    assert path == "x"
    assert message.startswith(told)


def test_problems_are_at_most_five_in_the_order_of_their_paths():
    sent: Json = {"query": "a", "issues": [{"id": []} for _ in range(12)], "draft": 3}

    assert [path for path, _, _ in problems(sent)] == [
        "draft",
        *(f"issues[{index}].id" for index in range(4)),
    ]


def test_the_nearest_of_many_options_come_first():
    options = [f"region-{number}" for number in range(40)]

    [(_, _, message)] = problems({"x": "regin-31"}, of({"x": {"enum": options}}))

    assert message.startswith("must be one of region-31, ")
    assert message.endswith("… (40 in all)")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"query": float("nan")}, "contains a number that JSON cannot represent"),
        ({"query": 10**5_000}, "contains a number that JSON cannot represent"),
        ({"query": "\ud800"}, "contains half a character"),
        ({5: "a"}, "holds a key that is not a string"),
        ({"query": {1, 2}}, "holds a value of type set"),
        ({"query": b"a"}, "holds a value of type bytes"),
    ],
)
def test_what_is_no_json_is_refused(value: object, told: str):
    [(path, rule, message)] = problems(value)

    assert (path, rule) == ("", "type")
    assert message.startswith(told)


def nested(levels: int, value: object) -> Any:
    for _ in range(levels):
        value = {"a": value}
    return value


def test_arguments_nested_without_end_are_refused():
    assert problems(nested(10_000, 1), {}) == [("", "type", "is nested deeper than 200 levels")]
    assert problems("[" * 100_000, {})[0][1] == "type"


@pytest.mark.parametrize("reference", ["http://127.0.0.1:1/x", "file:///etc/hosts", "#/$defs/no"])
def test_a_reference_that_leads_out_of_the_schema_is_not_followed(reference: str):
    schema = of({"a": {"$ref": reference}}, required=["b"])

    prepared = given_arguments({"a": 5, "b": 1}, schema)

    assert prepared.arguments == {"a": 5, "b": 1}
    assert prepared.unchecked == ("The schema has external references, so only names were checked.")
    assert problems({"a": 5}, schema) == [("b", "required", "is required")]


def test_a_broken_schema_does_not_make_its_tool_uncallable():
    schema = of({"a": {"type": "strin"}, "b": {"type": "integer"}}, required=["b"])

    prepared = given_arguments('{"a": 1, "B": "x"}', schema)

    assert prepared.arguments == {"a": 1, "b": "x"}
    assert prepared.unchecked == "The schema is not valid JSON Schema, so only names were checked."


def test_a_pattern_that_needs_backtracking_is_left_out_and_the_rest_checked():
    schema = of({"a": {"type": "string", "pattern": "^(?!x)(a+)+$"}, "b": {"type": "integer"}})

    prepared = given_arguments({"a": "xyz", "b": "5"}, schema)

    assert prepared.arguments == {"a": "xyz", "b": 5}
    assert prepared.unchecked == "A pattern in the schema is unsafe and was not checked."


def test_a_pattern_made_to_run_for_ever_does_not():
    schema = of({"a": {"type": "string", "pattern": "^(a+)+$"}})

    assert problems({"a": "a" * 100_000 + "b"}, schema)[0][1] == "pattern"


def test_a_pattern_with_many_repetitions_is_not_run_on_a_long_text():
    schema = of({"a": {"type": "string", "pattern": "[ab]*a(?:[ab]x?){3000}c"}})

    prepared = given_arguments({"a": "ab" * 100_000}, schema)

    assert prepared.unchecked == "Checking all arguments would take too long."
    assert problems({"a": "ab" * 100}, schema)[0][1] == "pattern"


@pytest.mark.parametrize(
    "schema",
    [
        of({"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}}),
        of({"n": {"type": "array", "items": [{"type": "integer"}]}}),
        of({"n": {"type": "integer"}}, **{"$schema": "https://example.com/own"}),
        of({"n": {"type": "integer"}}, **{"$schema": "http://json-schema.org/draft-07/schema#"}),
    ],
)
def test_schemas_of_any_draft_are_checked(schema: Json):
    assert problems({"n": ["x"]}, schema)
    assert given_arguments({}, schema).unchecked == ""


def test_a_format_is_a_note_and_not_a_rule():
    schema = of({"when": {"type": "string", "format": "date-time"}})

    assert given_arguments({"when": "tomorrow"}, schema).arguments == {"when": "tomorrow"}


def test_a_schema_that_branches_without_end_is_not_run():
    layers: Json = {"l0": {"type": "string"}}
    for number in range(1, 60):
        below = {"$ref": f"#/$defs/l{number - 1}"}
        layers[f"l{number}"] = {"anyOf": [below, below]}
    schema = of({"a": {"$ref": "#/$defs/l59"}}, **{"$defs": layers})

    prepared = given_arguments({"a": 1}, schema)

    assert prepared.unchecked == "Checking all arguments would take too long."


def test_a_schema_that_recurses_deeply_does_not_overrun_a_small_stack():
    link: Json = {"$ref": "#/$defs/node"}
    for _ in range(50):
        link = {"allOf": [link, {}]}
    node = of({"a": link})
    schema: Json = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    found: list[Prepared] = []
    earlier = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(
            target=lambda: found.append(given_arguments(nested(150, {}), schema))
        )
        thread.start()
    finally:
        threading.stack_size(earlier)
    thread.join()

    assert found[0].unchecked == "Checking all arguments would take too long."


def test_large_arguments_are_checked_in_bounded_time():
    schema = of({"a": {"type": "array", "items": {"type": "integer"}}}, required=["b"])
    schema["required"] += [f"k{number}" for number in range(1_000)]

    found = problems({"a": ["x"] * 200_000}, schema)

    assert found[0] == ("b", "required", "is required")


def test_a_long_text_is_shown_cut():
    [(_, _, message)] = problems({"query": "a", "limit": "y" * 1_000_000})

    assert message == f"expected integer, got the text '{'y' * 59}…'"


def test_a_key_that_looks_like_an_index_is_a_key():
    prepared = given_arguments({"0": {"1": "5"}}, of({"0": of({"1": {"type": "integer"}})}))

    assert prepared.arguments == {"0": {"1": 5}}


def test_repairs_are_bounded_in_number():
    schema = of({"a": {"type": "array", "items": {"type": "integer"}}})

    assert problems({"a": ["5"] * 80}, schema)[0][0] == "a[50]"


@pytest.mark.processes
def test_importing_needs_no_validator():
    code = "import sys, toolscout.calls.arguments; assert 'jsonschema_rs' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True)
