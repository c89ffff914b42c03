"""The servers behind a gateway: a row for each, what may be done with it, its log and its login.

A token with a profile may look. Only a token without one may start, stop or log in, because that
changes the server for everybody.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from pathlib import Path

from toolscout.config.secrets import mask_args
from toolscout.config.servers import Changes, Login, ServerConfig, Transport
from toolscout.console.activity import ActivityLog, format_time
from toolscout.console.catalog import Costs
from toolscout.console.views import NO_PROFILE, ApiError, View, make_not_found
from toolscout.errors import ToolscoutError, UsageError
from toolscout.gateway.events import LoginChanged, LoginOutcome
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.servers.oauth.callback import PORT, Callback
from toolscout.servers.oauth.login import LoginState, check_login, find_login_state, log_in
from toolscout.servers.oauth.tokens import TokenFile
from toolscout.servers.pool import Pool
from toolscout.servers.state import Phase, ServerState

START, STOP, RESTART, LOGIN = "start", "stop", "restart", "login"
DONE = {START: "started", STOP: "stopped", RESTART: "restarted"}
"""What the audit record says of an action."""
DECISIONS = {"approve": True, "reject": False}
HELD_SHOWN = 200
LOGIN_SECONDS = 300.0
LINE_CHARS = 1_000
STOPPED = "the gateway stopped"


def format_phase(phase: Phase) -> str:
    """Return a phase as the API spells it."""
    return phase.value.replace(" ", "_")


OFF = "off"
"""The state of a server that the configuration disables."""
MEANINGS = {
    **{format_phase(phase): phase.meaning for phase in Phase},
    OFF: "It is switched off in the configuration, so nobody can use it.",
}
STATES = tuple(MEANINGS)


class ServerTable:
    """The servers of a pool, as rows. Use it on the pool's event loop.

    `tokens` is the folder with logins. Nobody can log in without it, nor if `can_redirect` is
    false: the browser could not come back to this machine.
    """

    def __init__(
        self,
        pool: Pool,
        activity: ActivityLog,
        costs: Costs,
        *,
        tokens: Path | None,
        can_redirect: bool,
        list_off: Callable[[], list[ServerConfig]] = list,
    ) -> None:
        """`list_off` returns the servers that are switched off."""
        self._pool = pool
        self._list_off = list_off
        self._activity = activity
        self._costs = costs
        self._tokens = tokens
        self.has_logins = can_redirect and tokens is not None

    def count_states(self, view: View) -> Json:
        """Return the number of visible servers in each state."""
        states = Counter(format_phase(server.phase) for server in self._list_visible(view))
        states[OFF] = sum(view.sees_server(config.name) for config in self._list_off())
        return {state: states[state] for state in STATES}

    def list_rows(
        self, view: View, tokens: Mapping[str, int], own_logins: Mapping[str, bool]
    ) -> list[Json]:
        """Return all visible servers by name; `tokens` has what the tools of each cost.

        `own_logins` tells whether the principal is logged in, for the servers at which users log
        in themselves.
        """
        counts = Counter(tool.server for tool in view.callables)
        rows = [
            self._build_row(server, view, counts[server.name], tokens.get(server.name, 0))
            for server in sorted(self._list_visible(view), key=lambda server: server.name)
        ]
        off = [config for config in self._list_off() if view.sees_server(config.name)]
        rows += [self._build_off_row(config, view) for config in off]
        for row in rows:
            if row["name"] in own_logins:
                row["own_login"] = "logged in" if own_logins[row["name"]] else "needed"
        return rows

    def list_user_servers(self, view: View) -> list[ServerConfig]:
        """Return the visible servers at which users log in themselves."""
        configs = [server.config for server in self._list_visible(view)]
        return [config for config in configs if config.login == Login.USER]

    def read_log(self, view: View, name: str) -> Json:
        """Return the last lines of a server's log, with secrets masked."""
        server = self.get_server(view, name)
        view.refuse_limited("Logs are")
        mask = server.config.build_mask()
        lines: list[Json] = []
        for at, line in self._activity.get_server(name).lines:
            text = " ".join(mask_args(mask.apply(line).split(" ")))
            lines.append({"time": format_time(at), "text": to_one_line(text, LINE_CHARS)})
        return {"lines": lines}

    def get_server(self, view: View, name: str) -> ServerState:
        """Return a visible server; raises `ApiError` for any other name."""
        server = self._pool.servers.get(name)
        if server is None or not view.sees_server(name):
            raise make_not_found("server", name)
        return server

    async def run_action(self, view: View, name: str, action: str) -> Json:
        """Start, stop or restart a server; return its row."""
        server = self.get_server(view, name)
        if view.is_limited:
            raise ApiError(403, "limited", f"This token may not {action} servers.", NO_PROFILE)
        works = {START: self._pool.start, STOP: self._pool.stop, RESTART: self._pool.restart}
        if action not in works:
            hint = "Use start, stop, restart or login."
            raise ApiError(404, "unknown_action", f"There is no action {action!r}.", hint)
        await works[action](server.name)
        return self.find_row(view, name)

    def find_row(self, view: View, name: str) -> Json:
        """Return the row of one server."""
        tools = [tool for tool in view.callables if tool.server == name]
        tokens = sum(self._costs.count(tools))
        off = next((config for config in self._list_off() if config.name == name), None)
        if off is not None:
            return self._build_off_row(off, view)
        return self._build_row(self.get_server(view, name), view, len(tools), tokens)

    async def list_held(self, view: View, name: str) -> Json:
        """Return the definitions of a server that wait for a person, with what has changed."""
        server = self.get_server(view, name)
        view.refuse_limited("Approvals are")
        held = server.held_definitions[:HELD_SHOWN]
        rows = await asyncio.to_thread(lambda: [item.to_json() for item in held])
        return {"total": len(server.held_definitions), "held": rows}

    async def decide(self, view: View, name: str, action: str, ids: Set[str]) -> Json:
        """Approve or reject definitions of a server by id; return what still waits."""
        server = self.get_server(view, name)
        approve = DECISIONS[action]
        if view.is_limited:
            raise ApiError(403, "limited", f"This token may not {action} definitions.", NO_PROFILE)
        if approve and (self._pool.is_locked or server.config.changes == Changes.DENY):
            hint = "Change the lock file, or `changes` in the configuration."
            raise ApiError(409, "denied", "Changes of this server are denied.", hint)
        if not ids or ids - {item.id for item in server.held_definitions}:
            message = "The server has changed its list meanwhile. Nothing was decided."
            raise ApiError(409, "changed_again", message, "Look at the list again.")
        await self._pool.decide(name, ids, approve=approve, by=view.principal.name)
        return await self.list_held(view, name)

    def can_log_in(self, server: ServerState) -> bool:
        """Tell whether a person can log in to a server from here."""
        try:
            check_login(server.config)
        except UsageError:
            return False
        return self.has_logins

    def _list_visible(self, view: View) -> list[ServerState]:
        return [s for s in self._pool.servers.values() if view.sees_server(s.name)]

    def _build_row(self, server: ServerState, view: View, tools: int, tokens: int) -> Json:
        log = self._activity.get_server(server.name)
        config = server.config
        login = LoginState.NONE
        if self._tokens is not None and config.transport in (Transport.HTTP, Transport.SSE):
            login = find_login_state(config, self._tokens, time.time())
        since = None
        if server.since:
            ago = asyncio.get_running_loop().time() - server.since
            since = format_time(time.time() - ago)
        return {
            "name": server.name,
            "transport": config.transport.value,
            "state": format_phase(server.phase),
            "since": since,
            "tools": tools,
            "tokens": tokens,
            "calls": log.calls,
            "errors": log.errors,
            "restarts": max(0, server.starts - 1),
            "connections": len(server.connected),
            "latency_ms": {"p50": log.compute_quantile(0.5), "p95": log.compute_quantile(0.95)},
            "reason": config.quote(server.reason),
            "login": login.value,
            "own_login": "none",
            "held": 0 if view.is_limited else server.undecided,
            "actions": self._list_actions(server, view, login),
        }

    def _build_off_row(self, config: ServerConfig, view: View) -> Json:
        return {**self._build_row(ServerState(config=config), view, 0, 0), "state": OFF}

    def _list_actions(self, server: ServerState, view: View, login: LoginState) -> list[str]:
        if view.is_limited or server.config.disabled:
            return []
        is_used = server.owned or server.phase in (Phase.READY, Phase.STARTING)
        actions = [STOP, RESTART] if is_used else [START]
        is_missing = login in (LoginState.NEEDED, LoginState.EXPIRED)
        if (is_missing or server.phase is Phase.NEEDS_LOGIN) and self.can_log_in(server):
            actions.append(LOGIN)
        return actions


