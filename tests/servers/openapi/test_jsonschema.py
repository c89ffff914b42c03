"""The schemas of a document as JSON Schema."""

import pytest

from servers.openapi.samples import body, document, only, operation, parameter
from toolscout.calls.arguments import prepare
from toolscout.errors import InvalidArguments
from toolscout.schemas import Json


def test_the_words_of_openapi_3_0_become_json_schema():
    schema = {
        "type": "object",
        "properties": {
            "age": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "example": 3},
            "size": {"type": "number", "maximum": 9, "exclusiveMaximum": False},
            "nick": {"type": "string", "nullable": True, "enum": ["a"]},
            "pet": {"nullable": True, "allOf": [{"$ref": "#/components/schemas/Pet"}]},
            "file": {"type": "file", "required": True, "x-odd": 1},
        },
        "discriminator": {"propertyName": "age"},
    }
    given = operation("post", requestBody=body(schema))
    given["components"] = {"schemas": {"Pet": {"type": "object"}}}
    tool = only(given)

    assert tool.input_schema["properties"] == {
        "age": {"type": "integer", "exclusiveMinimum": 0},
        "size": {"type": "number", "maximum": 9},
        "nick": {"type": ["string", "null"], "enum": ["a", None]},
        "pet": {"anyOf": [{"allOf": [{"$ref": "#/$defs/Pet"}]}, {"type": "null"}]},
        "file": {},
    }
    assert tool.input_schema["$defs"] == {"Pet": {"type": "object"}}


def test_what_stands_beside_a_reference_is_ignored_in_openapi_3_0():
    schema = {
        "$ref": "#/components/schemas/Pet",
        "properties": {"id": {"type": "string", "readOnly": True}},
    }
    given = operation("post", requestBody=body({"type": "array", "items": schema}))
    given["components"] = {"schemas": {"Pet": {"type": "object"}}}

    assert only(given).input_schema["properties"] == {
        "body": {"type": "array", "items": {"$ref": "#/$defs/Pet"}}
    }


def test_the_words_of_openapi_3_1_are_kept():
    schema: Json = {
        "properties": {
            "a": {"type": ["string", "null"], "const": None, "examples": [1]},
            "b": {"$ref": "#/components/schemas/B", "description": "Mine.", "minLength": 2},
            "c": {"items": [{"type": "string"}, True], "$id": "http://x/y", "maxItems": -1},
            "d": True,
            "e": False,
            "f": {"exclusiveMinimum": 3, "multipleOf": 0, "type": ["odd"], "enum": []},
        }
    }
    given = document(
        {"/x": {"post": {"requestBody": body(schema)}}},
        version="3.1.0",
        components={"schemas": {"B": {"type": "string"}}},
    )

    assert only(given).input_schema["properties"] == {
        "a": {"type": ["string", "null"], "const": None},
        "b": {"$ref": "#/$defs/B", "description": "Mine.", "minLength": 2},
        "c": {"prefixItems": [{"type": "string"}, {}]},
        "d": {},
        "e": {"not": {}},
        "f": {"exclusiveMinimum": 3},
    }


def test_recursive_schemas_stay_references_that_arguments_are_checked_against():
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/components/schemas/Node"}, "value": {"type": "string"}},
    }
    given = operation("post", requestBody=body({"$ref": "#/components/schemas/Node"}))
    given["components"] = {"schemas": {"Node": node, "Unused": {}}}
    tool = only(given)

    assert tool.input_schema["properties"]["next"] == {"$ref": "#/$defs/Node"}
    assert list(tool.input_schema["$defs"]) == ["Node"]
    good = {"next": {"next": {"value": "a"}}}
    assert prepare(tool, good).arguments == good
    with pytest.raises(InvalidArguments):
        prepare(tool, {"next": {"next": {"value": []}}})


def test_references_that_lead_nowhere_or_outside_are_left_open():
    for reference in ("#/components/schemas/None", "other.yaml#/A", "http://x/y", "#/paths/9", "#"):
        tool = only(operation(parameters=[parameter("a", "query", schema={"$ref": reference})]))

        assert tool.input_schema["properties"] == {"a": {}}


def test_references_into_other_parts_of_the_document_are_kept():
    given = operation(
        parameters=[
            parameter("a", "query", schema={"type": "integer"}),
            parameter("b", "query", schema={"$ref": "#/paths/~1x/get/parameters/0/schema"}),
        ]
    )
    schema = only(given).input_schema

    (key,) = schema["$defs"]
    assert schema["properties"]["b"] == {"$ref": f"#/$defs/{key}"}
    assert schema["$defs"][key] == {"type": "integer"}


def test_far_definitions_are_left_open_when_there_are_too_many():
    names = [f"S{number}" for number in range(300)]
    schemas = {
        name: {
            "type": "object",
            "description": name,
            "properties": {
                **{f"p{n}": {"type": "string", "description": "x"} for n in range(60)},
                "next": {"$ref": f"#/components/schemas/{names[min(at + 1, 299)]}"},
            },
        }
        for at, name in enumerate(names)
    }
    given = operation("post", requestBody=body({"$ref": "#/components/schemas/S0"}))
    given["components"] = {"schemas": schemas}
    definitions = only(given).input_schema["$defs"]

    assert 20 < len(definitions) < 200
    assert "properties" in definitions["S1"]
    *_, last = definitions.values()
    assert last.keys() == {"type", "description"}
