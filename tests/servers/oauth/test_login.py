"""A person logs in, at a real authorization server."""

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.server.auth.provider import construct_redirect_uri
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from servers.browsing import SECONDS, logged_in, visit
from servers.oauthserver import MORE, SCOPE, World, oauth_world
from toolscout.config.servers import Grant, ServerConfig, Transport
from toolscout.errors import InvalidConfig, LoginFailed
from toolscout.servers.oauth.callback import Callback
from toolscout.servers.oauth.login import LoginState, check_login, find_login_state, log_in
from toolscout.servers.oauth.tokens import StoredLogin, TokenFile


@pytest.fixture
def world() -> Iterator[World]:
    with oauth_world() as running:
        yield running


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def config_of(world: World, **options: Any) -> ServerConfig:
    plain: dict[str, Any] = {"name": "web", "transport": Transport.HTTP, "url": world.url}
    plain["oauth"] = True
    return ServerConfig(**(plain | options))


def kept_by(config: ServerConfig, folder: Path) -> StoredLogin:
    kept = TokenFile(folder, config).read()
    assert kept is not None
    return kept


def test_a_login_registers_asks_with_pkce_and_keeps_what_renewing_takes(
    world: World, tmp_path: Path
):
    config = config_of(world)

    assert run(logged_in(config, tmp_path))

    kept, [asked] = kept_by(config, tmp_path), world.authority.asked
    assert kept.tokens.access_token in world.authority.access
    assert kept.tokens.refresh_token in world.authority.refresh
    assert kept.client is not None
    assert list(world.authority.clients) == [kept.client.client_id]
    assert kept.server is not None
    assert str(kept.server.token_endpoint) == f"{world.authority.url}/token"
    assert kept.expires_at is not None
    assert len(asked.code_challenge) == 43
    assert asked.resource == world.url


def test_a_server_of_the_older_transport_is_logged_in_to(tmp_path: Path):
    with oauth_world(transport="sse") as world:
        config = config_of(world, transport=Transport.SSE)

        assert run(logged_in(config, tmp_path))
        assert kept_by(config, tmp_path).tokens.access_token in world.authority.access


def test_an_answer_with_a_wrong_state_is_refused_and_the_right_one_still_counts(
    world: World, tmp_path: Path
):
    statuses: list[int] = []

    async def browse(url: str, callback: Callback) -> None:
        for wrong in ("&state=forged", "", "&state="):
            forged = await visit(f"{callback.url}?code=stolen{wrong}")
            statuses.append(forged.status_code)
        statuses.append((await visit(url)).status_code)

    assert run(logged_in(config_of(world), tmp_path, browse))
    assert statuses == [400, 400, 400, 200]


