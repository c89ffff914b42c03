"""An OpenAPI document as tools, and its calls as real requests to a server on this machine."""

import asyncio
import base64
import gzip
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import ANYTHING
from toolscout.calls.arguments import prepare
from toolscout.calls.outcomes import outcome_of
from toolscout.catalog import Catalog
from toolscout.errors import (
    CallFailed,
    CallTimedOut,
    InvalidArguments,
    InvalidConfig,
    InvalidFile,
    InvalidTool,
    MissingExtra,
    ServerUnavailable,
)
from toolscout.files import tool_from_json, tool_to_json
from toolscout.scout import Scout
from toolscout.tools import Effect, Tool
from toolscout.upstream.openapi import OpenApi, read_document, tools_from_openapi

Json = dict[str, Any]
WAIT_SECONDS = 20


def document(paths: Json, *, version: str = "3.0.3", **members: Any) -> Json:
    return {"openapi": version, "info": {"title": "t", "version": "1"}, "paths": paths, **members}


def operation(method: str = "get", path: str = "/x", **said: Any) -> Json:
    return document({path: {method: said}})


def parameter(name: str, where: str, **said: Any) -> Json:
    return {"name": name, "in": where, "schema": {"type": "string"}, **said}


def body(schema: Json, media: str = "application/json", **said: Any) -> Json:
    return {"content": {media: {"schema": schema}}, **said}


def only(given: Json) -> Tool:
    (tool,) = tools_from_openapi(given, "api")
    return tool


# Definitions


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


@pytest.mark.parametrize(
    ("method", "effect"),
    [
        *((method, Effect.READ) for method in ("get", "head", "options")),
        *((method, Effect.WRITE) for method in ("post", "put", "patch")),
        ("delete", Effect.DESTRUCTIVE),
    ],
)
def test_the_effect_comes_from_the_method(method: str, effect: Effect):
    assert only(operation(method)).effect is effect


def test_an_operation_without_an_id_is_named_by_method_and_path():
    tool = only(operation("post", "/users/{id}/keys"))

    assert (tool.leaf, tool.description) == ("post_users_id_keys", "POST /users/{id}/keys")


@pytest.mark.requirement("R84")
def test_operations_that_ask_for_one_name_get_stable_names_of_their_own():
    """R84: no collision remains, and no name depends on the order of the document."""
    paths: Json = {
        "/a": {"get": {"operationId": "list"}},
        "/b": {"get": {"operationId": "list"}},
        "/b/": {"get": {"operationId": "list"}},
    }
    forward = tools_from_openapi(document(paths), "api")
    backward = tools_from_openapi(document(dict(reversed(paths.items()))), "api")

    names = [tool.leaf for tool in forward]
    assert names[0] == "get_a"
    assert all(name.startswith("get_b_") for name in names[1:])
    assert len(set(names)) == 3
    assert sorted(names) == sorted(tool.leaf for tool in backward)


def test_an_odd_operation_id_is_cleaned():
    assert only(operation(operationId="repos/create <b>")).leaf == "repos_create_b"


def test_a_deprecated_operation_says_so():
    tool = only(operation(summary="Old way", deprecated=True, tags=["a"]))

    assert tool.description == "Deprecated: Old way"
    assert tool.tags == ("deprecated", "a")


def test_long_descriptions_are_cut():
    assert len(only(operation(description="x" * 50_000)).description) == 4_000


def test_a_summary_that_begins_the_description_is_not_repeated():
    tool = only(operation(summary="List pets.", description="List pets that are free."))

    assert tool.description == "List pets that are free."


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


def test_a_tool_survives_being_stored():
    given = operation("post", "/x/{id}", requestBody=body({"properties": {"a": {}}}))
    tool = only(given)

    assert tool_from_json(json.loads(json.dumps(tool_to_json(tool)))) == tool


# Documents


def test_json_and_yaml_say_the_same(tmp_path: Path):
    given = operation(responses={"200": {}}, parameters=[parameter("on", "query", example=None)])
    path = tmp_path / "api.json"
    path.write_text(json.dumps(given))
    yaml = (
        "openapi: 3.0.3\ninfo: {title: t, version: '1'}\npaths:\n  /x:\n    get:\n"
        "      responses: {200: {}}\n      parameters:\n"
        "      - {name: on, in: query, schema: &s {type: string}, example: ~}\n"
    )

    assert read_document(path) == read_document(str(path)) == read_document(yaml) == given
    assert read_document(json.dumps(given)) == given


