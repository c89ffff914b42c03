"""OpenAPI documents in a few words."""

from typing import Any

from toolscout.schemas import Json
from toolscout.servers.openapi.operations import tools_from_openapi
from toolscout.tools import Tool


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
