"""The console without a gateway: the same page and API over any catalogue.

Guarded as the gateway is: loopback unless told, Host and Origin checked, tokens where there are
any.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolscout.catalog import Catalog
from toolscout.config.gateway import GatewayConfig
from toolscout.console.console import Console
from toolscout.console.subjects import Subject
from toolscout.gateway.auth import Access
from toolscout.gateway.listen import (
    WebServer,
    address_of,
    listening,
    settings_of,
    stopped_by_signals,
)
from toolscout.gateway.middleware import Guard, problem
from toolscout.scout import Scout
from toolscout.settings import Settings


def console_of(catalog: Catalog, config: GatewayConfig) -> Console:
    """Return the console of a catalogue, which answers as a gateway would."""
    settings = replace(Settings(), calls_by_name=True, shared=True)
    return Console(Subject(scout=Scout(catalog, settings=settings), config=config))


def app_of(console: Console) -> Starlette:
    """Return a console as an ASGI application."""
    config = console.subject.config

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with console.run():
            yield

    guard = Middleware(
        Guard,
        access=Access(config),
        max_body_bytes=config.max_body_bytes,
        is_public=console.is_public,
    )
    return Starlette(
        routes=[Route("/healthz", _healthz), *console.routes],
        middleware=[guard],
        exception_handlers={404: _not_found, 405: _wrong_method},
        lifespan=lifespan,
    )


async def serve_console(
    console: Console,
    *,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set or a signal says so; `ready` is told the address."""
    stop, config = stop or asyncio.Event(), console.subject.config
    app = app_of(console)
    with contextlib.closing(listening(config)) as listener, stopped_by_signals(stop):
        address = address_of(config.host, listener.getsockname()[1])
        server = WebServer(
            settings_of(app, config), lambda: ready(address) if ready is not None else None
        )
        ending = asyncio.create_task(_end(server, console, stop))
        try:
            await server.serve(sockets=[listener])
        finally:
            ending.cancel()


async def _end(server: WebServer, console: Console, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True
    console.feed.close()  # a stream that stays open would hold the server up


async def _healthz(request: Request) -> Response:
    return JSONResponse({"alive": True})


async def _not_found(request: Request, error: Exception) -> Response:
    return problem("no_page", 404)


async def _wrong_method(request: Request, error: Exception) -> Response:
    return problem("wrong_method", 405, headers=getattr(error, "headers", None))
