"""Arguments, redirects and URIs become addresses: none may lead out of what was allowed."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from gateway.fleet import always
from security.hostile_web import Request, web_server
from serving import DEADLINE_SECONDS, eventually
from toolscout.config.file import Config
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidArguments
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.servers.openapi.executor import OpenApi
from toolscout.stores.memory import MemoryStore

USER = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
API: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {
        "/users/{id}": {"get": {"operationId": "get_user", "parameters": [USER]}},
        "/files/{id}": {
            "get": {"operationId": "get_file", "parameters": [{**USER, "allowReserved": True}]}
        },
    },
}


def call_api(base: str, name: str, **arguments: str) -> str:
    async def call() -> str:
        async with aclosing(OpenApi(API, server="api", base_url=base)) as api:
            tool = next(tool for tool in api.tools if tool.leaf == name)
            return str(await api(tool, arguments))

    return asyncio.run(call())


@pytest.mark.parametrize(
    "value", ["1/keys", "1\\keys", "1%2Fkeys", "1%2fkeys", "1%5Ckeys", "1%252Fkeys", "1/../x", "/"]
)
def test_an_argument_in_a_path_does_not_reach_another_operation(value: str):
    asked: list[str] = []

    def answer(request: Request) -> None:
        asked.append(request.path)
        request.reply(200)

    with web_server(answer) as address, pytest.raises(InvalidArguments, match="id: may not"):
        call_api(f"{address}/v1", "get_user", id=value)

    assert asked == []


def test_a_document_can_say_that_an_argument_has_slashes():
    asked: list[str] = []

    def answer(request: Request) -> None:
        asked.append(request.path)
        request.reply(200)

    with web_server(answer) as address:
        call_api(f"{address}/v1", "get_file", id="docs/a.md")

    assert asked == ["/v1/files/docs%2Fa.md"]


@pytest.mark.parametrize(
    "location",
    ["/admin", "../../admin", "/v1/%2e%2e/admin", "/v1/..%2fadmin", "/v1x/admin", "/v1/..\\admin"],
)
def test_a_redirect_does_not_leave_the_base_path(location: str):
    asked: list[str] = []

    def answer(request: Request) -> None:
        asked.append(request.path)
        request.reply(302, location=location)

    with web_server(answer) as address:
        text = call_api(f"{address}/v1", "get_user", id="1")

    assert asked == ["/v1/users/1"]
    assert "a redirect" in text


@pytest.mark.parametrize("location", ["/v1/people/1", "../people/1"])
def test_a_redirect_within_the_base_path_is_followed(location: str):
    asked: list[str] = []

    def answer(request: Request) -> None:
        asked.append(request.path)
        is_first = len(asked) == 1
        request.reply(302 if is_first else 200, location=location)

    with web_server(answer) as address:
        call_api(f"{address}/v1", "get_user", id="1")

    assert asked == ["/v1/users/1", "/v1/people/1"]


SPELLINGS = [
    "file:///priv/secret.txt",
    "file:///priv/./secret.txt",
    "file:///priv/%2e/secret.txt",
    "file:///open/../priv/secret.txt",
    "file:///open/%2e%2e/priv/secret.txt",
    "file:///open/..%2fpriv/secret.txt",
    "file:///open/%252e%252e/priv/secret.txt",
    "file:///open\\..\\priv\\secret.txt",
    "file:////priv//secret.txt",
    "FILE:///priv/secret.txt",
    "file://localhost/priv/secret.txt",
    "file:/priv/secret.txt",
    "file:///priv/other.txt",
    "file:///open/unlisted.txt",
]


_Said = TypeVar("_Said")


def talk_to_files(talk: Callable[[Client], Awaitable[_Said]], **options: Any) -> _Said:
    """Return what a client says that talks to a server that reads whatever it is asked."""
    path = str(Path(__file__).with_name("hostile_server.py"))
    server = ServerConfig(
        name="files",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(path, "files"),
        **options,
    )

    async def run() -> _Said:
        config = Config(servers=(server,))
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: len(gateway.catalog))
            gate = build_server(gateway, always(gateway.open_session("ann")))
            async with Client(gate) as client:
                return await talk(client)

    return asyncio.run(run())


def read_resources(*uris: str, **options: Any) -> dict[str, bool]:
    """Return which resources a client can read."""

    async def can_read(client: Client, uri: str) -> bool:
        try:
            return bool((await client.read_resource(f"toolscout://files/{uri}")).contents)
        except MCPError:
            return False

    async def read_all(client: Client) -> dict[str, bool]:
        return {uri: await can_read(client, uri) for uri in uris}

    return talk_to_files(read_all, **options)


@pytest.mark.parametrize("options", [{"deny": ("*secret*",)}, {"allow": ("open*",)}], ids=str)
def test_a_denied_resource_cannot_be_read_by_another_spelling(options: dict[str, Any]):
    found = read_resources("file:///open/a.txt", *SPELLINGS[:-2], **options)

    assert [uri for uri, is_read in found.items() if is_read] == ["file:///open/a.txt"]


def test_only_listed_resources_can_be_read_where_a_server_is_restricted():
    found = read_resources("file:///open/a.txt", *SPELLINGS[-2:], allow=("open*",))

    assert [uri for uri, is_read in found.items() if is_read] == ["file:///open/a.txt"]


def test_a_template_that_is_denied_cannot_be_filled_in():
    uris = ["file:///logs/today.txt", "file:///logs/./today.txt"]

    assert read_resources(*uris, deny=("logs",)) == dict.fromkeys(uris, False)
    assert read_resources(*uris[:1], deny=("secret",)) == {uris[0]: True}


def test_a_template_does_not_reach_a_denied_resource():
    uris = ["file:///logs/../priv/secret.txt", "file:///logs/..%2fpriv%2fsecret.txt"]

    assert read_resources(*uris, deny=("secret",)) == dict.fromkeys(uris, False)


def test_a_call_of_a_template_does_not_reach_a_denied_resource():
    async def read_day(client: Client, day: str) -> str:
        called = {"name": "files__logs", "arguments": {"day": day}}
        return (await client.call_tool("tool_call", called)).model_dump_json()

    async def read_both(client: Client) -> tuple[str, str]:
        return await read_day(client, "../priv/secret.txt"), await read_day(client, "today.txt")

    refused, read = talk_to_files(read_both, deny=("secret",))

    assert "not allowed here" in refused
    assert '"text":"content"' in read


def test_an_unrestricted_server_may_link_to_resources_that_it_does_not_list():
    found = read_resources("file:///open/unlisted.txt")

    assert found == {"file:///open/unlisted.txt": True}
