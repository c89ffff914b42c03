"""Where the gateway listens: its socket, the web server behind it, and what ends both.

Knows nothing of MCP; `http` is what is served.
"""

import asyncio
import contextlib
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Generator

import uvicorn
from starlette.types import ASGIApp

from toolscout.config.gateway import GatewayConfig
from toolscout.errors import InvalidConfig
from toolscout.gateway.shims import BufferedProtocol

BACKLOG = 2048


class WebServer(uvicorn.Server):
    """A server that tells when it has started and leaves signals to others."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell so."""
        await super().startup(sockets)
        self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone."""
        # uvicorn sends itself the signal again when done, which would end the process before
        # the servers behind the gateway are stopped.
        yield


def build_web_config(app: ASGIApp, config: GatewayConfig) -> uvicorn.Config:
    """Return how an application is served."""
    return uvicorn.Config(
        app,
        http=BufferedProtocol,
        log_config=None,  # whoever set up logging keeps it: stdout is not ours
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        # By then the streams have been ended; this is for what would not end.
        timeout_graceful_shutdown=math.ceil(config.stop_seconds) + 1,
    )


def open_listener(config: GatewayConfig) -> socket.socket:
    """Return a socket at the configured address, or raise `InvalidConfig`."""
    try:
        return _bind(config.host, config.port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no such address"
        raise InvalidConfig(
            "gateway.port",
            f"is {config.port}, which cannot be had at {config.host!r} ({reason})",
            remedy="Stop what listens there, or choose another port; 0 takes a free one.",
        ) from None


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sends small answers at once only where it is; without
    # it, each would wait 40 ms for the client's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def format_address(host: str, port: int) -> str:
    """Return the URL of an address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def handle_signals(stop: asyncio.Event) -> Generator[None]:
    """Have the usual signals stop the gateway; a thread hears none, and Windows has its own."""
    loop = asyncio.get_running_loop()
    heard: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        with contextlib.suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
                heard.append(number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
