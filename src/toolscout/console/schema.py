"""The shapes of the API's answers, as JSON Schema kept by hand.

Strict on purpose: an answer with a member that is not written here is a mistake, which a test
finds by comparing real answers.

The OpenAPI document of the console's API: paths and parameters over the shapes.
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


def listed(item: Json) -> Json:
    """Return an array of one shape."""
    return {"type": "array", "items": item}


def either(shape: Json) -> Json:
    """Return a shape that may be null instead."""
    return {"anyOf": [shape, {"type": "null"}]}


def choice(*words: str) -> Json:
    """Return one of some words."""
    return {"type": "string", "enum": list(words)}


def by_name(shape: Json) -> Json:
    """Return an object with values of one shape under any names."""
    return {"type": "object", "additionalProperties": shape}


def obj(optional: tuple[str, ...] = (), /, **members: Json) -> Json:
    """Return an object with exactly these members."""
    needed = [name for name in members if name not in optional]
    return {
        "type": "object",
        "properties": members,
        "required": needed,
        "additionalProperties": False,
    }


def ref(name: str) -> Json:
    """Return a reference to a shape of this module."""
    return {"$ref": f"#/components/schemas/{name}"}


_TOKENS = dict.fromkeys(("not_sent", "menu", "replies", "descriptions", "net"), WHOLE)
_SIGNALS = by_name(SHARE)
_MATCHED = by_name(listed(TEXT))
_CONFIDENCE = choice(*(word.value for word in Confidence))
_GROUP = obj(name=TEXT, tools=COUNT, tokens=COUNT)
_ABOUT: dict[str, Json] = {
    "name": TEXT,
    "server": TEXT,
    "leaf": TEXT,
    "kind": TEXT,
    "effect": choice(*(effect.value for effect in Effect)),
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
    "Error": obj(error=obj(("hint",), code=TEXT, message=TEXT, hint=TEXT)),
    "Overview": obj(
        version=TEXT,
        host=choice("gateway", "console"),
        principal=TEXT,
        tools=COUNT,
        resources=COUNT,
        prompts=COUNT,
        servers=obj(**dict.fromkeys(STATES, COUNT)),
        encoders=listed(TEXT),
        tokens=obj(all_definitions=COUNT, menu=COUNT),
        capabilities=obj(**dict.fromkeys(_CAN, FLAG)),
    ),
    "Hit": obj(**_ABOUT, score=SHARE, confidence=_CONFIDENCE, signals=_SIGNALS, matched=_MATCHED),
    "Search": obj(
        query=TEXT,
        milliseconds=SPAN,
        total=COUNT,
        worth=COUNT,
        corrected=by_name(TEXT),
        hits=listed(ref("Hit")),
        missing=listed(obj(name=TEXT, near=listed(TEXT))),
        message=TEXT,
        reply=obj(text=TEXT, tokens=COUNT),
    ),
    "Why": obj(
        tool=TEXT,
        rank=either({"type": "integer", "minimum": 1}),
        score=either(SHARE),
        confidence=either(_CONFIDENCE),
        signals=_SIGNALS,
        matched=_MATCHED,
        best=either(obj(name=TEXT, score=SHARE, signals=_SIGNALS)),
        reasons=listed(TEXT),
    ),
    "Facets": obj(
        servers=listed(_GROUP), kinds=listed(_GROUP), effects=listed(_GROUP), estimated=FLAG
    ),
    "ToolRow": obj(**_ABOUT, findings=either(COUNT)),
    "Tools": obj(total=COUNT, offset=COUNT, tools=listed(ref("ToolRow"))),
    "Finding": obj(
        code=TEXT,
        severity=choice(*(severity.value for severity in Severity)),
        message=TEXT,
        remedy=TEXT,
        others=listed(TEXT),
    ),
    "Tool": obj(
        **_ABOUT,
        description=TEXT,
        input_schema=OBJECT,
        output_schema=either(OBJECT),
        hint=TEXT,
        tags=listed(TEXT),
        aliases=listed(TEXT),
        near=listed(obj(name=TEXT, similarity=SHARE)),
        findings=listed(ref("Finding")),
    ),
    "Server": obj(
        name=TEXT,
        transport=choice(*(transport.value for transport in Transport)),
        state=choice(*STATES),
        since=either(TIME),
        tools=COUNT,
        tokens=COUNT,
        calls=COUNT,
        errors=COUNT,
        restarts=COUNT,
        latency_ms=obj(p50=either(SPAN), p95=either(SPAN)),
        reason=TEXT,
        login=choice(*(state.value for state in LoginState)),
        actions=listed(choice("start", "stop", "restart", "login")),
    ),
    "Servers": listed(ref("Server")),
    "Log": obj(lines=listed(obj(time=TIME, text=TEXT))),
    "Login": obj(url=TEXT),
    "SessionRow": obj(**_SESSION, loaded=COUNT),
    "Sessions": listed(ref("SessionRow")),
    "Event": obj(
        time=TIME,
        kind=choice(*EVENT_KINDS),
        text=TEXT,
        tool=TEXT,
        hits=COUNT,
        found=listed(TEXT),
        code=TEXT,
        milliseconds=SPAN,
        tokens=COUNT,
    ),
    "Session": obj(
        **_SESSION,
        loaded=listed(obj(name=TEXT, tokens=COUNT, query=TEXT)),
        events=listed(ref("Event")),
    ),
    "Savings": obj(
        points=listed(obj(time=TIME, **_TOKENS)),
        by_server=listed(obj(server=TEXT, not_sent=COUNT)),
        total=obj(**_TOKENS),
        models=listed(obj(id=TEXT, input_per_million=SPAN)),
        priced={"type": "string", "format": "date"},
    ),
    "Map": obj(
        tools=listed(TEXT),
        servers=listed(TEXT),
        x=listed(PLACE),
        y=listed(PLACE),
        server_of=listed(COUNT),
    ),
    "Point": obj(x=PLACE, y=PLACE, hits=listed(COUNT)),
}


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
def build_document() -> Json:
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
