"""Each user logs in to a server: nobody's tokens may serve anybody else, or lie about in plain."""

import asyncio
import base64
import logging
import secrets
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from gateway.fleet import known, text_of
from servers.browsing import logged_in
from servers.oauthserver import World, oauth_world
from serving import DEADLINE_SECONDS, Served, eventually, served
from toolscout.config.gateway import TokenConfig
from toolscout.config.servers import Grant, Login, ServerConfig, Transport
from toolscout.errors import InvalidConfig
from toolscout.gateway.audit import read_entries
from toolscout.servers.oauth.encrypted_logins import KEY_FILE, EncryptedLogins
from toolscout.servers.oauth.tokens import TokenFile
from toolscout.servers.state import Caller
from toolscout.stores.sqlite import SqliteStore

TOKENS = {name: f"the token of {name}, which is long enough" for name in ("ann", "bob", "cleo")}


@pytest.fixture
def world() -> Iterator[World]:
    with oauth_world(tells=True) as running:
        yield running


def server_at(world: World, *, oauth: bool = True, **options: Any) -> ServerConfig:
    return ServerConfig(name="web", transport=Transport.HTTP, url=world.url, oauth=oauth, **options)


def log_in(world: World, config: ServerConfig, folder: Path, principal: str = "") -> None:
    """Have somebody log in, as `toolscout servers login` would; without a name, for everybody."""
    world.authority.person = principal or "admin"
    with SqliteStore(folder / "gateway.db") as store:
        encrypted_logins = EncryptedLogins(store, folder=folder)
        place = encrypted_logins.find(config, principal) if principal else TokenFile(folder, config)
        assert asyncio.run(logged_in(config, place))


@contextmanager
def serve(
    config: ServerConfig,
    folder: Path,
    *,
    users: Iterable[str] = tuple(TOKENS),
    console: bool = False,
    **options: Any,
) -> Generator[Served]:
    options["tokens"] = {name: {"token": TOKENS[name]} for name in users}
    with (
        SqliteStore(folder / "gateway.db") as store,
        served(config, store=store, logins=folder, console=console, **options) as running,
    ):
        yield running


@asynccontextmanager
async def connect(gateway: Served, name: str, **options: Any) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {TOKENS[name]}"}
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(f"{gateway.url}/mcp", http_client=http), **options) as client,
    ):
        await known(client, "web__whoami")
        yield client


async def ask(client: Client, **arguments: Any) -> str:
    return text_of(
        await client.call_tool("tool_call", {"name": "web__whoami", "arguments": arguments})
    )


def ask_as(gateway: Served, name: str) -> str:
    async def run() -> str:
        async with connect(gateway, name) as client:
            return await ask(client)

    return asyncio.run(run())


def list_users(gateway: Served) -> list[str]:
    return [owner.principal for owner in gateway.gateway.pool.servers["web"].owned]


def test_each_user_reaches_the_server_as_themselves(world: World, tmp_path: Path):
    config = server_at(world, login="user")
    for name in ("", "ann", "bob"):
        log_in(world, config, tmp_path, name)

    async def run(gateway: Served) -> list[str]:
        async with connect(gateway, "ann") as ann, connect(gateway, "bob") as bob:
            # Slow calls overlap, so that a connection that was shared would be noticed.
            asked = [ask(client, seconds=0.2) for client in (ann, bob) * 5]
            return await asyncio.gather(*asked)

    with serve(config, tmp_path) as gateway:
        assert asyncio.run(run(gateway)) == ["You are ann.", "You are bob."] * 5


def test_each_session_of_a_user_can_have_a_connection_with_the_login_of_the_user(
    world: World, tmp_path: Path
):
    config = server_at(world, login="user", share="session")
    for name in ("", "ann", "bob"):
        log_in(world, config, tmp_path, name)

    async def run(gateway: Served) -> list[str]:
        async with (
            connect(gateway, "ann", mode="legacy") as ann,
            connect(gateway, "ann", mode="legacy") as ann_again,
            connect(gateway, "bob", mode="legacy") as bob,
        ):
            world.authority.access.clear()  # each has to use the renewed tokens of its user
            said = [await ask(client) for client in (ann, ann_again, bob, ann)]
            assert list_users(gateway) == ["ann", "ann", "bob"]
            return said

    with serve(config, tmp_path) as gateway:
        assert asyncio.run(run(gateway)) == [f"You are {n}." for n in ("ann", "ann", "bob", "ann")]