def test_yaml_scalars_are_those_of_json():
    text = "openapi: 3.1.0\nx: [yes, 2020-01-01, 0o17, 012, 1.5, -3, true, null, 1e3, '1', <<]\n"

    words = ["yes", "2020-01-01", "0o17", "012", 1.5, -3, True, None, 1000.0, "1", "<<"]
    assert read_document(text)["x"] == words


def test_swagger_2_is_refused_with_the_way_out():
    with pytest.raises(InvalidFile, match=r"is Swagger 2\.0, not OpenAPI 3\. Convert it"):
        read_document('{"swagger": "2.0", "paths": {}}')
    with pytest.raises(InvalidFile, match="Convert it"):
        tools_from_openapi({"swagger": "2.0"}, "api")


BOMB = "openapi: 3.0.0\na: &a [" + "x, " * 1000 + "]\nb: &b [" + "*a, " * 1000 + "]\n"


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "a: [", "a: b: c\n", "- 1\n", "openapi: 4.0\n", "{}", '{"openapi": 3}'),
        *('{"openapi": "3.0.0", "a": NaN}', '{"openapi": "3.0.0", "a": 1e999}', "{" * 5000),
        '{"openapi": "3.0.0", "a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"openapi": "3.0.0", "a": ' + "9" * 5000 + "}",
        "openapi: 3.0.0\na: " + "[" * 100_000,
        "openapi: 3.0.0\na: &a [*a]\n",
        "openapi: 3.0.0\n? [a]\n: b\n",
        "--- 1\n--- 2\n",
        BOMB + "c: &c [" + "*b, " * 1000 + "]\n",
    ],
    ids=lambda text: text[:30],
)
def test_texts_that_are_no_document_are_refused(text: str):
    with pytest.raises(InvalidFile):
        read_document(text)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path):
    (tmp_path / "latin.yaml").write_bytes(b"openapi: \xff\n")

    for path in (tmp_path, tmp_path / "none.yaml", tmp_path / "latin.yaml", "a\0b"):
        with pytest.raises(InvalidFile):
            read_document(path)


def test_yaml_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(MissingExtra, match=r"toolscout\[gateway\]"):
        read_document("openapi: 3.0.0\n")


def test_too_many_operations_are_refused():
    paths: Json = {f"/{number}": {"get": {}} for number in range(10_001)}

    with pytest.raises(InvalidFile, match="10,000 operations"):
        tools_from_openapi(document(paths), "api")


def test_paths_that_leave_the_base_are_refused():
    for path in ("/../admin", "/a/%2e%2E/b", "/a/..%5cb"):
        with pytest.raises(InvalidTool):
            tools_from_openapi(operation(path=path), "api")


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


def test_shared_parts_cannot_multiply_the_work():
    parameters = [parameter(f"p{number}", "query") for number in range(5_000)]
    item: Json = {"parameters": parameters, "get": {"responses": {}}}
    paths = {f"/{number}": {"$ref": "#/components/pathItems/I"} for number in range(9_999)}

    with pytest.raises(InvalidFile, match="more work"):
        tools_from_openapi(document(paths, components={"pathItems": {"I": item}}), "api")


def test_a_value_that_contains_itself_is_refused():
    given = document({})
    given["x"] = given

    with pytest.raises(InvalidFile, match="nested deeper"):
        tools_from_openapi(given, "api")


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
    assert json.dumps([tool_to_json(tool) for tool in tools])


# Calls


@dataclass
class Seen:
    """One request as it came over the wire."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])


def json_reply(value: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"content-type": "application/json"})


class Service:
    """A web server on this machine that remembers what it was asked."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.answer: Callable[[Seen], Reply] = lambda _: json_reply({"ok": True})
        self.asked, self.left = threading.Event(), threading.Event()
        self.is_silent = False
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(self))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/base"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join(WAIT_SECONDS)
        self.server.server_close()


