"""Parameters and bodies as the arguments of a tool."""

from servers.openapi.samples import body, document, only, operation, parameter
from toolscout.schemas import Json


def test_members_of_a_json_body_become_arguments():
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "id": {"type": "integer", "readOnly": True}},
        "required": ["name", "id"],
    }
    tool = only(operation("post", requestBody=body(schema, required=True)))

    assert tool.input_schema["properties"] == {"name": {"type": "string"}}
    assert tool.input_schema["required"] == ["name"]


def test_a_body_whose_members_collide_is_one_argument():
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    tool = only(operation("put", "/x/{id}", requestBody=body(schema, required=True)))

    assert tool.input_schema["properties"] == {"id": {"type": "string"}, "body": schema}
    assert tool.input_schema["required"] == ["id", "body"]


def test_a_body_that_is_no_plain_object_is_one_argument():
    schemas: list[Json] = [
        {"type": "array", "items": {"type": "string"}},
        {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "string"}]},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "string"}},
    ]
    for schema in schemas:
        tool = only(operation("post", requestBody=body(schema)))

        assert list(tool.input_schema["properties"]) == ["body"]
        assert "required" not in tool.input_schema


def test_parts_of_a_body_that_hold_together_are_merged():
    given = operation(
        "post",
        requestBody=body(
            {"allOf": [{"$ref": "#/components/schemas/Base"}, {"properties": {"b": {}}}]}
        ),
    )
    given["components"] = {"schemas": {"Base": {"type": "object", "properties": {"a": {}}}}}

    assert list(only(given).input_schema["properties"]) == ["a", "b"]


def test_arguments_of_one_name_in_different_places_are_told_apart():
    given = operation(
        path="/x/{id}", parameters=[parameter("id", "query"), parameter("id", "header")]
    )

    assert list(only(given).input_schema["properties"]) == ["id", "query_id", "header_id"]


def test_names_that_providers_refuse_are_cleaned():
    given = operation(parameters=[parameter("filter[status]", "query"), parameter("$top", "query")])

    assert list(only(given).input_schema["properties"]) == ["filter_status", "top"]


def test_parameters_of_the_path_are_shared_and_can_be_replaced():
    shared = [parameter("a", "query", description="Old."), parameter("b", "query")]
    item = {"parameters": shared, "get": {"parameters": [{"$ref": "#/components/parameters/A"}]}}
    components = {"parameters": {"A": parameter("a", "query", description="New.")}}
    tool = only(document({"/x": item}, components=components))

    assert list(tool.input_schema["properties"]) == ["a", "b"]
    assert tool.input_schema["properties"]["a"]["description"] == "New."


def test_headers_that_steer_a_request_are_no_arguments():
    names = ("Authorization", "Content-Type", "Accept", "HOST", "Content-Length", "Cookie", "a b")
    tool = only(operation(parameters=[parameter(name, "header") for name in names]))

    assert tool.input_schema["properties"] == {}
