"""A broken MCP server over stdio: the first argument says how it is broken, the rest how much.

It speaks the protocol by hand, of the initialize handshake, so that it can break any rule of it.
What each tool does wrong is in `TOOLS`, what each mode does wrong in `MODES`.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class Server:
    def __init__(self, mode: str, given: list[str]) -> None:
        self.mode, self.given = mode, given
        self.tools = [definition(name) for name in TOOLS]
        self.calls = 0

    def run(self) -> None:
        prepare = MODES.get(self.mode)
        if prepare is not None:
            prepare(self)
        for line in sys.stdin:
            message = json.loads(line)
            if "method" in message:
                self.handle(message)
        if self.mode == "dies in shutdown":
            os.abort()
        if self.mode == "stubborn":
            threading.Event().wait()

    def handle(self, message: Json) -> None:
        method, params = message["method"], message.get("params", {})
        if method == "notifications/cancelled":
            note(f"cancelled {params['requestId']}")
        if "id" not in message:
            return
        answer = {"initialize": self.initialize, "tools/list": self.list, "tools/call": self.call}
        if method not in answer:
            error = {"code": -32601, "message": "Method not found"}
            send({"id": message["id"], "error": error})
            return
        result = answer[method](message["id"], params)
        if result is not None:
            send({"id": message["id"], "result": result})

    def initialize(self, id_: object, params: Json) -> Json:
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "faulty", "version": "1"},
        }

    def list(self, id_: object, params: Json) -> Json:
        note("listed")
        if self.mode == "always changed":
            changed()
        if self.mode == "endless":
            return {"tools": [], "nextCursor": "more"}
        return {"tools": self.tools}

    def call(self, id_: object, params: Json) -> Json | None:
        self.calls += 1
        if self.mode == "crash after" and self.calls > int(self.given[0]):
            os._exit(9)
        return TOOLS[params["name"]](self, id_, params.get("arguments", {}))


def send(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def changed() -> None:
    send({"method": "notifications/tools/list_changed"})


def text(words: str) -> Json:
    return {"content": [{"type": "text", "text": words}]}


def definition(name: str) -> Json:
    return {"name": name, "description": name, "inputSchema": {"type": "object"}}


def echo(server: Server, id_: object, arguments: Json) -> Json:
    return text(str(arguments.get("text")))


def hang(server: Server, id_: object, arguments: Json) -> None:
    note("hanging")


def later(server: Server, id_: object, arguments: Json) -> None:
    note("working")
    answer = {"id": id_, "result": text("done")}
    threading.Timer(float(arguments["seconds"]), send, (answer,)).start()


def crash(server: Server, id_: object, arguments: Json) -> None:
    os._exit(7)


def answer_and_end(server: Server, id_: object, arguments: Json) -> None:
    send({"id": id_, "result": text("last words")})
    os._exit(0)


def garbage(server: Server, id_: object, arguments: Json) -> Json:
    sys.stdout.write("Traceback: not JSON at all\n{\n[]\n\n")
    return text("after garbage")


def half(server: Server, id_: object, arguments: Json) -> None:
    sys.stdout.write('{"jsonrpc": "2.0", "id": ')
    sys.stdout.flush()


def big(server: Server, id_: object, arguments: Json) -> Json:
    return text("x" * int(arguments["size"]))


def wrong_id(server: Server, id_: object, arguments: Json) -> None:
    send({"id": 987654, "result": text("for nobody")})


def odd(server: Server, id_: object, arguments: Json) -> Json:
    return {"content": "no list"}


def refuse(server: Server, id_: object, arguments: Json) -> None:
    send({"id": id_, "error": {"code": -32000, "message": "I would rather not"}})


def storm(server: Server, id_: object, arguments: Json) -> Json:
    server.tools.append(definition("grown"))
    for _ in range(int(arguments["notices"])):
        changed()
    return text("changed")


def ask(server: Server, id_: object, arguments: Json) -> Json:
    params: Json = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    send({"id": "q", "method": "elicitation/create", "params": params})
    return text(sys.stdin.readline())


def close_stdout(server: Server, id_: object, arguments: Json) -> None:
    os.close(1)
    threading.Event().wait()


TOOLS: dict[str, Callable[[Server, object, Json], Json | None]] = {
    "echo": echo,
    "hang": hang,
    "later": later,
    "crash": crash,
    "answer_and_end": answer_and_end,
    "garbage": garbage,
    "half": half,
    "big": big,
    "wrong_id": wrong_id,
    "odd": odd,
    "refuse": refuse,
    "storm": storm,
    "ask": ask,
    "close_stdout": close_stdout,
}


def crash_at_start(server: Server) -> None:
    note("cannot start")
    sys.exit(3)


def hang_at_start(server: Server) -> None:
    threading.Event().wait()


def greet(server: Server) -> None:
    sys.stdout.write("Welcome to the faulty server!\n")


def leak(server: Server) -> None:
    sleeper = [sys.executable, "-S", "-c", "import threading; threading.Event().wait()"]
    note(f"grandchild {subprocess.Popen(sleeper).pid}")


def ignore_signals(server: Server) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def duplicate(server: Server) -> None:
    server.tools += [definition("echo"), {"description": "a tool without a name"}]


def grow(server: Server) -> None:
    server.tools += [definition(f"tool_{number}") for number in range(1_000)]


def tell_secret(server: Server) -> None:
    note(f"my token is {os.environ['SECRET_TOKEN']}")


def chatter(server: Server) -> None:
    for number in range(int(server.given[0])):
        note(f"line {number} " + "x" * 10_000)


def crash_first(server: Server) -> None:
    """Crash unless a file says that an earlier start did; the file is the first argument."""
    path = Path(server.given[0])
    if not path.exists():
        path.touch()
        sys.exit(4)


MODES: dict[str, Callable[[Server], None]] = {
    "crash": crash_at_start,
    "hang": hang_at_start,
    "greet": greet,
    "leak": leak,
    "stubborn": ignore_signals,
    "duplicates": duplicate,
    "thousand": grow,
    "secret": tell_secret,
    "chatter": chatter,
    "crash first": crash_first,
}

if __name__ == "__main__":
    Server(sys.argv[1], sys.argv[2:]).run()
