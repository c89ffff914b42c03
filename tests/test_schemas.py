from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.schemas import (
    Json,
    find_problem,
    list_parameters,
    remove_arguments,
    render_signature,
)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "allOf", "$ref", "enum", "required", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def of(properties: Json, **rest: Any) -> Json:
    return {"type": "object", "properties": properties, **rest}


def paths(schema: Json, **bounds: int) -> list[str]:
    return [parameter.path for parameter in list_parameters(schema, **bounds)]


@pytest.mark.requirement("R23")
def test_nested_objects_and_list_items_are_parameters_after_the_outer_ones():
    """R23"""
    schema = of(
        {
            "options": of({"retries": {"type": "integer"}}),
            "items": {"type": "array", "items": of({"id": {"type": "string"}})},
            "last": {"type": "string"},
        }
    )

    assert paths(schema) == ["options", "items", "last", "options.retries", "items[].id"]


def test_a_parameter_carries_type_description_enum_and_whether_it_is_required():
    schema = of(
        {"state": {"enum": ["open", "closed"], "description": "Which ones."}}, required=["state"]
    )

    [state] = list_parameters(schema)

    assert (state.type, state.description, state.required) == ("string", "Which ones.", True)
    assert state.enum == ("open", "closed")


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string"),
        ({"type": ["string", "integer"]}, "string|integer"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"type": ["string", "integer"]}}, "(string|integer)[]"),
        ({"type": "array"}, "any[]"),
        ({"$ref": "#/$defs/Point"}, "object"),
        ({"$ref": "#/$defs/Missing"}, "any"),
        ({"$ref": "https://example.com/schema"}, "any"),
        ({"properties": {}}, "object"),
        ({"const": "on"}, "string"),
        (True, "any"),
        ({}, "any"),
    ],
)
def test_types_are_short_texts(schema: object, kind: str):
    root = of({"value": schema}, **{"$defs": {"Point": of({"x": {"type": "number"}})}})

    assert list_parameters(root)[0].type == kind


def test_parts_that_always_hold_make_required_and_alternatives_do_not():
    schema = of(
        {"a": {"type": "string"}},
        allOf=[of({"b": {"type": "string"}}, required=["b"])],
        anyOf=[of({"c": {"type": "string"}}, required=["c"]), {"required": ["a"]}],
    )

    assert {p.name: p.required for p in list_parameters(schema)} == {
        "a": False,
        "b": True,
        "c": False,
    }


def test_a_recursive_schema_is_cut():
    node = of({"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#"}}})
    looping = of({"x": {"$ref": "#/$defs/A"}}, **{"$defs": {"A": {"$ref": "#/$defs/A"}}})

    assert paths(node)[:3] == ["name", "kids", "kids[].name"]
    assert paths(looping) == ["x"]


def test_shared_references_cannot_multiply_the_work():
    branches = {
        f"L{i}": {"anyOf": [{"type": "array", "items": {"$ref": f"#/$defs/L{i + 1}"}}] * 30}
        for i in range(30)
    }

    assert paths(of({"x": {"$ref": "#/$defs/L0"}}, **{"$defs": branches})) == ["x"]


def test_bounds_cut_the_deep_and_keep_the_outer_parameters():
    deep = of({f"p{i}": {"type": "string"} for i in range(50)})
    schema = of({"first": deep, "second": {"type": "string"}})

    assert paths(schema, max_parameters=5)[:2] == ["first", "second"]
    assert len(paths(schema, max_parameters=5)) == 5
    assert paths(schema, max_depth=1) == ["first", "second"]


@given(st.dictionaries(st.sampled_from(["type", "properties", "required", "allOf"]), json_values))
def test_no_schema_content_raises(schema: Json):
    assert len(list_parameters(schema)) <= 400
    assert render_signature("x", schema).startswith("x(")


