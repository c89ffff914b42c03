"""A server with a state, of the handshake era: it counts its calls, and tells who it is.

If its argument is the name of a file, it starts only in a folder with that file. It needs the
standard library only, because tests start it often.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

NAMES = ("count", "hold", "crash")
PID = str(os.getpid())
SAID = {"role": "user", "content": {"type": "text", "text": PID}}
ANSWERS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}, "completions": {}},
        "serverInfo": {"name": "counting", "version": "1"},
    },
    "ping": {},
    "tools/list": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in NAMES]},
    "resources/list": {"resources": [{"name": "pid", "uri": "count://pid"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": [{"uri": "count://pid", "text": PID}]},
    "prompts/list": {"prompts": [{"name": "ask", "arguments": [{"name": "name"}]}]},
    "prompts/get": {"messages": [SAID]},
    "completion/complete": {"completion": {"values": [PID]}},
}


def main() -> None:
    """Answer requests until the input ends; `hold` is never answered."""
    if not all(map(os.path.exists, sys.argv[1:])):
        sys.exit("This is the wrong folder.")
    counted = 0
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        called = request["params"]["name"] if method == "tools/call" else ""
        if called == "crash":
            os._exit(1)
        if called == "hold" or "id" not in request:
            continue
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "Unknown method"}}
        if method in ANSWERS:
            answer = {"result": ANSWERS[method]}
        if called == "count":
            counted += 1
            told = {"count": counted, "pid": os.getpid(), "folder": str(Path.cwd())}
            answer = {"result": {"content": [{"type": "text", "text": json.dumps(told)}]}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
