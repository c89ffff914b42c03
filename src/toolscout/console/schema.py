"""The OpenAPI document of the console's API: paths, parameters, and the shapes of all answers.

The shapes are strict on purpose: a test compares real answers with them, so a member that is
missing here is noticed.
"""

from functools import cache
from importlib.metadata import version

from toolscout.audit.rules import Severity
from toolscout.config.servers import Transport
from toolscout.console.servers import STATES
from toolscout.schemas import Json
from toolscout.search.hits import Confidence
from toolscout.servers.oauth.login import LoginState
from toolscout.tools import Effect

TEXT: Json = {"type": "string"}
FLAG: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer", "minimum": 0}
WHOLE: Json = {"type": "integer"}
SHARE: Json = {"type": "number", "minimum": 0, "maximum": 1}
SPAN: Json = {"type": "number", "minimum": 0}
PLACE: Json = {"type": "number", "minimum": -1, "maximum": 1}
TIME: Json = {"type": "string", "format": "date-time"}
OBJECT: Json = {"type": "object"}
EVENT_KINDS = ("search", "describe", "call", "load", "refusal", "suggest")


def make_array(item: Json) -> Json:
    """Return an array of a shape."""
    return {"type": "array", "items": item}


def make_nullable(shape: Json) -> Json:
    """Return a shape that may be null."""
    return {"anyOf": [shape, {"type": "null"}]}


def make_enum(*words: str) -> Json:
    """Return a string that is one of some words."""
    return {"type": "string", "enum": list(words)}


def make_map(shape: Json) -> Json:
    """Return an object with any names and values of one shape."""
    return {"type": "object", "additionalProperties": shape}


def make_object(optional: tuple[str, ...] = (), /, **members: Json) -> Json:
    """Return an object with exactly these members."""
    return {
        "type": "object",
        "properties": members,
        "required": [name for name in members if name not in optional],
        "additionalProperties": False,
    }


def refer_to(name: str) -> Json:
    """Return a reference to one of `SHAPES`."""
    return {"$ref": f"#/components/schemas/{name}"}


_TOKENS = dict.fromkeys(("not_sent", "menu", "replies", "descriptions", "net"), WHOLE)
_SIGNALS = make_map(SHARE)
_MATCHED = make_map(make_array(TEXT))
_CONFIDENCE = make_enum(*(word.value for word in Confidence))
_GROUP = make_object(name=TEXT, tools=COUNT, tokens=COUNT)
_ABOUT: dict[str, Json] = {
    "name": TEXT,
    "server": TEXT,
    "leaf": TEXT,
    "kind": TEXT,
    "effect": make_enum(*(effect.value for effect in Effect)),
    "title": TEXT,
    "signature": TEXT,
    "sentence": TEXT,
    "tokens": COUNT,
}
_SESSION: dict[str, Json] = {
    "id": TEXT,
    "client": TEXT,
    "principal": TEXT,
    "started": TIME,
    "active": TIME,
    "searches": COUNT,
    "calls": COUNT,
    "tokens_used": COUNT,
    "tokens_saved": WHOLE,
}
_CAN = ("start", "stop", "restart", "log", "login", "call", "sessions", "savings")

