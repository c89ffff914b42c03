"""The address to which a browser brings the answer."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import httpx2
import pytest

from servers.browsing import SECONDS, visit
from toolscout.errors import InvalidConfig
from toolscout.servers.oauth.callback import HEAD_BYTES, Callback, LoginRefused

ASKED = "https://login.example/authorize?client_id=us&state=secret-state"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_the_browser_is_shown_a_fixed_page_that_may_load_nothing():
    async def work() -> None:
        async with Callback(0) as callback:
            callback.expect(ASKED)
            page = await visit(f"{callback.url}?code=<b>&state=secret-state&iss=https://issuer")
            answer = await callback.answer(SECONDS)

            assert (answer.code, answer.state, answer.iss) == (
                "<b>",
                "secret-state",
                "https://issuer",
            )
            assert page.status_code == 200
            assert "<b>" not in page.text
            assert page.headers["content-security-policy"] == "default-src 'none'"
            assert page.headers["cache-control"] == "no-store"

    run(work())


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/", 404),
        ("/favicon.ico", 404),
        ("/callback", 400),
        ("/callback?state=secret-state", 400),
        ("/callback?code=x&state=other", 400),
        ("/callback?code=x&state=secret-state&" + "&".join("abcdefgh" * 5), 400),
        ("/callback?error=access_denied&state=secret-state", 403),
    ],
)
def test_what_is_no_answer_does_not_log_anybody_in(target: str, status: int):
    async def work() -> None:
        async with Callback(0) as callback:
            callback.expect(ASKED)
            page = await visit(callback.url.removesuffix("/callback") + target)

            assert page.status_code == status
            with pytest.raises(LoginRefused if status == 403 else TimeoutError):
                await callback.answer(0.01)

    run(work())


def test_before_a_state_was_sent_out_no_answer_counts():
    async def work() -> None:
        async with Callback(0) as callback:
            assert (await visit(f"{callback.url}?code=x&state=")).status_code == 400

    run(work())


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS"])
def test_only_get_is_answered(method: str):
    async def work() -> None:
        async with Callback(0) as callback, httpx2.AsyncClient() as http:
            callback.expect(ASKED)
            url = f"{callback.url}?code=x&state=secret-state"

            assert (await http.request(method, url)).status_code == 404

    run(work())


def test_noise_and_endless_heads_are_hung_up_on():
    async def work() -> None:
        async with Callback(0) as callback:
            callback.expect(ASKED)
            port = int(callback.url.split(":")[2].partition("/")[0])
            for noise in (b"\x16\x03\x01 no HTTP\r\n\r\n", b"GET /" + b"x" * 2 * HEAD_BYTES):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(noise)
                assert b"200 OK" not in await _rest(reader)
                writer.close()

            page = await visit(f"{callback.url}?code=x&state=secret-state")
            assert page.status_code == 200

    run(work())


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def test_the_usual_port_gives_way_and_a_chosen_one_does_not():
    async def work() -> None:
        async with Callback() as first, Callback() as second:
            assert first.url != second.url

        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(InvalidConfig, match="'--port' cannot be listened on"):
                await Callback(port).__aenter__()

    run(work())


def test_it_listens_on_loopback_only():
    async def work() -> None:
        async with Callback(0) as callback:
            assert callback.url.startswith("http://127.0.0.1:")

    run(work())
