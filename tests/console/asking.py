"""A client of a console that checks each answer against the OpenAPI document."""

import json
import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import httpx2
import jsonschema_rs
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from serving import DEADLINE_SECONDS

Json = dict[str, Any]
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Knows no authority, because nothing here is encrypted; to read them all takes 30 ms a client."""


class Asker:
    """A client of one console."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {**self.headers, **options.pop("headers", {})}
        return httpx2.request(
            method,
            f"{self.url}{path}",
            headers=headers,
            timeout=DEADLINE_SECONDS,
            verify=PLAIN,
            **options,
        )

    def get(self, path: str, **parameters: Any) -> Any:
        """Return an answer of the API, checked against its document."""
        return self._check("get", path, self.send("GET", f"/api{path}", params=parameters))

    def post(self, path: str, body: Json | None = None, **parameters: Any) -> Any:
        response = self.send("POST", f"/api{path}", params=parameters, json=body)
        return self._check("post", path, response)

    def problem(
        self, path: str, method: str = "GET", body: object = None, **parameters: Any
    ) -> tuple[int, str]:
        """Return status and code of an error, checked against the document."""
        response = self.send(method, f"/api{path}", params=parameters, json=body)
        validate(self._known, {"$ref": "#/components/schemas/Error"}, response.json())
        return response.status_code, response.json()["error"]["code"]

    def document(self) -> Json:
        return self.send("GET", "/api/openapi.json").json()

    @cached_property
    def _known(self) -> Json:
        """The document, which stays as it is while the console runs."""
        return self.document()

    def _check(self, method: str, path: str, response: httpx2.Response) -> Any:
        assert response.status_code == 200, response.text
        answers = operation(self._known, f"/api{path}")[method]["responses"]
        schema = answers["200"]["content"]["application/json"]["schema"]
        validate(self._known, schema, response.json())
        return response.json()

    @contextmanager
    def events(self, last_id: str = "") -> Generator[Iterator[tuple[str, str, Json]]]:
        """Read server-sent events as (id, kind, data), from the moment that the stream is open."""
        headers = {**self.headers, **({"Last-Event-ID": last_id} if last_id else {})}
        with (
            httpx2.Client(timeout=DEADLINE_SECONDS, headers=headers, verify=PLAIN) as client,
            client.stream("GET", f"{self.url}/api/events") as response,
        ):
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = response.iter_lines()
            if not last_id:
                next(lines)
            yield parse_events(lines)


def parse_events(lines: Iterator[str]) -> Iterator[tuple[str, str, Json]]:
    event: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif "event" in event:
            yield event["id"], event["event"], json.loads(event["data"])
            event = {}


def operation(document: Json, path: str) -> Json:
    """Return the operations of a path in a document."""
    asked = path.split("/")
    for known, operations in document["paths"].items():
        parts = known.split("/")
        if len(parts) == len(asked) and all(
            part == given or part.startswith("{") for part, given in zip(parts, asked, strict=True)
        ):
            return operations
    raise AssertionError(f"{path} is not in the document")


def validate(document: Json, schema: Json, value: Any) -> None:
    whole = {**schema, "components": document["components"]}
    validator = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
    assert [f"{e.instance_path}: {e.message}" for e in validator.iter_errors(value)] == []


async def converse(url: str, calls: list[tuple[str, Json]], token: str = "") -> None:
    """List tools as a client of MCP does, then make some calls."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS, verify=PLAIN) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        await client.list_tools()
        for name, arguments in calls:
            await client.call_tool(name, arguments)
