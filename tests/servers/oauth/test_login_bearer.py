"""Servers that want tokens, behind a pool: sent, renewed, taken over and missed."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from servers.browsing import logged_in
from servers.oauthserver import MACHINE, World, oauth_world
from serving import eventually
from toolscout.catalog import Catalog
from toolscout.config.servers import Grant, ServerConfig, Transport
from toolscout.errors import ServerUnavailable
from toolscout.servers.connection import Delays
from toolscout.servers.oauth.login import BearerAuth, LoginNeeded
from toolscout.servers.oauth.tokens import StoredLogin, TokenFile
from toolscout.servers.pool import Pool
from toolscout.servers.state import Phase
from toolscout.stores.memory import MemoryStore

DEADLINE_SECONDS = 120.0
ADD: dict[str, Any] = {"name": "add", "arguments": {"a": 2, "b": 3}}
QUICK = Delays(first_retry=0.01, most_retry=600.0, login_look=0.01)
"""A server that wants a login is left alone for longer than any test takes."""


@pytest.fixture
def world() -> Iterator[World]:
    with oauth_world() as running:
        yield running


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def config_of(url: str, name: str = "web", **options: Any) -> ServerConfig:
    plain: dict[str, Any] = {"transport": Transport.HTTP, "oauth": True}
    return ServerConfig(name=name, url=url, **(plain | options))


@asynccontextmanager
async def pool_of(folder: Path, *configs: ServerConfig) -> AsyncGenerator[Pool]:
    async with Pool(configs, Catalog(), MemoryStore(), delays=QUICK, tokens=folder) as pool:
        yield pool


async def added(pool: Pool, server: str = "web") -> int:
    result = await pool.request(server, "tools/call", ADD)
    return result["structuredContent"]["result"]


def kept_by(config: ServerConfig, folder: Path) -> StoredLogin:
    kept = TokenFile(folder, config).read()
    assert kept is not None
    return kept


@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
def test_a_login_lets_calls_through(tmp_path: Path, transport: Transport):
    async def work(world: World) -> None:
        config = config_of(world.url, transport=transport)
        await logged_in(config, tmp_path)
        async with pool_of(tmp_path, config) as pool:
            assert await added(pool) == 5

    with oauth_world(transport=transport.value) as world:
        run(work(world))


@pytest.mark.parametrize("oauth", [True, False])
def test_a_running_pool_takes_a_login_over(world: World, tmp_path: Path, oauth: bool):
    async def work() -> None:
        config = config_of(world.url, oauth=oauth)
        async with pool_of(tmp_path, config) as pool:
            await eventually(lambda: pool.servers["web"].phase is Phase.NEEDS_LOGIN)
            with pytest.raises(ServerUnavailable) as caught:
                await added(pool)
            await logged_in(config, tmp_path)
            await eventually(lambda: pool.catalog.get("web__add"))

            assert caught.value.reason == "run `toolscout servers login web`"
            assert await added(pool) == 5

    run(work())


def test_a_gateway_registers_nothing_while_nobody_logs_in(world: World, tmp_path: Path):
    async def work() -> None:
        async with pool_of(tmp_path, config_of(world.url)) as pool:
            await eventually(lambda: pool.servers["web"].phase is Phase.NEEDS_LOGIN)

            assert world.authority.clients == {}

    run(work())
    assert list(tmp_path.iterdir()) == []


def test_tokens_that_are_over_are_renewed_before_they_are_sent(world: World, tmp_path: Path):
    """The authorization server is another one than the MCP server, and no connection knew it."""

    async def work() -> None:
        config = config_of(world.url)
        await logged_in(config, tmp_path)
        first = kept_by(config, tmp_path)
        TokenFile(tmp_path, config).write(first.model_copy(update={"expires_at": 1.0}))
        async with pool_of(tmp_path, config) as pool:
            assert await added(pool) == 5

        renewed = kept_by(config, tmp_path)
        assert world.authority.renewals == 1
        assert renewed.tokens.access_token != first.tokens.access_token
        assert renewed.tokens.refresh_token in world.authority.refresh
        assert renewed.login == first.login
        assert renewed.expires_at is not None and renewed.expires_at > 1.0

    run(work())


def test_tokens_that_a_server_ends_early_are_renewed_in_the_middle_of_a_session(
    world: World, tmp_path: Path
):
    async def work() -> None:
        config = config_of(world.url)
        await logged_in(config, tmp_path)
        async with pool_of(tmp_path, config) as pool:
            await added(pool)
            starts = pool.servers["web"].starts
            world.authority.access.clear()

            assert await added(pool) == 5
            assert world.authority.renewals == 1
            assert pool.servers["web"].starts == starts

    run(work())


def test_calls_at_once_renew_only_once(world: World, tmp_path: Path):
    async def work() -> None:
        config = config_of(world.url)
        await logged_in(config, tmp_path)
        async with pool_of(tmp_path, config) as pool:
            await added(pool)
            world.authority.access.clear()
            world.authority.token_requests = 0

            assert await asyncio.gather(*(added(pool) for _ in range(6))) == [5] * 6
            assert world.authority.token_requests == 1

    run(work())


def test_a_request_that_is_under_way_takes_the_tokens_that_another_renewed(
    world: World, tmp_path: Path
):
    async def work() -> None:
        config = config_of(world.url)
        await logged_in(config, tmp_path)
        auth = BearerAuth(config, TokenFile(tmp_path, config))
        flows = [auth.async_auth_flow(httpx2.Request("POST", world.url)) for _ in range(2)]
        old = {(await anext(flow)).headers["authorization"] for flow in flows}
        new = {(await flow.asend(httpx2.Response(401))).headers["authorization"] for flow in flows}

        assert len(old) == len(new) == 1
        assert old != new
        assert world.authority.renewals == 1

    run(work())


def test_what_another_process_renewed_is_used(world: World, tmp_path: Path):
    async def work() -> None:
        config = config_of(world.url)
        await logged_in(config, tmp_path)
        async with pool_of(tmp_path, config) as first, pool_of(tmp_path, config) as second:
            await added(first)
            await added(second)
            world.authority.access.clear()
            await added(first)

            assert await added(second) == 5
            assert world.authority.renewals == 1

    run(work())


def test_tokens_that_can_no_longer_be_renewed_need_a_login_and_then_work_again(
    world: World, tmp_path: Path
):
    async def work() -> None:
        config = config_of(world.url)
        await logged_in(config, tmp_path)
        async with pool_of(tmp_path, config) as pool:
            await added(pool)
            world.authority.access.clear()
            world.authority.refresh.clear()
            with pytest.raises(ServerUnavailable) as caught:
                await added(pool)

            assert caught.value.state == pool.servers["web"].phase == Phase.NEEDS_LOGIN
            await logged_in(config, tmp_path)
            await eventually(lambda: pool.servers["web"].phase is Phase.READY)
            assert await added(pool) == 5

    run(work())


def test_a_logout_ends_the_use_of_tokens_at_once(world: World, tmp_path: Path):
    async def work() -> None:
        config = config_of(world.url)
        await logged_in(config, tmp_path)
        async with pool_of(tmp_path, config) as pool:
            await added(pool)
            TokenFile(tmp_path, config).forget()

            with pytest.raises(ServerUnavailable) as caught:
                await added(pool)
            assert caught.value.state == Phase.NEEDS_LOGIN

    run(work())


def test_a_server_that_refuses_even_new_tokens_is_not_asked_again_and_again(
    world: World, tmp_path: Path
):
    async def work() -> None:
        config = config_of(world.url)
        await logged_in(config, tmp_path)
        kept = kept_by(config, tmp_path)
        # Tokens for another resource: given out gladly, and refused by the server.
        assert kept.tokens.refresh_token is not None
        old = world.authority.refresh[kept.tokens.refresh_token]
        world.authority.refresh[old.token] = old.model_copy(update={"resource": "http://other"})
        world.authority.access.clear()
        async with pool_of(tmp_path, config) as pool:
            await eventually(lambda: pool.servers["web"].phase is Phase.NEEDS_LOGIN)

            assert kept_by(config, tmp_path).tokens != kept.tokens
            server = pool.servers["web"]
            assert server.token_file is not None
            assert server.token_file.login == server.login
            assert world.authority.renewals == 1

    run(work())


def test_trouble_at_the_authorization_server_is_no_reason_to_log_in(world: World, tmp_path: Path):
    async def work() -> None:
        config = config_of(world.url)
        await logged_in(config, tmp_path)
        before = kept_by(config, tmp_path)
        world.authority.access.clear()
        world.authority.token_status = 503
        async with pool_of(tmp_path, config) as pool:
            with pytest.raises(ServerUnavailable) as caught:
                await added(pool)

            assert caught.value.state == Phase.FAILED
            assert "its authorization server answers with HTTP 503" in caught.value.reason
            assert kept_by(config, tmp_path) == before
            world.authority.token_status = 0
            await pool.start("web")
            assert await added(pool) == 5

    run(work())


def test_two_servers_of_one_authority_have_tokens_of_their_own(tmp_path: Path):
    async def work(world: World) -> None:
        one, two = config_of(world.urls[0], "one"), config_of(world.urls[1], "two")
        async with pool_of(tmp_path, one, two) as pool:
            await logged_in(one, tmp_path)
            await eventually(lambda: pool.catalog.get("one__add"))
            await eventually(lambda: pool.servers["two"].phase is Phase.NEEDS_LOGIN)
            await logged_in(two, tmp_path)
            await eventually(lambda: pool.catalog.get("two__add"))

            assert await added(pool, "one") == await added(pool, "two") == 5
            tokens = {kept_by(config, tmp_path).tokens.access_token for config in (one, two)}
            resources = {world.authority.access[token].resource for token in tokens}
            assert resources == set(world.urls)

    with oauth_world(2) as world:
        run(work(world))


@pytest.mark.parametrize("is_right", [True, False])
def test_a_program_with_credentials_of_its_own_needs_no_person(
    world: World, tmp_path: Path, is_right: bool
):
    async def work() -> None:
        config = config_of(
            world.url,
            oauth_grant=Grant.CLIENT_CREDENTIALS,
            oauth_client_id=MACHINE[0],
            oauth_client_secret=MACHINE[1] if is_right else "wrong-secret",
            oauth_issuer=f"{world.authority.url}/",
        )
        async with pool_of(tmp_path, config) as pool:
            if is_right:
                assert await added(pool) == 5
                world.authority.access.clear()
                assert await added(pool) == 5
            else:
                with pytest.raises(ServerUnavailable) as caught:
                    await added(pool)
                assert "wrong-secret" not in str(caught.value)

    run(work())
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_is_given_up_does_not_lose_renewed_tokens(world: World, tmp_path: Path):
    async def work() -> None:
        config = config_of(world.url)
        await logged_in(config, tmp_path)
        world.authority.access.clear()
        world.authority.may_answer.clear()
        file = TokenFile(tmp_path, config)
        async with httpx2.AsyncClient(auth=BearerAuth(config, file)) as http:
            call = asyncio.create_task(http.post(world.url))
            await eventually(lambda: world.authority.renewals)
            call.cancel()
            await asyncio.wait((call,))
            world.authority.may_answer.set()
            await eventually(lambda: kept_by(config, tmp_path).tokens.access_token in good())

    def good() -> set[str]:
        return set(world.authority.access)

    run(work())


def test_without_tokens_nothing_is_sent(tmp_path: Path):
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise AssertionError(request.url)

    async def work() -> None:
        config = config_of("http://127.0.0.1:9/mcp", "my web")
        auth = BearerAuth(config, TokenFile(tmp_path, config))
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), auth=auth) as http:
            with pytest.raises(LoginNeeded, match="run `toolscout servers login 'my web'`"):
                await http.post(config.url)

    run(work())
