"""A web server on this machine, and calls to it as an OpenAPI document describes them."""

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from toolscout.schemas import Json
from toolscout.servers.openapi.executor import OpenApi

WAIT_SECONDS = 20


@dataclass
class Seen:
    """One request as it came over the wire."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])


def json_reply(value: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"content-type": "application/json"})


class Service:
    """A web server on this machine that remembers what it was asked."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.answer: Callable[[Seen], Reply] = lambda _: json_reply({"ok": True})
        self.asked, self.left = threading.Event(), threading.Event()
        self.is_silent = False
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(self))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/base"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join(WAIT_SECONDS)
        self.server.server_close()


def handler_for(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            method, target, _ = self.requestline.split(" ")
            headers = {name.lower(): value for name, value in self.headers.items()}
            data = self.rfile.read(int(headers.get("content-length", 0)))
            seen = Seen(method, target, headers, data)
            service.seen.append(seen)
            service.asked.set()
            if service.is_silent:
                self.rfile.read(1)
                service.left.set()
                self.close_connection = True
                return
            self.reply(service.answer(seen))

        def reply(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in ({"content-length": str(len(reply.body))} | reply.headers).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
            pass

    return Handler


def call(service: Service, given: Json, arguments: Json, **options: Any) -> Json:
    async def made() -> Json:
        async with aclosing(OpenApi(given, server="api", base_url=service.url, **options)) as api:
            return await api(api.tools[0], arguments)

    return asyncio.run(made())


def target(service: Service, given: Json, arguments: Json) -> str:
    call(service, given, arguments)
    return service.seen[-1].target
