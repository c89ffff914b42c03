"""`Visits`: logins that a person began in the console, until the browser has come back.

The page gets the address at which to log in; the answer is waited for on loopback, as by
`toolscout servers login`, and the pool takes the login over by itself.
"""

import asyncio
import logging
from pathlib import Path
from urllib.parse import urlsplit

from toolscout.config.servers import ServerConfig
from toolscout.errors import LoginFailed, ToolscoutError
from toolscout.servers.oauth.callback import PORT, Callback
from toolscout.servers.oauth.login import log_in

LOGIN_SECONDS = 300.0

_log = logging.getLogger(__name__)


class Visits:
    """Logins under way, one for each server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, tuple[asyncio.Future[str], asyncio.Task[None]]] = {}

    async def begin(self, config: ServerConfig) -> str:
        """Return where a person logs in; empty for a server that wants no login."""
        known = self._running.get(config.name)
        if known is None:
            address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._visit(config.resolved(), address))
            known = self._running[config.name] = (address, task)
            task.add_done_callback(lambda _: self._running.pop(config.name, None))
        return await asyncio.shield(known[0])

    async def close(self) -> None:
        """Give all logins up."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _visit(self, config: ServerConfig, address: asyncio.Future[str]) -> None:
        try:
            is_done = await self._log_in(config, address)
        except ToolscoutError as error:
            _log.warning("%s", error)
            if not address.done():
                address.set_exception(error)
        else:
            _log.info("Logged in to %s: %s.", config.name, is_done)
        finally:
            if not address.done():
                address.set_result("")

    async def _log_in(self, config: ServerConfig, address: asyncio.Future[str]) -> bool:
        # Who is registered by hand is registered with one address.
        async with Callback(PORT if config.oauth_client_id else None) as callback:

            async def redirect(url: str) -> None:
                callback.expect(_checked(config.name, url))
                address.set_result(url)

            return await log_in(
                config,
                self._folder,
                callback=callback.url,
                redirect=redirect,
                answer=lambda: callback.answer(LOGIN_SECONDS),
            )


def _checked(server: str, url: str) -> str:
    """Return an address that a page may lead to, or refuse one that runs code."""
    is_web = urlsplit(url).scheme in ("http", "https") and url.isascii() and url.isprintable()
    if not is_web:
        reason = "it leads to an address that is no web page"
        raise LoginFailed(server, reason, remedy="Tell whoever runs the server.")
    return url