def handler_for(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            method, target, _ = self.requestline.split(" ")
            headers = {name.lower(): value for name, value in self.headers.items()}
            data = self.rfile.read(int(headers.get("content-length", 0)))
            seen = Seen(method, target, headers, data)
            service.seen.append(seen)
            service.asked.set()
            if service.is_silent:
                self.rfile.read(1)
                service.left.set()
                self.close_connection = True
                return
            self.reply(service.answer(seen))

        def reply(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in ({"content-length": str(len(reply.body))} | reply.headers).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
            pass

    return Handler


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("NO_PROXY", "*")
    service = Service()
    yield service
    service.close()


def call(service: Service, given: Json, arguments: Json, **options: Any) -> Json:
    async def made() -> Json:
        async with OpenApi(given, server="api", base_url=service.url, **options) as api:
            return await api(api.tools[0], arguments)

    return asyncio.run(made())


def target(service: Service, given: Json, arguments: Json) -> str:
    call(service, given, arguments)
    return service.seen[-1].target


def test_a_call_is_one_request_below_the_base_with_the_configured_credentials(service: Service):
    given = operation(
        "put",
        "/pets/{id}",
        parameters=[parameter("dry", "query", schema={"type": "boolean"})],
        requestBody=body({"properties": {"name": {}, "tags": {}}}, required=True),
    )
    result = call(
        service,
        given,
        {"id": 7, "dry": True, "name": "Ö", "tags": [1]},
        headers={"Authorization": "Bearer s3cret"},
    )

    (seen,) = service.seen
    assert (seen.method, seen.target) == ("PUT", "/base/pets/7?dry=true")
    assert seen.headers["authorization"] == "Bearer s3cret"
    assert seen.headers["content-type"] == "application/json"
    assert json.loads(seen.body) == {"name": "Ö", "tags": [1]}
    assert result == {
        "content": [{"type": "text", "text": '{"ok":true}'}],
        "isError": False,
        "structuredContent": {"ok": True},
    }


@pytest.mark.requirement("R71")
def test_a_session_calls_an_operation_like_any_other_tool(service: Service):
    """R71: the operation is reached by `tool_call`, with its arguments checked."""
    catalog = Catalog()
    given = operation(path="/pets/{id}", operationId="showPet", summary="Show a pet")

    async def made() -> tuple[Any, Any]:
        async with OpenApi(given, server="api", base_url=service.url) as api:
            catalog.replace("api", api.tools)
            session = Scout(catalog, executors={"api": api}, encoder=None).session("s")
            session.search(["show a pet"])
            return (
                await session.call("api__showPet", {"id": "7"}),
                await session.call("api__showPet", {"id": "7", "nick": "x"}),
            )

    good, bad = asyncio.run(made())

    assert (good.code, good.text) == ("ok", '{"ok":true}')
    assert bad.code == "invalid_arguments"
    assert [seen.target for seen in service.seen] == ["/base/pets/7"]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("a/b", "a%2Fb"),
        ("//evil.example", "%2F%2Fevil.example"),
        ("x?admin=1", "x%3Fadmin%3D1"),
        ("x#y", "x%23y"),
        ("x\r\nHost: evil", "x%0D%0AHost%3A%20evil"),
        ("@evil.example:80", "%40evil.example%3A80"),
        ("50%", "50%25"),
        ("日本", "%E6%97%A5%E6%9C%AC"),
        ("\ud800", "%3F"),
        (["a", "b/c"], "a,b%2Fc"),
        (5.0, "5"),
        ("...", "..."),
    ],
)
def test_path_values_stay_in_their_segment(service: Service, value: object, encoded: str):
    given = operation(path="/pets/{id}/toys")

    assert target(service, given, {"id": value}) == f"/base/pets/{encoded}/toys"


@pytest.mark.parametrize(
    "value", ["", ".", "..", "../admin", "a/../../b", "..\\x", "%2e%2e", "%2E%2E%2Fx", None, []]
)
def test_path_values_that_would_move_the_request_are_refused(service: Service, value: object):
    with pytest.raises(InvalidArguments, match="Not called"):
        call(service, operation(path="/pets/{id}/toys"), {"id": value})

    assert service.seen == []