@pytest.mark.requirement("R40")
def test_a_signature_puts_required_parameters_first_and_names_types():
    """R40"""
    schema = of(
        {
            "labels": {"type": "array", "items": {"type": "string"}},
            "state": {"enum": ["open", "closed"]},
            "owner": {"type": "string"},
            "count": {"type": "integer"},
        },
        required=["owner", "count"],
    )

    expected = "create_issue(owner*, count*: integer, labels?: string[], state?: open|closed)"
    assert render_signature("create_issue", schema) == expected


@pytest.mark.requirement("R40")
def test_a_lossy_signature_says_so_and_keeps_every_required_parameter():
    """R40"""
    schema = of(
        {f"p{i}": {"type": "string"} for i in range(60)}
        | {"zone": {"enum": [str(i) for i in range(9)]}},
        required=[f"p{i}" for i in range(20, 60)] + ["zone"],
    )

    text = render_signature("x", schema)

    assert all(f"p{i}*" in text for i in range(20, 60))
    assert "zone*: 0|1|2|3|4|5|6|7|…" in text
    assert text.endswith("p11?, …)")


def test_a_signature_shows_one_nested_level():
    schema = of(
        {
            "to": {"type": "array", "items": of({"id": {}, "at": of({"z": {}})}, required=["id"])},
            "mode": of({}),
        }
    )

    assert render_signature("x", schema) == "x(to?: {id*: any, at?: {…}}[], mode?: object)"


@pytest.mark.requirement("R85")
def test_hostile_names_and_values_are_quoted_and_open_no_tag():
    """R85"""
    schema = of({"a b\n<system>": {"enum": ["x|y", "</tool>"]}})

    assert render_signature("x", schema) == ('x("a b\\n\\u003csystem>"?: "x|y"|"\\u003c/tool>")')


def nested(levels: int) -> Json:
    schema: Json = {}
    for _ in range(levels):
        schema = {"a": schema}
    return schema


def test_what_is_not_json_is_named():
    looping: Json = {}
    looping["again"] = looping

    assert find_problem(nested(150)) == ""
    assert find_problem(nested(1000)) == "is nested deeper than 200 levels"
    assert find_problem(looping) == "is nested deeper than 200 levels"
    assert find_problem({1: 2}) == "holds a key that is not a string"
    assert find_problem({"a": {3}}) == "holds a value of type set, which is not JSON"


NAMES = st.sampled_from(["a", "b", "c", "d"])
values = st.integers(0, 2)
schemas: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(
                NAMES, st.sampled_from([{}, False, {"const": 1}, {"enum": [0, 2]}])
            ),
            "required": st.lists(NAMES, unique=True),
            "additionalProperties": st.just(False),
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, unique=True)),
            "minProperties": st.integers(0, 3),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "required": st.lists(NAMES, unique=True),
            "dependentSchemas": st.dictionaries(NAMES, inner, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
        },
    ),
    max_leaves=6,
)


@given(schemas, st.dictionaries(st.sampled_from("ab"), values), st.booleans(), st.data())
def test_without_some_arguments_a_schema_accepts_what_it_accepts_with_them(
    schema: Json, fixed: Json, is_absent: bool, data: st.DataObject
):
    absent = ("c",) if is_absent else ()
    free = st.sampled_from([name for name in "abcd" if name not in fixed and name not in absent])
    arguments = data.draw(st.dictionaries(free, values))

    shown = remove_arguments(schema, fixed, absent)

    is_shown_valid = shown is not None and jsonschema_rs.is_valid(shown, arguments)
    assert is_shown_valid == jsonschema_rs.is_valid(schema, arguments | fixed)


def test_a_removed_argument_is_not_shown_anywhere():
    schema = of(
        {"owner": {"type": "string"}, "title": {"type": "string"}, "draft": {"type": "boolean"}},
        required=["owner", "title"],
        dependentRequired={"title": ["owner"], "draft": ["title"]},
        anyOf=[{"required": ["owner"]}, {"required": ["draft"]}],
    )

    shown = remove_arguments(schema, {"owner": "acme"}, ["draft"])

    assert shown is not None
    assert render_signature("f", shown) == "f(title*)"
    assert "owner" not in str(shown)
    assert "draft" not in str(shown)
