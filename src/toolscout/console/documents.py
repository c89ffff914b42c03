"""The OpenAPI document of the console's API: paths and parameters over the shapes."""

from functools import cache
from importlib.metadata import version

from toolscout.console.schema import SHAPES, TEXT, choice, ref
from toolscout.schemas import Json

_Q = ("q", "What is asked for, in the query language.", TEXT)
_ENCODER = ("encoder", "One of the overview's encoders.", TEXT)
_WHOLE: Json = {"type": "integer", "minimum": 0}
_ERRORS = {
    "400": "in what was sent",
    "401": "a token is missing",
    "403": "the token may not do that",
    "404": "there is no such thing",
    "409": "another program failed",
}

# Path, summary, shape, parameters; a path ending in `!` is posted to.
_PATHS: tuple[tuple[str, str, str, tuple[tuple[str, str, Json], ...]], ...] = (
    ("/overview", "What there is, and what this token may do.", "Overview", ()),
    ("/search", "Hits with reasons.", "Search", (_Q, ("limit", "1 to 50.", _WHOLE), _ENCODER)),
    (
        "/why",
        "What speaks for and against one tool.",
        "Why",
        (_Q, ("tool", "Its exposed name.", TEXT), _ENCODER),
    ),
    ("/facets", "Tools and tokens by server, kind and effect.", "Facets", ()),
    (
        "/tools",
        "The catalogue, page by page.",
        "Tools",
        (
            ("server", "Only its tools.", TEXT),
            ("kind", "Only of this kind.", TEXT),
            ("effect", "Only with this effect.", TEXT),
            ("q", "Words that all occur in name, title or description.", TEXT),
            ("sort", "In which order.", choice("name", "tokens")),
            ("offset", "How many to pass over.", _WHOLE),
            ("limit", "1 to 1000.", _WHOLE),
        ),
    ),
    ("/tools/{name}", "One tool.", "Tool", ()),
    ("/servers", "The servers behind the gateway.", "Servers", ()),
    ("/servers/{name}/log", "The last 200 lines of its log, secrets masked.", "Log", ()),
    ("/servers/{name}/start!", "Start it.", "Server", ()),
    ("/servers/{name}/stop!", "Stop it, until it is started.", "Server", ()),
    ("/servers/{name}/restart!", "Stop it and start it anew.", "Server", ()),
    ("/servers/{name}/login!", "Begin a login; tells where a person logs in.", "Login", ()),
    ("/sessions", "Conversations, the last active first.", "Sessions", ()),
    ("/sessions/{id}", "One conversation.", "Session", ()),
    ("/savings", "Tokens by the hour.", "Savings", (("hours", "1 to 744.", _WHOLE),)),
    ("/map", "Where each tool stands by its meaning.", "Map", (_ENCODER,)),
    ("/map/point", "Where a query stands.", "Point", (_Q, _ENCODER)),
)
_NEEDED = ("q", "tool")


@cache
def document() -> Json:
    """Return the OpenAPI 3.1 document."""
    paths = {
        f"/api{path.removesuffix('!')}": _path(path, summary, shape, parameters)
        for path, summary, shape, parameters in _PATHS
    }
    paths["/api/events"] = {"get": _events()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "toolscout console", "version": version("toolscout")},
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": SHAPES,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _path(
    path: str, summary: str, shape: str, parameters: tuple[tuple[str, str, Json], ...]
) -> Json:
    names = [part[1:-1] for part in path.rstrip("!").split("/") if part.startswith("{")]
    given = [_parameter(name, "path", f"The {name}.", TEXT) for name in names]
    # A list filters by words where there are any; a search cannot do without.
    is_list = path == "/tools"
    given += [
        _parameter(name, "query", text, kind, needed=name in _NEEDED and not is_list)
        for name, text, kind in parameters
    ]
    answers = {"200": _answer("The answer.", shape)}
    answers |= {code: _answer(f"A mistake: {text}.", "Error") for code, text in _ERRORS.items()}
    operation: Json = {"summary": summary, "parameters": given, "responses": answers}
    return {"post" if path.endswith("!") else "get": operation}


def _parameter(name: str, place: str, text: str, kind: Json, *, needed: bool = True) -> Json:
    return {"name": name, "in": place, "description": text, "required": needed, "schema": kind}


def _answer(text: str, shape: str) -> Json:
    return {"description": text, "content": {"application/json": {"schema": ref(shape)}}}


def _events() -> Json:
    text = (
        "Server-sent events: overview, server, session, search, call, savings, and resync when "
        "something was missed. Last-Event-ID goes on after an event."
    )
    stream = {"description": text, "content": {"text/event-stream": {"schema": TEXT}}}
    return {"summary": "What happens.", "parameters": [], "responses": {"200": stream}}