def test_path_values_that_move_only_together_are_refused(service: Service):
    with pytest.raises(InvalidArguments):
        call(service, operation(path="/pets/{a}{b}"), {"a": ".", "b": "."})

    assert service.seen == []


@given(value=st.text() | st.lists(st.text(), max_size=3))
def test_no_path_value_changes_host_or_segments(value: object):
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(204)

    async def made() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
            given = operation(path="/pets/{id}/toys")
            api = OpenApi(given, server="api", base_url="http://h.test/base", client=client)
            await api(api.tools[0], {"id": value})

    try:
        asyncio.run(made())
    except InvalidArguments:
        assert asked == []
        return

    (request,) = asked
    assert (request.url.scheme, request.url.host, request.url.port) == ("http", "h.test", None)
    path = request.url.raw_path.decode("ascii")
    assert path.isprintable() and not set(path) & set("?#\\ ")
    before, held, after = path.split("/")[2:]
    assert (before, after) == ("pets", "toys")
    assert unquote(held) not in ("", ".", "..")


DEEP = "q%5Bx%5D%5By%5D%5B0%5D=1&q%5Bx%5D%5By%5D%5B1%5D%5Bz%5D=true"


@pytest.mark.parametrize(
    ("style", "explode", "value", "query"),
    [
        (None, None, ["a", "b,c"], "q=a&q=b%2Cc"),
        ("form", False, ["a", "b,c"], "q=a,b%2Cc"),
        ("spaceDelimited", False, ["a", "b"], "q=a%20b"),
        ("pipeDelimited", False, ["a", "b"], "q=a%7Cb"),
        ("pipeDelimited", True, ["a", "b"], "q=a&q=b"),
        ("form", True, {"x": 1, "y": None}, "x=1"),
        ("form", False, {"x": 1, "y": "z&"}, "q=x,1,y,z%26"),
        ("deepObject", True, {"x": {"y": [1, {"z": True}]}}, DEEP),
        (None, None, "a b&c=d+e#f", "q=a%20b%26c%3Dd%2Be%23f"),
    ],
)
def test_query_values_are_written_by_style(
    service: Service, style: str | None, explode: bool | None, value: object, query: str
):
    said = {key: at for key, at in (("style", style), ("explode", explode)) if at is not None}
    given = operation(parameters=[parameter("q", "query", schema={}, **said)])

    assert target(service, given, {"q": value}) == f"/base/x?{query}"


def test_absent_values_and_empty_lists_are_not_sent(service: Service):
    given = operation(parameters=[parameter("a", "query"), parameter("b", "query")])

    assert target(service, given, {"a": None, "b": []}) == "/base/x"


def test_a_parameter_with_content_is_json(service: Service):
    said: Json = {"name": "q", "in": "query", "content": {"application/json": {"schema": {}}}}

    assert target(service, operation(parameters=[said]), {"q": {"a": 1}}) == (
        "/base/x?q=%7B%22a%22%3A1%7D"
    )


def test_path_styles_are_written(service: Service):
    label = parameter("a", "path", style="label", explode=True)
    matrix = parameter("b", "path", style="matrix")
    given = operation(path="/x/{a}/{b}", parameters=[label, matrix])

    assert target(service, given, {"a": [1, 2], "b": ["u", "v"]}) == "/base/x/.1.2/;b=u,v"


def test_a_query_in_the_path_is_kept_and_a_fragment_is_not(service: Service):
    given = operation(path="/x?Action=List#note", parameters=[parameter("n", "query")])

    assert target(service, given, {"n": 1}) == "/base/x?Action=List&n=1"


def test_headers_and_cookies_are_sent_and_configured_ones_win(service: Service):
    given = operation(
        parameters=[
            *(parameter(name, "header") for name in ("X-Key", "X-Other")),
            *(parameter(name, "cookie") for name in ("session", "theme")),
        ]
    )
    arguments = {"X-Key": "mine", "X-Other": ["a", "b"], "session": "mine", "theme": "a;b"}
    call(service, given, arguments, headers={"x-key": "real", "Cookie": "session=real"})

    headers = service.seen[0].headers
    assert (headers["x-key"], headers["x-other"]) == ("real", "a,b")
    assert headers["cookie"] == "session=real; theme=a%3Bb"


