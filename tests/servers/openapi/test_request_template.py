"""What a tool carries, so that it can be called."""

import asyncio
import json
from contextlib import aclosing

import pytest

from servers.openapi.samples import operation
from servers.openapi.services import Service
from toolscout.errors import CallFailed, InvalidArguments
from toolscout.files import json_from_tool
from toolscout.schemas import Json
from toolscout.servers.openapi.executor import OpenApi
from toolscout.tools import Tool


def test_a_tool_that_was_renamed_or_stored_is_still_called(service: Service):
    given = operation(path="/pets/{id}")

    async def made() -> None:
        async with aclosing(OpenApi(given, server="api", base_url=service.url)) as api:
            row = json.loads(json.dumps(json_from_tool(api.tools[0]) | {"name": "other"}))
            await api(Tool.from_any(row), {"id": 1})

    asyncio.run(made())

    assert service.seen[0].target == "/base/pets/1"


def test_a_tool_of_another_kind_is_not_called(service: Service):
    async def made(extras: Json) -> None:
        async with aclosing(OpenApi(operation(), server="api", base_url=service.url)) as api:
            await api(Tool.define("x", server="api", extras=extras), {})

    forged: Json = {"method": "GET", "path": "@evil.test/", "places": [], "body": None}
    for extras in ({}, {"openapi": {"method": "GET"}}):
        with pytest.raises(CallFailed):
            asyncio.run(made(extras))
    with pytest.raises(InvalidArguments):
        asyncio.run(made({"openapi": forged}))

    assert service.seen == []