def test_each_user_reads_resources_as_themselves_and_nobody_watches_them(
    world: World, tmp_path: Path
):
    config = server_at(world, login="user")
    for name in ("", "ann"):
        log_in(world, config, tmp_path, name)

    uri = "toolscout://web/who://ami"

    async def read(gateway: Served, name: str) -> str:
        async with connect(gateway, name) as client:
            async with client.listen(resource_subscriptions=[uri]) as changes:
                assert not changes.honored.resource_subscriptions
            try:
                return (await client.read_resource(uri)).model_dump_json()
            except MCPError as error:
                return error.message

    with serve(config, tmp_path) as gateway:
        assert "You are ann." in asyncio.run(read(gateway, "ann"))
        assert "--principal bob" in asyncio.run(read(gateway, "bob"))


def test_a_user_without_a_login_is_told_how_to_log_in_and_then_the_call_works(
    world: World, tmp_path: Path
):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    log_in(world, config, tmp_path, "ann")

    with serve(config, tmp_path) as gateway:
        refused = ask_as(gateway, "bob")
        log_in(world, config, tmp_path, "bob")
        accepted = ask_as(gateway, "bob")

    assert "toolscout servers login web --principal bob" in refused
    assert "You are" not in refused
    assert accepted == "You are bob."


def test_a_user_who_logs_in_as_somebody_else_is_that_person_from_the_next_call(
    world: World, tmp_path: Path
):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    log_in(world, config, tmp_path, "ann")
    with serve(config, tmp_path) as gateway:
        assert ask_as(gateway, "ann") == "You are ann."

        world.authority.person = "ann at work"
        with SqliteStore(tmp_path / "gateway.db") as store:
            asyncio.run(
                logged_in(config, EncryptedLogins(store, folder=tmp_path).find(config, "ann"))
            )

        assert ask_as(gateway, "ann") == "You are ann at work."


def test_tokens_that_expired_are_renewed_for_their_user_alone(world: World, tmp_path: Path):
    config = server_at(world, login="user")
    for name in ("", "ann", "bob"):
        log_in(world, config, tmp_path, name)
    with serve(config, tmp_path) as gateway:
        assert ask_as(gateway, "ann") == "You are ann."
        world.authority.access.clear()

        assert ask_as(gateway, "bob") == "You are bob."
        assert ask_as(gateway, "ann") == "You are ann."

    with serve(config, tmp_path) as gateway:  # each renewal was the last of its tokens
        assert ask_as(gateway, "ann") == "You are ann."


def test_no_token_can_be_read_in_the_files_of_the_gateway(world: World, tmp_path: Path):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path, "ann")
    given = [*world.authority.access, *world.authority.refresh]
    log_in(world, config, tmp_path)
    with serve(config, tmp_path) as gateway:
        assert ask_as(gateway, "ann") == "You are ann."
        headers = {"Authorization": f"Bearer {TOKENS['ann']}"}
        told = httpx2.get(f"{gateway.url}/status", headers=headers, timeout=DEADLINE_SECONDS)

    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert given
    assert [token for token in given if token.encode() in written] == []
    assert [token for token in given if token in told.text] == []
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o077 == 0


def test_a_login_moved_to_another_user_is_refused(world: World, tmp_path: Path):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    log_in(world, config, tmp_path, "ann")
    with SqliteStore(tmp_path / "gateway.db") as store:
        encrypted_logins = EncryptedLogins(store, folder=tmp_path)
        ann, bob = encrypted_logins.find(config, "ann"), encrypted_logins.find(config, "bob")
        store.write("login", bob.key, store.read("login", ann.key))

    with serve(config, tmp_path) as gateway:
        refused = ask_as(gateway, "bob")

    assert "the stored login cannot be read" in refused


def make_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def test_the_first_key_encrypts_and_all_keys_decrypt(world: World, tmp_path: Path):
    config = server_at(world, login="user")
    old, new = make_key(), make_key()
    world.authority.person = "ann"
    with SqliteStore(tmp_path / "gateway.db") as store:
        asyncio.run(
            logged_in(config, EncryptedLogins(store, [old], folder=None).find(config, "ann"))
        )
        rotated = EncryptedLogins(store, [new, old], folder=None).find(config, "ann")
        stored = rotated.load()
        assert stored is not None
        rotated.write(stored)

        assert EncryptedLogins(store, [new], folder=None).find(config, "ann").load() == stored
        with pytest.raises(InvalidConfig, match="lacks the key"):
            EncryptedLogins(store, [old], folder=None).find(config, "ann").load()


