"""A person before a browser, played by an HTTP client that follows where it is led."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2

from toolscout.config.servers import ServerConfig
from toolscout.servers.oauth.callback import Callback
from toolscout.servers.oauth.login import log_in
from toolscout.servers.oauth.tokens import LoginStorage, TokenFile

SECONDS = 20.0

Browse = Callable[[str, Callback], Coroutine[Any, Any, None]]


async def visit(url: str) -> httpx2.Response:
    """Open an address and follow it to its end."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=SECONDS) as browser:
        return await browser.get(url)


async def logged_in(
    config: ServerConfig,
    place: Path | LoginStorage,
    browse: Browse | None = None,
    *,
    seconds: float = SECONDS,
) -> bool:
    """Log in with a browser that follows the address, unless told what else to do.

    The login is stored in a folder, or wherever else the place says.
    """
    browsing: list[asyncio.Task[None]] = []

    async with Callback(0) as callback:

        async def redirect(url: str) -> None:
            callback.expect(url)
            browsing.append(asyncio.create_task((browse or _follow)(url, callback)))

        try:
            return await log_in(
                config,
                TokenFile(place, config) if isinstance(place, Path) else place,
                callback=callback.url,
                redirect=redirect,
                answer=lambda: callback.answer(seconds),
            )
        finally:
            await asyncio.gather(*browsing)


async def _follow(url: str, callback: Callback) -> None:
    await visit(url)
