"""A web server for tests in which something at the other end of HTTP is hostile."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


class Request(BaseHTTPRequestHandler):
    """One request, with the means to answer it."""

    body: bytes = b""

    def read_message(self) -> Json:
        return json.loads(self.body) if self.body else {}

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content_length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def reply_json(self, message: object, **headers: str) -> None:
        self.reply(200, json.dumps(message).encode(), content_type="application/json", **headers)

    def stream(self, media: str, make: Callable[[], bytes], **headers: str) -> None:
        """Send parts for ever, until the other side hangs up."""
        self.send_response(200)
        for name, value in {"content_type": media, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.close_connection = True
        while True:
            self.wfile.write(make())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name in the library
        pass


@contextmanager
def web_server(answer: Callable[[Request], None]) -> Generator[str]:
    """Serve on loopback and yield the address, without a path."""

    class Handler(Request):
        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # who hung up has heard enough
                self.close_connection = True

        def answer(self) -> None:
            self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
            answer(self)

        do_GET = do_POST = do_PUT = do_DELETE = answer  # names in the library

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer_mcp(
    request: Request, results: Callable[[str, Json], Json | None], **headers: str
) -> None:
    """Answer a request of MCP over streamable HTTP; `results` has all but the handshake."""
    message = request.read_message()
    if "id" not in message:
        request.reply(202 if message else 405)
        return
    known: Json | None = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "resources": {}},
        "serverInfo": {"name": "hostile", "version": "1"},
    }
    if message["method"] != "initialize":
        known = results(message["method"], message.get("params") or {})
    answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
    if known is None:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    else:
        answer["result"] = known
    request.reply_json(answer, **headers)
