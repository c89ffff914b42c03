"""An MCP server over stdio with the tools of `mcp-server-time`, for tests that need any server.

It uses the standard library only: the SDK takes ten times as long to import as this server lives.
It speaks both kinds of the protocol, with and without the handshake. `test_connection.py` compares
it with the real one.
"""

import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Json = dict[str, Any]
MODERN = "2026-07-28"
INFO = {"name": "mcp-time", "version": "2026.10.19"}
CAPABILITIES = {"tools": {"listChanged": False}}
HINTS = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
TEXT = {"type": "string"}
MOMENT = {
    "type": "object",
    "properties": {
        "timezone": TEXT,
        "datetime": TEXT,
        "day_of_week": TEXT,
        "is_dst": {"type": "boolean"},
    },
    "required": ["timezone", "datetime", "day_of_week", "is_dst"],
}


class InvalidArgument(Exception):
    """What the model hears about its arguments."""


def get_current_time(timezone: str) -> Json:
    return describe_moment(timezone, datetime.now(find_zone(timezone)))


def convert_time(source_timezone: str, time: str, target_timezone: str) -> Json:
    try:
        clock = datetime.strptime(time, "%H:%M").time()
    except ValueError:
        raise InvalidArgument("Invalid time format. Expected HH:MM") from None
    zone = find_zone(source_timezone)
    source = datetime.combine(datetime.now(zone), clock, zone)
    target = source.astimezone(find_zone(target_timezone))
    apart = (target.utcoffset() or source - source) - (source.utcoffset() or source - source)
    return {
        "source": describe_moment(source_timezone, source),
        "target": describe_moment(target_timezone, target),
        "time_difference": f"{apart.total_seconds() / 3600:+.1f}h",
    }


def find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidArgument(f"Invalid timezone: {error}") from None


def describe_moment(timezone: str, moment: datetime) -> Json:
    return {
        "timezone": timezone,
        "datetime": moment.isoformat(timespec="seconds"),
        "day_of_week": moment.strftime("%A"),
        "is_dst": bool(moment.dst()),
    }


def define(name: str, description: str, parameters: Json, output: Json) -> Json:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return {
        "name": name,
        "description": description,
        "inputSchema": schema,
        "outputSchema": output,
        "annotations": HINTS,
    }


def zone_of(what: str) -> Json:
    return TEXT | {"description": f"{what} as an IANA name such as 'Europe/London'"}


CALLS: dict[str, Callable[..., Json]] = {
    "get_current_time": get_current_time,
    "convert_time": convert_time,
}
TOOLS = [
    define(
        "get_current_time",
        "Get current time in a specific timezone",
        {"timezone": zone_of("Time zone")},
        MOMENT,
    ),
    define(
        "convert_time",
        "Convert time between timezones",
        {
            "source_timezone": zone_of("Time zone of the given time"),
            "time": TEXT | {"description": "Time to convert, from 00:00 to 23:59"},
            "target_timezone": zone_of("Time zone to convert to"),
        },
        {
            "type": "object",
            "properties": {"source": MOMENT, "target": MOMENT, "time_difference": TEXT},
            "required": ["source", "target", "time_difference"],
        },
    ),
]


def call(params: Json) -> Json:
    name = params["name"]
    try:
        found = CALLS[name](**params.get("arguments") or {})
    except (InvalidArgument, TypeError) as error:
        text = f"Error executing tool {name}: {error}"
        return {"content": [{"type": "text", "text": text}], "isError": True}
    content = [{"type": "text", "text": json.dumps(found, indent=2)}]
    return {"content": content, "structuredContent": found, "isError": False}


def answer(method: str, params: Json, *, is_modern: bool) -> Json:
    """Return the result or the error of a request."""
    result: Json
    match method:
        case "server/discover":
            result = {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}
        case "initialize" if not is_modern:
            version = params["protocolVersion"]
            result = {
                "protocolVersion": version,
                "capabilities": CAPABILITIES,
                "serverInfo": INFO,
            }
        case "tools/list":
            result = {"tools": TOOLS}
        case "tools/call" if params["name"] in CALLS:
            result = call(params)
        case "tools/call":
            return {"error": {"code": -32602, "message": f"Unknown tool: {params['name']}"}}
        case "ping" if not is_modern:
            result = {}
        case _:
            return {"error": {"code": -32601, "message": "Method not found", "data": method}}
    if is_modern:
        result |= {"resultType": "complete", "cacheScope": "private", "ttlMs": 0}
        result["_meta"] = {"io.modelcontextprotocol/serverInfo": INFO}
    return {"result": result}


def main() -> None:
    for zone in sys.argv[2:]:  # after --local-timezone
        ZoneInfo(zone)
    for line in sys.stdin:
        message: Json = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        params: Json = message.get("params") or {}
        is_modern = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", ())
        reply = answer(message["method"], params, is_modern=is_modern)
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