def test_a_header_with_a_line_break_is_refused(service: Service):
    with pytest.raises(InvalidArguments, match="X-Note"):
        call(
            service, operation(parameters=[parameter("X-Note", "header")]), {"X-Note": "a\r\nB: c"}
        )

    assert service.seen == []


def test_forms_are_written_by_their_encoding(service: Service):
    entry: Json = {
        "schema": {"type": "object", "properties": {"a": {}, "meta": {}, "list[]": {}}},
        "encoding": {"meta": {"style": "deepObject", "explode": True}},
    }
    given = operation("post", requestBody={"content": {"application/x-www-form-urlencoded": entry}})
    call(service, given, {"a": "x y", "meta": {"k": "v"}, "list": [1, 2]})

    (seen,) = service.seen
    assert seen.headers["content-type"] == "application/x-www-form-urlencoded"
    assert seen.body == b"a=x%20y&meta%5Bk%5D=v&list%5B%5D=1&list%5B%5D=2"


def test_multipart_sends_files_and_fields(service: Service):
    schema = {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary", "description": "The picture."},
            "note": {"type": "string"},
            "meta": {"type": "object"},
        },
    }
    given = operation("post", requestBody=body(schema, "multipart/form-data"))
    picture = "data:image/png;base64," + base64.b64encode(b"\x89PNG\0").decode()
    call(service, given, {"file": picture, "note": "hi", "meta": {"a": 1}})

    (seen,) = service.seen
    kind, boundary = seen.headers["content-type"].split("; boundary=")
    parts = seen.body.split(b"--" + boundary.encode())
    assert kind == "multipart/form-data"
    assert b'name="file"; filename="file"\r\nContent-Type: image/png\r\n\r\n\x89PNG\0' in parts[1]
    assert b'name="note"\r\nContent-Type: text/plain\r\n\r\nhi' in parts[2]
    assert b'name="meta"\r\nContent-Type: application/json\r\n\r\n{"a":1}' in parts[3]
    assert "data:" in only(given).input_schema["properties"]["file"]["description"]


@pytest.mark.parametrize(
    ("media", "value", "sent"),
    [
        ("text/plain", "häh", "häh".encode()),
        ("application/xml", "<a/>", b"<a/>"),
        ("application/octet-stream", "data:;base64,AAEC", b"\0\1\2"),
        ("application/octet-stream", "data:,a%20b", b"a b"),
        ("application/octet-stream", "data:;base64,!", b"data:;base64,!"),
    ],
)
def test_other_bodies_are_one_text(service: Service, media: str, value: str, sent: bytes):
    given = operation("post", requestBody=body({"type": "string"}, media, required=True))
    call(service, given, {"body": value})

    assert only(given).input_schema["properties"]["body"]["type"] == "string"
    assert service.seen[0].body == sent
    assert service.seen[0].headers["content-type"] == media


def test_an_optional_body_without_members_is_not_sent(service: Service):
    given = operation("post", requestBody=body({"properties": {"a": {}}}))
    call(service, given, {})
    given["paths"]["/x"]["post"]["requestBody"]["required"] = True
    call(service, given, {})

    assert [seen.body for seen in service.seen] == [b"", b"{}"]
    assert "content-type" not in service.seen[0].headers


# Answers


def test_a_refusal_is_a_result_with_status_and_words(service: Service):
    service.answer = lambda _: Reply(
        429, b'{"error": "slow\x1b[31m down"}', {"retry-after": "9", "content-type": "text/plain"}
    )
    result = call(service, operation(), {})

    text = 'HTTP 429 Too Many Requests (retry after 9): {"error": "slow[31m down"}'
    assert result == {"content": [{"type": "text", "text": text}], "isError": True}
    assert outcome_of(result).is_error


def test_long_refusals_are_cut(service: Service):
    service.answer = lambda _: Reply(500, b"x" * 100_000, {"content-type": "text/html"})

    assert len(call(service, operation(), {})["content"][0]["text"]) < 4_100


