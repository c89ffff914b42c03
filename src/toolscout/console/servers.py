"""`Board`: the servers behind a gateway as rows, what may be done with each, and their logs.

A bearer with a profile looks; only one without may start, stop or log in, because that changes
the server for everybody.

`Visits`: logins that a person began in the console, until the browser has come back.

The page gets the address at which to log in; the answer is waited for on loopback, as by
`toolscout servers login`, and the pool takes the login over by itself.
"""

import asyncio
import logging
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from toolscout.config.secrets import SecretMask, mask_args
from toolscout.config.servers import ServerConfig, Transport
from toolscout.console.activity import Chronicle, Ledger, told_time
from toolscout.console.catalog import Costs
from toolscout.console.views import FORBIDDEN, NOT_FOUND, Refused, View, no_such
from toolscout.errors import LoginFailed, ToolscoutError, UsageError
from toolscout.gateway.status import mask_secrets
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.servers.oauth.callback import PORT, Callback
from toolscout.servers.oauth.login import LoginState, check_login, find_login_state, log_in
from toolscout.servers.pool import Pool
from toolscout.servers.server import Phase, ServerState

START, STOP, RESTART, LOGIN = "start", "stop", "restart", "login"
RUNNING = (Phase.READY, Phase.STARTING)
LINE_CHARS = 1_000


class Board:
    """The servers of a pool. Used on the pool's loop.

    `tokens` is the folder with logins; without it, or where the browser of a person could not
    come back to this machine, nobody can log in.
    """

    def __init__(
        self, pool: Pool, chronicle: Chronicle, costs: Costs, *, tokens: Path | None, logs_in: bool
    ) -> None:
        self._pool, self._chronicle, self._costs = pool, chronicle, costs
        self._tokens = tokens
        self.logs_in = logs_in and tokens is not None

    def phases(self, view: View) -> Json:
        """Return how many visible servers are in each state."""
        members = self._visible(view)
        states = [state_of(member) for member in members]
        return {name: states.count(name) for name in STATES}

    def rows(self, view: View, tokens: dict[str, int]) -> list[Json]:
        """Return all visible servers by name; `tokens` tells what the tools of each cost."""
        counts = Counter(tool.server for tool in view.callables)
        return [
            self._row(member, view, counts[member.name], tokens.get(member.name, 0))
            for member in sorted(self._visible(view), key=lambda member: member.name)
        ]

    def row(self, view: View, name: str) -> Json:
        """Return one server."""
        member = self.member(view, name)
        mine = [tool for tool in view.callables if tool.server == name]
        return self._row(member, view, len(mine), sum(self._costs.of(mine)))

    def log(self, view: View, name: str) -> Json:
        """Return the last lines of a server's log, without secrets."""
        member = self.member(view, name)
        if view.is_limited:
            raise Refused(FORBIDDEN, "limited", "Logs are for tokens without a profile.", NEEDED)
        lines = self._chronicle.ledger(name).lines
        mask = member.config.build_mask()
        return {"lines": [{"time": told_time(at), "text": _safe(line, mask)} for at, line in lines]}

    def member(self, view: View, name: str) -> ServerState:
        """Return a visible server, or refuse as if there were none."""
        member = self._pool.servers.get(name)
        if member is None or not view.sees_server(name):
            raise no_such("server", name)
        return member

    async def act(self, view: View, name: str, action: str) -> Json:
        """Start, stop or restart a server; return its row."""
        member = self.member(view, name)
        if view.is_limited:
            raise Refused(FORBIDDEN, "limited", f"This token may not {action} servers.", NEEDED)
        if action not in (START, STOP, RESTART):
            hint = "Use start, stop, restart or login."
            raise Refused(NOT_FOUND, "unknown_action", f"There is no action {action!r}.", hint)
        works = {START: self._pool.start, STOP: self._pool.stop, RESTART: self._pool.restart}
        await works[action](member.name)
        return self.row(view, name)

    def actions(self, member: ServerState, view: View, login: str) -> list[str]:
        """Return what may be done with a server as it is."""
        if view.is_limited:
            return []
        is_running = member.phase in RUNNING
        found = [STOP, RESTART] if is_running else [START]
        is_wanted = login in (LoginState.NEEDED, LoginState.EXPIRED)
        wants = is_wanted or member.phase is Phase.NEEDS_LOGIN
        return [*found, *([LOGIN] if wants and self.can_log_in(member) else [])]

    def can_log_in(self, member: ServerState) -> bool:
        """Tell whether a person can log in to a server from here."""
        try:
            check_login(member.config)
        except UsageError:
            return False
        return self.logs_in

    def _visible(self, view: View) -> list[ServerState]:
        return [m for m in self._pool.servers.values() if view.sees_server(m.name)]

    def _row(self, member: ServerState, view: View, tools: int, tokens: int) -> Json:
        ledger = self._chronicle.ledger(member.name)
        login = self._login(member.config)
        return {
            "name": member.name,
            "transport": member.config.transport.value,
            "state": state_of(member),
            "since": _since(member),
            "tools": tools,
            "tokens": tokens,
            "calls": ledger.calls,
            "errors": ledger.errors,
            "restarts": max(0, member.starts - 1),
            "latency_ms": _latency(ledger),
            "reason": mask_secrets(member.reason, member.config),
            "login": login,
            "actions": self.actions(member, view, login),
        }

    def _login(self, config: ServerConfig) -> str:
        if self._tokens is None or config.transport not in (Transport.HTTP, Transport.SSE):
            return LoginState.NONE.value
        return find_login_state(config, self._tokens, time.time()).value


NEEDED = "Use a token without a profile."
STATES = tuple(phase.value.replace(" ", "_") for phase in Phase)


def state_of(member: ServerState) -> str:
    """Return where a server stands, as the API writes it."""
    return member.phase.value.replace(" ", "_")


def _since(member: ServerState) -> str | None:
    if not member.since:
        return None
    ago = asyncio.get_running_loop().time() - member.since
    return told_time(time.time() - ago)


def _latency(ledger: Ledger) -> Json:
    return {"p50": ledger.quantile(0.5), "p95": ledger.quantile(0.95)}


def _safe(line: str, mask: SecretMask) -> str:
    """Return a line without what the server was given, and without what looks like a secret."""
    words = " ".join(mask_args(mask.apply(line).split(" ")))
    return to_one_line(words, LINE_CHARS)


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
            task = asyncio.create_task(self._visit(config.resolve(), address))
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
