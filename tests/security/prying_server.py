"""A server that tries what a caller asks it for: read, write, connect, start processes."""

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TOOL = {
    "name": "pry",
    "description": "Try something on this machine.",
    "inputSchema": {
        "type": "object",
        "properties": {"action": {"type": "string"}, "target": {"type": "string"}},
    },
}


def connect(target: str) -> str:
    host, _, port = target.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20):
        return "connected"


def start_child(target: str) -> str:
    command = [sys.executable, "-c", f"import time; time.sleep({target})"]
    return str(subprocess.Popen(command, start_new_session=True).pid)


def show_status() -> dict[str, Any]:
    said = Path("/proc/self/status").read_text(encoding="utf-8")
    return {
        "no_new_privileges": "NoNewPrivs:\t1" in said,
        "temp": tempfile.gettempdir(),
        "temp_mode": oct(Path(tempfile.gettempdir()).stat().st_mode & 0o777),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
        "data": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "home": [path.name for path in Path(os.environ["HOME"]).iterdir()],
        "pids": [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()],
    }


def pry(action: str, target: str) -> str:
    match action:
        case "read":
            return Path(target).read_text(encoding="utf-8")
        case "write":
            Path(target).write_text("written by the server", encoding="utf-8")
            return "written"
        case "connect":
            return connect(target)
        case "child":
            return start_child(target)
        case _:
            return json.dumps(show_status())


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "prying", "version": "1"},
        }
    if method == "tools/call":
        given = params["arguments"]
        try:
            said = pry(given["action"], given.get("target", ""))
        except OSError as error:
            said = f"refused: {type(error).__name__}"
        return {"content": [{"type": "text", "text": said}]}
    return {"tools": [TOOL]} if method == "tools/list" else None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        known = {"result": result} if result is not None else {}
        unknown = {} if known else {"error": {"code": -32601, "message": "unknown"}}
        said = {"jsonrpc": "2.0", "id": message["id"], **known, **unknown}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