SHAPES: dict[str, Json] = {
    "Error": make_object(error=make_object(("hint",), code=TEXT, message=TEXT, hint=TEXT)),
    "Overview": make_object(
        version=TEXT,
        host=make_enum("gateway", "console"),
        principal=TEXT,
        tools=COUNT,
        resources=COUNT,
        prompts=COUNT,
        servers=make_object(**dict.fromkeys(STATES, COUNT)),
        encoders=make_array(TEXT),
        tokens=make_object(all_definitions=COUNT, menu=COUNT),
        capabilities=make_object(**dict.fromkeys(_CAN, FLAG)),
    ),
    "Hit": make_object(
        **_ABOUT, score=SHARE, confidence=_CONFIDENCE, signals=_SIGNALS, matched=_MATCHED
    ),
    "Search": make_object(
        query=TEXT,
        milliseconds=SPAN,
        total=COUNT,
        worth=COUNT,
        corrected=make_map(TEXT),
        hits=make_array(refer_to("Hit")),
        missing=make_array(make_object(name=TEXT, near=make_array(TEXT))),
        message=TEXT,
        reply=make_object(text=TEXT, tokens=COUNT),
    ),
    "Why": make_object(
        tool=TEXT,
        rank=make_nullable({"type": "integer", "minimum": 1}),
        score=make_nullable(SHARE),
        confidence=make_nullable(_CONFIDENCE),
        signals=_SIGNALS,
        matched=_MATCHED,
        best=make_nullable(make_object(name=TEXT, score=SHARE, signals=_SIGNALS)),
        reasons=make_array(TEXT),
    ),
    "Facets": make_object(
        servers=make_array(_GROUP),
        kinds=make_array(_GROUP),
        effects=make_array(_GROUP),
        estimated=FLAG,
    ),
    "ToolRow": make_object(**_ABOUT, findings=make_nullable(COUNT)),
    "Tools": make_object(total=COUNT, offset=COUNT, tools=make_array(refer_to("ToolRow"))),
    "Finding": make_object(
        code=TEXT,
        severity=make_enum(*(severity.value for severity in Severity)),
        message=TEXT,
        remedy=TEXT,
        others=make_array(TEXT),
    ),
    "Tool": make_object(
        **_ABOUT,
        description=TEXT,
        input_schema=OBJECT,
        output_schema=make_nullable(OBJECT),
        hint=TEXT,
        tags=make_array(TEXT),
        aliases=make_array(TEXT),
        near=make_array(make_object(name=TEXT, similarity=SHARE)),
        findings=make_array(refer_to("Finding")),
    ),
    "Server": make_object(
        name=TEXT,
        transport=make_enum(*(transport.value for transport in Transport)),
        state=make_enum(*STATES),
        since=make_nullable(TIME),
        tools=COUNT,
        tokens=COUNT,
        calls=COUNT,
        errors=COUNT,
        restarts=COUNT,
        latency_ms=make_object(p50=make_nullable(SPAN), p95=make_nullable(SPAN)),
        reason=TEXT,
        login=make_enum(*(state.value for state in LoginState)),
        actions=make_array(make_enum("start", "stop", "restart", "login")),
    ),
    "Servers": make_array(refer_to("Server")),
    "Log": make_object(lines=make_array(make_object(time=TIME, text=TEXT))),
    "Login": make_object(url=TEXT),
    "SessionRow": make_object(**_SESSION, loaded=COUNT),
    "Sessions": make_array(refer_to("SessionRow")),
    "Event": make_object(
        time=TIME,
        kind=make_enum(*EVENT_KINDS),
        text=TEXT,
        tool=TEXT,
        hits=COUNT,
        found=make_array(TEXT),
        code=TEXT,
        milliseconds=SPAN,
        tokens=COUNT,
    ),
    "Session": make_object(
        **_SESSION,
        loaded=make_array(make_object(name=TEXT, tokens=COUNT, query=TEXT)),
        events=make_array(refer_to("Event")),
    ),
    "Savings": make_object(
        points=make_array(make_object(time=TIME, **_TOKENS)),
        by_server=make_array(make_object(server=TEXT, not_sent=COUNT)),
        total=make_object(**_TOKENS),
    ),
    "Map": make_object(
        tools=make_array(TEXT),
        servers=make_array(TEXT),
        x=make_array(PLACE),
        y=make_array(PLACE),
        server_of=make_array(COUNT),
    ),
    "Point": make_object(x=PLACE, y=PLACE, hits=make_array(COUNT)),
}


_Q = ("q", "The query, in the query language.", TEXT)
_ENCODER = ("encoder", "One of the overview's encoders.", TEXT)
_ERRORS = {
    "400": "The request is wrong.",
    "401": "The token is missing or wrong.",
    "403": "The token may not do that.",
    "404": "There is no such thing.",
    "409": "Another program failed.",
}

