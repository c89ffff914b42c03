"""The operations of a document as tools, with their words and schemas."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import ANYTHING
from servers.openapi.samples import body, document, only, operation, parameter
from toolscout.catalog import Catalog
from toolscout.errors import InvalidFile, InvalidTool
from toolscout.files import json_from_tool
from toolscout.schemas import Json
from toolscout.servers.openapi.operations import tools_from_openapi
from toolscout.tools import Effect, Tool


def test_an_operation_becomes_a_tool_with_its_words_and_arguments():
    tool = only(
        operation(
            path="/pets/{petId}",
            operationId="showPet",
            summary="Show a pet",
            description="Gives all that is known.",
            tags=["pets"],
            parameters=[
                parameter("petId", "path", required=True, description="Which one."),
                parameter("fields", "query", schema={"type": "array", "items": {"type": "string"}}),
                parameter("X-Trace", "header"),
            ],
        )
    )

    assert (tool.name, tool.leaf, tool.title) == ("api__showPet", "showPet", "Show a pet")
    assert tool.description == "Show a pet\n\nGives all that is known."
    assert (tool.effect, tool.tags) == (Effect.READ, ("pets",))
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "petId": {"type": "string", "description": "Which one."},
            "fields": {"type": "array", "items": {"type": "string"}},
            "X-Trace": {"type": "string"},
        },
        "required": ["petId"],
        "additionalProperties": False,
    }
    places = {place["key"]: place["where"] for place in tool.extras["openapi"]["places"]}
    assert places == {"petId": "path", "fields": "query", "X-Trace": "header"}


def test_a_deprecated_operation_says_so():
    tool = only(operation(summary="Old way", deprecated=True, tags=["a"]))

    assert tool.description == "Deprecated: Old way"
    assert tool.tags == ("deprecated", "a")


def test_long_descriptions_are_cut():
    assert len(only(operation(description="x" * 50_000)).description) == 4_000


def test_a_summary_that_begins_the_description_is_not_repeated():
    tool = only(operation(summary="List pets.", description="List pets that are free."))

    assert tool.description == "List pets that are free."


def test_the_output_schema_is_that_of_the_json_success():
    pet = {"type": "object", "properties": {"secret": {"writeOnly": True}, "name": {}}}
    given = operation(
        responses={
            "default": {"content": {"application/json": {"schema": {"type": "string"}}}},
            "201": {"$ref": "#/components/responses/Made"},
        }
    )
    given["components"] = {
        "responses": {"Made": {"content": {"application/vnd.x+json": {"schema": pet}}}}
    }

    assert only(given).output_schema == {"type": "object", "properties": {"name": {}}}


def test_where_no_success_is_listed_the_default_answer_counts():
    answer = {"content": {"application/json": {"schema": {"type": "object"}}}}

    assert only(operation(responses={"default": answer})).output_schema == {"type": "object"}
    both = {"default": answer, "204": {"description": "Nothing."}}
    assert only(operation(responses=both)).output_schema is None


def test_a_tool_survives_being_stored():
    given = operation("post", "/x/{id}", requestBody=body({"properties": {"a": {}}}))
    tool = only(given)

    assert Tool.from_any(json.loads(json.dumps(json_from_tool(tool)))) == tool


def test_paths_that_leave_the_base_are_refused():
    for path in ("/../admin", "/a/%2e%2E/b", "/a/..%5cb"):
        with pytest.raises(InvalidTool):
            tools_from_openapi(operation(path=path), "api")


NAMES = st.sampled_from(
    (
        *("$ref", "type", "properties", "items", "allOf", "required", "enum", "nullable", "name"),
        *("in", "schema", "content", "application/json", "parameters", "requestBody", "get"),
        *("post", "responses", "200", "default", "operationId", "summary", "tags", "style"),
        *("explode", "encoding", "readOnly", "exclusiveMinimum", "minimum", "deprecated"),
    )
)
WORDS = st.sampled_from(
    (
        *("#/components/schemas/A", "#/paths/~1a", "#/x", "object", "array", "string", "query"),
        *(
            "path",
            "header",
            "body",
            "\ud800",
            "a/b",
            "",
            "{id}",
            "deepObject",
            "multipart/form-data",
        ),
    )
)
PARTS = st.recursive(
    WORDS | ANYTHING,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=30,
)


@given(item=PARTS, schema=PARTS, said=st.dictionaries(NAMES, PARTS, max_size=6))
def test_no_document_gives_anything_but_tools_or_a_plain_refusal(
    item: object, schema: object, said: Json
):
    paths = {"/a": item, "/b/{id}": {"post": said, "get": item}}
    given = document(paths, components={"schemas": {"A": schema}, "parameters": schema})

    try:
        tools = tools_from_openapi(given, "api")
    except (InvalidFile, InvalidTool):
        return

    Catalog().replace("api", tools)
    assert json.dumps([json_from_tool(tool) for tool in tools])