class PendingLogins:
    """Logins that a person began in the console, one for each server.

    The page gets the address to log in at. The answer comes back on loopback, as it does for
    `toolscout servers login`, and the pool notices the new login by itself.
    """

    def __init__(self, folder: Path, tell: Callable[[LoginChanged], None]) -> None:
        """`tell` hears of each login that is begun, and how it ends."""
        self._folder = folder
        self._tell = tell
        self._logins: dict[str, tuple[asyncio.Future[str], asyncio.Task[None]]] = {}

    async def begin(self, config: ServerConfig, by: str) -> str:
        """Return where a person logs in; empty for a server that wants no login."""
        login = self._logins.get(config.name)
        if login is None:
            address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._run(config, address, by))
            login = self._logins[config.name] = (address, task)
            task.add_done_callback(lambda _: self._logins.pop(config.name, None))
        return await asyncio.shield(login[0])

    async def close(self) -> None:
        """Give up all logins."""
        tasks = [task for _, task in self._logins.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, config: ServerConfig, address: asyncio.Future[str], by: str) -> None:
        async def redirect(url: str) -> None:
            callback.expect(url)
            address.set_result(url)

        def tell(outcome: LoginOutcome, reason: str = "") -> None:
            self._tell(LoginChanged(server=config.name, outcome=outcome, by=by, reason=reason))

        tell(LoginOutcome.STARTED)
        try:
            plain = await asyncio.to_thread(config.resolve)  # which may run a command
            # A client that was registered by hand is registered with one port.
            async with Callback(PORT if config.oauth_client_id else None) as callback:
                is_new = await log_in(
                    plain,
                    TokenFile(self._folder, plain),
                    callback=callback.url,
                    redirect=redirect,
                    answer=lambda: callback.answer(LOGIN_SECONDS),
                )
        except asyncio.CancelledError:
            tell(LoginOutcome.FAILED, STOPPED)
            raise
        except ToolscoutError as error:
            tell(LoginOutcome.FAILED, str(error))
            if not address.done():
                address.set_exception(error)
        else:
            tell(LoginOutcome.OK if is_new else LoginOutcome.NOT_NEEDED)
        finally:
            if not address.done():
                address.set_result("")
