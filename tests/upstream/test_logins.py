"""Tokens of servers that want OAuth."""

import asyncio
import stat
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl

from toolscout.upstream.logins import LoginNeeded, TokenFile, auth_for
from toolscout.upstream.servers import ServerConfig, Transport

URL = "http://127.0.0.1:9/mcp"
CONFIG = ServerConfig(name="web", transport=Transport.HTTP, url=URL, oauth=True)
CLIENT = OAuthClientInformationFull(
    client_id="client", redirect_uris=[AnyUrl("http://127.0.0.1:8975/callback")]
)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def answer(request: httpx2.Request) -> httpx2.Response:
    """Play a server with OAuth that registers everyone and knows one token."""
    if request.headers.get("authorization") == "Bearer good":
        return httpx2.Response(200, json={})
    if request.url.path == "/register":
        return httpx2.Response(201, json=CLIENT.model_dump(mode="json", exclude_none=True))
    return httpx2.Response(401 if request.url.path == "/mcp" else 404)


async def status(folder: Path) -> int:
    transport = httpx2.MockTransport(answer)
    async with httpx2.AsyncClient(transport=transport, auth=auth_for(CONFIG, folder)) as client:
        return (await client.post(URL)).status_code


def test_tokens_are_kept_in_a_file_of_the_owner_alone(tmp_path: Path):
    async def work() -> None:
        file = TokenFile(tmp_path / "tokens", CONFIG)
        await file.set_tokens(OAuthToken(access_token="good"))
        await file.set_client_info(CLIENT)
        again = TokenFile(tmp_path / "tokens", CONFIG)
        tokens, client = await again.get_tokens(), await again.get_client_info()

        assert tokens is not None
        assert client is not None
        assert (tokens.access_token, client.client_id) == ("good", "client")
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600

    run(work())


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"tokens": 1}', '{"tokens": {}}'])
def test_a_file_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, content: str):
    async def work() -> None:
        file = TokenFile(tmp_path, CONFIG)
        file.path.write_text(content)

        assert await file.get_tokens() is None
        assert await file.get_client_info() is None

    run(work())


def test_servers_do_not_share_tokens(tmp_path: Path):
    other = ServerConfig(name="web", transport=Transport.HTTP, url="http://other/mcp", oauth=True)

    assert TokenFile(tmp_path, CONFIG).path != TokenFile(tmp_path, other).path


def test_a_kept_token_is_sent(tmp_path: Path):
    async def work() -> None:
        file = TokenFile(tmp_path, CONFIG)
        await file.set_tokens(OAuthToken(access_token="good"))
        await file.set_client_info(CLIENT)

        assert await status(tmp_path) == 200

    run(work())


def test_without_a_token_a_person_has_to_log_in(tmp_path: Path):
    async def work() -> None:
        with pytest.raises(LoginNeeded):
            await status(tmp_path)

    run(work())
