"""What is taken as a document, and how much work one may ask for."""

import json
from typing import Any

import pytest

from servers.openapi.samples import body, document, only, parameter
from toolscout.errors import InvalidFile
from toolscout.files import json_from_tool
from toolscout.schemas import Json
from toolscout.servers.openapi import document as document_module
from toolscout.servers.openapi.document import read_document
from toolscout.servers.openapi.operations import tools_from_openapi


def test_swagger_2_is_refused_with_the_way_out():
    with pytest.raises(InvalidFile, match=r"is Swagger 2\.0, not OpenAPI 3\. Convert it"):
        read_document('{"swagger": "2.0", "paths": {}}')
    with pytest.raises(InvalidFile, match="Convert it"):
        tools_from_openapi({"swagger": "2.0"}, "api")


def test_a_value_that_contains_itself_is_refused():
    given = document({})
    given["x"] = given

    with pytest.raises(InvalidFile, match="nested deeper"):
        tools_from_openapi(given, "api")


def test_references_that_run_in_circles_come_to_an_end():
    loop = {"$ref": "#/components/schemas/A"}
    components = {
        "schemas": {"A": {"allOf": [loop, loop]}, "B": {"$ref": "#/components/schemas/B"}},
        "parameters": {"P": {"$ref": "#/components/parameters/P"}},
        "pathItems": {"I": {"$ref": "#/components/pathItems/I"}},
    }
    said = {
        "parameters": [{"$ref": "#/components/parameters/P"}, parameter("a", "query", schema=loop)],
        "requestBody": body(loop),
        "responses": {"200": body({"$ref": "#/components/schemas/B"})},
    }
    paths = {"/x": {"post": said}, "/y": {"$ref": "#/components/pathItems/I"}}

    tool = only(document(paths, components=components))

    assert list(tool.input_schema["properties"]) == ["a", "body"]
    assert tool.output_schema is None


def shared_by_many(said: Json, count: int = 9_999, **members: Any) -> Json:
    paths: Json = {f"/{number}": {"$ref": "#/components/pathItems/I"} for number in range(count)}
    item: Json = {"post": said, **members}
    return document(paths, components={"pathItems": {"I": item}})


def wide(count: int) -> Json:
    return {f"p{number}": {"type": "string"} for number in range(count)}


@pytest.mark.parametrize(
    "given",
    [
        shared_by_many({"parameters": [parameter(name, "query") for name in wide(5_000)]}),
        shared_by_many({}, **wide(5_000)),
        shared_by_many({"responses": wide(5_000)}),
        shared_by_many({"requestBody": body({"properties": wide(5_000)})}),
        shared_by_many({"requestBody": body({"type": "array", "items": {"enum": [*wide(5_000)]}})}),
    ],
    ids=("parameters", "members", "responses", "body", "enum"),
)
def test_shared_parts_cannot_multiply_the_work(given: Json, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(document_module, "WORK", document_module.WORK // 10)

    with pytest.raises(InvalidFile, match="more work"):
        tools_from_openapi(given, "api")


def test_long_texts_that_are_shared_are_cut():
    long = "x y" * 1_000_000
    said: Json = {
        "operationId": long,
        "summary": long,
        "description": long,
        "parameters": [parameter(long, "query"), parameter("a", "query", style=long)],
        "requestBody": {"content": {long: {}}},
    }
    tools = tools_from_openapi(shared_by_many(said, 500), "api")

    assert max(len(json.dumps(json_from_tool(tool))) for tool in tools) < 50_000
