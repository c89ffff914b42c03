"""A server whose results, errors and log lines hold a token, which a file has."""

import json
import sys
from pathlib import Path
from typing import Any

TOKEN = Path(sys.argv[1]).read_text(encoding="utf-8")
LINES = 20_000
TOOLS = [
    {"name": name, "description": text, "inputSchema": {"type": "object"}}
    for name, text in (
        ("short_report", "Return a short report."),
        ("long_report", "Return a long report with many lines."),
        ("failing_report", "Fail to make a report."),
        ("logged_report", "Return a short report and log a long one."),
    )
]


def call(name: str) -> dict[str, Any]:
    sys.stderr.write(f"called {name} with {TOKEN}\n")
    sys.stderr.flush()
    if name == "failing_report":
        return {"error": {"code": -32000, "message": f"refused {TOKEN}"}}
    data = ["nothing to see here"] * (LINES if name == "logged_report" else 1)
    note = {"level": "info", "data": [*data, f"logged {TOKEN}"]}
    send({"jsonrpc": "2.0", "method": "notifications/message", "params": note})
    # The message has arrived once a later request is answered.
    send({"jsonrpc": "2.0", "id": "ping", "method": "ping"})
    while json.loads(sys.stdin.readline()).get("id") != "ping":
        pass
    lines = ["nothing to see here"] * (LINES if name == "long_report" else 1)
    text = "\n".join([*lines, f"the token is {TOKEN}"])
    data = {"token": TOKEN, "count": len(lines)}
    return {"result": {"content": [{"type": "text", "text": text}], "structuredContent": data}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        started: dict[str, Any] = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "leaking", "version": "1"},
        }
        return {"result": started}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "tools/call":
        return call(params["name"])
    return {"error": {"code": -32601, "message": "unknown"}}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            reply = answer(message["method"], message.get("params", {}))
            send({"jsonrpc": "2.0", "id": message["id"], **reply})


if __name__ == "__main__":
    main()