def test_a_wrong_key_is_a_clear_error_and_loses_nothing(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    log_in(world, config, tmp_path, "ann")
    with serve(config, tmp_path, login_keys=[make_key()]) as gateway:
        refused = ask_as(gateway, "ann")
    with serve(config, tmp_path) as gateway:
        accepted = ask_as(gateway, "ann")

    assert "the stored login cannot be read" in refused
    assert "gateway.login_keys" in caplog.text
    assert accepted == "You are ann."


def test_a_key_that_is_none_is_refused_without_being_shown(tmp_path: Path):
    with SqliteStore(tmp_path / "gateway.db") as store, pytest.raises(InvalidConfig) as caught:
        EncryptedLogins(store, ["hunter2-hunter2"], folder=None)

    assert "openssl rand" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_connection_of_a_user_who_may_no_longer_use_the_gateway_ends(
    world: World, tmp_path: Path
):
    config = server_at(world, login="user")
    for name in ("", "ann", "bob"):
        log_in(world, config, tmp_path, name)
    with serve(config, tmp_path) as gateway:
        assert ask_as(gateway, "ann") == "You are ann."
        assert ask_as(gateway, "bob") == "You are bob."
        connection = gateway.gateway.pool.servers["web"].owned[Caller(principal="bob")].connection
        assert connection is not None

        now = gateway.gateway.config
        left = {name: TokenConfig(token=TOKENS[name]) for name in ("ann", "cleo")}
        changed = replace(now, gateway=replace(now.gateway, tokens=left))
        reloading = asyncio.run_coroutine_threadsafe(gateway.gateway.reload(changed), gateway.loop)
        reloading.result(DEADLINE_SECONDS)

        asyncio.run(eventually(connection.ended.is_set))
        assert list_users(gateway) == ["ann"]
        assert ask_as(gateway, "ann") == "You are ann."


def test_the_connection_of_a_user_who_logs_out_ends(world: World, tmp_path: Path):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    log_in(world, config, tmp_path, "ann")
    with serve(config, tmp_path) as gateway:
        assert ask_as(gateway, "ann") == "You are ann."
        connection = gateway.gateway.pool.servers["web"].owned[Caller(principal="ann")].connection
        assert connection is not None

        with SqliteStore(tmp_path / "gateway.db") as store:
            assert EncryptedLogins(store, folder=tmp_path).find(config, "ann").forget()

        asyncio.run(eventually(connection.ended.is_set))
        assert "--principal ann" in ask_as(gateway, "ann")


def test_the_connection_of_an_idle_user_ends_and_the_next_call_opens_another(
    world: World, tmp_path: Path
):
    config = server_at(world, login="user", idle_stop=0.1)
    log_in(world, config, tmp_path)
    log_in(world, config, tmp_path, "ann")
    with serve(config, tmp_path) as gateway:
        assert ask_as(gateway, "ann") == "You are ann."

        asyncio.run(eventually(lambda: not list_users(gateway)))

        assert ask_as(gateway, "ann") == "You are ann."


def test_the_oldest_idle_connection_makes_room_for_another_user(world: World, tmp_path: Path):
    config = server_at(world, login="user", max_connections=2)
    for name in ("", *TOKENS):
        log_in(world, config, tmp_path, name)
    with serve(config, tmp_path) as gateway:
        for name in ("bob", "ann", "cleo"):
            assert ask_as(gateway, name) == f"You are {name}."

        assert list_users(gateway) == ["ann", "cleo"]
        assert ask_as(gateway, "bob") == "You are bob."


def test_no_connection_in_use_makes_room(world: World, tmp_path: Path):
    config = server_at(world, login="user", max_connections=1)
    for name in ("", "ann", "bob"):
        log_in(world, config, tmp_path, name)

    async def run(gateway: Served) -> tuple[str, str]:
        async with connect(gateway, "ann") as ann, connect(gateway, "bob") as bob:
            slow = asyncio.create_task(ask(ann, seconds=3.0))
            assert await asyncio.to_thread(world.authority.called.acquire, True, DEADLINE_SECONDS)
            refused = await ask(bob)
            return refused, await slow

    with serve(config, tmp_path) as gateway:
        refused, answered = asyncio.run(run(gateway))

    assert "is busy" in refused
    assert answered == "You are ann."


def begin_login(gateway: Served, browser: httpx2.Client, name: str) -> httpx2.Response:
    """Do what the login page does once a person has given it a token."""
    headers = {"Authorization": f"Bearer {TOKENS[name]}"}
    return browser.post(f"{gateway.url}/api/servers/web/own_login", headers=headers)


def open_browser() -> httpx2.Client:
    return httpx2.Client(follow_redirects=True, timeout=DEADLINE_SECONDS)


def log_in_on_page(gateway: Served, page: str, name: str) -> str:
    """Log in as a person would with a browser, and return where that ended."""
    with open_browser() as browser:
        assert browser.get(page).status_code == 200
        begun = begin_login(gateway, browser, name)
        assert begun.json()["principal"] == name
        return str(browser.get(begun.json()["url"]).url)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_can_open_pages_lets_its_user_log_in_during_the_call(
    world: World, tmp_path: Path, mode: str
):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    asked: list[types.ElicitRequestURLParams] = []
    ended: list[str] = []

    async def run(gateway: Served) -> str:
        async def answer(context: Any, params: Any) -> types.ElicitResult:
            asked.append(params)
            world.authority.person = "bob"
            ended.append(await asyncio.to_thread(log_in_on_page, gateway, params.url, "bob"))
            return types.ElicitResult(action="accept")

        async with connect(gateway, "bob", mode=mode, elicitation_callback=answer) as client:
            return await ask(client)

    with serve(config, tmp_path, console=True) as gateway:
        answered = asyncio.run(run(gateway))

    assert answered == "You are bob."
    assert [params.url for params in asked] == [f"{gateway.url}/login?server=web"]
    assert "'web'" in asked[0].message
    assert ended == [f"{gateway.url}/login?outcome=done"]


def test_a_user_who_declines_to_log_in_is_refused_with_the_page(world: World, tmp_path: Path):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)

    async def decline(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async def run(gateway: Served) -> str:
        async with connect(gateway, "bob", elicitation_callback=decline) as client:
            return await ask(client)

    with serve(config, tmp_path, console=True) as gateway:
        refused = asyncio.run(run(gateway))

    assert f"open {gateway.url}/login?server=web" in refused


def test_a_client_that_cannot_open_pages_is_told_the_page(world: World, tmp_path: Path):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    with serve(config, tmp_path, console=True) as gateway:
        refused = ask_as(gateway, "bob")
        world.authority.person = "bob"
        log_in_on_page(gateway, f"{gateway.url}/login?server=web", "bob")
        accepted = ask_as(gateway, "bob")

    assert f"open {gateway.url}/login?server=web" in refused
    assert accepted == "You are bob."


def test_the_logins_of_users_are_in_the_audit_record(world: World, tmp_path: Path):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    with serve(config, tmp_path, console=True) as gateway:
        world.authority.person = "bob"
        page = f"{gateway.url}/login?server=web"
        assert log_in_on_page(gateway, page, "bob").endswith("outcome=done")
        world.authority.denies = True
        assert log_in_on_page(gateway, page, "ann").endswith("outcome=failed")
        with open_browser() as browser:
            begin_login(gateway, browser, "cleo")

    with SqliteStore(tmp_path / "gateway.db") as store:
        entries = [entry for entry in read_entries(store) if entry["event"] == "login"]
    assert [(entry["principal"], entry["outcome"]) for entry in entries] == [
        ("bob", "started"),
        ("bob", "ok"),
        ("ann", "started"),
        ("ann", "failed"),
        ("cleo", "started"),
        ("cleo", "failed"),
    ]
    assert entries[3]["reason"]
    assert "the gateway stopped" in entries[5]["reason"]
    assert {entry["server"] for entry in entries} == {"web"}


def test_a_login_ends_only_in_the_browser_in_which_it_began(world: World, tmp_path: Path):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    world.authority.person = "ann"
    with serve(config, tmp_path, console=True) as gateway:
        with open_browser() as bobs, open_browser() as anns:
            # Bob sends Ann the address at which he should log in, to get at her account.
            address = begin_login(gateway, bobs, "bob").json()["url"]
            elsewhere = str(anns.get(address).url)
            begin_login(gateway, anns, "ann")
            with_own_cookie = str(anns.get(address).url)
        refused = ask_as(gateway, "bob")

    assert elsewhere == with_own_cookie == f"{gateway.url}/login?outcome=unknown"
    assert "You are" not in refused


def test_a_neighbour_under_the_same_domain_cannot_plant_the_cookie_of_a_login(
    world: World, tmp_path: Path
):
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    tokens = {name: {"token": token} for name, token in TOKENS.items()}
    with (
        served(
            config,
            logins=tmp_path,
            console=True,
            tokens=tokens,
            public_url="https://tools.example",
        ) as gateway,
        open_browser() as browser,
    ):
        assert gateway.known.wait(DEADLINE_SECONDS)
        begun = begin_login(gateway, browser, "bob")
        cookie = begun.headers["set-cookie"]
        state = httpx2.URL(begun.json()["url"]).params["state"]
        planted = f"toolscout_login={cookie.partition('=')[2].partition(';')[0]}"
        browser.follow_redirects = False
        ended = browser.get(
            f"{gateway.url}/login/callback?code=x&state={state}", headers={"Cookie": planted}
        )

    assert cookie.startswith("__Host-toolscout_login=")
    assert "Secure" in cookie
    assert "Path=/;" in cookie
    assert "Domain" not in cookie
    assert ended.headers["location"] == "/login?outcome=unknown"


@pytest.mark.parametrize("token", ["", "Bearer of somebody else"])
def test_nobody_begins_a_login_without_a_token_of_the_gateway(
    world: World, tmp_path: Path, token: str
):
    with serve(server_at(world, login="user"), tmp_path, console=True) as gateway:
        headers = {"Authorization": token} if token else {}
        address = f"{gateway.url}/api/servers/web/own_login"
        told = httpx2.post(address, headers=headers, timeout=DEADLINE_SECONDS)

    assert told.status_code == 401
    assert "set-cookie" not in told.headers


def test_a_user_logs_in_only_to_servers_that_the_profile_shows(world: World, tmp_path: Path):
    profiles = {"none": {"servers": ["other"]}}
    tokens = {"ann": {"token": TOKENS["ann"], "profile": "none"}, "bob": {"token": TOKENS["bob"]}}
    config = server_at(world, login="user")
    log_in(world, config, tmp_path)
    with (
        served(config, logins=tmp_path, console=True, tokens=tokens, profiles=profiles) as gateway,
        open_browser() as browser,
    ):
        assert gateway.known.wait(DEADLINE_SECONDS)
        assert begin_login(gateway, browser, "ann").status_code == 404
        assert begin_login(gateway, browser, "bob").status_code == 200


@pytest.mark.parametrize("options", [{"oauth": True}, {"oauth": False}])
def test_one_login_serves_several_users_only_if_the_configuration_says_so(
    world: World, tmp_path: Path, options: dict[str, bool], caplog: pytest.LogCaptureFixture
):
    undecided = server_at(world, **options)
    log_in(world, undecided, tmp_path)
    with serve(undecided, tmp_path) as gateway, caplog.at_level(logging.WARNING):
        refused = [ask_as(gateway, name) for name in ("ann", "bob")]
    with serve(replace(undecided, login="shared"), tmp_path) as gateway:
        shared = [ask_as(gateway, name) for name in ("ann", "bob")]

    assert all('login = "shared"' in text and "You are" not in text for text in refused)
    assert shared == ["You are admin."] * 2


def test_servers_that_are_refused_are_named_at_the_start(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with serve(server_at(world), tmp_path):
        pass

    assert [r.levelname for r in caplog.records if 'login = "shared"' in r.getMessage()] == [
        "WARNING"
    ]


def test_one_user_goes_on_with_the_only_login(world: World, tmp_path: Path):
    config = server_at(world)
    log_in(world, config, tmp_path)
    with serve(config, tmp_path, users=["ann"]) as gateway:
        assert ask_as(gateway, "ann") == "You are admin."
    with serve(config, tmp_path, users=()) as gateway:
        assert ask_as(gateway, "ann") == "You are admin."


@pytest.mark.parametrize(
    "options",
    [
        {"token": "static"},
        {"headers": {"Authorization": "Bearer static"}},
        {
            "oauth_grant": Grant.CLIENT_CREDENTIALS,
            "oauth_client_id": "id",
            "oauth_client_secret": "secret",
            "oauth_issuer": "https://login.example",
        },
    ],
)
def test_a_server_with_credentials_of_its_own_has_no_logins_of_users(options: dict[str, Any]):
    with pytest.raises(InvalidConfig, match="login"):
        ServerConfig(
            name="web", transport=Transport.HTTP, url="https://web.example", login="user", **options
        )


def test_login_is_one_of_two_words():
    web = ServerConfig(name="web", transport=Transport.HTTP, url="https://web.example")
    assert replace(web, login="user").login is Login.USER
    with pytest.raises(InvalidConfig, match="login"):
        replace(web, login="everybody")
