"""`UserLogins`: users of the gateway log in to its servers, in a browser at the gateway's own page.

The page asks for the user's token of the gateway, so that nobody logs in for somebody else. The
browser that began a login has to bring its answer back: it holds a cookie, and a link that was
sent to another person leads nowhere.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

from toolscout.config.servers import ServerConfig
from toolscout.console.servers import LOGIN_SECONDS
from toolscout.errors import ToolscoutError
from toolscout.gateway.events import LoginChanged, LoginOutcome
from toolscout.servers.oauth.callback import PATH, PendingAnswer
from toolscout.servers.oauth.encrypted_logins import EncryptedLogins
from toolscout.servers.oauth.login import check_login, log_in

PAGE = "/login"
CALLBACK = "/login/callback"
COOKIE = "toolscout_login"
SECRET_BYTES = 24
MOST = 1_000
"""Logins that may be under way at the same time."""
EXCHANGE_SECONDS = 60.0
"""How long the browser waits for the last step."""
DONE, FAILED, UNKNOWN = "done", "failed", "unknown"
GIVEN_UP = "it was begun anew, or the gateway stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Login:
    answer: PendingAnswer
    address: asyncio.Future[str]
    cookie: str


class UserLogins:
    """Logins that users began, at most one for each user and server."""

    def __init__(
        self, encrypted_logins: EncryptedLogins, tell: Callable[[LoginChanged], None]
    ) -> None:
        """`tell` hears of each login that is begun, and how it ends."""
        self._encrypted_logins = encrypted_logins
        self._tell = tell
        self._logins: dict[tuple[str, str], tuple[_Login, asyncio.Task[bool]]] = {}

    async def begin(self, config: ServerConfig, principal: str, callback: str) -> tuple[str, str]:
        """Return where a user logs in, and the cookie for the browser that asked.

        The address is empty for a server that wants no login. The answer comes to `callback`.
        """
        check_login(config)
        key = (config.name, principal)
        self._drop(key)
        while len(self._logins) >= MOST:
            self._drop(next(iter(self._logins)))
        login = _Login(
            answer=PendingAnswer(),
            address=asyncio.get_running_loop().create_future(),
            cookie=secrets.token_urlsafe(SECRET_BYTES),
        )
        task = asyncio.create_task(self._run(config, principal, callback, login))
        self._logins[key] = login, task
        task.add_done_callback(lambda task: self._forget(key, task))
        return await asyncio.shield(login.address), login.cookie

    async def finish(self, parameters: Mapping[str, str], cookie: str) -> str:
        """Take what came back to the callback; return `DONE`, `FAILED` or `UNKNOWN`."""
        for login, task in list(self._logins.values()):
            is_meant = _is_equal(parameters.get("state", ""), login.answer.state)
            if is_meant and _is_equal(cookie, login.cookie):
                if not login.answer.take(f"{PATH}?{urlencode(parameters)}"):
                    return UNKNOWN
                done, _ = await asyncio.wait((task,), timeout=EXCHANGE_SECONDS)
                is_done = bool(done) and not task.cancelled() and task.result()
                return DONE if is_done else FAILED
        return UNKNOWN

    def find_logins(self, configs: Iterable[ServerConfig], principal: str) -> dict[str, bool]:
        """Tell for each server whether a user is logged in there; this reads from the store."""
        found: dict[str, bool] = {}
        for config in configs:
            with suppress(ToolscoutError):  # a reference without a value
                key = self._encrypted_logins.find(config.resolve(), principal).key
                found[config.name] = self._encrypted_logins.has(key)
        return found

    async def close(self) -> None:
        """Give up all logins."""
        tasks = [task for _, task in self._logins.values()]
        for key in list(self._logins):
            self._drop(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self, key: tuple[str, str]) -> None:
        if key in self._logins:
            self._logins.pop(key)[1].cancel()

    def _forget(self, key: tuple[str, str], task: asyncio.Task[bool]) -> None:
        if key in self._logins and self._logins[key][1] is task:
            del self._logins[key]

    async def _run(
        self, config: ServerConfig, principal: str, callback: str, login: _Login
    ) -> bool:
        async def redirect(url: str) -> None:
            login.answer.expect(url)
            login.address.set_result(url)

        def tell(outcome: LoginOutcome, reason: str = "") -> None:
            self._tell(
                LoginChanged(
                    server=config.name, outcome=outcome, principal=principal, reason=reason
                )
            )

        tell(LoginOutcome.STARTED)
        try:
            plain = await asyncio.to_thread(config.resolve)
            storage = self._encrypted_logins.find(plain, principal)
            # A login that cannot be decrypted is not written over.
            await asyncio.to_thread(storage.load)
            is_new = await log_in(
                plain,
                storage,
                callback=callback,
                redirect=redirect,
                answer=lambda: login.answer.answer(LOGIN_SECONDS),
            )
        except asyncio.CancelledError:
            tell(LoginOutcome.FAILED, GIVEN_UP)
            raise
        except ToolscoutError as error:
            tell(LoginOutcome.FAILED, str(error))
            if not login.address.done():
                login.address.set_exception(error)
            return False
        finally:
            if not login.address.done():
                login.address.set_result("")
        tell(LoginOutcome.OK if is_new else LoginOutcome.NOT_NEEDED)
        return is_new


def _is_equal(given: str, wanted: str) -> bool:
    return bool(wanted) and secrets.compare_digest(given.encode(), wanted.encode())