def test_a_json_answer_that_looks_like_a_result_is_still_json(service: Service):
    value = {"content": [{"type": "text", "text": "hi"}], "isError": True}
    service.answer = lambda _: json_reply(value)
    outcome = outcome_of(call(service, operation(), {}))

    assert (outcome.is_error, outcome.data) == (False, value)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (Reply(204), "Status 204, no content."),
        (Reply(200, b"gr\xfcn", {"content-type": "text/plain; charset=latin-1"}), "grün"),
        (Reply(200, b"a", {"content-type": "text/plain; charset=punycode"}), "a"),
        (Reply(200, b"a", {"content-type": "text/plain; charset=no-such"}), "a"),
        (Reply(200, b"{oops", {"content-type": "application/json"}), "{oops"),
        (Reply(200, b"<svg/>", {"content-type": "image/svg+xml"}), "<svg/>"),
        (Reply(200, b"plain"), "plain"),
        (Reply(200, b"[" * 100_000, {"content-type": "application/json"}), "[" * 100_000),
        (Reply(200, gzip.compress(b"zip"), {"content-encoding": "gzip"}), "zip"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_answers_in_words_are_text(service: Service, reply: Reply, text: str):
    service.answer = lambda _: reply

    assert call(service, operation(), {}) == {
        "content": [{"type": "text", "text": text}],
        "isError": False,
    }


@pytest.mark.parametrize(
    ("media", "block"),
    [
        ("image/png", {"type": "image", "data": "AAE=", "mimeType": "image/png"}),
        ("audio/ogg", {"type": "audio", "data": "AAE=", "mimeType": "audio/ogg"}),
        (
            "application/pdf",
            {
                "type": "resource",
                "resource": {
                    "uri": "openapi://api/get_x",
                    "mimeType": "application/pdf",
                    "blob": "AAE=",
                },
            },
        ),
    ],
)
def test_binary_answers_are_blocks(service: Service, media: str, block: Json):
    service.answer = lambda _: Reply(200, b"\0\1", {"content-type": media})
    result = call(service, operation(), {})

    assert result["content"] == [block]
    assert outcome_of(result).blocks == (block,)


def test_answers_that_are_too_long_are_cut_with_a_note(service: Service):
    note = "(Cut after 10 bytes. Ask for less.)"
    service.answer = lambda _: json_reply(["x" * 100])
    cut = call(service, operation(), {}, max_bytes=10)
    service.answer = lambda _: Reply(200, b"\0" * 11, {"content-type": "image/png"})
    left_out = call(service, operation(), {}, max_bytes=10)

    assert cut["content"][0]["text"] == f'["xxxxxxxx\n{note}'
    assert "structuredContent" not in cut
    assert left_out["content"][0]["text"] == f"Content of type image/png was left out. {note}"


def test_redirects_within_the_server_are_followed_as_browsers_do(service: Service):
    def answer(seen: Seen) -> Reply:
        moved = {"/base/x": (308, "/base/y"), "/base/y": (303, "z")}.get(seen.target)
        return Reply(moved[0], b"", {"location": moved[1]}) if moved else json_reply(1)

    service.answer = answer
    given = operation("post", requestBody=body({"properties": {"a": {}}}))
    result = call(service, given, {"a": 1}, headers={"authorization": "s3cret"})

    assert result["structuredContent"] == 1
    asked = [(s.method, s.target, s.body) for s in service.seen]
    assert asked == [
        ("POST", "/base/x", b'{"a":1}'),
        ("POST", "/base/y", b'{"a":1}'),
        ("GET", "/base/z", b""),
    ]
    assert {seen.headers["authorization"] for seen in service.seen} == {"s3cret"}
    assert "content-type" not in service.seen[2].headers


def test_redirects_to_another_server_are_not_followed(service: Service):
    other = Service()
    try:
        for place in (
            other.url,
            "//evil.test/",
            "http://u:p@{}/",
            "https://[",
            "file:///etc/passwd",
        ):
            location = place.format(service.url.split("/")[2])
            service.answer = lambda _, to=location: Reply(302, b"", {"location": to})
            result = call(service, operation(), {}, headers={"authorization": "s3cret"})

            assert result["isError"]
            assert result["content"][0]["text"].startswith("HTTP 302 Found: a redirect")
    finally:
        other.close()

    assert other.seen == []


def test_redirects_without_end_are_given_up(service: Service):
    service.answer = lambda _: Reply(307, b"", {"location": "/base/x"})

    assert call(service, operation(), {})["isError"]
    assert len(service.seen) == 6


def test_cookies_of_one_answer_do_not_reach_the_next_call(service: Service):
    service.answer = lambda _: Reply(200, b"", {"set-cookie": "who=alice; Path=/"})

    async def made() -> None:
        async with OpenApi(operation(), server="api", base_url=service.url) as api:
            await api(api.tools[0], {})
            await api(api.tools[0], {})

    asyncio.run(made())

    assert [("cookie" in seen.headers) for seen in service.seen] == [False, False]


def test_cancelling_a_call_closes_its_connection(service: Service):
    service.is_silent = True

    async def made() -> None:
        async with OpenApi(operation(), server="api", base_url=service.url) as api:
            task = asyncio.ensure_future(api(api.tools[0], {}))
            assert await asyncio.to_thread(service.asked.wait, WAIT_SECONDS)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(service.left.wait, WAIT_SECONDS)

    asyncio.run(made())


def test_a_server_that_does_not_answer_is_given_up(service: Service):
    service.is_silent = True

    with pytest.raises(CallTimedOut):
        call(service, operation(), {}, timeout=0.2)

    assert service.left.wait(WAIT_SECONDS)


def test_a_server_that_is_not_there_is_unavailable(service: Service):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        service.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ServerUnavailable) as caught:
            call(service, operation(), {})

    assert "127.0.0.1" not in str(caught.value)


