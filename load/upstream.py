"""A server for load tests: its answers tell who gave them and what was asked, unless it is broken.

Run it as `python load/upstream.py NAME KIND`, where the kind is one of `KINDS`. It speaks the
protocol by hand, so that it starts at once and can break any rule.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

TOOLS = 20
MANY_TOOLS = 1_000
LATER_SECONDS = 0.005
SLOW_SECONDS = 1.0
STRANGE_ID = 987_654


class Server:
    """One server; a kind decides what becomes of a call."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind, self.calls, self.tools = name, kind, 0, TOOLS

    async def run(self) -> None:
        """Answer until stdin ends."""
        lines = asyncio.StreamReader(limit=1 << 20)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        async for line in lines:
            message = json.loads(line)
            if "id" in message and "method" in message:
                self.handle(message["id"], message["method"], message.get("params") or {})

    def handle(self, number: object, method: str, params: Json) -> None:
        """Answer one request, or do what the kind does instead."""
        if method == "initialize":
            send(number, result=greeting(self.name))
        elif method == "tools/list":
            send(number, result={"tools": [definition(self.name, n) for n in range(self.tools)]})
        elif method == "tools/call":
            self.calls += 1
            KINDS[self.kind](self, number, answer(self.name, params))
        else:
            send(number, error={"code": -32601, "message": "Method not found"})


def good(server: Server, number: object, told: Json) -> None:
    """Answer, every third call a little later, so that answers overtake each other."""
    if server.calls % 3:
        send(number, result=told)
    else:
        later(LATER_SECONDS, number, told)


def crashing(server: Server, number: object, told: Json) -> None:
    """End in the middle of every tenth call."""
    if server.calls % 10 == 0:
        os._exit(7)
    send(number, result=told)


def hanging(server: Server, number: object, told: Json) -> None:
    """Leave every other call without an answer."""
    if server.calls % 2:
        send(number, result=told)


def garbage(server: Server, number: object, told: Json) -> None:
    """Write noise, half a message and an answer for nobody; now and then spoil the answer."""
    sys.stdout.write('Traceback: not JSON at all\n{\n[]\n\n{"jsonrpc": "2.0", "id": \n')
    send(STRANGE_ID, result=answer("nobody", {}))
    send(number, result=told if server.calls % 4 else {"content": "no list"})


def growing(server: Server, number: object, told: Json) -> None:
    """Answer, and list many more tools from then on."""
    server.tools = MANY_TOOLS
    send(number, result=told)
    notice = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    sys.stdout.write(json.dumps(notice) + "\n")
    sys.stdout.flush()


def slow(server: Server, number: object, told: Json) -> None:
    """Answer, but late."""
    later(SLOW_SECONDS, number, told)


KINDS: dict[str, Callable[[Server, object, Json], None]] = {
    "good": good,
    "crashing": crashing,
    "hanging": hanging,
    "garbage": garbage,
    "growing": growing,
    "slow": slow,
    "dying": good,  # it never comes to a call
}


def later(seconds: float, number: object, told: Json) -> None:
    """Answer after some seconds."""
    asyncio.get_running_loop().call_later(seconds, lambda: send(number, result=told))


def send(number: object, **message: Json) -> None:
    """Write one answer."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, **message}) + "\n")
    sys.stdout.flush()


def greeting(name: str) -> Json:
    """Return the answer to the handshake."""
    return {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": name, "version": "1"},
    }


def definition(name: str, number: int) -> Json:
    """Return one of the tools; the first is `echo`."""
    text = {"type": "string", "description": "what comes back"}
    return {
        "name": f"report_{number}" if number else "echo",
        "description": f"Report number {number} of {name}." if number else "Return the text.",
        "inputSchema": {"type": "object", "properties": {"text": text}, "required": ["text"]},
    }


def answer(name: str, params: Json) -> Json:
    """Return a result that no other question of any server has."""
    asked: Json = params.get("arguments") or {}
    text = f"{name}.{params.get('name')}: {asked.get('text')}"
    return {"content": [{"type": "text", "text": text}]}


if __name__ == "__main__":
    if sys.argv[2] == "dying":
        sys.exit(3)
    asyncio.run(Server(*sys.argv[1:3]).run())