# Path, summary, shape and parameters; a path that ends in `!` takes POST.
_PATHS: tuple[tuple[str, str, str, tuple[tuple[str, str, Json], ...]], ...] = (
    ("/overview", "What there is, and what this token may do.", "Overview", ()),
    ("/search", "Hits with reasons.", "Search", (_Q, ("limit", "1 to 50.", COUNT), _ENCODER)),
    (
        "/why",
        "What speaks for and against one tool.",
        "Why",
        (_Q, ("tool", "The name of the tool.", TEXT), _ENCODER),
    ),
    ("/facets", "Tools and tokens by server, kind and effect.", "Facets", ()),
    (
        "/tools",
        "The catalogue, page by page.",
        "Tools",
        (
            ("server", "Only tools of this server.", TEXT),
            ("kind", "Only tools of this kind.", TEXT),
            ("effect", "Only tools with this effect.", TEXT),
            ("q", "Words that all occur in name, title or description.", TEXT),
            ("sort", "The order.", make_enum("name", "tokens")),
            ("offset", "How many tools to skip.", COUNT),
            ("limit", "1 to 1000.", COUNT),
        ),
    ),
    ("/tools/{name}", "One tool.", "Tool", ()),
    ("/servers", "The servers behind the gateway.", "Servers", ()),
    ("/servers/{name}/log", "The last 200 lines of its log, secrets masked.", "Log", ()),
    ("/servers/{name}/start!", "Start it.", "Server", ()),
    ("/servers/{name}/stop!", "Stop it until it is started again.", "Server", ()),
    ("/servers/{name}/restart!", "Stop it and start it again.", "Server", ()),
    ("/servers/{name}/login!", "Begin a login; returns the address to log in at.", "Login", ()),
    ("/sessions", "Sessions, the last active first.", "Sessions", ()),
    ("/sessions/{id}", "One session.", "Session", ()),
    (
        "/savings",
        "Tokens sent and not sent, by the hour.",
        "Savings",
        (("hours", "1 to 744.", COUNT),),
    ),
    ("/map", "A place for each tool, by its meaning.", "Map", (_ENCODER,)),
    ("/map/point", "The place of a query, and its hits.", "Point", (_Q, _ENCODER)),
)
_NEEDED = ("q", "tool")


@cache
def build_document() -> Json:
    """Return the OpenAPI 3.1 document."""
    paths = {
        f"/api{path.removesuffix('!')}": _describe_path(path, summary, shape, parameters)
        for path, summary, shape, parameters in _PATHS
    }
    paths["/api/events"] = {"get": _describe_events()}
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


def _describe_path(
    path: str, summary: str, shape: str, parameters: tuple[tuple[str, str, Json], ...]
) -> Json:
    names = [part[1:-1] for part in path.rstrip("!").split("/") if part.startswith("{")]
    given = [_describe_parameter(name, "path", f"The {name}.", TEXT) for name in names]
    is_list = path == "/tools"  # the only path that can do without `q`
    given += [
        _describe_parameter(name, "query", text, kind, needed=name in _NEEDED and not is_list)
        for name, text, kind in parameters
    ]
    answers = {"200": _describe_answer("The answer.", shape)}
    answers |= {code: _describe_answer(text, "Error") for code, text in _ERRORS.items()}
    operation: Json = {"summary": summary, "parameters": given, "responses": answers}
    return {"post" if path.endswith("!") else "get": operation}


def _describe_parameter(
    name: str, place: str, text: str, kind: Json, *, needed: bool = True
) -> Json:
    return {"name": name, "in": place, "description": text, "required": needed, "schema": kind}


def _describe_answer(text: str, shape: str) -> Json:
    return {"description": text, "content": {"application/json": {"schema": refer_to(shape)}}}


def _describe_events() -> Json:
    text = (
        "Server-sent events: overview, server, session, search, call, savings, and resync if "
        "events were missed. Last-Event-ID continues after an event."
    )
    stream = {"description": text, "content": {"text/event-stream": {"schema": TEXT}}}
    return {
        "summary": "What happens, as it happens.",
        "parameters": [],
        "responses": {"200": stream},
    }