def test_a_person_who_says_no_is_not_logged_in(world: World, tmp_path: Path):
    world.authority.denies = True

    with pytest.raises(LoginFailed) as caught:
        run(logged_in(config_of(world), tmp_path))

    assert str(caught.value) == (
        "Login to server 'web' failed: the answer was no (access_denied The person said no). "
        "Run the command again to agree."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_person_who_does_not_answer_is_waited_for_only_so_long(world: World, tmp_path: Path):
    async def browse(url: str, callback: Callback) -> None:
        pass

    with pytest.raises(LoginFailed) as caught:
        run(logged_in(config_of(world), tmp_path, browse, seconds=0.01))

    assert caught.value.reason == "nobody answered in time"


def test_a_pasted_address_counts_as_the_browser_would(world: World, tmp_path: Path):
    taken: list[bool] = []

    async def browse(url: str, callback: Callback) -> None:
        [state] = parse_qs(urlsplit(url).query)["state"]
        wrong = construct_redirect_uri(callback.url, code="x", state="forged")
        code = await code_of(url)
        right = construct_redirect_uri(callback.url, code=code, state=state)
        taken.extend(map(callback.take, ("no address", wrong, right)))

    assert run(logged_in(config_of(world), tmp_path, browse))
    assert taken == [False, False, True]


async def code_of(url: str) -> str:
    """Return the code that a browser would have brought, had it come through."""
    async with httpx2.AsyncClient(timeout=SECONDS) as browser:
        answer = await browser.get(url)
    return parse_qs(urlsplit(answer.headers["location"]).query)["code"][0]


def test_a_login_that_fails_leaves_the_tokens_of_the_last_one(world: World, tmp_path: Path):
    config = config_of(world)
    run(logged_in(config, tmp_path))
    before = kept_by(config, tmp_path)
    world.authority.denies = True

    with pytest.raises(LoginFailed):
        run(logged_in(config, tmp_path))

    assert kept_by(config, tmp_path) == before


def test_each_login_is_told_apart_from_the_last(world: World, tmp_path: Path):
    config = config_of(world)
    run(logged_in(config, tmp_path))
    first = kept_by(config, tmp_path)

    run(logged_in(config, tmp_path))

    assert kept_by(config, tmp_path).login not in ("", first.login)


@pytest.mark.parametrize(("scopes", "asked"), [((), [SCOPE]), ((SCOPE, MORE), [SCOPE, MORE])])
def test_the_configured_scopes_are_asked_for_or_those_that_the_server_names(
    world: World, tmp_path: Path, scopes: tuple[str, ...], asked: list[str]
):
    run(logged_in(config_of(world, oauth_scopes=scopes), tmp_path))

    assert world.authority.asked[0].scopes == asked


def test_where_nobody_can_register_the_remedy_is_a_client_id(tmp_path: Path):
    with oauth_world(registers=False) as world, pytest.raises(LoginFailed) as caught:
        run(logged_in(config_of(world), tmp_path))

    assert caught.value.remedy == (
        "If it does not register clients itself, register toolscout there with the "
        "redirect address http://127.0.0.1:8975/callback and set 'oauth_client_id'."
    )


@pytest.mark.parametrize("secret", ["", "sesame"])
def test_a_client_that_was_registered_by_hand_is_used_and_its_secret_not_kept(
    tmp_path: Path, secret: str
):
    with oauth_world(registers=False) as world:
        config = config_of(
            world,
            oauth_client_id="by-hand",
            oauth_client_secret=secret,
            oauth_issuer=world.authority.url,
        )
        run(by_hand(world, config, tmp_path))

        assert kept_by(config, tmp_path).tokens.access_token in world.authority.access
        assert "sesame" not in TokenFile(tmp_path, config).path.read_text()


async def by_hand(world: World, config: ServerConfig, folder: Path) -> None:
    async with Callback(0) as callback:
        world.authority.clients["by-hand"] = OAuthClientInformationFull(
            client_id="by-hand",
            client_secret=config.oauth_client_secret or None,
            redirect_uris=[AnyUrl(callback.url)],
            scope=SCOPE,
            token_endpoint_auth_method="client_secret_post"
            if config.oauth_client_secret
            else "none",
        )

        async def redirect(url: str) -> None:
            callback.expect(url)
            await visit(url)

        await log_in(
            config,
            TokenFile(folder, config),
            callback=callback.url,
            redirect=redirect,
            answer=lambda: callback.answer(SECONDS),
        )


def test_a_server_that_cannot_be_reached_is_told(tmp_path: Path):
    config = ServerConfig(name="web", transport=Transport.HTTP, url="http://127.0.0.1:9/mcp")

    with pytest.raises(LoginFailed) as caught:
        run(logged_in(config, tmp_path))

    assert caught.value.reason.startswith("no answer (")


def test_a_server_that_is_something_else_is_told(world: World, tmp_path: Path):
    config = config_of(world, url=f"{world.authority.url}/nothing")

    with pytest.raises(LoginFailed) as caught:
        run(logged_in(config, tmp_path))

    assert caught.value.reason == "it answers with HTTP 404"


WEB = ServerConfig(name="web", transport=Transport.HTTP, url="http://web/mcp")
MACHINE = replace(
    WEB,
    oauth_grant=Grant.CLIENT_CREDENTIALS,
    oauth_client_id="id",
    oauth_client_secret="${S}",
    oauth_issuer="http://issuer",
)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (ServerConfig(name="web", transport=Transport.STDIO, command="run"), "transport stdio"),
        (replace(WEB, token="${T}"), "a token of its own"),
        (replace(WEB, headers={"authorization": "${T}"}), "a token of its own"),
        (MACHINE, "needs no person"),
    ],
)
def test_a_server_at_which_no_person_can_log_in_is_refused(config: ServerConfig, problem: str):
    with pytest.raises(InvalidConfig, match=problem):
        check_login(config)


def test_the_state_of_a_login_is_known_without_asking(world: World, tmp_path: Path):
    config = config_of(world)
    before = find_login_state(config, tmp_path, 0)
    run(logged_in(config, tmp_path))
    kept = kept_by(config, tmp_path)
    after = find_login_state(config, tmp_path, 1e12)
    only_access = kept.tokens.model_copy(update={"refresh_token": None})
    TokenFile(tmp_path, config).write(kept.model_copy(update={"tokens": only_access}))

    assert before is LoginState.NEEDED
    assert after is LoginState.LOGGED_IN
    assert find_login_state(config, tmp_path, 0) is LoginState.LOGGED_IN
    assert find_login_state(config, tmp_path, 1e12) is LoginState.EXPIRED
    assert find_login_state(WEB, tmp_path, 0) is LoginState.NONE
    assert find_login_state(replace(WEB, token="x"), tmp_path, 0) is LoginState.TOKEN
    assert find_login_state(MACHINE, tmp_path, 0) is LoginState.MACHINE
