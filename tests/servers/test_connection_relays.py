"""Whom a server's questions reach."""

import asyncio
from typing import Any

import mcp_types as types

from toolscout.config.servers import ServerConfig, Transport
from toolscout.servers.connection import NOBODY, SEVERAL, Relays

SERVER = ServerConfig(name="s", transport=Transport.STDIO, command="none")
ANSWER = types.ListRootsResult(roots=[])


class Client:
    """Answers what it is asked, and remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        self.heard.append((progress, total, message))

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.heard.append(params.data)

    async def ask(self, request: types.InputRequest) -> Any:
        return ANSWER


def message(said: object) -> types.LoggingMessageNotificationParams:
    return types.LoggingMessageNotificationParams(level="info", data=said)


def test_the_client_of_the_only_call_is_asked():
    relays, client = Relays(SERVER), Client()

    with relays.register(client):
        asyncio.run(relays.log(message("hello")))
        answer = asyncio.run(relays.list_roots(None))

    assert answer is ANSWER
    assert client.heard == ["hello"]


def test_with_several_calls_nobody_is_asked_and_nothing_is_passed_on():
    relays, one, other = Relays(SERVER), Client(), Client()

    with relays.register(one), relays.register(other):
        asyncio.run(relays.log(message("a secret of one")))
        answer = asyncio.run(relays.list_roots(None))

    assert isinstance(answer, types.ErrorData)
    assert answer.message == SEVERAL
    assert one.heard == other.heard == []


def test_without_a_call_nobody_is_asked():
    answer = asyncio.run(Relays(SERVER).list_roots(None))

    assert isinstance(answer, types.ErrorData)
    assert answer.message == NOBODY
