"""A service on this machine that answers chat requests, for tests of what writes hints."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Answer = Callable[[list[Json]], str]


def write_lines(definitions: list[Json]) -> str:
    """Answer as a well-behaved model does."""
    return "\n".join(
        json.dumps({"number": one["number"], "hint": f"everyday words for {one['name']} zwei"})
        for one in definitions
    )


@dataclass
class ChatService:
    """What the service was asked, and what it answers."""

    url: str = ""
    answer: Answer = write_lines
    failures: list[tuple[int, dict[str, str]]] = field(
        default_factory=list[tuple[int, dict[str, str]]]
    )
    """Status and headers of the next requests, before any is answered."""
    requests: list[Json] = field(default_factory=list[Json])
    keys: list[str] = field(default_factory=list[str])
    key: str = ""
    """What a request has to have, if anything."""

    @property
    def asked(self) -> list[list[Json]]:
        """The definitions of each request."""
        return [json.loads(one["messages"][1]["content"]) for one in self.requests]

    @property
    def names(self) -> list[str]:
        """The names of all tools that were asked about."""
        return [one["name"] for definitions in self.asked for one in definitions]


@contextmanager
def chatting() -> Generator[ChatService]:
    """Serve until the end of the block."""
    service = ChatService()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.requests.append(body)
            service.keys.append(self.headers.get("Authorization", ""))
            if service.key and service.keys[-1] != f"Bearer {service.key}":
                self.reply(401, {}, {"error": "no such key"})
            elif service.failures:
                status, headers = service.failures.pop(0)
                self.reply(status, headers, {"error": "not now"})
            else:
                text = service.answer(json.loads(body["messages"][1]["content"]))
                self.reply(200, {}, {"choices": [{"message": {"content": text}}]})

        def reply(self, status: int, headers: dict[str, str], body: Json) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