def test_an_answer_that_breaks_off_is_a_failure_without_addresses(service: Service):
    service.answer = lambda _: Reply(200, b"abc", {"content-length": "10", "connection": "close"})

    with pytest.raises(CallFailed, match="may still have had an effect") as caught:
        call(service, operation(), {})

    assert "127.0.0.1" not in str(caught.value)


def test_one_object_serves_several_event_loops(service: Service):
    api = OpenApi(operation(), server="api", base_url=service.url)

    async def made() -> Json:
        async with api:
            return await api(api.tools[0], {})

    assert asyncio.run(made()) == asyncio.run(made())


def test_a_tool_that_was_renamed_or_stored_is_still_called(service: Service):
    given = operation(path="/pets/{id}")

    async def made() -> None:
        async with OpenApi(given, server="api", base_url=service.url) as api:
            row = json.loads(json.dumps(tool_to_json(api.tools[0]) | {"name": "other"}))
            await api(tool_from_json(row), {"id": 1})

    asyncio.run(made())

    assert service.seen[0].target == "/base/pets/1"


def test_a_tool_of_another_kind_is_not_called(service: Service):
    async def made(extras: Json) -> None:
        async with OpenApi(operation(), server="api", base_url=service.url) as api:
            await api(Tool.define("x", server="api", extras=extras), {})

    forged: Json = {"method": "GET", "path": "@evil.test/", "places": [], "body": None}
    for extras in ({}, {"openapi": {"method": "GET"}}):
        with pytest.raises(CallFailed):
            asyncio.run(made(extras))
    with pytest.raises(InvalidArguments):
        asyncio.run(made({"openapi": forged}))

    assert service.seen == []


@pytest.mark.parametrize(
    "base_url",
    [
        *("", "/x", "ftp://h/", "http://", "http://u:p@h/", "http://h/?a=b", "http://h/#f"),
        *("http://h:x/", "http://h/../y/%2e%2e"),
    ],
)
def test_base_urls_that_say_too_little_or_too_much_are_refused(base_url: str):
    with pytest.raises(InvalidConfig, match="base_url"):
        OpenApi(operation(), server="api", base_url=base_url)


def test_a_header_that_is_none_is_refused_without_its_value():
    for name, value in (("a b", "s3cret"), ("a", "s3cret\r\nb: c")):
        with pytest.raises(InvalidConfig) as caught:
            OpenApi(operation(), server="api", base_url="http://h/", headers={name: value})

        assert "s3cret" not in str(caught.value)


def test_calls_without_the_http_library_name_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)

    with pytest.raises(MissingExtra, match=r"toolscout\[gateway\]"):
        OpenApi(operation(), server="api", base_url="http://h/")
