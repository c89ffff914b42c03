"""Calls from beginning to end: where they go, what they follow, how they fail."""

import asyncio
import json
import socket
from contextlib import aclosing
from typing import Any

import pytest

from servers.openapi.samples import body, operation, parameter
from servers.openapi.services import WAIT_SECONDS, Reply, Seen, Service, call, json_reply
from toolscout.catalog import Catalog
from toolscout.errors import CallFailed, CallTimedOut, InvalidConfig, ServerUnavailable
from toolscout.scout import Scout
from toolscout.servers.openapi.executor import OpenApi


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
        async with aclosing(OpenApi(given, server="api", base_url=service.url)) as api:
            catalog.replace("api", api.tools)
            session = Scout(catalog, executors={"api": api}).session("s")
            session.search(["show a pet"])
            return (
                await session.call("api__showPet", {"id": "7"}),
                await session.call("api__showPet", {"id": "7", "nick": "x"}),
            )

    good, bad = asyncio.run(made())

    assert (good.code, good.text) == ("ok", '{"ok":true}')
    assert bad.code == "invalid_arguments"
    assert [seen.target for seen in service.seen] == ["/base/pets/7"]


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
        async with aclosing(OpenApi(operation(), server="api", base_url=service.url)) as api:
            await api(api.tools[0], {})
            await api(api.tools[0], {})

    asyncio.run(made())

    assert [("cookie" in seen.headers) for seen in service.seen] == [False, False]


def test_cancelling_a_call_closes_its_connection(service: Service):
    service.is_silent = True

    async def made() -> None:
        async with aclosing(OpenApi(operation(), server="api", base_url=service.url)) as api:
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
