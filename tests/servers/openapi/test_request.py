"""Arguments as real requests to a server on this machine."""

import base64
from urllib.parse import unquote

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.openapi.samples import body, only, operation, parameter
from servers.openapi.services import Service, call, target
from toolscout.errors import InvalidArguments
from toolscout.schemas import Json
from toolscout.servers.openapi.request import RequestTemplate, build_target


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("x?admin=1", "x%3Fadmin%3D1"),
        ("x#y", "x%23y"),
        ("x\r\nHost: evil", "x%0D%0AHost%3A%20evil"),
        ("@evil.example:80", "%40evil.example%3A80"),
        ("50%", "50%25"),
        ("日本", "%E6%97%A5%E6%9C%AC"),
        ("\ud800", "%3F"),
        (["a", "b;c"], "a,b%3Bc"),
        (5.0, "5"),
        ("...", "..."),
    ],
)
def test_path_values_stay_in_their_segment(service: Service, value: object, encoded: str):
    given = operation(path="/pets/{id}/toys")

    assert target(service, given, {"id": value}) == f"/base/pets/{encoded}/toys"


@pytest.mark.parametrize(
    "value",
    [
        *("", ".", "..", "../admin", "a/../../b", "..\\x", "%2e%2e", "%2E%2E%2Fx", None, []),
        *("a/b", "//evil.example", ["a", "b/c"]),
    ],
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
    tool = only(operation(path="/pets/{id}/toys"))
    try:
        target = build_target(tool, RequestTemplate.from_tool(tool), {"id": value})
    except InvalidArguments:
        return

    url = httpx2.URL(f"http://h.test/base{target}")
    assert (url.scheme, url.host, url.port) == ("http", "h.test", None)
    path = url.raw_path.decode("ascii")
    assert path.isprintable() and not set(path) & set("?#\\ ")
    before, held, after = path.split("/")[2:]
    assert (before, after) == ("pets", "toys")
    assert unquote(held) not in ("", ".", "..")


def test_a_query_in_the_path_is_kept_and_a_fragment_is_not(service: Service):
    given = operation(path="/x?Action=List#note", parameters=[parameter("n", "query")])

    assert target(service, given, {"n": 1}) == "/base/x?Action=List&n=1"


def test_an_address_that_is_too_long_is_refused(service: Service):
    with pytest.raises(InvalidArguments, match="too long"):
        call(service, operation(parameters=[parameter("q", "query")]), {"q": "x" * 100_000})

    assert service.seen == []


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
